# SPDX-License-Identifier: Apache-2.0
"""What a port brings along of `mappings/emit/*.cuh`: small wrappers around tcgen05 and Tensor Memory in one namespace.

Passes ask for what they use; `Helpers.text` has that and nothing else. Bit positions and codes come from `porter.ptx`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from porter.passes.emit import emitted
from porter.passes.mirror import QUARTER_BIT, Mirror
from porter.passes.native.rows import ROW_BYTES
from porter.ptx.block_scale import SCALE_TYPE_CODES, UE8M0_BIAS, ScaleType, scale_columns
from porter.ptx.idesc import AB_TYPE_CODES, D_TYPE_CODES, FIELDS, M_SHIFT, N_SHIFT
from porter.ptx.idesc_scaled import SCALED_FIELDS
from porter.ptx.smem_desc import FIELDS_SM100, SM100_VERSION, SmemDescriptor, used_bits
from porter.ptx.swizzle import SwizzleMode
from porter.ptx.tmem import COLUMNS, HALF_LANE, LANE_SHIFT, LANES, MIN_ALLOCATION, WARP_LANES
from porter.ptx.types import ElementType
from porter.ptx.umma import Kind, legal_n
from porter.ptx.wgmma import M

NAMESPACE = "tcgen05"


def type_constant(prefix: str, element: ElementType) -> str:
    """Name of a format code: `kAccumulateF32`, `kOperandBF16`."""
    return f"k{prefix}{element.value.upper()}"


HALF_LANE_BIT = LANE_SHIFT + HALF_LANE.bit_length() - 1
"""Bit of a Tensor Memory address that selects the second half of each warp's lanes."""
OPERANDS = 8
"""A operands from registers that may be in flight: a K extent of 128 16-bit elements."""
OPERAND_COLUMNS = 8
"""Columns of one: 32 bytes of each row, whatever the type (PTX ISA 9.7.16.10.4)."""


@dataclass(frozen=True)
class Placement:
    """`inline`: the helpers stand in the sources, without a header. `own`: what the header's name begins with, where
    other ports in its directory need one that differs. `storage`: the class of a CuTe C++ kernel's dynamic shared
    memory that gets the port's mbarriers; empty for static shared memory. `macros`: names of those that the compiler's
    command line defines."""

    inline: bool = False
    own: str = ""
    storage: str = ""
    macros: frozenset[str] = frozenset()


_FACTOR_RING = 2
"""Turns whose factors are in Tensor Memory: MMAs of one read theirs while those of the next are copied."""
_FACTOR_WORDS = scale_columns(LANES)
_WIDEST_B = scale_columns(max(legal_n(Kind.MXF8F6F4, 1)))
_ONES_COLUMN = _FACTOR_RING * _FACTOR_WORDS
_FACTOR_BYTES = 16 * WARP_LANES
"""Of what one copy brings to Tensor Memory: four columns of words."""
_STAGED = SmemDescriptor(address=0, lbo=16, sbo=128, swizzle=SwizzleMode.NONE)
_SCALING: dict[str, object] = {
    "unscaled_kind": Kind.F8F6F4.value,
    "scaled_kind": Kind.MXF8F6F4.value,
    "d_type_mask": f"{FIELDS['d_type'].mask:#x}u",
    "scale_type": f"{SCALED_FIELDS['scale_type'].put(SCALE_TYPE_CODES[ScaleType.UE8M0]):#x}u",
    "ones_word": f"{UE8M0_BIAS * 0x01010101:#x}",
    "ones_column": _ONES_COLUMN,
    "factor_bytes": _FACTOR_BYTES,
    "staged_desc": f"{_STAGED.encode('sm_100'):#x}ull",
}
"""What block-scaled MMAs and the copies of their factors are made of."""


