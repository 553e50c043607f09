/* cuBLASLt on the software GPU, against plain loops. */
#include <cublasLt.h>

#include "cpu/softgpu/library/test.h"

static cublasLtHandle_t handle;

static int start(void **state)
{
    test_start();
    assert_ok(cublasLtCreate(&handle));
    return 0;
}

/* One product, with what of it a test sets. Matrices are test vectors; a batch follows itself. */
struct product {
    cudaDataType a_type, b_type, c_type, d_type, scale_type;
    cublasComputeType_t compute;
    cublasOperation_t transa, transb;
    cublasLtOrder_t order; /* of all */
    int m, n, k, batch_count;
    cublasLtEpilogue_t epilogue;
    double alpha, beta;
    struct test_vector a, b, c, d, bias, aux;
    int aux_leading;
    struct test_vector a_scale, b_scale;
    int32_t scale_mode;
};

static cublasLtMatrixLayout_t layout_new(cudaDataType type, int rows, int columns, cublasLtOrder_t order,
                                         int batch_count)
{
    int64_t stride = (int64_t)rows * columns;
    int32_t order_value = (int32_t)order;
    cublasLtMatrixLayout_t layout;

    assert_ok(cublasLtMatrixLayoutCreate(&layout, type, (uint64_t)rows, (uint64_t)columns,
                                         order == CUBLASLT_ORDER_ROW ? columns : rows));
    assert_ok(
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order_value, sizeof(order_value)));
    assert_ok(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch_count, sizeof(int)));
    assert_ok(
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)));
    return layout;
}

static void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes)
{
    assert_ok(cublasLtMatmulDescSetAttribute(desc, attribute, value, bytes));
}

static cublasLtMatmulDesc_t desc_new(const struct product *p)
{
    int64_t aux_leading = p->aux_leading, bias_stride = p->m;
    cublasLtMatmulDesc_t desc;

    assert_ok(cublasLtMatmulDescCreate(&desc, p->compute, p->scale_type));
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &p->transa, 4);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSB, &p->transb, 4);
    if (p->epilogue)
        set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue, 4);
    if (p->bias.count) {
        set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias.device, 8);
        set(desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &bias_stride, 8);
    }
    if (p->aux_leading) {
        set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->aux.device, 8);
        set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_leading, 8);
    }
    if (p->a_scale.count) {
        set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &p->a_scale.device, 8);
        set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p->b_scale.device, 8);
        set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &p->scale_mode, 4);
        set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &p->scale_mode, 4);
    }
    return desc;
}

static void run(const struct product *p)
{
    bool a_is_plain = p->transa == CUBLAS_OP_N, b_is_plain = p->transb == CUBLAS_OP_N;
    cublasLtMatrixLayout_t a =
        layout_new(p->a_type, a_is_plain ? p->m : p->k, a_is_plain ? p->k : p->m, p->order, p->batch_count);
    cublasLtMatrixLayout_t b =
        layout_new(p->b_type, b_is_plain ? p->k : p->n, b_is_plain ? p->n : p->k, p->order, p->batch_count);
    cublasLtMatrixLayout_t c = layout_new(p->c_type, p->m, p->n, p->order, p->batch_count);
    cublasLtMatrixLayout_t d = layout_new(p->d_type, p->m, p->n, p->order, p->batch_count);
    cublasLtMatmulDesc_t desc = desc_new(p);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    unsigned char alpha[16], beta[16];
    int count = 0;

    flyt_soft_number_put(p->scale_type, alpha, p->alpha);
    flyt_soft_number_put(p->scale_type, beta, p->beta);
    assert_ok(cublasLtMatmulPreferenceCreate(&preference));
    assert_ok(cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, c, d, preference, 1, &found, &count));
    assert_int_equal(count, 1);
    assert_int_equal(found.workspaceSize, 0);
    assert_ok(cublasLtMatmul(handle, desc, alpha, (void *)p->a.device, a, (void *)p->b.device, b, beta,
                             (void *)p->c.device, c, (void *)p->d.device, d, &found.algo, NULL, 0, test_stream));
    assert_ok(cublasLtMatmulPreferenceDestroy(preference));
    assert_ok(cublasLtMatmulDescDestroy(desc));
    assert_ok(cublasLtMatrixLayoutDestroy(a));
    assert_ok(cublasLtMatrixLayoutDestroy(b));
    assert_ok(cublasLtMatrixLayoutDestroy(c));
    assert_ok(cublasLtMatrixLayoutDestroy(d));
}

