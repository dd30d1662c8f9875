// SPDX-License-Identifier: Apache-2.0
//
// wgmma as types: a matrix descriptor, an accumulator fragment, and one MmaAtom per tile width.

#pragma once

#include <cstdint>

namespace mma {

enum class Major : int32_t { K = 0, MN = 1 };
enum class ScaleOut : int32_t { Zero = 0, One = 1 };
enum class LayoutType : uint8_t { Interleave = 0, B128 = 1, B64 = 2, B32 = 3 };

// The 64 bits that describe an operand tile in shared memory. Addresses and offsets in units of 16 bytes.
union MatrixDescriptor {
    uint64_t bits;
    struct {
        uint16_t start_address : 14, unused0 : 2;
        uint16_t leading_offset : 14, unused1 : 2;
        uint16_t stride_offset : 14, unused2 : 2;
        uint8_t unused3 : 1, base_offset : 3, unused4 : 4;
        uint8_t unused5 : 6, layout_type : 2;
    } field;

    __device__ __forceinline__ MatrixDescriptor(const void* tile, uint32_t stride_bytes, LayoutType layout) : bits(0) {
        field.start_address = static_cast<uint16_t>(__cvta_generic_to_shared(tile) >> 4);
        field.leading_offset = 1;
        field.stride_offset = static_cast<uint16_t>(stride_bytes >> 4);
        field.layout_type = static_cast<uint8_t>(layout);
    }

    // The descriptor `bytes` further along K.
    __device__ __forceinline__ uint64_t along_k(uint32_t bytes) const { return bits + (bytes >> 4); }
};

template <int N>
struct Fragment {
    float x[N];

    __device__ __forceinline__ float& operator[](int i) { return x[i]; }
};

// D(64xN) = A(64x16) * B(Nx16)^T + scale * D with bf16 operands in shared memory.
template <int N>
struct MmaAtom;

template <>
struct MmaAtom<64> {
    static constexpr int kRegisters = 32;
    using Accumulator = Fragment<kRegisters>;

    static __device__ __forceinline__ void fma(Accumulator& c, uint64_t a, uint64_t b, ScaleOut scale) {
        asm volatile(
            "{\n"
            ".reg .pred keep;\n"
            "setp.ne.b32 keep, %34, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
            "%32, %33, keep, %35, %36, %37, %38;\n"
            "}\n"
            : "+f"(c.x[0]), "+f"(c.x[1]), "+f"(c.x[2]), "+f"(c.x[3]), "+f"(c.x[4]), "+f"(c.x[5]),
              "+f"(c.x[6]), "+f"(c.x[7]), "+f"(c.x[8]), "+f"(c.x[9]), "+f"(c.x[10]), "+f"(c.x[11]),
              "+f"(c.x[12]), "+f"(c.x[13]), "+f"(c.x[14]), "+f"(c.x[15]), "+f"(c.x[16]), "+f"(c.x[17]),
              "+f"(c.x[18]), "+f"(c.x[19]), "+f"(c.x[20]), "+f"(c.x[21]), "+f"(c.x[22]), "+f"(c.x[23]),
              "+f"(c.x[24]), "+f"(c.x[25]), "+f"(c.x[26]), "+f"(c.x[27]), "+f"(c.x[28]), "+f"(c.x[29]),
              "+f"(c.x[30]), "+f"(c.x[31])
            : "l"(a), "l"(b), "r"(int32_t(scale)), "n"(1), "n"(1), "n"(int32_t(Major::K)), "n"(int32_t(Major::K)));
    }
};

template <>
struct MmaAtom<96> {
    static constexpr int kRegisters = 48;
    using Accumulator = Fragment<kRegisters>;

    static __device__ __forceinline__ void fma(Accumulator& c, uint64_t a, uint64_t b, ScaleOut scale) {
        asm volatile(
            "{\n"
            ".reg .pred keep;\n"
            "setp.ne.b32 keep, %50, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
            "%48, %49, keep, %51, %52, %53, %54;\n"
            "}\n"
            : "+f"(c.x[0]), "+f"(c.x[1]), "+f"(c.x[2]), "+f"(c.x[3]), "+f"(c.x[4]), "+f"(c.x[5]),
              "+f"(c.x[6]), "+f"(c.x[7]), "+f"(c.x[8]), "+f"(c.x[9]), "+f"(c.x[10]), "+f"(c.x[11]),
              "+f"(c.x[12]), "+f"(c.x[13]), "+f"(c.x[14]), "+f"(c.x[15]), "+f"(c.x[16]), "+f"(c.x[17]),
              "+f"(c.x[18]), "+f"(c.x[19]), "+f"(c.x[20]), "+f"(c.x[21]), "+f"(c.x[22]), "+f"(c.x[23]),
              "+f"(c.x[24]), "+f"(c.x[25]), "+f"(c.x[26]), "+f"(c.x[27]), "+f"(c.x[28]), "+f"(c.x[29]),
              "+f"(c.x[30]), "+f"(c.x[31]), "+f"(c.x[32]), "+f"(c.x[33]), "+f"(c.x[34]), "+f"(c.x[35]),
              "+f"(c.x[36]), "+f"(c.x[37]), "+f"(c.x[38]), "+f"(c.x[39]), "+f"(c.x[40]), "+f"(c.x[41]),
              "+f"(c.x[42]), "+f"(c.x[43]), "+f"(c.x[44]), "+f"(c.x[45]), "+f"(c.x[46]), "+f"(c.x[47])
            : "l"(a), "l"(b), "r"(int32_t(scale)), "n"(1), "n"(1), "n"(int32_t(Major::K)), "n"(int32_t(Major::K)));
    }
};

template <>
struct MmaAtom<192> {
    static constexpr int kRegisters = 96;
    using Accumulator = Fragment<kRegisters>;

