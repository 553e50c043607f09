/* cuSPARSELt: matrices become structured, are looked at whether they are, and are compressed. */
#include <math.h>
#include <string.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/library/number.h"
#include "cpu/softgpu/sparse/sparse.h"
#include "cpu/softgpu/sparse/structured.h"

enum { TILE_MAX = 4 };

struct prune {
    struct flyt_soft_slt_lines lines;
    const void *in;
    void *out;
    int32_t algorithm;
};

static char *number_at(const struct flyt_soft_slt_lines *l, const void *base, int64_t line, int64_t place)
{
    return (char *)base + (line * l->line_step + place * l->step) * (int64_t)flyt_soft_number_bytes(l->type);
}

static double get(const struct flyt_soft_slt_lines *l, const void *base, int64_t line, int64_t place)
{
    return creal(flyt_soft_number_get(l->type, number_at(l, base, line, place)));
}

/* A number of the output is the input's, or 0. */
static void put(const struct prune *p, const void *in, void *out, int64_t line, int64_t place, bool is_kept)
{
    unsigned bytes = flyt_soft_number_bytes(p->lines.type);

    if (is_kept)
        memmove(number_at(&p->lines, out, line, place), number_at(&p->lines, in, line, place), bytes);
    else
        memset(number_at(&p->lines, out, line, place), 0, bytes);
}

/* ---- strips: the largest of each group ---- */

/* Bits of the places that are kept: of equal numbers the earlier ones. */
static unsigned largest(const double *magnitudes, int count, int kept)
{
    unsigned mask = 0;

    for (int n = 0; n < kept; n++) {
        int best = -1;

        for (int i = 0; i < count; i++)
            if (!(mask >> i & 1) && (best < 0 || magnitudes[i] > magnitudes[best]))
                best = i;
        mask |= 1u << best;
    }
    return mask;
}

static void prune_strips(const struct prune *p, const void *in, void *out)
{
    const struct flyt_soft_slt_lines *l = &p->lines;

    for (int64_t line = 0; line < l->count; line++)
        for (int64_t k = 0; k < l->k; k += l->group) {
            double magnitudes[TILE_MAX];
            unsigned mask;

            for (int i = 0; i < l->group; i++)
                magnitudes[i] = fabs(get(l, in, line, k + i));
            mask = largest(magnitudes, l->group, l->kept);
            for (int i = 0; i < l->group; i++)
                put(p, in, out, line, k + i, mask >> i & 1);
        }
}

/* ---- tiles: as many in each row and in each column of a square ---- */

struct tile {
    double magnitudes[TILE_MAX][TILE_MAX];
    int size, kept;
    unsigned rows[TILE_MAX], best_rows[TILE_MAX];
    double best;
};

/* Tries all masks of a row, and of those below it; `columns` counts what is kept of each column. */
static void try_rows(struct tile *t, int row, const int *columns, double sum)
{
    if (row == t->size) {
        if (sum > t->best) {
            t->best = sum;
            memcpy(t->best_rows, t->rows, sizeof(t->rows));
        }
        return;
    }
    for (unsigned mask = 0; mask < 1u << t->size; mask++) {
        int counts[TILE_MAX] = {0};
        double more = 0;
        bool fits = __builtin_popcount(mask) == t->kept;

        for (int i = 0; i < t->size; i++) {
            counts[i] = columns[i] + (int)(mask >> i & 1);
            fits = fits && counts[i] <= t->kept;
            more += mask >> i & 1 ? t->magnitudes[row][i] : 0;
        }
        t->rows[row] = mask;
        if (fits)
            try_rows(t, row + 1, counts, sum + more);
    }
}

static void prune_tiles(const struct prune *p, const void *in, void *out)
{
    const struct flyt_soft_slt_lines *l = &p->lines;
    const int none[TILE_MAX] = {0};

    for (int64_t line = 0; line < l->count; line += l->group)
        for (int64_t k = 0; k < l->k; k += l->group) {
            struct tile tile = {.size = l->group, .kept = l->kept, .best = -1};

            for (int i = 0; i < l->group; i++)
                for (int j = 0; j < l->group; j++)
                    tile.magnitudes[i][j] = fabs(get(l, in, line + i, k + j));
            try_rows(&tile, 0, none, 0);
            for (int i = 0; i < l->group; i++)
                for (int j = 0; j < l->group; j++)
                    put(p, in, out, line + i, k + j, tile.best_rows[i] >> j & 1);
        }
}

/* ---- calls ---- */

static int64_t matrices(const struct flyt_soft_slt_lines *l)
{
    return l->stride ? l->batch_count : 1;
}

/* Matrix `member` of a batch; NULL: not all of it is in reach. */
static void *member_of(const struct flyt_soft_slt_lines *l, const void *base, int64_t member)
{
    char *at = (char *)base + member * l->stride * (int64_t)flyt_soft_number_bytes(l->type);

    return flyt_soft_work_reaches(at, l->bytes) ? at : NULL;
}

