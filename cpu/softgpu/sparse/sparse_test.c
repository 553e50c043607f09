/* cuSPARSE on the software GPU, in every format and type, against plain loops over dense matrices. */
#include "cpu/softgpu/sparse/sparse.h"
#include "cpu/softgpu/library/test.h"

enum { ROWS = 8, INNER = 6, COLUMNS = 4, BLOCK = 2 };

static cusparseHandle_t handle;
static CUdeviceptr buffer;
static const cudaDataType types[] = {CUDA_R_16F, CUDA_R_16BF, CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F};
enum { TYPES = sizeof types / sizeof types[0] };
static const cusparseFormat_t formats[] = {CUSPARSE_FORMAT_CSR,         CUSPARSE_FORMAT_CSC,
                                           CUSPARSE_FORMAT_COO,         CUSPARSE_FORMAT_BSR,
                                           CUSPARSE_FORMAT_BLOCKED_ELL, CUSPARSE_FORMAT_SLICED_ELLPACK};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static int start(void **state)
{
    test_start();
    assert_ok(cusparseCreate(&handle));
    assert_ok(cusparseSetStream(handle, test_stream));
    assert_ok(cuMemAlloc(&buffer, 64));
    return 0;
}

static cudaDataType compute_of(cudaDataType type)
{
    return type == CUDA_R_16F || type == CUDA_R_16BF ? CUDA_R_32F : type;
}

/* A scalar in host memory as a call takes it. */
static const void *scalar(cudaDataType type, double value)
{
    static _Alignas(16) unsigned char places[2][16];
    static unsigned next;
    void *place = places[next++ % 2];

    flyt_soft_number_put(type, place, value);
    return place;
}

static void check_near(test_number got, test_number wanted, cudaDataType type)
{
    assert_true(cabs(got - wanted) <= 8 * test_tolerance(type) * fmax(1, cabs(wanted)));
}

/* ---- sparse matrices ---- */

/* A matrix in device memory, and what it was made of: `dense` by rows. */
struct matrix {
    cusparseSpMatDescr_t descr;
    struct test_vector dense, values;
    int64_t rows, columns, nnz;
    cusparseIndexType_t index_type;
    cusparseIndexBase_t base;
    CUdeviceptr offsets, indices;
};

static CUdeviceptr upload_indices(cusparseIndexType_t type, const int64_t *from, int64_t count)
{
    char *raw = malloc((size_t)count * 8 + 8);
    CUdeviceptr device;

    for (int64_t i = 0; i < count; i++)
        flyt_soft_index_put(type, raw, i, from[i]);
    assert_ok(cuMemAlloc(&device, (size_t)count * 8 + 8));
    assert_ok(cuMemcpyHtoD(device, raw, (size_t)count * flyt_soft_index_bytes(type)));
    free(raw);
    return device;
}

static void download_indices(cusparseIndexType_t type, CUdeviceptr from, int64_t *ret, int64_t count)
{
    char *raw = malloc((size_t)count * 8 + 8);

    assert_ok(cuStreamSynchronize(test_stream));
    assert_ok(cuMemcpyDtoH(raw, from, (size_t)count * flyt_soft_index_bytes(type)));
    for (int64_t i = 0; i < count; i++)
        ret[i] = flyt_soft_index_get(type, raw, i);
    free(raw);
}

/* What is written of a matrix while it is laid out. */
struct layout {
    int64_t offsets[64], indices[256], offset_count, index_count, count;
    test_number values[256];
};

static void lay_out(struct layout *to, const struct matrix *m, cusparseFormat_t format)
{
    bool is_csc = format == CUSPARSE_FORMAT_CSC, is_coo = format == CUSPARSE_FORMAT_COO;
    int64_t outer = is_csc ? m->columns : m->rows, inner = is_csc ? m->rows : m->columns;

    for (int64_t i = 0; i < outer; i++) {
        if (!is_coo)
            to->offsets[to->offset_count++] = to->count + m->base;
        for (int64_t j = 0; j < inner; j++) {
            test_number value = m->dense.value[is_csc ? j * m->columns + i : i * m->columns + j];

            if (value == 0)
                continue;
            if (is_coo)
                to->offsets[to->offset_count++] = i + m->base;
            to->indices[to->index_count++] = j + m->base;
            to->values[to->count++] = value;
        }
    }
    if (!is_coo)
        to->offsets[to->offset_count++] = to->count + m->base;
}

/* All blocks are there, in falling order of their columns: BSR by rows within a block, Blocked ELL by rows of all. */
static void lay_out_blocks(struct layout *to, const struct matrix *m, bool is_bsr)
{
    int64_t across = m->columns / BLOCK;

    for (int64_t i = 0; i < m->rows / BLOCK; i++) {
        to->offsets[to->offset_count++] = i * across + m->base;
        for (int64_t j = 0; j < across; j++)
            to->indices[to->index_count++] = across - 1 - j + m->base;
    }
    to->offsets[to->offset_count++] = m->rows / BLOCK * across + m->base;
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->columns; j++) {
            int64_t column = (across - 1 - j / BLOCK) * BLOCK + j % BLOCK,
                    place = is_bsr ? (i / BLOCK * across + j / BLOCK) * BLOCK * BLOCK + i % BLOCK * BLOCK + j % BLOCK
                                   : i * m->columns + j;

            to->values[place] = m->dense.value[i * m->columns + column];
        }
    to->count = m->rows * m->columns;
}

