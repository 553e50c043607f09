/* Variables of the program's environment that NVIDIA's libraries read, and that their server is told. No paths, and
 * nothing that writes files. */
#ifndef FLYT_LIBRARY_ENVIRONMENT_H
#define FLYT_LIBRARY_ENVIRONMENT_H

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { FLYT_LIB_VALUE_BYTES_MAX = 128 };

static const char *const flyt_lib_environment_names[] = {
    "CUBLAS_WORKSPACE_CONFIG",         /* cuBLAS: sizes and counts of workspaces */
    "CUBLAS_EMULATE_SINGLE_PRECISION", /* cuBLAS: 0 or 1 */
    "CUBLAS_EMULATION_STRATEGY",       /* cuBLAS: performant or eager */
    "NVIDIA_TF32_OVERRIDE",            /* all: 0 keeps TF32 off */
    /* NCCL: how it computes and what it says. Which networks it uses is the operator's (nccl_interfaces). */
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NTHREADS",
    "NCCL_BUFFSIZE",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_LAUNCH_MODE",
    "NCCL_CGA_CLUSTER_SIZE",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_NVLS_ENABLE",
    "NCCL_DEBUG",
    "NCCL_DEBUG_SUBSYS",
};
enum { FLYT_LIB_ENVIRONMENT_NAMES = sizeof flyt_lib_environment_names / sizeof flyt_lib_environment_names[0] };

/* Whether the value of `bytes` bytes is one that is told: words and numbers, no path. */
static inline bool flyt_lib_is_value(const char *value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!isalnum((unsigned char)value[i]) && !memchr(":_,.+-", value[i], 6))
            return false;
    return bytes > 0 && bytes <= FLYT_LIB_VALUE_BYTES_MAX;
}

#endif
