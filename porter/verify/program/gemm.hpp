// SPDX-License-Identifier: Apache-2.0
//
// Matrix products on the host, for the stand-ins of cuBLAS and cuBLASLt.
//
// D = epilogue(alpha * op(A) * op(B) + beta * C). A sum of products is taken in double precision, where each product of
// types up to float is exact, and rounded once to the compute type; the libraries add in an order of their own and
// round at each step, so results differ from a GPU's by the rounding of its sums. alpha and beta are applied in the
// compute type, and the result is rounded once to the type of D.
#pragma once

#include <cstdint>
#include <functional>

#include "porter_cublas.h"

extern "C" {
[[noreturn]] void porter_unanswered(const char *function);
bool porter_device_memory(const void *p, size_t size);
}

namespace gemm {

// A matrix in memory, of one or more products. The element (row, col) of product i is at
// row * row_step + col * col_step + i * stride elements; for products given by pointers, `each` has theirs.
struct Matrix {
    const void *data = nullptr;
    cudaDataType type = CUDA_R_32F;
    int64_t rows = 0, cols = 0, row_step = 1, col_step = 0, stride = 0;
    const void *const *each = nullptr;

    static Matrix columns(const void *data, cudaDataType type, int64_t rows, int64_t cols, int64_t ld,
                          int64_t stride = 0) {
        return {data, type, rows, cols, 1, ld, stride, nullptr};
    }
    Matrix transposed() const { return {data, type, cols, rows, col_step, row_step, stride, each}; }
    const char *of(int64_t product) const;
};

constexpr auto fp4 = static_cast<cudaDataType>(33);  // CUDA_R_4F_E2M1, which older toolkits have not

// What an element of an operand is multiplied with: that of row i of A, or column i of B, at k.
using Factors = std::function<double(int64_t i, int64_t k)>;
// What the sum at (row, col) is multiplied with besides alpha.
using Scale = std::function<float(int64_t row, int64_t col)>;
// What becomes of a value in compute precision at (row, col) of product i.
using Epilogue = std::function<double(double value, int64_t row, int64_t col, int64_t product)>;

struct Product {
    const char *function;
    Matrix a, b, c, d;  // a is m x k and b is k x n as multiplied
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    cudaDataType scale_type = CUDA_R_32F;
    const void *alpha = nullptr, *beta = nullptr;  // of scale_type
    int64_t count = 1;
    Factors a_factors, b_factors;
    Scale scale;
    Epilogue epilogue;
};

size_t bits_of(cudaDataType type);  // of an element; 0 for a type that is not known here
double load(const void *data, cudaDataType type, int64_t index);
void store(void *data, cudaDataType type, int64_t index, double value);
// Whether a whole matrix lies in device memory; says on standard error where one does not.
bool in_device_memory(const char *function, const char *name, const Matrix &matrix, int64_t count);
cudaDataType scale_type_of(cublasComputeType_t compute);
cublasStatus_t multiply(const Product &product);

}  // namespace gemm
