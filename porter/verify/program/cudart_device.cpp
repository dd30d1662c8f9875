// SPDX-License-Identifier: Apache-2.0
//
// Devices, errors, streams and events.

#include <chrono>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <string>

#include "standin.hpp"

using namespace standin;

namespace {

// Streams and events are handles that only keep order. Handles are never null, for null is the default stream.
struct Event {
    std::chrono::steady_clock::time_point when{};
    bool recorded = false;
};

// For calls behind which earlier work has ended.
cudaError_t waited() {
    latest_launch_ended();
    return result(cudaSuccess);
}

}  // namespace

extern "C" {

bool porter_device_attribute(int attribute, int *value) {
    const Device &d = device();
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = d.major; return true;
    case cudaDevAttrComputeCapabilityMinor: *value = d.minor; return true;
    case cudaDevAttrMultiProcessorCount: *value = d.multiprocessors; return true;
    case cudaDevAttrWarpSize: *value = d.warp; return true;
    case cudaDevAttrMaxThreadsPerBlock: *value = d.max_threads_per_block; return true;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = d.max_threads_per_multiprocessor; return true;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = d.max_blocks_per_multiprocessor; return true;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = d.registers_per_multiprocessor; return true;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(d.shared_per_block); return true;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(d.shared_per_block_optin); return true;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = static_cast<int>(d.shared_per_multiprocessor); return true;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = static_cast<int>(d.shared_reserved); return true;
    case cudaDevAttrL2CacheSize: *value = static_cast<int>(d.l2); return true;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = d.max_threads_per_block; return true;
    case cudaDevAttrMaxBlockDimZ: *value = 64; return true;
    case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; return true;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; return true;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrClusterLaunch:
    case cudaDevAttrMemoryPoolsSupported: *value = 1; return true;
    case cudaDevAttrTotalConstantMemory: *value = 65536; return true;
    case cudaDevAttrMaxPitch: *value = 0x7fffffff; return true;
    case cudaDevAttrTextureAlignment:
    case cudaDevAttrSurfaceAlignment: *value = 512; return true;
    case cudaDevAttrTexturePitchAlignment: *value = 32; return true;
    case cudaDevAttrSingleToDoublePrecisionPerfRatio: *value = 2; return true;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrComputePreemptionSupported:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrGlobalL1CacheSupported:
    case cudaDevAttrLocalL1CacheSupported:
    case cudaDevAttrAsyncEngineCount:
    case cudaDevAttrMemSyncDomainCount: *value = 1; return true;
    // What a simulated device is not, or does not have.
    case cudaDevAttrIntegrated:
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrComputeMode:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrPciBusId:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrTccDriver:
    case cudaDevAttrIsMultiGpuBoard:
    case cudaDevAttrMultiGpuBoardGroupID:
    case cudaDevAttrHostNativeAtomicSupported:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
    case cudaDevAttrDirectManagedMemAccessFromHost:
    case cudaDevAttrHostRegisterReadOnlySupported:
    case cudaDevAttrMaxPersistingL2CacheSize:
    case cudaDevAttrMaxAccessPolicyWindowSize:
    case cudaDevAttrSparseCudaArraySupported:
    case cudaDevAttrTimelineSemaphoreInteropSupported:
    case cudaDevAttrGPUDirectRDMASupported:
    case cudaDevAttrMemoryPoolSupportedHandleTypes:
    case cudaDevAttrIpcEventSupport:
    case cudaDevAttrMpsEnabled:
    // Not modelled: programs use these for estimates of time.
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
    case cudaDevAttrGlobalMemoryBusWidth: *value = 0; return true;
    default: return false;
    }
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return result(cudaSuccess);
}

cudaError_t cudaGetDevice(int *ordinal) {
    *ordinal = 0;
    return result(cudaSuccess);
}

cudaError_t cudaSetDevice(int ordinal) { return result(ordinal ? cudaErrorInvalidDevice : cudaSuccess); }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return waited(); }
cudaError_t cudaDeviceReset() { return result(cudaSuccess); }
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }

cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) {
    *can = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = 0;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int ordinal) {
    if (ordinal) return result(cudaErrorInvalidDevice);
    const Device &d = device();
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "Porter simulated sm_%d%d", d.major, d.minor);
    properties->major = d.major;
    properties->minor = d.minor;
    properties->multiProcessorCount = d.multiprocessors;
    properties->warpSize = d.warp;
    properties->maxThreadsPerBlock = d.max_threads_per_block;
    properties->maxThreadsPerMultiProcessor = d.max_threads_per_multiprocessor;
    properties->maxBlocksPerMultiProcessor = d.max_blocks_per_multiprocessor;
    properties->regsPerBlock = properties->regsPerMultiprocessor = d.registers_per_multiprocessor;
    properties->sharedMemPerBlock = d.shared_per_block;
    properties->sharedMemPerBlockOptin = d.shared_per_block_optin;
    properties->sharedMemPerMultiprocessor = d.shared_per_multiprocessor;
    properties->reservedSharedMemPerBlock = d.shared_reserved;
    properties->totalGlobalMem = d.total_memory;
    properties->l2CacheSize = static_cast<int>(d.l2);
    properties->totalConstMem = 65536;
    properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = d.max_threads_per_block;
    properties->maxThreadsDim[2] = 64;
    properties->maxGridSize[0] = 0x7fffffff;
    properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
    properties->unifiedAddressing = 1;
    properties->managedMemory = properties->concurrentManagedAccess = 1;
    properties->cooperativeLaunch = properties->clusterLaunch = 1;
    return result(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int ordinal) {
    if (ordinal) return result(cudaErrorInvalidDevice);
    if (!porter_device_attribute(attribute, value))
        porter_unanswered(("cudaDeviceGetAttribute(" + std::to_string(attribute) + ")").c_str());
    return result(cudaSuccess);
}

