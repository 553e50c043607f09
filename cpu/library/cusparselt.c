/*
 * What of cuSPARSELt is by hand: descriptors that hold others, selections of algorithms, plans and their products,
 * versions and texts. Descriptors are values in the program's memory. A selection is a record of ours, which a plan
 * shares with the program's structure: a search changes what both have.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/library/library_call.h"
#include "flyt_lib_cusparselt.h"
#include "rpc/library/slt_selection.h"
#include "rpc/library/sparse_status.h"

extern const struct flyt_lib flyt_lib_cusparselt;
extern const struct flyt_lib_kind flyt_lib_kind_cusparselt_slt, flyt_lib_kind_cusparselt_sltplan;
extern const struct flyt_lib_value_kind flyt_lib_value_cusparselt_sltmat, flyt_lib_value_cusparselt_sltmatmul;
extern const struct flyt_lib_row flyt_lib_row_cusparseLtDenseDescriptorInit,
    flyt_lib_row_cusparseLtMatmulDescriptorInit, flyt_lib_row_cusparseLtMatmulAlgSelectionInit,
    flyt_lib_row_cusparseLtMatmulPlanInit, flyt_lib_row_cusparseLtMatmulPlanDestroy, flyt_lib_row_cusparseLtMatmul,
    flyt_lib_row_cusparseLtMatmulSearch;

#define LIBRARY (&flyt_lib_cusparselt)
#define MAT     (&flyt_lib_value_cusparselt_sltmat)
#define MATMUL  (&flyt_lib_value_cusparselt_sltmatmul)

enum { VERSION_MAJOR = 0, VERSION_MINOR = 8, VERSION_PATCH = 0, SELECTION_MAGIC = 0x736c7453 };

struct selection {
    atomic_uint refs;
    int alg;
    uint32_t given; /* a bit for each attribute that the program has set, or a search has found */
    struct flyt_slt_selection is;
};

/* The program's structures: of a selection, and of a plan, which begins as all handles in its memory do. */
struct selection_room {
    uint32_t magic;
    struct selection *selection;
};
struct plan_room {
    struct flyt_lib_room handle;
    struct selection *selection;
    uint64_t digest;
    int32_t is_alpha_vector, is_beta_vector;
};
_Static_assert(sizeof(struct plan_room) <= FLYT_SLT_ROOM_BYTES, "it lives in the program's bytes");

static uint64_t handle_in(const void *handle)
{
    return flyt_lib_in_room(handle, &flyt_lib_kind_cusparselt_slt);
}

static void begin(struct flyt_lib_call *call, const void *handle)
{
    flyt_lib_begin(call);
    flyt_lib_object(call, handle_in(handle), &flyt_lib_kind_cusparselt_slt);
}

/* ---- matrices ---- */

/* A descriptor is the program's when the library has taken its like. */
static int try_matrix(const void *handle, void *room, const struct flyt_value_sltmat *shape)
{
    struct flyt_value_sltmat fresh __attribute__((aligned(16))), *value;
    struct flyt_args_cusparseLtDenseDescriptorInit sent;
    struct flyt_lib_call call = {.row = &flyt_lib_row_cusparseLtDenseDescriptorInit, .arguments = &sent};
    if (!room)
        return LIBRARY->invalid;
    value = flyt_lib_make(MAT, &fresh, sizeof fresh);
    value->rows = shape->rows;
    value->cols = shape->cols;
    value->ld = shape->ld;
    value->alignment = shape->alignment;
    value->type = shape->type;
    value->order = shape->order;
    value->sparsity = shape->sparsity;
    memset(&sent, 0, sizeof sent);
    begin(&call, handle);
    flyt_lib_value(&call, &sent.matDescr, value, MAT);
    int status = flyt_lib_finish(&call);
    if (status == LIBRARY->success)
        memcpy(room, value, sizeof *value);
    return status;
}

FLYT_LIB_ENTRY int cusparseLtDenseDescriptorInit(const void *handle, void *room, int64_t rows, int64_t cols, int64_t ld,
                                                 uint32_t alignment, int type, int order)
{
    const struct flyt_value_sltmat shape = {
        .rows = rows, .cols = cols, .ld = ld, .alignment = alignment, .type = type, .order = order, .sparsity = -1};
    return try_matrix(handle, room, &shape);
}

