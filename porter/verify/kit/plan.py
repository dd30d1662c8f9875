# SPDX-License-Identifier: Apache-2.0
"""The runs of a kit: a program of a case on the inputs of one family, compiled for one GPU."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from porter.build.port_plan import PortPlan
from porter.build.ptxas import assemble
from porter.build.toolchain import Toolkit
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.hopper import Layout
from porter.hopper.library import ARITHMETIC, HOST_VARIABLE, MODES
from porter.ptx.arch import PORT_TARGETS
from porter.ptx.tensormap import ENCODED_BYTES, TensorMap
from porter.verify.arguments import MapAddress, MapValue, Pointer
from porter.verify.backends import SimBackend
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH, Builder, BuiltKernel
from porter.verify.case import Case, cases_of, load_case
from porter.verify.expr import Number
from porter.verify.gpu.emulation import Lowerer
from porter.verify.images import Image, make_image
from porter.verify.inputs import choose, generate
from porter.verify.launching import build_port, launch_of
from porter.verify.params import argument_bytes
from porter.verify.problem import LaunchValues, Problem, bind
from porter.verify.record import inputs_digest, kernel_digest
from porter.verify.settings import SimOptions
from porter.verify.yaml_file import read_yaml

CAPABILITY = {"sm_90a": "9.0", **{t.name: t.version for t in PORT_TARGETS}}
"""GPUs that run a cubin for an architecture (PTX ISA 11.1.2: that chip alone)."""
EMULATED = "port-emulated"
PROBE = "probe"
NEXT = ("sm_103a",)
"""Further chips that every kit is for."""
FOR_CHIP = "port-"
"""In front of the name of a further chip: what its port is called."""
Compiled = tuple[str, str, BuiltKernel, Problem, LaunchValues, str]
PortFor = Callable[[Case, str], tuple[PortPlan | None, list[Diagnostic]]]
PROBES = Path(__file__).parent / "probes"
"""Cases that ask a GPU what the PTX ISA leaves open; what they should give is what the simulator assumes."""
PATIENCE_NS = 10_000_000_000
_TOKEN = 0x5054_4B00_0000_0000
"""Stands for addresses while parameters are laid out; no size or float looks like it."""


@dataclass(frozen=True)
class KitRun:
    """One run. `capability` says which GPUs it is for; `source` and `inputs` are digests of what was compiled and of
    what it reads. `image` is the cubin, `emulate` the words that say what a lowered port needs."""

    case: str
    sizes: Mapping[str, Number]
    family: str
    seed: int
    program: str
    capability: str
    source: str
    inputs: str
    problem: Problem = field(repr=False)
    kernel: BuiltKernel = field(repr=False)
    launch: LaunchValues = field(repr=False)
    images: Mapping[str, Image] = field(repr=False)
    image: bytes = field(repr=False, default=b"")
    emulate: tuple[object, ...] = ()
    model: BuiltKernel | None = field(repr=False, default=None)
    """What the simulator runs in place of `kernel`."""

    @property
    def label(self) -> str:
        """Case, sizes, input family, seed and program: what the run is called everywhere."""
        sizes = ",".join(f"{name}={value}" for name, value in self.sizes.items())
        return f"{self.case} {sizes} {self.family} {self.seed} {self.program}"

    @property
    def origin(self) -> Path:
        """The file whose kernel it is."""
        return self.problem.case.kernel

    @property
    def question(self) -> str:
        """What a probe asks."""
        return str(read_yaml(self.problem.case.path)[1]["description"])

    @property
    def is_open(self) -> bool:
        return False

    def expected(self) -> dict[str, str]:
        """The digest of every output after a run on the simulator, with the hardware's arithmetic.

        Raises:
            PorterError: KIT_RUN if the run does not end well there.
        """
        backend = SimBackend(SimOptions(arithmetic="exact"))
        result = backend.run(self.model or self.kernel, self.problem, self.launch, self.images)
        if result.status != "ok":
            reason = "; ".join(f.message for f in result.findings[:2]) or result.status
            where = Location(str(self.problem.case.path))
            raise PorterError(Code.KIT_RUN, where, run=self.label, reason=reason)
        return {t.name: hashlib.sha256(result.after[t.name].data.tobytes()).hexdigest() for t in self.problem.outputs}


def kit_runs(
    case: Case,
    sizes: Mapping[str, Number],
    families: list[str] | None,
    seed: int,
    builder: Builder,
    port_of: PortFor,
    lowerer: Lowerer | None = None,
    further: Sequence[str] = NEXT,
    asked: str = PORT_ARCH,
) -> tuple[list[KitRun], list[Diagnostic]]:
    """The runs of a case: the original, the port, ports for `further` chips, of which the simulator runs the code for
    sm_100a in their place, and with a `lowerer` the port as a Hopper GPU can run it, none of them assembled.
    Diagnostics say why a port is missing; that a chip lacks instructions matters where it is the one `asked` for.

    Raises:
        PorterError: what binding, porting and compiling raise; KIT_CASE for a case that no kit can hold.
    """
    problem = bind(case, sizes)
    _require_plain(problem)
    original, missing = builder.build(problem, case.kernel, ORIGINAL_ARCH), list[Diagnostic]()
    port: BuiltKernel | None = None
    plan, notes = port_of(case, PORT_ARCH)
    own = kernel_digest(case)
    programs = [("original", CAPABILITY[ORIGINAL_ARCH], original, problem, launch_of(problem, original), own)]
    if plan is not None:
        ours, port = _compiled(problem, plan, "port", PORT_ARCH, builder)
        programs.append(ours)
        for target in further if case.dsl is None else ():
            other, said = port_of(case, target)
            if other is None:
                missing += said if target == asked else _unasked(case, target, said)
            else:
                programs.append(_compiled(problem, other, f"{FOR_CHIP}{target}", target, builder)[0])
        if lowerer is not None:
            programs.append((EMULATED, CAPABILITY[ORIGINAL_ARCH], *ours[2:]))
    found = []
    for family in choose(families, problem):
        inputs = generate(problem, family, seed)
        images = {name: make_image(t, inputs.get(name), 0) for name, t in problem.tensors.items()}
        facts = inputs_digest(problem, images)
        for program, capability, kernel, bound, launch, text in programs:
            found.append(
                KitRun(case.name, problem.sizes, family.name, seed, program, capability, text, facts,
                       kernel.bound(bound), kernel, launch, images, model=None if kernel is original else port)
            )  # fmt: skip
    return found, notes if plan is None else missing


def _unasked(case: Case, chip: str, said: list[Diagnostic]) -> list[Diagnostic]:
    """What is said of a chip that nobody asked for: that it lacks instructions is no fault of the kernel's."""
    values = {"kernel": case.name, "chip": chip}
    lacks = [Diagnostic(Code.KIT_CHIP_LEFT, None, values | d.values) for d in said if d.code is Code.TARGET_LACKS]
    return lacks or said


