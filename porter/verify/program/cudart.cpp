// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for the CUDA runtime library, for running a program's own main() without a GPU.
//
// The program runs as a child process with this library preloaded. Host code runs as it is; what needs a device is
// asked of the parent over a socket (PORTER_CUDART_SOCKET), one request and one reply at a time. Device memory is a
// file (PORTER_CUDART_MEMORY) that both processes map; the child maps it at the address that device pointers start
// from, so that a device pointer is a plain pointer here and every copy is a memcpy.
//
// Everything is synchronous: a launch returns when the kernel has ended, so streams and events only keep order.
// Functions that are not answered here are weak symbols in a generated file that name themselves and stop.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "connection.hpp"

extern "C" {
extern const struct porter_error_name {
    int code;
    const char *name;
} porter_error_names[];
extern const int porter_error_count;
[[noreturn]] void porter_unanswered(const char *function);
}

namespace {

struct Device {
    int major, minor, multiprocessors, warp, max_threads_per_block, max_threads_per_multiprocessor,
        max_blocks_per_multiprocessor, registers_per_multiprocessor;
    size_t shared_per_block, shared_per_block_optin, shared_per_multiprocessor, shared_reserved, total_memory, l2;
};

struct FunctionFacts {
    uint64_t static_shared, local, max_threads, ptx_version, binary_version, dynamic_limit;
    std::vector<uint64_t> parameter_sizes;
};

struct CallConfiguration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};

cudaError_t sticky_error = cudaSuccess;          // A kernel failed: the context is lost, every later call says so.
thread_local cudaError_t last_error = cudaSuccess;
thread_local std::vector<CallConfiguration> configurations;

cudaError_t result(cudaError_t status) {
    if (status == cudaErrorLaunchFailure) sticky_error = status;
    if (sticky_error != cudaSuccess) status = sticky_error;
    if (status != cudaSuccess) last_error = status;
    return status;
}

const Device &device() {
    static const Device facts = [] {
        const Reply r = ask(Op::device);
        size_t i = 0;
        Device d{};
        for (int *field : {&d.major, &d.minor, &d.multiprocessors, &d.warp, &d.max_threads_per_block,
                           &d.max_threads_per_multiprocessor, &d.max_blocks_per_multiprocessor,
                           &d.registers_per_multiprocessor})
            *field = static_cast<int>(r.word(i++));
        for (size_t *field : {&d.shared_per_block, &d.shared_per_block_optin, &d.shared_per_multiprocessor,
                              &d.shared_reserved, &d.total_memory, &d.l2})
            *field = r.word(i++);
        return d;
    }();
    return facts;
}

cudaError_t function_facts(const void *stub, FunctionFacts &facts) {
    const Reply r = ask(Op::function, Writer().address(stub));
    if (r.status != cudaSuccess) return r.status;
    size_t i = 0;
    for (uint64_t *field : {&facts.static_shared, &facts.local, &facts.max_threads, &facts.ptx_version,
                            &facts.binary_version, &facts.dynamic_limit})
        *field = r.word(i++);
    for (const size_t words = r.body.size() / 8; i < words; ++i) facts.parameter_sizes.push_back(r.word(i));
    return cudaSuccess;
}

cudaError_t launch(const void *stub, dim3 grid, dim3 block, dim3 cluster, void **args, size_t shared) {
    if (sticky_error != cudaSuccess) return result(sticky_error);
    FunctionFacts facts{};
    if (const cudaError_t status = function_facts(stub, facts)) return result(status);
    Writer request;
    request.address(stub).dim(grid).dim(block).dim(cluster).u32(static_cast<uint32_t>(shared));
    for (size_t i = 0; i < facts.parameter_sizes.size(); ++i) request.bytes(args[i], facts.parameter_sizes[i]);
    const Reply r = ask(Op::launch, request);
    std::fwrite(r.body.data(), 1, r.body.size(), stdout);  // What the kernel printed.
    return result(r.status);
}

bool in_arena(const void *p) {
    const auto a = reinterpret_cast<uintptr_t>(p);
    return a >= Parent::get().arena() && a < Parent::get().arena() + Parent::get().arena_size();
}

// A copy to or from device memory must stay inside one allocation.
cudaError_t check(const void *p, size_t size) {
    if (!size || !in_arena(p)) return cudaSuccess;
    return ask(Op::check_range, Writer().address(p).u64(size)).status;
}

cudaError_t copy(void *to, const void *from, size_t size, cudaMemcpyKind kind) {
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (size && ((to_device && !in_arena(to)) || (from_device && !in_arena(from)))) return cudaErrorInvalidValue;
    if (const cudaError_t status = check(to, size)) return status;
    if (const cudaError_t status = check(from, size)) return status;
    std::memmove(to, from, size);
    return cudaSuccess;
}

