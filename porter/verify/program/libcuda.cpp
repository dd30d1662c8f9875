// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for the driver library, for programs that call it beside the runtime. It asks the runtime's stand-in,
// which has the connection to the simulator. What is not answered here is a weak symbol in a generated file.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "connection.hpp"
#include "standin.hpp"

namespace {

CUresult driver_result(cudaError_t status) {
    switch (status) {
    case cudaSuccess: return CUDA_SUCCESS;
    case cudaErrorInvalidValue: return CUDA_ERROR_INVALID_VALUE;
    case cudaErrorMemoryAllocation: return CUDA_ERROR_OUT_OF_MEMORY;
    case cudaErrorInvalidDevice: return CUDA_ERROR_INVALID_DEVICE;
    case cudaErrorLaunchFailure: return CUDA_ERROR_LAUNCH_FAILED;
    default: return CUDA_ERROR_UNKNOWN;
    }
}

void *pointer(CUdeviceptr p) { return reinterpret_cast<void *>(p); }

CUcontext context() {
    static char only;
    return reinterpret_cast<CUcontext>(&only);
}

template <class T> struct List {
    const T *values = nullptr;
    cuuint32_t count = 0;
};

// `form`: 0 tiled, 1 im2col, 2 and 3 im2col::w and im2col::w::128.
CUresult tensor_map(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *sizes,
                    const cuuint64_t *strides, List<cuuint32_t> box, List<int> lower, List<int> upper,
                    const cuuint32_t *element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill, uint32_t form) {
    if (!map || !sizes || !box.values || !element_strides || rank < 1 || rank > 5 || (rank > 1 && !strides) ||
        (form && (!lower.values || !upper.values)))
        return CUDA_ERROR_INVALID_VALUE;
    Writer request;
    request.u32(form).u32(type).u32(rank).address(address).u32(interleave).u32(swizzle).u32(promotion).u32(fill);
    for (cuuint32_t i = 0; i < rank; ++i) request.u64(sizes[i]);
    for (cuuint32_t i = 0; i + 1 < rank; ++i) request.u64(strides[i]);
    for (cuuint32_t i = 0; i < box.count; ++i) request.u32(box.values[i]);
    for (cuuint32_t i = 0; i < rank; ++i) request.u32(element_strides[i]);
    for (List<int> corner : {lower, upper})
        for (cuuint32_t i = 0; i < corner.count; ++i) request.u32(static_cast<uint32_t>(corner.values[i]));
    const std::string &body = request.body();
    return driver_result(porter_tensor_map(body.data(), body.size(), map, sizeof *map));
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }

CUresult cuDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text) {
    switch (error) {
    case CUDA_SUCCESS: *text = "CUDA_SUCCESS"; break;
    case CUDA_ERROR_INVALID_VALUE: *text = "CUDA_ERROR_INVALID_VALUE"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_ERROR_INVALID_DEVICE: *text = "CUDA_ERROR_INVALID_DEVICE"; break;
    case CUDA_ERROR_LAUNCH_FAILED: *text = "CUDA_ERROR_LAUNCH_FAILED"; break;
    case CUDA_ERROR_UNKNOWN: *text = "CUDA_ERROR_UNKNOWN"; break;
    default: *text = nullptr; return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) { return cuGetErrorName(error, text); }

// --- Devices and contexts

CUresult cuDeviceGetCount(int *count) {
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = 0;
    return ordinal ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice) {
    cudaDeviceProp properties;
    const cudaError_t status = cudaGetDeviceProperties(&properties, 0);
    std::snprintf(name, static_cast<size_t>(size), "%s", properties.name);
    return driver_result(status);
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice) {
    size_t free = 0;
    return driver_result(cudaMemGetInfo(&free, bytes));
}

// The driver numbers attributes as the runtime does.
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice) {
    if (!porter_device_attribute(attribute, value)) {
        char name[64];
        std::snprintf(name, sizeof name, "cuDeviceGetAttribute(%d)", static_cast<int>(attribute));
        porter_unanswered(name);
    }
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *current) {
    *current = context();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }

