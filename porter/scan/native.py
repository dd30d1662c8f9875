# SPDX-License-Identifier: Apache-2.0
"""Steps towards a kernel as an expert writes it for sm_100a: which of them a kernel's facts allow, and what is missing
for the others. Nothing is rewritten here."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial

from porter.model.pipeline.facts import Barrier, KernelPipeline, Pipeline
from porter.passes.mirror import WIDEST
from porter.passes.native.promotion import NAME as PROMOTION
from porter.passes.native.promotion import SCALED
from porter.passes.native.raster import GROUP
from porter.passes.native.scales import NAME as SCALES
from porter.passes.obstacles import SHARED_BYTES
from porter.ptx import tmem
from porter.ptx.arch import SM100A, limits
from porter.ptx.umma import N_STEPS, Kind, legal_n
from porter.ptx.wgmma import THREADS, M

_PORTS = {"m128": "porter port --style full-rate", "promotion": "porter port --style native --drop-promotion",
          "scales": "porter port --style native --block-scale",
          **dict.fromkeys(("release", "raster", "mma-thread", "tiles", "double-buffer", "pair", "stages", "blocks",
                           "wide", "ahead", "bulk-store", "registers"), "porter port --style native")}  # fmt: skip
_EIGHT_BITS = ("e4m3", "e5m2")


@dataclass(frozen=True)
class Step:
    """One step. `applies`: None where a fact is missing; `why` are the facts that it rests on, or that stop it, or that
    are missing. `what_if` is what the grade is asked about it, empty where its model knows no such change; `taken`
    whether the port has it."""

    name: str
    title: str
    applies: bool | None
    why: tuple[str, ...]
    what_if: str
    reference: str
    taken: bool = False

    @property
    def port(self) -> str:
        """The command that rewrites it, empty where Porter does not."""
        asked = self.taken or (self.name in (PROMOTION, SCALES) and self.applies)
        return _PORTS.get(self.name, "") if asked else ""


class _Stop(Exception):
    """A step that a kernel has no use for, or that its facts do not allow; says why."""


class _Missing(Exception):
    """A fact that nobody read; says which."""


def native_steps(
    kernel: KernelPipeline,
    taken: Collection[str] = (),
    promoted: str | None = "whether partial sums are added to others",
    scaled: str | None = None,
) -> tuple[Step, ...]:
    """Every step, in the order in which they build on each other; `taken` are the names of those that the port has.
    `promoted`: what is missing for adding FP8 in the accumulator alone, None where that is done already.
    `scaled`: what is missing for scales of the tensor core, None where sums have none."""
    judged = [_judged(kernel, *stated) for stated in _STEPS]
    promotion = partial(_promotion, promoted)
    judged.append(_judged(kernel, PROMOTION, "FP8 sums stay in the accumulator", promotion, "", "PTX ISA 9.7.16.10"))
    if scaled is not None:
        ask = partial(_scales, scaled)
        judged.append(_judged(kernel, SCALES, "scales are those of block-scaled MMAs", ask, "", "PTX ISA 9.7.16.10.7"))
    return tuple(replace(step, taken=step.name in taken) for step in judged)


def _judged(
    kernel: KernelPipeline, name: str, title: str, ask: Callable[[KernelPipeline], Iterator[str]], what_if: str,
    reference: str,
) -> Step:  # fmt: skip
    why: list[str] = []
    try:
        facts = ask(kernel)
        while True:
            why.append(next(facts))
    except StopIteration as end:
        return Step(name, title, True, tuple(why), end.value or what_if, reference)
    except _Stop as stop:
        return Step(name, title, False, (str(stop),), what_if, reference)
    except _Missing as missing:
        return Step(name, title, None, (str(missing),), what_if, reference)


# --- What steps ask for


def _warps(kernel: Pipeline, role: str) -> tuple[int, ...]:
    found = kernel.role(role)
    if found is None:
        raise _Stop(f"no warp is a {role}")
    if found.warps is None:
        raise _Missing(f"which warps are {'the producer' if role == 'producer' else 'those that multiply'}")
    return found.warps


def _specialized(kernel: Pipeline) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Warps that load and those that multiply, which are others."""
    if kernel.role("producer") is None:
        raise _Stop("no TMA load fills stages: threads copy them")
    loads, multiplies = _warps(kernel, "producer"), _warps(kernel, "mma")
    if set(loads) & set(multiplies):
        raise _Stop("a warp that multiplies loads as well: the loads need a warp of their own first")
    return loads, multiplies