cudaError_t allocate(void **p, size_t size) {
    if (!p) return cudaErrorInvalidValue;
    *p = nullptr;
    if (!size) return cudaSuccess;
    const Reply r = ask(Op::allocate, Writer().u64(size));
    *p = reinterpret_cast<void *>(r.word(0));
    return r.status;
}

cudaError_t release(void *p) { return p ? ask(Op::release, Writer().address(p)).status : cudaSuccess; }

cudaError_t symbol(const void *host, void **address, size_t *size) {
    const Reply r = ask(Op::symbol, Writer().address(host));
    if (r.status == cudaSuccess) {
        if (address) *address = reinterpret_cast<void *>(r.word(0));
        if (size) *size = r.word(1);
    }
    return r.status;
}

// Streams and events are handles that only keep order. Handles are never null, for null is the default stream.
struct Event {
    std::chrono::steady_clock::time_point when{};
    bool recorded = false;
};

// --- The driver functions that programs ask the runtime for

CUresult encode_tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                      const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                      const cuuint32_t *element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                      CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    if (!map || !sizes || !box || !element_strides || rank < 1 || rank > 5 || (rank > 1 && !strides))
        return CUDA_ERROR_INVALID_VALUE;
    Writer request;
    request.u32(type).u32(rank).address(address).u32(interleave).u32(swizzle).u32(promotion).u32(fill);
    for (cuuint32_t i = 0; i < rank; ++i) request.u64(sizes[i]);
    for (cuuint32_t i = 0; i + 1 < rank; ++i) request.u64(strides[i]);
    for (cuuint32_t i = 0; i < rank; ++i) request.u32(box[i]);
    for (cuuint32_t i = 0; i < rank; ++i) request.u32(element_strides[i]);
    const Reply r = ask(Op::tensor_map, request);
    if (r.status != cudaSuccess || r.body.size() != sizeof *map) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(map, r.body.data(), sizeof *map);
    return CUDA_SUCCESS;
}

CUresult driver_error_text(CUresult error, const char **text) {
    *text = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : error == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : nullptr;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult driver_version(int *version) {
    *version = CUDART_VERSION;
    return CUDA_SUCCESS;
}

CUresult driver_init(unsigned) { return CUDA_SUCCESS; }

// A driver function that is not answered stops when it is called, not when it is looked up: programs look up many.
constexpr int max_unknown = 128;
std::string unknown_names[max_unknown];
int unknown_count = 0;

template <int I> void unknown() { porter_unanswered(unknown_names[I].c_str()); }

template <int... I> void *unknown_function(int index, std::integer_sequence<int, I...>) {
    static void (*const functions[])() = {unknown<I>...};
    return reinterpret_cast<void *>(functions[index]);
}

void *driver_function(const std::string &name) {
    static const std::map<std::string, void *> known = {
        {"cuTensorMapEncodeTiled", reinterpret_cast<void *>(encode_tiled)},
        {"cuGetErrorString", reinterpret_cast<void *>(driver_error_text)},
        {"cuGetErrorName", reinterpret_cast<void *>(driver_error_text)},
        {"cuDriverGetVersion", reinterpret_cast<void *>(driver_version)},
        {"cuInit", reinterpret_cast<void *>(driver_init)},
    };
    const auto found = known.find(name);
    if (found != known.end()) return found->second;
    int slot = 0;
    while (slot < unknown_count && unknown_names[slot] != name) ++slot;
    if (slot == max_unknown) porter_unanswered(name.c_str());
    if (slot == unknown_count) unknown_names[unknown_count++] = name;
    return unknown_function(slot, std::make_integer_sequence<int, max_unknown>());
}

cudaError_t driver_entry_point(const char *name, void **function, cudaDriverEntryPointQueryResult *status) {
    if (!name || !function) return result(cudaErrorInvalidValue);
    *function = driver_function(name);
    if (status) *status = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

}  // namespace

extern "C" {

void porter_unanswered(const char *function) {
    std::fflush(stdout);
    std::fprintf(stderr, "porter: the program calls %s, which the CUDA runtime stand-in does not answer\n", function);
    ask(Op::unanswered, Writer().text(function));
    _exit(cannot_go_on);
}

// --- Registration, which nvcc's host code calls before main()

void **__cudaRegisterFatBinary(void *wrapper) {
    struct Wrapper {
        uint32_t magic, version;
        const char *data;
        const void *more;
    };
    struct Header {
        uint32_t magic;
        uint16_t version, header_size;
        uint64_t size;
    } header;
    const auto *w = static_cast<const Wrapper *>(wrapper);
    std::memcpy(&header, w->data, sizeof header);
    const Reply r = ask(Op::register_binary, Writer().bytes(w->data, header.header_size + header.size));
    auto **handle = new void *;
    *handle = reinterpret_cast<void *>(r.word(0));
    return handle;
}

void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **handle) { delete handle; }
char __cudaInitModule(void **) { return 1; }

void __cudaRegisterFunction(void **handle, const char *stub, char *, const char *name, int, uint3 *, uint3 *, dim3 *,
                            dim3 *, int *) {
    ask(Op::register_function, Writer().address(*handle).address(stub).text(name));
}

void __cudaRegisterVar(void **handle, char *host, char *, const char *name, int, size_t size, int constant, int) {
    ask(Op::register_variable,
        Writer().address(*handle).address(host).u64(size).u32(static_cast<uint32_t>(constant)).text(name));
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *stub) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void *>(stub));
    return cudaSuccess;
}

