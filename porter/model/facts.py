# SPDX-License-Identifier: Apache-2.0
"""What calls and names of libraries are: facts, as rules recognize them. The model knows no library's names.

A new spelling of a fact is a rule; a new kind is a class here, and someone who reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum

from porter.model.dsl.names import KINDS as PYTHON_KINDS
from porter.model.dsl.names import PythonFact
from porter.model.spellings import Spelling
from porter.ptx.table import opcode_modifiers
from porter.ptx.wgmma import WgmmaOp

NUMBERS = "numbers"
"""Metadata of a field whose captures have to be known numbers."""
PLACE = "place"
"""Metadata of a field that is one capture, whose place in the sources is asked for."""


@dataclass(frozen=True)
class Mma:
    """D = A B + D of a warpgroup, as `wgmma.mma_async` does it. `shape` is m64nNkK, `types` those of D, A and B, as the
    instruction has them; the operands are texts of expressions: descriptors of shared memory for `a` and `b`, true to
    accumulate for `scale_d`, -1 or 1 for `negate_*`, 1 for an operand that is MN-major in `transpose_*`."""

    shape: str = field(metadata={NUMBERS: True})
    types: str
    d: str = field(metadata={PLACE: True})
    """The registers of a tile: an array, or an element of an array of tiles."""
    a: str
    b: str
    scale_d: str = "1"
    negate_a: str = "1"
    negate_b: str = "1"
    transpose_a: str = "0"
    transpose_b: str = "0"

    @property
    def op(self) -> WgmmaOp | None:
        """What the instruction says; None if there is none of this shape and types."""
        given = opcode_modifiers(f"wgmma.mma_async.sync.aligned.{self.shape}.{self.types}")
        return None if given is None else WgmmaOp.of(given)


@dataclass(frozen=True)
class TiledMma:
    """MMAs of a library's tiles: `d` += `a` `b`, as the object `mma` cuts them. Shapes and types are those of the C++
    types; the texts are those of expressions."""

    mma: str = field(metadata={PLACE: True})
    d: str = field(metadata={PLACE: True})
    a: str = field(metadata={PLACE: True})
    b: str = field(metadata={PLACE: True})


@dataclass(frozen=True)
class AtomMma:
    """One MMA of a class that stands for the instruction: `op`, whose name has to be one of `names`, a regular
    expression, or is not known. The arguments are A, B, the registers of D in order, and what scales D."""

    op: str = field(metadata={PLACE: True})
    names: str


@dataclass(frozen=True)
class Fragment:
    """New registers in the layout of a tile, of the object `mma` if that is named."""

    mma: str = field(default="", metadata={PLACE: True})


@dataclass(frozen=True)
class Tile:
    """New registers for an accumulator, the value of the variable `name`: the part of a thread of a tile of the shape
    `shape`, as the object `mma` cuts it. `$LHS` is the name of the variable."""

    name: str
    mma: str = field(metadata={PLACE: True})
    shape: str = ""


@dataclass(frozen=True)
class View:
    """Registers that `of` has, in another layout."""

    of: str = field(metadata={PLACE: True})


@dataclass(frozen=True)
class Choice:
    """`first` if the constant `condition` is true, else `second`."""

    condition: str = field(metadata={PLACE: True})
    first: str = field(metadata={PLACE: True})
    second: str = field(metadata={PLACE: True})


@dataclass(frozen=True)
class Descriptors:
    """A tensor of descriptors: what it stands for is in shared memory."""


@dataclass(frozen=True)
class CopyWait:
    """Waits for asynchronous copies of the thread to shared memory, which MMAs do not see yet."""


@dataclass(frozen=True)
class ProxyFence:
    """What the thread wrote to shared memory is there for MMAs and bulk copies, as after `fence.proxy.async`."""


@dataclass(frozen=True)
class Layout:
    """What is known of a tensor's type or layout; no register is touched."""


