// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for cuBLAS: matrix products over simulated device memory, as a reference that programs check themselves
// against. Everything is synchronous, as in the stand-in of the runtime.

#include <cstring>

#include "gemm.hpp"

struct cublasContext {
    cudaStream_t stream = nullptr;
    cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
};

namespace {

using gemm::Matrix;

// The types that a product has in the table of cublasGemmEx.
bool is_supported(cublasComputeType_t compute, cudaDataType a, cudaDataType b, cudaDataType c) {
    if (a != b) return false;
    switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC: return a == CUDA_R_16F && c == CUDA_R_16F;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC: return a == CUDA_R_8I && c == CUDA_R_32I;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC: return a == CUDA_R_64F && c == CUDA_R_64F;
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
        return c == CUDA_R_32F ? a == CUDA_R_32F || a == CUDA_R_16F || a == CUDA_R_16BF || a == CUDA_R_8I
                               : a == c && (a == CUDA_R_16F || a == CUDA_R_16BF);
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:  // allow less precision, and do not ask for it
    case CUBLAS_COMPUTE_32F_EMULATED_16BFX9: return a == CUDA_R_32F && c == CUDA_R_32F;
    default: return false;
    }
}

bool is_complex(cudaDataType type) { return type == CUDA_C_32F || type == CUDA_C_64F || type == CUDA_C_8I; }

struct Operand {
    const void *data;
    cudaDataType type;
    int64_t ld, stride;
    const void *const *each;
};

struct Call {
    const char *function;
    cublasHandle_t handle;
    cublasOperation_t transa, transb;
    int64_t m, n, k;
    const void *alpha, *beta;
    Operand a, b, c;
    int64_t count;
    cublasComputeType_t compute;
};

Matrix matrix(const Operand &o, int64_t rows, int64_t cols) {
    Matrix made = Matrix::columns(o.data, o.type, rows, cols, o.ld, o.stride);
    made.each = o.each;
    return made;
}