def _compiled(
    problem: Problem, plan: PortPlan, name: str, target: str, builder: Builder
) -> tuple[Compiled, BuiltKernel]:
    built = build_port(problem, plan, builder, target)
    texts = hashlib.sha256(port_text(plan.files) if plan.files else built.source.read_bytes()).hexdigest()
    return (name, CAPABILITY[target], built.kernel, built.problem, built.launch, texts), built.kernel


def probe_runs(builder: Builder) -> list[KitRun]:
    """The probes, for the architecture of ports.

    Raises:
        PorterError: what compiling raises.
    """
    found = []
    for path in cases_of(PROBES):
        case = load_case(path)
        problem = bind(case)
        kernel = builder.build(problem, case.kernel, PORT_ARCH)
        images = {name: make_image(t, None, 0) for name, t in problem.tensors.items()}
        found.append(
            KitRun(case.name, problem.sizes, "none", 0, PROBE, CAPABILITY[PORT_ARCH], kernel_digest(case),
                   inputs_digest(problem, images), problem, kernel, problem.launch, images)
        )  # fmt: skip
    return found


def port_text(files: Mapping[str, bytes]) -> bytes:
    """All files of a port in the order of their names."""
    return b"\0".join(name.rsplit("/", 1)[-1].encode() + b"\0" + files[name] for name in sorted(files))


