// ---- tcgen05 ------------------------------------------------------------------------------------------------------

CUTE_DEVICE void fence_before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
CUTE_DEVICE void fence_after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

#define PORTER_MMA(kind, operand)                                                                       \
    asm volatile(                                                                                       \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"                                                     \
        "tcgen05.mma.cta_group::$ctas.kind::" kind " [%0], " operand ", %2, %3, p;\n}\n" ::"r"(d), TERM(a), \
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
//@ if joined

// The index of the thread whose rows this one has. Lane L of an M=128 tile holds row L. Warp w of a warpgroup reaches
// lanes 32w to 32w + 31, and takes the first 16 in one warpgroup, the others in the next: rows 16(2w) and 16(2w + 1),
// which m64 tiles gave to warps 2w and 2w + 1 of the eight.
constexpr unsigned int kIssuer = $issuer;  // the first of the eight warps, which issues for all of them
CUTE_DEVICE unsigned int thread_index() {
    const unsigned int warp = threadIdx.x / 32 - kIssuer;
    if (warp >= 8) return threadIdx.x;
    return (kIssuer + warp % 4 * 2 + warp / 4) * 32 + threadIdx.x % 32;
}
// Of the warp's first thread, in all lanes.
CUTE_DEVICE unsigned int first_thread_index() { return __shfl_sync(~0u, thread_index(), 0); }
//@ end
//@ if own_warp
constexpr unsigned int kMmaWarp = $mma_warp;  // does nothing but wait for stages and issue MMAs
constexpr uint32_t kBuffers = $buffers;        // accumulators that take turns
//@ if paired

// The two CTAs of a cluster are a pair: one issues MMAs for both, each has half of their rows and half of their columns
// in its shared memory. A pair does the work of one CTA for half the rows and half the columns of the product; its first
// CTA does so for the first half of each, and the second one for the second half.
constexpr uint16_t kBothOfPair = 3;  // ranks in the cluster, as a mask
CUTE_DEVICE int pair_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return int(rank);
}
CUTE_DEVICE unsigned int pair_index() { return blockIdx.x / 2; }
CUTE_DEVICE unsigned int pair_count() { return gridDim.x / 2; }

// Half of the rows or columns of a product, in whole tiles.
template <class Size>
CUTE_DEVICE Size half_of(Size size, int tile) {
    return (size + 2 * tile - 1) / (2 * tile) * tile;
}

// Both CTAs meet, with all of their threads that have not ended.
CUTE_DEVICE void sync_pair() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// The same place in the first CTA of the pair, whose mbarriers count the bytes of both.
CUTE_DEVICE uint32_t of_first(void const* mbarrier) {
    uint32_t found;
    asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(found) : "r"(cast_smem_ptr_to_uint(mbarrier)));
    return found;
}
CUTE_DEVICE void arrive_at_first(uint64_t const& mbarrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(of_first(&mbarrier)) : "memory");
}
// Waits for what both CTAs do.
CUTE_DEVICE void wait_of_pair(uint64_t const& mbarrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "WAIT:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [%0], %1;\n"
        "@!complete bra WAIT;\n"
        "}" ::"r"(cast_smem_ptr_to_uint(&mbarrier)),
        "r"(parity)
        : "memory");
}

// Of a pipeline whose stages both CTAs fill: the first expects the bytes of both.
template <class Params>
CUTE_DEVICE Params of_pair(Params params) {
    params.transaction_bytes *= 2;
    params.is_leader = params.is_leader && pair_rank() == 0;
    return params;
}

// Loads a box into this CTA's shared memory; its bytes count on the first CTA's mbarrier.
CUTE_DEVICE void load_of_pair(void const* map, uint64_t* mbarrier, uint64_t hint, void* to, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2.L2::cache_hint "
        "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(cast_smem_ptr_to_uint(to)),
        "l"(map), "r"(of_first(mbarrier)), "r"(x), "r"(y), "l"(hint)
        : "memory");
}

