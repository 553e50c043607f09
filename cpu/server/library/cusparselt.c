/* cuSPARSELt's descriptors, which are made around each call, and its plans, which keep theirs. All of them live in
 * memory of the server's, as the library's do in a program's. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/session.h"
#include "cpu/server/library/library.h"
#include "flyt_lib_cusparselt.h"
#include "flyt_objects.h"
#include "rpc/library/slt_selection.h"

/* Calls a function of the library's by its prototype. */
#define CALL(name, types, ...)                                                                                         \
    (find(call, name) ? ((int(*) types)find(call, name))(__VA_ARGS__) : call->library->refused)

struct room {
    unsigned char bytes[FLYT_SLT_ROOM_BYTES] __attribute__((aligned(16)));
};

/* The library may look into the descriptors of a product's matrices as long as the product's own is used. */
struct matmul {
    struct room room, matrices[FLYT_SLT_MATRICES];
    unsigned matrix_count; /* of those that are made */
};

struct plan {
    struct room room, selection;
    struct matmul matmul;
    bool is_alpha_vector, is_beta_vector;
};

/* The attributes of a product by their numbers. */
static const struct attribute {
    unsigned at, bytes;
} attributes[] = {
#define ATTRIBUTE(field)                                                                                               \
    {                                                                                                                  \
        offsetof(struct flyt_value_sltmatmul, field), sizeof(((struct flyt_value_sltmatmul *)0)->field)                \
    }
    ATTRIBUTE(relu),
    ATTRIBUTE(relu_upper_bound),
    ATTRIBUTE(relu_threshold),
    ATTRIBUTE(gelu),
    ATTRIBUTE(gelu_scaling),
    ATTRIBUTE(alpha_vector),
    ATTRIBUTE(beta_vector),
    ATTRIBUTE(bias_stride),
    ATTRIBUTE(bias_pointer),
    ATTRIBUTE(sparse_pointer),
    ATTRIBUTE(a_scale_mode),
    ATTRIBUTE(b_scale_mode),
    ATTRIBUTE(c_scale_mode),
    ATTRIBUTE(d_scale_mode),
    ATTRIBUTE(d_out_scale_mode),
    ATTRIBUTE(a_scale_pointer),
    ATTRIBUTE(b_scale_pointer),
    ATTRIBUTE(c_scale_pointer),
    ATTRIBUTE(d_scale_pointer),
    ATTRIBUTE(d_out_scale_pointer),
};
enum { ATTRIBUTES = sizeof attributes / sizeof attributes[0], ALPHA_VECTOR = 5, BETA_VECTOR = 6 };

static void *find(const struct flyt_libcall *call, const char *name)
{
    return flyt_server_library_function(call->library, name);
}

/* ---- matrices ---- */

static int set_matrix(struct flyt_libcall *call, const void *handle, void *real, int attribute, const void *data,
                      size_t bytes)
{
    return CALL("cusparseLtMatDescSetAttribute", (const void *, void *, int, const void *, size_t), handle, real,
                attribute, data, bytes);
}

static void end_matrix(struct flyt_libcall *call, const struct room *real)
{
    (void)CALL("cusparseLtMatDescriptorDestroy", (const void *), real);
}

static int make_matrix(struct flyt_libcall *call, const void *handle, const struct flyt_value_sltmat *value,
                       struct room *real)
{
#define SHAPE int64_t, int64_t, int64_t, uint32_t, int, int
    int status =
        value->sparsity < 0
            ? CALL("cusparseLtDenseDescriptorInit", (const void *, void *, SHAPE), handle, real, value->rows,
                   value->cols, value->ld, value->alignment, value->type, value->order)
            : CALL("cusparseLtStructuredDescriptorInit", (const void *, void *, SHAPE, int), handle, real, value->rows,
                   value->cols, value->ld, value->alignment, value->type, value->order, value->sparsity);
    if (status)
        return status;
    if (value->batches != 1)
        status = set_matrix(call, handle, real, 0, &value->batches, sizeof value->batches);
    if (!status && value->stride)
        status = set_matrix(call, handle, real, 1, &value->stride, sizeof value->stride);
    if (status)
        end_matrix(call, real);
    return status;
}

int flyt_server_make_cusparselt_sltmat(struct flyt_libcall *call, const void *value, void **ret_real);
int flyt_server_make_cusparselt_sltmat(struct flyt_libcall *call, const void *value, void **ret_real)
{
    struct room *real = calloc(1, sizeof *real);
    int status = real ? make_matrix(call, call->objects[0]->real, value, real) : call->library->memory;
    if (status)
        free(real);
    else
        *ret_real = real;
    return status;
}

