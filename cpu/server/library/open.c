/* The files of NVIDIA's libraries on the node. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu/server/library/library.h"
#include "flyt_libraries.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"

#define DECLARE(name) extern struct flyt_server_library flyt_server_library_##name;
FLYT_LIBRARIES(DECLARE)

#define PLACE(name) &flyt_server_library_##name,
static struct flyt_server_library *const libraries[] = {FLYT_LIBRARIES(PLACE)};
enum { LIBRARIES = sizeof libraries / sizeof libraries[0] };

struct flyt_server_library *flyt_server_library_find(const char *name)
{
    for (unsigned i = 0; i < LIBRARIES; i++)
        if (!strcmp(libraries[i]->name, name))
            return libraries[i];
    return NULL;
}

const struct flyt_server_row *flyt_server_library_row(uint32_t id, struct flyt_server_library **ret_library)
{
    for (unsigned i = 0; i < LIBRARIES; i++) {
        unsigned low = 0, high = flyt_server_library_is_loaded(libraries[i]) ? libraries[i]->row_count : 0;
        while (low < high) {
            unsigned middle = (low + high) / 2;
            if (libraries[i]->rows[middle].id < id)
                low = middle + 1;
            else
                high = middle;
        }
        if (low < libraries[i]->row_count && flyt_server_library_is_loaded(libraries[i]) &&
            libraries[i]->rows[low].id == id) {
            *ret_library = libraries[i];
            return &libraries[i]->rows[low];
        }
    }
    return NULL;
}

/* ---- loading ---- */

/* Of the library that each of Flyt's in a client needs. */
static const char client_symbol[] = "flyt_not_supported";

static void *open_file(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* The software GPU's are all in one file, beside it. */
static void *open_soft(char *ret_path, size_t bytes)
{
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0)
        return NULL;
    program[length] = '\0';
    char *slash = strrchr(program, '/');
    if (slash)
        *slash = '\0';
    snprintf(ret_path, bytes, "%s/../lib/libflyt-softgpu-libraries.so", program);
    return open_file(ret_path);
}

/* In the operator's folders, or, where none are named, where the loader looks. */
static void *open_nvidia(const char *soname, char *ret_path, size_t bytes)
{
    const char *folders = getenv("FLYT_LIBRARIES");
    if (!folders || !*folders) {
        snprintf(ret_path, bytes, "%s", soname);
        return open_file(ret_path);
    }
    for (const char *folder = folders; *folder;) {
        size_t length = strcspn(folder, ":");
        snprintf(ret_path, bytes, "%.*s/%s", (int)length, folder, soname);
        void *file = length ? open_file(ret_path) : NULL;
        if (file)
            return file;
        folder += length + (folder[length] == ':');
    }
    return NULL;
}

static void *open_of_node(const struct flyt_server_library *library, bool is_soft, char *ret_path, size_t bytes)
{
    const char *folders = getenv("FLYT_LIBRARIES");
    if (is_soft && (!folders || !*folders))
        return open_soft(ret_path, bytes);
    return open_nvidia(library->soname, ret_path, bytes);
}

/* NCCL's: 10000 times the major version, 100 times the minor one, the patch level. */
static void ask_code(struct flyt_server_library *library, void *file)
{
    int (*tell)(int *) = (int (*)(int *))dlsym(file, library->property);
    int code = 0;
    if (!tell || tell(&code) || code < 10000)
        return;
    library->version = (uint32_t)(code / 10000 * 1000 + code / 100 % 100);
    library->patch = (uint32_t)(code % 100);
}

/* libraryPropertyType: 0 is the major version, 1 the minor one, 2 the patch level. */
static void ask_version(struct flyt_server_library *library, void *file)
{
    if (library->is_code) {
        ask_code(library, file);
        return;
    }
    int (*tell)(int, int *) = (int (*)(int, int *))dlsym(file, library->property);
    int major = 0, minor = 0, patch = 0;
    if (!tell || tell(0, &major) || tell(1, &minor))
        return;
    library->version = (uint32_t)(major * 1000 + minor);
    library->patch = !tell(2, &patch) && patch > 0 && patch < 1000 ? (uint32_t)patch : 0;
}

static int load_locked(struct flyt_server_library *library, bool is_soft, struct flyt_error *err)
{
    char path[4200] = "";
    void *file = open_of_node(library, is_soft, path, sizeof path);
    if (!file) {
        const char *why = dlerror();
        return flyt_error_set(err, -ENOENT, "the node has no %s: %.300s", library->soname, why ? why : "not found");
    }
    if (dlsym(file, client_symbol)) {
        dlclose(file);
        return flyt_error_set(err, -EINVAL,
                              "the node has no %s: what the loader finds is Flyt's own, which forwards; --libraries "
                              "(libraries in node.conf) names the folders of NVIDIA's",
                              library->soname);
    }
    if (!flyt_server_library_look_up(library, file)) {
        dlclose(file);
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    }
    ask_version(library, file);
    /* Last: the submission thread finds all else that it reads of the library behind this (acquire). */
    atomic_store_explicit(&library->file, file, memory_order_release);
    flyt_info("library %s: loaded, file=%s version=%u.%u", library->name, path, library->version / 1000,
              library->version % 1000);
    return 0;
}

int flyt_server_library_load(struct flyt_server_library *library, bool is_soft, struct flyt_error *err)
{
    pthread_mutex_lock(&library->mutex);
    int status = flyt_server_library_is_loaded(library) ? 0 : load_locked(library, is_soft, err);
    pthread_mutex_unlock(&library->mutex);
    return status;
}

void flyt_server_libraries_look(bool is_soft, flyt_server_library_fn tell)
{
    for (unsigned i = 0; i < LIBRARIES; i++) {
        struct flyt_error err = {0};
        int status = flyt_server_library_load(libraries[i], is_soft, &err);
        tell(libraries[i], status ? err.text : NULL);
    }
}