cublasStatus_t run(const Call &call) {
    if (!call.handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    const bool ta = call.transa != CUBLAS_OP_N, tb = call.transb != CUBLAS_OP_N;
    if (call.m < 0 || call.n < 0 || call.k < 0 || call.count < 0 || !call.alpha || !call.beta ||
        call.transa > CUBLAS_OP_C || call.transb > CUBLAS_OP_C ||
        call.a.ld < std::max<int64_t>(1, ta ? call.k : call.m) ||
        call.b.ld < std::max<int64_t>(1, tb ? call.n : call.k) || call.c.ld < std::max<int64_t>(1, call.m))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (is_complex(call.a.type) || is_complex(call.c.type)) porter_unanswered("cublasGemmEx with complex types");
    if (!is_supported(call.compute, call.a.type, call.b.type, call.c.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    gemm::Product product;
    product.function = call.function;
    product.a = ta ? matrix(call.a, call.k, call.m).transposed() : matrix(call.a, call.m, call.k);
    product.b = tb ? matrix(call.b, call.n, call.k).transposed() : matrix(call.b, call.k, call.n);
    product.c = product.d = matrix(call.c, call.m, call.n);
    product.compute = call.compute;
    product.scale_type = gemm::scale_type_of(call.compute);
    product.alpha = call.alpha;
    product.beta = call.beta;
    product.count = call.count;
    return gemm::multiply(product);
}

template <class T> constexpr cudaDataType type_of = CUDA_R_32F;
template <> constexpr cudaDataType type_of<double> = CUDA_R_64F;
template <> constexpr cudaDataType type_of<__half> = CUDA_R_16F;
template <class T> constexpr cublasComputeType_t compute_of = CUBLAS_COMPUTE_32F;
template <> constexpr cublasComputeType_t compute_of<double> = CUBLAS_COMPUTE_64F;
template <> constexpr cublasComputeType_t compute_of<__half> = CUBLAS_COMPUTE_16F;

template <class T> const void *const *pointers(const T *const *each) {
    return reinterpret_cast<const void *const *>(each);
}

cublasStatus_t copied(cudaError_t status) {
    return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

cublasStatus_t copy_matrix(int rows, int cols, int size, const void *a, int lda, void *b, int ldb,
                           cudaMemcpyKind kind) {
    if (rows < 0 || cols < 0 || size <= 0 || lda <= 0 || ldb <= 0) return CUBLAS_STATUS_INVALID_VALUE;
    const auto bytes = [size](int count) { return static_cast<size_t>(count) * static_cast<size_t>(size); };
    return copied(cudaMemcpy2D(b, bytes(ldb), a, bytes(lda), bytes(rows), static_cast<size_t>(cols), kind));
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
    if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
    *handle = new cublasContext;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int *version) {
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void *, size_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    *stream = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}

// Device memory is at its address here, so both kinds of pointers are read alike.
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->pointers = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    *mode = handle->pointers;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t) {
    return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->math = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    *mode = handle->math;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusName(cublasStatus_t status) { return cublasLtGetStatusName(status); }
const char *cublasGetStatusString(cublasStatus_t status) { return cublasLtGetStatusString(status); }

cublasStatus_t cublasSetVector(int n, int size, const void *x, int incx, void *device, int incy) {
    return copy_matrix(1, n, size, x, incx, device, incy, cudaMemcpyHostToDevice);
}

cublasStatus_t cublasGetVector(int n, int size, const void *device, int incx, void *y, int incy) {
    return copy_matrix(1, n, size, device, incx, y, incy, cudaMemcpyDeviceToHost);
}

cublasStatus_t cublasSetMatrix(int rows, int cols, int size, const void *a, int lda, void *b, int ldb) {
    return copy_matrix(rows, cols, size, a, lda, b, ldb, cudaMemcpyHostToDevice);
}

cublasStatus_t cublasGetMatrix(int rows, int cols, int size, const void *a, int lda, void *b, int ldb) {
    return copy_matrix(rows, cols, size, a, lda, b, ldb, cudaMemcpyDeviceToHost);
}

// The functions that the header declares, once with int and once with int64_t.
#undef PORTER_CUBLAS_PRODUCT_OF
#define PORTER_CUBLAS_PRODUCT_OF(Int, T, plain, strided, batched) \
    cublasStatus_t plain(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, Int m, Int n, Int k, \
                         const T *alpha, const T *a, Int lda, const T *b, Int ldb, const T *beta, T *c, Int ldc) { \
        constexpr cudaDataType t = type_of<T>; \
        return run({#plain, handle, ta, tb, m, n, k, alpha, beta, {a, t, lda, 0, nullptr}, {b, t, ldb, 0, nullptr}, \
                    {c, t, ldc, 0, nullptr}, 1, compute_of<T>}); \
    } \
    cublasStatus_t strided(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, Int m, Int n, Int k, \
                           const T *alpha, const T *a, Int lda, long long sa, const T *b, Int ldb, long long sb, \
                           const T *beta, T *c, Int ldc, long long sc, Int count) { \
        constexpr cudaDataType t = type_of<T>; \
        return run({#strided, handle, ta, tb, m, n, k, alpha, beta, {a, t, lda, sa, nullptr}, \
                    {b, t, ldb, sb, nullptr}, {c, t, ldc, sc, nullptr}, count, compute_of<T>}); \
    } \
    cublasStatus_t batched(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, Int m, Int n, Int k, \
                           const T *alpha, const T *const a[], Int lda, const T *const b[], Int ldb, const T *beta, \
                           T *const c[], Int ldc, Int count) { \
        constexpr cudaDataType t = type_of<T>; \
        return run({#batched, handle, ta, tb, m, n, k, alpha, beta, {nullptr, t, lda, 0, pointers(a)}, \
                    {nullptr, t, ldb, 0, pointers(b)}, {nullptr, t, ldc, 0, pointers(c)}, count, compute_of<T>}); \
    }

#define PORTER_CUBLAS_TYPED(Int, suffix) \
    PORTER_CUBLAS_PRODUCT_OF(Int, float, cublasSgemm_v2##suffix, cublasSgemmStridedBatched##suffix, \
                             cublasSgemmBatched##suffix) \
    PORTER_CUBLAS_PRODUCT_OF(Int, double, cublasDgemm_v2##suffix, cublasDgemmStridedBatched##suffix, \
                             cublasDgemmBatched##suffix) \
    PORTER_CUBLAS_PRODUCT_OF(Int, __half, cublasHgemm##suffix, cublasHgemmStridedBatched##suffix, \
                             cublasHgemmBatched##suffix) \
    cublasStatus_t cublasSgemmEx##suffix(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, Int m, \
                                         Int n, Int k, const float *alpha, const void *a, cudaDataType at, Int lda, \
                                         const void *b, cudaDataType bt, Int ldb, const float *beta, void *c, \
                                         cudaDataType ct, Int ldc) { \
        return run({"cublasSgemmEx", handle, ta, tb, m, n, k, alpha, beta, {a, at, lda, 0, nullptr}, \
                    {b, bt, ldb, 0, nullptr}, {c, ct, ldc, 0, nullptr}, 1, CUBLAS_COMPUTE_32F}); \
    } \
    cublasStatus_t cublasGemmEx##suffix(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, Int m, \
                                        Int n, Int k, const void *alpha, const void *a, cudaDataType at, Int lda, \
                                        const void *b, cudaDataType bt, Int ldb, const void *beta, void *c, \
                                        cudaDataType ct, Int ldc, cublasComputeType_t compute, cublasGemmAlgo_t) { \
        return run({"cublasGemmEx", handle, ta, tb, m, n, k, alpha, beta, {a, at, lda, 0, nullptr}, \
                    {b, bt, ldb, 0, nullptr}, {c, ct, ldc, 0, nullptr}, 1, compute}); \
    } \
    cublasStatus_t cublasGemmStridedBatchedEx##suffix( \
        cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, Int m, Int n, Int k, const void *alpha, \
        const void *a, cudaDataType at, Int lda, long long sa, const void *b, cudaDataType bt, Int ldb, long long sb, \
        const void *beta, void *c, cudaDataType ct, Int ldc, long long sc, Int count, cublasComputeType_t compute, \
        cublasGemmAlgo_t) { \
        return run({"cublasGemmStridedBatchedEx", handle, ta, tb, m, n, k, alpha, beta, {a, at, lda, sa, nullptr}, \
                    {b, bt, ldb, sb, nullptr}, {c, ct, ldc, sc, nullptr}, count, compute}); \
    } \
    cublasStatus_t cublasGemmBatchedEx##suffix( \
        cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, Int m, Int n, Int k, const void *alpha, \
        const void *const a[], cudaDataType at, Int lda, const void *const b[], cudaDataType bt, Int ldb, \
        const void *beta, void *const c[], cudaDataType ct, Int ldc, Int count, cublasComputeType_t compute, \
        cublasGemmAlgo_t) { \
        return run({"cublasGemmBatchedEx", handle, ta, tb, m, n, k, alpha, beta, {nullptr, at, lda, 0, a}, \
                    {nullptr, bt, ldb, 0, b}, {nullptr, ct, ldc, 0, pointers(c)}, count, compute}); \
    }
PORTER_CUBLAS_TYPED(int, )
PORTER_CUBLAS_TYPED(int64_t, _64)

}  // extern "C"
