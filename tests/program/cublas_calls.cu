// SPDX-License-Identifier: Apache-2.0
// Matrix products by way of cuBLAS and cuBLASLt; test_program_cublas.py computes the same with NumPy.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

__global__ void negate(float *p, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] = -p[i];
}

static std::map<std::string, std::string> options;
static long number(const char *name, long otherwise = 0) {
    return options.count(name) ? std::strtol(options[name].c_str(), nullptr, 10) : otherwise;
}
static double real(const char *name, double otherwise) {
    return options.count(name) ? std::atof(options[name].c_str()) : otherwise;
}

struct Type {
    cudaDataType type;
    size_t size;
};
static const std::map<std::string, Type> types = {
    {"f64", {CUDA_R_64F, 8}}, {"f32", {CUDA_R_32F, 4}},     {"f16", {CUDA_R_16F, 2}},     {"bf16", {CUDA_R_16BF, 2}},
    {"i8", {CUDA_R_8I, 1}},   {"i32", {CUDA_R_32I, 4}},     {"e4m3", {CUDA_R_8F_E4M3, 1}}, {"e5m2", {CUDA_R_8F_E5M2, 1}},
};
static const std::map<std::string, cublasComputeType_t> computes = {
    {"f16", CUBLAS_COMPUTE_16F}, {"f32", CUBLAS_COMPUTE_32F}, {"f64", CUBLAS_COMPUTE_64F}, {"i32", CUBLAS_COMPUTE_32I},
    {"tf32", CUBLAS_COMPUTE_32F_FAST_TF32},
};

static void put(std::vector<char> &bytes, Type t, size_t i, double value) {
    char *p = bytes.data() + i * t.size;
    const auto copy = [&](auto v) { std::memcpy(p, &v, sizeof v); };
    if (t.type == CUDA_R_64F) copy(value);
    if (t.type == CUDA_R_32F) copy(static_cast<float>(value));
    if (t.type == CUDA_R_16F) copy(__float2half(static_cast<float>(value)));
    if (t.type == CUDA_R_16BF) copy(__float2bfloat16(static_cast<float>(value)));
    if (t.type == CUDA_R_8I) copy(static_cast<signed char>(value));
    if (t.type == CUDA_R_32I) copy(static_cast<int>(value));
    if (t.type == CUDA_R_8F_E4M3) copy(__nv_fp8_e4m3(static_cast<float>(value)));
    if (t.type == CUDA_R_8F_E5M2) copy(__nv_fp8_e5m2(static_cast<float>(value)));
}

