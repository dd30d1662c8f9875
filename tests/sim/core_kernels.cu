// SPDX-License-Identifier: Apache-2.0
// Ordinary device code: what nvcc makes of the C++ math library, halves, shuffles, switches and local arrays.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__constant__ float table[8] = {1,2,3,5,7,11,13,17};
__device__ int counter;
__device__ __noinline__ float helper(float x, int n) { float s = 0; for (int i = 0; i < n; i++) s += sqrtf(x + i); return s; }
extern "C" __global__ void softmax(const float* in, float* out, int n) {
  __shared__ float red[32];
  int row = blockIdx.x; const float* p = in + row * n; float* q = out + row * n;
  float m = -INFINITY;
  for (int i = threadIdx.x; i < n; i += blockDim.x) m = fmaxf(m, p[i]);
  for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
  if (threadIdx.x % 32 == 0) red[threadIdx.x / 32] = m;
  __syncthreads();
  m = red[0]; for (int i = 1; i < blockDim.x / 32; i++) m = fmaxf(m, red[i]);
  float s = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) s += __expf(p[i] - m);
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  __syncthreads();
  if (threadIdx.x % 32 == 0) red[threadIdx.x / 32] = s;
  __syncthreads();
  s = 0; for (int i = 0; i < blockDim.x / 32; i++) s += red[i];
  for (int i = threadIdx.x; i < n; i += blockDim.x) q[i] = expf(p[i] - m) / s;
}
extern "C" __global__ void mathk(const float* a, const double* d, float* out, double* dout, int* iout, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  float x = a[i]; double y = d[i];
  out[i*8+0] = sinf(x*1000.f); out[i*8+1] = cosf(x); out[i*8+2] = logf(fabsf(x)); out[i*8+3] = powf(fabsf(x), 1.7f);
  out[i*8+4] = helper(fabsf(x), i % 7); out[i*8+5] = tanhf(x); out[i*8+6] = table[i % 8] * x; out[i*8+7] = erff(x);
  dout[i*4+0] = sin(y); dout[i*4+1] = 1.0 / y; dout[i*4+2] = sqrt(fabs(y)); dout[i*4+3] = exp(y);
  int k = (int)(y * 100); int r;
  switch (i % 6) { case 0: r = k * 3; break; case 1: r = k / 7; break; case 2: r = k % 13; break; case 3: r = __popc(k); break; case 4: r = __clz(k); break; default: r = (int)((long long)k * k % 1000003); }
  int buf[16]; for (int j = 0; j < 16; j++) buf[j] = j * r; int z = 0; for (int j = 0; j < 16; j++) z += buf[(j * k) & 15];
  iout[i] = r * 7 + z + atomicAdd(&counter, 0);
}
extern "C" __global__ void halves(const __half* h, const __nv_bfloat16* b, __half* ho, __nv_bfloat16* bo, unsigned char* f8, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n / 2) return;
  __half2 x = ((const __half2*)h)[i]; __nv_bfloat162 y = ((const __nv_bfloat162*)b)[i];
  ((__half2*)ho)[i] = __hfma2(x, x, __hmul2(x, __float2half2_rn(0.5f)));
  ((__nv_bfloat162*)bo)[i] = __hmax2(__hadd2(y, y), __float2bfloat162_rn(0.f));
  __nv_fp8x2_e4m3 e(make_float2(__low2float(x), __high2float(x))); ((unsigned short*)f8)[i] = e.__x;
}
extern "C" __global__ void groups(int* out) {
  auto block = cg::this_thread_block(); auto tile = cg::tiled_partition<8>(block);
  int v = threadIdx.x; for (int o = 4; o; o /= 2) v += tile.shfl_down(v, o);
  auto act = cg::coalesced_threads(); int t = 0;
  if (threadIdx.x % 3 == 0) { auto g = cg::coalesced_threads(); t = g.size() * 100 + g.thread_rank(); }
  out[blockIdx.x * blockDim.x + threadIdx.x] = v * 1000 + t;
}
