// SPDX-License-Identifier: Apache-2.0

#include "gemm.hpp"

#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

namespace gemm {

namespace {

__nv_fp8_interpretation_t fp8(cudaDataType type) { return type == CUDA_R_8F_E4M3 ? __NV_E4M3 : __NV_E5M2; }

// A sum of products rounded to the type that the library adds in.
double accumulator(double sum, cublasComputeType_t compute) {
    switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC: return __half2float(__float2half_rn(static_cast<float>(sum)));
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC: return sum;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:  // wraps
        return static_cast<int32_t>(static_cast<uint32_t>(static_cast<int64_t>(sum)));
    default: return static_cast<float>(sum);
    }
}

// alpha * sum + beta * c, as the libraries' epilogues have it: the second product first, then a fused multiply-add.
double combined(double alpha, double sum, double beta, double c, cudaDataType type) {
    const bool reads_c = beta != 0;
    switch (type) {
    case CUDA_R_64F: return std::fma(alpha, sum, reads_c ? beta * c : 0);
    case CUDA_R_32I:
        return static_cast<int32_t>(static_cast<uint32_t>(static_cast<int64_t>(alpha) * static_cast<int64_t>(sum) +
                                                          (reads_c ? static_cast<int64_t>(beta * c) : 0)));
    default:
        return std::fmaf(static_cast<float>(alpha), static_cast<float>(sum),
                         reads_c ? static_cast<float>(beta) * static_cast<float>(c) : 0.0f);
    }
}

constexpr int64_t tile_rows = 4, tile_cols = 16;

// sums[i][j] += a[i][k] * b[k][j]: vectors run along j, so each sum is taken in the order of k.
__attribute__((target_clones("avx2", "default"))) void tile(const double *a, const double *b, int64_t k,
                                                            double (&sums)[tile_rows][tile_cols]) {
    for (int64_t p = 0; p < k; ++p)
        for (int64_t i = 0; i < tile_rows; ++i)
            for (int64_t j = 0; j < tile_cols; ++j) sums[i][j] += a[p * tile_rows + i] * b[p * tile_cols + j];
}

// An operand as tiles of `width` rows (of A) or columns (of B), each with its elements in order of k.
std::vector<double> packed(const Matrix &matrix, int64_t product, int64_t width, const Factors &factors) {
    const int64_t outer = matrix.rows, k = matrix.cols, tiles = (outer + width - 1) / width;
    std::vector<double> all(static_cast<size_t>(tiles * width * k), 0.0);
    const char *data = matrix.of(product);
    for (int64_t o = 0; o < outer; ++o)
        for (int64_t p = 0; p < k; ++p)
            all[static_cast<size_t>((o / width * k + p) * width + o % width)] =
                load(data, matrix.type, o * matrix.row_step + p * matrix.col_step) * (factors ? factors(o, p) : 1);
    return all;
}

}  // namespace

const char *Matrix::of(int64_t product) const {
    if (each) return static_cast<const char *>(each[product]);
    return static_cast<const char *>(data) + product * stride * static_cast<int64_t>(bits_of(type)) / 8;
}

size_t bits_of(cudaDataType type) {
    if (type == fp4) return 4;
    switch (type) {
    case CUDA_R_64F: return 64;
    case CUDA_R_32F:
    case CUDA_R_32I: return 32;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 16;
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
    case CUDA_R_8I: return 8;
    default: return 0;
    }
}

double load(const void *data, cudaDataType type, int64_t index) {
    if (type == fp4) {
        constexpr double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
        const int code = static_cast<const uint8_t *>(data)[index / 2] >> index % 2 * 4;
        return code & 8 ? -values[code & 7] : values[code & 7];
    }
    switch (type) {
    case CUDA_R_64F: return static_cast<const double *>(data)[index];
    case CUDA_R_32F: return static_cast<const float *>(data)[index];
    case CUDA_R_32I: return static_cast<const int32_t *>(data)[index];
    case CUDA_R_16F: return __half2float(static_cast<const __half *>(data)[index]);
    case CUDA_R_16BF: return __bfloat162float(static_cast<const __nv_bfloat16 *>(data)[index]);
    case CUDA_R_8I: return static_cast<const int8_t *>(data)[index];
    default: {
        const auto byte = static_cast<const __nv_fp8_storage_t *>(data)[index];
        return __half2float(__half(__nv_cvt_fp8_to_halfraw(byte, fp8(type))));
    }
    }
}

