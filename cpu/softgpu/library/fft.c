/*
 * cuFFT over FFTW. A plan says the layouts; FFTW's own plans (one for each direction, in place or not) are made when
 * they are first executed. Handles are small numbers in one table of the process, as NVIDIA's are.
 *
 * A mutex covers the table and FFTW's planner, which is not made for threads; its execution is.
 */
#include <cuda.h>
#include <cufftXt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/library/provider.h"

#define FLYT_SOFT_CUFFT __attribute__((visibility("default"))) cufftResult

enum { RANK_MAX = 3, PLANS_MAX = 4096, FFTW_ESTIMATE = 1 << 6, FFTW_UNALIGNED = 1 << 1 };

/* fftw_iodim64 */
struct iodim {
    ptrdiff_t n, input_stride, output_stride;
};

/* One side of a transform, in numbers of its own type. */
struct side {
    bool is_basic; /* contiguous; what is real and transformed in place has room for the complex numbers */
    int64_t embed[RANK_MAX], stride, distance;
};

enum kind { COMPLEX, REAL_TO_COMPLEX, COMPLEX_TO_REAL };

struct plan {
    bool is_made;
    enum kind kind;
    bool is_double;
    int rank;
    int64_t n[RANK_MAX], batch_count;
    struct side input, output;
    CUstream stream;
    void *fftw[2][2]; /* by whether it is in place, and by whether it is inverse */
    int64_t properties[2];
    size_t work_bytes;               /* its work area's: room for the numbers of one transform of the batch */
    CUdeviceptr work_area, own_area; /* own_area: allocated by the plan; 0: none */
    bool is_given_area;              /* it allocates none */
};

static struct {
    pthread_mutex_t mutex;
    struct plan *plans[PLANS_MAX];
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct plan *plan_find(cufftHandle handle)
{
    struct plan *plan;

    if (handle < 1 || handle >= PLANS_MAX)
        return NULL;
    pthread_mutex_lock(&table.mutex);
    plan = table.plans[handle];
    pthread_mutex_unlock(&table.mutex);
    return plan;
}

static struct plan *plan_find_made(cufftHandle handle)
{
    struct plan *plan = plan_find(handle);

