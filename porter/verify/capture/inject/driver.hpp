// SPDX-License-Identifier: Apache-2.0
//
// The driver functions that the recorder itself calls, looked up in the driver that the program has loaded.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

struct Driver {
    CUresult (*synchronize)();
    CUresult (*copy_to_host)(void *host, CUdeviceptr device, size_t bytes);
    CUresult (*copy)(CUdeviceptr to, CUdeviceptr from, size_t bytes);
    CUresult (*pointer_attribute)(void *value, CUpointer_attribute attribute, CUdeviceptr pointer);
    CUresult (*address_range)(CUdeviceptr *base, size_t *size, CUdeviceptr pointer);
    CUresult (*function_parameter)(CUfunction function, size_t index, size_t *offset, size_t *size);
    CUresult (*kernel_parameter)(CUkernel kernel, size_t index, size_t *offset, size_t *size);
    CUresult (*function_attribute)(int *value, CUfunction_attribute attribute, CUfunction function);
    CUresult (*stream_capturing)(CUstream stream, CUstreamCaptureStatus *status);
    CUresult (*current_device)(CUdevice *device);
    CUresult (*device_name)(char *name, int length, CUdevice device);
    CUresult (*device_attribute)(int *value, CUdevice_attribute attribute, CUdevice device);
    CUresult (*version)(int *version);

    // Null if all functions are there, else the name of the first that is not.
    const char *look_up() {
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        if (!library) return "libcuda.so.1";
        const struct {
            const char *name;
            void *place;
        } wanted[] = {
            {"cuCtxSynchronize", &synchronize},
            {"cuMemcpyDtoH_v2", &copy_to_host},
            {"cuMemcpy", &copy},
            {"cuPointerGetAttribute", &pointer_attribute},
            {"cuMemGetAddressRange_v2", &address_range},
            {"cuFuncGetParamInfo", &function_parameter},
            {"cuKernelGetParamInfo", &kernel_parameter},
            {"cuFuncGetAttribute", &function_attribute},
            {"cuStreamIsCapturing", &stream_capturing},
            {"cuCtxGetDevice", &current_device},
            {"cuDeviceGetName", &device_name},
            {"cuDeviceGetAttribute", &device_attribute},
            {"cuDriverGetVersion", &version},
        };
        for (const auto &entry : wanted) {
            void *found = dlsym(library, entry.name);
            if (!found) return entry.name;
            *static_cast<void **>(entry.place) = found;
        }
        return nullptr;
    }
};
