// SPDX-License-Identifier: Apache-2.0
// What programs share that run one kernel of a public source: inputs, tensor maps, a launch, and a hash of the result.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <vector>

namespace driver {

inline unsigned drawn() {
  static unsigned state = 1;
  state = state * 1664525u + 1013904223u;
  return state >> 16;
}

inline void checked(cudaError_t error) {
  if (error != cudaSuccess) printf("%s\n", cudaGetErrorString(error)), exit(8);
}

template <class T>
T* on_device(std::vector<T> const& host) {
  T* device;
  checked(cudaMalloc(&device, host.size() * sizeof(T)));
  checked(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

// Integers from -span to span.
template <class T>
T* integers(size_t count, int span) {
  std::vector<T> host(count);
  for (auto& x : host) x = T(float(int(drawn() % (2 * span + 1)) - span));
  return on_device(host);
}

// Positive, and not all powers of two.
inline float* scales(size_t count) {
  std::vector<float> host(count);
  for (auto& x : host) x = 0.25f + (drawn() % 64) / 32.f;
  return on_device(host);
}

inline unsigned* words(std::initializer_list<unsigned> values) { return on_device(std::vector<unsigned>(values)); }

template <class T>
T* zeros(size_t count) {
  T* device;
  checked(cudaMalloc(&device, count * sizeof(T)));
  checked(cudaMemset(device, 0, count * sizeof(T)));
  return device;
}

// Rows are dense; the first dimension runs fastest. `swizzle` in bytes, 0 for none.
inline CUtensorMap map(CUtensorMapDataType type, int bytes, void* data, std::initializer_list<unsigned long> dims,
                       std::initializer_list<unsigned> box, int swizzle) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  checked(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
  std::vector<cuuint64_t> sizes(dims.begin(), dims.end()), strides;
  std::vector<cuuint32_t> part(box.begin(), box.end()), steps(dims.size(), 1);
  cuuint64_t stride = bytes;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) strides.push_back(stride *= sizes[i]);
  auto mode = swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
              : swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                              : CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMap made;
  CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
      &made, type, sizes.size(), data, sizes.data(), strides.data(), part.data(), steps.data(),
      CU_TENSOR_MAP_INTERLEAVE_NONE, mode, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) printf("tensor map: error %d\n", result), exit(9);
  return made;
}

inline CUtensorMap map_bf16(void* data, std::initializer_list<unsigned long> dims, std::initializer_list<unsigned> box,
                            int swizzle = 128) {
  return map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, dims, box, swizzle);
}

inline CUtensorMap map_float(void* data, std::initializer_list<unsigned long> dims, std::initializer_list<unsigned> box,
                             int swizzle = 0) {
  return map(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, data, dims, box, swizzle);
}

inline CUtensorMap map_bytes(void* data, std::initializer_list<unsigned long> dims, std::initializer_list<unsigned> box,
                             int swizzle = 128) {
  return map(CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, data, dims, box, swizzle);
}

template <class Kernel, class... Args>
void launch(Kernel* kernel, int blocks, int cluster, int threads, int shared, Args... args) {
  checked(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks), config.blockDim = dim3(threads), config.dynamicSmemBytes = shared;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = cluster, attribute[0].val.clusterDim.y = attribute[0].val.clusterDim.z = 1;
  config.attrs = attribute, config.numAttrs = cluster > 1;
  checked(cudaLaunchKernelEx(&config, kernel, args...));
}

// Prints how many words are not zero, and a hash of all: two programs that print the same have written the same.
template <class T>
int result(T const* device, size_t count) {
  checked(cudaDeviceSynchronize());
  std::vector<T> host(count);
  checked(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  unsigned hash = 2166136261u;
  size_t set = 0;
  auto bytes = reinterpret_cast<unsigned char const*>(host.data());
  for (size_t i = 0; i < count * sizeof(T); ++i) hash = (hash ^ bytes[i]) * 16777619u, set += bytes[i] != 0;
  printf("%zu bytes set, hash %08x\n", set, hash);
  return set == 0;
}

}  // namespace driver