    return plan && plan->is_made ? plan : NULL;
}

FLYT_SOFT_CUFFT cufftCreate(cufftHandle *handle)
{
    struct plan *plan;
    CUcontext ctx = NULL;
    int free_one = 0;

    if (!handle)
        return CUFFT_INVALID_VALUE;
    if (cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
        return CUFFT_SETUP_FAILED;
    plan = calloc(1, sizeof(*plan));
    if (!plan)
        return CUFFT_ALLOC_FAILED;
    pthread_mutex_lock(&table.mutex);
    for (int i = 1; i < PLANS_MAX && !free_one; i++)
        free_one = table.plans[i] ? 0 : i;
    if (free_one)
        table.plans[free_one] = plan;
    pthread_mutex_unlock(&table.mutex);
    if (!free_one) {
        free(plan);
        return CUFFT_ALLOC_FAILED;
    }
    *handle = free_one;
    return CUFFT_SUCCESS;
}

static void free_area(struct plan *plan)
{
    if (plan->own_area)
        (void)cuMemFree(plan->own_area);
    plan->own_area = 0;
}

/* Blocks until its work is done. */
FLYT_SOFT_CUFFT cufftDestroy(cufftHandle handle)
{
    struct plan *plan = plan_find(handle);

    if (!plan)
        return CUFFT_INVALID_PLAN;
    (void)cuCtxSynchronize();
    free_area(plan);
    pthread_mutex_lock(&table.mutex);
    table.plans[handle] = NULL;
    for (int i = 0; i < 4; i++)
        if (plan->fftw[i / 2][i % 2])
            ((void (*)(void *))flyt_soft_fftw(plan->is_double, "destroy_plan"))(plan->fftw[i / 2][i % 2]);
    pthread_mutex_unlock(&table.mutex);
    free(plan);
    return CUFFT_SUCCESS;
}

/* ---- layouts ---- */

/* Numbers along a dimension on one side. */
static int64_t side_length(const struct plan *plan, bool is_output, int dimension)
{
    bool is_halved = plan->kind == (is_output ? REAL_TO_COMPLEX : COMPLEX_TO_REAL) && dimension == plan->rank - 1;

    return is_halved ? plan->n[dimension] / 2 + 1 : plan->n[dimension];
}

/* The strides of each dimension on one side, and that of the batch. */
static void side_strides(const struct plan *plan, bool is_output, bool is_in_place, int64_t ret_strides[],
                         int64_t *ret_distance)
{
    const struct side *side = is_output ? &plan->output : &plan->input;
    bool is_real = plan->kind == (is_output ? COMPLEX_TO_REAL : REAL_TO_COMPLEX);
    int64_t stride = side->is_basic ? 1 : side->stride;

    for (int i = plan->rank - 1; i >= 0; i--) {
        int64_t length = side->is_basic ? side_length(plan, is_output, i) : side->embed[i];

        if (side->is_basic && is_real && is_in_place && i == plan->rank - 1)
            length = 2 * (plan->n[i] / 2 + 1);
        ret_strides[i] = stride;
        stride *= length;
    }
    *ret_distance = side->is_basic ? stride : side->distance;
}

/* Bytes from the first number of one side to its last. */
static uint64_t side_bytes(const struct plan *plan, bool is_output, bool is_in_place)
{
    bool is_real = plan->kind == (is_output ? COMPLEX_TO_REAL : REAL_TO_COMPLEX);
    int64_t strides[RANK_MAX], distance, last;

    side_strides(plan, is_output, is_in_place, strides, &distance);
    last = (plan->batch_count - 1) * distance;
    for (int i = 0; i < plan->rank; i++)
        last += (side_length(plan, is_output, i) - 1) * strides[i];
    return (uint64_t)(last + 1) * (plan->is_double ? 8 : 4) * (is_real ? 1 : 2);
}

static bool type_split(cufftType type, enum kind *ret_kind, bool *ret_is_double)
{
    switch (type) {
    case CUFFT_C2C:
    case CUFFT_Z2Z:
        *ret_kind = COMPLEX;
        break;
    case CUFFT_R2C:
    case CUFFT_D2Z:
        *ret_kind = REAL_TO_COMPLEX;
        break;
    case CUFFT_C2R:
    case CUFFT_Z2D:
        *ret_kind = COMPLEX_TO_REAL;
        break;
    default:
        return false;
    }
    *ret_is_double = type == CUFFT_Z2Z || type == CUFFT_D2Z || type == CUFFT_Z2D;
    return true;
}

static void side_set(struct side *side, int rank, const long long *embed, long long stride, long long distance)
{
    side->is_basic = !embed;
    side->stride = stride;
    side->distance = distance;
    for (int i = 0; i < rank && embed; i++)
        side->embed[i] = embed[i];
}

/* Fills in a plan; a layout that is missing on one side is missing on both. */
static cufftResult describe(struct plan *plan, int rank, const long long *n, const long long *inembed,
                            long long istride, long long idist, const long long *onembed, long long ostride,
                            long long odist, cufftType type, long long batch)
{
    bool has_layout = inembed && onembed;

    if (rank < 1 || rank > RANK_MAX || !n)
        return CUFFT_INVALID_VALUE;
    if (!type_split(type, &plan->kind, &plan->is_double))
        return CUFFT_INVALID_TYPE;
    if (batch < 1)
        return CUFFT_INVALID_SIZE;
    for (int i = 0; i < rank; i++)
        if (n[i] < 1 || (has_layout && i > 0 && (inembed[i] < 1 || onembed[i] < 1)))
            return CUFFT_INVALID_SIZE;
    if (has_layout && (istride < 1 || ostride < 1 || idist < 0 || odist < 0))
        return CUFFT_INVALID_VALUE;
    plan->rank = rank;
    plan->batch_count = batch;
    for (int i = 0; i < rank; i++)
        plan->n[i] = n[i];
    side_set(&plan->input, rank, has_layout ? inembed : NULL, istride, idist);
    side_set(&plan->output, rank, has_layout ? onembed : NULL, ostride, odist);
    plan->work_bytes = plan->is_double ? 16 : 8;
    for (int i = 0; i < rank; i++)
        plan->work_bytes *= (size_t)n[i];
    return CUFFT_SUCCESS;
}

/* ---- plans ---- */

FLYT_SOFT_CUFFT cufftMakePlanMany64(cufftHandle handle, int rank, long long int *n, long long int *inembed,
                                    long long int istride, long long int idist, long long int *onembed,
                                    long long int ostride, long long int odist, cufftType type, long long int batch,
                                    size_t *workSize)
{
    struct plan *plan = plan_find(handle), made;
    cufftResult r;

    if (!plan || plan->is_made)
        return CUFFT_INVALID_PLAN;
    if (!workSize)
        return CUFFT_INVALID_VALUE;
    made = *plan;
    r = describe(&made, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch);
    if (r != CUFFT_SUCCESS)
        return r;
    if (!flyt_soft_fftw(made.is_double, "destroy_plan"))
        return CUFFT_NOT_SUPPORTED;
    if (!made.is_given_area && cuMemAlloc(&made.own_area, made.work_bytes) != CUDA_SUCCESS)
        return CUFFT_ALLOC_FAILED;
    made.work_area = made.own_area;
    made.is_made = true;
    *plan = made;
    *workSize = made.work_bytes;
    return CUFFT_SUCCESS;
}

/* Widens an array of `rank` numbers; NULL stays NULL, and so does what describe refuses. */
static long long *widen(long long to[], const int *from, int rank)
{
    for (int i = 0; i < rank && i < RANK_MAX && from; i++)
        to[i] = from[i];
    return from ? to : NULL;
}

FLYT_SOFT_CUFFT cufftMakePlanMany(cufftHandle handle, int rank, int *n, int *inembed, int istride, int idist,
                                  int *onembed, int ostride, int odist, cufftType type, int batch, size_t *workSize)
{
    long long wide[3][RANK_MAX];

    return cufftMakePlanMany64(handle, rank, widen(wide[0], n, rank), widen(wide[1], inembed, rank), istride, idist,
                               widen(wide[2], onembed, rank), ostride, odist, type, batch, workSize);
}

/* The three shorter forms of a function that takes rank and n. */
#define SHORT_FORMS(name_, first_, first_argument_, many_)                                                             \
    FLYT_SOFT_CUFFT name_##1d(first_, int nx, cufftType type, int batch, size_t *workSize)                             \
    {                                                                                                                  \
        return many_(first_argument_, 1, (int[]){nx}, NULL, 1, 0, NULL, 1, 0, type, batch, workSize);                  \
    }                                                                                                                  \
    FLYT_SOFT_CUFFT name_##2d(first_, int nx, int ny, cufftType type, size_t *workSize)                                \
    {                                                                                                                  \
        return many_(first_argument_, 2, (int[]){nx, ny}, NULL, 1, 0, NULL, 1, 0, type, 1, workSize);                  \
    }                                                                                                                  \
    FLYT_SOFT_CUFFT name_##3d(first_, int nx, int ny, int nz, cufftType type, size_t *workSize)                        \
    {                                                                                                                  \
        return many_(first_argument_, 3, (int[]){nx, ny, nz}, NULL, 1, 0, NULL, 1, 0, type, 1, workSize);              \
    }
SHORT_FORMS(cufftMakePlan, cufftHandle handle, handle, cufftMakePlanMany)

FLYT_SOFT_CUFFT cufftPlanMany(cufftHandle *handle, int rank, int *n, int *inembed, int istride, int idist, int *onembed,
                              int ostride, int odist, cufftType type, int batch)
{
    size_t work_bytes;
    cufftHandle made;
    cufftResult r;

    if (!handle)
        return CUFFT_INVALID_VALUE;
    r = cufftCreate(&made);
    if (r != CUFFT_SUCCESS)
        return r;
    r = cufftMakePlanMany(made, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch, &work_bytes);
    if (r == CUFFT_SUCCESS)
        *handle = made;
    else
        (void)cufftDestroy(made);
    return r;
}

FLYT_SOFT_CUFFT cufftPlan1d(cufftHandle *handle, int nx, cufftType type, int batch)
{
    return cufftPlanMany(handle, 1, (int[]){nx}, NULL, 1, 0, NULL, 1, 0, type, batch);
}

FLYT_SOFT_CUFFT cufftPlan2d(cufftHandle *handle, int nx, int ny, cufftType type)
{
    return cufftPlanMany(handle, 2, (int[]){nx, ny}, NULL, 1, 0, NULL, 1, 0, type, 1);
}

FLYT_SOFT_CUFFT cufftPlan3d(cufftHandle *handle, int nx, int ny, int nz, cufftType type)
{
    return cufftPlanMany(handle, 3, (int[]){nx, ny, nz}, NULL, 1, 0, NULL, 1, 0, type, 1);
}

/* The type that three types of numbers mean; 0: none that is computed. */
static cufftType type_of(cudaDataType input, cudaDataType output, cudaDataType execution)
{
    static const struct {
        cudaDataType input, output, execution;
        cufftType type;
    } rows[] = {
        {CUDA_C_32F, CUDA_C_32F, CUDA_C_32F, CUFFT_C2C}, {CUDA_R_32F, CUDA_C_32F, CUDA_C_32F, CUFFT_R2C},
        {CUDA_C_32F, CUDA_R_32F, CUDA_C_32F, CUFFT_C2R}, {CUDA_C_64F, CUDA_C_64F, CUDA_C_64F, CUFFT_Z2Z},
        {CUDA_R_64F, CUDA_C_64F, CUDA_C_64F, CUFFT_D2Z}, {CUDA_C_64F, CUDA_R_64F, CUDA_C_64F, CUFFT_Z2D},
    };

    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].input == input && rows[i].output == output && rows[i].execution == execution)
            return rows[i].type;
    return (cufftType)0;
}

