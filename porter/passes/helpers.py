# SPDX-License-Identifier: Apache-2.0
"""The C++ that a port brings along: one namespace of small wrappers around tcgen05 and Tensor Memory.

Passes request what they use (`Helpers.request`); `Helpers.text` writes that and nothing else. Bit positions
and codes come from `porter.ptx`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from porter.passes.mirror import QUARTER_BIT, Mirror
from porter.ptx.idesc import AB_TYPE_CODES, D_TYPE_CODES, FIELDS, M_SHIFT, N_SHIFT
from porter.ptx.smem_desc import FIELDS_SM100, SM100_VERSION
from porter.ptx.tmem import COLUMNS, HALF_LANE, LANE_SHIFT, MIN_ALLOCATION
from porter.ptx.types import ElementType
from porter.ptx.umma import Kind
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
    float_registers: bool = False
    """Whether some accumulators are floats: the moves of others then have names of their own."""
    uses_clear: bool = False
    tracked: bool = False
    """Whether tiles know at run time if they or their registers are newer."""

    def mirror(self, element: str, packed: bool) -> Mirror:
        """The loads and stores for accumulators with this register constraint."""
        return self.mirrors.setdefault((element, packed), Mirror(element, packed, beside_floats=self.float_registers))

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
            *(self._mma(kind) for kind in sorted(self.kinds, key=lambda k: k.value)),
            *(self._mma_from_registers(kind) for kind in sorted(self.register_kinds, key=lambda k: k.value)),
            *(m.text(self._thread(), self.tile_arrays) for _, m in sorted(self.mirrors.items())),
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
        operands = (
            "\n// A operands from registers that a warpgroup can have in Tensor Memory at a time.\n"
            f"constexpr uint32_t kOperands = {OPERANDS};\n"
            if self.register_kinds
            else ""
        )
        ring = (
            "// MMA batches that a warpgroup can have in flight: how far its deepest wait lags behind its commits.\n"
            f"constexpr uint32_t kRing = {self.ring};\n"
        )
        return (
            ring
            + operands
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

// Waits until an mbarrier has completed the phase of this parity.
__device__ __forceinline__ void wait_phase(uint32_t barrier, uint32_t parity) {{
    asm volatile(
        "{{\\n"
        ".reg .pred complete;\\n"
        "WAIT:\\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\\n"
        "@!complete bra WAIT;\\n"
        "}}" ::"r"(barrier),
        "r"(parity)
        : "memory");
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
        counted = (
            f"""
// One whose register count shows in its type, for overloads and template arguments that go by it.
template <{self.count_type} kRegisters>
struct Tile : Accumulator {{}};
"""
            if self.count_type
            else ""
        )
        if self.class_tiles:
            counted += """
// One that shows the class of its registers, for overloads and template arguments that go by it.
template <typename Registers>
struct TileOf : Accumulator {};
"""
        forward = "struct Warpgroup;\n\n" if self.tracked else ""
        state = (
            "    bool newer = false;  // than its registers\n"
            "    uint32_t batch = 0;  // of its last MMA\n"
            "    const Warpgroup* owner = nullptr;\n"
            if self.tracked
            else ""
        )
        return (
            f"""
