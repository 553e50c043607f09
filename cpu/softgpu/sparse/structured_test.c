/* cuSPARSELt on the software GPU: what is pruned is looked at place by place, and products are compared with plain
 * loops over the pruned matrix. */
#include "cpu/softgpu/sparse/structured.h"
#include "cpu/softgpu/library/test.h"

struct room {
    _Alignas(16) unsigned char bytes[FLYT_SOFT_SLT_ROOM];
};

static struct room handle;

static int start(void **state)
{
    (void)state;
    test_start();
    assert_ok(cusparseLtInit(&handle));
    return 0;
}

/* A matrix as it lies in memory, column by column or row by row. */
struct matrix {
    int rows, columns, leading, order;
    struct test_vector numbers;
};

static struct matrix matrix_new(cudaDataType type, int rows, int columns, int order, int batch_count)
{
    int in_line = order == CUSPARSE_ORDER_ROW ? columns : rows, lines = order == CUSPARSE_ORDER_ROW ? rows : columns;
    struct matrix m = {rows, columns, in_line + 16, order, {0}};

    m.numbers = test_vector_new(type, (size_t)(m.leading * lines) * (size_t)batch_count);
    return m;
}

static size_t place_of(const struct matrix *m, int member, int row, int column)
{
    bool is_row = m->order == CUSPARSE_ORDER_ROW;

    return (size_t)member * (size_t)m->leading * (size_t)(is_row ? m->rows : m->columns) +
           (size_t)(is_row ? row * m->leading + column : column * m->leading + row);
}

static double at(const struct matrix *m, int member, int row, int column)
{
    return creal(m->numbers.value[place_of(m, member, row, column)]);
}

/* Of op(matrix). */
static double op_at(const struct matrix *m, int op, int member, int row, int column)
{
    return op ? at(m, member, column, row) : at(m, member, row, column);
}

static void describe(struct room *room, const struct matrix *m, bool is_structured, int batch_count)
{
    int64_t stride = batch_count > 1 ? (int64_t)place_of(m, 1, 0, 0) : 0;

    if (is_structured)
        assert_ok(cusparseLtStructuredDescriptorInit(&handle, room, m->rows, m->columns, m->leading, 16,
                                                     m->numbers.type, m->order, 0));
    else
        assert_ok(cusparseLtDenseDescriptorInit(&handle, room, m->rows, m->columns, m->leading, 16, m->numbers.type,
                                                m->order));
    assert_ok(cusparseLtMatDescSetAttribute(&handle, room, 0, &batch_count, sizeof(batch_count)));
    assert_ok(cusparseLtMatDescSetAttribute(&handle, room, 1, &stride, sizeof(stride)));
}

/* ---- pruning ---- */

static double largest_two(const double *numbers, int count, int kept)
{
    double best = 0;

    for (int i = 0; i < count; i++)
        for (int j = kept == 2 ? i + 1 : i; j < count; j++)
            best = fmax(best, fabs(numbers[i]) + (kept == 2 ? fabs(numbers[j]) : 0));
    return best;
}

/* All ways to keep `kept` of each row and each column of a square, as bits: there are 90 of 4 and 2, and 2 of 2 and 1.
 */
struct ways {
    unsigned masks[128], count;
};

static bool keeps(unsigned mask, int size, int kept)
{
    for (int i = 0; i < size; i++) {
        int in_row = 0, in_column = 0;

        for (int j = 0; j < size; j++) {
            in_row += mask >> (i * size + j) & 1;
            in_column += mask >> (j * size + i) & 1;
        }
        if (in_row != kept || in_column != kept)
            return false;
    }
    return true;
}

static struct ways ways_of(int size, int kept)
{
    struct ways ways = {.count = 0};

    for (unsigned mask = 0; mask < 1u << size * size; mask++)
        if (keeps(mask, size, kept))
            ways.masks[ways.count++] = mask;
    assert_int_equal(ways.count, size == 4 ? 90 : 2);
    return ways;
}

