// ---- tcgen05 ------------------------------------------------------------------------------------------------------

CUTE_DEVICE void fence_before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
CUTE_DEVICE void fence_after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

#define PORTER_MMA(kind, operand)                                                                       \
    asm volatile(                                                                                       \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"                                                     \
        "tcgen05.mma.cta_group::1.kind::" kind " [%0], " operand ", %2, %3, p;\n}\n" ::"r"(d), TERM(a), \
        "l"(b), "r"(descriptor), "r"(accumulate)                                                        \
        : "memory")

// A from shared memory (its descriptor).
template <Kind kind>
CUTE_DEVICE void mma(uint32_t d, uint64_t a, uint64_t b, uint32_t descriptor, uint32_t accumulate) {
#define TERM(a) "l"(a)
    if constexpr (kind == Kind::f16) PORTER_MMA("f16", "%1");
    if constexpr (kind == Kind::tf32) PORTER_MMA("tf32", "%1");
    if constexpr (kind == Kind::f8f6f4) PORTER_MMA("f8f6f4", "%1");
    if constexpr (kind == Kind::i8) PORTER_MMA("i8", "%1");
#undef TERM
}
// A from Tensor Memory (its address).
template <Kind kind>
CUTE_DEVICE void mma(uint32_t d, uint32_t a, uint64_t b, uint32_t descriptor, uint32_t accumulate) {
#define TERM(a) "r"(a)
    if constexpr (kind == Kind::f16) PORTER_MMA("f16", "[%1]");
    if constexpr (kind == Kind::tf32) PORTER_MMA("tf32", "[%1]");
    if constexpr (kind == Kind::f8f6f4) PORTER_MMA("f8f6f4", "[%1]");
    if constexpr (kind == Kind::i8) PORTER_MMA("i8", "[%1]");
#undef TERM
}
#undef PORTER_MMA

// What this thread has written to shared memory is there for MMAs.
CUTE_DEVICE void written() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

CUTE_DEVICE uint32_t thread_rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

// ---- Warpgroups ---------------------------------------------------------------------------------------------------

// mbarriers and the address of Tensor Memory: a member of the kernel's own shared storage.
template <int kWarpgroups, int kRing = 1>
struct Slots {
    uint64_t done[kWarpgroups][kRing];  // a batch of MMAs has completed
    uint64_t met[kWarpgroups];          // the four warps have come to the next MMAs
    uint64_t left;                      // all warpgroups that issue MMAs have left the kernel
    uint32_t tmem;
};
// The same as a __shared__ variable: what lies behind it keeps its alignment.
template <int kWarpgroups, int kRing = 1>
struct alignas(1024) Shared : Slots<kWarpgroups, kRing> {};

// Columns for an A fragment from registers: 8 a k-step and m64 tile. One that two fragments share is waited for.
struct Operand {
    static constexpr uint32_t kNone = ~0u;
    uint32_t address = kNone;
    uint32_t batch = 0;  // one behind the last that reads it

    uint32_t next = 0;   // k-step for an MMA by its atom
    static constexpr uint32_t kSteps = 8;

    Operand() = default;
    CUTE_DEVICE Operand(uint32_t address) : address(address) {}
};

// Columns of group i of an A fragment, in eights, where two m64 tiles share columns in runs of groups; run is 0 where none does.
CUTE_HOST_DEVICE constexpr int column_of_group(int i, int run) {
    return run != 0 ? i % run + i / (2 * run) * run : i;
}

// An A fragment that is in Tensor Memory.
struct Stored {
    uint32_t address = 0;
    int run = 0;          // 0, or two m64 tiles lie in the halves of the same columns, each this many groups
    const void* registers = nullptr;
    int groups = 0;       // that its registers reach over
    uint64_t there = 0;   // a bit for each that it has: those of a slice lie apart
    bool both = false;    // each is in every half of the lanes that MMAs may read

    // Of a group of registers: an m64 tile's k-step.
    CUTE_DEVICE uint32_t group(int i) const { return address + 8 * column_of_group(i, run); }
};

// A warpgroup that issues MMAs: where its columns are, and the ring of mbarriers on which its batches complete.
struct Warpgroup {
    uint32_t tmem;
    uint64_t* done;
    uint64_t* met;
    uint32_t warp;
    uint32_t ring;
    bool halves;             // it has both halves of the lanes of its columns
    Operand operand{};
    static constexpr int kFragments = 4;
    Stored stored[kFragments]{};
    int fragments = 0;       // that are stored for the MMAs of a batch
    uint32_t committed = 0;
    uint32_t completed = 0;  // batches, as far as known
    uint32_t phase = 0;      // of `met`
    bool apart = true;       // the warps have not met since the last wait or write
    bool open = false;       // MMAs that no commit covers

    CUTE_DEVICE Warpgroup(uint32_t tmem, uint64_t* done, uint64_t* met, uint32_t ring, bool halves)
        : tmem(tmem), done(done), met(met), warp(__shfl_sync(~0u, thread_rank() / 32 % 4, 0)), ring(ring),
          halves(halves) {}
    Warpgroup(Warpgroup const&) = delete;
    // The kernel may end with MMAs in flight, and Tensor Memory is freed behind this.
    CUTE_DEVICE ~Warpgroup() {
        if (open) commit();
        if (committed != completed) complete(committed);
    }

    CUTE_DEVICE uint32_t quarter() const { return warp << 21; }  // of the lanes, which this warp can reach
    // The column of something that a function declares, where a warpgroup is alone in the CTA or not.
    CUTE_DEVICE uint32_t column(uint32_t alone, uint32_t several) const { return halves ? alone : several; }
    CUTE_DEVICE bool issues() const { return warp == 0 && elect_one_sync(); }

