// SPDX-License-Identifier: Apache-2.0
// One mode per behaviour of the runtime stand-in; test_program_host.py says what each must print.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>

__global__ void scale_add(const float *x, float *y, float a, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

__global__ void copy(const float *x, float *y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

__global__ void write_past_end(int *p, int n) { p[n + threadIdx.x] = 1; }

__global__ void say(int number) {
#ifdef __CUDA_ARCH__
    if (threadIdx.x == 0) printf("kernel says %d on %d\n", number, __CUDA_ARCH__);
#endif
}

__global__ void first_byte_of_shared(int *out) {
    extern __shared__ int scratch[];
    scratch[threadIdx.x] = threadIdx.x + 5;
    __syncthreads();
    out[threadIdx.x] = scratch[blockDim.x - 1 - threadIdx.x];
}

__global__ void __launch_bounds__(64) cluster_rank(int *out) {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) out[blockIdx.x] = static_cast<int>(rank);
}

// Two warps write and read the same words with nothing in between.
__global__ void race(int *out) {
    __shared__ int words[32];
    if (threadIdx.x < 32) words[threadIdx.x] = threadIdx.x;
    if (threadIdx.x >= 32) out[threadIdx.x - 32] = words[threadIdx.x - 32];
}

__device__ int device_counter = 3;
__global__ void count(int *out) { out[0] = ++device_counter; }

static const char *name(cudaError_t e) { return cudaGetErrorName(e); }

template <class T> T *device_array(std::vector<T> const &host) {
    T *p = nullptr;
    cudaMalloc(&p, host.size() * sizeof(T));
    cudaMemcpy(p, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice);
    return p;
}

static void run_scale_add(int times, bool accumulate) {
    const int n = 1000;
    std::vector<float> x(n), y(n, 1.0f);
    for (int i = 0; i < n; ++i) x[i] = static_cast<float>(i);
    float *dx = device_array(x), *dy = device_array(y);
    for (int t = 0; t < times; ++t) {
        if (accumulate)
            scale_add<<<(n + 255) / 256, 256>>>(dx, dy, 2.0f, n);
        else
            copy<<<(n + 255) / 256, 256>>>(dx, dy, n);
    }
    printf("sync %s\n", name(cudaDeviceSynchronize()));
    cudaMemcpy(y.data(), dy, n * sizeof(float), cudaMemcpyDeviceToHost);
    double sum = 0;
    for (float v : y) sum += v;
    printf("sum %.1f last %.1f\n", sum, y[n - 1]);
    cudaFree(dx);
    cudaFree(dy);
}

static void run_tensor_map(int box) {
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
    void *data = nullptr;
    cudaMalloc(&data, 256 * 192 * 2);
    CUtensorMap map;
    const cuuint64_t sizes[2] = {192, 256}, strides[1] = {192 * 2};
    const cuuint32_t boxes[2] = {64, static_cast<cuuint32_t>(box)}, ones[2] = {1, 1};
    const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, sizes, strides, boxes, ones,
                                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    printf("result %d address %p\n", result, data);
    if (result == CUDA_SUCCESS)
        for (size_t i = 0; i < sizeof map; ++i) printf("%02x", reinterpret_cast<unsigned char *>(&map)[i]);
    printf("\n");
}

static void run_pixel_map(const std::string &form) {
    void *data = nullptr;
    cudaMalloc(&data, 32 * 9 * 7 * 3 * 2);
    CUtensorMap map;
    const cuuint64_t sizes[4] = {32, 9, 7, 3}, strides[3] = {64, 64 * 9, 64 * 9 * 7};
    const cuuint32_t steps[4] = {1, 2, 1, 1};
    const int lower[2] = {-1, -2}, upper[2] = {1, 0};
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    const char *function = form == "im2col" ? "cuTensorMapEncodeIm2col" : "cuTensorMapEncodeIm2colWide";
    cudaGetDriverEntryPointByVersion(function, &entry, 12080, cudaEnableDefault, &found);
    CUresult result;
    if (form == "im2col")
        result = reinterpret_cast<decltype(&cuTensorMapEncodeIm2col)>(entry)(
            &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, data, sizes, strides, lower, upper, 32, 64, steps,
            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    else
        result = reinterpret_cast<decltype(&cuTensorMapEncodeIm2colWide)>(entry)(
            &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, data, sizes, strides, -1, 1, 32, 64, steps,
            CU_TENSOR_MAP_INTERLEAVE_NONE,
            form == "w" ? CU_TENSOR_MAP_IM2COL_WIDE_MODE_W : CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128,
            form == "unswizzled" ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_64B,
            CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    printf("result %d address %p\n", result, data);
    if (result == CUDA_SUCCESS)
        for (size_t i = 0; i < sizeof map; ++i) printf("%02x", reinterpret_cast<unsigned char *>(&map)[i]);
    printf("\n");
}

static void run_clusters(int blocks) {
    int *out = device_array(std::vector<int>(blocks, -1));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(64);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = 2;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    printf("launch %s\n", name(cudaLaunchKernelEx(&config, cluster_rank, out)));
    std::vector<int> ranks(blocks);
    cudaMemcpy(ranks.data(), out, blocks * sizeof(int), cudaMemcpyDeviceToHost);
    for (int r : ranks) printf("%d ", r);
    printf("\n");
}

static void run_dynamic_shared() {
    int *out = device_array(std::vector<int>(32, -1));
    const int bytes = 64 * 1024;
    first_byte_of_shared<<<1, 32, bytes>>>(out);
    printf("without %s\n", name(cudaGetLastError()));
    printf("too much %s\n",
           name(cudaFuncSetAttribute(first_byte_of_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20)));
    cudaGetLastError();
    cudaFuncSetAttribute(first_byte_of_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    first_byte_of_shared<<<1, 32, bytes>>>(out);
    printf("with %s\n", name(cudaGetLastError()));
    int first = 0;
    cudaMemcpy(&first, out, sizeof first, cudaMemcpyDeviceToHost);
    printf("first %d\n", first);
}

int main(int argc, char **argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "accumulate") run_scale_add(3, true);
    if (mode == "repeat") run_scale_add(5, false);
    if (mode == "tensor-map") run_tensor_map(std::stoi(argv[2]));
    if (mode == "pixel-map") run_pixel_map(argv[2]);
    if (mode == "clusters") run_clusters(std::stoi(argv[2]));
    if (mode == "dynamic-shared") run_dynamic_shared();
    if (mode == "copies") {
        int *p = nullptr, value = 0;
        cudaMalloc(&p, 100);
        cudaMemcpy(&value, p + 24, 4, cudaMemcpyDeviceToHost);
        printf("fresh %08x\n", value);
        printf("past the end %s\n", name(cudaMemcpy(&value, p + 25, 4, cudaMemcpyDeviceToHost)));
        printf("host as device %s\n", name(cudaMemcpy(&value, &argc, 4, cudaMemcpyDeviceToHost)));
        printf("last %s\n", name(cudaGetLastError()));
        printf("then %s\n", name(cudaGetLastError()));
        cudaFree(p);
        printf("free twice %s\n", name(cudaFree(p)));
        printf("too much memory %s\n", name(cudaMalloc(&p, size_t(1) << 40)));
    }
    if (mode == "fault") {
        int *p = device_array(std::vector<int>(10, 0));
        write_past_end<<<1, 32>>>(p, 10);
        printf("sync %s\n", name(cudaDeviceSynchronize()));
        cudaGetLastError();
        printf("later %s\n", name(cudaMalloc(&p, 4)));
    }
    if (mode == "print") {
        printf("before\n");
        say<<<2, 32>>>(7);
        printf("after\n");
        printf("last %s\n", name(cudaGetLastError()));
    }
    if (mode == "device") {
        cudaDeviceProp p;
        int count = 0, shared = 0;
        cudaGetDeviceCount(&count);
        cudaGetDeviceProperties(&p, 0);
        cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
        printf("count %d capability %d.%d shared %d threads %d multiprocessors %d\n", count, p.major, p.minor, shared,
               p.maxThreadsPerBlock, p.multiProcessorCount);
        cudaFuncAttributes a;
        cudaFuncGetAttributes(&a, cluster_rank);
        printf("bound %d second device %s\n", a.maxThreadsPerBlock, name(cudaSetDevice(1)));
    }
    if (mode == "events") {
        cudaEvent_t from, to;
        float ms = -1;
        cudaEventCreate(&from);
        cudaEventCreate(&to);
        cudaEventRecord(from);
        printf("unrecorded %s\n", name(cudaEventElapsedTime(&ms, from, to)));
        cudaEventRecord(to);
        cudaEventElapsedTime(&ms, from, to);
        printf("positive %d\n", ms > 0);
    }
    if (mode == "variable") {
        int *p = device_array(std::vector<int>(1, 0)), value = 0;
        for (int i = std::stoi(argv[2]); i > 0; --i) count<<<1, 1>>>(p);
        cudaMemcpy(&value, p, sizeof value, cudaMemcpyDeviceToHost);
        printf("counted %d\n", value);
    }
    if (mode == "graph") {
        cudaGraph_t graph;
        cudaGraphCreate(&graph, 0);
        printf("not reached\n");
    }
    if (mode == "driver") {
        void *entry = nullptr;
        cudaDriverEntryPointQueryResult found;
        cudaGetDriverEntryPointByVersion("cuCtxPopCurrent", &entry, 12000, cudaEnableDefault, &found);
        printf("looked up\n");
        CUcontext context;
        reinterpret_cast<CUresult (*)(CUcontext *)>(entry)(&context);
        printf("not reached\n");
    }
    if (mode == "race") {
        int *p = device_array(std::vector<int>(32, 0));
        race<<<1, 64>>>(p);
        printf("raced %s\n", name(cudaDeviceSynchronize()));
    }
    if (mode == "echo") {
        char word[32] = "";
        if (scanf("%31s", word) == 1) printf("read %s\n", word);
    }
    if (mode == "arguments")
        for (int i = 2; i < argc; ++i) printf("%s%c", argv[i], i + 1 < argc ? ' ' : '\n');
    if (mode == "abort") {
        cudaFree(nullptr);
        abort();
    }
    if (mode == "status") {
        cudaFree(nullptr);
        return std::stoi(argv[2]);
    }
    if (mode == "silent")
        for (;;) {
        }
    return mode.empty() ? 3 : 0;
}
