# SPDX-License-Identifier: Apache-2.0
"""docs/results/shadow-full-rate.txt: what the judge of M=128 MMAs says of kernels that are wrong with them, or that
proofs about their text once kept from them.

    python scripts/shadow_steps.py [--jobs N] [GROUP[:NAME] ...] > docs/results/shadow-full-rate.txt

The kernels of `tests/passes/full_rate_kernels.py` get operands in shared memory and results in global memory. Each is
ported with M=128 MMAs, compiled, compared on PTX at four launches, one to three blocks each way, and run at three of
them, original against port, under several schedules with hazards. A kernel without a case is given them where PTX says
equal, one with a case where a run is clean and PTX does not refuse.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "passes"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from full_rate_groups import GROUPS, Kernel

from porter.build.port_plan import PortPlan
from porter.cli.building import make_builder
from porter.cli.porting import look
from porter.diagnostics import Code, PorterError
from porter.passes.port import PortOptions
from porter.passes.ported import port_paths
from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate
from porter.tune.full_rate import taken
from porter.tune.staging import port_plan
from porter.verify.builder import PORT_ARCH, Builder
from porter.verify.case import Case, load_case
from porter.verify.case_program import Program
from porter.verify.proved import proofs_of
from porter.verify.proving import Sizes
from porter.verify.refusals import refusal

CASE = """\
version: 1
kernel: kernel.cu
entry: kernel
sizes: {STEPS: 3, ROWS: 128, X: 1, Y: 2}
other_sizes:
  - {STEPS: 2, ROWS: 64, X: 2, Y: 1}
  - {STEPS: 1, ROWS: 320, X: 3, Y: 1}
  - {STEPS: 6, ROWS: 1, X: 1, Y: 1}
include_dirs: ["package:cutlass_library/source/include"]
tensors:
  in: {dtype: f16, shape: [11264], role: input}
  out: {dtype: f32, shape: [X * Y * RESULTS], role: output}
launch:
  grid: [X, Y, 1]
  block: [THREADS, 1, 1]
  dynamic_smem: SHARED
