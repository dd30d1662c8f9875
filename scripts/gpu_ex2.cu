// SPDX-License-Identifier: Apache-2.0
// Records `ex2.approx.f32` of a Hopper GPU for porter/sim/datapath/ex2.py:
//
//     nvcc -O2 -arch=sm_90a -o gpu_ex2 scripts/gpu_ex2.cu && ./gpu_ex2 FOLDER
//
// ex2.words holds the 2^23 results for arguments in [1, 2), the significands of 2^fraction. ex2.pairs and
// ex2n.pairs hold 2^20 (argument, result) pairs each, with `.ftz` and without; a test has digests of them.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

__global__ void ex2(const uint32_t* in, uint32_t* out, int n, bool ftz) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float x = __uint_as_float(in[i]);
    float y;
    if (ftz) {
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    } else {
        asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    }
    out[i] = __float_as_uint(y);
}

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    const int kFractions = 1 << 23, kPairs = 1 << 20;
    uint32_t *in, *out;
    if (cudaMalloc(&in, 4u * kFractions) != cudaSuccess || cudaMalloc(&out, 4u * kFractions) != cudaSuccess) return 1;
    const auto run = [&](const std::vector<uint32_t>& arguments, bool ftz) {
        std::vector<uint32_t> results(arguments.size());
        cudaMemcpy(in, arguments.data(), 4 * arguments.size(), cudaMemcpyHostToDevice);
        ex2<<<(arguments.size() + 255) / 256, 256>>>(in, out, int(arguments.size()), ftz);
        cudaMemcpy(results.data(), out, 4 * results.size(), cudaMemcpyDeviceToHost);
        return results;
    };
    const auto save = [&](const char* name, const std::vector<uint32_t>& words) {
        FILE* file = std::fopen((std::string(argv[1]) + "/" + name).c_str(), "wb");
        std::fwrite(words.data(), 4, words.size(), file);
        std::fclose(file);
    };
    std::vector<uint32_t> arguments(kFractions);
    for (int i = 0; i < kFractions; ++i) arguments[i] = 0x3f800000u | i;
    save("ex2.words", run(arguments, true));
    uint64_t state = 88172645463325252ull;
    const auto random = [&] {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return uint32_t(state >> 16);
    };
    for (const bool ftz : {true, false}) {
        arguments.assign(kPairs, 0);
        for (uint32_t& argument : arguments) {
            const uint32_t bits = random();
            argument = (bits & 0x807fffffu) | ((random() % 44 + 92) << 23);  // 2^-35 to 2^9
        }
        const std::vector<uint32_t> results = run(arguments, ftz);
        std::vector<uint32_t> pairs;
        for (int i = 0; i < kPairs; ++i) pairs.insert(pairs.end(), {arguments[i], results[i]});
        save(ftz ? "ex2.pairs" : "ex2n.pairs", pairs);
    }
    std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