/* Slices of two rows, as long as the longer one. */
static void lay_out_slices(struct layout *to, const struct matrix *m)
{
    for (int64_t i = 0; i < m->rows; i += BLOCK) {
        int64_t first = to->count, longest = 0;

        to->offsets[to->offset_count++] = first + m->base;
        for (int64_t r = 0; r < BLOCK; r++) {
            int64_t length = 0;

            for (int64_t j = 0; j < m->columns; j++) {
                int64_t place = first + length * BLOCK + r;

                if (m->dense.value[(i + r) * m->columns + j] == 0)
                    continue;
                to->indices[place] = j + m->base + 1; /* 0 is none, for now */
                to->values[place] = m->dense.value[(i + r) * m->columns + j];
                length++;
            }
            longest = length > longest ? length : longest;
        }
        to->count = first + longest * BLOCK;
    }
    to->offsets[to->offset_count++] = to->count + m->base;
    to->index_count = to->count;
    for (int64_t i = 0; i < to->count; i++)
        to->indices[i] = to->indices[i] ? to->indices[i] - 1 : -1;
}

static void describe(struct matrix *m, cusparseFormat_t format, const struct layout *from)
{
    void *offsets = (void *)m->offsets, *indices = (void *)m->indices, *values = (void *)m->values.device;
    cusparseIndexType_t t = m->index_type;
    cudaDataType type = m->values.type;

    switch (format) {
    case CUSPARSE_FORMAT_CSR:
        assert_ok(
            cusparseCreateCsr(&m->descr, m->rows, m->columns, m->nnz, offsets, indices, values, t, t, m->base, type));
        break;
    case CUSPARSE_FORMAT_CSC:
        assert_ok(
            cusparseCreateCsc(&m->descr, m->rows, m->columns, m->nnz, offsets, indices, values, t, t, m->base, type));
        break;
    case CUSPARSE_FORMAT_COO:
        assert_ok(
            cusparseCreateCoo(&m->descr, m->rows, m->columns, m->nnz, offsets, indices, values, t, m->base, type));
        break;
    case CUSPARSE_FORMAT_BSR:
        assert_ok(cusparseCreateBsr(&m->descr, m->rows / BLOCK, m->columns / BLOCK, from->index_count, BLOCK, BLOCK,
                                    offsets, indices, values, t, t, m->base, type, CUSPARSE_ORDER_ROW));
        break;
    case CUSPARSE_FORMAT_BLOCKED_ELL:
        assert_ok(cusparseCreateBlockedEll(&m->descr, m->rows, m->columns, BLOCK, m->columns, indices, values, t,
                                           m->base, type));
        break;
    default:
        assert_ok(cusparseCreateSlicedEll(&m->descr, m->rows, m->columns, m->nnz, from->count, BLOCK, offsets, indices,
                                          values, t, t, m->base, type));
    }
}

/* About half of its numbers are 0; `triangle` below 0: only at and below the diagonal, which is not 0; above: above. */
static struct matrix matrix_new(cusparseFormat_t format, cudaDataType type, cusparseIndexType_t index_type,
                                cusparseIndexBase_t base, int64_t rows, int64_t columns, int triangle)
{
    struct matrix m = {.rows = rows, .columns = columns, .index_type = index_type, .base = base};
    struct layout *layout = calloc(1, sizeof(*layout));

    m.dense = test_vector_new(type, (size_t)(rows * columns));
    for (int64_t i = 0; i < rows * columns; i++) {
        int64_t row = i / columns, column = i % columns;

        if ((triangle && row == column))
            m.dense.value[i] += 4;
        else if (test_random() < 0 || (row - column) * triangle > 0)
            m.dense.value[i] = 0;
        m.nnz += m.dense.value[i] != 0;
    }
    if (format == CUSPARSE_FORMAT_SLICED_ELLPACK)
        lay_out_slices(layout, &m);
    else if (format == CUSPARSE_FORMAT_BSR || format == CUSPARSE_FORMAT_BLOCKED_ELL)
        lay_out_blocks(layout, &m, format == CUSPARSE_FORMAT_BSR);
    else
        lay_out(layout, &m, format);
    m.values = test_vector_new(type, (size_t)layout->count + 1);
    memcpy(m.values.value, layout->values, (size_t)layout->count * sizeof(test_number));
    test_upload(&m.values);
    m.offsets = upload_indices(index_type, layout->offsets, layout->offset_count);
    m.indices = upload_indices(index_type, layout->indices, layout->index_count);
    describe(&m, format, layout);
    free(layout);
    return m;
}

static void matrix_free(struct matrix *m)
{
    assert_ok(cusparseDestroySpMat(m->descr));
    test_vector_free(&m->dense);
    test_vector_free(&m->values);
    assert_ok(cuMemFree(m->offsets));
    assert_ok(cuMemFree(m->indices));
}

/* The number at (i, j) of op(m). */
static test_number of(const struct matrix *m, cusparseOperation_t op, int64_t i, int64_t j)
{
    if (op == CUSPARSE_OPERATION_NON_TRANSPOSE)
        return m->dense.value[i * m->columns + j];
    return op == CUSPARSE_OPERATION_TRANSPOSE ? m->dense.value[j * m->columns + i]
                                              : conj(m->dense.value[j * m->columns + i]);
}

/* ---- products ---- */