// One CTA of a pair issues for both.
CUTE_DEVICE bool is_mma_warp() { return thread_rank() / 32 == kMmaWarp && pair_rank() == 0; }
//@ else
CUTE_DEVICE bool is_mma_warp() { return thread_rank() / 32 == kMmaWarp; }
//@ end
//@ end

// ---- Warpgroups ---------------------------------------------------------------------------------------------------

// mbarriers and the address of Tensor Memory: a member of the kernel's own shared storage.
template <int kWarpgroups, int kRing = 1>
struct Slots {
    uint64_t done[kWarpgroups][kRing];  // a batch of MMAs has completed
//@ if joined
    uint64_t met[kWarpgroups];          // the eight warps have come to the next MMAs
//@ else
    uint64_t met[kWarpgroups];          // the four warps have come to the next MMAs
//@ end
//@ if own_warp
    uint64_t there[kBuffers];           // the sums of a tile are complete
    uint64_t read[kBuffers];            // the eight warps have read them
//@ end
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

//@ if own_warp
// Accumulators of a kernel whose MMAs a warp of its own issues: mbarriers for each, and the columns that it takes.
struct Sums {
    uint64_t* there;
    uint64_t* read;
    uint32_t columns;
};

//@ end
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
//@ if joined
    bool first = true;       // of the two, whose MMAs are for both
//@ end
//@ if own_warp
    Sums sums;
    bool own;                // it is the warp that issues MMAs for all
    uint32_t turn = 0;       // tiles whose sums are over
    uint32_t shift = 0;      // of the accumulator whose turn it is, in columns
//@ end

//@ if own_warp
    CUTE_DEVICE Warpgroup(uint32_t tmem, uint64_t* done, uint64_t* met, uint32_t ring, bool first, Sums sums, bool own)
        : tmem(tmem), done(done), met(met), warp(__shfl_sync(~0u, thread_rank() / 32 % 4, 0)), ring(ring),
          halves(false), first(first), sums(sums), own(own) {}
//@ else
//@ if joined
    CUTE_DEVICE Warpgroup(uint32_t tmem, uint64_t* done, uint64_t* met, uint32_t ring, bool first)
        : tmem(tmem), done(done), met(met), warp(__shfl_sync(~0u, thread_rank() / 32 % 4, 0)), ring(ring),
          halves(false), first(first) {}
//@ else
    CUTE_DEVICE Warpgroup(uint32_t tmem, uint64_t* done, uint64_t* met, uint32_t ring, bool halves)
        : tmem(tmem), done(done), met(met), warp(__shfl_sync(~0u, thread_rank() / 32 % 4, 0)), ring(ring),
          halves(halves) {}
//@ end
//@ end
    Warpgroup(Warpgroup const&) = delete;
    // The kernel may end with MMAs in flight, and Tensor Memory is freed behind this.
    CUTE_DEVICE ~Warpgroup() {
        if (open) commit();
        if (committed != completed) complete(committed);
    }

