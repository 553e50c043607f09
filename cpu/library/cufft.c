/* What of cuFFT is by hand: the version, which the client answers, and calls that are two in one. */
#include <stddef.h>
#include "cpu/client/library/library_call.h"

extern const struct flyt_lib flyt_lib_cufft;

enum { VERSION_MAJOR = 12, VERSION_MINOR = 0, VERSION_PATCH = 0 };

FLYT_LIB_ENTRY int cufftGetVersion(int *version)
{
    if (!version)
        return flyt_lib_cufft.invalid;
    *version = VERSION_MAJOR * 1000 + VERSION_MINOR * 100 + VERSION_PATCH;
    return flyt_lib_cufft.success;
}

FLYT_LIB_ENTRY int cufftGetProperty(int type, int *value)
{
    static const int values[] = {VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH};
    if (type < 0 || type > 2 || !value)
        return flyt_lib_cufft.invalid;
    *value = values[type];
    return flyt_lib_cufft.success;
}

/* ---- plans that are made at once ---- */

FLYT_LIB_ENTRY int cufftCreate(int *handle);
FLYT_LIB_ENTRY int cufftDestroy(int plan);
FLYT_LIB_ENTRY int cufftMakePlan1d(int plan, int32_t nx, int type, int32_t batch, void *workSize);
FLYT_LIB_ENTRY int cufftMakePlan2d(int plan, int32_t nx, int32_t ny, int type, void *workSize);
FLYT_LIB_ENTRY int cufftMakePlan3d(int plan, int32_t nx, int32_t ny, int32_t nz, int type, void *workSize);
FLYT_LIB_ENTRY int cufftMakePlanMany(int plan, int32_t rank, const void *n, const void *inembed, int32_t istride,
                                     int32_t idist, const void *onembed, int32_t ostride, int32_t odist, int type,
                                     int32_t batch, void *workSize);
FLYT_LIB_ENTRY int cufftPlan1d(int *plan, int32_t nx, int type, int32_t batch);
FLYT_LIB_ENTRY int cufftPlan2d(int *plan, int32_t nx, int32_t ny, int type);
FLYT_LIB_ENTRY int cufftPlan3d(int *plan, int32_t nx, int32_t ny, int32_t nz, int type);
FLYT_LIB_ENTRY int cufftPlanMany(int *plan, int32_t rank, const void *n, const void *inembed, int32_t istride,
                                 int32_t idist, const void *onembed, int32_t ostride, int32_t odist, int type,
                                 int32_t batch);

/* What of a plan has been made; the program gets its handle, or there is none. */
static int give(int made, int status, int *ret_plan)
{
    if (status == flyt_lib_cufft.success)
        *ret_plan = made;
    else
        (void)cufftDestroy(made);
    return status;
}

#define PLAN(make, ...)                                                                                                \
    size_t work_bytes;                                                                                                 \
    int made;                                                                                                          \
    if (!plan)                                                                                                         \
        return flyt_lib_cufft.invalid;                                                                                 \
    int status = cufftCreate(&made);                                                                                   \
    return status == flyt_lib_cufft.success ? give(made, make(made, __VA_ARGS__, &work_bytes), plan) : status

int cufftPlan1d(int *plan, int32_t nx, int type, int32_t batch)
{
    PLAN(cufftMakePlan1d, nx, type, batch);
}

int cufftPlan2d(int *plan, int32_t nx, int32_t ny, int type)
{
    PLAN(cufftMakePlan2d, nx, ny, type);
}

int cufftPlan3d(int *plan, int32_t nx, int32_t ny, int32_t nz, int type)
{
    PLAN(cufftMakePlan3d, nx, ny, nz, type);
}

int cufftPlanMany(int *plan, int32_t rank, const void *n, const void *inembed, int32_t istride, int32_t idist,
                  const void *onembed, int32_t ostride, int32_t odist, int type, int32_t batch)
{
    PLAN(cufftMakePlanMany, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch);
}
