// SPDX-License-Identifier: Apache-2.0
//
// Memory: device memory is mapped here at its own addresses, so a copy is a memcpy.

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "standin.hpp"

namespace standin {

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
    latest_launch_ended();
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

cudaError_t release(void *p) {
    latest_launch_ended();
    return p ? ask(Op::release, Writer().address(p)).status : cudaSuccess;
}

cudaError_t symbol(const void *host, void **address, size_t *size) {
    const Reply r = ask(Op::symbol, Writer().address(host));
    if (r.status == cudaSuccess) {
        if (address) *address = reinterpret_cast<void *>(r.word(0));
        if (size) *size = r.word(1);
    }
    return r.status;
}

}  // namespace standin

using namespace standin;

namespace {

// Device memory in rows that begin a multiple of this apart, as cudaMallocPitch gives it.
constexpr size_t pitch_alignment = 512;

cudaError_t copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                      cudaMemcpyKind kind) {
    if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
    cudaError_t status = cudaSuccess;
    for (size_t row = 0; row < height && status == cudaSuccess; ++row)
        status = copy(static_cast<char *>(to) + row * to_pitch, static_cast<const char *>(from) + row * from_pitch,
                      width, kind);
    return status;
}

cudaError_t copy_symbol(const void *host, size_t offset, void *to, const void *from, size_t size,
                        cudaMemcpyKind kind) {
    void *address = nullptr;
    size_t bytes = 0;
    if (const cudaError_t status = symbol(host, &address, &bytes)) return status;
    if (offset > bytes || size > bytes - offset) return cudaErrorInvalidValue;
    char *place = static_cast<char *>(address) + offset;
    return to ? copy(to, place, size, kind) : copy(place, from, size, kind);
}

// Host memory that the program registered: its pages become pages of device memory at the host's own address.
struct Registered {
    void *host, *device;
    size_t size;
};
std::map<uintptr_t, Registered> registered;

// `__managed__` variables: where nvcc's host code keeps the pointer to each.
struct Managed {
    void **pointer;
    bool placed;
};
std::vector<Managed> managed;

}  // namespace

namespace standin {

void place_managed() {
    for (Managed &m : managed)
        if (!m.placed) m.placed = symbol(m.pointer, m.pointer, nullptr) == cudaSuccess;
}

}  // namespace standin

extern "C" {

void __cudaRegisterManagedVar(void **handle, void **pointer, char *, const char *name, int, size_t size, int constant,
                              int) {
    ask(Op::register_variable,
        Writer().address(*handle).address(pointer).u64(size).u32(static_cast<uint32_t>(constant)).text(name));
    managed.push_back({pointer, false});
}

cudaError_t cudaMalloc(void **p, size_t size) { return result(allocate(p, size)); }
cudaError_t cudaMallocAsync(void **p, size_t size, cudaStream_t) { return result(allocate(p, size)); }
cudaError_t cudaMallocManaged(void **p, size_t size, unsigned) { return result(allocate(p, size)); }
cudaError_t cudaMallocHost(void **p, size_t size) { return result(allocate(p, size)); }
cudaError_t cudaHostAlloc(void **p, size_t size, unsigned) { return result(allocate(p, size)); }
cudaError_t cudaFree(void *p) { return result(release(p)); }
cudaError_t cudaFreeAsync(void *p, cudaStream_t) { return result(release(p)); }
cudaError_t cudaFreeHost(void *p) { return result(release(p)); }

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
    return result(copy_rows(to, to_pitch, from, from_pitch, width, height, kind));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t) {
    return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}

cudaError_t cudaMemset(void *p, int value, size_t size) {
    if (size && !in_arena(p)) return result(cudaErrorInvalidValue);
    if (const cudaError_t status = check(p, size)) return result(status);
    latest_launch_ended();
    std::memset(p, value, size);
    return result(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t size, cudaStream_t) { return cudaMemset(p, value, size); }

cudaError_t cudaGetSymbolAddress(void **address, const void *host) { return result(symbol(host, address, nullptr)); }
cudaError_t cudaGetSymbolSize(size_t *size, const void *host) { return result(symbol(host, nullptr, size)); }

cudaError_t cudaMemcpyToSymbol(const void *host, const void *from, size_t size, size_t offset, cudaMemcpyKind) {
    return result(copy_symbol(host, offset, nullptr, from, size, cudaMemcpyDefault));
}

cudaError_t cudaMemcpyToSymbolAsync(const void *host, const void *from, size_t size, size_t offset, cudaMemcpyKind kind,
                                    cudaStream_t) {
    return cudaMemcpyToSymbol(host, from, size, offset, kind);
}

cudaError_t cudaMemcpyFromSymbol(void *to, const void *host, size_t size, size_t offset, cudaMemcpyKind) {
    return result(copy_symbol(host, offset, to, nullptr, size, cudaMemcpyDefault));
}

cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *host, size_t size, size_t offset, cudaMemcpyKind kind,
                                      cudaStream_t) {
    return cudaMemcpyFromSymbol(to, host, size, offset, kind);
}

cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t size) {
    if (to_device || from_device) return result(cudaErrorInvalidDevice);
    return result(copy(to, from, size, cudaMemcpyDeviceToDevice));
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t size, cudaStream_t) {
    return cudaMemcpyPeer(to, to_device, from, from_device, size);
}

