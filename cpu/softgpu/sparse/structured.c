/* cuSPARSELt: handles, descriptors, attributes, plans. */
#include "cpu/softgpu/sparse/structured.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "cpu/softgpu/library/number.h"

enum { VERSION_MAJOR = 0, VERSION_MINOR = 8, VERSION_PATCH = 0 };

const void *flyt_soft_slt_find(const void *room, uint32_t magic)
{
    uint32_t is;

    if (!room)
        return NULL;
    memcpy(&is, room, sizeof(is));
    return is == magic ? room : NULL;
}

bool flyt_soft_slt_handle_is(const void *handle)
{
    return flyt_soft_slt_find(handle, FLYT_SOFT_SLT_HANDLE) != NULL;
}

#define CHECK_HANDLE(handle_)                                                                                          \
    do {                                                                                                               \
        if (!flyt_soft_slt_handle_is(handle_))                                                                         \
            return CUSPARSE_STATUS_NOT_INITIALIZED;                                                                    \
    } while (0)

/* What is ended is none any more. */
static cusparseStatus_t end(const void *room, uint32_t magic)
{
    uint32_t *is = (uint32_t *)(uintptr_t)flyt_soft_slt_find(room, magic);

    if (!is)
        return CUSPARSE_STATUS_INVALID_VALUE;
    *is = 0;
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_SLT cusparseLtInit(void *handle)
{
    CUdevice device;

    if (!handle)
        return CUSPARSE_STATUS_INVALID_VALUE;
    if (cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    *(uint32_t *)handle = FLYT_SOFT_SLT_HANDLE;
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_SLT cusparseLtDestroy(const void *handle)
{
    CHECK_HANDLE(handle);
    return end(handle, FLYT_SOFT_SLT_HANDLE);
}

FLYT_SOFT_SLT cusparseLtGetVersion(const void *handle, int *version)
{
    CHECK_HANDLE(handle);
    if (!version)
        return CUSPARSE_STATUS_INVALID_VALUE;
    *version = VERSION_MAJOR * 1000 + VERSION_MINOR * 100 + VERSION_PATCH;
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_SLT cusparseLtGetProperty(int property, int *value)
{
    const int values[] = {VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH};

    if (property < 0 || property > 2 || !value)
        return CUSPARSE_STATUS_INVALID_VALUE;
    *value = values[property];
    return CUSPARSE_STATUS_SUCCESS;
}

/* ---- attributes: tables of their numbers ---- */

struct attribute {
    unsigned offset, bytes;
};

static cusparseStatus_t copy(void *to, const void *from, size_t count, int number, size_t bytes, size_t wanted)
{
    if (number < 0 || (size_t)number >= count || !to || !from || bytes != wanted)
        return CUSPARSE_STATUS_INVALID_VALUE;
    memcpy(to, from, bytes);
    return CUSPARSE_STATUS_SUCCESS;
}

#define COUNT(table_) (sizeof(table_) / sizeof((table_)[0]))

/* The functions that set and get attributes of what lives in a room. */
#define ATTRIBUTES_OF(name_, magic_, struct_, table_, check_)                                                          \
    FLYT_SOFT_SLT cusparseLt##name_##SetAttribute(const void *handle, void *room, int number, const void *data,        \
                                                  size_t bytes)                                                        \
    {                                                                                                                  \
        struct struct_ *at = (struct struct_ *)(uintptr_t)flyt_soft_slt_find(room, magic_);                            \
                                                                                                                       \
        CHECK_HANDLE(handle);                                                                                          \
        if (!at || number < 0 || (size_t)number >= COUNT(table_) || !check_(at, number, data, bytes))                  \
            return CUSPARSE_STATUS_INVALID_VALUE;                                                                      \
        return copy((char *)at + table_[number].offset, data, COUNT(table_), number, bytes, table_[number].bytes);     \
    }                                                                                                                  \
    FLYT_SOFT_SLT cusparseLt##name_##GetAttribute(const void *handle, const void *room, int number, void *data,        \
                                                  size_t bytes)                                                        \
    {                                                                                                                  \
        const struct struct_ *at = flyt_soft_slt_find(room, magic_);                                                   \
                                                                                                                       \
        CHECK_HANDLE(handle);                                                                                          \
        if (!at || number < 0 || (size_t)number >= COUNT(table_))                                                      \
            return CUSPARSE_STATUS_INVALID_VALUE;                                                                      \
        return copy(data, (const char *)at + table_[number].offset, COUNT(table_), number, bytes,                      \
                    table_[number].bytes);                                                                             \
    }

#define FIELD(struct_, field_)                                                                                         \
    {                                                                                                                  \
        offsetof(struct struct_, field_), sizeof(((struct struct_ *)0)->field_)                                        \
    }

static const struct attribute matrix_attributes[] = {
    FIELD(flyt_soft_slt_matrix, batch_count),
    FIELD(flyt_soft_slt_matrix, stride),
};

static bool matrix_takes(const struct flyt_soft_slt_matrix *matrix, int number, const void *data, size_t bytes)
{
    (void)matrix;
    return number != 0 || (data && bytes == sizeof(int) && *(const int *)data > 0);
}

ATTRIBUTES_OF(MatDesc, FLYT_SOFT_SLT_MATRIX, flyt_soft_slt_matrix, matrix_attributes, matrix_takes)

static const struct attribute matmul_attributes[] = {
#define ROW(field_) FIELD(flyt_soft_slt_matmul, field_)
    ROW(is_relu),         ROW(relu_upper_bound), ROW(relu_threshold), ROW(is_gelu),      ROW(gelu_scaling),
    ROW(is_alpha_vector), ROW(is_beta_vector),   ROW(bias_stride),    ROW(bias),         ROW(sparse),
    ROW(a_scale_mode),    ROW(b_scale_mode),     ROW(c_scale_mode),   ROW(d_scale_mode), ROW(d_out_scale_mode),
    ROW(a_scale),         ROW(b_scale),          ROW(c_scale),        ROW(d_scale),      ROW(d_out_scale),
#undef ROW
};

/* A scaling of GELU implies that. */
static bool matmul_takes(struct flyt_soft_slt_matmul *matmul, int number, const void *data, size_t bytes)
{
    (void)data, (void)bytes;
    if (matmul_attributes[number].offset == offsetof(struct flyt_soft_slt_matmul, gelu_scaling))
        matmul->is_gelu = 1;
    return true;
}

ATTRIBUTES_OF(MatmulDesc, FLYT_SOFT_SLT_MATMUL, flyt_soft_slt_matmul, matmul_attributes, matmul_takes)

/* There is one algorithm. */
static const int32_t selection_defaults[FLYT_SOFT_SLT_ATTRIBUTES] = {[FLYT_SOFT_SLT_CONFIG_MAX_ID] = 1, 5, 1, 0, 0};

static const struct attribute selection_attributes[] = {
#define ROW(number_) FIELD(flyt_soft_slt_selection, values[number_])
    ROW(0), ROW(1), ROW(2), ROW(3), ROW(4), ROW(5),
#undef ROW
};

static bool selection_takes(const struct flyt_soft_slt_selection *selection, int number, const void *data, size_t bytes)
{
    (void)selection;
    if (number == FLYT_SOFT_SLT_CONFIG_ID)
        return data && bytes == sizeof(int) && *(const int *)data == 0;
    return number != FLYT_SOFT_SLT_CONFIG_MAX_ID;
}

ATTRIBUTES_OF(MatmulAlg, FLYT_SOFT_SLT_SELECTION, flyt_soft_slt_selection, selection_attributes, selection_takes)

/* ---- matrices ---- */

/* Lines of 16 bytes, and of 32 where half of them is left out. */
static bool is_multiple(const struct flyt_soft_slt_matrix *matrix)
{
    int64_t of = (matrix->is_structured ? 32 : 16) / (int64_t)flyt_soft_number_bytes((cudaDataType)matrix->type);

    return matrix->rows % of == 0 && matrix->columns % of == 0;
}

static cusparseStatus_t begin_matrix(const void *handle, void *room, const struct flyt_soft_slt_matrix *matrix)
{
    cudaDataType type = (cudaDataType)matrix->type;
    int64_t in_line = matrix->order == CUSPARSE_ORDER_ROW ? matrix->columns : matrix->rows;

    CHECK_HANDLE(handle);
    if (!room || matrix->rows <= 0 || matrix->columns <= 0 || matrix->leading < in_line ||
        matrix->alignment_bytes == 0 || matrix->alignment_bytes % 16 != 0)
        return CUSPARSE_STATUS_INVALID_VALUE;
    if ((matrix->order != CUSPARSE_ORDER_ROW && matrix->order != CUSPARSE_ORDER_COL) || !flyt_soft_number_bytes(type) ||
        flyt_soft_number_is_complex(type) || type == CUDA_R_64F || matrix->leading > INT32_MAX ||
        matrix->rows > INT32_MAX || matrix->columns > INT32_MAX || !is_multiple(matrix))
        return CUSPARSE_STATUS_NOT_SUPPORTED;
    memcpy(room, matrix, sizeof(*matrix));
    return CUSPARSE_STATUS_SUCCESS;
}

#define SHAPE                                                                                                          \
    .magic = FLYT_SOFT_SLT_MATRIX, .rows = rows, .columns = columns, .leading = leading, .alignment_bytes = alignment, \
    .type = type, .order = order, .batch_count = 1

FLYT_SOFT_SLT cusparseLtDenseDescriptorInit(const void *handle, void *room, int64_t rows, int64_t columns,
                                            int64_t leading, uint32_t alignment, int type, int order)
{
    const struct flyt_soft_slt_matrix matrix = {SHAPE};

    return begin_matrix(handle, room, &matrix);
}

FLYT_SOFT_SLT cusparseLtStructuredDescriptorInit(const void *handle, void *room, int64_t rows, int64_t columns,
                                                 int64_t leading, uint32_t alignment, int type, int order, int sparsity)
{
    const struct flyt_soft_slt_matrix matrix = {SHAPE, .is_structured = true};

    return sparsity == 0 ? begin_matrix(handle, room, &matrix) : CUSPARSE_STATUS_INVALID_VALUE;
}

FLYT_SOFT_SLT cusparseLtMatDescriptorDestroy(const void *room)
{
    return end(room, FLYT_SOFT_SLT_MATRIX);
}

uint64_t flyt_soft_slt_bytes(const struct flyt_soft_slt_matrix *matrix)
{
    bool is_row = matrix->order == CUSPARSE_ORDER_ROW;
    int64_t lines = is_row ? matrix->rows : matrix->columns, in_line = is_row ? matrix->columns : matrix->rows;

    return (uint64_t)((lines - 1) * matrix->leading + in_line) * flyt_soft_number_bytes((cudaDataType)matrix->type);
}

struct flyt_soft_slt_lines flyt_soft_slt_lines_of(const struct flyt_soft_slt_matrix *matrix, bool is_a, int32_t op)
{
    bool is_plain = op == CUSPARSE_OPERATION_NON_TRANSPOSE, is_across = is_a == is_plain; /* a row is along k */
    int64_t by_row = matrix->order == CUSPARSE_ORDER_ROW ? matrix->leading : 1;
    int64_t by_column = matrix->order == CUSPARSE_ORDER_ROW ? 1 : matrix->leading;
    bool is_wide = flyt_soft_number_bytes((cudaDataType)matrix->type) == 4;

    return (struct flyt_soft_slt_lines){
        .type = (cudaDataType)matrix->type,
        .count = is_across ? matrix->rows : matrix->columns,
        .k = is_across ? matrix->columns : matrix->rows,
        .step = is_across ? by_column : by_row,
        .line_step = is_across ? by_row : by_column,
        .group = is_wide ? 2 : 4,
        .kept = is_wide ? 1 : 2,
        .batch_count = matrix->batch_count,
        .stride = matrix->stride,
        .bytes = flyt_soft_slt_bytes(matrix),
    };
}

struct flyt_soft_slt_lines flyt_soft_slt_sparse_of(const struct flyt_soft_slt_matmul *matmul)
{
    bool is_a = matmul->a.is_structured;

    return flyt_soft_slt_lines_of(is_a ? &matmul->a : &matmul->b, is_a, is_a ? matmul->op_a : matmul->op_b);
}

/* ---- products ---- */

static bool are_types_known(const struct flyt_soft_slt_matmul *m)
{
    static const cudaDataType results[][4] = {
        {CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUDA_R_16F},      {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUDA_R_16BF},
        {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},      {CUDA_R_8F_E4M3, CUDA_R_16F, CUDA_R_16BF, CUDA_R_32F},
        {CUDA_R_8F_E5M2, CUDA_R_16F, CUDA_R_16BF, CUDA_R_32F},
    };
    cudaDataType in = (cudaDataType)m->a.type, out = (cudaDataType)m->d.type;

    if (m->a.type != m->b.type || m->c.type != m->d.type)
        return false;
    if (m->compute == FLYT_SOFT_SLT_COMPUTE_32I)
        return in == CUDA_R_8I && (out == CUDA_R_8I || out == CUDA_R_32I || out == CUDA_R_16F || out == CUDA_R_16BF);
    if (m->compute == FLYT_SOFT_SLT_COMPUTE_16F && in != CUDA_R_16F)
        return false;
    for (unsigned i = 0; i < COUNT(results); i++)
        if (results[i][0] == in)
            return out == results[i][1] || out == results[i][2] || out == results[i][3];
    return false;
}

static bool do_shapes_fit(const struct flyt_soft_slt_matmul *m)
{
    bool a_is_plain = m->op_a == CUSPARSE_OPERATION_NON_TRANSPOSE,
         b_is_plain = m->op_b == CUSPARSE_OPERATION_NON_TRANSPOSE;
    int64_t rows = a_is_plain ? m->a.rows : m->a.columns, k = a_is_plain ? m->a.columns : m->a.rows;
    int64_t columns = b_is_plain ? m->b.columns : m->b.rows;

    return k == (b_is_plain ? m->b.rows : m->b.columns) && m->d.rows == rows && m->d.columns == columns &&
           m->c.rows == rows && m->c.columns == columns && m->c.order == m->d.order &&
           m->a.batch_count == m->d.batch_count && m->b.batch_count == m->d.batch_count &&
           m->c.batch_count == m->d.batch_count;
}

FLYT_SOFT_SLT cusparseLtMatmulDescriptorInit(const void *handle, void *room, int op_a, int op_b, const void *mat_a,
                                             const void *mat_b, const void *mat_c, const void *mat_d, int compute)
{
    const struct flyt_soft_slt_matrix *a = flyt_soft_slt_find(mat_a, FLYT_SOFT_SLT_MATRIX);
    const struct flyt_soft_slt_matrix *b = flyt_soft_slt_find(mat_b, FLYT_SOFT_SLT_MATRIX);
    const struct flyt_soft_slt_matrix *c = flyt_soft_slt_find(mat_c, FLYT_SOFT_SLT_MATRIX);
    const struct flyt_soft_slt_matrix *d = flyt_soft_slt_find(mat_d, FLYT_SOFT_SLT_MATRIX);
    struct flyt_soft_slt_matmul matmul = {
        .magic = FLYT_SOFT_SLT_MATMUL, .relu_upper_bound = INFINITY, .gelu_scaling = 1};

    CHECK_HANDLE(handle);
    if (!room || !a || !b || !c || !d || op_a < 0 || op_a > 2 || op_b < 0 || op_b > 2)
        return CUSPARSE_STATUS_INVALID_VALUE;
    matmul.op_a = op_a;
    matmul.op_b = op_b;
    matmul.compute = compute;
    matmul.a = *a;
    matmul.b = *b;
    matmul.c = *c;
    matmul.d = *d;
    if (a->is_structured == b->is_structured || c->is_structured || d->is_structured || !do_shapes_fit(&matmul))
        return CUSPARSE_STATUS_INVALID_VALUE;
    if (!are_types_known(&matmul))
        return CUSPARSE_STATUS_NOT_SUPPORTED;
    memcpy(room, &matmul, sizeof(matmul));
    return CUSPARSE_STATUS_SUCCESS;
}

/* ---- selections and plans ---- */

FLYT_SOFT_SLT cusparseLtMatmulAlgSelectionInit(const void *handle, void *room, const void *of, int algorithm)
{
    struct flyt_soft_slt_selection selection = {.magic = FLYT_SOFT_SLT_SELECTION};
    FLYT_SOFT_SLT_FIND(matmul, of, FLYT_SOFT_SLT_MATMUL);

    CHECK_HANDLE(handle);
    if (!room || !matmul || algorithm != 0)
        return CUSPARSE_STATUS_INVALID_VALUE;
    memcpy(selection.values, selection_defaults, sizeof(selection.values));
    memcpy(room, &selection, sizeof(selection));
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_SLT cusparseLtMatmulAlgSelectionDestroy(const void *room)
{
    return end(room, FLYT_SOFT_SLT_SELECTION);
}

static bool has_scales(const struct flyt_soft_slt_matmul *m)
{
    return m->a_scale_mode || m->b_scale_mode || m->c_scale_mode || m->d_scale_mode || m->d_out_scale_mode;
}

FLYT_SOFT_SLT cusparseLtMatmulPlanInit(const void *handle, void *room, const void *of, const void *algorithm)
{
    FLYT_SOFT_SLT_FIND(matmul, of, FLYT_SOFT_SLT_MATMUL);
    FLYT_SOFT_SLT_FIND(selection, algorithm, FLYT_SOFT_SLT_SELECTION);
    struct flyt_soft_slt_plan plan = {.magic = FLYT_SOFT_SLT_PLAN};

    CHECK_HANDLE(handle);
    if (!room || !matmul || !selection || (matmul->is_relu && matmul->is_gelu) ||
        (matmul->is_beta_vector && !matmul->is_alpha_vector))
        return CUSPARSE_STATUS_INVALID_VALUE;
    if (has_scales(matmul))
        return CUSPARSE_STATUS_NOT_SUPPORTED;
    plan.matmul = *matmul;
    memcpy(room, &plan, sizeof(plan));
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_SLT cusparseLtMatmulPlanDestroy(const void *room)
{
    return end(room, FLYT_SOFT_SLT_PLAN);
}

FLYT_SOFT_SLT cusparseLtMatmulGetWorkspace(const void *handle, const void *room, size_t *ret_bytes)
{
    CHECK_HANDLE(handle);
    if (!flyt_soft_slt_find(room, FLYT_SOFT_SLT_PLAN) || !ret_bytes)
        return CUSPARSE_STATUS_INVALID_VALUE;
    *ret_bytes = 0;
    return CUSPARSE_STATUS_SUCCESS;
}