FLYT_SOFT_CUFFT cufftXtMakePlanMany(cufftHandle handle, int rank, long long int *n, long long int *inembed,
                                    long long int istride, long long int idist, cudaDataType inputtype,
                                    long long int *onembed, long long int ostride, long long int odist,
                                    cudaDataType outputtype, long long int batch, size_t *workSize,
                                    cudaDataType executiontype)
{
    cufftType type = type_of(inputtype, outputtype, executiontype);

    return type ? cufftMakePlanMany64(handle, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch,
                                      workSize)
                : CUFFT_NOT_SUPPORTED;
}

/* ---- sizes ---- */

static cufftResult size_many(int rank, const long long *n, const long long *inembed, long long istride, long long idist,
                             const long long *onembed, long long ostride, long long odist, cufftType type,
                             long long batch, size_t *ret_bytes)
{
    struct plan plan = {0};
    cufftResult r;

    if (!ret_bytes)
        return CUFFT_INVALID_VALUE;
    r = describe(&plan, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch);
    if (r == CUFFT_SUCCESS)
        *ret_bytes = plan.work_bytes;
    return r;
}

FLYT_SOFT_CUFFT cufftEstimateMany(int rank, int *n, int *inembed, int istride, int idist, int *onembed, int ostride,
                                  int odist, cufftType type, int batch, size_t *workSize)
{
    long long wide[3][RANK_MAX];

    return size_many(rank, widen(wide[0], n, rank), widen(wide[1], inembed, rank), istride, idist,
                     widen(wide[2], onembed, rank), ostride, odist, type, batch, workSize);
}