static void check_product(cusparseFormat_t format, cudaDataType type, cusparseIndexType_t index_type,
                          cusparseIndexBase_t base, cusparseOperation_t op)
{
    struct matrix a = matrix_new(format, type, index_type, base, ROWS, INNER, 0);
    bool is_plain = op == CUSPARSE_OPERATION_NON_TRANSPOSE;
    int64_t m = is_plain ? ROWS : INNER, k = is_plain ? INNER : ROWS;
    struct test_vector b = test_vector_new(type, (size_t)(k * COLUMNS)),
                       c = test_vector_new(type, (size_t)(m * COLUMNS)),
                       old = test_vector_new(type, (size_t)(m * COLUMNS));
    cusparseDnMatDescr_t db, dc;
    cusparseDnVecDescr_t x, y;

    memcpy(old.value, c.value, c.count * sizeof(test_number));
    assert_ok(cusparseCreateDnMat(&db, k, COLUMNS, COLUMNS, (void *)b.device, type, CUSPARSE_ORDER_ROW));
    assert_ok(cusparseCreateDnMat(&dc, m, COLUMNS, m, (void *)c.device, type, CUSPARSE_ORDER_COL));
    assert_ok(cusparseSpMM(handle, op, CUSPARSE_OPERATION_NON_TRANSPOSE, scalar(compute_of(type), 2), a.descr, db,
                           scalar(compute_of(type), 0.5), dc, compute_of(type), CUSPARSE_SPMM_ALG_DEFAULT,
                           (void *)buffer));
    assert_ok(cusparseDestroyDnMat(db));
    assert_ok(cusparseDestroyDnMat(dc));
    test_download(&c);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < COLUMNS; j++) {
            test_number sum = 0;

            for (int64_t l = 0; l < k; l++)
                sum += of(&a, op, i, l) * b.value[l * COLUMNS + j];
            check_near(c.value[j * m + i], 2 * sum + 0.5 * old.value[j * m + i], type);
        }
    /* A vector: the first k numbers of b. What is multiplied by 0 is not read. */
    assert_ok(cusparseCreateDnVec(&x, k, (void *)b.device, type));
    assert_ok(cusparseCreateDnVec(&y, m, (void *)c.device, type));
    c.value[0] = NAN;
    test_upload(&c);
    assert_ok(cusparseSpMV(handle, op, scalar(compute_of(type), 3), a.descr, x, scalar(compute_of(type), 0), y,
                           compute_of(type), CUSPARSE_SPMV_ALG_DEFAULT, (void *)buffer));
    assert_ok(cusparseDestroyDnVec(x));
    assert_ok(cusparseDestroyDnVec(y));
    test_download(&c);
    for (int64_t i = 0; i < m; i++) {
        test_number sum = 0;

        for (int64_t l = 0; l < k; l++)
            sum += of(&a, op, i, l) * b.value[l];
        check_near(c.value[i], 3 * sum, type);
    }
    matrix_free(&a);
    test_vector_free(&b);
    test_vector_free(&c);
    test_vector_free(&old);
}

static void products(void **state)
{
    for (int f = 0; f < FORMATS; f++)
        for (int t = 0; t < TYPES; t++)
            for (int i = 0; i < 4; i++)
                for (int op = 0; op < 3; op++)
                    check_product(formats[f], types[t], i % 2 ? CUSPARSE_INDEX_64I : CUSPARSE_INDEX_32I,
                                  i / 2 ? CUSPARSE_INDEX_BASE_ONE : CUSPARSE_INDEX_BASE_ZERO, (cusparseOperation_t)op);
}

/* op_b transposed, scalars in device memory, two of a batch. */
static void batches_of_products(void **state)
{
    const cudaDataType type = CUDA_R_64F;
    struct matrix a =
        matrix_new(CUSPARSE_FORMAT_CSR, type, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, ROWS, INNER, 0);
    struct test_vector b = test_vector_new(type, 2 * INNER * COLUMNS), c = test_vector_new(type, 2 * ROWS * COLUMNS),
                       scalars = test_vector_new(type, 2);
    cusparseDnMatDescr_t db, dc;

    assert_ok(cusparseCreateDnMat(&db, COLUMNS, INNER, COLUMNS, (void *)b.device, type, CUSPARSE_ORDER_COL));
    assert_ok(cusparseCreateDnMat(&dc, ROWS, COLUMNS, ROWS, (void *)c.device, type, CUSPARSE_ORDER_COL));
    assert_ok(cusparseDnMatSetStridedBatch(db, 2, INNER * COLUMNS));
    assert_ok(cusparseDnMatSetStridedBatch(dc, 2, ROWS * COLUMNS));
    assert_ok(cusparseCsrSetStridedBatch(a.descr, 2, 0, 0)); /* both members are this one */
    scalars.value[0] = 2;
    scalars.value[1] = 0;
    test_upload(&scalars);
    assert_ok(cusparseSetPointerMode(handle, CUSPARSE_POINTER_MODE_DEVICE));
    assert_ok(cusparseSpMM(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_TRANSPOSE,
                           (void *)scalars.device, a.descr, db, (void *)(scalars.device + 8), dc, type,
                           CUSPARSE_SPMM_ALG_DEFAULT, NULL));
    assert_ok(cusparseSetPointerMode(handle, CUSPARSE_POINTER_MODE_HOST));
    test_download(&c);
    for (int64_t p = 0; p < 2 * ROWS * COLUMNS; p++) {
        int64_t member = p / (ROWS * COLUMNS), i = p % ROWS, j = p / ROWS % COLUMNS;
        test_number sum = 0;

        for (int64_t l = 0; l < INNER; l++)
            sum += a.dense.value[i * INNER + l] * b.value[member * INNER * COLUMNS + l * COLUMNS + j];
        check_near(c.value[p], 2 * sum, type);
    }
    assert_ok(cusparseDestroyDnMat(db));
    assert_ok(cusparseDestroyDnMat(dc));
    matrix_free(&a);
    test_vector_free(&b);
    test_vector_free(&c);
    test_vector_free(&scalars);
}

/* Reads a matrix in CSR back, as a dense one by rows. */
static test_number *dense_of(struct matrix *m, int64_t nnz)
{
    test_number *dense = calloc((size_t)(m->rows * m->columns), sizeof(*dense));
    int64_t offsets[64], indices[256];

    download_indices(m->index_type, m->offsets, offsets, m->rows + 1);
    download_indices(m->index_type, m->indices, indices, nnz);
    test_download(&m->values);
    assert_int_equal(offsets[m->rows] - m->base, nnz);
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t k = offsets[i] - m->base; k < offsets[i + 1] - m->base; k++) {
            assert_in_range(indices[k] - m->base, 0, m->columns - 1);
            assert_true(k == offsets[i] - m->base || indices[k] > indices[k - 1]);
            dense[i * m->columns + indices[k] - m->base] = m->values.value[k];
        }
    return dense;
}

