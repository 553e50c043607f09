#include "cpu/server/core/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Exported by Flyt's own libcuda.so.1, which must not be taken for a driver: calls would go round in a circle. */
static const char client_marker[] = "flyt_client_marker";

/*
 * The exported name behind one of cuda.h's, where that is a macro: then the function is of the type that the header
 * declares. cuGetProcAddress gives the newest function of a name, which may be of another type: that of
 * cuCtxSynchronize takes a context since CUDA 13.0, and the header has it under a name of its own.
 */
#define SYMBOL(function) TEXT_OF(function)
#define TEXT_OF(text)    #text

/* A file in ../lib of this program's folder, in its own, or in ../lib/flyt (an installation). */
static void *open_beside(const char *name, char *path, size_t path_bytes)
{
    static const char *const folders[] = {"../lib", ".", "../lib/flyt"};
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return NULL;
    self[length] = 0;
    *strrchr(self, '/') = 0;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        if ((size_t)snprintf(path, path_bytes, "%s/%s/%s", self, folders[i], name) >= path_bytes)
            continue;
        if (access(path, R_OK) == 0)
            return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return NULL;
}

static int open_soft(struct flyt_error *err, void **ret_library)
{
    char path[PATH_MAX + 64];
    void *library = open_beside("libflyt-softgpu.so", path, sizeof path);
    if (!library) {
        const char *why = dlerror();
        return flyt_error_set(err, -ENOENT, "the software GPU cannot be loaded: %s",
                              why ? why : "libflyt-softgpu.so is not in ../lib beside flyt-server");
    }
    *ret_library = library;
    return 0;
}

static int open_nvidia(struct flyt_error *err, void **ret_library)
{
    static const char *const names[] = {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1",
                                        "/usr/lib/x86_64-linux-gnu/libcuda.so.1"};
    bool is_ours = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library && !dlsym(library, client_marker)) {
            *ret_library = library;
            return 0;
        }
        if (library) {
            is_ours = true;
            dlclose(library);
        }
    }
    if (is_ours)
        return flyt_error_set(err, -EINVAL,
                              "libcuda.so.1 is Flyt's own client library, not a driver: start flyt-server without "
                              "Flyt's libraries in LD_LIBRARY_PATH or LD_PRELOAD");
    return flyt_error_set(err, -ENOENT, "no NVIDIA driver: libcuda.so.1 is not found (use --soft N for software GPUs)");
}

int flyt_driver_load(bool is_soft, struct flyt_error *err, struct flyt_driver *ret_driver)
{
    void *library = NULL;
    int status = is_soft ? open_soft(err, &library) : open_nvidia(err, &library);
    if (status)
        return status;
    struct flyt_driver driver = {.is_soft = is_soft};
    /* A table of function pointers is filled through void *, as dlsym's users must. */
#define X(function)                                                                                                    \
    {                                                                                                                  \
        void *address = dlsym(library, SYMBOL(function));                                                              \
        if (!address)                                                                                                  \
            return flyt_error_set(err, -ENOSYS, "the CUDA driver lacks %s: it is older than CUDA 12.8", #function);    \
        memcpy(&driver.function, &address, sizeof address);                                                            \
    }
    FLYT_DRIVER_FUNCTIONS(X)
#undef X
#define X(function)                                                                                                    \
    {                                                                                                                  \
        void *address = dlsym(library, SYMBOL(function));                                                              \
        memcpy(&driver.function, &address, sizeof address);                                                            \
    }
    FLYT_DRIVER_ROWS(X)
#undef X
    *ret_driver = driver;
    return 0;
}
