// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the runtime stand-in share. cudart.cpp says how it works.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "connection.hpp"

extern "C" {
extern const struct porter_error_name {
    int code;
    const char *name;
} porter_error_names[];
extern const int porter_error_count;
[[noreturn]] void porter_unanswered(const char *function);
// For the stand-ins of other libraries, which have no connection of their own.
cudaError_t porter_tensor_map(const void *request, size_t size, void *map, size_t map_size);
bool porter_device_attribute(int attribute, int *value);
// Whether these bytes lie in one allocation that kernels reach; if not, the context is lost.
bool porter_device_memory(const void *p, size_t size);
}

namespace standin {

struct Device {
    int major, minor, multiprocessors, warp, max_threads_per_block, max_threads_per_multiprocessor,
        max_blocks_per_multiprocessor, registers_per_multiprocessor;
    size_t shared_per_block, shared_per_block_optin, shared_per_multiprocessor, shared_reserved, total_memory, l2;
};

struct FunctionFacts {
    uint64_t static_shared, local, max_threads, ptx_version, binary_version, dynamic_limit, cluster_limit;
    std::vector<uint64_t> parameter_sizes;
};

extern cudaError_t sticky_error;  // A kernel or a library failed: the context is lost, every later call says so.
extern thread_local cudaError_t last_error;

// Remembers an error as the runtime does, and returns what the call has to.
cudaError_t result(cudaError_t status);

const Device &device();
cudaError_t function_facts(const void *stub, FunctionFacts &facts);
// As CUDA counts them, which knows nothing of Tensor Memory.
int blocks_per_multiprocessor(const void *stub, int threads, size_t dynamic_shared);
struct How {
    dim3 cluster{0, 0, 0};
    bool cooperative = false;
    cudaStream_t stream = nullptr;
    // It may begin before the launch ahead of it in its stream ends (programmatic stream serialization).
    bool overlaps = false;
};
cudaError_t launch(const void *stub, dim3 grid, dim3 block, void **args, size_t shared, const How &how);
// Something has waited for the latest launch, or comes behind it in its stream.
void latest_launch_ended();

bool in_arena(const void *p);
cudaError_t check(const void *p, size_t size);
cudaError_t copy(void *to, const void *from, size_t size, cudaMemcpyKind kind);
cudaError_t allocate(void **p, size_t size);
cudaError_t release(void *p);
cudaError_t symbol(const void *host, void **address, size_t *size);
// Points the pointers that stand for `__managed__` variables at them.
void place_managed();

}  // namespace standin
