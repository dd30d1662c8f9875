# SPDX-License-Identifier: Apache-2.0
"""What is known of a kernel's pipeline. Texts are in the kernel's own words, places `file:line`; a value that the text
does not tell is None, and `Unknown` says where and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Number:
    """An expression, and what it comes to."""

    text: str
    value: int | None


@dataclass(frozen=True)
class Unknown:
    what: str
    where: str


@dataclass(frozen=True)
class Arrival:
    """Arrivals of threads at one place: `threads` of them of a block, `count` each. `bytes`: what they expect beside.
    `remote`: at the mbarrier of another CTA."""

    threads: int | None
    count: Number
    bytes: Number | None
    remote: bool
    where: str


@dataclass(frozen=True)
class Waiting:
    """A wait for the phase that `phase` names, a parity or a token; `loops` are the loops around it, outermost first,
    as they are written."""

    threads: int | None
    by_parity: bool
    phase: str
    index: str
    loops: tuple[str, ...]
    where: str


@dataclass(frozen=True)
class Copy:
    """A bulk copy to shared memory, by the tensor map `map` from `coords` on. `repeated`: in a loop that the arrival
    which expects its bytes is not in."""

    map: str
    to: str
    coords: tuple[str, ...]
    barrier: str
    multicast: bool
    repeated: bool
    threads: int | None
    inner: str
    where: str


@dataclass(frozen=True)
class Ring:
    """How the index and the phase of an mbarrier go on: `stages` positions, the phase turns as `phase` says."""

    barrier: str
    index: str
    stages: Number | None
    advance: str
    phase: str


@dataclass(frozen=True)
class Barrier:
    """The mbarriers of one name. `extent` is how many there are, `arrivals` what their first counts are held against:
    as many as arrive in a phase if each thread does once."""

    name: str
    extent: Number | None
    storage: str
    counts: tuple[Number, ...]
    inits: tuple[str, ...]
    arrivals: tuple[Arrival, ...]
    waits: tuple[Waiting, ...]
    arriving: int | None

    @property
    def agrees(self) -> bool | None:
        """Whether as many arrive as the counts say; None where one of both is not known."""
        values = {c.value for c in self.counts}
        if None in values or self.arriving is None or len(values) != 1:
            return None
        return values == {self.arriving}


@dataclass(frozen=True)
class Role:
    """Warps that do one kind of work: `producer` loads, `mma` multiplies, `epilogue` stores what was multiplied."""

    name: str
    warps: tuple[int, ...] | None
    threads: int | None
    registers: Number | None
    places: tuple[str, ...]


@dataclass(frozen=True)
class Product:
    """An MMA that the kernel issues: m64 x `n` x `k`, elements of A and of the accumulator; `a_registers`: A is in
    registers."""

    n: int
    k: int
    element: str
    accumulator: str
    a_registers: bool


@dataclass(frozen=True)
class Definition:
    """A variable of the kernel, and what it begins with."""

    name: str
    text: str
    where: str


@dataclass(frozen=True)
class Pipeline:
    """All of one kernel. `threads` are those of a block, None if that is not known; `identity` are variables that tell
    threads apart, `offsets` those that coordinates of copies are made of."""

    kernel: str
    where: str
    threads: int | None
    barriers: tuple[Barrier, ...]
    copies: tuple[Copy, ...]
    rings: tuple[Ring, ...]
    roles: tuple[Role, ...]
    products: tuple[Product, ...]
    identity: tuple[Definition, ...]
    offsets: tuple[Definition, ...]
    unknown: tuple[Unknown, ...]

    def role(self, name: str) -> Role | None:
        return next((r for r in self.roles if r.name == name), None)


@dataclass(frozen=True)
class TensorMap:
    """What a tensor map is encoded with: sizes and box innermost first, as cuTensorMapEncodeTiled takes them, as
    expressions over what the host code is handed. `nbytes` of a box, None if they are not known."""

    param: str
    base: str
    rank: int | None
    dims: tuple[str, ...]
    strides: tuple[str, ...]
    box: tuple[str, ...]
    swizzle: str
    element: str
    nbytes: int | None


@dataclass(frozen=True)
class HostLaunch:
    """A launch as host code makes it; what is not understood is None. `template`: arguments of the kernel's
    template. `sizes`: parameters of the kernel that are numbers, each with what it is handed."""

    grid: tuple[str, ...] | None
    block: tuple[str, ...] | None
    cluster: tuple[str, ...] | None
    dynamic_smem: str | None
    template: tuple[str, ...]
    maps: tuple[TensorMap, ...]
    sizes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class RowBox:
    """The box of a tensor map of two dimensions that host code hands to the parameter `param` of a kernel: `rows` of
    `row_bytes` each. `at` is where the number of rows is written for this map alone, as (path, start, end), and `text`
    what is written there."""

    param: str
    rows: int
    row_bytes: int
    at: tuple[str, int, int]
    text: str


@dataclass(frozen=True)
class KernelBoxes:
    """What host code says of the tensor maps of a kernel, by parameter: their boxes, or what is not known of them.
    `template`: parameters of the kernel's template, each with what it stands for; `sizes`: by the index of the
    parameter, rows and bytes of each of all boxes of two dimensions that are known."""

    kernel: str
    boxes: tuple[RowBox, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    template: tuple[tuple[str, str], ...] = ()
    sizes: tuple[tuple[int, int, int], ...] = ()

    def of(self, param: str) -> RowBox | str:
        """The box of a map, or what is not known."""
        found = next((b for b in self.boxes if b.param == param), None)
        return found or dict(self.unknown).get(param, "no host code in these files makes it")


@dataclass(frozen=True)
class KernelPipeline:
    """A kernel with its launch, None where no host code launches it."""

    pipeline: Pipeline
    launch: HostLaunch | None

    @property
    def filled(self) -> dict[str, tuple[int | None, int | None]]:
        """By mbarrier, the bytes that it expects and those that the boxes of its copies have."""
        maps = {m.param: m.nbytes for m in self.launch.maps} if self.launch is not None else {}
        found: dict[str, tuple[int | None, int | None]] = {}
        for barrier in self.pipeline.barriers:
            expected = {a.bytes.value for a in barrier.arrivals if a.bytes is not None}
            places = [c for c in self.pipeline.copies if c.barrier == barrier.name]
            if not places:
                continue
            # one instruction that the kernel comes to from several places is one copy of a phase
            boxes = [
                maps.get(c.map) if not c.repeated else None for c in {(c.map, c.inner): c for c in places}.values()
            ]
            known = [b for b in boxes if b is not None]
            copied = sum(known) if len(known) == len(boxes) else None
            found[barrier.name] = (expected.pop() if len(expected) == 1 else None, copied)
        return found
