/* cuBLASLt: handles, descriptors and their attributes. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/library/lt.h"
#include "cpu/softgpu/library/number.h"

/* Kept, and nothing else: nothing is emulated. */
struct emulation {
    int32_t strategy, special_values, mantissa_control, mantissa_bits_max, mantissa_offset;
    int32_t *mantissa_bits;
};

/* ---- attributes ---- */

static const struct flyt_soft_lt_attribute *find(const struct flyt_soft_lt_attribute *table, unsigned count, int number)
{
    for (unsigned i = 0; i < count; i++)
        if (table[i].number == number)
            return &table[i];
    return NULL;
}

cublasStatus_t flyt_soft_lt_set(void *object, const struct flyt_soft_lt_attribute *table, unsigned count, int number,
                                const void *value, size_t value_bytes)
{
    const struct flyt_soft_lt_attribute *attribute = find(table, count, number);

    if (!object || !value || !attribute || value_bytes != attribute->bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy((char *)object + attribute->offset, value, value_bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t flyt_soft_lt_get(const void *object, const struct flyt_soft_lt_attribute *table, unsigned count,
                                int number, void *ret_value, size_t value_bytes, size_t *ret_written)
{
    const struct flyt_soft_lt_attribute *attribute = find(table, count, number);

    if (!object || !attribute || (value_bytes == 0 && !ret_written) || (value_bytes && !ret_value) ||
        (value_bytes && value_bytes != attribute->bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (value_bytes)
        memcpy(ret_value, (const char *)object + attribute->offset, value_bytes);
    if (ret_written)
        *ret_written = attribute->bytes;
    return CUBLAS_STATUS_SUCCESS;
}

#define ATTRIBUTE(struct_, number_, field_)                                                                            \
    {                                                                                                                  \
        (number_), offsetof(struct struct_, field_), sizeof(((struct struct_ *)0)->field_)                             \
    }

static const struct flyt_soft_lt_attribute layout_attributes[] = {
#define ROW(number_, field_) ATTRIBUTE(flyt_soft_lt_layout, CUBLASLT_MATRIX_LAYOUT_##number_, field_)
    ROW(TYPE, type),
    ROW(ORDER, order),
    ROW(ROWS, rows),
    ROW(COLS, columns),
    ROW(LD, leading),
    ROW(BATCH_COUNT, batch_count),
    ROW(STRIDED_BATCH_OFFSET, stride),
    ROW(PLANE_OFFSET, plane_offset_bytes),
    ROW(BATCH_MODE, batch_mode),
#undef ROW
};

static const struct flyt_soft_lt_attribute matmul_attributes[] = {
#define ROW(number_, field_) ATTRIBUTE(flyt_soft_lt_matmul, CUBLASLT_MATMUL_DESC_##number_, field_)
    ROW(COMPUTE_TYPE, compute),
    ROW(SCALE_TYPE, scale_type),
    ROW(POINTER_MODE, pointer_mode),
    ROW(TRANSA, transa),
    ROW(TRANSB, transb),
    ROW(TRANSC, transc),
    ROW(FILL_MODE, fill_mode),
    ROW(EPILOGUE, epilogue),
    ROW(BIAS_POINTER, bias),
    ROW(BIAS_BATCH_STRIDE, bias_stride),
    ROW(EPILOGUE_AUX_POINTER, aux),
    ROW(EPILOGUE_AUX_LD, aux_leading),
    ROW(EPILOGUE_AUX_BATCH_STRIDE, aux_stride),
    ROW(ALPHA_VECTOR_BATCH_STRIDE, alpha_stride),
    ROW(SM_COUNT_TARGET, sm_count_target),
    ROW(A_SCALE_POINTER, a_scale),
    ROW(B_SCALE_POINTER, b_scale),
    ROW(C_SCALE_POINTER, c_scale),
    ROW(D_SCALE_POINTER, d_scale),
    ROW(AMAX_D_POINTER, d_amax),
    ROW(EPILOGUE_AUX_DATA_TYPE, aux_type),
    ROW(EPILOGUE_AUX_SCALE_POINTER, aux_scale),
    ROW(EPILOGUE_AUX_AMAX_POINTER, aux_amax),
    ROW(FAST_ACCUM, has_fast_accumulation),
    ROW(BIAS_DATA_TYPE, bias_type),
    ROW(A_SCALE_MODE, a_scale_mode),
    ROW(B_SCALE_MODE, b_scale_mode),
    ROW(C_SCALE_MODE, c_scale_mode),
    ROW(D_SCALE_MODE, d_scale_mode),
    ROW(EPILOGUE_AUX_SCALE_MODE, aux_scale_mode),
    ROW(D_OUT_SCALE_POINTER, d_out_scale),
    ROW(D_OUT_SCALE_MODE, d_out_scale_mode),
    ROW(EMULATION_DESCRIPTOR, emulation),
#undef ROW
};

static const struct flyt_soft_lt_attribute transform_attributes[] = {
#define ROW(number_, field_) ATTRIBUTE(flyt_soft_lt_transform, CUBLASLT_MATRIX_TRANSFORM_DESC_##number_, field_)
    ROW(SCALE_TYPE, scale_type),
    ROW(POINTER_MODE, pointer_mode),
    ROW(TRANSA, transa),
    ROW(TRANSB, transb),
#undef ROW
};

static const struct flyt_soft_lt_attribute preference_attributes[] = {
#define ROW(number_, field_) ATTRIBUTE(flyt_soft_lt_preference, CUBLASLT_MATMUL_PREF_##number_, field_)
    ROW(SEARCH_MODE, search_mode),
    ROW(MAX_WORKSPACE_BYTES, workspace_bytes_max),
    ROW(REDUCTION_SCHEME_MASK, reduction_mask),
    ROW(MIN_ALIGNMENT_A_BYTES, a_align_bytes),
    ROW(MIN_ALIGNMENT_B_BYTES, b_align_bytes),
    ROW(MIN_ALIGNMENT_C_BYTES, c_align_bytes),
    ROW(MIN_ALIGNMENT_D_BYTES, d_align_bytes),
    ROW(MAX_WAVES_COUNT, waves_max),
    ROW(IMPL_MASK, implementation_mask),
#undef ROW
};

static const struct flyt_soft_lt_attribute emulation_attributes[] = {
#define ROW(number_, field_) ATTRIBUTE(emulation, CUBLASLT_EMULATION_DESC_##number_, field_)
    ROW(STRATEGY, strategy),
    ROW(SPECIAL_VALUES_SUPPORT, special_values),
    ROW(FIXEDPOINT_MANTISSA_CONTROL, mantissa_control),
    ROW(FIXEDPOINT_MAX_MANTISSA_BIT_COUNT, mantissa_bits_max),
    ROW(FIXEDPOINT_MANTISSA_BIT_OFFSET, mantissa_offset),
    ROW(FIXEDPOINT_MANTISSA_BIT_COUNT_POINTER, mantissa_bits),
#undef ROW
};

/* ---- objects: Init_internal in the caller's memory, Create, Destroy, and the attributes ---- */

/* Writes the first state of an object into memory of the caller's. */
static cublasStatus_t begin(void *object, size_t size, size_t object_bytes, const void *initial, size_t initial_bytes)
{
    if (!object || size < object_bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    memset(object, 0, object_bytes);
    memcpy(object, initial, initial_bytes);
    return CUBLAS_STATUS_SUCCESS;
}

#define COUNT(table_) (sizeof(table_) / sizeof((table_)[0]))
#define EXPAND(...)   __VA_ARGS__

/*
 * All functions of an object. parameters_ and arguments_ are what Create takes after the object, each in brackets with
 * a comma in front; what follows is the first state.
 */
#define OBJECT(name_, opaque_, table_, attributes_, struct_, parameters_, arguments_, ...)                             \
    FLYT_SOFT_LT cublasLt##name_##Init_internal(opaque_ *object, size_t size EXPAND parameters_)                       \
    {                                                                                                                  \
        const struct struct_ initial = {__VA_ARGS__};                                                                  \
                                                                                                                       \
        return begin(object, size, sizeof(*object), &initial, sizeof(initial));                                        \
    }                                                                                                                  \
    FLYT_SOFT_LT cublasLt##name_##Create(opaque_ **object EXPAND parameters_)                                          \
    {                                                                                                                  \
        if (!object)                                                                                                   \
            return CUBLAS_STATUS_INVALID_VALUE;                                                                        \
        *object = malloc(sizeof(**object));                                                                            \
        if (!*object)                                                                                                  \
            return CUBLAS_STATUS_ALLOC_FAILED;                                                                         \
        return cublasLt##name_##Init_internal(*object, sizeof(**object) EXPAND arguments_);                            \
    }                                                                                                                  \
    FLYT_SOFT_LT cublasLt##name_##Destroy(opaque_ *object)                                                             \
    {                                                                                                                  \
        free(object);                                                                                                  \
        return CUBLAS_STATUS_SUCCESS;                                                                                  \
    }                                                                                                                  \
    FLYT_SOFT_LT cublasLt##name_##SetAttribute(opaque_ *object, attributes_ attr, const void *buf, size_t sizeInBytes) \
    {                                                                                                                  \
        return flyt_soft_lt_set(object, table_, COUNT(table_), (int)attr, buf, sizeInBytes);                           \
    }                                                                                                                  \
    FLYT_SOFT_LT cublasLt##name_##GetAttribute(opaque_ *object, attributes_ attr, void *buf, size_t sizeInBytes,       \
                                               size_t *sizeWritten)                                                    \
    {                                                                                                                  \
        return flyt_soft_lt_get(object, table_, COUNT(table_), (int)attr, buf, sizeInBytes, sizeWritten);              \
    }

OBJECT(MatrixLayout, cublasLtMatrixLayoutOpaque_t, layout_attributes, cublasLtMatrixLayoutAttribute_t,
       flyt_soft_lt_layout, (, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld), (, type, rows, cols, ld),
       .type = type, .rows = rows, .columns = cols, .leading = ld, .batch_count = 1)
OBJECT(MatmulDesc, cublasLtMatmulDescOpaque_t, matmul_attributes, cublasLtMatmulDescAttributes_t, flyt_soft_lt_matmul,
       (, cublasComputeType_t computeType, cudaDataType_t scaleType), (, computeType, scaleType),
       .compute = (int32_t)computeType, .scale_type = (int32_t)scaleType, .fill_mode = CUBLAS_FILL_MODE_FULL,
       .epilogue = CUBLASLT_EPILOGUE_DEFAULT, .aux_type = -1, .bias_type = -1)
OBJECT(MatrixTransformDesc, cublasLtMatrixTransformDescOpaque_t, transform_attributes,
       cublasLtMatrixTransformDescAttributes_t, flyt_soft_lt_transform, (, cudaDataType scaleType), (, scaleType),
       .scale_type = (int32_t)scaleType)
OBJECT(MatmulPreference, cublasLtMatmulPreferenceOpaque_t, preference_attributes, cublasLtMatmulPreferenceAttributes_t,
       flyt_soft_lt_preference, (), (), .implementation_mask = UINT64_MAX,
       .reduction_mask = CUBLASLT_REDUCTION_SCHEME_MASK, .a_align_bytes = 256, .b_align_bytes = 256,
       .c_align_bytes = 256, .d_align_bytes = 256)
OBJECT(EmulationDesc, cublasLtEmulationDescOpaque_t, emulation_attributes, cublasLtEmulationDescAttributes_t, emulation,
       (), (), .strategy = CUBLAS_EMULATION_STRATEGY_DEFAULT)

/* ---- layouts ---- */

cublasStatus_t flyt_soft_lt_layout_check(const struct flyt_soft_lt_layout *layout)
{
    bool is_row = layout->order == CUBLASLT_ORDER_ROW;

    if (!flyt_soft_number_bytes((cudaDataType)layout->type) || (layout->order != CUBLASLT_ORDER_COL && !is_row) ||
        layout->plane_offset_bytes || layout->rows > INT32_MAX || layout->columns > INT32_MAX ||
        layout->leading > INT32_MAX)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return layout->leading < 1 || (uint64_t)layout->leading < (is_row ? layout->columns : layout->rows) ||
                   layout->batch_count < 0 || layout->batch_mode > CUBLASLT_BATCH_MODE_POINTER_ARRAY
               ? CUBLAS_STATUS_INVALID_VALUE
               : CUBLAS_STATUS_SUCCESS;
}

uint64_t flyt_soft_lt_layout_bytes(const struct flyt_soft_lt_layout *layout)
{
    bool is_row = layout->order == CUBLASLT_ORDER_ROW;
    uint64_t lines = is_row ? layout->rows : layout->columns, in_line = is_row ? layout->columns : layout->rows;

    if (lines == 0 || in_line == 0)
        return 0;
    return ((lines - 1) * (uint64_t)layout->leading + in_line) * flyt_soft_number_bytes((cudaDataType)layout->type);
}

void *flyt_soft_lt_column(const struct flyt_soft_lt_layout *layout, const void *at, uint64_t column, int64_t *ret_inc)
{
    bool is_row = layout->order == CUBLASLT_ORDER_ROW;

    *ret_inc = is_row ? layout->leading : 1;
    return (char *)at +
           column * (is_row ? 1 : (uint64_t)layout->leading) * flyt_soft_number_bytes((cudaDataType)layout->type);
}

const void *flyt_soft_lt_member(const struct flyt_soft_lt_layout *layout, const void *at, int64_t member)
{
    const void *const *array = at;

    if (layout->batch_mode == CUBLASLT_BATCH_MODE_POINTER_ARRAY)
        return flyt_soft_work_reaches(&array[member], sizeof(array[0])) ? array[member] : NULL;
    return (const char *)at + member * layout->stride * (int64_t)flyt_soft_number_bytes((cudaDataType)layout->type);
}