    static __device__ __forceinline__ void fma(Accumulator& c, uint64_t a, uint64_t b, ScaleOut scale) {
        asm volatile(
            "{\n"
            ".reg .pred keep;\n"
            "setp.ne.b32 keep, %98, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
            " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
            " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
            "%96, %97, keep, %99, %100, %101, %102;\n"
            "}\n"
            : "+f"(c.x[0]), "+f"(c.x[1]), "+f"(c.x[2]), "+f"(c.x[3]), "+f"(c.x[4]), "+f"(c.x[5]),
              "+f"(c.x[6]), "+f"(c.x[7]), "+f"(c.x[8]), "+f"(c.x[9]), "+f"(c.x[10]), "+f"(c.x[11]),
              "+f"(c.x[12]), "+f"(c.x[13]), "+f"(c.x[14]), "+f"(c.x[15]), "+f"(c.x[16]), "+f"(c.x[17]),
              "+f"(c.x[18]), "+f"(c.x[19]), "+f"(c.x[20]), "+f"(c.x[21]), "+f"(c.x[22]), "+f"(c.x[23]),
              "+f"(c.x[24]), "+f"(c.x[25]), "+f"(c.x[26]), "+f"(c.x[27]), "+f"(c.x[28]), "+f"(c.x[29]),
              "+f"(c.x[30]), "+f"(c.x[31]), "+f"(c.x[32]), "+f"(c.x[33]), "+f"(c.x[34]), "+f"(c.x[35]),
              "+f"(c.x[36]), "+f"(c.x[37]), "+f"(c.x[38]), "+f"(c.x[39]), "+f"(c.x[40]), "+f"(c.x[41]),
              "+f"(c.x[42]), "+f"(c.x[43]), "+f"(c.x[44]), "+f"(c.x[45]), "+f"(c.x[46]), "+f"(c.x[47]),
              "+f"(c.x[48]), "+f"(c.x[49]), "+f"(c.x[50]), "+f"(c.x[51]), "+f"(c.x[52]), "+f"(c.x[53]),
              "+f"(c.x[54]), "+f"(c.x[55]), "+f"(c.x[56]), "+f"(c.x[57]), "+f"(c.x[58]), "+f"(c.x[59]),
              "+f"(c.x[60]), "+f"(c.x[61]), "+f"(c.x[62]), "+f"(c.x[63]), "+f"(c.x[64]), "+f"(c.x[65]),
              "+f"(c.x[66]), "+f"(c.x[67]), "+f"(c.x[68]), "+f"(c.x[69]), "+f"(c.x[70]), "+f"(c.x[71]),
              "+f"(c.x[72]), "+f"(c.x[73]), "+f"(c.x[74]), "+f"(c.x[75]), "+f"(c.x[76]), "+f"(c.x[77]),
              "+f"(c.x[78]), "+f"(c.x[79]), "+f"(c.x[80]), "+f"(c.x[81]), "+f"(c.x[82]), "+f"(c.x[83]),
              "+f"(c.x[84]), "+f"(c.x[85]), "+f"(c.x[86]), "+f"(c.x[87]), "+f"(c.x[88]), "+f"(c.x[89]),
              "+f"(c.x[90]), "+f"(c.x[91]), "+f"(c.x[92]), "+f"(c.x[93]), "+f"(c.x[94]), "+f"(c.x[95])
            : "l"(a), "l"(b), "r"(int32_t(scale)), "n"(1), "n"(1), "n"(int32_t(Major::K)), "n"(int32_t(Major::K)));
    }
};

struct Batch {
    static __device__ __forceinline__ void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
    static __device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

    template <int Pending>
    static __device__ __forceinline__ void wait() {
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
    }
};

}  // namespace mma