static double best_square(const struct ways *ways, double square[4][4], int size)
{
    double best = 0;

    for (unsigned way = 0; way < ways->count; way++) {
        double sum = 0;

        for (int i = 0; i < size * size; i++)
            sum += ways->masks[way] >> i & 1 ? fabs(square[i / size][i % size]) : 0;
        best = fmax(best, sum);
    }
    return best;
}

/* Each number is the original's or 0; magnitudes of each group along k add up to the largest sum. */
static void expect_strips(const struct matrix *before, const struct matrix *after, bool is_along_row, int group)
{
    int lines = is_along_row ? after->rows : after->columns, k = is_along_row ? after->columns : after->rows;

    for (int line = 0; line < lines; line++)
        for (int first = 0; first < k; first += group) {
            double numbers[4], sum = 0;

            for (int i = 0; i < group; i++) {
                int row = is_along_row ? line : first + i, column = is_along_row ? first + i : line;

                numbers[i] = at(before, 0, row, column);
                sum += fabs(at(after, 0, row, column));
                assert_true(at(after, 0, row, column) == 0 || at(after, 0, row, column) == numbers[i]);
            }
            assert_float_equal(sum, largest_two(numbers, group, group / 2), 1e-9);
        }
}

static void expect_tiles(const struct matrix *before, const struct matrix *after, int size)
{
    const struct ways ways = ways_of(size, size / 2);

    for (int row = 0; row < after->rows; row += size)
        for (int column = 0; column < after->columns; column += size) {
            double square[4][4], sum = 0;
            int in_row[4] = {0}, in_column[4] = {0};

            for (int i = 0; i < size; i++)
                for (int j = 0; j < size; j++) {
                    double x = at(after, 0, row + i, column + j);

                    square[i][j] = at(before, 0, row + i, column + j);
                    assert_true(x == 0 || x == square[i][j]);
                    sum += fabs(x);
                    in_row[i] += x != 0;
                    in_column[j] += x != 0;
                }
            for (int i = 0; i < size; i++)
                assert_true(in_row[i] <= size / 2 && in_column[i] <= size / 2);
            assert_float_equal(sum, best_square(&ways, square, size), 1e-9);
        }
}

static int valid_of(const struct room *desc, bool is_a, int op, CUdeviceptr numbers)
{
    CUdeviceptr valid;
    int told = -1;

    assert_ok(cuMemAlloc(&valid, sizeof(told)));
    assert_ok(cuMemsetD32(valid, 7, 1));
    assert_ok(cusparseLtSpMMAPruneCheck2(&handle, desc, is_a, op, (void *)numbers, (void *)valid, test_stream));
    assert_ok(cuStreamSynchronize(test_stream));
    assert_ok(cuMemcpyDtoH(&told, valid, sizeof(told)));
    assert_ok(cuMemFree(valid));
    return told;
}

static void prune_one(cudaDataType type, bool is_a, int op, int order, int algorithm)
{
    struct matrix before = matrix_new(type, 32, 64, order, 1), after = matrix_new(type, 32, 64, order, 1);
    int group = type == CUDA_R_32F ? 2 : 4;
    struct room desc;

    describe(&desc, &before, true, 1);
    assert_int_equal(valid_of(&desc, is_a, op, before.numbers.device), 1);
    assert_ok(cusparseLtSpMMAPrune2(&handle, &desc, is_a, op, (void *)before.numbers.device,
                                    (void *)after.numbers.device, algorithm, test_stream));
    test_download(&after.numbers);
    if (algorithm == FLYT_SOFT_SLT_PRUNE_STRIP)
        expect_strips(&before, &after, is_a == (op == 0), group);
    else
        expect_tiles(&before, &after, group);
    assert_int_equal(valid_of(&desc, is_a, op, after.numbers.device), 0);
    assert_ok(cusparseLtMatDescriptorDestroy(&desc));
    test_vector_free(&before.numbers);
    test_vector_free(&after.numbers);
}

