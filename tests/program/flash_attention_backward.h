// SPDX-License-Identifier: Apache-2.0
// Runs one instantiation of FlashAttention-3's backward kernels, from a clone of its repository, and prints a hash of the
// gradients. The includer defines kHeadDim, kBlockM, kAtomsMdQ, kVInRegs, kCausal and Element, and calls run() from
// main(). One block of keys: what several blocks add to dQ, they add in any order.
#include "flash_attention.h"
#include "flash_bwd_launch_template.h"

using Values = std::vector<Element>;

double dot(Values const& a, int i, Values const& b, int j) {
  double sum = 0;
  for (int c = 0; c < kHeadDim; ++c) sum += double(float(a[i * kHeadDim + c])) * float(b[j * kHeadDim + c]);
  return sum;
}

void add(std::vector<double>& to, int i, double factor, Values const& from, int j) {
  for (int c = 0; c < kHeadDim; ++c) to[i * kHeadDim + c] += factor * float(from[j * kHeadDim + c]);
}

int compared(char const* name, std::vector<double> const& want, void* device) {
  Values got(want.size());
  cudaMemcpy(got.data(), device, got.size() * sizeof(Element), cudaMemcpyDeviceToHost);
  int bad = 0;
  for (size_t i = 0; i < got.size(); ++i)
    bad += !(std::abs(want[i] - float(got[i])) <= 0.02 + 0.02 * std::abs(want[i]));
  printf("%s bad %d hash %08x\n", name, bad, hashed(2166136261u, got));
  return bad;
}

int run() {
  constexpr int kBlockN = 128;
  const int keys = 100, rows = kCausal ? keys : 200;
  const int rows_rounded = (rows + kBlockM - 1) / kBlockM * kBlockM;
  const float scale = 0.125f;
  auto q = values<Element>(rows * kHeadDim, 1), d_o = values<Element>(rows * kHeadDim, 4);
  auto k = values<Element>(keys * kHeadDim, 2), v = values<Element>(keys * kHeadDim, 3);
  Values o(rows * kHeadDim), none_q(rows * kHeadDim), none_k(keys * kHeadDim);
  std::vector<float> lse(rows), statistics(rows_rounded), accumulated(rows_rounded * kHeadDim);
  std::vector<int> semaphore(64);
  std::vector<double> dq(rows * kHeadDim), dk(keys * kHeadDim), dv(keys * kHeadDim);
  for (int i = 0; i < rows; ++i) {
    const int end = kCausal ? i + 1 : keys;
    std::vector<double> p(end), out(kHeadDim);
    double sum = 0, both = 0;
    for (int j = 0; j < end; ++j) sum += p[j] = exp(scale * dot(q, i, k, j));
    lse[i] = float(log(sum));
    for (int j = 0; j < end; ++j) add(out, 0, p[j] /= sum, v, j);
    for (int c = 0; c < kHeadDim; ++c) {
      o[i * kHeadDim + c] = Element(float(out[c]));
      both += float(o[i * kHeadDim + c]) * float(d_o[i * kHeadDim + c]);
    }
    for (int j = 0; j < end; ++j) {
      const double ds = scale * p[j] * (dot(d_o, i, v, j) - both);
      add(dv, j, p[j], d_o, i), add(dq, i, ds, k, j), add(dk, j, ds, q, i);
    }
  }
  Flash_bwd_params p;
  memset(&p, 0, sizeof p);
  p.q_ptr = on_device(q), p.k_ptr = on_device(k), p.v_ptr = on_device(v), p.o_ptr = on_device(o);
  p.do_ptr = on_device(d_o), p.dq_ptr = on_device(none_q), p.dk_ptr = on_device(none_k), p.dv_ptr = on_device(none_k);
  p.softmax_lse_ptr = on_device(lse), p.softmax_lse_log2_ptr = on_device(statistics);
  p.dsoftmax_sum = on_device(statistics), p.dq_accum_ptr = on_device(accumulated);
  p.dq_semaphore = on_device(semaphore), p.tile_count_semaphore = on_device(semaphore);
  p.q_row_stride = p.o_row_stride = p.do_row_stride = p.dq_row_stride = kHeadDim;
  p.k_row_stride = p.v_row_stride = p.dk_row_stride = p.dv_row_stride = kHeadDim;
  p.q_head_stride = p.o_head_stride = p.do_head_stride = p.dq_head_stride = rows * kHeadDim;
  p.q_batch_stride = p.o_batch_stride = p.do_batch_stride = p.dq_batch_stride = rows * kHeadDim;
  p.k_head_stride = p.v_head_stride = p.dk_head_stride = p.dv_head_stride = keys * kHeadDim;
  p.k_batch_stride = p.v_batch_stride = p.dk_batch_stride = p.dv_batch_stride = keys * kHeadDim;
  p.b = p.h = p.h_k = p.num_splits = 1, p.seqlen_q = p.total_q = rows, p.seqlen_k = p.total_k = keys;
  p.seqlen_q_rounded = rows_rounded, p.seqlen_k_rounded = kBlockN, p.d = p.dv = p.d_rounded = p.dv_rounded = kHeadDim;
  p.scale_softmax = scale, p.is_causal = kCausal, p.window_size_left = -1, p.window_size_right = kCausal ? 0 : -1;
  p.arch = 90;
  cudaDeviceGetAttribute(&p.num_sm, cudaDevAttrMultiProcessorCount, 0);
  run_flash_bwd<90, kHeadDim, kBlockM, kBlockN, Element, kCausal, false, false, false, false, false, 2, 2, true, false,
                false, 2, 1, 2, kAtomsMdQ, kVInRegs>(p, 0);
  printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
  return compared("dq", dq, p.dq_ptr) + compared("dk", dk, p.dk_ptr) + compared("dv", dv, p.dv_ptr) != 0;
}