def _ring(kernel: Pipeline) -> tuple[Barrier, Barrier]:
    """The mbarrier that the MMAs' warps wait for, and the one that they give stages back by."""
    _specialized(kernel)
    filled = {c.barrier for c in kernel.copies}
    full = [b for b in kernel.barriers if b.name in filled and any(w.threads != 1 for w in b.waits)]
    empty = [b for b in kernel.barriers if b.name not in filled and b.arrivals and b.waits]
    if not full:
        raise _Missing("the mbarrier that stages become full by")
    if not empty:
        raise _Stop("no mbarrier gives stages back to the producer")
    for barrier in (*full, *empty):
        if barrier.agrees is None:
            raise _Missing(f"whether as many arrive at {barrier.name} as its count says")
        if not barrier.agrees:
            raise _Missing(f"who else arrives at {barrier.name}: its count and its arrivals differ")
    return full[0], empty[0]


def _rows(kernel: KernelPipeline) -> Iterator[str]:
    known = kernel.pipeline
    products = known.products
    if not products:
        raise _Missing("the shape of the MMAs")
    narrow = [p.n for p in products if p.n % N_STEPS[tmem.LANES]]
    if narrow:
        raise _Stop(f"M = {tmem.LANES} wants N in steps of {N_STEPS[tmem.LANES]}, and N is {narrow[0]}")
    warps = _warps(known, "mma")
    if len(warps) % 4 or len(warps) < 4:
        raise _Missing("whole warpgroups that multiply")
    if len(warps) == 4:
        raise _Missing("a second tile of 64 rows of the one warpgroup that multiplies")
    yield f"{len(warps) // 4} warpgroups of 64 rows, N = {', '.join(str(n) for n in sorted({p.n for p in products}))}"


def _release(kernel: KernelPipeline) -> Iterator[str]:
    if any(p.a_registers for p in kernel.pipeline.products):
        raise _Missing("a schedule for operands that threads make between products: A is in registers")
    _, empty = _ring(kernel.pipeline)
    counts = ", ".join(str(c.value) for c in empty.counts)
    yield f"{empty.name} counts {counts} arrivals; those of consumers become one commit"


def _thread(kernel: KernelPipeline) -> Iterator[str]:
    list(_release(kernel))
    full, empty = _ring(kernel.pipeline)
    yield f"{full.name} is waited for by the warps that multiply"
    if not all(w.by_parity for b in (full, empty) for w in b.waits):
        yield "waits by token become waits by parity"


def _alone(kernel: KernelPipeline) -> None:
    cluster = kernel.launch.cluster if kernel.launch is not None else None
    if cluster is not None and cluster != ("1", "1", "1"):
        raise _Stop(f"clusters of {' x '.join(cluster)} have their tiles as a whole")


def _tiles(kernel: KernelPipeline) -> Iterator[str]:
    known = kernel.pipeline
    list(_thread(kernel))
    loops = max((w.loops for b in known.barriers for w in b.waits), key=len, default=())
    if len(loops) > 1:
        raise _Stop("blocks take tiles in a loop already; clusterlaunchcontrol would only choose them")
    grid = _geometry(kernel)
    _alone(kernel)
    words = {n for c in known.copies for text in c.coords for n in re.findall(r"[A-Za-z_]\w*", text)}
    placed = [d for d in known.offsets if d.name in words and "blockIdx" in d.text]
    if not placed and "blockIdx" not in words:
        raise _Missing("how blockIdx places the tile of a block")
    yield f"grid {' x '.join(grid)}; " + ", ".join(f"{d.name} = {d.text}" for d in placed)


def _raster(kernel: KernelPipeline) -> Iterator[str]:
    known = kernel.pipeline
    if not known.products:
        raise _Missing("the shape of the MMAs")
    if any(p.a_registers for p in known.products):
        raise _Missing("that tiles are those of a plain product: A is in registers")
    _alone(kernel)
    texts = [d.text for d in known.offsets] + [text for c in known.copies for text in c.coords]
    placed = [text for text in texts if "blockIdx.y" in text]
    parts = [text for text in texts if re.search(r"\w\s*[/%]", text)]
    if not placed and not parts:
        raise _Missing("a tile's row and column by the grid, or as quotient and remainder of its number")
    yield f"tiles in groups of {GROUP} rows, where L2 does not hold A and B: {(placed or parts)[0]}"


def _buffer(kernel: KernelPipeline) -> Iterator[str]:
    known = kernel.pipeline
    full, _ = _ring(known)
    loops = max((w.loops for w in full.waits), key=len, default=())
    tiles = f"tiles follow each other in `{loops[0]}`" if len(loops) > 1 else ""
    if not tiles:
        try:
            list(_tiles(kernel))
        except (_Stop, _Missing) as none:
            raise _Stop(f"a block has one output tile: there is no next one to multiply meanwhile; {none}") from None
        tiles = "tiles follow each other as they are taken over"
    widest = max((p.n for p in known.products), default=0)
    if not widest:
        raise _Missing("the columns of the accumulator")
    if 2 * widest > tmem.COLUMNS:
        raise _Stop(f"two accumulators of {widest} columns do not fit Tensor Memory")
    yield tiles
    yield f"2 x {widest} of {tmem.COLUMNS} columns"