    CUTE_DEVICE uint32_t quarter() const { return warp << 21; }  // of the lanes, which this warp can reach
    // The column of something that a function declares, where a warpgroup is alone in the CTA or not.
    CUTE_DEVICE uint32_t column(uint32_t alone, uint32_t several) const { return halves ? alone : several; }
//@ if own_warp
    CUTE_DEVICE bool issues() const { return own && elect_one_sync(); }
//@ else
//@ if joined
    CUTE_DEVICE bool issues() const { return first && warp == 0 && elect_one_sync(); }
//@ else
    CUTE_DEVICE bool issues() const { return warp == 0 && elect_one_sync(); }
//@ end
//@ end
//@ if pipelines
//@ if own_warp
    CUTE_DEVICE bool issuing_warp() const { return own; }
//@ else
//@ if joined
    CUTE_DEVICE bool issuing_warp() const { return first && warp == 0; }
//@ else
    CUTE_DEVICE bool issuing_warp() const { return warp == 0; }
//@ end
//@ end
//@ end

//@ if joined
    // What the eight warps have written is there for the MMAs behind this.
//@ else
    // What the four warps have written is there for the MMAs behind this.
//@ end
    CUTE_DEVICE void arrive() { apart = true; }
    CUTE_DEVICE void meet() {
        if (!apart) return;
//@ if own_warp
        if (own) {
            // Its lanes have waited for the stage; nobody else has a part in its MMAs.
            __syncwarp();
            apart = false;
            return;
        }
//@ end
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
            asm volatile("tcgen05.commit.cta_group::$ctas.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
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
//@ if own_warp
    // Of the warp that issues MMAs: those of a tile may write the accumulator whose turn it is, which has been read.
    CUTE_DEVICE void begin_sums() {
//@ if paired
        wait_of_pair(sums.read[turn % kBuffers], turn / kBuffers % 2 ^ 1);
//@ else
        wait_barrier(sums.read[turn % kBuffers], turn / kBuffers % 2 ^ 1);
//@ end
        fence_after_sync();
        shift = turn % kBuffers * sums.columns;
    }
    // Its sums are complete when all MMAs issued so far are.
    CUTE_DEVICE void end_sums() {
        __syncwarp();
        if (issues()) {
//@ if paired
            asm volatile(
                "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
                    cast_smem_ptr_to_uint(sums.there + turn % kBuffers)), "h"(kBothOfPair)
                : "memory");
//@ else
            asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                             cast_smem_ptr_to_uint(sums.there + turn % kBuffers))
                         : "memory");
//@ end
        }
        ++turn;
        open = false;
    }
    // Of all others: until the sums of the next tile are complete.
    CUTE_DEVICE void take_sums() {
        shift = turn % kBuffers * sums.columns;
//@ if paired
        wait_of_pair(sums.there[turn % kBuffers], turn / kBuffers % 2);
//@ else
        wait_barrier(sums.there[turn % kBuffers], turn / kBuffers % 2);
//@ end
        __syncwarp();  // Lanes go on together, as behind wgmma.wait_group.
        fence_after_sync();
    }
//@ if paired
    // The columns of B that one of both CTAs has loaded, of so many each.
    CUTE_DEVICE void take_part(uint32_t part, uint32_t columns) {
        shift = turn % kBuffers * sums.columns + part * columns;
    }
//@ end
    // This warp has read them.
    CUTE_DEVICE void return_sums() {
        fence_before_sync();
        __syncwarp();
//@ if paired
        if (elect_one_sync()) arrive_at_first(sums.read[turn % kBuffers]);
//@ else
        if (elect_one_sync()) arrive_barrier(sums.read[turn % kBuffers]);
//@ end
        ++turn;
    }
//@ end
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

