# SPDX-License-Identifier: Apache-2.0
"""C++ that moves an accumulator between Tensor Memory and its registers, in the order in which wgmma keeps it.

An M=64 tile's tcgen05.ld.16x256b hands out the 32-bit D fragment of wgmma; its f16 fragment, two elements a
register, is that of .16x128b with packing (PTX ISA 9.7.16.8; CUTLASS include/cute/atom/copy_traits_sm100.hpp).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from porter.ptx.tmem import LANE_SHIFT, WARP_LANES

QUARTER_BIT = LANE_SHIFT + WARP_LANES.bit_length() - 1
"""Bit of a Tensor Memory address from which a warp's rank selects its quarter of the lanes."""

_CPP = {"f": "float", "r": "uint32_t"}
_WIDEST = 32
"""Registers of the widest access, so that a load never spills."""


@dataclass
class Mirror:
    """Loads and stores of accumulators whose registers have one constraint (`f` or `r`); `packed` if a register
    holds two f16. `sizes` are the N of the tiles; `beside_floats` if other accumulators of the file are floats."""

    element: str
    packed: bool
    sizes: set[int] = field(default_factory=set)
    loads: bool = False
    stores: bool = False
    scalar_loads: bool = False
    scalar_stores: bool = False
    tracks: bool = False
    """Whether registers are kept true."""
    scalar_tracks: bool = False
    beside_floats: bool = False

    def request(self, operation: str, *, scalars: bool) -> None:
        """Ask for `load` or `store`, `scalars` for registers that are separate variables."""
        if operation == "load":
            self.loads, self.scalar_loads = True, self.scalar_loads or scalars
        else:
            self.stores, self.scalar_stores = True, self.scalar_stores or scalars

    def request_tracking(self, *, scalars: bool) -> None:
        """Ask for the moves of registers that are kept true."""
        self.tracks, self.scalar_tracks = True, self.scalar_tracks or scalars
        self.request("load", scalars=False)
        self.request("store", scalars=False)

    @property
    def suffix(self) -> str:
        if self.packed:
            return "_f16"
        return "_s32" if self.element == "r" and self.beside_floats else ""

    @property
    def _per_x1(self) -> int:
        """Registers of an .x1 access, which covers eight columns."""
        return 2 if self.packed else 4

    def _widths(self) -> list[int]:
        """The .xN forms that the tiles need, widest first: full ones, then what is left of N."""
        widest = _WIDEST // self._per_x1
        blocks = {n // 8 for n in self.sizes}
        widths = {widest} if any(b >= widest for b in blocks) else set()
        width = widest // 2
        while width:
            if any(b & width for b in blocks):
                widths.add(width)
            width //= 2
        return sorted(widths, reverse=True)

    def text(self, thread: str, arrays: bool) -> str:
        """The functions; `thread` is the expression of a thread's rank, `arrays` asks for arrays of tiles."""
        parts = []
        if self.loads:
            parts += [*(self._load_piece(w) for w in self._widths()), self._load(thread)]
            parts += [self._arrays("load", "Registers", "const ")] if arrays else []
            parts += [self._load_each()] if self.scalar_loads else []
        if self.stores:
            parts += [*(self._store_piece(w) for w in self._widths()), self._store(thread)]
            parts += [self._arrays("store", "const Registers", "")] if arrays else []
            parts += [self._store_each()] if self.scalar_stores else []
        if self.tracks:
            parts += [self._tracking(arrays)]
            parts += [self._tracking_each()] if self.scalar_tracks else []
        return "\n".join(part.strip("\n") + "\n" for part in parts)

    def _instruction(self, operation: str, width: int) -> str:
        shape = "16x128b" if self.packed else "16x256b"
        packing = {"ld": ".pack::16b", "st": ".unpack::16b"}[operation] if self.packed else ""
        return f"tcgen05.{operation}.sync.aligned.{shape}.x{width}{packing}.b32"

    def _load_piece(self, width: int) -> str:
        count = self._per_x1 * width
        return f"""
__device__ __forceinline__ void load{self.suffix}_x{width}({_CPP[self.element]}* r, uint32_t address) {{
    asm volatile(
        "{self._instruction("ld", width)} "
        {_names(count)}, [%{count}];"
        : {_rows([f'"={self.element}"(r[{i}])' for i in range(count)])}
        : "r"(address));
}}
"""

    def _store_piece(self, width: int) -> str:
        count = self._per_x1 * width
        return f"""
__device__ __forceinline__ void store{self.suffix}_x{width}(const {_CPP[self.element]}* r, uint32_t address) {{
    asm volatile(
        "{self._instruction("st", width)} [%{count}], "
        {_names(count)};"
        :
        : {_rows([f'"{self.element}"(r[{i}])' for i in range(count)])},
          "r"(address)
        : "memory");
}}
"""

    def _split(self, operation: str, indent: str, registers_name: str = "r") -> str:
        """Statements that move all registers, in the widest pieces that fit."""
        columns = 8 // self._per_x1
        steps = []
        for width in self._widths():
            registers = self._per_x1 * width
            call = f"{operation}{self.suffix}_x{width}"
            if registers == _WIDEST:
                steps.append(
                    f"#pragma unroll\n"
                    f"{indent}for (uint32_t i = 0; i + {registers} <= kRegisters; i += {registers}) {{\n"
                    f"{indent}    {call}({registers_name} + i, address + {columns} * i);\n"
                    f"{indent}}}"
                )
            else:
                done = f"kRegisters / {2 * registers} * {2 * registers}"
                steps.append(
                    f"{indent}if constexpr (kRegisters & {registers}) {{\n"
                    f"{indent}    {call}({registers_name} + {done}, address + {columns} * ({done}));\n"
                    f"{indent}}}"
                )
        return "\n".join(steps)

    def _load(self, thread: str) -> str:
        cpp = _CPP[self.element]
        return f"""
// Reads an accumulator into registers, in the order in which wgmma keeps it. One that no MMA has written is 0.
template <typename Registers>
__device__ __forceinline__ void load{self.suffix}(Registers& registers, const Accumulator& tile) {{
    constexpr uint32_t kRegisters = sizeof(Registers) / sizeof({cpp});
    {cpp}* r = reinterpret_cast<{cpp}*>(&registers);
    if (tile.accumulate) {{
        const uint32_t quarter = {thread} / 32 % 4 << {QUARTER_BIT};  // of the lanes, which the warp can reach
        const uint32_t address = tile.address + quarter;
        {cpp} loaded[kRegisters];
{self._split("load", "        ", "loaded")}
        asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#pragma unroll
        for (uint32_t i = 0; i < kRegisters; ++i) {{
            asm volatile("" : "+{self.element}"(loaded[i]));  // no use of it in front of the wait
            r[i] = loaded[i];
        }}
    }} else {{
        // A zero that the compiler sees would draw what is computed from the registers into both branches.
#pragma unroll
        for (uint32_t i = 0; i < kRegisters; ++i) asm volatile("mov.b32 %0, 0;" : "={self.element}"(r[i]));
    }}
}}
"""

    def _store(self, thread: str) -> str:
        cpp = _CPP[self.element]
        return f"""
// Writes registers back to their accumulator; sync_warpgroup() orders the next MMA behind it.
template <typename Registers>
__device__ __forceinline__ void store{self.suffix}(const Registers& registers, Accumulator& tile) {{
    constexpr uint32_t kRegisters = sizeof(Registers) / sizeof({cpp});
    const {cpp}* r = reinterpret_cast<const {cpp}*>(&registers);
    const uint32_t quarter = {thread} / 32 % 4 << {QUARTER_BIT};  // of the lanes, which the warp can reach
    const uint32_t address = tile.address + quarter;
{self._split("store", "    ")}
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    tile.accumulate = true;
}}
"""

    def _arrays(self, name: str, registers: str, qualifier: str) -> str:
        function = name + self.suffix
        return f"""
template <typename Registers, typename Tiles, uint32_t kTiles>
__device__ __forceinline__ void {function}({registers} (&registers)[kTiles], {qualifier}Tiles (&tiles)[kTiles]) {{
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) {function}(registers[i], tiles[i]);
}}
"""

    def _tracking(self, arrays: bool) -> str:
        s = self.suffix
        several = (
            f"""
template <typename Registers, typename Tiles, uint32_t kTiles>
__device__ __forceinline__ bool stored{s}(const Registers (&registers)[kTiles], Tiles (&tiles)[kTiles]) {{
    bool any = false;
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) any |= stored{s}(registers[i], tiles[i]);
    return any;
}}
template <typename Registers, typename Tiles, uint32_t kTiles>
__device__ __forceinline__ void to_registers{s}(Registers (&registers)[kTiles], Tiles (&tiles)[kTiles]) {{
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) to_registers{s}(registers[i], tiles[i]);
}}
"""
            if arrays
            else ""
        )
        return f"""
// Registers that are kept true: outside of batches in flight they hold the accumulator, whatever is done with them.
// Stores them unless the tile is newer; gives whether it did.
template <typename Registers>
__device__ __forceinline__ bool stored{s}(const Registers& registers, Accumulator& tile) {{
    if (tile.newer) return false;
    store{s}(registers, tile);
    return true;
}}
// Behind a wait: loads what a batch that is complete has changed.
template <typename Registers>
__device__ __forceinline__ void to_registers{s}(Registers& registers, Accumulator& tile) {{
    if (!tile.newer || tile.owner->complete <= tile.batch) return;
    load{s}(registers, tile);
    tile.newer = false;
}}
{several}// In front of an MMA: what threads may have changed goes to Tensor Memory.
template <typename Registers, typename Tile>
__device__ __forceinline__ void to_tensor_memory{s}(const Registers& registers, Tile& tile) {{
    if (stored{s}(registers, tile)) sync_warpgroup();
}}
"""

    def _tracking_each(self) -> str:
        s, cpp = self.suffix, _CPP[self.element]
        return f"""
template <typename... Registers>
__device__ __forceinline__ void to_registers{s}_each(Accumulator& tile, Registers&... registers) {{
    {cpp} values[] = {{registers...}};
    to_registers{s}(values, tile);
    uint32_t i = 0;
    ((registers = values[i++]), ...);
}}
template <typename... Registers>
__device__ __forceinline__ void to_tensor_memory{s}_each(Accumulator& tile, const Registers&... registers) {{
    const {cpp} values[] = {{registers...}};
    to_tensor_memory{s}(values, tile);
}}
"""

    def _load_each(self) -> str:
        return f"""
// The same for registers that are separate variables.
template <typename... Registers>
__device__ __forceinline__ void load{self.suffix}_each(const Accumulator& tile, Registers&... registers) {{
    {_CPP[self.element]} values[sizeof...(registers)];
    load{self.suffix}(values, tile);
    uint32_t i = 0;
    ((registers = values[i++]), ...);
}}
"""

    def _store_each(self) -> str:
        return f"""
template <typename... Registers>
__device__ __forceinline__ void store{self.suffix}_each(Accumulator& tile, const Registers&... registers) {{
    const {_CPP[self.element]} values[] = {{registers...}};
    store{self.suffix}(values, tile);
}}
"""


def _rows(items: list[str]) -> str:
    return ",\n          ".join(", ".join(items[i : i + 8]) for i in range(0, len(items), 8))


def _names(count: int) -> str:
    """The operand list `{%0, …}` as string literals of 16 names."""
    rows = [", ".join(f"%{j}" for j in range(i, min(i + 16, count))) for i in range(0, count, 16)]
    return '"{' + ', "\n        "'.join(rows) + "}"
