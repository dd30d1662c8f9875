// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for cuBLASLt: matmul with the layouts, scales and epilogues that programs use as a reference. What is not
// covered stops the program by its name; types that the library itself does not multiply get its status.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "gemm.hpp"

struct cublasLtContext {};

namespace {

using gemm::Matrix;
using gemm::Product;

// What the opaque structures hold; a program may have them on its stack.
struct Layout {
    uint32_t type;
    int32_t order;
    uint64_t rows, cols;
    int64_t ld;
    int32_t count;
    int64_t stride;
};

struct Desc {
    int32_t compute, scale_type, pointers, trans[3], fill;
    uint32_t epilogue;
    const void *bias;
    int64_t bias_stride;
    int32_t bias_type, scale_modes[4];  // of A, B, C, D
    const float *scales[4];
    float *amax;
    int8_t fast_sums;
    int32_t multiprocessors;
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Desc) <= sizeof(cublasLtMatmulDescOpaque_t));

Layout &of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<Layout *>(layout); }
Desc &of(cublasLtMatmulDesc_t desc) { return *reinterpret_cast<Desc *>(desc); }

struct Field {
    void *place = nullptr;
    size_t size = 0;
    template <class T> static Field to(T &value) { return {&value, sizeof value}; }
};

Field field(Layout &layout, cublasLtMatrixLayoutAttribute_t attribute) {
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return Field::to(layout.type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return Field::to(layout.order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return Field::to(layout.rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return Field::to(layout.cols);
    case CUBLASLT_MATRIX_LAYOUT_LD: return Field::to(layout.ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return Field::to(layout.count);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return Field::to(layout.stride);
    default: porter_unanswered(("cublasLtMatrixLayout attribute " + std::to_string(attribute)).c_str());
    }
}

Field field(Desc &desc, cublasLtMatmulDescAttributes_t attribute) {
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return Field::to(desc.compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return Field::to(desc.scale_type);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: return Field::to(desc.pointers);
    case CUBLASLT_MATMUL_DESC_TRANSA: return Field::to(desc.trans[0]);
    case CUBLASLT_MATMUL_DESC_TRANSB: return Field::to(desc.trans[1]);
    case CUBLASLT_MATMUL_DESC_TRANSC: return Field::to(desc.trans[2]);
    case CUBLASLT_MATMUL_DESC_FILL_MODE: return Field::to(desc.fill);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return Field::to(desc.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return Field::to(desc.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return Field::to(desc.bias_stride);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return Field::to(desc.bias_type);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return Field::to(desc.scales[0]);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return Field::to(desc.scales[1]);
    case CUBLASLT_MATMUL_DESC_C_SCALE_POINTER: return Field::to(desc.scales[2]);
    case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER: return Field::to(desc.scales[3]);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE: return Field::to(desc.scale_modes[0]);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE: return Field::to(desc.scale_modes[1]);
    case CUBLASLT_MATMUL_DESC_C_SCALE_MODE: return Field::to(desc.scale_modes[2]);
    case CUBLASLT_MATMUL_DESC_D_SCALE_MODE: return Field::to(desc.scale_modes[3]);
    case CUBLASLT_MATMUL_DESC_AMAX_D_POINTER: return Field::to(desc.amax);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return Field::to(desc.fast_sums);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET: return Field::to(desc.multiprocessors);
    default: porter_unanswered(("cublasLtMatmulDesc attribute " + std::to_string(attribute)).c_str());
    }
}

cublasStatus_t set(Field field, const void *value, size_t size) {
    if (!value || size != field.size) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(field.place, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t get(Field field, void *value, size_t size, size_t *written) {
    if (written) *written = field.size;
    if (!size && written) return CUBLAS_STATUS_SUCCESS;
    if (!value || size < field.size) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(value, field.place, field.size);
    return CUBLAS_STATUS_SUCCESS;
}

bool is_fp8(uint32_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
bool is_fp4(uint32_t type) { return type == gemm::fp4; }
bool is_half(uint32_t type) { return type == CUDA_R_16F || type == CUDA_R_16BF; }

// Elements along K that have a factor of their own, 0 where A and B have not such factors.
int block_of(const Desc &desc) {
    if (desc.scale_modes[0] != desc.scale_modes[1]) return 0;
    switch (desc.scale_modes[0]) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3: return 16;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0: return 32;
    default: return 0;
    }
}

// The types that the library's table of cublasLtMatmul has.
bool is_supported(const Desc &desc, const Layout &a, const Layout &b, const Layout &c, const Layout &d) {
    const auto plain = [&](uint32_t in, uint32_t out) {
        return a.type == in && b.type == in && c.type == out && d.type == out;
    };
    switch (desc.compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC: return desc.scale_type == CUDA_R_16F && plain(CUDA_R_16F, CUDA_R_16F);
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC: return desc.scale_type == CUDA_R_64F && plain(CUDA_R_64F, CUDA_R_64F);
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
        return desc.scale_type == CUDA_R_32I ? plain(CUDA_R_8I, CUDA_R_32I)
                                             : desc.scale_type == CUDA_R_32F && plain(CUDA_R_8I, CUDA_R_8I);
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC: break;
    default: return desc.scale_type == CUDA_R_32F && plain(CUDA_R_32F, CUDA_R_32F);
    }
    if (desc.scale_type != CUDA_R_32F) return false;
    const int vector = block_of(desc);
    if (is_fp4(a.type) || is_fp4(b.type) || vector == 16)
        return vector == 16 && is_fp4(a.type) && is_fp4(b.type) && c.type == d.type &&
               (is_half(d.type) || d.type == CUDA_R_32F);
    if (vector && !is_fp8(a.type)) return false;
    if (is_fp8(a.type) && is_fp8(b.type)) {
        if (a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2) return false;
        if (is_fp8(d.type)) return is_half(c.type);
        return c.type == d.type && (is_half(d.type) || d.type == CUDA_R_32F);
    }
    return plain(CUDA_R_32F, CUDA_R_32F) || plain(CUDA_R_8I, CUDA_R_32F) ||
           (is_half(a.type) && (plain(a.type, a.type) || plain(a.type, CUDA_R_32F)));
}

constexpr const char *name = "cublasLtMatmul";

[[noreturn]] void not_covered(const std::string &what) { porter_unanswered((name + (" with " + what)).c_str()); }

void check_covered(const Desc &desc, std::initializer_list<const Layout *> layouts) {
    for (const Layout *layout : layouts) {
        if (layout->order != CUBLASLT_ORDER_COL && layout->order != CUBLASLT_ORDER_ROW)
            not_covered("a matrix of order " + std::to_string(layout->order));
        if (!gemm::bits_of(static_cast<cudaDataType>(layout->type)))
            not_covered("elements of cudaDataType " + std::to_string(layout->type));
    }
    if (desc.pointers > CUBLASLT_POINTER_MODE_DEVICE) not_covered("a vector of alphas");
    if (desc.trans[2] != CUBLAS_OP_N) not_covered("CUBLASLT_MATMUL_DESC_TRANSC");
    if (desc.fill != CUBLAS_FILL_MODE_FULL) not_covered("CUBLASLT_MATMUL_DESC_FILL_MODE");
    const uint32_t covered = CUBLASLT_EPILOGUE_DEFAULT | CUBLASLT_EPILOGUE_RELU_BIAS | CUBLASLT_EPILOGUE_GELU;
    if (desc.epilogue & ~covered) not_covered("epilogue " + std::to_string(desc.epilogue));
    for (int i = 0; i < 4; ++i)
        if (!(i < 2 && block_of(desc)) && desc.scale_modes[i] != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F &&
            (i > 1 || desc.scale_modes[i] != CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F))
            not_covered("scale mode " + std::to_string(desc.scale_modes[i]));
}

Matrix matrix(const Layout &layout, const void *data) {
    const auto rows = static_cast<int64_t>(layout.rows), cols = static_cast<int64_t>(layout.cols);
    const auto type = static_cast<cudaDataType>(layout.type);
    if (layout.order == CUBLASLT_ORDER_COL) return Matrix::columns(data, type, rows, cols, layout.ld, layout.stride);
    return Matrix::columns(data, type, cols, rows, layout.ld, layout.stride).transposed();
}

bool fits(const Layout &layout) {
    const uint64_t inner = layout.order == CUBLASLT_ORDER_COL ? layout.rows : layout.cols;
    return layout.ld >= static_cast<int64_t>(std::max<uint64_t>(1, inner));
}

// Whether the library would multiply these; the product's matrices are set.
cublasStatus_t shaped(const Desc &desc, const Layout &a, const Layout &b, const Layout &c, const Layout &d,
                      Product &p) {
    check_covered(desc, {&a, &b, &c, &d});
    p.function = name;
    p.a = matrix(a, nullptr);
    p.b = matrix(b, nullptr);
    if (desc.trans[0] != CUBLAS_OP_N) p.a = p.a.transposed();
    if (desc.trans[1] != CUBLAS_OP_N) p.b = p.b.transposed();
    p.c = matrix(c, nullptr);
    p.d = matrix(d, nullptr);
    if (p.a.cols != p.b.rows || p.a.rows != p.d.rows || p.b.cols != p.d.cols || p.c.rows != p.d.rows ||
        p.c.cols != p.d.cols || !fits(a) || !fits(b) || !fits(c) || !fits(d))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (a.count != d.count || b.count != d.count || c.count != d.count) return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_supported(desc, a, b, c, d)) return CUBLAS_STATUS_NOT_SUPPORTED;
    const int vector = block_of(desc);
    int major = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    if (vector) {
        if (major < 10) return CUBLAS_STATUS_NOT_SUPPORTED;
        if (!desc.scales[0] || !desc.scales[1]) return CUBLAS_STATUS_INVALID_VALUE;
        if (d.count > 1) not_covered("scales by blocks of a batch");
        if (is_fp4(a.type) && (p.a.row_step == 1 || p.b.row_step != 1 || a.ld % 32 || b.ld % 32))
            return CUBLAS_STATUS_NOT_SUPPORTED;  // operands are K-major, with 16-byte rows
    }
    if (is_fp8(a.type)) {
        // Hopper's products of FP8 are of K-major operands, with 16-byte rows.
        if (major == 9 && (p.a.row_step == 1 || p.b.row_step != 1)) return CUBLAS_STATUS_NOT_SUPPORTED;
        if (a.ld % 16 || b.ld % 16) return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    p.count = d.count;
    p.compute = static_cast<cublasComputeType_t>(desc.compute);
    p.scale_type = static_cast<cudaDataType>(desc.scale_type);
    return CUBLAS_STATUS_SUCCESS;
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

gemm::Epilogue epilogue(const Desc &desc, const Layout &d, cudaDataType bias_type) {
    float scale = 1;
    if (desc.scales[3] && is_fp8(d.type)) scale = *desc.scales[3];
    if (desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT && scale == 1 && !desc.amax) return {};
    if (desc.amax) *desc.amax = 0;
    return [=](double value, int64_t row, int64_t, int64_t product) {
        if (desc.epilogue & CUBLASLT_EPILOGUE_BIAS)
            value = static_cast<float>(value + gemm::load(desc.bias, bias_type, row + product * desc.bias_stride));
        if (desc.epilogue & CUBLASLT_EPILOGUE_RELU) value = std::max(value, 0.0);
        if (desc.epilogue & CUBLASLT_EPILOGUE_GELU) value = static_cast<float>(gelu(value));
        if (desc.amax) *desc.amax = std::max(*desc.amax, std::abs(static_cast<float>(value)));
        return scale == 1 ? value : static_cast<float>(value) * scale;
    };
}

int64_t up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// Bytes of the factors of an operand with `outer` rows or columns.
int64_t factor_bytes(int64_t outer, int64_t k, int vector) { return up(outer, 128) * up((k + vector - 1) / vector, 4); }

// Factors by blocks lie in tiles of 128 rows of A, or columns of B, by four along K: row r of a tile at 16 (r % 32) +
// 4 (r / 32).
gemm::Factors block_factors(const float *pointer, int64_t k, int vector) {
    const auto *bytes = reinterpret_cast<const uint8_t *>(pointer);
    const int64_t tiles = up((k + vector - 1) / vector, 4) / 4;
    return [=](int64_t i, int64_t at) {
        const int64_t f = at / vector;
        const int64_t place = (i / 128 * tiles + f / 4) * 512 + i % 32 * 16 + i % 128 / 32 * 4 + f % 4;
        const uint8_t code = bytes[place];
        if (vector == 16) return gemm::load(&code, CUDA_R_8F_E4M3, 0);
        return code == 255 ? std::nan("") : std::ldexp(1.0, code - 127);
    };
}

// The factors of A and B: one each, or one for each row of A and each column of B.
gemm::Scale operand_scale(const Desc &desc) {
    const float *a = desc.scales[0], *b = desc.scales[1];
    if ((!a && !b) || block_of(desc)) return {};
    const auto each = [&](int i) { return desc.scale_modes[i] == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F; };
    return [a, b, rows = each(0), cols = each(1)](int64_t row, int64_t col) {
        return (a ? a[rows ? row : 0] : 1.0f) * (b ? b[cols ? col : 0] : 1.0f);
    };
}

// The bias has the type of D by default, but where D is wider or narrower than halves.
cudaDataType bias_type_of(const Desc &desc, const Layout &a, const Layout &c, const Layout &d) {
    if (desc.bias_type >= 0) return static_cast<cudaDataType>(desc.bias_type);
    if (is_fp8(a.type) && d.type == CUDA_R_32F) return CUDA_R_16BF;
    if (d.type == CUDA_R_8I) return CUDA_R_32F;
    return static_cast<cudaDataType>(is_fp8(d.type) ? c.type : d.type);
}

const char *const status_names[][2] = {
    {"CUBLAS_STATUS_SUCCESS", "success"},
    {"CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {"CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {"CUBLAS_STATUS_INVALID_VALUE", "an invalid value was used as an argument"},
    {"CUBLAS_STATUS_ARCH_MISMATCH", "an absent device architectural feature is required"},
    {"CUBLAS_STATUS_MAPPING_ERROR", "an access to GPU memory space failed"},
    {"CUBLAS_STATUS_EXECUTION_FAILED", "the function failed to launch on the GPU"},
    {"CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {"CUBLAS_STATUS_NOT_SUPPORTED", "the functionality is not supported"},
    {"CUBLAS_STATUS_LICENSE_ERROR", "the functionality requested requires a license"},
};
const cublasStatus_t statuses[] = {
    CUBLAS_STATUS_SUCCESS,       CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ALLOC_FAILED,
    CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH,   CUBLAS_STATUS_MAPPING_ERROR,
    CUBLAS_STATUS_EXECUTION_FAILED, CUBLAS_STATUS_INTERNAL_ERROR, CUBLAS_STATUS_NOT_SUPPORTED,
    CUBLAS_STATUS_LICENSE_ERROR,
};

const char *described(cublasStatus_t status, int which) {
    const auto *found = std::find(std::begin(statuses), std::end(statuses), status);
    return found == std::end(statuses) ? "unknown" : status_names[found - std::begin(statuses)][which];
}

}  // namespace

extern "C" {

const char *cublasLtGetStatusName(cublasStatus_t status) { return described(status, 0); }
const char *cublasLtGetStatusString(cublasStatus_t status) { return described(status, 1); }
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = new cublasLtContext;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

// --- Layouts

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld) {
    of(layout) = {static_cast<uint32_t>(type), CUBLASLT_ORDER_COL, rows, cols, ld, 1, 0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
    *layout = new cublasLtMatrixLayoutOpaque_t{};
    return cublasLtMatrixLayoutInit_internal(*layout, sizeof **layout, type, rows, cols, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which,
                                                const void *value, size_t size) {
    return set(field(of(layout), which), value, size);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which,
                                                void *value, size_t size, size_t *written) {
    return get(field(of(layout), which), value, size, written);
}

// --- What is computed

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t, cublasComputeType_t compute,
                                               cudaDataType_t scale) {
    Desc &made = of(desc) = {};
    made.compute = compute;
    made.scale_type = scale;
    made.fill = CUBLAS_FILL_MODE_FULL;
    made.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    made.bias_type = -1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    *desc = new cublasLtMatmulDescOpaque_t{};
    return cublasLtMatmulDescInit_internal(*desc, sizeof **desc, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t size) {
    return set(field(of(desc), which), value, size);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which,
                                              void *value, size_t size, size_t *written) {
    return get(field(of(desc), which), value, size, written);
}

// --- Algorithms: there is one, which needs no workspace

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t) {
    *preference = {};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    *preference = new cublasLtMatmulPreferenceOpaque_t{};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void *, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *, cublasLtMatmulHeuristicResult_t *result) {
    Product product;
    *result = {};
    return result->state = shaped(of(desc), of(a), of(b), of(c), of(d), product);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *returned) {
    *returned = 0;
    if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle, desc, a, b, c, d, nullptr, results);
    *returned = status == CUBLAS_STATUS_SUCCESS;
    return status;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc_handle, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || !beta || !desc_handle || !a_layout || !b_layout || !c_layout || !d_layout)
        return CUBLAS_STATUS_INVALID_VALUE;
    const Desc &desc = of(desc_handle);
    Product p;
    const cublasStatus_t status = shaped(desc, of(a_layout), of(b_layout), of(c_layout), of(d_layout), p);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    p.a.data = a;
    p.b.data = b;
    p.c.data = c ? c : d;
    p.d.data = d;
    p.alpha = alpha;
    p.beta = beta;
    const cudaDataType bias_type = bias_type_of(desc, of(a_layout), of(c_layout), of(d_layout));
    if (desc.epilogue & CUBLASLT_EPILOGUE_BIAS) {
        const Matrix bias = Matrix::columns(desc.bias, bias_type, p.d.rows, 1, p.d.rows, desc.bias_stride);
        if (!desc.bias) return CUBLAS_STATUS_INVALID_VALUE;
        if (!gemm::bits_of(bias_type)) return CUBLAS_STATUS_NOT_SUPPORTED;
        if (!gemm::in_device_memory(name, "bias", bias, p.count)) return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    for (int i = 0; i < 4; ++i) {
        if (!desc.scales[i]) continue;
        const bool outer = desc.scale_modes[i] == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
        const int64_t each = i ? p.d.cols : p.d.rows;
        int64_t count = outer ? each : 1;
        const int vector = i < 2 ? block_of(desc) : 0;
        if (vector) count = factor_bytes(each, p.a.cols, vector);
        const auto type = vector ? CUDA_R_8I : CUDA_R_32F;
        if (!gemm::in_device_memory(name, "of scales", Matrix::columns(desc.scales[i], type, count, 1, count), 1))
            return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (desc.amax && !gemm::in_device_memory(name, "amax", Matrix::columns(desc.amax, CUDA_R_32F, 1, 1, 1), 1))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (const int vector = block_of(desc)) {
        p.a_factors = block_factors(desc.scales[0], p.a.cols, vector);
        p.b_factors = block_factors(desc.scales[1], p.a.cols, vector);
    }
    p.scale = operand_scale(desc);
    p.epilogue = epilogue(desc, of(d_layout), bias_type);
    return gemm::multiply(p);
}

}  // extern "C"
