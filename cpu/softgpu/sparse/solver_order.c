/* cuSOLVER's orders of sparse matrices in host memory: reverse Cuthill-McKee, matchings without zeros on the diagonal,
 * permutations, and whether a pattern is symmetric. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/sparse/solver_sparse.h"

static cusolverStatus_t begin(cusolverSpHandle_t handle, struct flyt_soft_csr *csr, int m, int n, int nnz,
                              cusparseMatDescr_t descr, const int *offsets, const int *indices)
{
    cusolverStatus_t status = flyt_soft_csr_begin(handle, csr, m, n, nnz, descr, offsets, indices);

    if (status == CUSOLVER_STATUS_SUCCESS && !flyt_soft_csr_is_sound(csr))
        status = CUSOLVER_STATUS_INVALID_VALUE;
    return status;
}

static bool has(const struct flyt_soft_csr *csr, const int *ends, int row, int column)
{
    for (int k = csr->offsets[row] - csr->base; k < ends[row] - csr->base; k++)
        if (csr->indices[k] - csr->base == column)
            return true;
    return false;
}

FLYT_SOFT_CUSOLVER cusolverSpXcsrissymHost(cusolverSpHandle_t handle, int m, int nnzA, const cusparseMatDescr_t descrA,
                                           const int *csrRowPtrA, const int *csrEndPtrA, const int *csrColIndA,
                                           int *issym)
{
    struct flyt_soft_csr csr;
    cusolverStatus_t status = flyt_soft_csr_begin(handle, &csr, m, m, nnzA, descrA, csrRowPtrA, csrColIndA);

    if (status != CUSOLVER_STATUS_SUCCESS)
        return status;
    if (!csrEndPtrA || !issym)
        return CUSOLVER_STATUS_INVALID_VALUE;
    *issym = 1;
    for (int i = 0; i < m; i++)
        for (int k = csrRowPtrA[i] - csr.base; k < csrEndPtrA[i] - csr.base; k++)
            *issym &= has(&csr, csrEndPtrA, csrColIndA[k] - csr.base, i);
    return CUSOLVER_STATUS_SUCCESS;
}

/* ---- reverse Cuthill-McKee ---- */

/* The pattern of A + A': of each row its columns, without the diagonal. A column can stand there twice. */
struct graph {
    int count, *offsets, *neighbours;
};

static bool graph_begin(struct graph *graph, const struct flyt_soft_csr *csr)
{
    int n = csr->rows, *place;

    *graph = (struct graph){
        .count = n,
        .offsets = calloc((size_t)n + 2, sizeof(int)),
        .neighbours = calloc(2 * (size_t)csr->nnz + 1, sizeof(int)),
    };
    place = calloc((size_t)n + 1, sizeof(int));
    for (int pass = 0; graph->offsets && graph->neighbours && place && pass < 2; pass++) {
        for (int i = 0; i < n; i++)
            for (int k = csr->offsets[i] - csr->base; k < csr->offsets[i + 1] - csr->base; k++) {
                int j = csr->indices[k] - csr->base;

                if (j == i)
                    continue;
                if (pass == 0) {
                    graph->offsets[i + 1]++;
                    graph->offsets[j + 1]++;
                } else {
                    graph->neighbours[place[i]++] = j;
                    graph->neighbours[place[j]++] = i;
                }
            }
        for (int i = 0; i < n && pass == 0; i++) {
            graph->offsets[i + 1] += graph->offsets[i];
            place[i] = graph->offsets[i];
        }
    }
    free(place);
    return graph->offsets && graph->neighbours && place;
}

static void graph_end(struct graph *graph)
{
    free(graph->offsets);
    free(graph->neighbours);
}

static int degree(const struct graph *graph, int i)
{
    return graph->offsets[i + 1] - graph->offsets[i];
}

/* Appends to the queue what hangs together with `start`, breadth first, those of a small degree first. The new end. */
static int visit(const struct graph *graph, int start, int *queue, int end, char *is_seen)
{
    int at = end;

    queue[end++] = start;
    is_seen[start] = 1;
    for (; at < end; at++) {
        int first = end;

        for (int k = graph->offsets[queue[at]]; k < graph->offsets[queue[at] + 1]; k++) {
            int j = graph->neighbours[k], place = end;

            if (is_seen[j])
                continue;
            is_seen[j] = 1;
            for (; place > first && degree(graph, queue[place - 1]) > degree(graph, j); place--)
                queue[place] = queue[place - 1];
            queue[place] = j;
            end++;
        }
    }
    return end;
}