static void sampled_products(void **state)
{
    for (int t = 0; t < TYPES; t++) {
        const cudaDataType type = types[t], compute = compute_of(type);
        struct matrix c =
            matrix_new(CUSPARSE_FORMAT_CSR, type, CUSPARSE_INDEX_64I, CUSPARSE_INDEX_BASE_ONE, ROWS, COLUMNS, 0);
        struct test_vector a = test_vector_new(type, ROWS * INNER), b = test_vector_new(type, INNER * COLUMNS);
        cusparseDnMatDescr_t da, db;
        test_number *got;

        assert_ok(cusparseCreateDnMat(&da, ROWS, INNER, INNER, (void *)a.device, type, CUSPARSE_ORDER_ROW));
        assert_ok(cusparseCreateDnMat(&db, COLUMNS, INNER, INNER, (void *)b.device, type, CUSPARSE_ORDER_ROW));
        assert_ok(cusparseSDDMM(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_TRANSPOSE,
                                scalar(compute, 2), da, db, scalar(compute, 3), c.descr, compute,
                                CUSPARSE_SDDMM_ALG_DEFAULT, (void *)buffer));
        got = dense_of(&c, c.nnz);
        for (int64_t i = 0; i < ROWS; i++)
            for (int64_t j = 0; j < COLUMNS; j++) {
                test_number old = c.dense.value[i * COLUMNS + j], sum = 0;

                for (int64_t k = 0; k < INNER; k++)
                    sum += a.value[i * INNER + k] * b.value[j * INNER + k];
                check_near(got[i * COLUMNS + j], old == 0 ? 0 : 2 * sum + 3 * old, type);
            }
        free(got);
        assert_ok(cusparseDestroyDnMat(da));
        assert_ok(cusparseDestroyDnMat(db));
        matrix_free(&c);
        test_vector_free(&a);
        test_vector_free(&b);
    }
}

/* ---- products of sparse matrices ---- */

#define N_ CUSPARSE_OPERATION_NON_TRANSPOSE

/* A matrix without numbers, for a result. */
static struct matrix result_new(cudaDataType type, int64_t rows, int64_t columns)
{
    struct matrix m =
        matrix_new(CUSPARSE_FORMAT_CSR, type, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, rows, columns, 0);

    assert_ok(cusparseDestroySpMat(m.descr));
    assert_ok(cuMemFree(m.indices));
    assert_ok(cuMemAlloc(&m.indices, 256 * 8));
    test_vector_free(&m.values);
    m.values = test_vector_new(type, (size_t)(rows * columns));
    assert_ok(cusparseCreateCsr(&m.descr, rows, columns, 0, (void *)m.offsets, NULL, NULL, m.index_type, m.index_type,
                                m.base, type));
    return m;
}

static void check_sparse_product(const struct matrix *a, const struct matrix *b, struct matrix *c, int64_t nnz,
                                 double alpha)
{
    test_number *got = dense_of(c, nnz);

    for (int64_t i = 0; i < c->rows; i++)
        for (int64_t j = 0; j < c->columns; j++) {
            test_number sum = 0;

            for (int64_t k = 0; k < a->columns; k++)
                sum += of(a, N_, i, k) * of(b, N_, k, j);
            check_near(got[i * c->columns + j], alpha * sum, c->values.type);
        }
    free(got);
}

static int64_t set_result(struct matrix *c)
{
    int64_t rows, columns, nnz;

    assert_ok(cusparseSpMatGetSize(c->descr, &rows, &columns, &nnz));
    assert_in_range(nnz, 1, rows * columns);
    assert_ok(cusparseDestroySpMat(c->descr));
    assert_ok(cusparseCreateCsr(&c->descr, rows, columns, nnz, (void *)c->offsets, (void *)c->indices,
                                (void *)c->values.device, c->index_type, c->index_type, c->base, c->values.type));
    return nnz;
}

static void sparse_products(void **state)
{
    for (int t = 2; t < TYPES; t++) {
        cudaDataType type = types[t];
        struct matrix a = matrix_new(CUSPARSE_FORMAT_CSR, type, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, ROWS,
                                     INNER, 0),
                      b = matrix_new(CUSPARSE_FORMAT_CSR, type, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ONE, INNER,
                                     COLUMNS, 0),
                      c = result_new(type, ROWS, COLUMNS);
        cusparseSpGEMMDescr_t product;
        size_t bytes = 0;
        int64_t nnz, multiplications = 0, wanted = 0;

        assert_ok(cusparseSpGEMM_createDescr(&product));
        for (int pass = 0; pass < 2; pass++)
            assert_ok(cusparseSpGEMM_workEstimation(handle, N_, N_, scalar(type, 2), a.descr, b.descr, scalar(type, 0),
                                                    c.descr, type, CUSPARSE_SPGEMM_DEFAULT, product, &bytes,
                                                    pass ? (void *)buffer : NULL));
        assert_ok(cusparseSpGEMM_getNumProducts(product, &multiplications));
        for (int64_t i = 0; i < ROWS * INNER * COLUMNS; i++)
            wanted += of(&a, N_, i / (INNER * COLUMNS), i / COLUMNS % INNER) != 0 &&
                      of(&b, N_, i / COLUMNS % INNER, i % COLUMNS) != 0;
        assert_int_equal(multiplications, wanted);
        for (int pass = 0; pass < 2; pass++)
            assert_ok(cusparseSpGEMM_compute(handle, N_, N_, scalar(type, 2), a.descr, b.descr, scalar(type, 0),
                                             c.descr, type, CUSPARSE_SPGEMM_DEFAULT, product, &bytes,
                                             pass ? (void *)buffer : NULL));
        assert_in_range(bytes, 1, 64);
        nnz = set_result(&c);
        assert_ok(cusparseSpGEMM_copy(handle, N_, N_, scalar(type, 2), a.descr, b.descr, scalar(type, 0), c.descr, type,
                                      CUSPARSE_SPGEMM_DEFAULT, product));
        assert_ok(cusparseSpGEMM_destroyDescr(product));
        check_sparse_product(&a, &b, &c, nnz, 2);
        matrix_free(&a);
        matrix_free(&b);
        matrix_free(&c);
    }
}