FLYT_LIB_ENTRY int cusparseLtStructuredDescriptorInit(const void *handle, void *room, int64_t rows, int64_t cols,
                                                      int64_t ld, uint32_t alignment, int type, int order, int sparsity)
{
    const struct flyt_value_sltmat shape = {.rows = rows,
                                            .cols = cols,
                                            .ld = ld,
                                            .alignment = alignment,
                                            .type = type,
                                            .order = order,
                                            .sparsity = sparsity};
    if (sparsity < 0)
        return LIBRARY->invalid;
    return try_matrix(handle, room, &shape);
}

/* ---- products ---- */

static void take_matrix(struct flyt_value_sltmatmul *value, unsigned place, const struct flyt_value_sltmat *matrix)
{
    value->rows[place] = matrix->rows;
    value->cols[place] = matrix->cols;
    value->ld[place] = matrix->ld;
    value->strides[place] = matrix->stride;
    value->alignments[place] = matrix->alignment;
    value->types[place] = matrix->type;
    value->orders[place] = matrix->order;
    value->sparsities[place] = matrix->sparsity;
    value->batches[place] = matrix->batches;
}

FLYT_LIB_ENTRY int cusparseLtMatmulDescriptorInit(const void *handle, void *room, int op_a, int op_b, const void *a,
                                                  const void *b, const void *c, const void *d, int compute_type)
{
    const void *const matrices[FLYT_SLT_MATRICES] = {a, b, c, d};
    struct flyt_value_sltmatmul fresh __attribute__((aligned(16))), *value;
    struct flyt_args_cusparseLtMatmulDescriptorInit sent;
    struct flyt_lib_call call = {.row = &flyt_lib_row_cusparseLtMatmulDescriptorInit, .arguments = &sent};
    value = flyt_lib_make(MATMUL, &fresh, sizeof fresh);
    value->op_a = op_a;
    value->op_b = op_b;
    value->compute_type = compute_type;
    for (unsigned i = 0; i < FLYT_SLT_MATRICES; i++) {
        const struct flyt_value_sltmat *matrix = flyt_lib_valid(MAT, matrices[i]);
        if (!matrix || !room)
            return LIBRARY->invalid;
        take_matrix(value, i, matrix);
    }
    memset(&sent, 0, sizeof sent);
    begin(&call, handle);
    flyt_lib_value(&call, &sent.matmulDescr, value, MATMUL);
    int status = flyt_lib_finish(&call);
    if (status == LIBRARY->success)
        memcpy(room, value, sizeof *value);
    return status;
}

/* What the library says of an attribute, it says where the descriptor is used. */
FLYT_LIB_ENTRY int cusparseLtMatmulDescSetAttribute(const void *handle, void *room, int attribute, const void *data,
                                                    size_t bytes)
{
    struct flyt_value_sltmatmul *value = flyt_lib_valid(MATMUL, room);
    if (!handle_in(handle))
        return LIBRARY->handle;
    int status = flyt_lib_attribute_set(LIBRARY, MATMUL, value, attribute, data, bytes);
    if (status == LIBRARY->success)
        value->given |= 1u << attribute;
    return status;
}

/* ---- selections ---- */

static struct selection *selection_in(const void *room)
{
    const struct selection_room *at = room;
    return at && at->magic == SELECTION_MAGIC ? at->selection : NULL;
}

static void unref(struct selection *selection)
{
    if (selection && atomic_fetch_sub(&selection->refs, 1) == 1)
        free(selection);
}

FLYT_LIB_ENTRY int cusparseLtMatmulAlgSelectionInit(const void *handle, void *room, const void *matmul, int alg)
{
    struct flyt_args_cusparseLtMatmulAlgSelectionInit sent;
    struct flyt_lib_call call = {.row = &flyt_lib_row_cusparseLtMatmulAlgSelectionInit, .arguments = &sent};
    struct selection *selection = calloc(1, sizeof *selection);
    if (!selection)
        return LIBRARY->memory;
    memset(&sent, 0, sizeof sent);
    begin(&call, handle);
    sent.alg = alg;
    flyt_lib_value(&call, &sent.matmulDescr, matmul, MATMUL);
    sent.chosen_bytes = flyt_lib_out(&call, &selection->is, sizeof selection->is, false);
    int status = room && matmul ? flyt_lib_finish(&call) : LIBRARY->invalid;
    if (status != LIBRARY->success) {
        free(selection);
        return status;
    }
    selection->refs = 1;
    selection->alg = alg;
    *(struct selection_room *)room = (struct selection_room){SELECTION_MAGIC, selection};
    return status;
}

