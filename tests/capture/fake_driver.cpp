// SPDX-License-Identifier: Apache-2.0
//
// A driver without a GPU: device memory is host memory, and the kernels `scale` and `through_table` are C++ below.
// Like NVIDIA's it loads the library that CUDA_INJECTION64_PATH names, and it calls back around the functions that a
// CUPTI subscriber sees. Built twice: as libcuda.so.1, and with FAKE_CUPTI as libcupti.so.
#include <cuda.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

struct CallbackData {
    int site;
    const char *function;
    const void *arguments;
    const void *result;
    const char *symbol;
    CUcontext context;
    uint32_t context_id;
    uint64_t *correlation;
    uint32_t correlation_id;
};
using Callback = void (*)(void *user, int domain, uint32_t id, const CallbackData *data);

#ifdef FAKE_CUPTI

namespace {
Callback subscribed;
}

extern "C" int cuptiSubscribe(void **subscriber, Callback callback, void *) {
    if (std::getenv("FAKE_CUPTI_BUSY")) return 39;  // CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
    subscribed = callback;
    *subscriber = &subscribed;
    return 0;
}

extern "C" int cuptiEnableDomain(uint32_t, void *, int) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *static_cast<Callback *>(dlsym(driver, "fake_callback")) = subscribed;
    return 0;
}

#else

extern "C" {
Callback fake_callback;
}

namespace {

struct Allocation {
    uintptr_t address;
    size_t size;
};

struct Function {
    std::string name;
    std::vector<size_t> sizes;
};

std::vector<Allocation> allocations;
Function functions[] = {{"scale", {8, 8, 4, 4}}, {"through_table", {8}}, {"fails", {4}}};
uintptr_t next_address = 0x7e0000000000;

// Calls back around `body` as CUPTI does.
template <class Body>
CUresult seen(const char *name, const void *arguments, const char *symbol, Body body) {
    CUresult result = CUDA_SUCCESS;
    CallbackData data{0, name, arguments, &result, symbol, nullptr, 0, nullptr, 0};
    if (fake_callback) fake_callback(nullptr, 1, 0, &data);
    result = body();
    data.site = 1;
    if (fake_callback) fake_callback(nullptr, 1, 0, &data);
    return result;
}

template <class T>
T value(void **parameters, size_t index) {
    T read;
    std::memcpy(&read, parameters[index], sizeof read);
    return read;
}

void scale(float *out, const float *in, int n, float factor) {
    for (int i = 0; i < n; i++) out[i] = in[i] * factor;
}

CUresult run(const Function &function, void **parameters) {
    if (function.name == "fails") return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    if (function.name == "scale") {
        scale(value<float *>(parameters, 0), value<const float *>(parameters, 1), value<int>(parameters, 2),
              value<float>(parameters, 3));
    } else {
        struct Table {
            float *out;
            const float *in;
            int64_t n;
        } *table = value<Table *>(parameters, 0);
        scale(table->out, table->in, static_cast<int>(table->n), 2.0f);
    }
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) {
    if (const char *path = std::getenv("CUDA_INJECTION64_PATH")) {
        void *library = dlopen(path, RTLD_NOW);
        auto initialize = library ? reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection")) : nullptr;
        if (initialize) initialize();
    }
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    void *wanted = reinterpret_cast<void *>(next_address);
    if (mmap(wanted, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != wanted)
        return CUDA_ERROR_OUT_OF_MEMORY;
    allocations.push_back({next_address, size});
    *address = next_address;
    next_address += (size + 8191) / 4096 * 4096;
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
    std::memcpy(reinterpret_cast<void *>(to), from, size);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
    std::memcpy(to, reinterpret_cast<void *>(from), size);
    return CUDA_SUCCESS;
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
    return cuMemcpyDtoH_v2(reinterpret_cast<void *>(to), from, size);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer) {
    for (const Allocation &a : allocations) {
        if (pointer < a.address || pointer >= a.address + a.size) continue;
        *base = a.address;
        *size = a.size;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuPointerGetAttribute(void *result, CUpointer_attribute, CUdeviceptr pointer) {
    CUdeviceptr base;
    size_t size;
    if (cuMemGetAddressRange_v2(&base, &size, pointer) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
    *static_cast<unsigned *>(result) = CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    const struct {
        CUmodule *module;
        const void *image;
    } arguments{module, image};
    return seen("cuModuleLoadData", &arguments, nullptr, [] { return CUDA_SUCCESS; });
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule, const char *name) {
    for (Function &f : functions) {
        if (f.name == name) *function = reinterpret_cast<CUfunction>(&f);
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size) {
    const auto &sizes = reinterpret_cast<Function *>(function)->sizes;
    if (index >= sizes.size()) return CUDA_ERROR_INVALID_VALUE;
    *offset = 0;
    for (size_t i = 0; i < index; i++) *offset += sizes[i];
    *size = sizes[index];
    return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel, size_t, size_t *, size_t *) { return CUDA_ERROR_INVALID_HANDLE; }

CUresult cuFuncGetAttribute(int *result, CUfunction_attribute, CUfunction) {
    *result = 0;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **parameters, void **extra) {
    const struct {
        CUfunction f;
        unsigned dims[7];
        CUstream stream;
        void **parameters, **extra;
    } arguments{f, {gx, gy, gz, bx, by, bz, shared}, stream, parameters, extra};
    const auto &function = *reinterpret_cast<Function *>(f);
    return seen("cuLaunchKernel", &arguments, function.name.c_str(), [&] {
        // Arguments in one buffer are `scale`'s.
        std::vector<void *> split;
        for (size_t i = 0, offset = 0; !parameters && i < function.sizes.size(); offset += function.sizes[i++])
            split.push_back(static_cast<char *>(extra[1]) + offset);
        return run(function, parameters ? parameters : split.data());
    });
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) {
    const struct {
        const CUlaunchConfig *config;
        CUfunction f;
        void **parameters, **extra;
    } arguments{config, f, parameters, extra};
    const auto &function = *reinterpret_cast<Function *>(f);
    return seen("cuLaunchKernelEx_ptsz", &arguments, function.name.c_str(), [&] { return run(function, parameters); });
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    *status = stream ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() { return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *device) { return *device = 0, CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { return *version = 13000, CUDA_SUCCESS; }
CUresult cuDeviceGetName(char *name, int length, CUdevice) {
    std::snprintf(name, length, "fake \"GPU\"");
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *result, CUdevice_attribute attribute, CUdevice) {
    *result = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
    return CUDA_SUCCESS;
}

}  // extern "C"

#endif