@dataclass(frozen=True)
class Zero:
    """All registers of `of` become zero."""

    of: str = field(metadata={PLACE: True})


@dataclass(frozen=True)
class Fence:
    """Orders registers and shared memory before the MMAs that follow, as `wgmma.fence` does."""


@dataclass(frozen=True)
class Commit:
    """Closes a batch of MMAs."""


@dataclass(frozen=True)
class Wait:
    """Waits until at most `pending` batches run; the text of a constant expression."""

    pending: str


@dataclass(frozen=True)
class RegisterFence:
    """Keeps the compiler from moving registers, and does nothing to them."""


@dataclass(frozen=True)
class Index:
    """A thread's index, or what it comes to: (threadIdx.x / step) % modulo + offset."""

    step: int = 1
    modulo: int = 0
    """0: no remainder is taken."""
    offset: int = 0
    uniform: bool = False
    """Whether the value of the first lane is handed to the whole warp."""


@dataclass(frozen=True)
class Broadcast:
    """All lanes of a warp get one value: that which the text `of` has in `lane`, or one that no text says."""

    of: str = ""
    lane: str = ""


@dataclass(frozen=True)
class Entry:
    """Runs the call operator of an object as a kernel, in blocks of as many threads as a constant of its class says."""

    threads: str
    """The name of the constant."""


@dataclass(frozen=True)
class Constant:
    """A constant whose definition is not at hand."""

    value: int


@dataclass(frozen=True)
class Abort:
    """No thread goes on behind it, or none gets there."""


@dataclass(frozen=True)
class Address:
    """The address of `of` in shared memory, as instructions take it."""

    of: str = field(metadata={PLACE: True})


@dataclass(frozen=True)
class Mbarrier:
    """Something that is done with the mbarrier `bar`: `init` for `count` arrivals a phase, `arrive` (with `count`),
    `expect` of `bytes` with an arrival, `wait` for the phase that the token `phase` or `parity` names, or `copy`, an
    asynchronous copy by the tensor map `map` to `to` that completes on it, from `coords` on."""

    op: str
    bar: str = field(metadata={PLACE: True})
    count: str = "1"
    bytes: str = ""
    phase: str = ""
    parity: str = ""
    map: str = ""
    to: str = ""
    coords: str = ""


@dataclass(frozen=True)
class Pipeline:
    """Something that is done with the stages of the pipeline `of`, an object that has two mbarriers for each stage.
    `op`: a producer waits until one is empty and expects its bytes (`acquire`), asks for one (`ask`) or waits for all
    (`tail`); a consumer waits until one is full (`fetch`), asks for one (`look`) or gives it back (`release`); the
    address of the mbarrier by which it is full (`full`)."""

    op: str
    of: str = field(metadata={PLACE: True})


@dataclass(frozen=True)
class Builder:
    """A type that a library puts together for an architecture: the `part` of a kernel (`mainloop` or `epilogue`). The
    others are its template arguments: the tag of the architecture, the class of its operators (which has to be
    `asked`), the tile, the cluster, the schedule; of a mainloop the types of the operands, too."""

    part: str
    asked: str
    arch: str = field(metadata={PLACE: True})
    operators: str = field(metadata={PLACE: True})
    tile: str = field(metadata={PLACE: True})
    cluster: str = field(metadata={PLACE: True})
    schedule: str = field(metadata={PLACE: True})
    a: str = field(default="", metadata={PLACE: True})
    b: str = field(default="", metadata={PLACE: True})


@dataclass(frozen=True)
class Schedule:
    """A tag by which a builder picks a `part` for Hopper. For sm_100a there are two: MMAs of one SM (`one`) and of two
    (`two`)."""

    part: str
    one: str
    two: str


@dataclass(frozen=True)
class ArchTag:
    """A tag that stands for Hopper among template arguments; `becomes` stands for sm_100a."""

    becomes: str