// Element i of an array is ((i * step) % 13 - 6) * unit; beyond what is used it is the same.
static void *filled(Type t, size_t count, int step, double unit) {
    std::vector<char> bytes(count * t.size);
    for (size_t i = 0; i < count; ++i) put(bytes, t, i, (static_cast<double>(i * step % 13) - 6) * unit);
    void *p = nullptr;
    cudaMalloc(&p, bytes.size());
    cudaMemcpy(p, bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
    return p;
}

static void print(const void *p, size_t bytes) {
    std::vector<unsigned char> host(bytes);
    if (cudaMemcpy(host.data(), p, bytes, cudaMemcpyDeviceToHost) != cudaSuccess) std::printf("copy failed\n");
    for (unsigned char b : host) std::printf("%02x", b);
    std::printf("\n");
}

static const void *scalar(Type t, double value, bool on_device) {
    static std::vector<std::vector<char>> kept;
    std::vector<char> bytes(8);
    put(bytes, t, 0, value);
    if (!on_device) {
        kept.push_back(bytes);
        return kept.back().data();
    }
    void *p = nullptr;
    cudaMalloc(&p, bytes.size());
    cudaMemcpy(p, bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
    return p;
}

template <class T> static const T *as(const void *p) { return static_cast<const T *>(p); }

static float *floats(const std::vector<float> &values) {
    float *p = nullptr;
    cudaMalloc(&p, values.size() * sizeof(float));
    cudaMemcpy(p, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice);
    return p;
}

static cublasStatus_t by_lt(const void *alpha, const void *beta, void *a, void *b, void *c, void *d, Type ta, Type tb,
                            Type tc, Type td, Type ts, int m, int n, int k, int lda, int ldb, int ldc) {
    cublasLtHandle_t handle;
    cublasLtCreate(&handle);
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulDescCreate(&desc, computes.at(options["compute"]), ts.type);
    const cublasOperation_t transa = number("ta") ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t transb = number("tb") ? CUBLAS_OP_T : CUBLAS_OP_N;
    const auto set = [&](cublasLtMatmulDescAttributes_t which, const auto &value) {
        if (cublasLtMatmulDescSetAttribute(desc, which, &value, sizeof value)) std::printf("attribute %d\n", which);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, transa);
    set(CUBLASLT_MATMUL_DESC_TRANSB, transb);
    const int count = static_cast<int>(number("count", 1));
    const bool rows = number("rows");
    const cublasLtOrder_t order = rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    const auto layout = [&](Type t, bool transposed, int r, int s, int ld) {
        cublasLtMatrixLayout_t made;
        cublasLtMatrixLayoutCreate(&made, t.type, transposed ? s : r, transposed ? r : s, ld);
        cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order);
        const int64_t stride = static_cast<int64_t>(ld) * (transposed != rows ? r : s);
        cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
        cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
        return made;
    };
    cublasLtMatrixLayout_t la = layout(ta, number("ta"), m, k, lda), lb = layout(tb, number("tb"), k, n, ldb);
    cublasLtMatrixLayout_t lc = layout(tc, false, m, n, ldc), ld = layout(td, false, m, n, ldc);
    if (const long epilogue = number("epilogue")) set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<cublasLtEpilogue_t>(epilogue));
    const Type bias_type = types.at(options.count("bias") ? options["bias"] : "f32");
    if (options.count("bias")) {
        set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void *>(filled(bias_type, m, 3, 0.5)));
        set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias_type.type);
    }
    if (number("scales")) {
        set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void *>(floats({0.5f})));
        set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void *>(floats({4.0f})));
    }
    if (number("vectors")) {
        const cublasLtMatmulMatrixScale_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
        set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode);
        set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
        set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void *>(filled({CUDA_R_32F, 4}, m, 3, 0.5)));
        set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void *>(filled({CUDA_R_32F, 4}, n, 5, 0.25)));
    }
    float *amax = floats({-1.0f});
    if (number("amax")) set(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, amax);
    if (options.count("scale_d")) {
        set(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, static_cast<const void *>(floats({static_cast<float>(real("scale_d", 1))})));
    }
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    const size_t workspace = 1 << 20;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, lc, ld, preference, 1, &result, &found);
    if (status != CUBLAS_STATUS_SUCCESS || !found) return status;
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    status = cublasLtMatmul(handle, desc, alpha, a, la, b, lb, beta, c, lc, d, ld, &result.algo, nullptr, 0, stream);
    cudaStreamSynchronize(stream);
    if (number("amax")) print(amax, 4);
    cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t l : {la, lb, lc, ld}) cublasLtMatrixLayoutDestroy(l);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
    return status;
}

// Products with a factor for each `blocks` elements along K, of A [m, k] and B [n, k] by rows: bytes by a rule, as
// test_program_cublas.py has them.
static std::vector<unsigned char> codes(size_t count, int step, int low, int range) {
    std::vector<unsigned char> bytes(count);
    for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(low + i * step % range);
    return bytes;
}