    // What the four warps have written is there for the MMAs behind this.
    CUTE_DEVICE void arrive() { apart = true; }
    CUTE_DEVICE void meet() {
        if (!apart) return;
        fence_before_sync();
        __syncwarp();
        if (elect_one_sync()) arrive_barrier(*met);
        // Every warp waits, that none arrives for two meetings before the others have come to the first.
        wait_barrier(*met, phase);
        fence_after_sync();
        phase ^= 1;
        apart = false;
    }
    CUTE_DEVICE void commit() {
        if (committed - completed >= ring) complete(committed - ring + 1);  // Room among the mbarriers.
        meet();
        if (issues()) {
            asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                             cast_smem_ptr_to_uint(done + committed % ring))
                         : "memory");
        }
        ++committed;
        open = false;
    }
    // Until `count` batches of this warpgroup have completed.
    CUTE_DEVICE void complete(uint32_t count) {
        const uint32_t batch = count - 1;
        wait_barrier(done[batch % ring], batch / ring % 2);
        __syncwarp();  // Lanes go on together, as behind wgmma.wait_group.
        fence_after_sync();
        completed = count;
        apart = true;
    }
    CUTE_DEVICE void wait(uint32_t pending) {
        if (committed > pending) complete(committed - pending);
        else __syncwarp();  // Lanes go on together, as behind wgmma.wait_group.
    }
    // Until nothing reads the columns of an operand.
    CUTE_DEVICE void release(Operand const& columns) {
        if (columns.batch > committed) commit();  // MMAs of the open batch read them
        if (columns.batch > completed) complete(max(columns.batch, committed - min(committed, ring - 1)));
    }
    // Columns for the next k-step of A from registers.
    CUTE_DEVICE uint32_t next_step(Operand& columns) {
        if (columns.address == Operand::kNone) __trap();  // A would be stored over an accumulator
        if (columns.next == Operand::kSteps) release(columns);
        if (columns.batch <= completed) columns.next = 0;
        columns.batch = committed + 1;
        return columns.address + 8 * columns.next++;
    }
};

// What a kernel needs, as its types say, and what there is.
template <int kNeeded, int kThere>
struct Columns {
    static_assert(kNeeded <= kThere, "the accumulators need more columns than Tensor Memory has");
    static constexpr bool kFit = true;
};
template <int kNeeded, int kThere>
struct SharedBytes {
    static_assert(kNeeded <= kThere, "the kernel's shared memory and the port's are more bytes than a block can have");
    static constexpr bool kFit = true;
};

// Tensor Memory of a kernel: kColumns for each pair of warpgroups, kLast for the last one if it is alone.
template <int kColumns, int kWarpgroups, int kRing = 1, int kFirstWarpgroup = 0, int kLast = kColumns>
class Tmem {
    static constexpr int kNeeded = kWarpgroups / 2 * kColumns + kWarpgroups % 2 * kLast;
    static_assert(Columns<kNeeded, 512>::kFit);
    static constexpr int kAllocated = kNeeded <= 32    ? 32
                                      : kNeeded <= 64  ? 64
                                      : kNeeded <= 128 ? 128
                                      : kNeeded <= 256 ? 256
                                                       : 512;
    Slots<kWarpgroups, kRing>& slots;

    // Of a warp: the first of those that issue MMAs allocates and frees.
    CUTE_DEVICE static bool owns() { return thread_rank() / 32 == kFirstWarpgroup * 4; }

public:
    CUTE_DEVICE explicit Tmem(Slots<kWarpgroups, kRing>& slots) : slots(slots) {
        if (owns()) {
            TMEM::Allocator1Sm{}.allocate(kAllocated, &slots.tmem);
            TMEM::Allocator1Sm{}.release_allocation_lock();
            if (elect_one_sync()) {
                for (int i = 0; i < kWarpgroups; ++i) {
                    for (int j = 0; j < kRing; ++j) initialize_barrier(slots.done[i][j], 1);
                    initialize_barrier(slots.met[i], 4);
                }
                const int warps = int(blockDim.x * blockDim.y * blockDim.z + 31) / 32 - 4 * kFirstWarpgroup;
                initialize_barrier(slots.left, warps < 4 * kWarpgroups ? warps : 4 * kWarpgroups);
                cutlass::arch::fence_barrier_init();
            }
        }
        fence_before_sync();
        __syncthreads();
        fence_after_sync();
    }
    Tmem(Tmem const&) = delete;

    // A warp that issues no MMA leaves at any time, the others when their own work is done; only the owner waits.
    CUTE_DEVICE ~Tmem() {
        const uint32_t warpgroup = thread_rank() / 128 - kFirstWarpgroup;
        if (warpgroup >= uint32_t(kWarpgroups)) return;
        fence_before_sync();
        __syncwarp();
        if (elect_one_sync()) arrive_barrier(slots.left);
        if (owns()) {
            wait_barrier(slots.left, 0);
            fence_after_sync();
            __syncwarp();
            TMEM::Allocator1Sm{}.free(slots.tmem, kAllocated);
        }
    }

    // Warpgroup i of those that issue MMAs. Two share columns: each has a half of their lanes.
    CUTE_DEVICE Warpgroup warpgroup(uint32_t i) const {
        const bool alone = i == kWarpgroups - 1 && kWarpgroups % 2 == 1;
        return {slots.tmem + (i % 2) * kUpperHalf + i / 2 * kColumns, slots.done[i], &slots.met[i], kRing,
                kWarpgroups == 1 && alone};
    }
};