FLYT_SOFT_CUFFT cufftEstimate1d(int nx, cufftType type, int batch, size_t *workSize)
{
    return cufftEstimateMany(1, (int[]){nx}, NULL, 1, 0, NULL, 1, 0, type, batch, workSize);
}

FLYT_SOFT_CUFFT cufftEstimate2d(int nx, int ny, cufftType type, size_t *workSize)
{
    return cufftEstimateMany(2, (int[]){nx, ny}, NULL, 1, 0, NULL, 1, 0, type, 1, workSize);
}

FLYT_SOFT_CUFFT cufftEstimate3d(int nx, int ny, int nz, cufftType type, size_t *workSize)
{
    return cufftEstimateMany(3, (int[]){nx, ny, nz}, NULL, 1, 0, NULL, 1, 0, type, 1, workSize);
}

FLYT_SOFT_CUFFT cufftGetSizeMany64(cufftHandle handle, int rank, long long int *n, long long int *inembed,
                                   long long int istride, long long int idist, long long int *onembed,
                                   long long int ostride, long long int odist, cufftType type, long long int batch,
                                   size_t *workSize)
{
    return plan_find(handle)
               ? size_many(rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch, workSize)
               : CUFFT_INVALID_PLAN;
}

FLYT_SOFT_CUFFT cufftGetSizeMany(cufftHandle handle, int rank, int *n, int *inembed, int istride, int idist,
                                 int *onembed, int ostride, int odist, cufftType type, int batch, size_t *workArea)
{
    return plan_find(handle)
               ? cufftEstimateMany(rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch, workArea)
               : CUFFT_INVALID_PLAN;
}
SHORT_FORMS(cufftGetSize, cufftHandle handle, handle, cufftGetSizeMany)

