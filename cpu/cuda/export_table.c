/*
 * Private tables of NVIDIA's driver, which are never served. Who asks for them is told what that means, once: the
 * runtime that nvcc links into programs by default cannot work without them, NVIDIA's compilers and NVML can.
 */
#include "cpu/cuda/driver.h"
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include "rpc/base/log.h"

static bool begins_with_one_of(const char *name, const char *const *beginnings)
{
    while (*beginnings && strncmp(name, *beginnings, strlen(*beginnings)) != 0)
        beginnings++;
    return *beginnings != NULL;
}

/* The compilers ask for a cache of the driver's, and NVML for what the driver knows of programs: both go on without it.
 */
static bool goes_on_without(const char *name)
{
    static const char *const beginnings[] = {
        "libnvrtc", "libnvJitLink", "libnvptxcompiler", "libnvfatbin.", "libnvvm.", "libnvidia-ml.", NULL};
    return begins_with_one_of(name, beginnings);
}

/* Each has a runtime of its own inside, which no compiler's option of the program's changes. */
static bool is_nvidia_library(const char *name)
{
    static const char *const beginnings[] = {
        "libcublas", "libcudnn",  "libcufft",  "libcurand", "libcusolver", "libcusparse", "libcutensor", "libnccl",
        "libnpp",    "libnvjpeg", "libnvblas", "libnvcv",   "libnvinfer",  "libcufile",   "libnvshmem",  NULL};
    return begins_with_one_of(name, beginnings);
}

/* They look into the driver, which is in another process: their calls fail, and who traces with them has what the
 * program does on the CPU. */
static bool is_profiler(const char *name)
{
    static const char *const beginnings[] = {"libcupti", "libnvperf", "libcheckpoint", "libpcsamplingutil", NULL};
    return begins_with_one_of(name, beginnings);
}

/* Whether it is linked to the shared runtime: then the runtime inside of it is not what asks. */
static bool needs_shared_runtime(const struct link_map *object)
{
    const char *strings = NULL;
    for (const ElfW(Dyn) *one = object->l_ld; one && one->d_tag != DT_NULL; one++)
        if (one->d_tag == DT_STRTAB)
            strings = (const char *)one->d_un.d_ptr; /* an address: the loader has relocated it */
    for (const ElfW(Dyn) *one = object->l_ld; strings && one->d_tag != DT_NULL; one++)
        if (one->d_tag == DT_NEEDED && strncmp(strings + one->d_un.d_val, "libcudart.so", 12) == 0)
            return true;
    return false;
}

/* Whether the object, known by where it is loaded, has not asked before; of more than fit nothing is said. */
static bool is_new(const void *base)
{
    static struct {
        pthread_mutex_t mutex;
        const void *bases[64];
        unsigned count;
    } known = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    bool is_known = false;
    pthread_mutex_lock(&known.mutex);
    for (unsigned i = 0; i < known.count && !is_known; i++)
        is_known = known.bases[i] == base;
    bool is_noted = !is_known && known.count < sizeof known.bases / sizeof known.bases[0];
    if (is_noted)
        known.bases[known.count++] = base;
    pthread_mutex_unlock(&known.mutex);
    return is_noted;
}

/* What the object that holds an address of code hears. */
static void explain(const void *caller)
{
    Dl_info info;
    struct link_map *object = NULL;
    bool is_found = dladdr1(caller, &info, (void **)&object, RTLD_DL_LINKMAP) != 0 && info.dli_fname && object;
    const char *slash = is_found ? strrchr(info.dli_fname, '/') : NULL;
    const char *name = slash ? slash + 1 : is_found ? info.dli_fname : "this program";
    if (!is_new(is_found ? info.dli_fbase : NULL) || goes_on_without(name))
        return;
    if (is_profiler(name))
        flyt_warn(
            "libcuda: %s cannot look at a GPU from here: its calls fail, and profilers show what the program does on "
            "the CPU alone",
            name);
    else if (is_nvidia_library(name))
        flyt_warn("libcuda: %s has a CUDA runtime of its own inside and is not forwarded: its calls fail", name);
    else if (!is_found || !needs_shared_runtime(object))
        flyt_warn("libcuda: %s embeds NVIDIA's static CUDA runtime, which cannot be forwarded: link it again with nvcc "
                  "-cudart shared",
                  name);
}

CUresult CUDAAPI cuGetExportTable(const void **ret_table, const CUuuid *table_id)
{
    if (!ret_table || !table_id)
        return CUDA_ERROR_INVALID_VALUE;
    explain(__builtin_return_address(0));
    return CUDA_ERROR_NOT_SUPPORTED;
}