FLYT_LIB_ENTRY int cusparseLtMatmulAlgSelectionDestroy(const void *room)
{
    struct selection *selection = selection_in(room);
    if (!selection)
        return LIBRARY->invalid;
    ((struct selection_room *)(uintptr_t)room)->magic = 0;
    unref(selection);
    return LIBRARY->success;
}

static bool may_be(const struct selection *selection, int attribute, int32_t value)
{
    if (attribute == FLYT_SLT_CONFIG_ID && selection->is.known & 1u << FLYT_SLT_CONFIG_MAX_ID)
        return value >= 0 && value < selection->is.values[FLYT_SLT_CONFIG_MAX_ID];
    return attribute != FLYT_SLT_CONFIG_MAX_ID;
}

FLYT_LIB_ENTRY int cusparseLtMatmulAlgSetAttribute(const void *handle, void *room, int attribute, const void *data,
                                                   size_t bytes)
{
    struct selection *selection = selection_in(room);
    int32_t value;
    if (!handle_in(handle))
        return LIBRARY->handle;
    if (!selection || attribute < 0 || attribute >= FLYT_SLT_ATTRIBUTES || !data || bytes != sizeof value)
        return LIBRARY->invalid;
    memcpy(&value, data, sizeof value);
    if (!may_be(selection, attribute, value))
        return LIBRARY->invalid;
    selection->is.values[attribute] = value;
    selection->is.known |= 1u << attribute;
    selection->given |= 1u << attribute;
    return LIBRARY->success;
}

FLYT_LIB_ENTRY int cusparseLtMatmulAlgGetAttribute(const void *handle, const void *room, int attribute, void *data,
                                                   size_t bytes)
{
    const struct selection *selection = selection_in(room);
    if (!handle_in(handle))
        return LIBRARY->handle;
    if (!selection || attribute < 0 || attribute >= FLYT_SLT_ATTRIBUTES || !data || bytes != sizeof(int32_t))
        return LIBRARY->invalid;
    if (!(selection->is.known & 1u << attribute))
        return LIBRARY->refused;
    memcpy(data, &selection->is.values[attribute], sizeof(int32_t));
    return LIBRARY->success;
}

/* ---- plans ---- */

static void put_selection(struct flyt_args_cusparseLtMatmulPlanInit *sent, const struct selection *selection)
{
    const int32_t *values = selection->is.values;
    sent->alg = selection->alg;
    sent->given = selection->given;
    sent->config_id = values[FLYT_SLT_CONFIG_ID];
    sent->search_iterations = values[FLYT_SLT_SEARCH_ITERATIONS];
    sent->split_k = values[FLYT_SLT_SPLIT_K];
    sent->split_k_mode = values[FLYT_SLT_SPLIT_K_MODE];
    sent->split_k_buffers = values[FLYT_SLT_SPLIT_K_BUFFERS];
}

/* Of what makes two plans alike: FNV-1a of all but addresses and the handle. */
static uint64_t digest_of(const struct flyt_args_cusparseLtMatmulPlanInit *sent)
{
    struct flyt_args_cusparseLtMatmulPlanInit like = *sent;
    const unsigned char *bytes = (const unsigned char *)&like;
    size_t end = offsetof(struct flyt_args_cusparseLtMatmulPlanInit, matmulDescr) +
                 offsetof(struct flyt_value_sltmatmul, key_end);
    uint64_t digest = 14695981039346656037u;
    like.handle = 0;
    for (size_t i = 0; i < end; i++)
        digest = (digest ^ bytes[i]) * 1099511628211u;
    return digest;
}

