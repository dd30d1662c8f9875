# SPDX-License-Identifier: Apache-2.0
"""The C++ that a port brings along: one namespace of small wrappers around tcgen05 and Tensor Memory.

Passes request what they use (`Helpers.request`); `Helpers.text` writes that and nothing else. Bit positions
and codes come from `porter.ptx`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from porter.ptx.idesc import AB_TYPE_CODES, D_TYPE_CODES, FIELDS, M_SHIFT, N_SHIFT
from porter.ptx.smem_desc import FIELDS_SM100, SM100_VERSION
from porter.ptx.types import ElementType
from porter.ptx.umma import Kind
from porter.ptx.wgmma import M

NAMESPACE = "tcgen05"

_WIDE = 8
"""Widest tcgen05.ld.16x256b emitted: .x8, 32 registers at a time, so that a load never spills."""


def type_constant(prefix: str, element: ElementType) -> str:
    """Name of a format code: `kAccumulateF32`, `kOperandBF16`."""
    return f"k{prefix}{element.value.upper()}"


@dataclass
class Helpers:
    """What the emitted code needs. `threads_per_row` is the expression of a thread's rank in its CTA."""

    kinds: set[tuple[Kind, ElementType]] = field(default_factory=set)
    """(kind, type of D) of every mma wrapper."""
    operands: set[tuple[Kind, ElementType]] = field(default_factory=set)
    accumulators: set[ElementType] = field(default_factory=set)
    columns: set[int] = field(default_factory=set)
    """N of every accumulator that is loaded."""
    scalar_loads: bool = False
    load_elements: set[str] = field(default_factory=set)
    """Register constraints of loaded accumulators: `f`, `r`."""
    scalar_stores: bool = False
    store_elements: set[str] = field(default_factory=set)
    tile_arrays: bool = False
    ring: int = 1
    guarded_commit: bool = False
    sync_in_wait: bool = False
    saturate: bool = False
    first_barrier: int = 15
    linear_thread: bool = False
    """Whether blocks may have more than one dimension."""
    padded_shared: bool = False
    uses_clear: bool = False

    def text(self) -> str:
        """The namespace, ready to stand before the first function that uses it."""
        parts = [
            self._head(),
            self._sync(),
            self._accumulator(),
            self._warpgroup(),
            self._storage(),
            self._tmem(),
            self._descriptor(),
            *(self._mma(kind) for kind in sorted({k for k, _ in self.kinds}, key=lambda k: k.value)),
            *(self._load(element) for element in sorted(self.load_elements)),
            *(self._store(element) for element in sorted(self.store_elements)),
        ]
        body = "\n".join(part.strip("\n") + "\n" for part in parts if part)
        rule = "// " + "-" * 4 + " Tensor Memory and tcgen05 (sm_100a) "
        return f"{rule:-<100}\n\nnamespace {NAMESPACE} {{\n\n{body}\n}}  // namespace {NAMESPACE}\n"

    def _thread(self) -> str:
        return "thread_rank()" if self.linear_thread else "threadIdx.x"

    def _head(self) -> str:
        rank = (
            """
__device__ __forceinline__ uint32_t thread_rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
"""
            if self.linear_thread
            else ""
        )
        ring = (
            "// MMA batches that a warpgroup can have in flight: how far its deepest wait lags behind its commits.\n"
            f"constexpr uint32_t kRing = {self.ring};\n"
        )
        return (
            ring
            + rank
            + """
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
"""
        )

    def _sync(self) -> str:
        thread = self._thread()
        return f"""
// tcgen05 operations are ordered against those of other threads only through a pair of these around the
// barrier between them.
__device__ __forceinline__ void fence_before_sync() {{
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}}
__device__ __forceinline__ void fence_after_sync() {{
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}}

// The four warps of a warpgroup meet, on named barrier {self.first_barrier} for warpgroup 0 and so on downwards.
__device__ __forceinline__ void sync_warpgroup() {{
    fence_before_sync();
    asm volatile("bar.sync %0, 128;" ::"r"({self.first_barrier} - {thread} / 128) : "memory");
    fence_after_sync();
}}

// True in the one thread that issues for its warpgroup: the elected lane of the first warp.
__device__ __forceinline__ bool elect_issuer() {{
    uint32_t elected = 0;
    if ({thread} / 32 % 4 == 0) {{
        asm volatile(
            "{{\\n"
            ".reg .pred p;\\n"
            "elect.sync _|p, 0xffffffff;\\n"
            "selp.u32 %0, 1, 0, p;\\n"
            "}}"
            : "=r"(elected));
    }}
    return elected != 0;
}}
"""

    def _accumulator(self) -> str:
        clear = (
            """
    __device__ __forceinline__ void clear() { accumulate = false; }
"""
            if self.uses_clear
            else ""
        )
        arrays = (
            """
template <typename Tiles, uint32_t kTiles>
__device__ __forceinline__ void clear(Tiles (&tiles)[kTiles]) {
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) clear(tiles[i]);
}
"""
            if self.tile_arrays and self.uses_clear
            else ""
        )
        one = (
            """
__device__ __forceinline__ void clear(Accumulator& tile) { tile.clear(); }
"""
            if arrays
            else ""
        )
        return (
            f"""
// An m{M}nN accumulator in Tensor Memory: N columns, one lane per row. Its first MMA overwrites it, later
// ones add to it.
struct Accumulator {{
    uint32_t address = 0;
    bool accumulate = false;
{clear}}};
"""
            + one
            + arrays
        )

    def _warpgroup(self) -> str:
        place = (
            """
    // Lays out tiles of `columns` columns each, from column `first` on.
    template <typename Tiles, uint32_t kTiles>
    __device__ __forceinline__ void place(Tiles (&tiles)[kTiles], uint32_t first, uint32_t columns) const {
        constexpr uint32_t kEach = sizeof(Tiles) / sizeof(Accumulator);
#pragma unroll
        for (uint32_t i = 0; i < kTiles; ++i) place(tiles[i], first + i * kEach * columns, columns);
    }
    __device__ __forceinline__ void place(Accumulator& tile, uint32_t first, uint32_t) const {
        tile.address = tmem + first;
    }
"""
            if self.tile_arrays
            else ""
        )
        guard = "        wait(kRing - 1);  // room in the ring\n" if self.guarded_commit else ""
        slot = "done" if self.ring == 1 else "done + committed % kRing * 8"
        wait_slot = "done" if self.ring == 1 else "done + batch % kRing * 8"
        parity = "batch % 2" if self.ring == 1 else "batch / kRing % 2"
        after = (
            "        sync_warpgroup();  // no warp runs ahead by a batch\n"
            if self.sync_in_wait
            else "        fence_after_sync();\n"
        )
        wait = f"""
    // Waits until at most `pending` batches are in flight.
    __device__ __forceinline__ void wait(uint32_t pending) const {{
        if (committed <= pending) return;
        const uint32_t batch = committed - pending - 1;
        asm volatile(
            "{{\\n"
            ".reg .pred complete;\\n"
            "WAIT:\\n"
            "mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\\n"
            "@!complete bra WAIT;\\n"
            "}}" ::"r"({wait_slot}),
            "r"({parity})
            : "memory");
{after}    }}
"""
        return f"""
// What a warpgroup needs to issue MMAs and to learn that they are complete.
struct Warpgroup {{
    uint32_t tmem;           // first column of its accumulators, at lane offset 0 or 16
    uint32_t done;           // shared address of kRing mbarriers, on which its commits arrive
    uint32_t committed = 0;  // batches committed so far
{place}
    // Closes a batch: its mbarrier completes a phase once all MMAs issued so far are complete.
    __device__ __forceinline__ void commit() {{
{guard}        if (elect_issuer()) {{
            asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"({slot})
                         : "memory");
        }}
        ++committed;
    }}
{wait}}};
"""

    def _storage(self) -> str:
        align = "alignas(1024) " if self.padded_shared else ""
        why = (
            "\n// A multiple of 1024 bytes, so that dynamic shared memory keeps its alignment behind it."
            if self.padded_shared
            else ""
        )
        return f"""
// Shared memory of Tmem.{why}
template <uint32_t kWarpgroups>
struct {align}Shared {{
    uint64_t done[kWarpgroups][kRing];
    uint32_t tmem;
}};
"""

    def _tmem(self) -> str:
        thread = self._thread()
        return f"""
// Tensor Memory of a CTA whose kWarpgroups warpgroups need kColumns columns each. It is allocated here and
// freed on every way out of the kernel.
template <uint32_t kColumns, uint32_t kWarpgroups>
class Tmem {{
  public:
    __device__ __forceinline__ explicit Tmem(Shared<kWarpgroups>& shared) : shared_(shared) {{
        if ({thread} / 32 == 0) {{
            asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                             shared_address(&shared_.tmem)),
                         "n"(kAllocated)
                         : "memory");
            asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
        }}
        if ({thread} == 0) {{
            for (uint32_t i = 0; i < kWarpgroups * kRing; ++i) {{
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&shared_.done[0][0]) + i * 8)
                             : "memory");
            }}
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }}
        fence_before_sync();
        __syncthreads();
        fence_after_sync();
    }}

    __device__ __forceinline__ ~Tmem() {{
        fence_before_sync();
        asm volatile("barrier.cta.sync 0;" ::: "memory");  // lanes of a warp may come here apart
        fence_after_sync();
        if ({thread} / 32 == 0) {{
            __syncwarp();
            asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(shared_.tmem), "n"(kAllocated));
        }}
    }}

    // An m{M} tile takes 16 of the 32 lanes that each warp can reach, so two warpgroups share columns.
    __device__ __forceinline__ Warpgroup warpgroup(uint32_t index) const {{
        return {{shared_.tmem + (index % 2 << 20) + index / 2 * kColumns, shared_address(&shared_.done[index][0])}};
    }}

  private:
    static constexpr uint32_t kNeeded = kColumns * ((kWarpgroups + 1) / 2);
    static_assert(kNeeded <= 512, "the accumulators do not fit into Tensor Memory");
    // a power of two, at least 32
    static constexpr uint32_t kAllocated =
        kNeeded <= 32 ? 32 : kNeeded <= 64 ? 64 : kNeeded <= 128 ? 128 : kNeeded <= 256 ? 256 : 512;

    Shared<kWarpgroups>& shared_;
}};
"""

    def _descriptor(self) -> str:
        lines = []
        for d in sorted(self.accumulators, key=lambda t: t.value):
            lines.append(f"constexpr uint32_t {type_constant('Accumulate', d)} = {D_TYPE_CODES[d]};")
        for kind, element in sorted(self.operands, key=lambda o: (o[0].value, o[1].value)):
            lines.append(f"constexpr uint32_t {type_constant('Operand', element)} = {AB_TYPE_CODES[kind][element]};")
        at = {name: f.shift for name, f in FIELDS.items()}
        saturate_param = ", bool saturate = false" if self.saturate else ""
        saturate_field = f"uint32_t(saturate) << {at['saturate']} | " if self.saturate else ""
        return (
            "// Formats, as the instruction descriptor encodes them (PTX ISA 9.7.16.4.2).\n" + "\n".join(lines) + f"""

// Instruction descriptor of an m{M}nN product.
__host__ __device__ constexpr uint32_t instruction_descriptor(uint32_t d, uint32_t a, uint32_t b, uint32_t n,
                                                              bool negate_a = false, bool negate_b = false,
                                                              bool a_mn_major = false,
                                                              bool b_mn_major = false{saturate_param}) {{
    return {saturate_field}d << {at["d_type"]} | a << {at["a_type"]} | b << {at["b_type"]} | """
            f"""uint32_t(negate_a) << {at["negate_a"]} | uint32_t(negate_b) << {at["negate_b"]} |
           uint32_t(a_mn_major) << {at["a_major"]} | uint32_t(b_mn_major) << {at["b_major"]} | """
            f"""n >> {N_SHIFT} << {at["n"]} | {M}u >> {M_SHIFT} << {at["m"]};
}}

// A Hopper shared-memory descriptor becomes one of sm_100 by its version field (PTX ISA 9.7.16.4.1).
constexpr uint64_t kDescriptorVersion = {SM100_VERSION}ull << {FIELDS_SM100["version"].shift};
"""
        )

    def _mma(self, kind: Kind) -> str:
        return f"""
// d (+)= a * b. All threads of the warpgroup call it, one issues.
__device__ __forceinline__ void mma_{kind.value}(Accumulator& d, uint64_t a_desc, uint64_t b_desc, uint32_t idesc,
                                        bool scale_d = true) {{
    if (elect_issuer()) {{
        asm volatile(
            "{{\\n"
            ".reg .pred accumulate;\\n"
            "setp.ne.b32 accumulate, %4, 0;\\n"
            "tcgen05.mma.cta_group::1.kind::{kind.value} [%0], %1, %2, %3, accumulate;\\n"
            "}}" ::"r"(d.address),
            "l"(a_desc | kDescriptorVersion), "l"(b_desc | kDescriptorVersion), "r"(idesc),
            "r"(uint32_t(d.accumulate && scale_d))
            : "memory");
    }}
    d.accumulate = true;
}}
"""

    def _widths(self) -> list[int]:
        """The .xN forms that the loaded tiles need, widest first."""
        blocks = {n // 8 for n in self.columns}
        widths = {_WIDE} if any(b >= _WIDE for b in blocks) else set()
        for width in (4, 2, 1):
            if any(b & width for b in blocks):
                widths.add(width)
        return sorted(widths, reverse=True)

    def _split(self, call: str, indent: str = "        ") -> str:
        """Statements that move all registers, in the widest pieces that fit."""
        steps = []
        for width in self._widths():
            registers = 4 * width
            if width == _WIDE:
                steps.append(f"""#pragma unroll
{indent}for (uint32_t i = 0; i + {registers} <= kRegisters; i += {registers}) {{
{indent}    {call}_x{width}(r + i, address + 2 * i);
{indent}}}""")
            else:
                done = f"kRegisters / {2 * registers} * {2 * registers}"
                steps.append(
                    f"{indent}if constexpr (kRegisters & {registers}) {{\n"
                    f"{indent}    {call}_x{width}(r + {done}, address + 2 * ({done}));\n"
                    f"{indent}}}"
                )
        return "\n".join(steps)

    def _load(self, element: str) -> str:
        cpp = _CPP[element]
        pieces = []
        for width in self._widths():
            registers = 4 * width
            rows = _rows([f'"={element}"(r[{i}])' for i in range(registers)])
            pieces.append(f"""
__device__ __forceinline__ void load_x{width}({cpp}* r, uint32_t address) {{
    asm volatile(
        "tcgen05.ld.sync.aligned.16x256b.x{width}.b32 "
        {_names(registers)}, [%{registers}];"
        : {rows}
        : "r"(address));
}}
""")
        return (
            "\n".join(p.strip("\n") + "\n" for p in pieces)
            + f"""
// Reads an accumulator into registers, in the order in which wgmma keeps it. One that no MMA has written is 0.
template <typename Registers>
__device__ __forceinline__ void load(Registers& registers, const Accumulator& tile) {{
    constexpr uint32_t kRegisters = sizeof(Registers) / sizeof({cpp});
    {cpp}* r = reinterpret_cast<{cpp}*>(&registers);
    if (tile.accumulate) {{
        const uint32_t address = tile.address + ({self._thread()} / 32 % 4 << 21);  // the warp's quarter of the lanes
{self._split("load")}
        asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    }} else {{
#pragma unroll
        for (uint32_t i = 0; i < kRegisters; ++i) r[i] = 0;
    }}
}}
"""
            + self._overloads("load", "const ", cpp, self.scalar_loads)
        )

    def _store(self, element: str) -> str:
        cpp = _CPP[element]
        pieces = []
        for width in self._widths():
            registers = 4 * width
            rows = _rows([f'"{element}"(r[{i}])' for i in range(registers)])
            pieces.append(f"""
__device__ __forceinline__ void store_x{width}(const {cpp}* r, uint32_t address) {{
    asm volatile(
        "tcgen05.st.sync.aligned.16x256b.x{width}.b32 [%{registers}], "
        {_names(registers)};"
        ::{rows},
          "r"(address)
        : "memory");
}}
""")
        return (
            "\n".join(p.strip("\n") + "\n" for p in pieces)
            + f"""
// Writes registers back to their accumulator; sync_warpgroup() orders the next MMA behind it.
template <typename Registers>
__device__ __forceinline__ void store(const Registers& registers, Accumulator& tile) {{
    constexpr uint32_t kRegisters = sizeof(Registers) / sizeof({cpp});
    const {cpp}* r = reinterpret_cast<const {cpp}*>(&registers);
    const uint32_t address = tile.address + ({self._thread()} / 32 % 4 << 21);  // the warp's quarter of the lanes
{self._split("store", "    ")}
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    tile.accumulate = true;
}}
"""
            + self._overloads("store", "", cpp, self.scalar_stores)
        )

    def _overloads(self, name: str, tile_qualifier: str, cpp: str, scalars: bool) -> str:
        """The same for arrays of tiles, and for registers that are separate variables."""
        text = ""
        registers = "Registers" if name == "load" else "const Registers"
        if self.tile_arrays:
            text += f"""
template <typename Registers, typename Tiles, uint32_t kTiles>
__device__ __forceinline__ void {name}({registers} (&registers)[kTiles], {tile_qualifier}Tiles (&tiles)[kTiles]) {{
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) {name}(registers[i], tiles[i]);
}}
"""
        if scalars and name == "load":
            text += f"""
// The same for registers that are separate variables.
template <typename... Registers>
__device__ __forceinline__ void load_each(const Accumulator& tile, Registers&... registers) {{
    {cpp} values[sizeof...(registers)];
    load(values, tile);
    uint32_t i = 0;
    ((registers = values[i++]), ...);
}}
"""
        if scalars and name == "store":
            text += f"""
template <typename... Registers>
__device__ __forceinline__ void store_each(Accumulator& tile, const Registers&... registers) {{
    const {cpp} values[] = {{registers...}};
    store(values, tile);
}}
"""
        return text


_CPP = {"f": "float", "r": "uint32_t"}


def _rows(items: list[str]) -> str:
    return ",\n          ".join(", ".join(items[i : i + 8]) for i in range(0, len(items), 8))


def _names(count: int) -> str:
    """The operand list `{%0, …}` as string literals of 16 names."""
    rows = [", ".join(f"%{j}" for j in range(i, min(i + 16, count))) for i in range(0, count, 16)]
    return '"{' + ', "\n        "'.join(rows) + "}"