@dataclass
class Helpers:
    """What the emitted code needs. `threads_per_row` is the expression of a thread's rank in its CTA."""

    kinds: set[Kind] = field(default_factory=set)
    """Kinds of MMAs with both operands in shared memory."""
    operands: set[tuple[Kind, ElementType]] = field(default_factory=set)
    accumulators: set[ElementType] = field(default_factory=set)
    mirrors: dict[tuple[str, bool], Mirror] = field(default_factory=dict)
    register_kinds: set[Kind] = field(default_factory=set)
    """Kinds of MMAs whose A operand comes from registers."""
    tile_arrays: bool = False
    ring: int = 1
    guarded_commit: bool = False
    sync_in_wait: bool = False
    saturate: bool = False
    count_type: str = ""
    """Type of the register count that tiles carry in their type, if they have to."""
    class_tiles: bool = False
    """Whether tiles carry the class that held their registers."""
    first_barrier: int = 15
    linear_thread: bool = False
    """Whether blocks may have more than one dimension."""
    padded_shared: bool = False
    masked_descriptors: bool = False
    """Whether descriptors may have bits between their fields, which Hopper does not look at."""
    volatile_registers: bool = False
    """Whether registers of accumulators may be volatile."""
    float_registers: bool = False
    """Whether some accumulators are floats: the moves of others then have names of their own."""
    uses_clear: bool = False
    tracked: bool = False
    """Whether tiles know at run time if they or their registers are newer."""
    joined: bool = False
    """Whether two warpgroups run one M=128 MMA together."""
    issuer: int = 0
    """The warp that issues for both then."""
    stacked: bool = False
    """Whether one M=128 MMA makes both tiles of a warpgroup."""
    permuted: bool = False
    """Whether rows of A change places in shared memory, and threads have the rows that they had."""
    releases: bool = False
    """Whether commits arrive on mbarriers of the kernel's own."""
    shares: bool = False
    """Whether commits arrive on those of all CTAs of a cluster."""
    called_empty: bool = False
    """Whether threads of all of them call these stages empty before the first is filled."""
    drained: str = ""
    """The mbarriers of these stages then, and how many they are, as a kernel hands them to what waits for them."""
    blocks: int = 1
    """Blocks that share the Tensor Memory of an SM."""

    own_thread: bool = False
    """Whether a thread that does nothing else issues the MMAs of all consumers."""
    mma_warp: int = 0
    """The warp that it is in."""
    buffers: int = 1
    """Accumulators of a tile that there are then."""
    may_be_empty: bool = False
    """Whether a tile may have no MMA at all."""
    paired: bool = False
    """Whether the CTAs of a cluster of two multiply together."""
    raster: int = 0
    """Rows of tiles that are done together, where tiles have an order of the port's own."""
    raster_grid: bool = False
    """Whether that is the order of a grid."""
    raster_numbers: bool = False
    """Whether that is the order of tiles that kernels number."""
    tiles: bool = False
    """Whether a CTA goes on with tiles of CTAs that have not begun."""
    tile_asker: int = 0
    """The thread that asks for them."""
    tile_loaders: int = 1
    """Threads that load."""
    tile_storing: int = 0
    """Threads that store."""
    tile_meets: bool = False
    """Whether these meet behind each tile."""

    scaled: bool = False
    """Whether MMAs of FP8 have factors of their rows."""
    column_factors: bool = False
    """Whether they have some of their columns, too."""

    row_stores: bool = False
    """Whether warps stage rows of results, which leave by bulk copies."""

    @property
    def mma_rows(self) -> int:
        """Rows of an MMA in one CTA."""
        return 2 * M if self.joined or self.stacked else M

    @property
    def factor_columns(self) -> int:
        """Columns of Tensor Memory that factors take."""
        columns_of_b = _FACTOR_RING * _WIDEST_B if self.column_factors else _WIDEST_B
        return _FACTOR_RING * _FACTOR_WORDS + columns_of_b

    def mirror(self, element: str, packed: bool) -> Mirror:
        """The loads and stores for accumulators with this register constraint."""
        return self.mirrors.setdefault((element, packed), Mirror(element, packed, beside_floats=self.float_registers))

    def text(self, file: bool = False, integers: bool = False) -> str:
        """The namespace, ready to stand before the first function that uses it, or as a file of its own; `integers`:
        behind a header that has its integer types."""
        return emitted("tcgen05.cuh", {**self.values(), "file": file, "integers": integers})

    def values(self) -> dict[str, Any]:
        """What the names in `mappings/emit/tcgen05.cuh` stand for."""
        common = {
            **vars(self),
            **_SCALING,
            "ones": self.scaled and not self.column_factors,
            "factor_columns": self.factor_columns,
            "factor_set": _FACTOR_WORDS + _WIDEST_B if self.column_factors else _FACTOR_WORDS,
            "columns_at": f"d.row_factors + {_FACTOR_WORDS}" if self.column_factors else f"tc.factors + {_ONES_COLUMN}",
            "staged_bytes": _FACTOR_BYTES * (3 if self.column_factors else 1),
            "deep": self.ring > 1,
            "double_buffered": self.buffers > 1,
            "many_loaders": self.tile_loaders > 1,
            "twice_n": "2 * n" if self.paired else "n",
            "ctas": 2 if self.paired else 1,
            "thread": "thread_rank()" if self.linear_thread else "threadIdx.x",
            "quarter_bit": QUARTER_BIT,
            "row_bytes": ROW_BYTES,
        }
        return {
            **common,
            **{f"at_{name}": bits.shift for name, bits in FIELDS.items()},
            "operands": OPERANDS,
            "operand_columns": OPERAND_COLUMNS,
            "m": self.mma_rows * (2 if self.paired else 1),
            "m_shift": M_SHIFT,
            "batches_of": 0 if self.joined else "index",
            "n_shift": N_SHIFT,
            "half_lane_bit": HALF_LANE_BIT,
            "columns": COLUMNS // self.blocks,
            "min_allocation": MIN_ALLOCATION,
            "version": SM100_VERSION,
            "at_version": FIELDS_SM100["version"].shift,
            "descriptor_fields": f"{used_bits('sm_90'):#x}ull",
            **{f"sm100_{name}": self._descriptor(f"{name}_desc") for name in "ab"},
            "formats": self._formats(),
            "kinds": [{"kind": kind} for kind in sorted(k.value for k in self._plain_kinds())],
            "register_kinds": [{"kind": kind} for kind in sorted(k.value for k in self.register_kinds)],
            "mirrors": [{"moves": text} for _, m in sorted(self.mirrors.items()) if (text := m.text(common))],
        }

    def _descriptor(self, hopper: str) -> str:
        """A shared-memory descriptor of Hopper as one of SM100."""
        return f"sm100_descriptor({hopper})" if self.masked_descriptors else f"{hopper} | kDescriptorVersion"

    def _plain_kinds(self) -> set[Kind]:
        """Those whose MMAs have no factors."""
        return self.kinds - {Kind.F8F6F4} if self.scaled else self.kinds

    def _formats(self) -> list[dict[str, Any]]:
        accumulators = [(type_constant("Accumulate", d), D_TYPE_CODES[d]) for d in self.accumulators]
        operands = sorted((kind.value, element.value, kind, element) for kind, element in self.operands)
        codes = [(type_constant("Operand", element), AB_TYPE_CODES[kind][element]) for *_, kind, element in operands]
        return [{"name": name, "code": code} for name, code in [*sorted(accumulators), *codes]]