// An m{M}nN accumulator in Tensor Memory: N columns, one lane per row. Its first MMA overwrites it, later
// ones add to it.
{forward}struct Accumulator {{
    uint32_t address = 0;
    bool accumulate = false;
{state}{clear}}};
"""
            + counted
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
            if self.tile_arrays or self.tracked
            else ""
        )
        if self.tracked:
            placed = "tile.address = tmem + first;"
            place = place.replace(placed, f"{placed}\n        tile.owner = this;")
        guard = "        wait(kRing - 1);  // room in the ring\n" if self.guarded_commit else ""
        slot = "done" if self.ring == 1 else "done + committed % kRing * 8"
        wait_slot = "done" if self.ring == 1 else "done + batch % kRing * 8"
        parity = "batch % 2" if self.ring == 1 else "batch / kRing % 2"
        after = (
            "        sync_warpgroup();  // no warp runs ahead by a batch\n"
            if self.sync_in_wait
            else "        fence_after_sync();\n"
        )
        operand_state, operand_room, operand_free = "", "", ""
        if self.register_kinds:
            operand_free = "        if (pending == 0 && !open) operands = 0;\n"
            operand_room = f"""
    // Stores a warp's fragment of a 64-row A operand, 32 bytes of K, behind the accumulators; gives its address.
    __device__ __forceinline__ uint32_t store_operand(uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {{
        if (operands == kOperands) {{
            commit();
            wait(0);
        }}
        open = true;
        const uint32_t operand = tmem + operand_column + {OPERAND_COLUMNS} * operands++;
        asm volatile("tcgen05.st.sync.aligned.16x128b.x2.b32 [%4], {{%0, %1, %2, %3}};"
                     :
                     : "r"(r0), "r"(r1), "r"(r2), "r"(r3), "r"(operand + ({self._thread()} / 32 % 4 << {QUARTER_BIT}))
                     : "memory");
        asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
        return operand;
    }}
"""
            operand_state = (
                "    uint32_t operands = 0;   // A operands that MMAs may still read\n"
                "    bool open = false;       // whether some of them are in no batch yet\n"
                "    uint32_t operand_column = 0;  // where they begin, behind the accumulators\n"
            )
        closed = "        open = false;\n" if self.register_kinds else ""
        constant = " const" if not (self.register_kinds or self.tracked) else ""
        retired = "        complete = max(complete, committed - pending);\n" if self.tracked else ""
        complete = "    uint32_t complete = 0;   // batches known to be over\n" if self.tracked else ""
        wait = f"""
    // Waits until at most `pending` batches are in flight.
    __device__ __forceinline__ void wait(uint32_t pending){constant} {{
{operand_free}        if (committed <= pending) return;
        const uint32_t batch = committed - pending - 1;
        wait_phase({wait_slot}, {parity});
{retired}{after}    }}
"""
        return f"""
// What a warpgroup needs to issue MMAs and to learn that they are complete.
struct Warpgroup {{
    uint32_t tmem;           // first column of its accumulators, at lane offset 0 or 16
    uint32_t done;           // shared address of kRing mbarriers, on which its commits arrive
    uint32_t committed = 0;  // batches committed so far
{complete}{operand_state}{place}
    // Closes a batch: its mbarrier completes a phase once all MMAs issued so far are complete.
    __device__ __forceinline__ void commit() {{
{guard}        if (elect_issuer()) {{
            asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"({slot})
                         : "memory");
        }}
        ++committed;
{closed}    }}
{wait}{operand_room}}};
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
    uint32_t running;  // warps of the CTA that have not ended
}};
"""

    def _tmem(self) -> str:
        thread = self._thread()
        rest = (
            f", 0, 0, false,\n                kColumns - kOperands * {OPERAND_COLUMNS}" if self.register_kinds else ""
        )
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
            shared_.running = (blockDim.x * blockDim.y * blockDim.z + 31) / 32;
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }}
        fence_before_sync();
        __syncthreads();
        fence_after_sync();
    }}

    // Whichever warp ends last frees. None waits for another, which may be at a barrier that counts ended threads.
    __device__ __forceinline__ ~Tmem() {{
        fence_before_sync();
        __syncwarp();
        uint32_t running = 0;
        if ({thread} % 32 == 0) {{
            asm volatile("atom.acq_rel.cta.shared::cta.add.s32 %0, [%1], -1;"
                         : "=r"(running)
                         : "r"(shared_address(&shared_.running))
                         : "memory");
        }}
        if (__shfl_sync(0xffffffff, running, 0) == 1) {{
            fence_after_sync();
            asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(shared_.tmem), "n"(kAllocated));
        }}
    }}

    // An m{M} tile takes 16 of the 32 lanes that each warp can reach, so two warpgroups share columns.
    __device__ __forceinline__ Warpgroup warpgroup(uint32_t index) const {{
        return {{shared_.tmem + (index % 2 << {HALF_LANE_BIT}) + index / 2 * kColumns,
                shared_address(&shared_.done[index][0]){rest}}};
    }}

  private:
    static constexpr uint32_t kNeeded = kColumns * ((kWarpgroups + 1) / 2);
    static_assert(kNeeded <= {COLUMNS}, "the accumulators do not fit into Tensor Memory");
    // a power of two, at least {MIN_ALLOCATION}
    static constexpr uint32_t kAllocated =
        {_power_of_two("kNeeded")};

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
{self._now_newer()}}}
"""

    def _now_newer(self) -> str:
        return "    d.newer = true;\n    d.batch = d.owner->committed;\n" if self.tracked else ""

    def _mma_from_registers(self, kind: Kind) -> str:
        return f"""
// d (+)= a * b with the fragment of a in registers: it goes to Tensor Memory, and all four warps must have stored
// theirs before one thread issues.
__device__ __forceinline__ void mma_{kind.value}(Warpgroup& tc, Accumulator& d, uint32_t a0, uint32_t a1, uint32_t a2,
                                        uint32_t a3, uint64_t b_desc, uint32_t idesc, bool scale_d = true) {{
    const uint32_t a = tc.store_operand(a0, a1, a2, a3);
    sync_warpgroup();
    if (elect_issuer()) {{
        asm volatile(
            "{{\\n"
            ".reg .pred accumulate;\\n"
            "setp.ne.b32 accumulate, %4, 0;\\n"
            "tcgen05.mma.cta_group::1.kind::{kind.value} [%0], [%1], %2, %3, accumulate;\\n"
            "}}" ::"r"(d.address),
            "r"(a), "l"(b_desc | kDescriptorVersion), "r"(idesc), "r"(uint32_t(d.accumulate && scale_d))
            : "memory");
    }}
    d.accumulate = true;
{self._now_newer()}}}
"""


def _power_of_two(needed: str) -> str:
    """A constant expression for the columns to allocate (PTX ISA 9.7.16.7)."""
    sizes = [MIN_ALLOCATION << i for i in range(COLUMNS.bit_length()) if MIN_ALLOCATION << i < COLUMNS]
    return " ".join(f"{needed} <= {s} ? {s} :" for s in sizes) + f" {COLUMNS}"