FLYT_SOFT_CUSOLVER cusolverSpXcsrsymrcmHost(cusolverSpHandle_t handle, int n, int nnzA, const cusparseMatDescr_t descrA,
                                            const int *csrRowPtrA, const int *csrColIndA, int *p)
{
    struct flyt_soft_csr csr;
    struct graph graph;
    cusolverStatus_t status = begin(handle, &csr, n, n, nnzA, descrA, csrRowPtrA, csrColIndA);
    char *is_seen;
    bool has_memory;

    if (status != CUSOLVER_STATUS_SUCCESS)
        return status;
    if (n && !p)
        return CUSOLVER_STATUS_INVALID_VALUE;
    is_seen = calloc((size_t)n + 1, 1);
    has_memory = graph_begin(&graph, &csr) && is_seen;
    for (int end = 0; has_memory && end < n;) {
        int start = -1;

        for (int i = 0; i < n; i++) /* at the outside of what it hangs together with, as far as a degree tells */
            if (!is_seen[i] && (start < 0 || degree(&graph, i) < degree(&graph, start)))
                start = i;
        end = visit(&graph, start, p, end, is_seen);
    }
    for (int i = 0; has_memory && i < n / 2; i++) {
        int other = p[n - 1 - i];

        p[n - 1 - i] = p[i];
        p[i] = other;
    }
    graph_end(&graph);
    free(is_seen);
    return has_memory ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_ALLOC_FAILED;
}

/* ---- permutations ---- */

FLYT_SOFT_CUSOLVER cusolverSpXcsrperm_bufferSizeHost(cusolverSpHandle_t handle, int m, int n, int nnzA,
                                                     const cusparseMatDescr_t descrA, const int *csrRowPtrA,
                                                     const int *csrColIndA, const int *p, const int *q,
                                                     size_t *bufferSizeInBytes)
{
    struct flyt_soft_csr csr;
    cusolverStatus_t status = begin(handle, &csr, m, n, nnzA, descrA, csrRowPtrA, csrColIndA);

    if (status != CUSOLVER_STATUS_SUCCESS)
        return status;
    if (!bufferSizeInBytes || (m && !p) || (n && !q))
        return CUSOLVER_STATUS_INVALID_VALUE;
    *bufferSizeInBytes = ((size_t)m + 1 + (size_t)n + 2 * (size_t)nnzA) * sizeof(int);
    return CUSOLVER_STATUS_SUCCESS;
}

/* Row i of B = A(p,q), by rising columns, behind those before it. Where a column of A goes is in `to`. */
static void permute_row(const struct flyt_soft_csr *csr, const int *map, int from, const int *to, int *indices,
                        int *numbers, int *at)
{
    int first = *at;

    for (int k = csr->offsets[from] - csr->base; k < csr->offsets[from + 1] - csr->base; k++) {
        int column = to[csr->indices[k] - csr->base], place = (*at)++;

        for (; place > first && indices[place - 1] > column; place--) {
            indices[place] = indices[place - 1];
            numbers[place] = numbers[place - 1];
        }
        indices[place] = column;
        numbers[place] = map[k];
    }
}

FLYT_SOFT_CUSOLVER cusolverSpXcsrpermHost(cusolverSpHandle_t handle, int m, int n, int nnzA,
                                          const cusparseMatDescr_t descrA, int *csrRowPtrA, int *csrColIndA,
                                          const int *p, const int *q, int *map, void *pBuffer)
{
    struct flyt_soft_csr csr;
    cusolverStatus_t status = begin(handle, &csr, m, n, nnzA, descrA, csrRowPtrA, csrColIndA);
    int *offsets = pBuffer, *to, *indices, *numbers, at = 0;

    if (status != CUSOLVER_STATUS_SUCCESS)
        return status;
    if (!pBuffer || (nnzA && !map) || (m && !p) || (n && !q))
        return CUSOLVER_STATUS_INVALID_VALUE;
    to = offsets + m + 1;
    indices = to + n;
    numbers = indices + nnzA;
    for (int j = 0; j < n; j++)
        if (q[j] < 0 || q[j] >= n)
            return CUSOLVER_STATUS_INVALID_VALUE;
    memset(to, 0, (size_t)n * sizeof(*to));
    for (int j = 0; j < n; j++)
        to[q[j]] = j;
    for (int i = 0; i < m; i++) {
        if (p[i] < 0 || p[i] >= m || csrRowPtrA[p[i] + 1] - csrRowPtrA[p[i]] > nnzA - at)
            return CUSOLVER_STATUS_INVALID_VALUE;
        offsets[i] = at + csr.base;
        permute_row(&csr, map, p[i], to, indices, numbers, &at);
    }
    offsets[m] = at + csr.base;
    memcpy(csrRowPtrA, offsets, ((size_t)m + 1) * sizeof(*offsets));
    for (int k = 0; k < at; k++)
        csrColIndA[k] = indices[k] + csr.base;
    memcpy(map, numbers, (size_t)at * sizeof(*numbers));
    return CUSOLVER_STATUS_SUCCESS;
}

