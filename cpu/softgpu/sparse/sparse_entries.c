/* Where the numbers of cuSPARSE's matrices are: indices, dense matrices, and the entries of each sparse format. */
#include <stdlib.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/sparse/sparse.h"

/* ---- indices and scalars ---- */

unsigned flyt_soft_index_bytes(cusparseIndexType_t type)
{
    return type == CUSPARSE_INDEX_16U ? 2 : type == CUSPARSE_INDEX_32I ? 4 : type == CUSPARSE_INDEX_64I ? 8 : 0;
}

int64_t flyt_soft_index_get(cusparseIndexType_t type, const void *base, int64_t index)
{
    switch (type) {
    case CUSPARSE_INDEX_16U:
        return ((const uint16_t *)base)[index];
    case CUSPARSE_INDEX_32I:
        return ((const int32_t *)base)[index];
    default:
        return ((const int64_t *)base)[index];
    }
}

void flyt_soft_index_put(cusparseIndexType_t type, void *base, int64_t index, int64_t value)
{
    switch (type) {
    case CUSPARSE_INDEX_16U:
        ((uint16_t *)base)[index] = (uint16_t)value;
        break;
    case CUSPARSE_INDEX_32I:
        ((int32_t *)base)[index] = (int32_t)value;
        break;
    default:
        ((int64_t *)base)[index] = value;
        break;
    }
}

flyt_soft_complex flyt_soft_scalar_number(const struct flyt_soft_scalar *scalar, cudaDataType type)
{
    return flyt_soft_number_get(type, scalar->value);
}

/* ---- dense matrices ---- */

void *flyt_soft_dense_at(const struct flyt_soft_dense *dense, int64_t row, int64_t column)
{
    bool is_row_major = dense->order == CUSPARSE_ORDER_ROW;
    int64_t place = is_row_major ? row * dense->leading + column : column * dense->leading + row;

    return (char *)dense->values + place * flyt_soft_number_bytes(dense->type);
}

bool flyt_soft_dense_find(const struct flyt_soft_dense *dense, int64_t member, struct flyt_soft_dense *ret_one)
{
    unsigned bytes = flyt_soft_number_bytes(dense->type);

    *ret_one = *dense;
    if (dense->batch_count > 1)
        ret_one->values = (char *)dense->values + member * dense->stride * bytes;
    if (!dense->rows || !dense->columns)
        return true;
    char *end = (char *)flyt_soft_dense_at(ret_one, dense->rows - 1, dense->columns - 1) + bytes;
    return flyt_soft_work_reaches(ret_one->values, (uint64_t)(end - (char *)ret_one->values));
}

flyt_soft_complex flyt_soft_dense_get(const struct flyt_soft_dense *dense, cusparseOperation_t op, int64_t row,
                                      int64_t column)
{
    bool is_plain = op == CUSPARSE_OPERATION_NON_TRANSPOSE;
    const void *at = flyt_soft_dense_at(dense, is_plain ? row : column, is_plain ? column : row);
    flyt_soft_complex value = flyt_soft_number_get(dense->type, at);

    return op == CUSPARSE_OPERATION_CONJUGATE_TRANSPOSE ? conj(value) : value;
}

/* ---- sparse matrices ---- */

/* What is read of one member of a batch. */
struct reading {
    const struct cusparseSpMatDescr *matrix;
    const char *offsets, *indices;
    char *values;
    unsigned number_bytes;
    struct flyt_soft_entry *list;
    int64_t count, room;
};

static int64_t offset_of(const struct reading *self, int64_t index)
{
    return flyt_soft_index_get(self->matrix->offset_type, self->offsets, index) - self->matrix->base;
}

static int64_t index_of(const struct reading *self, int64_t index)
{
    return flyt_soft_index_get(self->matrix->index_type, self->indices, index) - self->matrix->base;
}

static bool add(struct reading *self, int64_t row, int64_t column, int64_t place)
{
    const struct cusparseSpMatDescr *m = self->matrix;
    bool is_bsr = m->format == CUSPARSE_FORMAT_BSR;
    int64_t rows = is_bsr ? m->rows * m->block_rows : m->rows,
            columns = is_bsr ? m->columns * m->block_columns : m->columns;

    if (row < 0 || row >= rows || column < 0 || column >= columns || self->count == self->room)
        return false;
    self->list[self->count++] = (struct flyt_soft_entry){row, column, self->values + place * self->number_bytes};
    return true;
}

/* One block of BSR, or one number where `rows` and `columns` are 1. */
static bool add_block(struct reading *self, int64_t row, int64_t column, int64_t place)
{
    const struct cusparseSpMatDescr *m = self->matrix;
    bool is_row_major = m->order != CUSPARSE_ORDER_COL;
    bool is_well = true;

    for (int64_t i = 0; i < m->block_rows; i++)
        for (int64_t j = 0; j < m->block_columns && is_well; j++)
            is_well = add(self, row * m->block_rows + i, column * m->block_columns + j,
                          place * m->block_rows * m->block_columns +
                              (is_row_major ? i * m->block_columns + j : j * m->block_rows + i));
    return is_well;
}