static struct product product_new(cudaDataType ab, cudaDataType c, cublasComputeType_t compute, cudaDataType scale)
{
    struct product p = {
        .a_type = ab,
        .b_type = ab,
        .c_type = c,
        .d_type = c,
        .scale_type = scale,
        .compute = compute,
        .transa = CUBLAS_OP_T,
        .m = 9,
        .n = 6,
        .k = 11,
        .batch_count = 2,
        .alpha = 2,
        .beta = -1,
    };

    p.a = test_vector_new(ab, (size_t)(p.m * p.k * p.batch_count));
    p.b = test_vector_new(ab, (size_t)(p.k * p.n * p.batch_count));
    p.c = test_vector_new(c, (size_t)(p.m * p.n * p.batch_count));
    p.d = test_vector_new(c, (size_t)(p.m * p.n * p.batch_count));
    return p;
}

static void product_free(struct product *p)
{
    struct test_vector *all[] = {&p->a, &p->b, &p->c, &p->d, &p->bias, &p->aux, &p->a_scale, &p->b_scale};

    for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i]->count)
            test_vector_free(all[i]);
}

/* alpha op(A) op(B) + beta C of one of the batch, without an epilogue; all columns contiguous. */
static void expect_product(const struct product *p, int member, test_number *to)
{
    bool is_row = p->order == CUBLASLT_ORDER_ROW;
    char ta = p->transa == CUBLAS_OP_N ? 'N' : 'T', tb = p->transb == CUBLAS_OP_N ? 'N' : 'T';
    const test_number *a = p->a.value + member * p->m * p->k, *b = p->b.value + member * p->k * p->n;
    const test_number *c = p->c.value + member * p->m * p->n;

    for (int j = 0; j < p->n; j++)
        for (int i = 0; i < p->m; i++)
            to[i + j * p->m] = is_row ? c[i * p->n + j] : c[i + j * p->m];
    if (is_row)
        test_product(ta == 'N' ? 'T' : 'N', tb == 'N' ? 'T' : 'N', p->m, p->n, p->k, p->alpha, a,
                     ta == 'N' ? p->k : p->m, b, tb == 'N' ? p->n : p->k, p->beta, to, p->m);
    else
        test_product(ta, tb, p->m, p->n, p->k, p->alpha, a, ta == 'N' ? p->m : p->k, b, tb == 'N' ? p->k : p->n,
                     p->beta, to, p->m);
}

static void check_plain(struct product *p, double tolerance)
{
    test_number *expected = calloc(p->d.count, sizeof(*expected)), *one = calloc((size_t)(p->m * p->n), sizeof(*one));
    bool is_row = p->order == CUBLASLT_ORDER_ROW;

    for (int member = 0; member < p->batch_count; member++) {
        expect_product(p, member, one);
        for (int j = 0; j < p->n; j++)
            for (int i = 0; i < p->m; i++)
                expected[member * p->m * p->n + (is_row ? i * p->n + j : i + j * p->m)] = one[i + j * p->m];
    }
    run(p);
    test_compare(&p->d, expected, tolerance);
    free(expected);
    free(one);
}

static void types_orders_and_batches(void **state)
{
    static const struct {
        cudaDataType ab, c, scale;
        cublasComputeType_t compute;
        double tolerance;
    } rows[] = {
        {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 1e-5},
        {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 1e-5},
        {CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, 1e-12},
        {CUDA_C_32F, CUDA_C_32F, CUDA_C_32F, CUBLAS_COMPUTE_32F, 1e-5},
        {CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_16F, 1e-3},
        {CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 1e-3},
        {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 8e-3},
        {CUDA_R_8F_E4M3, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 8e-3},
        {CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I, 0},
    };

    for (unsigned i = 0; i < 4 * sizeof(rows) / sizeof(rows[0]); i++) {
        struct product p = product_new(rows[i / 4].ab, rows[i / 4].c, rows[i / 4].compute, rows[i / 4].scale);

        p.order = i % 2 ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
        p.transa = i % 4 < 2 ? CUBLAS_OP_T : CUBLAS_OP_N;
        p.transb = i % 4 < 2 ? CUBLAS_OP_N : CUBLAS_OP_T;
        check_plain(&p, rows[i / 4].tolerance);
        product_free(&p);
    }
}

