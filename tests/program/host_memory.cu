// SPDX-License-Identifier: Apache-2.0
// Memory beyond cudaMalloc, variables, cooperative launches, the driver: test_program_memory.py says what is printed.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_runtime.h>

static const char *name(cudaError_t e) { return cudaGetErrorName(e); }

__device__ int counter = 3;
__device__ int *pointer_to_counter = &counter;
__constant__ float factors[4] = {1, 2, 3, 4};
__managed__ int shared_with_host = 40;

__global__ void count(int *out) { out[0] = ++*pointer_to_counter; }
__global__ void scale(float *p) { p[threadIdx.x] *= factors[threadIdx.x]; }
__global__ void add_two() { shared_with_host += 2; }
__global__ void twice(int *p, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] *= 2;
}

// Every block writes, all meet, every block sums what all have written.
__global__ void all_to_all(int *parts, int *sums) {
    auto grid = cooperative_groups::this_grid();
    for (int round = 0; round < 3; ++round) {
        if (threadIdx.x == 0) parts[blockIdx.x] = (round + 1) * (blockIdx.x + 1);
        grid.sync();
        if (threadIdx.x == 0) {
            int sum = 0;
            for (int b = 0; b < gridDim.x; ++b) sum += parts[b];
            sums[blockIdx.x] = sum;
        }
        grid.sync();
    }
}

static void symbols() {
    int *out = nullptr, value = 0;
    cudaMalloc(&out, sizeof(int));
    for (int i = 0; i < 2; ++i) count<<<1, 1>>>(out);
    cudaMemcpyFromSymbol(&value, counter, sizeof value);
    printf("counted %d\n", value);
    value = 10;
    cudaMemcpyToSymbol(counter, &value, sizeof value);
    count<<<1, 1>>>(out);
    void *address = nullptr;
    size_t size = 0;
    cudaGetSymbolAddress(&address, counter);
    cudaGetSymbolSize(&size, counter);
    cudaMemcpy(&value, address, size, cudaMemcpyDeviceToHost);
    printf("then %d of %zu bytes\n", value, size);

    const float doubled[2] = {20, 30};
    cudaMemcpyToSymbol(factors, doubled, sizeof doubled, sizeof(float));
    std::vector<float> host(4, 1.0f);
    float *p = nullptr;
    cudaMalloc(&p, 16);
    cudaMemcpy(p, host.data(), 16, cudaMemcpyHostToDevice);
    scale<<<1, 4>>>(p);
    cudaMemcpy(host.data(), p, 16, cudaMemcpyDeviceToHost);
    printf("factors %g %g %g %g\n", host[0], host[1], host[2], host[3]);
    printf("past the end %s\n", name(cudaMemcpyToSymbol(factors, doubled, sizeof doubled, 12)));
}

static void managed() {
    shared_with_host += 1;
    add_two<<<1, 1>>>();
    cudaDeviceSynchronize();
    printf("managed %d\n", shared_with_host);
}

static void registered() {
    std::vector<int> host(3000);
    for (int i = 0; i < 3000; ++i) host[i] = i;
    int *device = nullptr;
    printf("before %s\n", name(cudaHostGetDevicePointer(&device, host.data(), 0)));
    cudaGetLastError();
    printf("register %s\n", name(cudaHostRegister(host.data(), 3000 * sizeof(int), cudaHostRegisterMapped)));
    printf("again %s\n", name(cudaHostRegister(host.data() + 10, 4, cudaHostRegisterMapped)));
    cudaGetLastError();
    cudaHostGetDevicePointer(&device, host.data(), 0);
    twice<<<1, 128>>>(device, 3000);
    printf("doubled %d %d\n", host[1], host[2999]);
    host[1] = 100;
    twice<<<1, 128>>>(device, 2);
    printf("unregister %s %d\n", name(cudaHostUnregister(host.data())), host[1]);
    twice<<<1, 128>>>(device, 2);
    printf("later %s %d\n", name(cudaDeviceSynchronize()), host[1]);
}

static void cooperative(int blocks) {
    int *parts = nullptr, *sums = nullptr;
    cudaMalloc(&parts, blocks * sizeof(int));
    cudaMalloc(&sums, blocks * sizeof(int));
    void *args[] = {&parts, &sums};
    printf("launch %s\n", name(cudaLaunchCooperativeKernel(all_to_all, dim3(blocks), dim3(64), args, 0, nullptr)));
    std::vector<int> host(blocks);
    if (cudaMemcpy(host.data(), sums, blocks * sizeof(int), cudaMemcpyDeviceToHost) == cudaSuccess)
        printf("sums %d %d\n", host[0], host[blocks - 1]);
}

static void pitched() {
    char *p = nullptr;
    size_t pitch = 0;
    cudaMallocPitch(&p, &pitch, 100, 3);
    cudaMemset2D(p, pitch, 7, 100, 3);
    char rows[3][100] = {};
    cudaMemcpy2D(rows, 100, p, pitch, 100, 3, cudaMemcpyDeviceToHost);
    unsigned char gap = 0;
    cudaMemcpy(&gap, p + 100, 1, cudaMemcpyDeviceToHost);
    printf("pitch %d value %d gap %x\n", pitch >= 100, rows[2][99], gap);
}

static void driver() {
    CUdevice device;
    CUdeviceptr p = 0;
    int sms = 0;
    unsigned words[5] = {};
    char text[64];
    printf("%d %d", cuInit(0), cuDeviceGet(&device, 0));
    cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    cuDeviceGetName(text, sizeof text, device);
    cuMemAlloc(&p, sizeof words);
    cuMemsetD32(p, 0x1234, 5);
    cuMemsetD32Async(p + 4, 0x1111, 1, nullptr);
    twice<<<1, 32>>>(reinterpret_cast<int *>(p), 5);
    cuMemcpyDtoH(words, p, sizeof words);
    printf(" %d multiprocessors of %s, %x %x %x\n", sms, text, words[0], words[1], words[4]);
    printf("free %d", cuMemFree(p));
    printf(" twice %d\n", cuMemFree(p));
}

int main(int argc, char **argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "symbols") symbols();
    if (mode == "managed") managed();
    if (mode == "registered") registered();
    if (mode == "cooperative") cooperative(std::stoi(argv[2]));
    if (mode == "pitched") pitched();
    if (mode == "driver") driver();
    if (mode == "host-function") {
        int seen = 0;
        cudaLaunchHostFunc(nullptr, [](void *p) { *static_cast<int *>(p) = 5; }, &seen);
        printf("seen %d\n", seen);
    }
    if (mode == "module") {
        CUmodule module;
        cuModuleLoad(&module, "kernel.cubin");
        printf("not reached\n");
    }
    return 0;
}