// --- Launches

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    configurations.push_back({grid, block, shared, stream});
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (configurations.empty()) return result(cudaErrorMissingConfiguration);
    const CallConfiguration &c = configurations.back();
    *grid = c.grid;
    *block = c.block;
    *shared = c.shared;
    *static_cast<cudaStream_t *>(stream) = c.stream;
    configurations.pop_back();
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t) {
    return launch(stub, grid, block, dim3(0, 0, 0), args, shared);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t) {
    return launch(reinterpret_cast<const void *>(kernel), grid, block, dim3(0, 0, 0), args, shared);
}

cudaError_t cudaLaunchCooperativeKernel(const void *stub, dim3 grid, dim3 block, void **args, size_t shared,
                                        cudaStream_t) {
    return launch(stub, grid, block, dim3(0, 0, 0), args, shared);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *stub, void **args) {
    if (!config) return result(cudaErrorInvalidValue);
    dim3 cluster(0, 0, 0);
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        const cudaLaunchAttribute &a = config->attrs[i];
        if (a.id == cudaLaunchAttributeClusterDimension)
            cluster = dim3(a.val.clusterDim.x, a.val.clusterDim.y, a.val.clusterDim.z);
    }
    return launch(stub, config->gridDim, config->blockDim, cluster, args, config->dynamicSmemBytes);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *stub) {
    FunctionFacts facts{};
    if (const cudaError_t status = function_facts(stub, facts)) return result(status);
    *attributes = {};
    attributes->sharedSizeBytes = facts.static_shared;
    attributes->localSizeBytes = facts.local;
    attributes->maxThreadsPerBlock = static_cast<int>(facts.max_threads);
    // PTX has no register count. This one lets the largest block that the function allows fit.
    attributes->numRegs = device().registers_per_multiprocessor / device().max_threads_per_multiprocessor;
    attributes->ptxVersion = static_cast<int>(facts.ptx_version);
    attributes->binaryVersion = static_cast<int>(facts.binary_version);
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(facts.dynamic_limit);
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *stub, cudaFuncAttribute attribute, int value) {
    return result(ask(Op::set_attribute,
                      Writer().address(stub).u32(attribute).u32(static_cast<uint32_t>(value))).status);
}

cudaError_t cudaFuncSetCacheConfig(const void *, cudaFuncCache) { return cudaSuccess; }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *stub, int threads,
                                                                   size_t dynamic_shared, unsigned) {
    FunctionFacts facts{};
    if (const cudaError_t status = function_facts(stub, facts)) return result(status);
    const Device &d = device();
    const size_t shared = facts.static_shared + dynamic_shared + d.shared_reserved;
    const int warps = (threads + d.warp - 1) / d.warp;
    *blocks = 0;
    if (threads <= 0 || warps * d.warp > d.max_threads_per_block) return result(cudaErrorInvalidValue);
    *blocks = d.max_threads_per_multiprocessor / (warps * d.warp);
    if (*blocks > d.max_blocks_per_multiprocessor) *blocks = d.max_blocks_per_multiprocessor;
    if (*blocks > static_cast<int>(d.shared_per_multiprocessor / shared))
        *blocks = static_cast<int>(d.shared_per_multiprocessor / shared);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *stub, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, stub, threads, shared, 0);
}

// --- Memory

cudaError_t cudaMalloc(void **p, size_t size) { return result(allocate(p, size)); }
cudaError_t cudaMallocAsync(void **p, size_t size, cudaStream_t) { return result(allocate(p, size)); }
cudaError_t cudaMallocManaged(void **p, size_t size, unsigned) { return result(allocate(p, size)); }
cudaError_t cudaMallocHost(void **p, size_t size) { return result(allocate(p, size)); }
cudaError_t cudaHostAlloc(void **p, size_t size, unsigned) { return result(allocate(p, size)); }
cudaError_t cudaFree(void *p) { return result(release(p)); }
cudaError_t cudaFreeAsync(void *p, cudaStream_t) { return result(release(p)); }
cudaError_t cudaFreeHost(void *p) { return result(release(p)); }

