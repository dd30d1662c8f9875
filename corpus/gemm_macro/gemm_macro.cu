/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small GEMM in the C style: instructions are macros, the accumulator is 32 named floats.
 *
 *   C[M,N] = A[M,K] * B[N,K]^T      half inputs, float output, row-major
 *
 * 128 threads compute a 64x64 tile. Operands lie in shared memory without swizzle, as 8x8 core matrices
 * of 128 contiguous bytes: [row / 8][k / 8][row % 8][k % 8].
 */
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>

#define TILE_M 64
#define TILE_N 64
#define TILE_K 64
#define NTHREADS 128

/* Byte distances between core matrices: along K (leading) and along the rows (stride). */
#define CORE_BYTES 128
#define LEADING_BYTES CORE_BYTES
#define STRIDE_BYTES ((TILE_K / 8) * CORE_BYTES)

#define SMEM_ADDR(p) ((uint32_t)__cvta_generic_to_shared(p))
#define DESC_FIELD(x) (((uint64_t)(x) & 0x3FFFF) >> 4)
#define MAKE_DESC(p) \
    (DESC_FIELD(SMEM_ADDR(p)) | (DESC_FIELD(LEADING_BYTES) << 16) | (DESC_FIELD(STRIDE_BYTES) << 32))

#define WGMMA_FENCE() asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory")
#define WGMMA_COMMIT_GROUP() asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory")
#define WGMMA_WAIT_GROUP(N) asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory")
#define FENCE_PROXY_ASYNC() asm volatile("fence.proxy.async;\n" ::: "memory")

/* d00..d31 (+)= A * B^T; the accumulator names are those of the enclosing function */
#define WGMMA_M64N64K16_F32F16F16(DESC_A, DESC_B, SCALE_D)                                              \
    asm volatile(                                                                                       \
        "{\n"                                                                                           \
        ".reg .pred p;\n"                                                                               \
        "setp.ne.b32 p, %34, 0;\n"                                                                      \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "                                           \
        "{%0, %1, %2, %3, %4, %5, %6, %7, "                                                             \
        " %8, %9, %10, %11, %12, %13, %14, %15, "                                                       \
        " %16, %17, %18, %19, %20, %21, %22, %23, "                                                     \
        " %24, %25, %26, %27, %28, %29, %30, %31}, "                                                    \
        "%32, %33, p, 1, 1, 0, 0;\n"                                                                    \
        "}\n"                                                                                           \
        : "+f"(d00), "+f"(d01), "+f"(d02), "+f"(d03), "+f"(d04), "+f"(d05), "+f"(d06), "+f"(d07),       \
          "+f"(d08), "+f"(d09), "+f"(d10), "+f"(d11), "+f"(d12), "+f"(d13), "+f"(d14), "+f"(d15),       \
          "+f"(d16), "+f"(d17), "+f"(d18), "+f"(d19), "+f"(d20), "+f"(d21), "+f"(d22), "+f"(d23),       \
          "+f"(d24), "+f"(d25), "+f"(d26), "+f"(d27), "+f"(d28), "+f"(d29), "+f"(d30), "+f"(d31)        \
        : "l"(DESC_A), "l"(DESC_B), "r"((int)(SCALE_D)))

/* Eight halves of row `row`, columns k .. k+7, or zeros beyond the edge */
#define LOAD_CHUNK(matrix, rows, row, k)                                                                 \
    (((row) < (rows)) ? *(const uint4 *)((matrix) + (size_t)(row) * K + (k)) : make_uint4(0, 0, 0, 0))

#define STORE_8_COLUMNS(J, V0, V1, V2, V3)                                                               \
    do {                                                                                                 \
        const int col = col0 + 8 * (J);                                                                  \
        if (row < M && col < N) C[(size_t)row * N + col] = (V0);                                         \
        if (row < M && col + 1 < N) C[(size_t)row * N + col + 1] = (V1);                                 \
        if (row + 8 < M && col < N) C[(size_t)(row + 8) * N + col] = (V2);                               \
        if (row + 8 < M && col + 1 < N) C[(size_t)(row + 8) * N + col + 1] = (V3);                       \
    } while (0)

