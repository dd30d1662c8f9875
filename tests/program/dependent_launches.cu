// SPDX-License-Identifier: Apache-2.0
// Launches of which the second may begin before the first ends; test_program_streams.py says what is found.
#include <cstdio>
#include <string>
#include <vector>

#include <cuda_runtime.h>

constexpr int count = 256;

__global__ void produce(int *p, bool triggers) {
    if (triggers) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    p[i] = i + 1;
}

__global__ void consume(const int *p, int *q, int when) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (when == 1) asm volatile("griddepcontrol.wait;" ::: "memory");
    if (when == 3) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const int value = *static_cast<const volatile int *>(p + i);
    if (when == 2) asm volatile("griddepcontrol.wait;" ::: "memory");
    q[i] = 2 * value;
}

static cudaError_t dependent(cudaStream_t stream, bool allowed, const int *p, int *q, int when) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(count / 64);
    config.blockDim = dim3(64);
    config.stream = stream;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = allowed;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, consume, p, q, when);
}

int main(int argc, char **argv) {
    std::string mode = argc > 1 ? argv[1] : "";
    const int when = argc > 2 ? std::stoi(argv[2]) : 1;
    cudaStream_t stream, other;
    cudaStreamCreate(&stream);
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEvent_t from, to;
    cudaEventCreate(&from);
    cudaEventCreate(&to);
    int *p = nullptr, *q = nullptr, *r = nullptr;
    cudaMallocAsync(&p, count * sizeof(int), stream);
    cudaMallocAsync(&q, count * sizeof(int), stream);
    cudaMallocAsync(&r, count * sizeof(int), stream);
    cudaMemsetAsync(p, 0, count * sizeof(int), stream);
    cudaEventRecord(from, stream);
    produce<<<count / 64, 64, 0, stream>>>(p, mode != "no-trigger");
    if (mode == "synchronized") cudaStreamSynchronize(stream);
    if (mode == "device-synchronized") cudaDeviceSynchronize();
    if (mode == "event") {
        cudaEventRecord(to, stream);
        cudaEventSynchronize(to);
    }
    if (mode == "memset-between") cudaMemsetAsync(r, 0, 4, stream);
    if (mode == "copy-between") cudaMemcpyAsync(r, p, 4, cudaMemcpyDeviceToDevice, stream);
    if (mode == "malloc-between") {
        int *unused = nullptr;
        cudaMalloc(&unused, 64);
    }
    if (mode == "event-recorded-between") cudaEventRecord(to, stream);
    if (mode == "other-stream") {
        cudaEventRecord(to, stream);
        cudaStreamWaitEvent(other, to, 0);
    }
    if (mode == "chain") dependent(stream, true, r, r, 3);
    cudaStream_t second = mode == "other-stream" ? other : stream;
    std::printf("launch %s\n", cudaGetErrorName(dependent(second, mode != "not-allowed", p, q, when)));
    cudaEventRecord(to, stream);
    cudaEventSynchronize(to);
    float ms = -1;
    cudaEventElapsedTime(&ms, from, to);
    std::vector<int> host(count);
    cudaMemcpyAsync(host.data(), q, count * sizeof(int), cudaMemcpyDeviceToHost, stream);
    std::printf("stream %s\n", cudaGetErrorName(cudaStreamSynchronize(stream)));
    bool right = true;
    for (int i = 0; i < count; ++i) right &= host[i] == 2 * (i + 1);
    std::printf("%s, time %d\n", right ? "right" : "wrong", ms > 0);
    cudaFreeAsync(p, stream);
    cudaFreeAsync(q, stream);
    std::printf("free %s\n", cudaGetErrorName(cudaFreeAsync(r, stream)));
    std::printf("twice %s\n", cudaGetErrorName(cudaFreeAsync(r, stream)));
    cudaEventDestroy(from);
    cudaStreamDestroy(stream);
}