params: [out, in, STEPS, ROWS]
reference: "zeros([X * Y * RESULTS])"
"""
SECONDS = 60.0
LONGEST = 120
"""Seconds of processor time for a kernel: flags in memory that threads poll are executed turn by turn."""
MOST = 10_000
"""Instructions of a warp that waits for good."""


_NO_CASE = ("the original's own hazards", "neither writes anything")


class Row(NamedTuple):
    group: str
    name: str
    proposal: str
    ptx: str = ""
    run: str = ""
    seconds: float = 0.0

    @property
    def given(self) -> str:
        if self.proposal or not self.ptx:
            return ""
        # nothing that is stored, or an original that is wrong by itself, agrees with no reference
        judged = not self.ptx.startswith("refused") and not any(what in self.ptx for what in _NO_CASE)
        with_case = self.run == "clean" and judged
        return {(True, True): "both", (True, False): "without a case", (False, True): "with a case"}.get(
            (self.ptx == "equal", with_case), ""
        )


def shadow(group: str, name: str) -> Row:
    began = time.process_time()
    kernel = GROUPS[group][name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cu"
        path.write_text(kernel.text)
        text = CASE
        for word, value in ("THREADS", kernel.threads), ("RESULTS", kernel.results), ("SHARED", kernel.shared):
            text = text.replace(word, str(value))
        (Path(folder) / "case.yaml").write_text(text)
        row = judged(group, name, path)
    return row._replace(seconds=time.process_time() - began)


def judged(group: str, name: str, path: Path) -> Row:
    ported = port_paths([path], PortOptions(full_rate=True), (), look)
    roots = taken(ported)
    if not roots:
        left = [str(d.values["what"]) for d in ported.diagnostics if d.code is Code.FULL_RATE_LEFT]
        return Row(group, name, "no proposal: " + (left[0] if left else str(ported.diagnostics[-1].message)))
    case, builder = load_case(path.with_name("case.yaml")), make_builder(None, PORT_ARCH)
    plan = port_plan(None, ported, roots[0]).on(case.template, case.launch.grid, case.map_params)
    original, port = (Program(case, builder, p) for p in (None, plan))
    sizes = case.all_sizes()
    try:
        texts = [program.at(sizes[0])[0].ptx for program in (original, port)]
    except PorterError as error:
        return Row(
            group,
            name,
            f"does not compile: {error.diagnostic.message.splitlines()[0].replace(f'{path.parent}/', '')[:100]}",
        )
    ptx = on_ptx(case, plan, builder, sizes, roots[0].joined)
    refused = ptx.startswith("refused")
    return Row(group, name, "", ptx, "not run" if refused else run_both(*texts, GROUPS[group][name]))


def on_ptx(case: Case, plan: PortPlan, builder: Builder, sizes: Sequence[Sizes], joined: bool) -> str:
    if what := refusal(case, plan, builder, sizes, SECONDS, joined):
        return f"refused: {what}"
    equality = proofs_of(case, plan, builder, sizes, SECONDS, "none").equality
    if equality is None or equality.status != "equal":
        return f"unknown: {equality.why if equality is not None else ''}"
    return "equal" if len(equality.looked_at) == len(sizes) else f"unknown: only {', '.join(equality.looked_at)}"


def run_both(original: str, port: str, kernel: Kernel) -> str:
    said = ""
    for sizes in ((3, 128, 1, 2), (2, 64, 2, 1), (1, 320, 3, 1)):
        first, want = run(
            original,
            kernel,
            sizes,
            Options(mode="functional", schedule="late", rules="sm_90", max_warp_instructions=MOST),
        )
        seen, _ = run(
            original,
            kernel,
            sizes,
            Options(mode="checking", level="practice", rules="sm_90", max_warp_instructions=MOST),
        )
        if first.status != "ok" or any(h.severity == "error" for h in seen.hazards):
            said = f"the original: {first.status}, with hazards of its own"
            continue
        had = {h.kind.id for h in seen.hazards}
        for mode, schedule, seed in (("functional", "eager", 0), ("checking", "late", 0), ("checking", "random", 2)):
            options = Options(
                mode=mode, level="strict", schedule=schedule, seed=seed, rules="sm_100", max_warp_instructions=MOST
            )
            got, outputs = run(port, kernel, sizes, options)
            if got.status != "ok":
                return f"refused: {got.status}"
            if (want != outputs).any():
                return "refused: other bits"
            if new := {h.kind.id for h in got.hazards if h.severity == "error"} - had:
                return "refused: " + ", ".join(sorted(new))
    return said or "clean"


def run(text: str, kernel: Kernel, sizes: tuple[int, int, int, int], options: Options) -> tuple[Outcome, np.ndarray]:
    module, memory = parse_module(text), GlobalMemory()
    entry = next(e for e in module.entries() if "kernel" in e.name)
    steps, rows, x, y = sizes
    data = np.random.default_rng(5).integers(-3, 4, 11264).astype(np.float16)
    count = kernel.results * x * y
    source, out = memory.alloc(data.nbytes), memory.alloc(4 * count)
    memory.write(source, data.view(np.uint8))
    memory.write(out, (np.arange(count) % 7).astype(np.float32).view(np.uint8))
    found = simulate(module, entry.name, Launch((x, y, 1), (kernel.threads, 1, 1), dynamic_smem=kernel.shared),
                     pack_params(entry, [out, source, steps, rows]), memory, options)  # fmt: skip
    return found, memory.read(out, 4 * count).copy()


def attempted(what: tuple[str, str]) -> Row:
    signal.signal(signal.SIGPROF, _give_up)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        return shadow(*what)
    except Exception as error:
        return Row(*what, "", f"unknown: {error!r}"[:160], "not run")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _give_up(*_: object) -> None:
    raise TimeoutError(f"more than {LONGEST} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    wanted = [
        (group, name)
        for group, kernels in GROUPS.items()
        for name in kernels
        if not options.kernels or group in options.kernels or f"{group}:{name}" in options.kernels
    ]
    rows = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for row in pool.map(attempted, wanted):
            rows.append(row)
            print(f"{row.group}: {row.name}: {row.proposal or f'PTX {row.ptx}; run {row.run}'}", flush=True)
            print(f"{len(rows)}/{len(wanted)} {row.seconds:.0f} s", file=sys.stderr, flush=True)
    print("", *summed(rows), sep="\n")


def summed(rows: Sequence[Row]) -> Iterator[str]:
    """How many of each group there are of each kind, and which are given M=128 MMAs."""
    for group in dict.fromkeys(r.group for r in rows):
        mine = [r for r in rows if r.group == group]
        kinds = Counter("no proposal" if r.proposal else f"PTX {r.ptx.split(':')[0]}, run {r.run.split(':')[0]}"
                        for r in mine)  # fmt: skip
        yield f"{group}: {len(mine)}"
        yield from (f"  {count:3} {kind}" for kind, count in kinds.most_common())
        yield from (f"  given {row.given}: {row.name}" for row in mine if row.given)


if __name__ == "__main__":
    main()