static void prunes(void **state)
{
    static const cudaDataType types[] = {CUDA_R_16F, CUDA_R_16BF, CUDA_R_8I, CUDA_R_32F};

    (void)state;
    for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        for (int algorithm = 0; algorithm < 2; algorithm++)
            for (int way = 0; way < 8; way++)
                prune_one(types[i], way & 1, way >> 1 & 1, way >> 2 & 1 ? CUSPARSE_ORDER_ROW : CUSPARSE_ORDER_COL,
                          algorithm);
}

/* ---- products ---- */

/* What differs from test to test. */
struct product {
    cudaDataType in, out;
    int compute;
    int op_a, op_b, order_a, order_b, order_d;
    bool is_b_sparse;
    int batch_count;
    float alpha, beta;
    bool has_bias, is_relu, is_gelu, has_vectors, is_searched;
    float relu_upper_bound, relu_threshold, gelu_scaling;
};

enum { M = 64, N = 32, K = 96 };

struct operands {
    struct matrix a, b, c, d;
    struct test_vector bias, alphas, betas;
    struct room desc_a, desc_b, desc_c, desc_d, desc;
};

static void set(struct operands *o, int number, const void *value, size_t bytes)
{
    char told[8];

    assert_ok(cusparseLtMatmulDescSetAttribute(&handle, &o->desc, number, value, bytes));
    assert_ok(cusparseLtMatmulDescGetAttribute(&handle, &o->desc, number, told, bytes));
    assert_memory_equal(told, value, bytes);
}

static void set_attributes(struct operands *o, const struct product *p)
{
    const int yes = 1;
    const int64_t stride = M;

    if (p->has_bias) {
        set(o, 7, &stride, sizeof(stride));
        set(o, 8, &o->bias.device, sizeof(o->bias.device));
    }
    if (p->is_relu) {
        set(o, 0, &yes, sizeof(yes));
        set(o, 1, &p->relu_upper_bound, sizeof(float));
        set(o, 2, &p->relu_threshold, sizeof(float));
    }
    if (p->is_gelu)
        set(o, 4, &p->gelu_scaling, sizeof(float)); /* implies the activation */
    if (p->has_vectors) {
        set(o, 5, &yes, sizeof(yes));
        set(o, 6, &yes, sizeof(yes));
    }
}

static struct operands operands_new(const struct product *p)
{
    bool is_integer = p->out == CUDA_R_8I || p->out == CUDA_R_32I;
    struct operands o = {
        .a = matrix_new(p->in, p->op_a ? K : M, p->op_a ? M : K, p->order_a, p->batch_count),
        .b = matrix_new(p->in, p->op_b ? N : K, p->op_b ? K : N, p->order_b, p->batch_count),
        .c = matrix_new(p->out, M, N, p->order_d, p->batch_count),
        .d = matrix_new(p->out, M, N, p->order_d, p->batch_count),
        .bias = test_vector_new(is_integer ? CUDA_R_32F : p->out, (size_t)(M * p->batch_count)),
        .alphas = test_vector_new(CUDA_R_32F, M),
        .betas = test_vector_new(CUDA_R_32F, M),
    };

    describe(&o.desc_a, &o.a, !p->is_b_sparse, p->batch_count);
    describe(&o.desc_b, &o.b, p->is_b_sparse, p->batch_count);
    describe(&o.desc_c, &o.c, false, p->batch_count);
    describe(&o.desc_d, &o.d, false, p->batch_count);
    assert_ok(cusparseLtMatmulDescriptorInit(&handle, &o.desc, p->op_a, p->op_b, &o.desc_a, &o.desc_b, &o.desc_c,
                                             &o.desc_d, p->compute));
    set_attributes(&o, p);
    return o;
}