//@ if releases and not paired
// Gives a stage back: its mbarrier has one arrival more once all MMAs issued so far are complete. It is named by its
// address, or by the word or object that it is. Before the next MMAs all warps meet again: none misses the phase of a
// stage that it waits for.
template <class Barrier>
CUTE_DEVICE void give_back(Warpgroup& tc, Barrier&& mbarrier) {
    using Given = remove_cvref_t<Barrier>;
    uint32_t address = 0;
    if constexpr (is_same_v<Given, uint32_t>) address = mbarrier;
    else if constexpr (is_pointer<Given>::value) address = cast_smem_ptr_to_uint(mbarrier);
    else {
        static_assert(sizeof(Given) == sizeof(uint64_t), "this is no mbarrier");
        address = cast_smem_ptr_to_uint(&mbarrier);
    }
    tc.meet();
    if (tc.issues()) {
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(address)
                     : "memory");
    }
    tc.apart = true;
}
//@ end
//@ if pipelines
//@ if paired
// Gives a stage back, to both CTAs, once all MMAs issued so far are complete.
//@ else
// The same of a stage of a pipeline.
//@ end
//@ if paired
template <int kStages, class Cluster, class Ctas, class State>
CUTE_DEVICE void give_back(Warpgroup& tc, cutlass::PipelineTmaUmmaAsync<kStages, Cluster, Ctas>& pipeline,
                           State const& state) {
//@ else
template <int kStages, class Cluster, class State>
CUTE_DEVICE void give_back(Warpgroup& tc, cutlass::PipelineTmaUmmaAsync<kStages, Cluster>& pipeline, State const& state) {
//@ end
    tc.meet();
    if (tc.issuing_warp()) pipeline.consumer_release(state);  // tcgen05.commit, by the thread that issues
    tc.apart = true;
}
//@ end
//@ if releases

//@ end
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
//@ if own_warp
//@ if paired
    static constexpr int kEach = 2 * kColumns;  // of both CTAs' columns
//@ else
    static constexpr int kEach = kWarpgroups / 2 * kColumns + kWarpgroups % 2 * kLast;
//@ end
    static constexpr int kNeeded = kEach * int(kBuffers);
//@ else
    static constexpr int kNeeded = kWarpgroups / 2 * kColumns + kWarpgroups % 2 * kLast;
//@ end
    static_assert(Columns<kNeeded, 512>::kFit);
//@ if joined
    static_assert(kWarpgroups == 2 && kFirstWarpgroup * 4 == kIssuer, "an MMA of M = 128 is for two warpgroups");
//@ end
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
//@ if paired
        sync_pair();  // the other CTA is there
//@ end
        if (owns()) {
            TMEM::Allocator${ctas}Sm{}.allocate(kAllocated, &slots.tmem);
            TMEM::Allocator${ctas}Sm{}.release_allocation_lock();
            if (elect_one_sync()) {
                for (int i = 0; i < kWarpgroups; ++i) {
                    for (int j = 0; j < kRing; ++j) initialize_barrier(slots.done[i][j], 1);
//@ if joined
                    initialize_barrier(slots.met[i], 8);
//@ else
                    initialize_barrier(slots.met[i], 4);
//@ end
                }
//@ if own_warp
                for (uint32_t i = 0; i < kBuffers; ++i) {
                    initialize_barrier(slots.there[i], 1);
//@ if paired
                    initialize_barrier(slots.read[i], 2 * 4 * kWarpgroups);
//@ else
                    initialize_barrier(slots.read[i], 4 * kWarpgroups);
//@ end
                }
//@ end
                const int warps = int(blockDim.x * blockDim.y * blockDim.z + 31) / 32 - 4 * kFirstWarpgroup;
                initialize_barrier(slots.left, warps < 4 * kWarpgroups ? warps : 4 * kWarpgroups);
                cutlass::arch::fence_barrier_init();
            }
        }
        fence_before_sync();
//@ if paired
        sync_pair();
//@ else
        __syncthreads();
//@ end
        fence_after_sync();
    }
    Tmem(Tmem const&) = delete;

//@ if paired
    // Neither CTA ends while the other one may still read its shared memory or arrive on its mbarriers.
    CUTE_DEVICE ~Tmem() {
        fence_before_sync();
        sync_pair();
        fence_after_sync();
        __syncwarp();
        if (owns()) TMEM::Allocator2Sm{}.free(slots.tmem, kAllocated);
    }
//@ else
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
//@ end

    // Warpgroup i of those that issue MMAs. Two share columns: each has a half of their lanes.
    CUTE_DEVICE Warpgroup warpgroup(uint32_t i) const {
//@ if own_warp
        return {slots.tmem + i * kUpperHalf, slots.done[0], &slots.met[0], kRing, i == 0,
                {slots.there, slots.read, kEach}, false};
//@ else
//@ if joined
        return {slots.tmem + i * kUpperHalf, slots.done[0], &slots.met[0], kRing, i == 0};
//@ else
        const bool alone = i == kWarpgroups - 1 && kWarpgroups % 2 == 1;
        return {slots.tmem + (i % 2) * kUpperHalf + i / 2 * kColumns, slots.done[i], &slots.met[i], kRing,
                kWarpgroups == 1 && alone};
//@ end
//@ end
    }
//@ if own_warp
    // The warp that issues the MMAs of all.
    CUTE_DEVICE Warpgroup mma_warp() const {
        return {slots.tmem, slots.done[0], &slots.met[0], kRing, true, {slots.there, slots.read, kEach}, true};
    }
//@ end
};