cudaError_t cudaHostGetDevicePointer(void **device_pointer, void *host, unsigned) {
    *device_pointer = host;
    return result(in_arena(host) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    const Reply r = ask(Op::memory_info);
    *free = r.word(0);
    *total = r.word(1);
    return result(r.status);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind kind) {
    return result(copy(to, from, size, kind));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind kind, cudaStream_t) {
    return result(copy(to, from, size, kind));
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
    if (width > to_pitch || width > from_pitch) return result(cudaErrorInvalidPitchValue);
    cudaError_t status = cudaSuccess;
    for (size_t row = 0; row < height && status == cudaSuccess; ++row)
        status = copy(static_cast<char *>(to) + row * to_pitch, static_cast<const char *>(from) + row * from_pitch,
                      width, kind);
    return result(status);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t) {
    return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}

cudaError_t cudaMemset(void *p, int value, size_t size) {
    if (size && !in_arena(p)) return result(cudaErrorInvalidValue);
    if (const cudaError_t status = check(p, size)) return result(status);
    std::memset(p, value, size);
    return result(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t size, cudaStream_t) { return cudaMemset(p, value, size); }

cudaError_t cudaGetSymbolAddress(void **address, const void *host) { return result(symbol(host, address, nullptr)); }
cudaError_t cudaGetSymbolSize(size_t *size, const void *host) { return result(symbol(host, nullptr, size)); }

cudaError_t cudaMemcpyToSymbol(const void *host, const void *from, size_t size, size_t offset, cudaMemcpyKind) {
    void *address = nullptr;
    if (const cudaError_t status = symbol(host, &address, nullptr)) return result(status);
    return result(copy(static_cast<char *>(address) + offset, from, size, cudaMemcpyDefault));
}

cudaError_t cudaMemcpyFromSymbol(void *to, const void *host, size_t size, size_t offset, cudaMemcpyKind) {
    void *address = nullptr;
    if (const cudaError_t status = symbol(host, &address, nullptr)) return result(status);
    return result(copy(to, static_cast<char *>(address) + offset, size, cudaMemcpyDefault));
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *p) {
    *attributes = {};
    attributes->type = in_arena(p) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    attributes->device = in_arena(p) ? 0 : -1;
    attributes->devicePointer = in_arena(p) ? const_cast<void *>(p) : nullptr;
    attributes->hostPointer = in_arena(p) ? nullptr : const_cast<void *>(p);
    return cudaSuccess;
}

// --- Devices

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
cudaError_t cudaDeviceSynchronize() { return result(cudaSuccess); }
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
    const Device &d = device();
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = d.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = d.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = d.multiprocessors; break;
    case cudaDevAttrWarpSize: *value = d.warp; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = d.max_threads_per_block; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = d.max_threads_per_multiprocessor; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = d.max_blocks_per_multiprocessor; break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = d.registers_per_multiprocessor; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(d.shared_per_block); break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(d.shared_per_block_optin); break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = static_cast<int>(d.shared_per_multiprocessor); break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = static_cast<int>(d.shared_reserved); break;
    case cudaDevAttrL2CacheSize: *value = static_cast<int>(d.l2); break;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = d.max_threads_per_block; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrClusterLaunch:
    case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
    // Not modelled: programs use these for estimates of time.
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
    case cudaDevAttrGlobalMemoryBusWidth: *value = 0; break;
    default: porter_unanswered(("cudaDeviceGetAttribute(" + std::to_string(attribute) + ")").c_str());
    }
    return result(cudaSuccess);
}

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

cudaError_t cudaStreamSynchronize(cudaStream_t) { return result(cudaSuccess); }
cudaError_t cudaStreamQuery(cudaStream_t) { return result(cudaSuccess); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return result(cudaSuccess); }

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

cudaError_t cudaEventSynchronize(cudaEvent_t) { return result(cudaSuccess); }
cudaError_t cudaEventQuery(cudaEvent_t) { return result(cudaSuccess); }

// Wall-clock time of the simulation, which says nothing about a GPU.
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    const auto *a = reinterpret_cast<Event *>(from), *b = reinterpret_cast<Event *>(to);
    if (!a || !b || !a->recorded || !b->recorded) return result(cudaErrorInvalidResourceHandle);
    *milliseconds = std::chrono::duration<float, std::milli>(b->when - a->when).count();
    return result(cudaSuccess);
}

// --- Driver functions through the runtime

cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long,
                                    cudaDriverEntryPointQueryResult *status) {
    return driver_entry_point(name, function, status);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *status) {
    return driver_entry_point(name, function, status);
}

}  // extern "C"