FLYT_SOFT_CUFFT cufftXtGetSizeMany(cufftHandle handle, int rank, long long int *n, long long int *inembed,
                                   long long int istride, long long int idist, cudaDataType inputtype,
                                   long long int *onembed, long long int ostride, long long int odist,
                                   cudaDataType outputtype, long long int batch, size_t *workSize,
                                   cudaDataType executiontype)
{
    cufftType type = type_of(inputtype, outputtype, executiontype);

    return type ? cufftGetSizeMany64(handle, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch,
                                     workSize)
                : CUFFT_NOT_SUPPORTED;
}

FLYT_SOFT_CUFFT cufftGetSize(cufftHandle handle, size_t *workSize)
{
    const struct plan *plan = plan_find_made(handle);

    if (!plan)
        return CUFFT_INVALID_PLAN;
    if (!workSize)
        return CUFFT_INVALID_VALUE;
    *workSize = plan->work_bytes;
    return CUFFT_SUCCESS;
}

/* ---- settings ---- */

FLYT_SOFT_CUFFT cufftSetStream(cufftHandle handle, cudaStream_t stream)
{
    struct plan *plan = plan_find(handle);

    if (!plan)
        return CUFFT_INVALID_PLAN;
    plan->stream = stream;
    return CUFFT_SUCCESS;
}

FLYT_SOFT_CUFFT cufftSetWorkArea(cufftHandle handle, void *workArea)
{
    struct plan *plan = plan_find(handle);

    if (!plan)
        return CUFFT_INVALID_PLAN;
    free_area(plan);
    plan->work_area = (CUdeviceptr)(uintptr_t)workArea;
    return CUFFT_SUCCESS;
}

FLYT_SOFT_CUFFT cufftSetAutoAllocation(cufftHandle handle, int autoAllocate)
{
    struct plan *plan = plan_find(handle);

    if (!plan)
        return CUFFT_INVALID_PLAN;
    plan->is_given_area = !autoAllocate;
    return CUFFT_SUCCESS;
}

FLYT_SOFT_CUFFT cufftXtSetWorkAreaPolicy(cufftHandle handle, cufftXtWorkAreaPolicy policy, size_t *workSize)
{
    return plan_find(handle) ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN;
}

static int64_t *property_find(cufftHandle handle, cufftProperty property)
{
    struct plan *plan = plan_find(handle);

    if (property != NVFFT_PLAN_PROPERTY_INT64_PATIENT_JIT && property != NVFFT_PLAN_PROPERTY_INT64_MAX_NUM_HOST_THREADS)
        return NULL;
    return plan ? &plan->properties[property - 1] : NULL;
}

