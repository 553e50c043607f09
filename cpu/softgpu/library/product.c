#include "cpu/softgpu/library/product.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/library/number.h"

enum { BLOCK_ROWS = 512, BLOCK_COLUMNS = 512, BLOCK_DEPTH = 1024 };

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static bool letter_of(cudaDataType type, enum flyt_soft_letter *ret_letter)
{
    static const cudaDataType types[] = {CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F};

    for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (types[i] != type)
            continue;
        *ret_letter = (enum flyt_soft_letter)i;
        return true;
    }
    return false;
}

static bool is_int8(cudaDataType type)
{
    return type == CUDA_R_8I || type == CUDA_R_8U;
}

/* Types that become floats. */
static bool is_small(cudaDataType type)
{
    return flyt_soft_number_bytes(type) && !flyt_soft_number_is_complex(type) && !flyt_soft_number_is_double(type);
}

bool flyt_soft_product_init(struct flyt_soft_product *product)
{
    enum flyt_soft_letter letter;

    if (product->sum_type == CUDA_R_32I) {
        product->gemm = flyt_soft_routine(FLYT_SOFT_GEMM, FLYT_SOFT_S);
        return product->gemm && is_int8(product->a_type) && is_int8(product->b_type);
    }
    if (!letter_of(product->sum_type, &letter))
        return false;
    if (product->sum_type == CUDA_R_32F ? !is_small(product->a_type) || !is_small(product->b_type)
                                        : product->a_type != product->sum_type || product->b_type != product->sum_type)
        return false;
    product->gemm = flyt_soft_routine(FLYT_SOFT_GEMM, letter);
    return product->gemm != NULL;
}

/* ---- in blocks of floats ---- */

/*
 * A block of op(X), rows from `row` and columns from `column`, as floats, column by column with `rows` in each. What is
 * contiguous in memory is read in that order.
 */
static void load_block(float *to, cudaDataType type, const void *x, int leading, char trans, int row, int column,
                       int rows, int columns)
{
    unsigned bytes = flyt_soft_number_bytes(type);

    if (trans == 'N' || trans == 'R') {
        for (int j = 0; j < columns; j++)
            flyt_soft_floats_load(to + (size_t)j * (size_t)rows, type,
                                  (const char *)x + ((int64_t)(column + j) * leading + row) * bytes, 1, rows);
        return;
    }
    for (int i = 0; i < rows; i++) {
        float line[BLOCK_DEPTH];

        flyt_soft_floats_load(line, type, (const char *)x + ((int64_t)(row + i) * leading + column) * bytes, 1,
                              columns);
        for (int j = 0; j < columns; j++)
            to[(size_t)j * (size_t)rows + (size_t)i] = line[j];
    }
}

/*
 * What a block of the product, of `depth`, is added to. Products of 8-bit integers are exact in floats, and so are sums
 * of as many as EXACT_DEPTH of them (2^24), whatever their order; sums of those are made of integers, which wrap.
 */
enum { EXACT_DEPTH = 1024, EXACT_DEPTH_UNSIGNED = 256 };

static void add_integers(int32_t *to, int to_leading, const float *from, int rows, int columns)
{
    for (int j = 0; j < columns; j++)
        for (int i = 0; i < rows; i++)
            to[(size_t)j * (size_t)to_leading + (size_t)i] =
                (int32_t)((uint32_t)to[(size_t)j * (size_t)to_leading + (size_t)i] +
                          (uint32_t)(int32_t)from[(size_t)j * (size_t)rows + (size_t)i]);
}

static bool run_blocks(const struct flyt_soft_product *p, const void *a, const void *b, void *sum)
{
    const float one = 1, zero = 0;
    bool is_integer = p->sum_type == CUDA_R_32I, is_signed = p->a_type == CUDA_R_8I && p->b_type == CUDA_R_8I;
    int depth_max = !is_integer ? BLOCK_DEPTH : is_signed ? EXACT_DEPTH : EXACT_DEPTH_UNSIGNED;
    float *a_block = malloc(sizeof(float) * BLOCK_ROWS * BLOCK_DEPTH);
    float *b_block = malloc(sizeof(float) * BLOCK_DEPTH * BLOCK_COLUMNS);
    float *part = malloc(sizeof(float) * BLOCK_ROWS * BLOCK_COLUMNS);
    bool has_memory = a_block && b_block && part;

    if (is_integer)
        memset(sum, 0, (size_t)p->m * (size_t)p->n * sizeof(int32_t));
    for (int j = 0; j < p->n && has_memory; j += BLOCK_COLUMNS) {
        for (int l = 0; l < p->k; l += depth_max) {
            int columns = smaller(p->n - j, BLOCK_COLUMNS), depth = smaller(p->k - l, depth_max);

            load_block(b_block, p->b_type, b, p->ldb, p->transb, l, j, depth, columns);
            for (int i = 0; i < p->m; i += BLOCK_ROWS) {
                int rows = smaller(p->m - i, BLOCK_ROWS);
                size_t at = (size_t)j * (size_t)p->m + (size_t)i;

                load_block(a_block, p->a_type, a, p->lda, p->transa, i, l, rows, depth);
                FORTRAN(p->gemm, "N", "N", &rows, &columns, &depth, &one, a_block, &rows, b_block, &depth,
                        is_integer || l == 0 ? &zero : &one, is_integer ? part : (float *)sum + at,
                        is_integer ? &rows : &p->m);
                if (is_integer)
                    add_integers((int32_t *)sum + at, p->m, part, rows, columns);
            }
        }
    }
    free(a_block);
    free(b_block);
    free(part);
    return has_memory;
}

bool flyt_soft_product_run(const struct flyt_soft_product *p, const void *a, const void *b, void *sum)
{
    const double one[2] = {1, 0}, zero[2] = {0, 0};
    const float one_float[2] = {1, 0};
    bool is_double = p->sum_type == CUDA_R_64F || p->sum_type == CUDA_C_64F;

    if (p->m == 0 || p->n == 0)
        return true;
    if (p->k == 0) {
        memset(sum, 0, (size_t)p->m * (size_t)p->n * flyt_soft_number_bytes(p->sum_type));
        return true;
    }
    if (p->a_type != p->sum_type || p->b_type != p->sum_type)
        return run_blocks(p, a, b, sum);
    FORTRAN(p->gemm, &p->transa, &p->transb, &p->m, &p->n, &p->k, is_double ? (const void *)one : one_float, a, &p->lda,
            b, &p->ldb, zero, sum, &p->m);
    return true;
}