static void sparse_products_again(void **state)
{
    const cudaDataType type = CUDA_R_64F;
    struct matrix a = matrix_new(CUSPARSE_FORMAT_CSR, type, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, ROWS, INNER,
                                 0),
                  b = matrix_new(CUSPARSE_FORMAT_CSR, type, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, INNER,
                                 COLUMNS, 0),
                  c = result_new(type, ROWS, COLUMNS);
    cusparseSpGEMMDescr_t product;
    size_t bytes[5] = {0};
    int64_t nnz;

    assert_ok(cusparseSpGEMM_createDescr(&product));
    assert_ok(cusparseSpGEMMreuse_workEstimation(handle, N_, N_, a.descr, b.descr, c.descr, CUSPARSE_SPGEMM_DEFAULT,
                                                 product, &bytes[0], NULL));
    for (int pass = 0; pass < 2; pass++)
        assert_ok(cusparseSpGEMMreuse_nnz(handle, N_, N_, a.descr, b.descr, c.descr, CUSPARSE_SPGEMM_DEFAULT, product,
                                          &bytes[1], pass ? (void *)buffer : NULL, &bytes[2],
                                          pass ? (void *)buffer : NULL, &bytes[3], pass ? (void *)buffer : NULL));
    nnz = set_result(&c);
    assert_ok(cusparseSpGEMMreuse_copy(handle, N_, N_, a.descr, b.descr, c.descr, CUSPARSE_SPGEMM_DEFAULT, product,
                                       &bytes[4], (void *)buffer));
    for (int i = 1; i < 3; i++) {
        assert_ok(cusparseSpGEMMreuse_compute(handle, N_, N_, scalar(type, i), a.descr, b.descr, scalar(type, 0),
                                              c.descr, type, CUSPARSE_SPGEMM_DEFAULT, product));
        check_sparse_product(&a, &b, &c, nnz, i);
    }
    assert_ok(cusparseSpGEMM_destroyDescr(product));
    matrix_free(&a);
    matrix_free(&b);
    matrix_free(&c);
}

/* ---- systems ---- */

static void check_system(cusparseFormat_t format, cudaDataType type, cusparseOperation_t op, bool is_lower,
                         bool is_unit)
{
    struct matrix a =
        matrix_new(format, type, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ONE, ROWS, ROWS, is_lower ? -1 : 1);
    struct test_vector b = test_vector_new(type, ROWS * COLUMNS), x = test_vector_new(type, ROWS * COLUMNS);
    cusparseFillMode_t fill = is_lower ? CUSPARSE_FILL_MODE_LOWER : CUSPARSE_FILL_MODE_UPPER;
    cusparseDiagType_t diag = is_unit ? CUSPARSE_DIAG_TYPE_UNIT : CUSPARSE_DIAG_TYPE_NON_UNIT;
    cusparseDnMatDescr_t db, dx;
    cusparseSpSMDescr_t system;
    size_t bytes = 0;

    assert_ok(cusparseSpMatSetAttribute(a.descr, CUSPARSE_SPMAT_FILL_MODE, &fill, sizeof(fill)));
    assert_ok(cusparseSpMatSetAttribute(a.descr, CUSPARSE_SPMAT_DIAG_TYPE, &diag, sizeof(diag)));
    assert_ok(cusparseCreateDnMat(&db, ROWS, COLUMNS, ROWS, (void *)b.device, type, CUSPARSE_ORDER_COL));
    assert_ok(cusparseCreateDnMat(&dx, ROWS, COLUMNS, ROWS, (void *)x.device, type, CUSPARSE_ORDER_COL));
    assert_ok(cusparseSpSM_createDescr(&system));
    assert_ok(cusparseSpSM_bufferSize(handle, op, N_, scalar(type, 2), a.descr, db, dx, type, CUSPARSE_SPSM_ALG_DEFAULT,
                                      system, &bytes));
    assert_ok(cusparseSpSM_analysis(handle, op, N_, scalar(type, 2), a.descr, db, dx, type, CUSPARSE_SPSM_ALG_DEFAULT,
                                    system, (void *)buffer));
    assert_ok(
        cusparseSpSM_solve(handle, op, N_, scalar(type, 2), a.descr, db, dx, type, CUSPARSE_SPSM_ALG_DEFAULT, system));
    test_download(&x);
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < COLUMNS; j++) {
            test_number sum = is_unit ? x.value[j * ROWS + i] : 0, size = 0;

            for (int64_t k = 0; k < ROWS; k++) {
                if (!is_unit || k != i)
                    sum += of(&a, op, i, k) * x.value[j * ROWS + k];
                size += cabs(of(&a, op, i, k)) * cabs(x.value[j * ROWS + k]);
            }
            assert_true(cabs(sum - 2 * b.value[j * ROWS + i]) <= 16 * test_tolerance(type) * fmax(1, creal(size)));
        }
    assert_ok(cusparseSpSM_destroyDescr(system));
    assert_ok(cusparseDestroyDnMat(db));
    assert_ok(cusparseDestroyDnMat(dx));
    matrix_free(&a);
    test_vector_free(&b);
    test_vector_free(&x);
}

static void triangular_systems(void **state)
{
    for (int f = 0; f < 3; f++)
        for (int t = 2; t < TYPES; t++)
            for (int op = 0; op < 3; op++)
                for (int i = 0; i < 4; i++)
                    check_system(formats[f], types[t], (cusparseOperation_t)op, i % 2, i / 2);
}