CUresult cuCtxGetDevice(CUdevice *device) {
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() { return driver_result(cudaDeviceSynchronize()); }

CUresult cuDevicePrimaryCtxRetain(CUcontext *retained, CUdevice) { return cuCtxGetCurrent(retained); }
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream) { return driver_result(cudaDeviceSynchronize()); }

// --- Memory

CUresult cuMemGetInfo(size_t *free, size_t *total) { return driver_result(cudaMemGetInfo(free, total)); }

CUresult cuMemAlloc(CUdeviceptr *p, size_t size) {
    void *made = nullptr;
    const cudaError_t status = cudaMalloc(&made, size);
    *p = reinterpret_cast<CUdeviceptr>(made);
    return driver_result(status);
}

CUresult cuMemFree(CUdeviceptr p) { return driver_result(cudaFree(pointer(p))); }

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size) {
    return driver_result(cudaMemcpy(pointer(to), from, size, cudaMemcpyHostToDevice));
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size) {
    return driver_result(cudaMemcpy(to, pointer(from), size, cudaMemcpyDeviceToHost));
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size) {
    return driver_result(cudaMemcpy(pointer(to), pointer(from), size, cudaMemcpyDeviceToDevice));
}

CUresult cuMemsetD8(CUdeviceptr p, unsigned char value, size_t count) {
    return driver_result(cudaMemset(pointer(p), value, count));
}

CUresult cuMemsetD32(CUdeviceptr p, unsigned value, size_t count) {
    if (!count) return CUDA_SUCCESS;
    if (const cudaError_t status = cudaMemcpy(pointer(p), &value, sizeof value, cudaMemcpyHostToDevice))
        return driver_result(status);
    size_t done = 1;
    while (done < count) {  // Doubles what is set.
        const size_t next = done < count - done ? done : count - done;
        const cudaError_t status =
            cudaMemcpy(pointer(p + done * sizeof value), pointer(p), next * sizeof value, cudaMemcpyDeviceToDevice);
        if (status != cudaSuccess) return driver_result(status);
        done += next;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *p, size_t size, CUstream) { return cuMemAlloc(p, size); }
CUresult cuMemFreeAsync(CUdeviceptr p, CUstream) { return cuMemFree(p); }

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream) {
    return cuMemcpyHtoD(to, from, size);
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream) { return cuMemcpyDtoH(to, from, size); }

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream) {
    return cuMemcpyDtoD(to, from, size);
}

CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t count, CUstream) {
    return cuMemsetD8(p, value, count);
}

CUresult cuMemsetD32Async(CUdeviceptr p, unsigned value, size_t count, CUstream) {
    return cuMemsetD32(p, value, count);
}

// --- Tensor maps

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                      const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                      const cuuint32_t *element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                      CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    return tensor_map(map, type, rank, address, sizes, strides, {box, rank}, {}, {}, element_strides, interleave,
                      swizzle, promotion, fill, 0);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                 const cuuint64_t *sizes, const cuuint64_t *strides, const int *lower, const int *upper,
                                 cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *element_strides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    const cuuint32_t box[2] = {channels, pixels};
    if (rank < 3) return CUDA_ERROR_INVALID_VALUE;
    return tensor_map(map, type, rank, address, sizes, strides, {box, 2}, {lower, rank - 2}, {upper, rank - 2},
                      element_strides, interleave, swizzle, promotion, fill, 1);
}

CUresult cuTensorMapEncodeIm2colWide(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                     const cuuint64_t *sizes, const cuuint64_t *strides, int lower, int upper,
                                     cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *element_strides,
                                     CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
                                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                     CUtensorMapFloatOOBfill fill) {
    // the mode for 128 pixels takes no number of its own
    const cuuint32_t box[2] = {channels, mode == CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128 ? 128 : pixels};
    if (rank < 3) return CUDA_ERROR_INVALID_VALUE;
    return tensor_map(map, type, rank, address, sizes, strides, {box, 2}, {&lower, 1}, {&upper, 1}, element_strides,
                      interleave, swizzle, promotion, fill, 2 + mode);
}

}  // extern "C"