cudaError_t cudaInitDevice(int ordinal, unsigned, unsigned) {
    return result(ordinal ? cudaErrorInvalidDevice : cudaSuccess);
}

cudaError_t cudaGetDeviceFlags(unsigned *flags) {
    *flags = cudaDeviceScheduleAuto;
    return result(cudaSuccess);
}

cudaError_t cudaChooseDevice(int *ordinal, const cudaDeviceProp *) {
    *ordinal = 0;
    return result(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int ordinal) {
    if (ordinal) return result(cudaErrorInvalidDevice);
    std::snprintf(text, static_cast<size_t>(size), "0000:00:00.0");
    return result(cudaSuccess);
}

// Stack, heap and printf buffer have no bounds of their own here.
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return result(cudaSuccess); }

cudaError_t cudaDeviceGetLimit(size_t *value, cudaLimit limit) {
    *value = limit == cudaLimitStackSize ? 1024 : limit == cudaLimitPrintfFifoSize ? size_t{1} << 20 : size_t{8} << 20;
    return result(cudaSuccess);
}

cudaError_t cudaCtxResetPersistingL2Cache() { return result(cudaSuccess); }
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

// --- Errors

cudaError_t cudaGetLastError() {
    const cudaError_t error = sticky_error != cudaSuccess ? sticky_error : last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError() { return sticky_error != cudaSuccess ? sticky_error : last_error; }

const char *cudaGetErrorName(cudaError_t error) {
    for (int i = 0; i < porter_error_count; ++i)
        if (porter_error_names[i].code == error) return porter_error_names[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess ? "no error" : cudaGetErrorName(error);
}

// --- Streams and events

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    *stream = reinterpret_cast<cudaStream_t>(new char);
    return result(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int) { return cudaStreamCreate(stream); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete reinterpret_cast<char *>(stream);
    return result(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return waited(); }
cudaError_t cudaStreamQuery(cudaStream_t) { return waited(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return waited(); }

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status) {
    *status = cudaStreamCaptureStatusNone;
    return result(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = reinterpret_cast<cudaEvent_t>(new Event);
    return result(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { return cudaEventCreate(event); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete reinterpret_cast<Event *>(event);
    return result(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    auto *e = reinterpret_cast<Event *>(event);
    e->when = std::chrono::steady_clock::now();
    e->recorded = true;
    return result(cudaSuccess);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
    return cudaEventRecord(event, stream);
}

cudaError_t cudaEventSynchronize(cudaEvent_t) { return waited(); }
cudaError_t cudaEventQuery(cudaEvent_t) { return waited(); }

// Wall-clock time of the simulation, which says nothing about a GPU.
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    const auto *a = reinterpret_cast<Event *>(from), *b = reinterpret_cast<Event *>(to);
    if (!a || !b || !a->recorded || !b->recorded) return result(cudaErrorInvalidResourceHandle);
    *milliseconds = std::chrono::duration<float, std::milli>(b->when - a->when).count();
    return result(cudaSuccess);
}

cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned *flags) {
    *flags = cudaStreamDefault;
    return result(cudaSuccess);
}

cudaError_t cudaStreamGetPriority(cudaStream_t, int *priority) {
    *priority = 0;
    return result(cudaSuccess);
}

cudaError_t cudaStreamGetDevice(cudaStream_t, int *ordinal) {
    *ordinal = 0;
    return result(cudaSuccess);
}

// Attributes of streams concern speed: cache windows, priorities, synchronization by spinning.
cudaError_t cudaStreamSetAttribute(cudaStream_t, cudaStreamAttrID, const cudaStreamAttrValue *) {
    return result(cudaSuccess);
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void *, size_t, unsigned) { return result(cudaSuccess); }

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *) { return result(cudaSuccess); }

// Work before it has ended, so the host's function runs now.
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void *data) {
    function(data);
    return result(cudaSuccess);
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void *data, unsigned) {
    function(stream, sticky_error, data);
    return result(cudaSuccess);
}

// --- Driver functions through the runtime: those of the stand-in for the driver library

static cudaError_t driver_entry_point(const char *name, void **function, cudaDriverEntryPointQueryResult *status) {
    if (!name || !function) return result(cudaErrorInvalidValue);
    // What the header redefines is meant in its newest form.
    *function = dlsym(RTLD_DEFAULT, (std::string(name) + "_v2").c_str());
    if (!*function) *function = dlsym(RTLD_DEFAULT, name);
    if (status) *status = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return *function || status ? cudaSuccess : result(cudaErrorSymbolNotFound);
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long,
                                    cudaDriverEntryPointQueryResult *status) {
    return driver_entry_point(name, function, status);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *status) {
    return driver_entry_point(name, function, status);
}

cudaError_t porter_tensor_map(const void *request, size_t size, void *map, size_t map_size) {
    const Reply r = ask(Op::tensor_map, Writer().bytes(request, size));
    if (r.status != cudaSuccess) return r.status;
    if (r.body.size() != map_size) return cudaErrorUnknown;
    std::memcpy(map, r.body.data(), map_size);
    return cudaSuccess;
}

}  // extern "C"