static void a_system_of_a_vector(void **state)
{
    const cudaDataType type = CUDA_R_64F;
    struct matrix a =
        matrix_new(CUSPARSE_FORMAT_COO, type, CUSPARSE_INDEX_64I, CUSPARSE_INDEX_BASE_ZERO, ROWS, ROWS, -1);
    struct test_vector b = test_vector_new(type, ROWS), x = test_vector_new(type, ROWS);
    cusparseDnVecDescr_t db, dx;
    cusparseSpSVDescr_t system;

    assert_ok(cusparseCreateDnVec(&db, ROWS, (void *)b.device, type));
    assert_ok(cusparseCreateDnVec(&dx, ROWS, (void *)x.device, type));
    assert_ok(cusparseSpSV_createDescr(&system));
    assert_int_equal(
        cusparseSpSV_solve(handle, N_, scalar(type, 1), a.descr, db, dx, type, CUSPARSE_SPSV_ALG_DEFAULT, system),
        CUSPARSE_STATUS_INVALID_VALUE); /* not analysed */
    assert_ok(cusparseSpSV_analysis(handle, N_, scalar(type, 1), a.descr, db, dx, type, CUSPARSE_SPSV_ALG_DEFAULT,
                                    system, (void *)buffer));
    assert_ok(
        cusparseSpSV_solve(handle, N_, scalar(type, 1), a.descr, db, dx, type, CUSPARSE_SPSV_ALG_DEFAULT, system));
    test_download(&x);
    for (int64_t i = 0; i < ROWS; i++) {
        test_number sum = 0;

        for (int64_t k = 0; k < ROWS; k++)
            sum += of(&a, N_, i, k) * x.value[k];
        check_near(sum, b.value[i], CUDA_R_32F);
    }
    assert_ok(cusparseSpSV_destroyDescr(system));
    assert_ok(cusparseDestroyDnVec(db));
    assert_ok(cusparseDestroyDnVec(dx));
    matrix_free(&a);
    test_vector_free(&b);
    test_vector_free(&x);
}

/* With diagonals small enough that rows are exchanged. */
static void tridiagonal_systems(void **state)
{
    enum { SIZE = 7, SIDES = 2, LEADING = 9 };
    for (int is_batch = 0; is_batch < 2; is_batch++) {
        struct test_vector lower = test_vector_new(CUDA_C_64F, SIDES * LEADING),
                           d = test_vector_new(CUDA_C_64F, SIDES * LEADING),
                           upper = test_vector_new(CUDA_C_64F, SIDES * LEADING),
                           x = test_vector_new(CUDA_C_64F, SIDES * LEADING),
                           b = test_vector_new(CUDA_C_64F, SIDES * LEADING);

        for (int i = 0; i < SIDES * LEADING; i++) {
            d.value[i] = i % 3 == 0 ? 0.01 : 2;
            lower.value[i] += 1.5;
            upper.value[i] += 1.25;
        }
        test_upload(&d);
        test_upload(&lower);
        test_upload(&upper);
        memcpy(b.value, x.value, x.count * sizeof(test_number));
        void *dl = (void *)lower.device, *dd = (void *)d.device, *du = (void *)upper.device, *dx = (void *)x.device;
        if (is_batch)
            assert_ok(cusparseZgtsv2StridedBatch(handle, SIZE, dl, dd, du, dx, SIDES, LEADING, NULL));
        else
            assert_ok(cusparseZgtsv2_nopivot(handle, SIZE, SIDES, dl, dd, du, dx, LEADING, NULL));
        test_download(&x);
        for (int s = 0; s < SIDES; s++)
            for (int i = 0; i < SIZE; i++) {
                int at = is_batch ? s * LEADING : 0, to = s * LEADING + i;
                test_number sum = d.value[at + i] * x.value[to];

                sum += i ? lower.value[at + i] * x.value[to - 1] : 0;
                sum += i + 1 < SIZE ? upper.value[at + i] * x.value[to + 1] : 0;
                check_near(sum, b.value[to], CUDA_C_64F);
            }
        struct test_vector *const all[] = {&lower, &d, &upper, &x, &b};
        for (int i = 0; i < 5; i++)
            test_vector_free(all[i]);
    }
}

/* ---- from one form to another ---- */

static void forms(void **state)
{
    for (int f = 0; f < FORMATS; f++)
        for (int t = 0; t < TYPES; t++) {
            struct matrix m =
                matrix_new(formats[f], types[t], CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ONE, ROWS, INNER, 0);
            struct test_vector dense = test_vector_new(types[t], ROWS * INNER);
            cusparseDnMatDescr_t d;

            assert_ok(cusparseCreateDnMat(&d, ROWS, INNER, INNER, (void *)dense.device, types[t], CUSPARSE_ORDER_ROW));
            assert_ok(cusparseSparseToDense(handle, m.descr, d, CUSPARSE_SPARSETODENSE_ALG_DEFAULT, (void *)buffer));
            test_download(&dense);
            for (int i = 0; i < ROWS * INNER; i++)
                assert_true(dense.value[i] == m.dense.value[i]);
            assert_ok(cusparseDestroyDnMat(d));
            matrix_free(&m);
            test_vector_free(&dense);
        }
}

static void dense_matrices_become_sparse(void **state)
{
    for (int t = 0; t < TYPES; t++) {
        struct matrix from = matrix_new(CUSPARSE_FORMAT_CSR, types[t], CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO,
                                        ROWS, INNER, 0),
                      to = result_new(types[t], ROWS, INNER);
        cusparseDnMatDescr_t d;
        test_number *got;

        test_upload(&from.dense);
        assert_ok(cusparseCreateDnMat(&d, ROWS, INNER, INNER, (void *)from.dense.device, types[t], CUSPARSE_ORDER_ROW));
        assert_ok(
            cusparseDenseToSparse_analysis(handle, d, to.descr, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, (void *)buffer));
        assert_int_equal(set_result(&to), from.nnz);
        assert_ok(
            cusparseDenseToSparse_convert(handle, d, to.descr, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, (void *)buffer));
        got = dense_of(&to, from.nnz);
        for (int i = 0; i < ROWS * INNER; i++)
            assert_true(got[i] == from.dense.value[i]);
        free(got);
        assert_ok(cusparseDestroyDnMat(d));
        matrix_free(&from);
        matrix_free(&to);
    }
}