/* ---- a diagonal without zeros ---- */

struct matching {
    const struct flyt_soft_csr *csr;
    int *row_of;   /* of each column, or -1 */
    int *tried_by; /* of each column: the row for which it was looked at last, from 1 */
    int *next, *column,
        *came_from; /* of each row on the way: its next entry, the column that leads on, the row before */
};

static bool is_zero(const struct flyt_soft_csr *csr, int k)
{
    return flyt_soft_number_get(csr->type, (const char *)csr->values + (size_t)k * flyt_soft_number_bytes(csr->type)) ==
           0;
}

/* Gives each row on the way the column that it has led over. */
static void take_way(struct matching *m, int row)
{
    for (; row >= 0; row = m->came_from[row])
        m->row_of[m->column[row]] = row;
}

/* Whether the row gets a column, by a way on which others change theirs. */
static bool match(struct matching *m, int start)
{
    const struct flyt_soft_csr *csr = m->csr;
    int row = start;

    m->came_from[start] = -1;
    m->next[start] = csr->offsets[start] - csr->base;
    while (row >= 0) {
        int k = m->next[row]++, column;

        if (k >= csr->offsets[row + 1] - csr->base) {
            row = m->came_from[row];
            continue;
        }
        column = csr->indices[k] - csr->base;
        if (is_zero(csr, k) || m->tried_by[column] == start + 1)
            continue;
        m->tried_by[column] = start + 1;
        m->column[row] = column;
        if (m->row_of[column] < 0) {
            take_way(m, row);
            return true;
        }
        m->came_from[m->row_of[column]] = row;
        row = m->row_of[column];
        m->next[row] = csr->offsets[row] - csr->base;
    }
    return false;
}

/* P of rows: row P[j] has a number in column j. Columns without one get the rows that are left. */
static int match_all(struct matching *m, int n, int *ret_p)
{
    int count = 0, left = 0;
    char *is_taken = (char *)m->next;

    for (int j = 0; j < n; j++)
        m->row_of[j] = -1;
    for (int i = 0; i < n; i++)
        count += match(m, i);
    for (int j = 0; j < n; j++)
        is_taken[j] = 0;
    for (int j = 0; j < n; j++)
        if (m->row_of[j] >= 0)
            is_taken[m->row_of[j]] = 1;
    for (int j = 0; j < n; j++) {
        while (m->row_of[j] < 0 && is_taken[left])
            left++;
        ret_p[j] = m->row_of[j] < 0 ? left++ : m->row_of[j];
    }
    return count;
}

static cusolverStatus_t zero_free(cusolverSpHandle_t handle, cudaDataType type, int n, int nnz,
                                  cusparseMatDescr_t descr, const void *values, const int *offsets, const int *indices,
                                  int *p, int *ret_count)
{
    struct flyt_soft_csr csr;
    struct matching m = {.csr = &csr};
    cusolverStatus_t status = begin(handle, &csr, n, n, nnz, descr, offsets, indices);
    int *memory;

    if (status != CUSOLVER_STATUS_SUCCESS)
        return status;
    if (!ret_count || (n && !p) || (nnz && !values))
        return CUSOLVER_STATUS_INVALID_VALUE;
    csr.type = type;
    csr.values = values;
    memory = calloc(5 * (size_t)n + 1, sizeof(*memory));
    if (!memory)
        return CUSOLVER_STATUS_ALLOC_FAILED;
    m.row_of = memory;
    m.tried_by = memory + n;
    m.next = memory + 2 * (size_t)n;
    m.column = memory + 3 * (size_t)n;
    m.came_from = memory + 4 * (size_t)n;
    *ret_count = match_all(&m, n, p);
    free(memory);
    return CUSOLVER_STATUS_SUCCESS;
}

#define ZERO_FREE(letter_, type_, cuda_type_)                                                                          \
    FLYT_SOFT_CUSOLVER cusolverSp##letter_##csrzfdHost(cusolverSpHandle_t handle, int n, int nnz,                      \
                                                       const cusparseMatDescr_t descr, const type_ *values,            \
                                                       const int *offsets, const int *indices, int *P, int *numnz)     \
    {                                                                                                                  \
        return zero_free(handle, cuda_type_, n, nnz, descr, values, offsets, indices, P, numnz);                       \
    }
ZERO_FREE(S, float, CUDA_R_32F)
ZERO_FREE(D, double, CUDA_R_64F)
ZERO_FREE(C, cuComplex, CUDA_C_32F)
ZERO_FREE(Z, cuDoubleComplex, CUDA_C_64F)
