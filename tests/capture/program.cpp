// SPDX-License-Identifier: Apache-2.0
//
// Launches in every way that the recorder has to see. The argument is a file with the PTX of the kernels.
#include <cuda.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

constexpr int n = 48;

int main(int, char **argv) {
    std::stringstream ptx;
    ptx << std::ifstream(argv[1]).rdbuf();
    const std::string text = ptx.str();
    CUmodule module;
    CUfunction scale, through_table, fails;
    CUdeviceptr in, out, other, table;
    cuInit(0);
    cuModuleLoadData(&module, text.c_str());
    cuModuleGetFunction(&scale, module, "scale");
    cuModuleGetFunction(&through_table, module, "through_table");
    cuModuleGetFunction(&fails, module, "fails");
    cuMemAlloc(&in, n * sizeof(float));
    cuMemAlloc(&out, n * sizeof(float) + 64);
    cuMemAlloc(&other, 4096);
    cuMemAlloc(&table, 24);
    std::vector<float> values(n), result(n);
    for (int i = 0; i < n; i++) values[i] = 0.25f * i - 3;
    cuMemcpyHtoD(in, values.data(), n * sizeof(float));

    // Into the middle of an allocation, three times the same.
    CUdeviceptr to = out + 64;
    int count = n;
    float factor = 3;
    void *arguments[] = {&to, &in, &count, &factor};
    for (int i = 0; i < 3; i++) cuLaunchKernel(scale, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr);

    // Arguments in one buffer, and another factor.
    struct {
        CUdeviceptr out, in;
        int n;
        float factor;
    } buffer{out, in, n, -1};
    size_t size = sizeof buffer;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    cuLaunchKernel(scale, 1, 1, 1, 64, 1, 1, 0, nullptr, nullptr, extra);

    // Through pointers in memory, with a cluster.
    const uint64_t row[] = {other, in, n};
    cuMemcpyHtoD(table, row, sizeof row);
    CUlaunchAttribute attribute;
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {2, 1, 1};
    CUlaunchConfig config{2, 1, 1, 64, 1, 1, 128, nullptr, &attribute, 1};
    void *table_argument[] = {&table};
    cuLaunchKernelEx(&config, through_table, table_argument, nullptr);

    // What cannot be recorded: into a graph, and a failure.
    factor = 5;
    cuLaunchKernel(scale, 1, 1, 1, 64, 1, 1, 0, reinterpret_cast<CUstream>(8), arguments, nullptr);
    void *one[] = {&count};
    cuLaunchKernel(fails, 1, 1, 1, 32, 1, 1, 0, nullptr, one, nullptr);

    cuMemcpyDtoH(result.data(), other, n * sizeof(float));
    std::printf("last %g\n", result[n - 1]);
    return 0;
}
