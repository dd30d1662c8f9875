// SPDX-License-Identifier: Apache-2.0
// C = A B for n x n matrices of floats, by blocks of TILE x TILE threads. n is a multiple of TILE.

#define TILE 16

extern "C" __global__ void tiled_gemm(const float* A, const float* B, float* C, int n) {
    __shared__ float a[TILE][TILE], b[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    const int row = blockIdx.y * TILE + y, col = blockIdx.x * TILE + x;
    float sum = 0.0f;
    for (int k = 0; k < n; k += TILE) {
        a[y][x] = A[row * n + k + x];
        b[y][x] = B[(k + y) * n + col];
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += a[y][i] * b[i][x];
        __syncthreads();
    }
    C[row * n + col] = sum;
}