cudaError_t cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height) {
    *pitch = (width + pitch_alignment - 1) / pitch_alignment * pitch_alignment;
    return result(allocate(p, *pitch * height));
}

cudaError_t cudaMemset2D(void *p, size_t pitch, int value, size_t width, size_t height) {
    if (width > pitch) return result(cudaErrorInvalidPitchValue);
    for (size_t row = 0; row < height; ++row)
        if (const cudaError_t status = cudaMemset(static_cast<char *>(p) + row * pitch, value, width)) return status;
    return result(cudaSuccess);
}

cudaError_t cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height, cudaStream_t) {
    return cudaMemset2D(p, pitch, value, width, height);
}

// Managed memory is always where it is wanted.
#if CUDART_VERSION >= 13000
cudaError_t cudaMemPrefetchAsync(const void *p, size_t size, cudaMemLocation, unsigned, cudaStream_t) {
    return result(check(p, size));
}
cudaError_t cudaMemAdvise(const void *p, size_t size, cudaMemoryAdvise, cudaMemLocation) {
    return result(check(p, size));
}
#else
cudaError_t cudaMemPrefetchAsync(const void *p, size_t size, int, cudaStream_t) { return result(check(p, size)); }
cudaError_t cudaMemAdvise(const void *p, size_t size, cudaMemoryAdvise, int) { return result(check(p, size)); }
#endif

// --- Registered host memory

cudaError_t cudaHostRegister(void *p, size_t size, unsigned) {
    if (!p || !size) return result(cudaErrorInvalidValue);
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<uintptr_t>(p) / page * page;
    const size_t bytes = (reinterpret_cast<uintptr_t>(p) + size - first + page - 1) / page * page;
    auto after = registered.upper_bound(first + bytes - 1);
    if (after != registered.begin() && (--after)->first + after->second.size > first)
        return result(cudaErrorHostMemoryAlreadyRegistered);
    void *device = nullptr;
    if (const cudaError_t status = allocate(&device, bytes)) return result(status);
    auto *host = reinterpret_cast<void *>(first);
    std::memcpy(device, host, bytes);
    if (!Parent::get().map(host, device, bytes)) {
        release(device);
        return result(cudaErrorInvalidValue);
    }
    ask(Op::alias, Writer().address(host).address(device).u64(bytes));
    registered[first] = {host, device, bytes};
    return result(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *p) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto found = registered.find(reinterpret_cast<uintptr_t>(p) / page * page);
    if (found == registered.end()) return result(cudaErrorHostMemoryNotRegistered);
    const Registered r = found->second;
    const std::vector<char> contents(static_cast<char *>(r.host), static_cast<char *>(r.host) + r.size);
    if (mmap(r.host, r.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != r.host)
        return result(cudaErrorUnknown);
    std::memcpy(r.host, contents.data(), r.size);
    ask(Op::alias, Writer().address(r.host).address(nullptr).u64(0));
    release(r.device);
    registered.erase(found);
    return result(cudaSuccess);
}

cudaError_t cudaHostGetDevicePointer(void **device_pointer, void *host, unsigned) {
    *device_pointer = host;
    if (in_arena(host)) return result(cudaSuccess);
    auto after = registered.upper_bound(reinterpret_cast<uintptr_t>(host));
    if (after == registered.begin()) return result(cudaErrorInvalidValue);
    const auto &[first, r] = *--after;
    if (reinterpret_cast<uintptr_t>(host) >= first + r.size) return result(cudaErrorInvalidValue);
    return result(cudaSuccess);
}

// For the stand-ins of libraries, whose kernels would fault where this says no.
bool porter_device_memory(const void *p, size_t size) {
    bool held = in_arena(p) && check(p, size) == cudaSuccess;
    if (!in_arena(p)) {
        auto after = registered.upper_bound(reinterpret_cast<uintptr_t>(p));
        held = after != registered.begin() &&
               reinterpret_cast<uintptr_t>(p) + size <= (--after)->first + after->second.size;
    }
    if (!held) sticky_error = cudaErrorIllegalAddress;
    latest_launch_ended();
    return held;
}

cudaError_t cudaHostGetFlags(unsigned *flags, void *host) {
    *flags = cudaHostAllocMapped;
    return result(in_arena(host) ? cudaSuccess : cudaErrorInvalidValue);
}

// --- Memory pools: there is one, and what is freed is free at once

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int) {
    static char only;
    *pool = reinterpret_cast<cudaMemPool_t>(&only);
    return result(cudaSuccess);
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int ordinal) { return cudaDeviceGetDefaultMemPool(pool, ordinal); }
cudaError_t cudaDeviceSetMemPool(int, cudaMemPool_t) { return result(cudaSuccess); }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *) { return result(cudaSuccess); }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return result(cudaSuccess); }

cudaError_t cudaMallocFromPoolAsync(void **p, size_t size, cudaMemPool_t, cudaStream_t) {
    return result(allocate(p, size));
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *p) {
    *attributes = {};
    attributes->type = in_arena(p) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    attributes->device = in_arena(p) ? 0 : -1;
    attributes->devicePointer = in_arena(p) ? const_cast<void *>(p) : nullptr;
    attributes->hostPointer = in_arena(p) ? nullptr : const_cast<void *>(p);
    return cudaSuccess;
}

}  // extern "C"
