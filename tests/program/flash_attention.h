// SPDX-License-Identifier: Apache-2.0
// Inputs of the programs that run FlashAttention-3's kernels, and what they say of outputs.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

template <class T>
std::vector<T> values(size_t count, unsigned seed) {
  std::vector<T> found(count);
  srand(seed);
  for (auto& x : found) x = T(float(rand() % 65 - 32) / 32.f);
  return found;
}

template <class T>
T* on_device(std::vector<T> const& v) {
  T* p;
  cudaMalloc(&p, v.size() * sizeof(T));
  cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice);
  return p;
}

template <class T>
unsigned hashed(unsigned hash, std::vector<T> const& v) {
  auto bytes = reinterpret_cast<unsigned char const*>(v.data());
  for (size_t i = 0; i < v.size() * sizeof(T); ++i) hash = (hash ^ bytes[i]) * 16777619u;
  return hash;
}
