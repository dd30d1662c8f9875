// SPDX-License-Identifier: Apache-2.0
// Linked into programs built by `porter nvcc`: prepares the emulation before each launch, answers host code that
// asks for the compute capability, and reports why a kernel stopped.
//
// The linker sends the program's calls of the wrapped runtime functions here (--wrap).
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#ifndef PORTER_DEFAULT_MODE
#define PORTER_DEFAULT_MODE "deferred"
#endif

namespace {

constexpr size_t kTmemBytes = 128 * 512 * 4, kCtaBytes = 128 + 16 * 64, kQueueBytes = 256 * 256,
                 kSmsBytes = 512 * 16;

struct Host {                       // as in state.cuh
  uint64_t tmem, ctas, queue, sms, report, patience;
  uint32_t capacity, mode, arithmetic, columns;
};
struct Report {
  uint32_t code, site, block[3], thread, values[4];
};

std::mutex lock;
Report* report = nullptr;
uint64_t report_device = 0;
uint64_t tmem = 0, ctas = 0, queue = 0, sms = 0;
size_t capacity = 0;
std::map<CUmodule, CUdeviceptr> variables;

// "code text" and "site kernel: opcode (place)", line by line, as written when the program was built.
const char kTexts[] =
#include PORTER_TEXTS
    ;

void say_line(const char* kind, uint32_t number) {
  std::string head = std::string(kind) + " " + std::to_string(number) + " ";
  const char* at = std::strstr(kTexts, ("\n" + head).c_str());
  if (at == nullptr) return;
  at += 1 + head.size();
  const char* end = std::strchr(at, '\n');
  std::fprintf(stderr, "porter:   %.*s\n", int(end != nullptr ? end - at : std::strlen(at)), at);
}

void say_why() {
  if (report == nullptr || report->code == 0) return;
  const Report& r = *report;
  std::fprintf(stderr, "porter: emulated kernel stopped: code %u at site %u, block %u,%u,%u, thread %u, values %#x %#x %#x\n",
               r.code, r.site, r.block[0], r.block[1], r.block[2], r.thread, r.values[0], r.values[1], r.values[2]);
  say_line("code", r.code);
  say_line("site", r.site);
}

template <typename Function>
Function driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  if (cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status) != cudaSuccess) return nullptr;
  return reinterpret_cast<Function>(found);
}

uint32_t setting(const char* variable, const char* standard, const char* other) {
  const char* value = std::getenv(variable);
  return value != nullptr ? std::strcmp(value, other) == 0 : std::strcmp(standard, other) == 0;
}

// What the module of the kernel needs for a grid of `count` CTAs; modules without lowered code need nothing.
cudaError_t prepare(CUfunction function, size_t count, cudaStream_t stream) {
  std::lock_guard<std::mutex> guard(lock);
  static auto module_of = driver<CUresult (*)(CUmodule*, CUfunction)>("cuFuncGetModule");
  static auto global_of = driver<CUresult (*)(CUdeviceptr*, size_t*, CUmodule, const char*)>("cuModuleGetGlobal");
  if (module_of == nullptr || global_of == nullptr) return cudaErrorNotSupported;
  CUmodule module = nullptr;
  if (module_of(&module, function) != CUDA_SUCCESS) return cudaErrorInvalidDeviceFunction;
  if (variables.find(module) == variables.end()) {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (global_of(&address, &bytes, module, "porter_host") != CUDA_SUCCESS) address = 0;
    variables[module] = address;
  }
  if (variables[module] == 0) return cudaSuccess;
  if (report == nullptr) {
    if (cudaError_t error = cudaHostAlloc(reinterpret_cast<void**>(&report), 4096, cudaHostAllocMapped)) return error;
    std::memset(report, 0, 4096);
    void *device = nullptr, *shared = nullptr;
    if (cudaError_t error = cudaMalloc(&shared, kSmsBytes)) return error;
    sms = reinterpret_cast<uint64_t>(shared);
    if (cudaError_t error = cudaHostGetDevicePointer(&device, report, 0)) return error;
    report_device = reinterpret_cast<uint64_t>(device);
    std::atexit(say_why);
  }
  if (count > capacity) {
    // Launches in flight may use the old arrays.
    if (cudaError_t error = cudaDeviceSynchronize()) return error;
    for (uint64_t old : {tmem, ctas, queue}) cudaFree(reinterpret_cast<void*>(old));
    void *a = nullptr, *b = nullptr, *c = nullptr;
    if (cudaError_t error = cudaMalloc(&a, count * kTmemBytes)) return error;
    if (cudaError_t error = cudaMalloc(&b, count * kCtaBytes)) return error;
    if (cudaError_t error = cudaMalloc(&c, count * kQueueBytes)) return error;
    tmem = reinterpret_cast<uint64_t>(a), ctas = reinterpret_cast<uint64_t>(b), queue = reinterpret_cast<uint64_t>(c);
    capacity = count;
  }
  Host host = {tmem, ctas, queue, sms, report_device, 10ull * 1000 * 1000 * 1000, static_cast<uint32_t>(capacity),
               setting("PORTER_MODE", PORTER_DEFAULT_MODE, "deferred"), setting("PORTER_ARITHMETIC", "exact", "fast"),
               setting("PORTER_COLUMNS", "cta", "cta")};
  // Two lowered grids must not share the arrays: one after the other.
  if (cudaError_t error = cudaDeviceSynchronize()) return error;
  cudaMemsetAsync(reinterpret_cast<void*>(ctas), 0, count * kCtaBytes, stream);
  cudaMemsetAsync(reinterpret_cast<void*>(queue), 0, count * kQueueBytes, stream);
  cudaMemsetAsync(reinterpret_cast<void*>(sms), 0, kSmsBytes, stream);
  return cudaMemcpyAsync(reinterpret_cast<void*>(variables[module]), &host, sizeof(host), cudaMemcpyHostToDevice, stream);
}

