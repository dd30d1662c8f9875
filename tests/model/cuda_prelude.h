// SPDX-License-Identifier: Apache-2.0
// What CUDA's and the C library's headers declare, as far as the test that asks clang about names needs it.
#pragma once
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __grid_constant__
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict
#define assert(...) ((void)0)
#define CUDART_INF_F 1e30f
#define NULL 0

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef unsigned long uintptr_t;
typedef unsigned int uint;
namespace std {
using ::int32_t;
using ::size_t;
using ::uint32_t;
using ::uint64_t;
template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool B, class T, class F> struct conditional { using type = T; };
template <class T, class F> struct conditional<false, T, F> { using type = F; };
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;
template <class T, class U> struct is_same { static constexpr bool value = false; };
template <class T> struct is_same<T, T> { static constexpr bool value = true; };
template <class T, class U> inline constexpr bool is_same_v = is_same<T, U>::value;
template <class T, T V> struct integral_constant { static constexpr T value = V; };
template <size_t... I> struct index_sequence {};
}  // namespace std

struct uint3 { unsigned x, y, z; };
struct dim3 {
    unsigned x, y, z;
    __device__ __host__ constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
extern const __device__ uint3 threadIdx;
extern const __device__ uint3 blockIdx;
extern const __device__ dim3 blockDim;
extern const __device__ dim3 gridDim;
extern const __device__ int warpSize;

#define PORTER_HALF(name)                                         \
    struct name {                                                 \
        unsigned short bits;                                      \
        name() = default;                                         \
        __device__ __host__ name(float);                          \
        __device__ __host__ operator float() const;               \
    };
PORTER_HALF(__half)
PORTER_HALF(__nv_bfloat16)
PORTER_HALF(__nv_fp8_e4m3)
PORTER_HALF(__nv_fp8_e5m2)
typedef __half half;
typedef __nv_bfloat16 nv_bfloat16;
struct __half2 { __half x, y; };
struct __nv_bfloat162 { __nv_bfloat16 x, y; };
typedef __half2 half2;
typedef __nv_bfloat162 nv_bfloat162;
struct alignas(64) CUtensorMap { uint64_t opaque[16]; };
typedef struct CUstream_st* cudaStream_t;
typedef int cudaError_t;

extern "C" int cudaConfigureCall(dim3, dim3, size_t = 0, cudaStream_t = 0);
__device__ float2 make_float2(float, float);
__device__ int4 make_int4(int, int, int, int);
__device__ uint4 make_uint4(unsigned, unsigned, unsigned, unsigned);
__device__ float logf(float);
#define INFINITY 1e30f
__device__ void __syncthreads();
__device__ void __syncwarp(unsigned mask = 0xffffffff);
__device__ void __trap();
__device__ size_t __cvta_generic_to_shared(const void*);
template <class T> __device__ T __shfl_sync(unsigned, T, int, int = 32);
template <class T> __device__ T __shfl_xor_sync(unsigned, T, int, int = 32);
template <class T> __device__ T __ldg(const T*);
template <class T> __device__ __host__ T min(T, T);
template <class T> __device__ __host__ T max(T, T);
__device__ float __expf(float);
__device__ float exp2f(float);
__device__ float expf(float);
__device__ float fmaxf(float, float);
__device__ float fminf(float, float);
__device__ float __fdividef(float, float);
__device__ __nv_bfloat16 __float2bfloat16(float);
__device__ __nv_bfloat162 __floats2bfloat162_rn(float, float);
__device__ __half2 __floats2half2_rn(float, float);
__device__ __half __float2half(float);
__device__ __half __float2half_rn(float);
__device__ float __bfloat162float(__nv_bfloat16);
__device__ float __half2float(__half);
__device__ unsigned __float_as_uint(float);
__device__ float __uint_as_float(unsigned);
template <class T> __device__ T atomicAdd(T*, T);
extern "C" int printf(const char*, ...);
extern "C" __device__ void* memcpy(void*, const void*, size_t);
extern "C" __device__ void* memset(void*, int, size_t);