FLYT_LIB_ENTRY int cusparseLtMatmulPlanInit(const void *handle, void *room, const void *matmul, const void *algorithm)
{
    struct selection *selection = selection_in(algorithm);
    struct flyt_args_cusparseLtMatmulPlanInit sent;
    struct flyt_lib_call call = {.row = &flyt_lib_row_cusparseLtMatmulPlanInit, .arguments = &sent};
    const uint64_t id = handle_in(handle);
    if (!id)
        return LIBRARY->handle;
    if (!room || !selection || !flyt_lib_valid(MATMUL, matmul))
        return LIBRARY->invalid;
    memset(&sent, 0, sizeof sent);
    flyt_lib_begin(&call);
    flyt_lib_place(&call, flyt_lib_find(id, &flyt_lib_kind_cusparselt_slt));
    flyt_lib_new(&call, room, &flyt_lib_kind_cusparselt_sltplan);
    flyt_lib_value(&call, &sent.matmulDescr, matmul, MATMUL);
    put_selection(&sent, selection);
    sent.handle = id;
    call.named = &id;
    call.named_count = 1;
    int status = flyt_lib_finish(&call);
    if (status != LIBRARY->success)
        return status;
    struct plan_room *plan = room;
    atomic_fetch_add(&selection->refs, 1);
    plan->selection = selection;
    plan->digest = digest_of(&sent);
    plan->is_alpha_vector = sent.matmulDescr.alpha_vector != 0;
    plan->is_beta_vector = sent.matmulDescr.beta_vector != 0;
    return status;
}

/* NULL: the program has no such plan. */
static const struct plan_room *plan_in(const void *room)
{
    return flyt_lib_in_room(room, &flyt_lib_kind_cusparselt_sltplan) ? room : NULL;
}

FLYT_LIB_ENTRY int cusparseLtMatmulPlanDestroy(const void *room)
{
    const struct plan_room *plan = plan_in(room);
    struct flyt_lib_call call = {.row = &flyt_lib_row_cusparseLtMatmulPlanDestroy};
    if (!plan)
        return LIBRARY->invalid;
    struct selection *selection = plan->selection;
    flyt_lib_begin(&call);
    flyt_lib_end(&call, plan->handle.id, &flyt_lib_kind_cusparselt_sltplan);
    int status = flyt_lib_finish(&call);
    unref(selection);
    return status;
}

/* ---- products that are computed ---- */

/* The program's arguments of both calls. */
struct product {
    const void *alpha, *a, *b, *beta, *c;
    void *d, *workspace, *const *streams;
    int32_t stream_count;
    const char *name;
};

/* A product is work in one stream: over several the server has no order. */
static int check(const struct plan_room *plan, const struct product *product)
{
    if (!plan || product->stream_count < 0 || (product->stream_count && !product->streams))
        return LIBRARY->invalid;
    return product->stream_count > 1 ? flyt_lib_refuse(LIBRARY, product->name) : LIBRARY->success;
}

#define PUT(call, sent, plan, product)                                                                                 \
    do {                                                                                                               \
        flyt_lib_object(&(call), (plan)->handle.id, &flyt_lib_kind_cusparselt_sltplan);                                \
        flyt_lib_stream(&(call), (product)->stream_count ? *(product)->streams : NULL);                                \
        (sent).alpha_vector = (plan)->is_alpha_vector;                                                                 \
        (sent).beta_vector = (plan)->is_beta_vector;                                                                   \
        flyt_lib_scalar(&(call), &(sent).alpha, (product)->alpha, (plan)->is_alpha_vector, sizeof(float),              \
                        FLYT_LIB_SCALAR);                                                                              \
        flyt_lib_scalar(&(call), &(sent).beta, (product)->beta, (plan)->is_beta_vector, sizeof(float),                 \
                        FLYT_LIB_SCALAR);                                                                              \
        (sent).A = (uint64_t)(uintptr_t)(product)->a;                                                                  \
        (sent).B = (uint64_t)(uintptr_t)(product)->b;                                                                  \
        (sent).C = (uint64_t)(uintptr_t)(product)->c;                                                                  \
        (sent).D = (uint64_t)(uintptr_t)(product)->d;                                                                  \
        (sent).workspace = (uint64_t)(uintptr_t)(product)->workspace;                                                  \
    } while (0)