void flyt_server_end_cusparselt_sltmat(struct flyt_libcall *call, void *real);
void flyt_server_end_cusparselt_sltmat(struct flyt_libcall *call, void *real)
{
    end_matrix(call, real);
    free(real);
}

/* ---- products ---- */

static void end_matrices(struct flyt_libcall *call, struct matmul *real)
{
    while (real->matrix_count)
        end_matrix(call, &real->matrices[--real->matrix_count]);
}

static int make_matrices(struct flyt_libcall *call, const void *handle, const struct flyt_value_sltmatmul *value,
                         struct matmul *real)
{
    int status = call->library->success;
    for (unsigned i = 0; i < FLYT_SLT_MATRICES && !status; i++) {
        const struct flyt_value_sltmat matrix = {.rows = value->rows[i],
                                                 .cols = value->cols[i],
                                                 .ld = value->ld[i],
                                                 .stride = value->strides[i],
                                                 .alignment = value->alignments[i],
                                                 .type = value->types[i],
                                                 .order = value->orders[i],
                                                 .sparsity = value->sparsities[i],
                                                 .batches = value->batches[i]};
        status = make_matrix(call, handle, &matrix, &real->matrices[i]);
        if (!status)
            real->matrix_count++;
    }
    return status;
}

static int set_attributes(struct flyt_libcall *call, const void *handle, const struct flyt_value_sltmatmul *value,
                          struct matmul *real)
{
    int status = call->library->success;
    for (unsigned i = 0; i < ATTRIBUTES && !status; i++)
        if (value->given & 1u << i)
            status = CALL("cusparseLtMatmulDescSetAttribute", (const void *, void *, int, const void *, size_t), handle,
                          &real->room, (int)i, (const char *)value + attributes[i].at, attributes[i].bytes);
    return status;
}

static int make_matmul(struct flyt_libcall *call, const void *handle, const struct flyt_value_sltmatmul *value,
                       struct matmul *real)
{
    int status = make_matrices(call, handle, value, real);
    if (!status)
        status = CALL("cusparseLtMatmulDescriptorInit",
                      (const void *, void *, int, int, const void *, const void *, const void *, const void *, int),
                      handle, &real->room, value->op_a, value->op_b, &real->matrices[0], &real->matrices[1],
                      &real->matrices[2], &real->matrices[3], value->compute_type);
    if (!status)
        status = set_attributes(call, handle, value, real);
    if (status)
        end_matrices(call, real);
    return status;
}

int flyt_server_make_cusparselt_sltmatmul(struct flyt_libcall *call, const void *value, void **ret_real);
int flyt_server_make_cusparselt_sltmatmul(struct flyt_libcall *call, const void *value, void **ret_real)
{
    struct matmul *real = calloc(1, sizeof *real);
    int status = real ? make_matmul(call, call->objects[0]->real, value, real) : call->library->memory;
    if (status)
        free(real);
    else
        *ret_real = real;
    return status;
}

void flyt_server_end_cusparselt_sltmatmul(struct flyt_libcall *call, void *real);
void flyt_server_end_cusparselt_sltmatmul(struct flyt_libcall *call, void *real)
{
    end_matrices(call, real);
    free(real);
}

/* ---- whether the library takes them ---- */

extern const struct flyt_server_value flyt_server_value_cusparselt_sltmat, flyt_server_value_cusparselt_sltmatmul;

static int try_value(struct flyt_libcall *call, const void *value, const struct flyt_server_value *kind)
{
    const void *real = flyt_libcall_value(call, value, kind);
    return call->status ? call->status : real ? call->library->success : call->library->invalid;
}

int flyt_server_run_cusparseLtDenseDescriptorInit(struct flyt_libcall *call);
int flyt_server_run_cusparseLtDenseDescriptorInit(struct flyt_libcall *call)
{
    const struct flyt_args_cusparseLtDenseDescriptorInit *sent = (const void *)call->arguments;
    return try_value(call, &sent->matDescr, &flyt_server_value_cusparselt_sltmat);
}