def _stage_bytes(kernel: KernelPipeline) -> tuple[Barrier, int]:
    filled = {name: copied or expected for name, (expected, copied) in kernel.filled.items()}
    for barrier in kernel.pipeline.barriers:
        nbytes = filled.get(barrier.name)
        ring = next((r for r in kernel.pipeline.rings if r.barrier == barrier.name), None)
        if barrier.name in filled and ring is not None and ring.index:
            if nbytes is None:
                raise _Missing(f"the bytes of a stage of {barrier.name}")
            return barrier, nbytes
    raise _Stop("no ring of stages that TMA fills")


def _stages(kernel: KernelPipeline) -> Generator[str, None, str]:
    barrier, nbytes = _stage_bytes(kernel)
    ring = next(r for r in kernel.pipeline.rings if r.barrier == barrier.name)
    if ring.stages is None or ring.stages.value is None:
        raise _Missing(f"the stages of {barrier.name}")
    smem = kernel.launch.dynamic_smem if kernel.launch is not None else None
    if smem is None or not smem.isdigit():
        raise _Missing("the dynamic shared memory of the launch")
    stages, used = ring.stages.value, int(smem)
    if used < stages * nbytes:
        raise _Missing("what else lies in the static shared memory that the stages are in")
    room = (limits(SM100A.name).shared_per_block - used - SHARED_BYTES) // nbytes
    if room < 1:
        raise _Stop(f"{stages} stages of {nbytes} bytes fill shared memory")
    yield f"{stages} stages of {nbytes} bytes, room for {room} more"
    return f"stages={stages + room}"


def _blocks(kernel: KernelPipeline) -> Iterator[str]:
    known = kernel.pipeline
    moved = [(name, role) for name in ("producer", "mma") if (role := known.role(name)) and role.registers is not None]
    if not moved:
        yield "the launch bounds say how many registers a thread has"
    for name, role in moved:
        assert role.registers is not None
        if role.registers.value is None:
            raise _Missing(f"what `{role.registers.text}` comes to, the registers of the {name}")
        yield f"{role.registers.value} for the {'warps that multiply' if name == 'mma' else name}"


def _ahead(kernel: KernelPipeline) -> Iterator[str]:
    products = kernel.pipeline.products
    if not products:
        raise _Missing("the shape of the MMAs")
    if not any(p.a_registers for p in products) or all(p.a_registers for p in products):
        raise _Stop("MMAs of a turn are one product")
    yield "threads make an operand of the second product from what the first one gives"


def _registers(kernel: KernelPipeline) -> Iterator[str]:
    known = kernel.pipeline
    _specialized(known)
    for name in ("producer", "mma"):
        role = known.role(name)
        if role is None or role.registers is None:
            raise _Stop("no setmaxnreg: the launch bounds decide")
        if role.registers.value is None:
            raise _Missing(f"what `{role.registers.text}` comes to, the registers of the {name}")
        yield f"{role.registers.value} for the {'warps that multiply' if name == 'mma' else name}"
    yield "others where ptxas says that the port spills"


def _geometry(kernel: KernelPipeline) -> tuple[str, ...]:
    launch = kernel.launch
    if launch is None:
        raise _Missing("the launch: no host code in these files makes it")
    if launch.grid is None or launch.block is None:
        raise _Missing("the grid and the block of the launch")
    for copy in kernel.pipeline.copies:
        found = next((m for m in launch.maps if m.param == copy.map), None)
        if found is None or not found.box or "?" in found.box:
            raise _Missing(f"the box of tensor map {copy.map}")
    return launch.grid


def _pair(kernel: KernelPipeline) -> Generator[str, None, str]:
    list(_rows(kernel))
    list(_thread(kernel))
    grid = _geometry(kernel)
    launch = kernel.launch
    assert launch is not None
    if launch.cluster is not None and launch.cluster != ("1", "1", "1"):
        raise _Stop(f"clusters of {' x '.join(launch.cluster)} share loads already")
    yield f"grid {' x '.join(grid)} becomes one of clusters of 2"
    yield ", ".join(f"{m.param} box {' x '.join(m.box)}" for m in launch.maps)
    widest = max(p.n for p in kernel.pipeline.products)
    twice = 2 * widest <= max(legal_n(Kind.F16, 2))
    return f"pair,tile={2 * tmem.LANES}x{2 * widest}" if twice else "pair"