/* 8-bit results: what is beyond the largest number becomes that one. */
static void results_saturate(void **state)
{
    struct product p = product_new(CUDA_R_8I, CUDA_R_8I, CUBLAS_COMPUTE_32I, CUDA_R_32F);
    test_number *expected = calloc(p.d.count, sizeof(*expected));

    p.beta = 0;
    for (int member = 0; member < 2; member++)
        expect_product(&p, member, expected + member * p.m * p.n);
    for (size_t i = 0; i < p.d.count; i++)
        expected[i] = fmin(fmax(creal(expected[i]), -128), 127);
    run(&p);
    test_compare(&p.d, expected, 0);
    free(expected);
    product_free(&p);
}

/* Scales of each row of A and each column of B, as products of 8-bit floats have them. */
static void scales_of_rows_and_columns(void **state)
{
    struct product p = product_new(CUDA_R_8F_E4M3, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    test_number *expected = calloc(p.d.count, sizeof(*expected));

    p.beta = 0;
    p.scale_mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    p.a_scale = test_vector_new(CUDA_R_32F, (size_t)p.m);
    p.b_scale = test_vector_new(CUDA_R_32F, (size_t)p.n);
    for (int member = 0; member < 2; member++)
        expect_product(&p, member, expected + member * p.m * p.n);
    for (int i = 0; i < p.m * p.n * 2; i++)
        expected[i] *= p.a_scale.value[i % p.m] * p.b_scale.value[i / p.m % p.n];
    run(&p);
    test_compare(&p.d, expected, 1e-5);
    free(expected);
    product_free(&p);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

/* Forward: what is stored beside the result is what the other direction takes. */
static void activations_forward(void **state)
{
    static const struct {
        cublasLtEpilogue_t epilogue;
        bool has_bias, is_relu, is_gelu, has_aux;
    } rows[] = {
        {CUBLASLT_EPILOGUE_BIAS, true, false, false, false},
        {CUBLASLT_EPILOGUE_RELU, false, true, false, false},
        {CUBLASLT_EPILOGUE_RELU_BIAS, true, true, false, false},
        {CUBLASLT_EPILOGUE_GELU, false, false, true, false},
        {CUBLASLT_EPILOGUE_GELU_BIAS, true, false, true, false},
        {CUBLASLT_EPILOGUE_RELU_AUX_BIAS, true, true, false, true},
        {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, true, false, true, true},
    };

    for (unsigned row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        struct product p = product_new(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F);
        test_number *expected = calloc(p.d.count, sizeof(*expected)), *before;

        p.batch_count = 1;
        p.epilogue = rows[row].epilogue;
        p.bias = test_vector_new(CUDA_R_32F, (size_t)p.m);
        p.aux_leading = rows[row].is_relu ? 128 : 16;
        p.aux = test_vector_new(rows[row].is_relu ? CUDA_R_8U : CUDA_R_32F, (size_t)(p.aux_leading * p.n));
        expect_product(&p, 0, expected);
        before = malloc(p.d.count * sizeof(*before));
        for (int i = 0; i < p.m * p.n; i++) {
            if (rows[row].has_bias)
                expected[i] += p.bias.value[i % p.m];
            before[i] = expected[i];
            if (rows[row].is_relu)
                expected[i] = fmax(creal(expected[i]), 0);
            if (rows[row].is_gelu)
                expected[i] = gelu(creal(expected[i]));
        }
        for (size_t i = (size_t)(p.m * p.n); i < p.d.count; i++)
            expected[i] = p.d.value[i];
        run(&p);
        test_compare(&p.d, expected, 1e-5);
        test_download(&p.aux);
        for (int i = 0; i < p.m * p.n && rows[row].has_aux; i++) {
            int at = i / p.m * p.aux_leading + i % p.m;

            if (rows[row].is_relu)
                assert_int_equal((int)creal(p.aux.value[at / 8]) >> at % 8 & 1, creal(before[i]) > 0);
            else
                assert_true(cabs(p.aux.value[at] - before[i]) < 1e-5);
        }
        free(expected);
        free(before);
        product_free(&p);
    }
}

static void gradients(void **state)
{
    static const cublasLtEpilogue_t epilogues[] = {CUBLASLT_EPILOGUE_DRELU,  CUBLASLT_EPILOGUE_DRELU_BGRAD,
                                                   CUBLASLT_EPILOGUE_DGELU,  CUBLASLT_EPILOGUE_DGELU_BGRAD,
                                                   CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB};

    for (unsigned row = 0; row < sizeof(epilogues) / sizeof(epilogues[0]); row++) {
        struct product p = product_new(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F);
        test_number *expected = calloc(p.d.count, sizeof(*expected)), *sums;
        bool is_relu = row < 2, is_gelu = row == 2 || row == 3;

        p.batch_count = 1;
        p.epilogue = epilogues[row];
        p.bias = test_vector_new(CUDA_R_32F, (size_t)(row == 5 ? p.n : p.m));
        sums = row == 1 || row >= 3 ? calloc(p.bias.count, sizeof(*sums)) : test_copy(&p.bias);
        p.aux_leading = is_relu ? 128 : 16;
        p.aux = test_vector_new(is_relu ? CUDA_R_8U : CUDA_R_32F, (size_t)(p.aux_leading * p.n));
        for (size_t i = 0; i < p.aux.count && is_relu; i++)
            p.aux.value[i] = rand() % 256;
        test_upload(&p.aux);
        expect_product(&p, 0, expected);
        for (int i = 0; i < p.m * p.n && (is_relu || is_gelu); i++) {
            int at = i / p.m * p.aux_leading + i % p.m;
            double x = creal(p.aux.value[at]);

            if (is_relu)
                expected[i] *= (int)creal(p.aux.value[at / 8]) >> at % 8 & 1;
            else
                expected[i] *= (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5;
            if (row == 1 || row == 3)
                sums[i % p.m] += expected[i];
        }
        for (int l = 0; l < p.k && row >= 4; l++)
            for (int i = 0; i < (row == 4 ? p.m : p.n); i++)
                sums[i] += row == 4 ? p.a.value[l + i * p.k] : p.b.value[l + i * p.k];
        for (size_t i = (size_t)(p.m * p.n); i < p.d.count; i++)
            expected[i] = p.d.value[i];
        run(&p);
        test_compare(&p.d, expected, 1e-4);
        test_compare(&p.bias, sums, 1e-4);
        free(expected);
        free(sums);
        product_free(&p);
    }
}

static void layouts_are_transformed(void **state)
{
    enum { M = 5, N = 7 };
    struct test_vector a = test_vector_new(CUDA_R_32F, M * N), b = test_vector_new(CUDA_R_32F, M * N);
    struct test_vector c = test_vector_new(CUDA_R_16F, M * N);
    cublasLtMatrixLayout_t a_layout = layout_new(CUDA_R_32F, N, M, CUBLASLT_ORDER_COL, 1);
    cublasLtMatrixLayout_t b_layout = layout_new(CUDA_R_32F, M, N, CUBLASLT_ORDER_ROW, 1);
    cublasLtMatrixLayout_t c_layout = layout_new(CUDA_R_16F, M, N, CUBLASLT_ORDER_COL, 1);
    cublasLtMatrixTransformDesc_t desc;
    cublasOperation_t transposed = CUBLAS_OP_T;
    test_number expected[M * N];
    float alpha = 2, beta = -3;

    assert_ok(cublasLtMatrixTransformDescCreate(&desc, CUDA_R_32F));
    assert_ok(cublasLtMatrixTransformDescSetAttribute(desc, CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA, &transposed, 4));
    for (int i = 0; i < M * N; i++)
        expected[i] = 2 * a.value[i / M + i % M * N] - 3 * b.value[i % M * N + i / M];
    assert_ok(cublasLtMatrixTransform(handle, desc, &alpha, (void *)a.device, a_layout, &beta, (void *)b.device,
                                      b_layout, (void *)c.device, c_layout, test_stream));
    test_compare(&c, expected, 1e-3);
    assert_ok(cublasLtMatrixTransformDescDestroy(desc));
    assert_ok(cublasLtMatrixLayoutDestroy(a_layout));
    assert_ok(cublasLtMatrixLayoutDestroy(b_layout));
    assert_ok(cublasLtMatrixLayoutDestroy(c_layout));
    test_vector_free(&a);
    test_vector_free(&b);
    test_vector_free(&c);
}

static void attributes(void **state)
{
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatmulAlgo_t algo;
    size_t written = 0;
    int32_t value = 7;
    uint32_t tile = 20;
    int ids[2], count;

    assert_ok(cublasLtMatmulDescInit(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    assert_ok(
        cublasLtMatmulDescGetAttribute(&desc, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &value, sizeof(value), &written));
    assert_int_equal(value, CUBLAS_COMPUTE_32F);
    assert_int_equal(written, sizeof(value));
    assert_ok(cublasLtMatmulDescGetAttribute(&desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, NULL, 0, &written));
    assert_int_equal(written, 8);
    assert_int_equal(cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_TRANSA, &value, 2),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasLtMatmulDescSetAttribute(&desc, (cublasLtMatmulDescAttributes_t)99, &value, 4),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_ok(cublasLtMatmulAlgoGetIds(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F,
                                       CUDA_R_32F, 2, ids, &count));
    assert_int_equal(count, 1);
    assert_ok(cublasLtMatmulAlgoInit(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F,
                                     CUDA_R_32F, ids[0], &algo));
    assert_ok(cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof(tile)));
    assert_ok(cublasLtMatmulAlgoCapGetAttribute(&algo, CUBLASLT_ALGO_CAP_STRIDED_BATCH_SUPPORT, &value, 4, &written));
    assert_int_equal(value, 1);
}

static void what_is_unknown_is_refused(void **state)
{
    struct product p = product_new(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayout_t a = layout_new(CUDA_R_32F, p.m, p.k, CUBLASLT_ORDER_COL, 1);
    cublasLtMatrixLayout_t b = layout_new(CUDA_R_32F, p.k, p.n, CUBLASLT_ORDER_COL, 1);
    cublasLtMatrixLayout_t d = layout_new(CUDA_R_32F, p.m, p.n, CUBLASLT_ORDER_COL, 1);
    cublasLtMatmulDesc_t desc;
    float one = 1;
    int32_t vector = CUBLASLT_POINTER_MODE_DEVICE_VECTOR, order = CUBLASLT_ORDER_COL32;

    assert_ok(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
#define MATMUL()                                                                                                       \
    cublasLtMatmul(handle, desc, &one, (void *)p.a.device, a, (void *)p.b.device, b, &one, (void *)p.c.device, d,      \
                   (void *)p.d.device, d, NULL, NULL, 0, test_stream)
    assert_ok(MATMUL());
    set(desc, CUBLASLT_MATMUL_DESC_POINTER_MODE, &vector, 4);
    assert_int_equal(MATMUL(), CUBLAS_STATUS_NOT_SUPPORTED);
    vector = CUBLASLT_POINTER_MODE_HOST;
    set(desc, CUBLASLT_MATMUL_DESC_POINTER_MODE, &vector, 4);
    assert_ok(cublasLtMatrixLayoutSetAttribute(b, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, 4));
    assert_int_equal(MATMUL(), CUBLAS_STATUS_NOT_SUPPORTED);
    order = CUBLASLT_ORDER_ROW; /* of which the leading dimension is then too small, or the shape is another one */
    assert_ok(cublasLtMatrixLayoutSetAttribute(b, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, 4));
    assert_ok(cublasLtMatrixLayoutSetAttribute(b, CUBLASLT_MATRIX_LAYOUT_ROWS, &(uint64_t){3}, 8));
    assert_int_equal(MATMUL(), CUBLAS_STATUS_INVALID_VALUE);
    assert_ok(cuStreamSynchronize(test_stream));
    assert_ok(cublasLtMatmulDescDestroy(desc));
    assert_ok(cublasLtMatrixLayoutDestroy(a));
    assert_ok(cublasLtMatrixLayoutDestroy(b));
    assert_ok(cublasLtMatrixLayoutDestroy(d));
    product_free(&p);
    assert_ok(cublasLtDestroy(handle));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_orders_and_batches),
        cmocka_unit_test(results_saturate),
        cmocka_unit_test(scales_of_rows_and_columns),
        cmocka_unit_test(activations_forward),
        cmocka_unit_test(gradients),
        cmocka_unit_test(layouts_are_transformed),
        cmocka_unit_test(attributes),
        cmocka_unit_test(what_is_unknown_is_refused),
    };

    test_needs("libopenblas.so.0");
    return cmocka_run_group_tests(tests, start, NULL);
}
