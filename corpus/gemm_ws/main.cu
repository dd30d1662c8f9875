// SPDX-License-Identifier: Apache-2.0
//
// Runs gemm_ws on small integers, for which every sum is exact, and compares with a plain host loop.

#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

void run_gemm_ws(int M, int N, int K, __nv_bfloat16* A, __nv_bfloat16* B, float* C, cudaStream_t stream);

int main(int argc, char** argv) {
    const int M = argc > 1 ? std::atoi(argv[1]) : 256;
    const int N = argc > 2 ? std::atoi(argv[2]) : 256;
    const int K = argc > 3 ? std::atoi(argv[3]) : 512;

    std::vector<__nv_bfloat16> host_a((size_t)M * K), host_b((size_t)N * K);
    std::vector<float> host_c((size_t)M * N);
    for (size_t i = 0; i < host_a.size(); ++i) host_a[i] = __float2bfloat16(float(int(i * 7 % 11) - 5));
    for (size_t i = 0; i < host_b.size(); ++i) host_b[i] = __float2bfloat16(float(int(i * 5 % 13) - 6));

    __nv_bfloat16 *A = nullptr, *B = nullptr;
    float* C = nullptr;
    cudaMalloc(&A, host_a.size() * sizeof(__nv_bfloat16));
    cudaMalloc(&B, host_b.size() * sizeof(__nv_bfloat16));
    cudaMalloc(&C, host_c.size() * sizeof(float));
    cudaMemcpy(A, host_a.data(), host_a.size() * sizeof(__nv_bfloat16), cudaMemcpyHostToDevice);
    cudaMemcpy(B, host_b.data(), host_b.size() * sizeof(__nv_bfloat16), cudaMemcpyHostToDevice);

    run_gemm_ws(M, N, K, A, B, C, nullptr);
    if (cudaDeviceSynchronize() != cudaSuccess) {
        std::fprintf(stderr, "%s\n", cudaGetErrorString(cudaGetLastError()));
        return EXIT_FAILURE;
    }
    cudaMemcpy(host_c.data(), C, host_c.size() * sizeof(float), cudaMemcpyDeviceToHost);

    size_t wrong = 0;
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            float sum = 0.0f;
            for (int k = 0; k < K; ++k) {
                sum += __bfloat162float(host_a[(size_t)m * K + k]) * __bfloat162float(host_b[(size_t)n * K + k]);
            }
            wrong += sum != host_c[(size_t)m * N + n];
        }
    }
    std::printf("%d x %d x %d: %zu of %zu elements wrong\n", M, N, K, wrong, host_c.size());
    cudaFree(A);
    cudaFree(B);
    cudaFree(C);
    return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