static void rows_become_columns(void **state)
{
    struct matrix from = matrix_new(CUSPARSE_FORMAT_CSR, CUDA_C_32F, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ONE, ROWS,
                                    INNER, 0),
                  wanted = matrix_new(CUSPARSE_FORMAT_CSR, CUDA_C_32F, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ONE,
                                      INNER, ROWS, 0);
    test_number *got;

    wanted.values.count = (size_t)from.nnz;
    test_vector_free(&wanted.values);
    wanted.values = test_vector_new(CUDA_C_32F, (size_t)from.nnz);
    assert_ok(cuMemFree(wanted.indices));
    assert_ok(cuMemAlloc(&wanted.indices, 256 * 8));
    assert_ok(cusparseCsr2cscEx2(handle, ROWS, INNER, (int)from.nnz, (void *)from.values.device, (void *)from.offsets,
                                 (void *)from.indices, (void *)wanted.values.device, (void *)wanted.offsets,
                                 (void *)wanted.indices, CUDA_C_32F, CUSPARSE_ACTION_NUMERIC, CUSPARSE_INDEX_BASE_ONE,
                                 CUSPARSE_CSR2CSC_ALG_DEFAULT, (void *)buffer));
    got = dense_of(&wanted, from.nnz);
    for (int i = 0; i < ROWS * INNER; i++)
        assert_true(got[i % INNER * ROWS + i / INNER] == from.dense.value[i]);
    free(got);
    matrix_free(&from);
    matrix_free(&wanted);
}