int flyt_server_run_cusparseLtMatmulDescriptorInit(struct flyt_libcall *call);
int flyt_server_run_cusparseLtMatmulDescriptorInit(struct flyt_libcall *call)
{
    const struct flyt_args_cusparseLtMatmulDescriptorInit *sent = (const void *)call->arguments;
    return try_value(call, &sent->matmulDescr, &flyt_server_value_cusparselt_sltmatmul);
}

/* ---- algorithms ---- */

static int select_algorithm(struct flyt_libcall *call, const void *handle, void *real, const void *matmul, int alg)
{
    return CALL("cusparseLtMatmulAlgSelectionInit", (const void *, void *, const void *, int), handle, real, matmul,
                alg);
}

static void end_selection(struct flyt_libcall *call, const struct room *real)
{
    (void)CALL("cusparseLtMatmulAlgSelectionDestroy", (const void *), real);
}

static void tell_selection(struct flyt_libcall *call, const void *handle, const void *real,
                           struct flyt_slt_selection *ret)
{
    ret->known = 0;
    for (int i = 0; i < FLYT_SLT_ATTRIBUTES; i++)
        if (!CALL("cusparseLtMatmulAlgGetAttribute", (const void *, const void *, int, void *, size_t), handle, real, i,
                  &ret->values[i], sizeof ret->values[i]))
            ret->known |= 1u << i;
}

int flyt_server_run_cusparseLtMatmulAlgSelectionInit(struct flyt_libcall *call);
int flyt_server_run_cusparseLtMatmulAlgSelectionInit(struct flyt_libcall *call)
{
    const struct flyt_args_cusparseLtMatmulAlgSelectionInit *sent = (const void *)call->arguments;
    const void *handle = call->objects[0]->real;
    struct room selection = {{0}};
    struct flyt_slt_selection *chosen = flyt_libcall_out(call, sent->chosen_bytes, sizeof *chosen);
    int status = try_value(call, &sent->matmulDescr, &flyt_server_value_cusparselt_sltmatmul);
    if (status || !chosen)
        return status ? status : call->library->invalid;
    status = select_algorithm(call, handle, &selection, call->values[0].real, sent->alg);
    if (status)
        return status;
    tell_selection(call, handle, &selection, chosen);
    end_selection(call, &selection);
    return status;
}

/* ---- plans ---- */

/* The handle is the call's only object, and only an id in its arguments. */
CUresult flyt_server_resolve_cusparseLtMatmulPlanInit(struct flyt_libcall *call);
CUresult flyt_server_resolve_cusparseLtMatmulPlanInit(struct flyt_libcall *call)
{
    const struct flyt_args_cusparseLtMatmulPlanInit *sent = (const void *)call->arguments;
    struct flyt_libobject *handle = flyt_session_find_libobject(call->session, sent->handle);
    if (!handle || handle->library != call->library || strcmp(handle->kind->name, "slt"))
        return CUDA_ERROR_INVALID_HANDLE;
    if (handle->taken_count)
        return FLYT_CALL_RETRY;
    call->found = malloc(sizeof *call->found);
    if (!call->found)
        return CUDA_ERROR_OUT_OF_MEMORY;
    call->found[0] = handle;
    call->found_count = 1;
    return CUDA_SUCCESS;
}

static int set_selection(struct flyt_libcall *call, const void *handle,
                         const struct flyt_args_cusparseLtMatmulPlanInit *sent, struct plan *plan)
{
    const int32_t values[FLYT_SLT_ATTRIBUTES] = {[FLYT_SLT_CONFIG_ID] = sent->config_id,
                                                 [FLYT_SLT_SEARCH_ITERATIONS] = sent->search_iterations,
                                                 [FLYT_SLT_SPLIT_K] = sent->split_k,
                                                 [FLYT_SLT_SPLIT_K_MODE] = sent->split_k_mode,
                                                 [FLYT_SLT_SPLIT_K_BUFFERS] = sent->split_k_buffers};
    int status = call->library->success;
    for (int i = 0; i < FLYT_SLT_ATTRIBUTES && !status; i++)
        if (i != FLYT_SLT_CONFIG_MAX_ID && sent->given & 1u << i)
            status = CALL("cusparseLtMatmulAlgSetAttribute", (const void *, void *, int, const void *, size_t), handle,
                          &plan->selection, i, &values[i], sizeof values[i]);
    return status;
}