static void operands_free(struct operands *o)
{
    struct test_vector *const vectors[] = {&o->a.numbers, &o->b.numbers, &o->c.numbers, &o->d.numbers,
                                           &o->bias,      &o->alphas,    &o->betas};

    for (unsigned i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        test_vector_free(vectors[i]);
    assert_ok(cusparseLtMatDescriptorDestroy(&o->desc_a));
    assert_ok(cusparseLtMatDescriptorDestroy(&o->desc_b));
    assert_ok(cusparseLtMatDescriptorDestroy(&o->desc_c));
    assert_ok(cusparseLtMatDescriptorDestroy(&o->desc_d));
}

/* Prunes the structured operand, compresses it, and multiplies. */
static void multiply(struct operands *o, const struct product *p)
{
    struct matrix *sparse = p->is_b_sparse ? &o->b : &o->a;
    void *numbers = (void *)sparse->numbers.device;
    const void *alpha = p->has_vectors ? (void *)o->alphas.device : &p->alpha;
    const void *beta = p->has_vectors ? (void *)o->betas.device : &p->beta;
    size_t bytes, buffer_bytes, workspace_bytes = 1;
    struct room selection, plan;
    CUdeviceptr compressed;

    assert_ok(cusparseLtMatmulAlgSelectionInit(&handle, &selection, &o->desc, 0));
    assert_ok(cusparseLtMatmulPlanInit(&handle, &plan, &o->desc, &selection));
    assert_ok(cusparseLtMatmulGetWorkspace(&handle, &plan, &workspace_bytes));
    assert_int_equal(workspace_bytes, 0);
    assert_ok(cusparseLtSpMMAPrune(&handle, &o->desc, numbers, numbers, FLYT_SOFT_SLT_PRUNE_STRIP, test_stream));
    test_download(&sparse->numbers);
    assert_ok(cusparseLtSpMMACompressedSize(&handle, &plan, &bytes, &buffer_bytes));
    assert_true(bytes < sparse->numbers.count * flyt_soft_number_bytes(p->in));
    assert_ok(cuMemAlloc(&compressed, bytes));
    assert_ok(cusparseLtSpMMACompress(&handle, &plan, numbers, (void *)compressed, NULL, test_stream));
    const void *a = (void *)(p->is_b_sparse ? o->a.numbers.device : compressed);
    const void *b = (void *)(p->is_b_sparse ? compressed : o->b.numbers.device);
    const void *c = (void *)o->c.numbers.device;
    void *d = (void *)o->d.numbers.device;

    if (p->is_searched)
        assert_ok(cusparseLtMatmulSearch(&handle, &plan, alpha, a, b, beta, c, d, NULL, &test_stream, 1));
    else
        assert_ok(cusparseLtMatmul(&handle, &plan, alpha, a, b, beta, c, d, NULL, &test_stream, 1));
    assert_ok(cuStreamSynchronize(test_stream));
    assert_ok(cuMemFree(compressed));
    assert_ok(cusparseLtMatmulPlanDestroy(&plan));
    assert_ok(cusparseLtMatmulAlgSelectionDestroy(&selection));
}

static double expected_at(const struct operands *o, const struct product *p, int member, int row, int column)
{
    double sum = 0, alpha = p->has_vectors ? creal(o->alphas.value[row]) : p->alpha;
    double beta = p->has_vectors ? creal(o->betas.value[row]) : p->beta;

    for (int k = 0; k < K; k++)
        sum += op_at(&o->a, p->op_a, member, row, k) * op_at(&o->b, p->op_b, member, k, column);
    sum = alpha * sum + beta * at(&o->c, member, row, column);
    if (p->has_bias)
        sum += creal(o->bias.value[member * M + row]);
    if (p->is_relu)
        sum = sum > p->relu_threshold ? fmin(sum, p->relu_upper_bound) : 0;
    if (p->is_gelu)
        sum = p->gelu_scaling * 0.5 * sum * (1 + tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
    if (p->out == CUDA_R_8I || p->out == CUDA_R_32I)
        sum = rint(sum);
    return p->out == CUDA_R_8I ? fmax(-128, fmin(127, sum)) : sum;
}

static void check(const struct product *p)
{
    struct operands o = operands_new(p);

    multiply(&o, p);
    test_download(&o.d.numbers);
    for (int member = 0; member < p->batch_count; member++)
        for (int row = 0; row < M; row++)
            for (int column = 0; column < N; column++) {
                double expected = expected_at(&o, p, member, row, column), got = at(&o.d, member, row, column);

                if (fabs(got - expected) > test_tolerance(p->out) * fmax(1, fabs(expected)))
                    fail_msg("%d: %d, %d is %g, not %g", member, row, column, got, expected);
            }
    operands_free(&o);
}

static struct product product_of(cudaDataType in, cudaDataType out)
{
    return (struct product){.in = in,
                            .out = out,
                            .compute = in == CUDA_R_8I ? FLYT_SOFT_SLT_COMPUTE_32I : FLYT_SOFT_SLT_COMPUTE_32F,
                            .order_a = CUSPARSE_ORDER_COL,
                            .order_b = CUSPARSE_ORDER_COL,
                            .order_d = CUSPARSE_ORDER_COL,
                            .batch_count = 1,
                            .alpha = 1.5F,
                            .beta = -0.5F};
}

static void all_types(void **state)
{
    static const cudaDataType types[][2] = {
        {CUDA_R_16F, CUDA_R_16F}, {CUDA_R_16F, CUDA_R_32F}, {CUDA_R_16BF, CUDA_R_16BF}, {CUDA_R_32F, CUDA_R_32F},
        {CUDA_R_8I, CUDA_R_8I},   {CUDA_R_8I, CUDA_R_32I},  {CUDA_R_8I, CUDA_R_16F}};

    (void)state;
    for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct product p = product_of(types[i][0], types[i][1]);

        p.has_bias = true;
        check(&p);
        p.is_b_sparse = true;
        p.op_a = 1;
        check(&p);
    }
}

static void all_transposes_and_orders(void **state)
{
    (void)state;
    for (int way = 0; way < 64; way++) {
        struct product p = product_of(CUDA_R_16F, CUDA_R_32F);

        p.op_a = way & 1;
        p.op_b = way >> 1 & 1;
        p.order_a = way >> 2 & 1 ? CUSPARSE_ORDER_ROW : CUSPARSE_ORDER_COL;
        p.order_b = way >> 3 & 1 ? CUSPARSE_ORDER_ROW : CUSPARSE_ORDER_COL;
        p.order_d = way >> 4 & 1 ? CUSPARSE_ORDER_ROW : CUSPARSE_ORDER_COL;
        p.is_b_sparse = way >> 5 & 1;
        check(&p);
    }
}

static void epilogues(void **state)
{
    struct product p = product_of(CUDA_R_16F, CUDA_R_32F);

    (void)state;
    p.has_bias = true;
    p.is_relu = true;
    p.relu_upper_bound = 2;
    p.relu_threshold = 0.5F;
    check(&p);
    p.is_relu = false;
    p.is_gelu = true;
    p.gelu_scaling = 1.25F;
    check(&p);
    p.has_vectors = true;
    check(&p);
}

static void batches_and_searches(void **state)
{
    struct product p = product_of(CUDA_R_16BF, CUDA_R_32F);

    (void)state;
    p.batch_count = 3;
    p.has_bias = true;
    check(&p);
    p.is_b_sparse = true;
    p.is_searched = true;
    check(&p);
}

/* ---- what is refused ---- */

static void mistakes(void **state)
{
    struct room dense, structured, small, matmul, selection, plan, none = {{0}};
    int one = 1, id = 1, scale = 1;
    cusparseStatus_t (*const init)(const void *, void *, int64_t, int64_t, int64_t, uint32_t, int, int) =
        cusparseLtDenseDescriptorInit;

    (void)state;
    assert_int_equal(init(&none, &dense, 64, 64, 64, 16, CUDA_R_16F, CUSPARSE_ORDER_COL),
                     CUSPARSE_STATUS_NOT_INITIALIZED);
    assert_int_equal(init(&handle, &dense, 64, 64, 32, 16, CUDA_R_16F, CUSPARSE_ORDER_COL),
                     CUSPARSE_STATUS_INVALID_VALUE);
    assert_int_equal(init(&handle, &dense, 64, 64, 64, 8, CUDA_R_16F, CUSPARSE_ORDER_COL),
                     CUSPARSE_STATUS_INVALID_VALUE);
    assert_int_equal(init(&handle, &dense, 63, 64, 64, 16, CUDA_R_16F, CUSPARSE_ORDER_COL),
                     CUSPARSE_STATUS_NOT_SUPPORTED);
    assert_int_equal(init(&handle, &dense, 64, 64, 64, 16, CUDA_R_64F, CUSPARSE_ORDER_COL),
                     CUSPARSE_STATUS_NOT_SUPPORTED);
    assert_ok(init(&handle, &dense, 64, 64, 64, 16, CUDA_R_16F, CUSPARSE_ORDER_COL));
    assert_ok(init(&handle, &small, 32, 32, 32, 16, CUDA_R_16F, CUSPARSE_ORDER_COL));
    assert_ok(
        cusparseLtStructuredDescriptorInit(&handle, &structured, 64, 64, 64, 16, CUDA_R_16F, CUSPARSE_ORDER_COL, 0));
    assert_int_equal(cusparseLtMatmulDescriptorInit(&handle, &matmul, 0, 0, &dense, &dense, &dense, &dense, 2),
                     CUSPARSE_STATUS_INVALID_VALUE);
    assert_int_equal(cusparseLtMatmulDescriptorInit(&handle, &matmul, 0, 0, &structured, &small, &dense, &dense, 2),
                     CUSPARSE_STATUS_INVALID_VALUE);
    assert_int_equal(cusparseLtMatmulDescriptorInit(&handle, &matmul, 0, 0, &structured, &dense, &dense, &dense, 0),
                     CUSPARSE_STATUS_NOT_SUPPORTED);
    assert_ok(cusparseLtMatmulDescriptorInit(&handle, &matmul, 0, 0, &structured, &dense, &dense, &dense, 2));
    assert_ok(cusparseLtMatmulAlgSelectionInit(&handle, &selection, &matmul, 0));
    assert_int_equal(cusparseLtMatmulAlgSetAttribute(&handle, &selection, 0, &id, sizeof(id)),
                     CUSPARSE_STATUS_INVALID_VALUE);
    assert_int_equal(cusparseLtMatmulAlgSetAttribute(&handle, &selection, 1, &id, sizeof(id)),
                     CUSPARSE_STATUS_INVALID_VALUE);
    assert_int_equal(cusparseLtMatmulDescSetAttribute(&handle, &matmul, 20, &one, sizeof(one)),
                     CUSPARSE_STATUS_INVALID_VALUE);
    assert_int_equal(cusparseLtMatmulDescSetAttribute(&handle, &matmul, 0, &one, 1), CUSPARSE_STATUS_INVALID_VALUE);
    assert_ok(cusparseLtMatmulDescSetAttribute(&handle, &matmul, 10, &scale, sizeof(scale)));
    assert_int_equal(cusparseLtMatmulPlanInit(&handle, &plan, &matmul, &selection), CUSPARSE_STATUS_NOT_SUPPORTED);
    assert_int_equal(cusparseLtSpMMAPrune(&handle, &dense, &one, &one, 0, test_stream), CUSPARSE_STATUS_INVALID_VALUE);
    assert_int_equal(cusparseLtMatmulPlanDestroy(&none), CUSPARSE_STATUS_INVALID_VALUE);
}

/* The last test: what it breaks stays so. */
static void out_of_reach(void **state)
{
    struct matrix m = matrix_new(CUDA_R_16F, 32, 32, CUSPARSE_ORDER_COL, 1);
    struct room desc;

    (void)state;
    describe(&desc, &m, true, 1);
    assert_ok(cusparseLtSpMMAPrune2(&handle, &desc, 1, 0, (void *)m.numbers.device, (void *)64, 0, test_stream));
    assert_int_equal(cuStreamSynchronize(test_stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    free(m.numbers.value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prunes),       cmocka_unit_test(mistakes),
        cmocka_unit_test(all_types),    cmocka_unit_test(all_transposes_and_orders),
        cmocka_unit_test(epilogues),    cmocka_unit_test(batches_and_searches),
        cmocka_unit_test(out_of_reach),
    };

    test_needs("libopenblas.so.0");
    return cmocka_run_group_tests(tests, start, NULL);
}
