/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include <cuda_fp16.h>

/* S[M,N] = scale * Q[M,K] * K[N,K]^T; M is a multiple of 64, N of 32, K of 32. */
void scores(const __half *q, const __half *k, float *s, int m, int n, int depth, float scale);

/* O[M,N] = P[M,K] * V[N,K]^T; M is a multiple of 64, N of 16, K of 64. */
void values(const __half *p, const __half *v, __half *o, int m, int n, int depth);