void store(void *data, cudaDataType type, int64_t index, double value) {
    switch (type) {
    case CUDA_R_64F: static_cast<double *>(data)[index] = value; break;
    case CUDA_R_32F: static_cast<float *>(data)[index] = static_cast<float>(value); break;
    case CUDA_R_32I: static_cast<int32_t *>(data)[index] = static_cast<int32_t>(value); break;
    case CUDA_R_16F: static_cast<__half *>(data)[index] = __float2half_rn(static_cast<float>(value)); break;
    case CUDA_R_16BF: static_cast<__nv_bfloat16 *>(data)[index] = __float2bfloat16_rn(static_cast<float>(value)); break;
    case CUDA_R_8I:
        static_cast<int8_t *>(data)[index] = static_cast<int8_t>(std::clamp(std::nearbyint(value), -128.0, 127.0));
        break;
    default:
        static_cast<__nv_fp8_storage_t *>(data)[index] =
            __nv_cvt_float_to_fp8(static_cast<float>(value), __NV_SATFINITE, fp8(type));
    }
}

bool in_device_memory(const char *function, const char *name, const Matrix &matrix, int64_t count) {
    if (!matrix.rows || !matrix.cols) return true;
    const int64_t last = (matrix.rows - 1) * matrix.row_step + (matrix.cols - 1) * matrix.col_step;
    const auto size = static_cast<size_t>(((last + 1) * static_cast<int64_t>(bits_of(matrix.type)) + 7) / 8);
    for (int64_t i = 0; i < count; ++i)
        if (!porter_device_memory(matrix.of(i), size)) {
            std::fprintf(stderr, "porter: %s: the %zu bytes of matrix %s at %p are not device memory of one allocation\n",
                         function, size, name, static_cast<const void *>(matrix.of(i)));
            return false;
        }
    return true;
}

cudaDataType scale_type_of(cublasComputeType_t compute) {
    switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC: return CUDA_R_16F;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC: return CUDA_R_64F;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC: return CUDA_R_32I;
    default: return CUDA_R_32F;
    }
}

cublasStatus_t multiply(const Product &p) {
    if (cudaDeviceSynchronize() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
    const int64_t m = p.d.rows, n = p.d.cols, k = p.a.cols;
    if (!m || !n || !p.count) return CUBLAS_STATUS_SUCCESS;
    const double alpha = load(p.alpha, p.scale_type, 0), beta = load(p.beta, p.scale_type, 0);
    const bool multiplies = alpha != 0 && k > 0;
    if (multiplies && (!in_device_memory(p.function, "A", p.a, p.count) || !in_device_memory(p.function, "B", p.b, p.count)))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if ((beta != 0 && !in_device_memory(p.function, "C", p.c, p.count)) ||
        !in_device_memory(p.function, "D", p.d, p.count))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    for (int64_t product = 0; product < p.count; ++product) {
        std::vector<double> a, b;
        if (multiplies) {
            a = packed(p.a, product, tile_rows, p.a_factors);
            b = packed(p.b.transposed(), product, tile_cols, p.b_factors);
        }
        const char *c = p.c.of(product);
        auto *d = const_cast<char *>(p.d.of(product));
        for (int64_t col = 0; col < n; col += tile_cols)
            for (int64_t row = 0; row < m; row += tile_rows) {
                double sums[tile_rows][tile_cols] = {};
                if (multiplies) tile(a.data() + row * k, b.data() + col * k, k, sums);
                for (int64_t j = 0; j < std::min(tile_cols, n - col); ++j)
                    for (int64_t i = 0; i < std::min(tile_rows, m - row); ++i) {
                        const int64_t r = row + i, s = col + j;
                        double old = 0;
                        if (beta != 0) old = load(c, p.c.type, r * p.c.row_step + s * p.c.col_step);
                        const double factor = p.scale ? static_cast<float>(alpha * p.scale(r, s)) : alpha;
                        double value = combined(factor, accumulator(sums[i][j], p.compute), beta, old, p.scale_type);
                        if (p.epilogue) value = p.epilogue(value, r, s, product);
                        store(d, p.d.type, r * p.d.row_step + s * p.d.col_step, value);
                    }
            }
    }
    return CUBLAS_STATUS_SUCCESS;
}

}  // namespace gemm