FLYT_LIB_ENTRY int cusparseLtMatmul(const void *handle, const void *room, const void *alpha, const void *a,
                                    const void *b, const void *beta, const void *c, void *d, void *workspace,
                                    void **streams, int32_t stream_count)
{
    const struct product product = {alpha, a,         b,       beta,         c,
                                    d,     workspace, streams, stream_count, "cusparseLtMatmul over several streams"};
    const struct plan_room *plan = plan_in(room);
    struct flyt_args_cusparseLtMatmul sent;
    struct flyt_lib_call call = {.row = &flyt_lib_row_cusparseLtMatmul, .arguments = &sent};
    int status = check(plan, &product);
    if (status != LIBRARY->success)
        return status;
    memset(&sent, 0, sizeof sent);
    begin(&call, handle);
    sent.digest = plan->digest;
    PUT(call, sent, plan, &product);
    return flyt_lib_finish(&call);
}

/* The plan is made again with what the search has found. What is 0 of the split is none, and 1 part no split. */
static int keep_found(struct plan_room *plan, const struct flyt_slt_selection *found)
{
    struct selection *selection = plan->selection;
    struct flyt_args_cusparseLtMatmulPlanInit sent;
    size_t bytes;
    const void *before = flyt_lib_recipe(plan->handle.id, &flyt_lib_kind_cusparselt_sltplan, &bytes);
    if (!before || bytes < sizeof sent)
        return LIBRARY->failed;
    selection->is = *found;
    selection->given |= 1u << FLYT_SLT_CONFIG_ID;
    if (found->values[FLYT_SLT_SPLIT_K] > 1)
        selection->given |= 1u << FLYT_SLT_SPLIT_K;
    if (found->values[FLYT_SLT_SPLIT_K_MODE] > 0)
        selection->given |= 1u << FLYT_SLT_SPLIT_K_MODE;
    if (found->values[FLYT_SLT_SPLIT_K_BUFFERS] > 0)
        selection->given |= 1u << FLYT_SLT_SPLIT_K_BUFFERS;
    selection->given &= found->known;
    memcpy(&sent, before, sizeof sent);
    put_selection(&sent, selection);
    plan->digest = digest_of(&sent);
    return flyt_lib_remake(plan->handle.id, &flyt_lib_kind_cusparselt_sltplan, &flyt_lib_row_cusparseLtMatmulPlanInit,
                           &sent, sizeof sent, NULL, 0)
               ? LIBRARY->success
               : LIBRARY->memory;
}

FLYT_LIB_ENTRY int cusparseLtMatmulSearch(const void *handle, void *room, const void *alpha, const void *a,
                                          const void *b, const void *beta, const void *c, void *d, void *workspace,
                                          void **streams, int32_t stream_count)
{
    const struct product product = {
        alpha, a, b, beta, c, d, workspace, streams, stream_count, "cusparseLtMatmulSearch over several streams"};
    const struct plan_room *plan = plan_in(room);
    struct flyt_args_cusparseLtMatmulSearch sent;
    struct flyt_lib_call call = {.row = &flyt_lib_row_cusparseLtMatmulSearch, .arguments = &sent};
    struct flyt_slt_selection found = {.known = 0};
    int status = check(plan, &product);
    if (status != LIBRARY->success)
        return status;
    memset(&sent, 0, sizeof sent);
    begin(&call, handle);
    PUT(call, sent, plan, &product);
    sent.chosen_bytes = flyt_lib_out(&call, &found, sizeof found, false);
    status = flyt_lib_finish(&call);
    return status == LIBRARY->success ? keep_found(room, &found) : status;
}

/* ---- versions and texts ---- */

FLYT_LIB_ENTRY int cusparseLtGetVersion(const void *handle, int *version)
{
    if (!handle_in(handle))
        return LIBRARY->handle;
    if (!version)
        return LIBRARY->invalid;
    *version = VERSION_MAJOR * 1000 + VERSION_MINOR * 100 + VERSION_PATCH;
    return LIBRARY->success;
}

FLYT_LIB_ENTRY int cusparseLtGetProperty(int type, int *value)
{
    static const int values[] = {VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH};
    if (type < 0 || type > 2 || !value)
        return LIBRARY->invalid;
    *value = values[type];
    return LIBRARY->success;
}

FLYT_LIB_ENTRY const char *cusparseLtGetErrorName(int status)
{
    return flyt_sparse_status_name(status);
}

FLYT_LIB_ENTRY const char *cusparseLtGetErrorString(int status)
{
    return flyt_sparse_status_text(status);
}
