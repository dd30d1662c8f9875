// SPDX-License-Identifier: Apache-2.0
//
// A libcuda.so.1 without a GPU: memory of the host, and launches that copy what a test prepared. $STUB_OUTPUTS is a
// folder; N.bin goes into the N-th allocation, behind its guard bytes. $STUB_FAILS names a call that fails,
// $STUB_HANGS makes launches wait for ever.

#include <cuda.h>
#undef cuEventElapsedTime

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

static std::vector<char*> allocations;

static CUresult result(const char* name) {
    const char* fails = std::getenv("STUB_FAILS");
    return fails != nullptr && std::strcmp(fails, name) == 0 ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

extern "C" {
CUresult cuInit(unsigned) { return result("cuInit"); }
CUresult cuDeviceGet(CUdevice* d, int) { return *d = 0, CUDA_SUCCESS; }
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
    std::snprintf(name, static_cast<size_t>(size), "Stub H100");
    return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
    const char* major = std::getenv("STUB_MAJOR");
    *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? std::atoi(major != nullptr ? major : "9") : 0;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return *context = nullptr, CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuMemAlloc_v2(CUdeviceptr* at, size_t size) {
    allocations.push_back(static_cast<char*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096)));
    *at = reinterpret_cast<CUdeviceptr>(allocations.back());
    return result("cuMemAlloc");
}
CUresult cuMemsetD8_v2(CUdeviceptr at, unsigned char value, size_t size) {
    return std::memset(reinterpret_cast<void*>(at), value, size), CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t size) {
    return std::memcpy(reinterpret_cast<void*>(to), from, size), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t size) {
    return std::memcpy(to, reinterpret_cast<void*>(from), size), CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* module, const void*) { return *module = nullptr, result("cuModuleLoadData"); }
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) { return *function = nullptr, CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult cuEventCreate(CUevent* event, unsigned) { return *event = nullptr, CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent, CUstream) { return CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float* ms, CUevent, CUevent) { return *ms = 0.25f, CUDA_SUCCESS; }
CUresult cuCtxSynchronize() { return result("cuCtxSynchronize"); }
CUresult cuGetErrorName(CUresult, const char** name) { return *name = "CUDA_ERROR_STUB", CUDA_SUCCESS; }
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    return std::memset(map, 7, sizeof *map), CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction, void** parameters, void**) {
    if (std::getenv("STUB_CRASHES") != nullptr) std::abort();
    const char* folder = std::getenv("STUB_OUTPUTS");
    if (std::FILE* log = folder != nullptr ? std::fopen((std::string(folder) + "/launches").c_str(), "a") : nullptr) {
        std::fprintf(log, "%u %u %u %u %u %d %02x\n", config->gridDimX, config->gridDimY, config->gridDimZ,
                     config->blockDimX, config->sharedMemBytes, config->numAttrs > 0,
                     static_cast<unsigned char*>(parameters[0])[0]);
        std::fclose(log);
    }
    for (size_t i = 0; folder != nullptr && i < allocations.size(); ++i) {
        std::FILE* file = std::fopen((std::string(folder) + "/" + std::to_string(i) + ".bin").c_str(), "rb");
        if (file == nullptr) continue;
        char part[4096];
        char* to = allocations[i] + 4096;
        for (size_t n; (n = std::fread(part, 1, sizeof part, file)) != 0; to += n) std::memcpy(to, part, n);
        if (std::getenv("STUB_STRAYS") != nullptr) *to = 0;
        std::fclose(file);
    }
    return result("cuLaunchKernelEx");
}
}
