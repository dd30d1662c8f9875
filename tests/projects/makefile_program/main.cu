/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 64, KEYS = 64, DEPTH = 64 };

static __half q[ROWS * DEPTH], k[KEYS * DEPTH], v[DEPTH * KEYS], p[ROWS * KEYS], o[ROWS * DEPTH];
static float s[ROWS * KEYS];

static void *on_device(const void *data, size_t bytes)
{
    void *copy;
    if (cudaMalloc(&copy, bytes) || cudaMemcpy(copy, data, bytes, cudaMemcpyHostToDevice)) {
        fprintf(stderr, "no device memory\n");
        exit(EXIT_FAILURE);
    }
    return copy;
}

int main(void)
{
    cudaDeviceProp device;
    if (cudaGetDeviceProperties(&device, 0) != cudaSuccess || device.major != 9) {
        fprintf(stderr, "needs a Hopper GPU\n");
        return EXIT_FAILURE;
    }
    for (int i = 0; i < ROWS * DEPTH; i++) q[i] = __float2half((float)(i * 3 % 7 - 3));
    for (int i = 0; i < KEYS * DEPTH; i++) k[i] = __float2half((float)(i * 5 % 9 - 4));
    for (int i = 0; i < DEPTH * KEYS; i++) v[i] = __float2half((float)(i * 2 % 5 - 2));
    float *device_s = (float *)on_device(s, sizeof s);
    scores((const __half *)on_device(q, sizeof q), (const __half *)on_device(k, sizeof k), device_s, ROWS, KEYS, DEPTH,
           0.125f);
    cudaMemcpy(s, device_s, sizeof s, cudaMemcpyDeviceToHost);
    for (int i = 0; i < ROWS * KEYS; i++) p[i] = __float2half(s[i] > 0.0f ? 1.0f : 0.0f);
    __half *device_o = (__half *)on_device(o, sizeof o);
    values((const __half *)on_device(p, sizeof p), (const __half *)on_device(v, sizeof v), device_o, ROWS, DEPTH, KEYS);
    cudaMemcpy(o, device_o, sizeof o, cudaMemcpyDeviceToHost);
    if (cudaDeviceSynchronize() != cudaSuccess) return EXIT_FAILURE;

    int wrong = 0;
    for (int m = 0; m < ROWS; m++) {
        for (int n = 0; n < DEPTH; n++) {
            float sum = 0.0f;
            for (int key = 0; key < KEYS; key++) {
                float score = 0.0f;
                for (int d = 0; d < DEPTH; d++)
                    score += __half2float(q[m * DEPTH + d]) * __half2float(k[key * DEPTH + d]);
                sum += score > 0.0f ? __half2float(v[n * KEYS + key]) : 0.0f;
            }
            wrong += sum != __half2float(o[m * DEPTH + n]);
        }
    }
    printf("%d of %d elements wrong\n", wrong, ROWS * DEPTH);
    return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
