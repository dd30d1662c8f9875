// SPDX-License-Identifier: Apache-2.0
// Runs one instantiation of FlashAttention-3's forward kernel, from a clone of its repository, and prints a hash of what
// it writes. The includer defines kHeadDim, kHeadDimV, kCausal, Element and ElementOut, and calls run() from main().
#include "flash_attention.h"
#include "flash_fwd_launch_template.h"

// Only sequences of several lengths ask for it.
void prepare_varlen_num_blocks(Flash_fwd_params&, cudaStream_t, bool, int, int, bool) { abort(); }

int run() {
  const int heads = 1, rows = 100, keys = 300;
  auto q = values<Element>(rows * kHeadDim, 1), k = values<Element>(keys * kHeadDim, 2);
  auto v = values<Element>(keys * kHeadDimV, 3);
  std::vector<ElementOut> o(rows * kHeadDimV);
  std::vector<float> lse(rows);
  std::vector<int> semaphore(1);
  Flash_fwd_params p;
  memset(&p, 0, sizeof p);
  p.q_ptr = on_device(q), p.k_ptr = on_device(k), p.v_ptr = on_device(v), p.o_ptr = on_device(o);
  p.softmax_lse_ptr = on_device(lse), p.tile_count_semaphore = on_device(semaphore);
  p.q_row_stride = p.q_head_stride = kHeadDim, p.q_batch_stride = rows * kHeadDim;
  p.k_row_stride = p.k_head_stride = kHeadDim, p.k_batch_stride = keys * kHeadDim;
  p.v_row_stride = p.v_head_stride = kHeadDimV, p.v_batch_stride = keys * kHeadDimV, p.v_dim_stride = 1;
  p.o_row_stride = p.o_head_stride = kHeadDimV, p.o_batch_stride = rows * kHeadDimV;
  p.b = p.b_k = p.num_splits = 1, p.h = p.h_k = heads, p.seqlen_q = p.total_q = rows, p.seqlen_k = p.total_k = keys;
  p.d = p.d_rounded = kHeadDim, p.dv = p.dv_rounded = kHeadDimV, p.scale_softmax = 0.125f;
  p.is_causal = kCausal, p.window_size_left = -1, p.window_size_right = kCausal ? 0 : -1, p.arch = 90;
  cudaDeviceGetAttribute(&p.num_sm, cudaDevAttrMultiProcessorCount, 0);
  run_flash_fwd<90, kHeadDim, kHeadDimV, 1, Element, ElementOut, kCausal, false, false, false, false, false, false,
                false, false, false>(p, 0);
  const auto error = cudaDeviceSynchronize();
  cudaMemcpy(o.data(), p.o_ptr, o.size() * sizeof(ElementOut), cudaMemcpyDeviceToHost);
  cudaMemcpy(lse.data(), p.softmax_lse_ptr, lse.size() * sizeof(float), cudaMemcpyDeviceToHost);
  int bad = 0;
  for (int i = 0; i < rows; ++i) {
    std::vector<double> weight(keys);
    const int end = kCausal ? i + keys - rows + 1 : keys;
    double most = -1e30, sum = 0;
    for (int j = 0; j < end; ++j) {
      for (int c = 0; c < kHeadDim; ++c) weight[j] += 0.125 * float(q[i * kHeadDim + c]) * float(k[j * kHeadDim + c]);
      most = std::max(most, weight[j]);
    }
    for (int j = 0; j < end; ++j) sum += weight[j] = exp(weight[j] - most);
    for (int c = 0; c < kHeadDimV; ++c) {
      double want = 0;
      for (int j = 0; j < end; ++j) want += weight[j] / sum * float(v[j * kHeadDimV + c]);
      bad += !(std::abs(want - float(o[i * kHeadDimV + c])) <= (sizeof(Element) == 1 ? 0.03 : 0.003));
    }
  }
  printf("%s bad %d hash %08x\n", cudaGetErrorString(error), bad, hashed(hashed(2166136261u, o), lse));
  return bad != 0;
}