static int make_plan(struct flyt_libcall *call, const void *handle,
                     const struct flyt_args_cusparseLtMatmulPlanInit *sent, struct plan *plan)
{
    int status = make_matmul(call, handle, &sent->matmulDescr, &plan->matmul);
    if (status)
        return status;
    status = select_algorithm(call, handle, &plan->selection, &plan->matmul.room, sent->alg);
    if (!status) {
        status = set_selection(call, handle, sent, plan);
        if (!status)
            status = CALL("cusparseLtMatmulPlanInit", (const void *, void *, const void *, const void *), handle,
                          &plan->room, &plan->matmul.room, &plan->selection);
        if (status)
            end_selection(call, &plan->selection);
    }
    if (status)
        end_matrices(call, &plan->matmul);
    return status;
}

int flyt_server_run_cusparseLtMatmulPlanInit(struct flyt_libcall *call);
int flyt_server_run_cusparseLtMatmulPlanInit(struct flyt_libcall *call)
{
    const struct flyt_args_cusparseLtMatmulPlanInit *sent = (const void *)call->arguments;
    if (sent->matmulDescr.head.magic != flyt_server_value_cusparselt_sltmatmul.magic)
        return call->library->invalid;
    struct plan *plan = calloc(1, sizeof *plan);
    int status = plan ? make_plan(call, call->found[0]->real, sent, plan) : call->library->memory;
    if (status) {
        free(plan);
        return status;
    }
    plan->is_alpha_vector = sent->matmulDescr.alpha_vector && sent->matmulDescr.given & 1u << ALPHA_VECTOR;
    plan->is_beta_vector = sent->matmulDescr.beta_vector && sent->matmulDescr.given & 1u << BETA_VECTOR;
    call->made = plan;
    return status;
}

int flyt_server_run_cusparseLtMatmulPlanDestroy(struct flyt_libcall *call);
int flyt_server_run_cusparseLtMatmulPlanDestroy(struct flyt_libcall *call)
{
    struct plan *plan = call->objects[0]->real;
    int status = ((int (*)(const void *))call->function)(&plan->room);
    end_selection(call, &plan->selection);
    end_matrices(call, &plan->matmul);
    free(plan);
    return status;
}

/* ---- products that are computed ---- */

/* What both calls have. */
struct product {
    const struct flyt_lib_scalar *alpha, *beta;
    uint64_t a, b, c, d, workspace;
};

static void *at(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* Whether a scalar is one, or a vector on the device, the server knows of the plan, and no client says it. */
static int compute(struct flyt_libcall *call, const struct product *product)
{
    struct plan *plan = call->objects[1]->real;
    const void *alpha = flyt_libcall_scalar(call, product->alpha, sizeof(float), plan->is_alpha_vector ? 1 : 0, false);
    const void *beta = flyt_libcall_scalar(call, product->beta, sizeof(float), plan->is_beta_vector ? 1 : 0, false);
    CUstream streams[] = {call->cu_stream};
    if (call->status)
        return call->status;
#define ADDRESSES const void *, const void *, const void *, const void *, const void *, void *, void *
    return ((int (*)(const void *, void *, ADDRESSES, CUstream *, int32_t))call->function)(
        call->objects[0]->real, &plan->room, alpha, at(product->a), at(product->b), beta, at(product->c),
        at(product->d), at(product->workspace), streams, 1);
}

#define PRODUCT_OF(sent)                                                                                               \
    {                                                                                                                  \
        &sent->alpha, &sent->beta, sent->A, sent->B, sent->C, sent->D, sent->workspace                                 \
    }

int flyt_server_run_cusparseLtMatmul(struct flyt_libcall *call);
int flyt_server_run_cusparseLtMatmul(struct flyt_libcall *call)
{
    const struct flyt_args_cusparseLtMatmul *sent = (const void *)call->arguments;
    const struct product product = PRODUCT_OF(sent);
    return compute(call, &product);
}

int flyt_server_run_cusparseLtMatmulSearch(struct flyt_libcall *call);
int flyt_server_run_cusparseLtMatmulSearch(struct flyt_libcall *call)
{
    const struct flyt_args_cusparseLtMatmulSearch *sent = (const void *)call->arguments;
    const struct product product = PRODUCT_OF(sent);
    struct plan *plan = call->objects[1]->real;
    struct flyt_slt_selection *chosen = flyt_libcall_out(call, sent->chosen_bytes, sizeof *chosen);
    if (!chosen)
        return call->library->invalid;
    int status = compute(call, &product);
    if (!status)
        tell_selection(call, call->objects[0]->real, &plan->selection, chosen);
    return status;
}