static void *on_device(const std::vector<unsigned char> &bytes) {
    void *p = nullptr;
    cudaMalloc(&p, bytes.size());
    cudaMemcpy(p, bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
    return p;
}

static cublasStatus_t by_blocks(int m, int n, int k, Type td, void *d) {
    const int blocks = static_cast<int>(number("blocks")), bits = blocks == 16 ? 4 : 8;
    const auto type = blocks == 16 ? static_cast<cudaDataType>(33) : CUDA_R_8F_E4M3;
    const auto mode = blocks == 16 ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3 : CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    const int low = blocks == 16 ? 0x28 : 120;
    cublasLtHandle_t handle;
    cublasLtCreate(&handle);
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const auto set = [&](cublasLtMatmulDescAttributes_t which, const auto &value) {
        if (cublasLtMatmulDescSetAttribute(desc, which, &value, sizeof value)) std::printf("attribute %d\n", which);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, number("ta", 1) ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode);
    if (!number("one_mode")) set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
    const auto factors = [&](int outer, int step) {
        const size_t count = (outer + 127) / 128 * 128 * static_cast<size_t>((k / blocks + 3) / 4 * 4);
        return static_cast<const void *>(on_device(codes(number("short_factors") ? count - 1 : count, step, low, 13)));
    };
    if (!number("no_factors")) set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, factors(m, 5));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, factors(n, 7));
    if (const long epilogue = number("epilogue")) set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<cublasLtEpilogue_t>(epilogue));
    cublasLtMatrixLayout_t la, lb, ld;
    cublasLtMatrixLayoutCreate(&la, type, number("ta", 1) ? k : m, number("ta", 1) ? m : k, number("ta", 1) ? k : m);
    cublasLtMatrixLayoutCreate(&lb, type, k, n, k);
    cublasLtMatrixLayoutCreate(&ld, td.type, m, n, m);
    const float one = 1, zero = 0;
    const void *a = on_device(codes(static_cast<size_t>(m) * k * bits / 8, 37, 0, blocks == 16 ? 256 : 0x60));
    const void *b = on_device(codes(static_cast<size_t>(n) * k * bits / 8, 41, 0, blocks == 16 ? 256 : 0x60));
    return cublasLtMatmul(handle, desc, &one, a, la, b, lb, &zero, d, ld, d, ld, nullptr, nullptr, 0, nullptr);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const size_t at = word.find('=');
        options[word.substr(0, at)] = at == std::string::npos ? "1" : word.substr(at + 1);
    }
    const std::string api = options["api"];
    const int m = number("m", 5), n = number("n", 7), k = number("k", 9), count = number("count", 1);
    const bool transa = number("ta"), transb = number("tb"), rows = number("rows");
    const int pad = number("pad", 3);
    const int lda = (transa != rows ? k : m) + pad, ldb = (transb != rows ? n : k) + pad, ldc = (rows ? n : m) + pad;
    const Type ta = types.at(options["a"]), tb = types.at(options.count("b") ? options["b"] : options["a"]);
    const Type td = types.at(options["d"]), tc = types.at(options.count("c") ? options["c"] : options["d"]);
    const Type ts = types.at(options.count("scale") ? options["scale"] : options["compute"] == "tf32" ? "f32" : options["compute"]);
    const size_t each_a = static_cast<size_t>(lda) * (transa != rows ? m : k);
    const size_t each_b = static_cast<size_t>(ldb) * (transb != rows ? k : n);
    const size_t each_c = static_cast<size_t>(ldc) * (rows ? m : n);
    void *a = filled(ta, each_a * count, 5, real("unit_a", 1)), *b = filled(tb, each_b * count, 7, real("unit_b", 1));
    void *c = filled(tc, each_c * count, 11, 1), *d = options.count("c") || api == "lt" ? filled(td, each_c * count, 11, 1) : c;
    if (number("nan_c")) cudaMemset(c, 0xff, each_c * count * tc.size);
    const bool device_scalars = number("device_scalars");
    const void *alpha = scalar(ts, real("alpha", 1), device_scalars), *beta = scalar(ts, real("beta", 0), device_scalars);
    if (number("host_a")) a = std::malloc(each_a * count * ta.size);
    if (number("short_b")) b = static_cast<char *>(b) + tb.size * 4;
    if (number("after_kernel")) negate<<<1, 128>>>(static_cast<float *>(a), static_cast<int>(each_a));

    cublasHandle_t handle;
    cublasCreate(&handle);
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cublasSetStream(handle, stream);
    cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH);
    if (device_scalars) cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE);
    const cublasOperation_t opa = transa ? CUBLAS_OP_T : CUBLAS_OP_N, opb = transb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t status = CUBLAS_STATUS_INTERNAL_ERROR;
    const auto compute = computes.at(options["compute"]);
    if (api == "sgemm") status = cublasSgemm(handle, opa, opb, m, n, k, as<float>(alpha), as<float>(a), lda, as<float>(b), ldb, as<float>(beta), (float *)c, ldc);
    if (api == "sgemm64") status = cublasSgemm_64(handle, opa, opb, m, n, k, as<float>(alpha), as<float>(a), lda, as<float>(b), ldb, as<float>(beta), (float *)c, ldc);
    if (api == "dgemm") status = cublasDgemm(handle, opa, opb, m, n, k, as<double>(alpha), as<double>(a), lda, as<double>(b), ldb, as<double>(beta), (double *)c, ldc);
    if (api == "hgemm") status = cublasHgemm(handle, opa, opb, m, n, k, as<__half>(alpha), as<__half>(a), lda, as<__half>(b), ldb, as<__half>(beta), (__half *)c, ldc);
    if (api == "sgemmex") status = cublasSgemmEx(handle, opa, opb, m, n, k, as<float>(alpha), a, ta.type, lda, b, tb.type, ldb, as<float>(beta), c, tc.type, ldc);
    if (api == "ex") status = cublasGemmEx(handle, opa, opb, m, n, k, alpha, a, ta.type, lda, b, tb.type, ldb, beta, c, tc.type, ldc, compute, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
    if (api == "ex_by_type") status = cublasGemmEx(handle, opa, opb, m, n, k, alpha, a, ta.type, lda, b, tb.type, ldb, beta, c, tc.type, ldc, ts.type, CUBLAS_GEMM_DEFAULT);
    if (api == "sstrided") status = cublasSgemmStridedBatched(handle, opa, opb, m, n, k, as<float>(alpha), as<float>(a), lda, each_a, as<float>(b), ldb, each_b, as<float>(beta), (float *)c, ldc, each_c, count);
    if (api == "hstrided") status = cublasHgemmStridedBatched(handle, opa, opb, m, n, k, as<__half>(alpha), as<__half>(a), lda, each_a, as<__half>(b), ldb, each_b, as<__half>(beta), (__half *)c, ldc, each_c, count);
    if (api == "strided") status = cublasGemmStridedBatchedEx(handle, opa, opb, m, n, k, alpha, a, ta.type, lda, each_a, b, tb.type, ldb, each_b, beta, c, tc.type, ldc, each_c, count, compute, CUBLAS_GEMM_DEFAULT);
    if (api == "batched") {
        std::vector<char *> places;
        for (int i = 0; i < count; ++i) places.push_back((char *)a + i * each_a * ta.size);
        for (int i = 0; i < count; ++i) places.push_back((char *)b + i * each_b * tb.size);
        for (int i = 0; i < count; ++i) places.push_back((char *)c + i * each_c * tc.size);
        void **p = nullptr;
        cudaMalloc(&p, places.size() * sizeof(void *));
        cudaMemcpy(p, places.data(), places.size() * sizeof(void *), cudaMemcpyHostToDevice);
        status = cublasGemmBatchedEx(handle, opa, opb, m, n, k, alpha, p, ta.type, lda, p + count, tb.type, ldb, beta, p + 2 * count, tc.type, ldc, count, compute, CUBLAS_GEMM_DEFAULT);
    }
    if (api == "blocks") status = by_blocks(m, n, k, td, d);
    if (api == "lt") status = by_lt(alpha, beta, a, b, c, d, ta, tb, tc, td, ts, m, n, k, lda, ldb, ldc);
    if (api == "copies") {
        std::vector<float> host(12), back(12, -1.0f);
        for (int i = 0; i < 12; ++i) host[i] = static_cast<float>(i);
        float *p = nullptr;
        cudaMalloc(&p, 48);
        status = cublasSetMatrix(3, 2, sizeof(float), host.data(), 4, p, 5);
        status = status ? status : cublasGetMatrix(3, 2, sizeof(float), p, 5, back.data(), 3);
        status = status ? status : cublasSetVector(3, sizeof(float), host.data(), 2, p, 1);
        status = status ? status : cublasGetVector(3, sizeof(float), p, 1, back.data() + 6, 1);
        for (float v : back) std::printf("%g ", v);
        std::printf("\n");
    }
    if (api == "gemv") {
        status = cublasSgemv(handle, opa, m, k, as<float>(alpha), as<float>(a), lda, as<float>(b), 1, as<float>(beta), (float *)c, 1);
        std::printf("not reached\n");
    }
    std::printf("%s\n", cublasGetStatusName(status));
    std::printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    cublasDestroy(handle);
    if (status == CUBLAS_STATUS_SUCCESS) print(d, each_c * count * td.size);
    return status != CUBLAS_STATUS_SUCCESS;
}
