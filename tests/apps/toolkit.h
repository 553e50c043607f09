/*
 * Libraries of the CUDA toolkit that a program uses where they are installed: nvcc's compiler and linker as libraries.
 * Needs <dlfcn.h>'s functions: `// nvcc: -ldl`.
 */
#ifndef TESTS_APPS_TOOLKIT_H
#define TESTS_APPS_TOOLKIT_H

#include "check.h"
#include <dlfcn.h>

/* The library NAME (libnvrtc.so) of this major version: where the loader finds it, else in the toolkit's folders. Skips
 * the program where there is none. */
__attribute__((unused)) static void *open_toolkit_library(const char *name, int major)
{
    static const char *const folders[] = {"lib64", "nvvm/lib64"};
    const char *root = getenv("CUDA_PATH");
    char path[4096];
    void *library;
    size_t i;

    snprintf(path, sizeof(path), "%s.%d", name, major);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    for (i = 0; i < sizeof(folders) / sizeof(folders[0]) && !library; i++) {
        snprintf(path, sizeof(path), "%s/%s/%s.%d", root ? root : "/usr/local/cuda", folders[i], name, major);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (!library)
        SKIP("%s.%d is not installed", name, major);
    return library;
}

/* A function of the library, as the toolkit's header declares it. */
#define TOOLKIT_FUNCTION(library, function)                                                                            \
    __typeof__(&function) p_##function = (__typeof__(&function))dlsym(library, #function);                             \
    EXPECT(p_##function, #function " is not in the library")

#endif