/* CSR, CSC and BSR. */
static bool read_compressed(struct reading *self)
{
    const struct cusparseSpMatDescr *m = self->matrix;
    bool is_csc = m->format == CUSPARSE_FORMAT_CSC, is_well = true;

    for (int64_t i = 0; i < (is_csc ? m->columns : m->rows) && is_well; i++) {
        int64_t end = offset_of(self, i + 1);

        for (int64_t k = offset_of(self, i); k < end && is_well; k++) {
            if (k < 0 || k >= m->nnz)
                return false;
            is_well = m->format == CUSPARSE_FORMAT_BSR ? add_block(self, i, index_of(self, k), k)
                      : is_csc                         ? add(self, index_of(self, k), i, k)
                                                       : add(self, i, index_of(self, k), k);
        }
    }
    return is_well;
}

static bool read_coordinates(struct reading *self)
{
    const struct cusparseSpMatDescr *m = self->matrix;
    bool is_well = true;

    for (int64_t k = 0; k < m->nnz && is_well; k++)
        is_well = add(self, flyt_soft_index_get(m->index_type, self->offsets, k) - m->base, index_of(self, k), k);
    return is_well;
}

/* An index below 0 is a place without a block, or without a number. */
static bool read_blocked_ell(struct reading *self)
{
    const struct cusparseSpMatDescr *m = self->matrix;
    int64_t size = m->block_rows, across = m->ell_columns / size;
    bool is_well = true;

    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < across * size && is_well; j++) {
            int64_t block = index_of(self, i / size * across + j / size);

            if (block >= 0)
                is_well = add(self, i, block * size + j % size, i * m->ell_columns + j);
        }
    return is_well;
}

static bool read_sliced_ell(struct reading *self)
{
    const struct cusparseSpMatDescr *m = self->matrix;
    bool is_well = true;

    for (int64_t i = 0; i < m->rows; i++) {
        int64_t slice = i / m->slice_rows, end = offset_of(self, slice + 1);

        for (int64_t k = offset_of(self, slice) + i % m->slice_rows; k < end && is_well; k += m->slice_rows) {
            if (k < 0 || k >= m->values_count)
                return false;
            if (index_of(self, k) >= 0)
                is_well = add(self, i, index_of(self, k), k);
        }
    }
    return is_well;
}

struct counts {
    int64_t offsets, indices, values;
};

/* How many of each a format has in memory. */
static struct counts counts_of(const struct cusparseSpMatDescr *m)
{
    int64_t in_block = m->block_rows * m->block_columns;

    switch (m->format) {
    case CUSPARSE_FORMAT_CSR:
        return (struct counts){m->rows + 1, m->nnz, m->nnz};
    case CUSPARSE_FORMAT_CSC:
        return (struct counts){m->columns + 1, m->nnz, m->nnz};
    case CUSPARSE_FORMAT_BSR:
        return (struct counts){m->rows + 1, m->nnz, m->nnz * in_block};
    case CUSPARSE_FORMAT_BLOCKED_ELL:
        return (struct counts){0, m->rows / m->block_rows * (m->ell_columns / m->block_rows), m->rows * m->ell_columns};
    case CUSPARSE_FORMAT_SLICED_ELLPACK:
        return (struct counts){(m->rows + m->slice_rows - 1) / m->slice_rows + 1, m->values_count, m->values_count};
    default:
        return (struct counts){m->nnz, m->nnz, m->nnz};
    }
}

static bool read_entries(struct reading *self)
{
    switch (self->matrix->format) {
    case CUSPARSE_FORMAT_COO:
        return read_coordinates(self);
    case CUSPARSE_FORMAT_BLOCKED_ELL:
        return read_blocked_ell(self);
    case CUSPARSE_FORMAT_SLICED_ELLPACK:
        return read_sliced_ell(self);
    default:
        return read_compressed(self);
    }
}

CUresult flyt_soft_entries_load(const struct cusparseSpMatDescr *matrix, int64_t member,
                                struct flyt_soft_entry **ret_list, int64_t *ret_count)
{
    struct counts counts = counts_of(matrix);
    bool is_coo = matrix->format == CUSPARSE_FORMAT_COO;
    unsigned offset_bytes = flyt_soft_index_bytes(is_coo ? matrix->index_type : matrix->offset_type),
             index_bytes = flyt_soft_index_bytes(matrix->index_type), bytes = flyt_soft_number_bytes(matrix->type);
    struct reading self = {.matrix = matrix, .number_bytes = bytes, .room = counts.values};

    member = matrix->batch_count > 1 ? member : 0;
    self.offsets = (char *)matrix->offsets + member * matrix->offset_stride * offset_bytes;
    self.indices = (char *)matrix->indices + member * matrix->index_stride * index_bytes;
    self.values = (char *)matrix->values + member * matrix->value_stride * bytes;
    *ret_list = NULL;
    *ret_count = 0;
    if ((counts.offsets && !flyt_soft_work_reaches(self.offsets, (uint64_t)counts.offsets * offset_bytes)) ||
        (counts.indices && !flyt_soft_work_reaches(self.indices, (uint64_t)counts.indices * index_bytes)) ||
        (counts.values && !flyt_soft_work_reaches(self.values, (uint64_t)counts.values * bytes)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    self.list = malloc(((size_t)counts.values + 1) * sizeof(*self.list));
    if (!self.list)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!read_entries(&self)) {
        free(self.list);
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    *ret_list = self.list;
    *ret_count = self.count;
    return CUDA_SUCCESS;
}

static int compare(const void *left, const void *right)
{
    const struct flyt_soft_entry *a = left, *b = right;

    if (a->row != b->row)
        return a->row < b->row ? -1 : 1;
    return (a->column > b->column) - (a->column < b->column);
}

void flyt_soft_entries_sort(struct flyt_soft_entry *list, int64_t count)
{
    qsort(list, (size_t)count, sizeof(*list), compare);
}