def _wide(kernel: KernelPipeline) -> Iterator[str]:
    registers = {p.n * M // (THREADS * (2 if p.accumulator == "f16" else 1)): p.n for p in kernel.pipeline.products}
    if not registers:
        raise _Missing("the columns of the accumulator")
    most, n = max(registers.items())
    loads = -(-most // WIDEST)
    raise _Stop(
        f"ports load {min(most, WIDEST)} registers at a time already: the {most} of a thread, for N = {n}, in "
        f"{loads} load{'s' if loads > 1 else ''} with one wait"
    )


def _store(kernel: KernelPipeline) -> Iterator[str]:
    known = kernel.pipeline
    if known.role("epilogue") is not None:
        raise _Stop("results leave by TMA already")
    if not known.products:
        raise _Missing("the shape of the MMAs")
    yield "warps stage 128 bytes of each of their rows at a time"


def _wider(kernel: KernelPipeline) -> Iterator[str]:
    known = kernel.pipeline
    if not known.products:
        raise _Missing("the shape of the MMAs")
    widest, most = max(p.n for p in known.products), max(legal_n(Kind.F16, 1))
    if len({c.map for c in known.copies}) != 2:
        raise _Missing("that it is a plain product: one tensor map of A, and one of B")
    if 2 * widest > most and not any(2 * p.n == widest for p in known.products):
        raise _Stop(f"no MMA has more than {most} columns, and N is {widest}")
    yield f"Tensor Memory has room for more columns than N = {', '.join(str(p.n) for p in known.products)}"


def _promotion(promoted: str | None, kernel: KernelPipeline) -> Iterator[str]:
    elements = {p.element for p in kernel.pipeline.products}
    if not elements:
        raise _Missing("the types of the MMAs")
    if not elements & set(_EIGHT_BITS):
        raise _Stop("only FP8 sums are promoted")
    if promoted is None:
        raise _Stop("sums of FP8 stay in the accumulator until the loop is over")
    if promoted == SCALED:
        raise _Stop(promoted)
    if promoted:
        raise _Missing(promoted)
    yield "Blackwell accumulates FP8 in full"
    yield "on request: --drop-promotion; results are not the original's bits"


def _scales(scaled: str, kernel: KernelPipeline) -> Iterator[str]:
    if scaled:
        raise _Missing(scaled)
    yield "scales of rows are powers of two"
    yield "on request: --block-scale; results are not the original's bits"


_STEPS: tuple[tuple[str, str, Callable[[KernelPipeline], Iterator[str]], str, str], ...] = (
    ("m128", "two tiles of 64 rows in one MMA of 128", _rows, "m128", "PTX ISA 9.7.16.10.5"),
    ("release", "commits give stages back, nobody waits for MMAs in the loop", _release, "specialize",
     "PTX ISA 9.7.16.12.1, CUTLASS PipelineTmaUmma"),
    ("raster", "tiles in groups of rows, which share operands in L2", _raster, "", "CUTLASS max_swizzle_size"),
    ("mma-thread", "one thread waits for stages and issues MMAs", _thread, "",
     "CUTLASS sm100_mma_warpspecialized"),
    ("tiles", "blocks go on with tiles of blocks that have not begun (clusterlaunchcontrol)", _tiles, "persistent",
     "PTX ISA 9.7.13.17"),
    ("double-buffer", "two accumulators, the epilogue beside the next tile", _buffer, "overlap",
     "CUTLASS sm100_gemm_tma_warpspecialized"),
    ("wide", "tiles of twice the columns, for which Tensor Memory has room", _wider, "wide", "PTX ISA 9.7.16.5"),
    ("pair", "pairs of CTAs multiply together, each with half of B", _pair, "pair", "PTX ISA 9.7.16.5"),
    ("stages", "as many stages as shared memory holds", _stages, "", "CUTLASS StageCountAutoCarveout"),
    ("blocks", "two blocks on an SM, with registers that sums have left", _blocks, "blocks=2",
     "PTX ISA 9.7.19.5, FlashAttention-4"),
    ("ahead", "the first product of a turn beside what threads compute from the last one", _ahead, "ahead",
     "FlashAttention-3"),
    ("bulk-store", "rows of results leave by bulk copies from shared memory", _store, "bulk-store",
     "PTX ISA 9.7.9.25.4.1"),
    ("registers", "setmaxnreg for warps that hold no accumulator", _registers, "", "PTX ISA 9.7.19.5"),
    ("wide-t2r", "accumulators are loaded many columns at a time", _wide, "", "PTX ISA 9.7.16.8.3"),
)  # fmt: skip
