// SPDX-License-Identifier: Apache-2.0
//
// The part of CUPTI's callback interface that is used, and the arguments of the driver functions that are looked at.
//
// CUPTI is looked up at run time, so neither its headers nor its library are needed to build this. Source: CUPTI's
// cupti_callbacks.h and generated_cuda_meta.h (CUDA 12.3 to 13): an argument structure holds the function's arguments
// in order, and a name never changes its structure.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace cupti {

enum Site : int { enter = 0, exit = 1 };
constexpr int driver_domain = 1;

struct CallbackData {
    Site site;
    const char *function;   // "cuLaunchKernel"
    const void *arguments;  // one of the structures below
    const void *result;     // CUresult, on exit
    const char *symbol;     // the kernel's mangled name, in launches
    CUcontext context;
    uint32_t context_id;
    uint64_t *correlation;
    uint32_t correlation_id;
};

using Callback = void (*)(void *user, int domain, uint32_t id, const CallbackData *data);
using Subscribe = int (*)(void **subscriber, Callback callback, void *user);
using EnableDomain = int (*)(uint32_t enable, void *subscriber, int domain);

// cuLaunchKernel. cuLaunchCooperativeKernel has the same up to `parameters`.
struct LaunchKernel {
    CUfunction function;
    unsigned grid[3];
    unsigned block[3];
    unsigned shared;
    CUstream stream;
    void **parameters;
    void **extra;
};

// cuLaunchKernelEx.
struct LaunchKernelEx {
    const CUlaunchConfig *config;
    CUfunction function;
    void **parameters;
    void **extra;
};

// cuModuleLoadData, cuModuleLoadDataEx, cuModuleLoadFatBinary, cuLibraryLoadData: what is loaded comes second. cuModuleLoad,
// cuLibraryLoadFromFile: the file's path.
struct LoadImage {
    void *handle;
    const void *image;
};

}  // namespace cupti