extern "C" __global__ void __launch_bounds__(NTHREADS)
gemm_macro(const __half *A, const __half *B, float *C, int M, int N, int K)
{
    __shared__ __align__(128) __half As[TILE_M * TILE_K];
    __shared__ __align__(128) __half Bs[TILE_N * TILE_K];

    float d00, d01, d02, d03, d04, d05, d06, d07;
    float d08, d09, d10, d11, d12, d13, d14, d15;
    float d16, d17, d18, d19, d20, d21, d22, d23;
    float d24, d25, d26, d27, d28, d29, d30, d31;

    const int tile_row = blockIdx.y * TILE_M;
    const int tile_col = blockIdx.x * TILE_N;

    for (int kt = 0; kt < K; kt += TILE_K) {
        for (int i = threadIdx.x; i < TILE_M * TILE_K / 8; i += NTHREADS) {
            const int r = i / (TILE_K / 8), c = i % (TILE_K / 8);
            const int core = (r / 8) * (TILE_K / 8) + c;
            *(uint4 *)&As[core * 64 + (r % 8) * 8] = LOAD_CHUNK(A, M, tile_row + r, kt + c * 8);
        }
        for (int i = threadIdx.x; i < TILE_N * TILE_K / 8; i += NTHREADS) {
            const int r = i / (TILE_K / 8), c = i % (TILE_K / 8);
            const int core = (r / 8) * (TILE_K / 8) + c;
            *(uint4 *)&Bs[core * 64 + (r % 8) * 8] = LOAD_CHUNK(B, N, tile_col + r, kt + c * 8);
        }
        FENCE_PROXY_ASYNC();
        __syncthreads();

        WGMMA_FENCE();
        WGMMA_M64N64K16_F32F16F16(MAKE_DESC(As), MAKE_DESC(Bs), kt != 0);
        for (int k = 1; k < TILE_K / 16; k++) {
            /* two core matrices further along K */
            WGMMA_M64N64K16_F32F16F16(MAKE_DESC(&As[k * 128]), MAKE_DESC(&Bs[k * 128]), 1);
        }
        WGMMA_COMMIT_GROUP();
        WGMMA_WAIT_GROUP(0);
        __syncthreads();
    }

    const int row = tile_row + (threadIdx.x / 32) * 16 + (threadIdx.x % 32) / 4;
    const int col0 = tile_col + (threadIdx.x % 4) * 2;
    STORE_8_COLUMNS(0, d00, d01, d02, d03);
    STORE_8_COLUMNS(1, d04, d05, d06, d07);
    STORE_8_COLUMNS(2, d08, d09, d10, d11);
    STORE_8_COLUMNS(3, d12, d13, d14, d15);
    STORE_8_COLUMNS(4, d16, d17, d18, d19);
    STORE_8_COLUMNS(5, d20, d21, d22, d23);
    STORE_8_COLUMNS(6, d24, d25, d26, d27);
    STORE_8_COLUMNS(7, d28, d29, d30, d31);
}

/* M and N are free; K must be a multiple of TILE_K. Returns 0 on success. */
extern "C" int gemm_macro_run(const __half *A, const __half *B, float *C, int M, int N, int K)
{
    struct cudaDeviceProp prop;
    if (cudaGetDeviceProperties(&prop, 0) != cudaSuccess) return -1;
    if (prop.major != 9) {
        fprintf(stderr, "gemm_macro: sm_90a only, this GPU is sm_%d%d\n", prop.major, prop.minor);
        return -1;
    }
    if (K % TILE_K) return -2;
    dim3 grid((N + TILE_N - 1) / TILE_N, (M + TILE_M - 1) / TILE_M);
    gemm_macro<<<grid, NTHREADS>>>(A, B, C, M, N, K);
    cudaError_t err = cudaDeviceSynchronize();
    if (err != cudaSuccess) {
        fprintf(stderr, "gemm_macro: %s\n", cudaGetErrorString(err));
        return -3;
    }
    return 0;
}

#ifdef GEMM_MACRO_MAIN
/* nvcc -gencode arch=compute_90a,code=sm_90a -DGEMM_MACRO_MAIN gemm_macro.cu && ./a.out */
#include <stdlib.h>

int main(void)
{
    enum { M = 70, N = 101, K = 192 };
    static __half a[M * K], b[N * K];
    static float c[M * N];
    __half *A, *B;
    float *C;
    int wrong = 0;

    for (int i = 0; i < M * K; i++) a[i] = __float2half((float)(i * 3 % 7 - 3));
    for (int i = 0; i < N * K; i++) b[i] = __float2half((float)(i * 5 % 9 - 4));
    if (cudaMalloc(&A, sizeof a) || cudaMalloc(&B, sizeof b) || cudaMalloc(&C, sizeof c)) {
        fprintf(stderr, "out of memory\n");
        return EXIT_FAILURE;
    }
    cudaMemcpy(A, a, sizeof a, cudaMemcpyHostToDevice);
    cudaMemcpy(B, b, sizeof b, cudaMemcpyHostToDevice);
    if (gemm_macro_run(A, B, C, M, N, K)) return EXIT_FAILURE;
    cudaMemcpy(c, C, sizeof c, cudaMemcpyDeviceToHost);

    for (int m = 0; m < M; m++) {
        for (int n = 0; n < N; n++) {
            float sum = 0.0f;
            for (int k = 0; k < K; k++) sum += __half2float(a[m * K + k]) * __half2float(b[n * K + k]);
            wrong += sum != c[m * N + n];
        }
    }
    printf("%d of %d elements wrong\n", wrong, M * N);
    return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
#endif