def _require_plain(problem: Problem) -> None:
    """Raises KIT_CASE."""
    where = Location(str(problem.case.path))
    if problem.case.recorded is not None:
        raise PorterError(Code.KIT_CASE, where, case=problem.case.name, reason="it was recorded, with addresses")
    if any(m.map.lower for m in problem.tensor_maps.values()):
        raise PorterError(Code.KIT_CASE, where, case=problem.case.name, reason="it has a tensor map for im2col")


def with_image(run: KitRun, toolkit: Toolkit, lowerer: Lowerer | None) -> KitRun:
    """The run with its cubin.

    Raises:
        PorterError: PTXAS_ERROR, CANNOT_EMULATE.
    """
    name = run.kernel.entry[:80]
    if run.program == EMULATED:
        assert lowerer is not None
        ctas = 1
        for extent in run.launch.grid:
            ctas *= extent
        layout = Layout(ctas)
        words = (HOST_VARIABLE, layout.tmem, layout.states, layout.queue, layout.sms, PATIENCE_NS, ctas,
                 MODES["deferred"] | ARITHMETIC["exact"] << 32)  # fmt: skip
        return replace(run, image=lowerer.emulated(run.kernel.module, name).cubin, emulate=words)
    return replace(run, image=assemble(toolkit, run.kernel.ptx, run.kernel.arch, name=name).cubin)


def parameter_words(run: KitRun) -> Iterator[tuple[object, ...]]:
    """Each parameter: its bytes in hexadecimal, and what has to be put where in them."""
    places: list[str] = []

    def token(what: str) -> int:
        places.append(what)
        return _TOKEN + len(places) - 1

    def address(argument: Pointer | MapAddress) -> int:
        if isinstance(argument, MapAddress):
            return token(f"address:{argument.tensor_map}")
        return token(f"tensor:{argument.tensor}:{argument.offset}")

    def by_value(argument: MapValue) -> bytes:
        return token(f"map:{argument.tensor_map}").to_bytes(8, "little") + bytes(ENCODED_BYTES - 8)

    for data in argument_bytes(run.problem, run.kernel.function, address, by_value):
        patches = []
        for at in range(0, len(data) - 7, 8):
            word = int.from_bytes(data[at : at + 8], "little")
            if _TOKEN <= word < _TOKEN + len(places):
                patches.append(f"{at}:{places[word - _TOKEN]}")
        yield (data.hex() or "-", *patches)


def map_words(run: KitRun) -> Iterator[tuple[object, ...]]:
    """Each tensor map as cuTensorMapEncodeTiled takes it."""
    return (map_fields(name, bound.tensor, bound.map) for name, bound in run.problem.tensor_maps.items())


def map_fields(name: str, tensor: str, m: TensorMap) -> tuple[object, ...]:
    """One tensor map over a tensor; its address counts from the tensor's."""
    return (
        name, tensor, m.address, int(m.dtype), len(m.sizes), *m.sizes, *m.strides, *m.box, *m.element_strides,
        int(m.interleave), int(m.swizzle), int(m.l2_promotion), int(m.oob_nan),
    )  # fmt: skip


def facts_of(run: KitRun) -> dict[str, Any]:
    """What identifies a run, for records and reports."""
    return {
        "case": run.case, "sizes": dict(run.sizes), "family": run.family, "seed": run.seed, "program": run.program,
        "capability": run.capability, "source": run.source, "inputs": run.inputs,
    }  # fmt: skip