FLYT_SOFT_CUFFT cufftSetPlanPropertyInt64(cufftHandle handle, cufftProperty property, const long long int inputValueInt)
{
    int64_t *value = property_find(handle, property);

    if (!value)
        return plan_find(handle) ? CUFFT_NOT_SUPPORTED : CUFFT_INVALID_PLAN;
    *value = inputValueInt;
    return CUFFT_SUCCESS;
}

FLYT_SOFT_CUFFT cufftGetPlanPropertyInt64(cufftHandle handle, cufftProperty property, long long int *returnPtrValue)
{
    const int64_t *value = property_find(handle, property);

    if (!value)
        return plan_find(handle) ? CUFFT_NOT_SUPPORTED : CUFFT_INVALID_PLAN;
    if (!returnPtrValue)
        return CUFFT_INVALID_VALUE;
    *returnPtrValue = *value;
    return CUFFT_SUCCESS;
}

FLYT_SOFT_CUFFT cufftResetPlanProperty(cufftHandle handle, cufftProperty property)
{
    return cufftSetPlanPropertyInt64(handle, property, 0);
}

FLYT_SOFT_CUFFT cufftGetVersion(int *version)
{
    if (!version)
        return CUFFT_INVALID_VALUE;
    *version = CUFFT_VERSION;
    return CUFFT_SUCCESS;
}

FLYT_SOFT_CUFFT cufftGetProperty(libraryPropertyType type, int *value)
{
    static const int values[] = {CUFFT_VER_MAJOR, CUFFT_VER_MINOR, CUFFT_VER_PATCH};

    if (!value || (unsigned)type > PATCH_LEVEL)
        return CUFFT_INVALID_VALUE;
    *value = values[type];
    return CUFFT_SUCCESS;
}

/* ---- execution ---- */

/* FFTW's plan for a transform like this one. NULL: memory is out, or it plans no such thing. */
static void *fftw_plan_locked(struct plan *plan, void *input, void *output, int direction)
{
    void **fftw = &plan->fftw[input == output][direction == CUFFT_INVERSE];
    int64_t input_strides[RANK_MAX], output_strides[RANK_MAX], input_distance, output_distance;
    struct iodim dims[RANK_MAX], batch;
    const unsigned flags = FFTW_ESTIMATE | FFTW_UNALIGNED; /* so that any other memory will do */
    flyt_soft_fn make;

    if (*fftw)
        return *fftw;
    side_strides(plan, false, input == output, input_strides, &input_distance);
    side_strides(plan, true, input == output, output_strides, &output_distance);
    for (int i = 0; i < plan->rank; i++)
        dims[i] = (struct iodim){plan->n[i], input_strides[i], output_strides[i]};
    batch = (struct iodim){plan->batch_count, input_distance, output_distance};
    make = flyt_soft_fftw(plan->is_double, plan->kind == COMPLEX           ? "plan_guru64_dft"
                                           : plan->kind == REAL_TO_COMPLEX ? "plan_guru64_dft_r2c"
                                                                           : "plan_guru64_dft_c2r");
    if (!make)
        return NULL;
    if (plan->kind == COMPLEX)
        *fftw = ((void *(*)(int, const struct iodim *, int, const struct iodim *, void *, void *, int, unsigned))make)(
            plan->rank, dims, 1, &batch, input, output, direction, flags);
    else
        *fftw = ((void *(*)(int, const struct iodim *, int, const struct iodim *, void *, void *, unsigned))make)(
            plan->rank, dims, 1, &batch, input, output, flags);
    return *fftw;
}

struct transform {
    void (*execute)(const void *fftw, void *input, void *output);
    void *fftw, *input, *output, *work;
    uint64_t input_bytes, output_bytes, work_bytes;
};