cudaError_t prepare_symbol(const void* function, size_t count, cudaStream_t stream) {
  cudaFunction_t symbol = nullptr;
  if (cudaError_t error = cudaGetFuncBySymbol(&symbol, function)) return error;
  return prepare(reinterpret_cast<CUfunction>(symbol), count, stream);
}

cudaError_t prepare_kernel(cudaKernel_t kernel, size_t count, cudaStream_t stream) {
  static auto function_of = driver<CUresult (*)(CUfunction*, CUkernel)>("cuKernelGetFunction");
  CUfunction function = nullptr;
  // A kernel has a function only in a context.
  if (cudaError_t error = cudaFree(nullptr)) return error;
  if (function_of == nullptr || function_of(&function, reinterpret_cast<CUkernel>(kernel)) != CUDA_SUCCESS)
    return cudaErrorInvalidDeviceFunction;
  return prepare(function, count, stream);
}

// PORTER_TIMES in the environment: how long each emulated launch took, on standard error.
template <typename Launch>
cudaError_t timed(cudaStream_t stream, Launch launch) {
  static const bool wanted = std::getenv("PORTER_TIMES") != nullptr;
  if (!wanted) return launch();
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  cudaEventRecord(begin, stream);
  cudaError_t error = launch();
  cudaEventRecord(end, stream);
  if (error == cudaSuccess && cudaEventSynchronize(end) == cudaSuccess) {
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, begin, end);
    std::fprintf(stderr, "porter: kernel time %.3f ms\n", milliseconds);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return error;
}

}  // namespace

extern "C" {

// What the stubs of `<<<...>>>` call since CUDA 13.
cudaError_t __real___cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                                      cudaStream_t stream) {
  if (cudaError_t error = prepare_kernel(kernel, size_t(grid.x) * grid.y * grid.z, stream)) return error;
  return timed(stream, [&] { return __real___cudaLaunchKernel(kernel, grid, block, arguments, shared, stream); });
}

cudaError_t __real_cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __wrap_cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                                    cudaStream_t stream) {
  if (cudaError_t error = prepare_symbol(function, size_t(grid.x) * grid.y * grid.z, stream)) return error;
  return timed(stream, [&] { return __real_cudaLaunchKernel(function, grid, block, arguments, shared, stream); });
}

cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  size_t count = size_t(config->gridDim.x) * config->gridDim.y * config->gridDim.z;
  if (cudaError_t error = prepare_symbol(function, count, config->stream)) return error;
  return timed(config->stream, [&] { return __real_cudaLaunchKernelExC(config, function, arguments); });
}

cudaError_t __real_cudaGetDeviceProperties(cudaDeviceProp*, int);
cudaError_t __wrap_cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  cudaError_t error = __real_cudaGetDeviceProperties(properties, device);
  if (error == cudaSuccess && properties->major == 9) properties->major = 10, properties->minor = 0;
  return error;
}

cudaError_t __real_cudaDeviceGetAttribute(int*, cudaDeviceAttr, int);
cudaError_t __wrap_cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaError_t error = __real_cudaDeviceGetAttribute(value, attribute, device);
  if (error == cudaSuccess && attribute == cudaDevAttrComputeCapabilityMajor && *value == 9) *value = 10;
  return error;
}
}