static CUresult run_prune(void *record)
{
    const struct prune *p = record;

    for (int64_t i = 0; i < matrices(&p->lines); i++) {
        const void *in = member_of(&p->lines, p->in, i);
        void *out = member_of(&p->lines, p->out, i);

        if (!in || !out)
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        (p->algorithm == FLYT_SOFT_SLT_PRUNE_TILE ? prune_tiles : prune_strips)(p, in, out);
    }
    return CUDA_SUCCESS;
}

static int kept_in(const struct flyt_soft_slt_lines *l, const void *base, int64_t line, int64_t k)
{
    int count = 0;

    for (int i = 0; i < l->group; i++)
        count += get(l, base, line, k + i) != 0;
    return count;
}

static CUresult run_check(void *record)
{
    const struct prune *p = record;
    const struct flyt_soft_slt_lines *l = &p->lines;
    int *valid = p->out;

    if (!flyt_soft_work_reaches(valid, sizeof(*valid)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    *valid = 0;
    for (int64_t i = 0; i < matrices(l); i++) {
        const void *in = member_of(l, p->in, i);

        if (!in)
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        for (int64_t line = 0; line < l->count; line++)
            for (int64_t k = 0; k < l->k; k += l->group)
                if (kept_in(l, in, line, k) > l->kept)
                    *valid = 1;
    }
    return CUDA_SUCCESS;
}

/* Where nothing says which operand a matrix is, its descriptor has to be a structured one. */
static cusparseStatus_t push(const void *handle, const struct flyt_soft_slt_lines *lines, CUresult (*run)(void *),
                             const void *in, void *out, int32_t algorithm, CUstream stream)
{
    const struct prune p = {.lines = lines ? *lines : (struct flyt_soft_slt_lines){.count = 0}, in, out, algorithm};

    if (!flyt_soft_slt_handle_is(handle))
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    if (!lines || !in || !out || algorithm < 0 || algorithm > FLYT_SOFT_SLT_PRUNE_STRIP)
        return CUSPARSE_STATUS_INVALID_VALUE;
    return flyt_soft_sparse_status(flyt_soft_work_push(stream, run, NULL, &p, sizeof(p)));
}

/* The lines of a product's structured operand, and of a structured matrix; NULL: there is none. */
static const struct flyt_soft_slt_lines *of_matmul(const void *room, struct flyt_soft_slt_lines *lines)
{
    FLYT_SOFT_SLT_FIND(matmul, room, FLYT_SOFT_SLT_MATMUL);

    if (matmul)
        *lines = flyt_soft_slt_sparse_of(matmul);
    return matmul ? lines : NULL;
}

static const struct flyt_soft_slt_lines *of_matrix(const void *room, int is_a, int op,
                                                   struct flyt_soft_slt_lines *lines)
{
    FLYT_SOFT_SLT_FIND(matrix, room, FLYT_SOFT_SLT_MATRIX);

    if (!matrix || !matrix->is_structured || op < 0 || op > 2)
        return NULL;
    *lines = flyt_soft_slt_lines_of(matrix, is_a != 0, op);
    return lines;
}

FLYT_SOFT_SLT cusparseLtSpMMAPrune(const void *handle, const void *matmul, const void *in, void *out, int algorithm,
                                   CUstream stream)
{
    struct flyt_soft_slt_lines lines;

    return push(handle, of_matmul(matmul, &lines), run_prune, in, out, algorithm, stream);
}

FLYT_SOFT_SLT cusparseLtSpMMAPrune2(const void *handle, const void *matrix, int is_a, int op, const void *in, void *out,
                                    int algorithm, CUstream stream)
{
    struct flyt_soft_slt_lines lines;

    return push(handle, of_matrix(matrix, is_a, op, &lines), run_prune, in, out, algorithm, stream);
}

FLYT_SOFT_SLT cusparseLtSpMMAPruneCheck(const void *handle, const void *matmul, const void *in, int *valid,
                                        CUstream stream)
{
    struct flyt_soft_slt_lines lines;

    return push(handle, of_matmul(matmul, &lines), run_check, in, valid, 0, stream);
}

FLYT_SOFT_SLT cusparseLtSpMMAPruneCheck2(const void *handle, const void *matrix, int is_a, int op, const void *in,
                                         int *valid, CUstream stream)
{
    struct flyt_soft_slt_lines lines;

    return push(handle, of_matrix(matrix, is_a, op, &lines), run_check, in, valid, 0, stream);
}

/* ---- compressed matrices ---- */

/* What is kept of all lines, then a byte for each group: bits of the places that are kept. */
static uint64_t kept_bytes(const struct flyt_soft_slt_lines *l)
{
    return (uint64_t)(l->count * l->k / l->group * l->kept) * flyt_soft_number_bytes(l->type);
}

uint64_t flyt_soft_slt_compressed_bytes(const struct flyt_soft_slt_lines *l)
{
    return (kept_bytes(l) + (uint64_t)(l->count * l->k / l->group) + 15) / 16 * 16;
}

static void compress(const struct flyt_soft_slt_lines *l, const void *in, void *out)
{
    unsigned bytes = flyt_soft_number_bytes(l->type);
    char *numbers = out, *places = numbers + kept_bytes(l);

    for (int64_t line = 0; line < l->count; line++)
        for (int64_t k = 0; k < l->k; k += l->group) {
            double magnitudes[TILE_MAX];
            unsigned mask;

            for (int i = 0; i < l->group; i++)
                magnitudes[i] = get(l, in, line, k + i) != 0;
            mask = largest(magnitudes, l->group, l->kept);
            *places++ = (char)mask;
            for (int i = 0; i < l->group; i++)
                if (mask >> i & 1) {
                    memcpy(numbers, number_at(l, in, line, k + i), bytes);
                    numbers += bytes;
                }
        }
}

void flyt_soft_slt_expand(const struct flyt_soft_slt_lines *l, const void *compressed, void *to)
{
    unsigned bytes = flyt_soft_number_bytes(l->type);
    const char *numbers = compressed, *places = numbers + kept_bytes(l), *end = places;

    for (int64_t group = 0; group < l->count * l->k / l->group; group++)
        for (int i = 0; i < l->group; i++) {
            char *at = (char *)to + (group * l->group + i) * bytes;
            bool is_kept = places[group] >> i & 1 && numbers < end; /* a program may have written anything there */

            if (is_kept)
                memcpy(at, numbers, bytes);
            else
                memset(at, 0, bytes);
            numbers += is_kept ? bytes : 0;
        }
}

static CUresult run_compress(void *record)
{
    const struct prune *p = record;
    uint64_t bytes = flyt_soft_slt_compressed_bytes(&p->lines);

    for (int64_t i = 0; i < matrices(&p->lines); i++) {
        const void *in = member_of(&p->lines, p->in, i);
        char *out = (char *)p->out + (uint64_t)i * bytes;

        if (!in || !flyt_soft_work_reaches(out, bytes))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        compress(&p->lines, in, out);
    }
    return CUDA_SUCCESS;
}

static const struct flyt_soft_slt_lines *of_plan(const void *room, struct flyt_soft_slt_lines *lines)
{
    FLYT_SOFT_SLT_FIND(plan, room, FLYT_SOFT_SLT_PLAN);

    return plan ? of_matmul(&plan->matmul, lines) : NULL;
}

/* No further memory is needed for it. */
static cusparseStatus_t tell_size(const void *handle, const struct flyt_soft_slt_lines *lines, size_t *ret_bytes,
                                  size_t *ret_buffer_bytes)
{
    if (!flyt_soft_slt_handle_is(handle))
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    if (!lines || !ret_bytes || !ret_buffer_bytes)
        return CUSPARSE_STATUS_INVALID_VALUE;
    *ret_bytes = flyt_soft_slt_compressed_bytes(lines) * (uint64_t)matrices(lines);
    *ret_buffer_bytes = 0;
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_SLT cusparseLtSpMMACompressedSize(const void *handle, const void *plan, size_t *ret_bytes,
                                            size_t *ret_buffer_bytes)
{
    struct flyt_soft_slt_lines lines;

    return tell_size(handle, of_plan(plan, &lines), ret_bytes, ret_buffer_bytes);
}

/* A matrix is as large in either direction. */
FLYT_SOFT_SLT cusparseLtSpMMACompressedSize2(const void *handle, const void *matrix, size_t *ret_bytes,
                                             size_t *ret_buffer_bytes)
{
    struct flyt_soft_slt_lines lines;

    return tell_size(handle, of_matrix(matrix, 1, 0, &lines), ret_bytes, ret_buffer_bytes);
}

FLYT_SOFT_SLT cusparseLtSpMMACompress(const void *handle, const void *plan, const void *in, void *out, void *buffer,
                                      CUstream stream)
{
    struct flyt_soft_slt_lines lines;

    (void)buffer;
    return push(handle, of_plan(plan, &lines), run_compress, in, out, 0, stream);
}

FLYT_SOFT_SLT cusparseLtSpMMACompress2(const void *handle, const void *matrix, int is_a, int op, const void *in,
                                       void *out, void *buffer, CUstream stream)
{
    struct flyt_soft_slt_lines lines;

    (void)buffer;
    return push(handle, of_matrix(matrix, is_a, op, &lines), run_compress, in, out, 0, stream);
}