@dataclass(frozen=True)
class Extents:
    """A type that says how large a tile or a cluster is: in `rows`, and in `columns`."""

    rows: str = field(metadata={PLACE: True})
    columns: str = field(metadata={PLACE: True})


@dataclass(frozen=True)
class TileUse:
    """A type that is made for the `tile` of one CTA."""

    tile: str = field(metadata={PLACE: True})


@dataclass(frozen=True)
class Refused:
    """Something that is not ported: `what` it is, and what its author can do."""

    what: str
    advice: str


@dataclass(frozen=True)
class Replaced:
    """Something in whose place another text stands; `text` has what its captures are bound to."""

    text: str


Fact = (
    Mma
    | TiledMma
    | AtomMma
    | Fragment
    | Tile
    | View
    | Choice
    | Descriptors
    | Layout
    | CopyWait
    | ProxyFence
    | Zero
    | Fence
    | Commit
    | Wait
    | RegisterFence
    | Index
    | Broadcast
    | Entry
    | Constant
    | Abort
    | Address
    | Mbarrier
    | Pipeline
    | Builder
    | Schedule
    | ArchTag
    | Extents
    | TileUse
    | Spelling
    | Refused
    | Replaced
)

KINDS: Mapping[str, type[Fact]] = {
    "mma": Mma,
    "tiled_mma": TiledMma,
    "atom_mma": AtomMma,
    "fragment": Fragment,
    "tile": Tile,
    "view": View,
    "choice": Choice,
    "descriptors": Descriptors,
    "layout": Layout,
    "copy_wait": CopyWait,
    "proxy_fence": ProxyFence,
    "zero": Zero,
    "fence": Fence,
    "commit": Commit,
    "wait": Wait,
    "register_fence": RegisterFence,
    "index": Index,
    "broadcast": Broadcast,
    "entry": Entry,
    "constant": Constant,
    "abort": Abort,
    "address": Address,
    "mbarrier": Mbarrier,
    "pipeline": Pipeline,
    "builder": Builder,
    "schedule": Schedule,
    "arch_tag": ArchTag,
    "extents": Extents,
    "tile_use": TileUse,
    "spelling": Spelling,
}
"""By the name that rules have for them."""

TEMPLATES = (Builder, Extents, TileUse)
"""Facts of a class template with its arguments."""
TYPES = (*TEMPLATES, Schedule, ArchTag)
"""Facts of the names of types, which are found in text and not among calls and values."""
REGISTERS = (Fragment, Tile)
"""Facts of calls that give new registers."""

TENSOR_CORE = (Mma, Fence, Commit, Wait)
"""Facts whose place must not be missed: an MMA's operands and results hang on them."""


class Problem(Enum):
    """Why a place that a rule is for is not taken for it."""

    NEAR = "its form is none that a rule knows"
    UNSURE = "what the name means is not sure"
    TIED = "two rules are for it, and nothing says which"
    DISAGREES = "the function's own body does something else"


@dataclass(frozen=True)
class Doubt:
    """A place that may be one that a rule is for, and is not taken for it."""

    kind: type[Fact]
    what: str
    problem: Problem = Problem.UNSURE
    rule: str = ""
    """ID of the rule that came nearest."""


def kind_name(kind: type[Fact | PythonFact]) -> str:
    """What rules call a kind of fact."""
    kinds = (*KINDS.items(), *PYTHON_KINDS.items(), ("replacement", Replaced))
    return next((name for name, known in kinds if known is kind), "refusal")


def numbers(kind: type[Fact]) -> frozenset[str]:
    """Fields whose captures have to be known numbers."""
    return frozenset(f.name for f in fields(kind) if f.metadata.get(NUMBERS))


def places(kind: type[Fact]) -> frozenset[str]:
    """Fields that are one capture each, whose place is asked for."""
    return frozenset(f.name for f in fields(kind) if f.metadata.get(PLACE))
