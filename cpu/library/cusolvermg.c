/*
 * libcusolverMg.so.12: cuSOLVER over several GPUs, which NVIDIA's own does by a CUDA runtime inside of it and copies
 * between GPUs that it finds there. Every function that cusolverMg.h declares says its name once and that it is not
 * supported. What NVIDIA's library exports beside them is called by nothing but itself.
 *
 * No argument is looked at, so that the functions need no prototypes of their own.
 */
#include "cpu/client/core/client.h"

enum { NOT_SUPPORTED = 9 }; /* CUSOLVER_STATUS_NOT_SUPPORTED */

#define REFUSED(name)                                                                                                  \
    FLYT_API int name(void);                                                                                           \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        flyt_not_supported(#name);                                                                                     \
        return NOT_SUPPORTED;                                                                                          \
    }

REFUSED(cusolverMgCreate)
REFUSED(cusolverMgDestroy)
REFUSED(cusolverMgDeviceSelect)
REFUSED(cusolverMgCreateDeviceGrid)
REFUSED(cusolverMgDestroyGrid)
REFUSED(cusolverMgCreateMatrixDesc)
REFUSED(cusolverMgDestroyMatrixDesc)
REFUSED(cusolverMgSyevd_bufferSize)
REFUSED(cusolverMgSyevd)
REFUSED(cusolverMgGetrf_bufferSize)
REFUSED(cusolverMgGetrf)
REFUSED(cusolverMgGetrs_bufferSize)
REFUSED(cusolverMgGetrs)
REFUSED(cusolverMgPotrf_bufferSize)
REFUSED(cusolverMgPotrf)
REFUSED(cusolverMgPotrs_bufferSize)
REFUSED(cusolverMgPotrs)
REFUSED(cusolverMgPotri_bufferSize)
REFUSED(cusolverMgPotri)