static CUresult run(void *record)
{
    const struct transform *call = record;

    if (!flyt_soft_work_reaches(call->input, call->input_bytes) ||
        !flyt_soft_work_reaches(call->work, call->work_bytes) ||
        !flyt_soft_work_reaches(call->output, call->output_bytes))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    memset(call->work, 0x55, call->work_bytes); /* nothing of the program's is to be there */
    call->execute(call->fftw, call->input, call->output);
    return CUDA_SUCCESS;
}

static cufftResult execute(struct plan *plan, void *input, void *output, int direction)
{
    static const char *const names[] = {"execute_dft", "execute_dft_r2c", "execute_dft_c2r"};
    struct transform call = {.input = input, .output = output};

    if (!input || !output)
        return CUFFT_INVALID_VALUE;
    if (!plan->work_area)
        return CUFFT_NO_WORKSPACE;
    if (plan->kind != COMPLEX)
        direction = CUFFT_FORWARD;
    else if (direction != CUFFT_FORWARD && direction != CUFFT_INVERSE)
        return CUFFT_INVALID_VALUE;
    pthread_mutex_lock(&table.mutex);
    call.fftw = fftw_plan_locked(plan, input, output, direction);
    pthread_mutex_unlock(&table.mutex);
    call.execute = (void (*)(const void *, void *, void *))flyt_soft_fftw(plan->is_double, names[plan->kind]);
    if (!call.fftw || !call.execute)
        return CUFFT_NOT_SUPPORTED;
    call.work = (void *)(uintptr_t)plan->work_area;
    call.work_bytes = plan->work_bytes;
    call.input_bytes = side_bytes(plan, false, input == output);
    call.output_bytes = side_bytes(plan, true, input == output);
    return flyt_soft_work_push(plan->stream, run, NULL, &call, sizeof(call)) == CUDA_SUCCESS ? CUFFT_SUCCESS
                                                                                             : CUFFT_EXEC_FAILED;
}

FLYT_SOFT_CUFFT cufftXtExec(cufftHandle handle, void *input, void *output, int direction)
{
    struct plan *plan = plan_find_made(handle);

    return plan ? execute(plan, input, output, direction) : CUFFT_INVALID_PLAN;
}

/* Through a function of another type than the plan's: nothing is done. */
static cufftResult execute_as(cufftHandle handle, enum kind kind, bool is_double, void *input, void *output,
                              int direction)
{
    struct plan *plan = plan_find_made(handle);

    if (!plan)
        return CUFFT_INVALID_PLAN;
    return plan->kind == kind && plan->is_double == is_double ? execute(plan, input, output, direction)
                                                              : CUFFT_INVALID_TYPE;
}

FLYT_SOFT_CUFFT cufftExecC2C(cufftHandle handle, cufftComplex *idata, cufftComplex *odata, int direction)
{
    return execute_as(handle, COMPLEX, false, idata, odata, direction);
}

FLYT_SOFT_CUFFT cufftExecZ2Z(cufftHandle handle, cufftDoubleComplex *idata, cufftDoubleComplex *odata, int direction)
{
    return execute_as(handle, COMPLEX, true, idata, odata, direction);
}

FLYT_SOFT_CUFFT cufftExecR2C(cufftHandle handle, cufftReal *idata, cufftComplex *odata)
{
    return execute_as(handle, REAL_TO_COMPLEX, false, idata, odata, CUFFT_FORWARD);
}

FLYT_SOFT_CUFFT cufftExecD2Z(cufftHandle handle, cufftDoubleReal *idata, cufftDoubleComplex *odata)
{
    return execute_as(handle, REAL_TO_COMPLEX, true, idata, odata, CUFFT_FORWARD);
}

FLYT_SOFT_CUFFT cufftExecC2R(cufftHandle handle, cufftComplex *idata, cufftReal *odata)
{
    return execute_as(handle, COMPLEX_TO_REAL, false, idata, odata, CUFFT_INVERSE);
}

FLYT_SOFT_CUFFT cufftExecZ2D(cufftHandle handle, cufftDoubleComplex *idata, cufftDoubleReal *odata)
{
    return execute_as(handle, COMPLEX_TO_REAL, true, idata, odata, CUFFT_INVERSE);
}