static void indices_are_sorted(void **state)
{
    static const int64_t rows[] = {2, 0, 1, 0, 2, 1}, columns[] = {1, 3, 0, 2, 0, 4}, by_row[] = {3, 1, 2, 5, 4, 0},
                         by_column[] = {2, 4, 0, 3, 1, 5}, row_ends[] = {0, 2, 4, 6};
    int64_t got[6], got_rows[6];
    CUdeviceptr dr = upload_indices(CUSPARSE_INDEX_32I, rows, 6), dc = upload_indices(CUSPARSE_INDEX_32I, columns, 6),
                p = upload_indices(CUSPARSE_INDEX_32I, rows, 6), offsets = upload_indices(CUSPARSE_INDEX_32I, rows, 6);
    cusparseMatDescr_t descr;

    assert_ok(cusparseCreateMatDescr(&descr));
    assert_ok(cusparseCreateIdentityPermutation(handle, 6, (void *)p));
    assert_ok(cusparseXcoosortByRow(handle, 3, 5, 6, (void *)dr, (void *)dc, (void *)p, NULL));
    download_indices(CUSPARSE_INDEX_32I, p, got, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(got[i], by_row[i]);
    assert_ok(cusparseXcoo2csr(handle, (void *)dr, 6, 3, (void *)offsets, CUSPARSE_INDEX_BASE_ZERO));
    download_indices(CUSPARSE_INDEX_32I, offsets, got, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(got[i], row_ends[i]);
    /* The columns of each row, out of order again. */
    cuMemFree(dc);
    dc = upload_indices(CUSPARSE_INDEX_32I, (const int64_t[]){3, 2, 4, 0, 1, 0}, 6);
    assert_ok(cusparseCreateIdentityPermutation(handle, 6, (void *)p));
    assert_ok(cusparseXcsrsort(handle, 3, 5, 6, descr, (void *)offsets, (void *)dc, (void *)p, NULL));
    download_indices(CUSPARSE_INDEX_32I, dc, got, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(got[i], columns[by_row[i]]);
    assert_ok(cusparseXcsr2coo(handle, (void *)offsets, 6, 3, (void *)dr, CUSPARSE_INDEX_BASE_ZERO));
    download_indices(CUSPARSE_INDEX_32I, dr, got_rows, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(got_rows[i], rows[by_row[i]]);
    cuMemFree(dr);
    cuMemFree(dc);
    dr = upload_indices(CUSPARSE_INDEX_32I, rows, 6);
    dc = upload_indices(CUSPARSE_INDEX_32I, columns, 6);
    assert_ok(cusparseCreateIdentityPermutation(handle, 6, (void *)p));
    assert_ok(cusparseXcoosortByColumn(handle, 3, 5, 6, (void *)dr, (void *)dc, (void *)p, NULL));
    download_indices(CUSPARSE_INDEX_32I, p, got, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(got[i], by_column[i]);
    assert_ok(cusparseDestroyMatDescr(descr));
    const CUdeviceptr all[] = {dr, dc, p, offsets};
    for (int i = 0; i < 4; i++)
        assert_ok(cuMemFree(all[i]));
}

/* ---- vectors ---- */

static void vectors(void **state)
{
    static const int64_t places[] = {5, 1, 3};
    for (int t = 0; t < TYPES; t++) {
        const cudaDataType type = types[t], wide = compute_of(type);
        struct test_vector x = test_vector_new(type, 3), y = test_vector_new(type, 7), x0 = test_vector_new(type, 3),
                           y0 = test_vector_new(type, 7);
        CUdeviceptr indices = upload_indices(CUSPARSE_INDEX_64I, places, 3);
        _Alignas(16) unsigned char result[16];
        cusparseSpVecDescr_t dx;
        cusparseDnVecDescr_t dy;
        test_number sum = 0;

        assert_ok(cusparseCreateSpVec(&dx, 7, 3, (void *)indices, (void *)x.device, CUSPARSE_INDEX_64I,
                                      CUSPARSE_INDEX_BASE_ONE, type));
        assert_ok(cusparseCreateDnVec(&dy, 7, (void *)y.device, type));
        for (int i = 0; i < 3; i++)
            sum += conj(x.value[i]) * y.value[places[i] - 1];
        assert_ok(cusparseSpVV(handle, CUSPARSE_OPERATION_CONJUGATE_TRANSPOSE, dx, dy, result, wide, (void *)buffer));
        check_near(flyt_soft_number_get(wide, result), sum, type);
        memcpy(x0.value, x.value, 3 * sizeof(test_number));
        memcpy(y0.value, y.value, 7 * sizeof(test_number));
        assert_ok(cusparseRot(handle, scalar(wide, 0.5), scalar(wide, 0.25), dx, dy));
        test_download(&x);
        test_download(&y);
        for (int i = 0; i < 3; i++) {
            check_near(x.value[i], 0.5 * x0.value[i] + 0.25 * y0.value[places[i] - 1], type);
            check_near(y.value[places[i] - 1], 0.5 * y0.value[places[i] - 1] - 0.25 * x0.value[i], type);
        }
        memcpy(x0.value, x.value, 3 * sizeof(test_number));
        memcpy(y0.value, y.value, 7 * sizeof(test_number));
        assert_ok(cusparseAxpby(handle, scalar(wide, 3), dx, scalar(wide, 0.5), dy));
        test_download(&y);
        for (int i = 0; i < 3; i++)
            y0.value[places[i] - 1] += 6 * x0.value[i];
        for (int i = 0; i < 7; i++)
            check_near(y.value[i], 0.5 * y0.value[i], type);
        assert_ok(cusparseGather(handle, dy, dx));
        test_download(&x);
        for (int i = 0; i < 3; i++) {
            assert_true(x.value[i] == y.value[places[i] - 1]);
            x.value[i] = i + 2;
        }
        test_upload(&x);
        assert_ok(cusparseScatter(handle, dx, dy));
        test_download(&y);
        for (int i = 0; i < 3; i++)
            assert_true(y.value[places[i] - 1] == i + 2);
        assert_ok(cusparseDestroySpVec(dx));
        assert_ok(cusparseDestroyDnVec(dy));
        struct test_vector *const all[] = {&x, &y, &x0, &y0};
        for (int i = 0; i < 4; i++)
            test_vector_free(all[i]);
        assert_ok(cuMemFree(indices));
    }
}

static void wrong_arguments_are_refused(void **state)
{
    cusparseSpMatDescr_t m;
    cusparseDnMatDescr_t d;
    cusparseDnVecDescr_t x;
    size_t bytes;

    assert_int_equal(cusparseCreateCsr(&m, -1, 1, 0, NULL, NULL, NULL, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                                       CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F),
                     CUSPARSE_STATUS_INVALID_VALUE);
    assert_int_equal(cusparseCreateDnMat(&d, 4, 2, 3, NULL, CUDA_R_32F, CUSPARSE_ORDER_COL),
                     CUSPARSE_STATUS_INVALID_VALUE);
    struct matrix a =
        matrix_new(CUSPARSE_FORMAT_CSR, CUDA_R_32F, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, ROWS, INNER, 0);
    assert_ok(cusparseCreateDnVec(&x, ROWS, NULL, CUDA_R_32F));
    assert_int_equal(cusparseSpMV(handle, N_, scalar(CUDA_R_32F, 1), a.descr, x, scalar(CUDA_R_32F, 1), x, CUDA_R_32F,
                                  CUSPARSE_SPMV_ALG_DEFAULT, NULL),
                     CUSPARSE_STATUS_INVALID_VALUE); /* a vector of another length */
    assert_int_equal(
        cusparseSpMV_bufferSize(NULL, N_, NULL, a.descr, x, NULL, x, CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, &bytes),
        CUSPARSE_STATUS_NOT_INITIALIZED);
    assert_ok(cusparseDestroyDnVec(x));
    matrix_free(&a);
}

/* The last one: the device is broken then. */
static void an_index_beyond_the_matrix_is_no_address(void **state)
{
    struct matrix a =
        matrix_new(CUSPARSE_FORMAT_COO, CUDA_R_32F, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, ROWS, INNER, 0);
    struct test_vector dense = test_vector_new(CUDA_R_32F, ROWS * INNER);
    const int beyond = ROWS;
    cusparseDnMatDescr_t d;

    assert_ok(cuMemcpyHtoD(a.offsets, &beyond, sizeof(beyond)));
    assert_ok(cusparseCreateDnMat(&d, ROWS, INNER, ROWS, (void *)dense.device, CUDA_R_32F, CUSPARSE_ORDER_COL));
    assert_ok(cusparseSparseToDense(handle, a.descr, d, CUSPARSE_SPARSETODENSE_ALG_DEFAULT, NULL));
    assert_int_equal(cuStreamSynchronize(test_stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_ok(cusparseDestroySpMat(a.descr));
    assert_ok(cusparseDestroyDnMat(d));
    free(a.dense.value);
    free(a.values.value);
    free(dense.value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(batches_of_products),
        cmocka_unit_test(sampled_products),
        cmocka_unit_test(sparse_products),
        cmocka_unit_test(sparse_products_again),
        cmocka_unit_test(triangular_systems),
        cmocka_unit_test(a_system_of_a_vector),
        cmocka_unit_test(tridiagonal_systems),
        cmocka_unit_test(forms),
        cmocka_unit_test(dense_matrices_become_sparse),
        cmocka_unit_test(rows_become_columns),
        cmocka_unit_test(indices_are_sorted),
        cmocka_unit_test(vectors),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(an_index_beyond_the_matrix_is_no_address),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
