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

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "standin.hpp"

namespace standin {

cudaError_t sticky_error = cudaSuccess;
thread_local cudaError_t last_error = cudaSuccess;

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
                            &facts.binary_version, &facts.dynamic_limit, &facts.cluster_limit})
        *field = r.word(i++);
    for (const size_t words = r.body.size() / 8; i < words; ++i) facts.parameter_sizes.push_back(r.word(i));
    return cudaSuccess;
}

int blocks_per_multiprocessor(const void *stub, int threads, size_t dynamic_shared) {
    const Reply r = ask(Op::occupancy, Writer().address(stub).u32(static_cast<uint32_t>(threads)).u64(dynamic_shared));
    return r.status == cudaSuccess ? static_cast<int>(r.word(0)) : 0;
}

// The stream of the latest launch, while nothing has come behind that.
static bool latest_is_open = false;
static cudaStream_t latest_stream = nullptr;

void latest_launch_ended() { latest_is_open = false; }

cudaError_t launch(const void *stub, dim3 grid, dim3 block, void **args, size_t shared, const How &how) {
    if (sticky_error != cudaSuccess) return result(sticky_error);
    FunctionFacts facts{};
    if (const cudaError_t status = function_facts(stub, facts)) return result(status);
    if (how.cooperative) {
        const int64_t room = static_cast<int64_t>(device().multiprocessors) *
                             blocks_per_multiprocessor(stub, static_cast<int>(block.x * block.y * block.z), shared);
        if (static_cast<int64_t>(grid.x) * grid.y * grid.z > room) return result(cudaErrorCooperativeLaunchTooLarge);
    }
    Writer request;
    request.address(stub).dim(grid).dim(block).dim(how.cluster).u32(static_cast<uint32_t>(shared));
    request.u32(how.cooperative).u32(how.overlaps && latest_is_open && latest_stream == how.stream);
    for (size_t i = 0; i < facts.parameter_sizes.size(); ++i) request.bytes(args[i], facts.parameter_sizes[i]);
    const Reply r = ask(Op::launch, request);
    latest_is_open = r.status == cudaSuccess;
    latest_stream = how.stream;
    std::fwrite(r.body.data(), 1, r.body.size(), stdout);  // What the kernel printed.
    return result(r.status);
}

}  // namespace standin

namespace {

struct CallConfiguration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};

thread_local std::vector<CallConfiguration> configurations;

}  // namespace

using namespace standin;

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
char __cudaInitModule(void **) {
    place_managed();
    return 1;
}

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

cudaError_t cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t stream) {
    return launch(stub, grid, block, args, shared, {dim3(0, 0, 0), false, stream});
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                               cudaStream_t stream) {
    return launch(reinterpret_cast<const void *>(kernel), grid, block, args, shared, {dim3(0, 0, 0), false, stream});
}

cudaError_t cudaLaunchCooperativeKernel(const void *stub, dim3 grid, dim3 block, void **args, size_t shared,
                                        cudaStream_t stream) {
    return launch(stub, grid, block, args, shared, {dim3(0, 0, 0), true, stream});
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *stub, void **args) {
    if (!config) return result(cudaErrorInvalidValue);
    How how;
    how.stream = config->stream;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        const cudaLaunchAttribute &a = config->attrs[i];
        if (a.id == cudaLaunchAttributeClusterDimension)
            how.cluster = dim3(a.val.clusterDim.x, a.val.clusterDim.y, a.val.clusterDim.z);
        if (a.id == cudaLaunchAttributeCooperative) how.cooperative = a.val.cooperative != 0;
        // Values are those of launches one after the other; the checker is told that these two may overlap.
        if (a.id == cudaLaunchAttributeProgrammaticStreamSerialization)
            how.overlaps = a.val.programmaticStreamSerializationAllowed != 0;
    }
    return launch(stub, config->gridDim, config->blockDim, args, config->dynamicSmemBytes, how);
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

cudaError_t cudaFuncSetSharedMemConfig(const void *, cudaSharedMemConfig) { return cudaSuccess; }

cudaError_t cudaFuncGetName(const char **name, const void *stub) {
    static std::map<const void *, std::string> names;
    const Reply r = ask(Op::function_name, Writer().address(stub));
    if (r.status == cudaSuccess) *name = (names[stub] = r.body).c_str();
    return result(r.status);
}

// --- Occupancy: what ptxas gives a kernel counts, where there is one to ask

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *stub, int threads,
                                                                   size_t dynamic_shared, unsigned) {
    FunctionFacts facts{};
    if (const cudaError_t status = function_facts(stub, facts)) return result(status);
    *blocks = 0;
    if (threads <= 0 || threads > device().max_threads_per_block) return result(cudaErrorInvalidValue);
    *blocks = blocks_per_multiprocessor(stub, threads, dynamic_shared);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *stub, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, stub, threads, shared, 0);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *stub, int blocks, int threads) {
    FunctionFacts facts{};
    if (const cudaError_t status = function_facts(stub, facts)) return result(status);
    if (blocks <= 0 || threads <= 0) return result(cudaErrorInvalidValue);
    const Device &d = device();
    size_t most = d.shared_per_multiprocessor / blocks - d.shared_reserved;
    if (most > d.shared_per_block_optin) most = d.shared_per_block_optin;
    *bytes = most > facts.static_shared ? most - facts.static_shared : 0;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int *size, const void *stub, const cudaLaunchConfig_t *) {
    FunctionFacts facts{};
    if (const cudaError_t status = function_facts(stub, facts)) return result(status);
    *size = static_cast<int>(facts.cluster_limit);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *stub, const cudaLaunchConfig_t *config) {
    FunctionFacts facts{};
    if (const cudaError_t status = function_facts(stub, facts)) return result(status);
    unsigned blocks = 1;
    for (unsigned i = 0; i < config->numAttrs; ++i)
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) {
            const auto &c = config->attrs[i].val.clusterDim;
            blocks = c.x * c.y * c.z;
        }
    if (!blocks || blocks > facts.cluster_limit) return result(cudaErrorInvalidClusterSize);
    const dim3 &block = config->blockDim;
    const int each = blocks_per_multiprocessor(stub, static_cast<int>(block.x * block.y * block.z),
                                               config->dynamicSmemBytes);
    *clusters = each * device().multiprocessors / static_cast<int>(blocks);
    return cudaSuccess;
}

}  // extern "C"
