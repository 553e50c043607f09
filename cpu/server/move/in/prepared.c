#include "cpu/server/move/in/prepared.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/server/move/in/arrived_pages.h"
#include "cpu/server/cuda/image_cache.h"
#include "cpu/server/cuda/machine_code.h"
#include "cpu/server/cuda/module.h"
#include "cpu/server/move/in/load_array.h"
#include "cpu/server/move/in/prepare.h"
#include "cpu/server/core/session.h"
#include "cpu/server/cuda/memory.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

/* ---- memory ---- */

/* 0 and whose memory it is to be, or a negative errno. */
static int check_extent(const struct flyt_session *session, const struct flyt_adopted_extents *adopted,
                        const struct flyt_manager_link_extent *extent, CUdevice *ret_cu_device)
{
    const struct flyt_prepare *self = session->prepare;
    struct flyt_error err;
    if (!self->is_begun || extent->slot >= self->granted.slot_count)
        return -EPROTO;
    unsigned ordinal = self->granted.slots[extent->slot].device_index;
    int status = flyt_adopted_extents_check(adopted, extent, &err);
    if (status)
        return status;
    if (flyt_window_device(extent->address) != (int)ordinal)
        return -EPROTO;
    *ret_cu_device = session->devices[ordinal].cu_device;
    return 0;
}

static int error_of(CUresult result)
{
    return result == CUDA_SUCCESS ? 0 : result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
}

int flyt_prepare_make(const struct flyt_session *session, struct flyt_adopted_extents *adopted,
                      const struct flyt_manager_link_extent *extent, CUmemGenericAllocationHandle *ret_handle)
{
    const struct flyt_driver *driver = session->driver;
    CUmemGenericAllocationHandle handle;
    CUdevice cu_device;
    int status = check_extent(session, adopted, extent, &cu_device);
    if (!status && flyt_fault_point("prepare.make") == FLYT_FAULT_ERROR)
        status = -EIO;
    if (status)
        return status;
    status = error_of(flyt_memory_create(driver, cu_device, extent->bytes, &handle));
    if (status)
        return status;
    status = flyt_adopted_extents_add(adopted, extent, handle);
    if (status)
        driver->cuMemRelease(handle);
    else
        *ret_handle = handle;
    return status;
}

/* ---- libraries ---- */

struct flyt_prepared_library {
    struct flyt_prepared_library *next;
    flyt_library_load_args args; /* as library_load will have them */
    CUlibrary cu_library;
};

static struct flyt_prepared_library **place_of(struct flyt_session *session, uint64_t library_id)
{
    struct flyt_prepared_library **at = &session->prepare->first;
    while (*at && (*at)->args.library_id != library_id)
        at = &(*at)->next;
    return at;
}

static void free_library(struct flyt_prepared_library *library)
{
    xdr_free((xdrproc_t)xdr_flyt_library_load_args, &library->args);
    free(library);
}

/* Takes it out of the list; it stays loaded. */
static void drop(struct flyt_session *session, struct flyt_prepared_library **at)
{
    struct flyt_prepared_library *library = *at;
    *at = library->next;
    session->prepare->library_count--;
    free_library(library);
}

static void unload(struct flyt_session *session, struct flyt_prepared_library **at)
{
    const struct flyt_driver *driver = session->driver;
    session->current_device = NULL;
    CUresult result = driver->cuCtxSetCurrent(session->devices[0].cu_primary);
    if (result == CUDA_SUCCESS)
        result = driver->cuLibraryUnload((*at)->cu_library);
    if (result != CUDA_SUCCESS)
        flyt_warn("a library that was loaded ahead is not unloaded, cuda_result=%d", (int)result);
    drop(session, at);
}

/* The driver's error, or CUDA_ERROR_FILE_NOT_FOUND: the image is not there. */
static CUresult load_image(struct flyt_session *session, struct flyt_prepared_library *library)
{
    const struct flyt_driver *driver = session->driver;
    struct flyt_jit *jit = calloc(1, sizeof *jit);
    struct flyt_machine_code code = {0};
    char *image = NULL;
    uint64_t bytes;
    CUmodule module;
    CUresult result = jit ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS &&
        flyt_image_cache_get(session->images, (unsigned char *)library->args.image_hash, &image, &bytes) != 0)
        result = CUDA_ERROR_FILE_NOT_FOUND;
    session->current_device = NULL;
    if (result == CUDA_SUCCESS)
        result = driver->cuCtxSetCurrent(session->devices[0].cu_primary);
    if (result == CUDA_SUCCESS)
        result = flyt_machine_code_make(session, image, bytes, library->args.options.options_val,
                                        library->args.options.options_len, jit, &code);
    if (result == CUDA_SUCCESS)
        result = flyt_machine_code_load(driver, &code, jit, &library->cu_library);
    /* Compiles and places it now: in the order in which they come. */
    if (result == CUDA_SUCCESS) {
        result = driver->cuLibraryGetModule(&module, library->cu_library);
        if (result != CUDA_SUCCESS)
            driver->cuLibraryUnload(library->cu_library);
    }
    flyt_machine_code_fini(&code);
    free(image);
    free(jit);
    return result;
}

static bool is_same(const flyt_library_load_args *args, uint64_t library_id, const void *image_hash,
                    const flyt_load_option *options, unsigned option_count)
{
    if (args->library_id != library_id || memcmp(args->image_hash, image_hash, sizeof args->image_hash) != 0 ||
        args->options.options_len != option_count)
        return false;
    for (unsigned i = 0; i < option_count; i++)
        if (args->options.options_val[i].id != options[i].id || args->options.options_val[i].value != options[i].value)
            return false;
    return true;
}

int flyt_prepare_load(struct flyt_session *session, const void *args, uint32_t bytes, uint64_t *ret_library_id,
                      CUresult *ret_result)
{
    struct flyt_prepared_library *library = calloc(1, sizeof *library);
    XDR xdrs;
    if (!library)
        return -ENOMEM;
    xdrmem_create(&xdrs, (char *)args, bytes, XDR_DECODE);
    if (!xdr_flyt_library_load_args(&xdrs, &library->args) ||
        flyt_id_type(library->args.library_id) != FLYT_ID_LIBRARY ||
        session->prepare->library_count >= FLYT_OBJECTS_MAX) {
        free_library(library);
        return -EBADMSG;
    }
    const flyt_library_load_args *wanted = &library->args;
    *ret_library_id = wanted->library_id;
    *ret_result = CUDA_SUCCESS;
    struct flyt_prepared_library **at = place_of(session, wanted->library_id);
    if (*at && is_same(&(*at)->args, wanted->library_id, wanted->image_hash, wanted->options.options_val,
                       wanted->options.options_len)) {
        free_library(library);
        return 0;
    }
    if (*at)
        unload(session, at);
    CUresult result = flyt_fault_point("prepare.library") == FLYT_FAULT_NONE ? load_image(session, library)
                                                                             : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) {
        flyt_info("a library is not loaded ahead, cuda_result=%d", (int)result);
        *ret_result = result;
        free_library(library);
        return 0;
    }
    *place_of(session, library->args.library_id) = library;
    session->prepare->library_count++;
    return 0;
}

void flyt_prepare_unload(struct flyt_session *session, uint64_t library_id)
{
    struct flyt_prepared_library **at = place_of(session, library_id);
    if (*at)
        unload(session, at);
}

CUlibrary flyt_prepare_library(const struct flyt_session *session, uint64_t library_id)
{
    const struct flyt_prepared_library *library = session->prepare->first;
    while (library && library->args.library_id != library_id)
        library = library->next;
    return library ? library->cu_library : NULL;
}

CUlibrary flyt_prepare_adopt(struct flyt_session *session, const struct flyt_library *library)
{
    struct flyt_prepared_library **at = place_of(session, library->object.id);
    const flyt_library_load_args *args = *at ? &(*at)->args : NULL;
    if (!args || !is_same(args, library->object.id, library->image_hash, library->options, library->option_count))
        return NULL;
    CUlibrary cu_library = (*at)->cu_library;
    drop(session, at);
    return cu_library;
}

void flyt_prepare_fini(struct flyt_session *session)
{
    while (session->prepare->first)
        drop(session, &session->prepare->first);
    free(session->prepare->events);
    flyt_load_array_fini(session->prepare);
    free(session->prepare->piece);
    flyt_arrived_pages_fini(session);
    *session->prepare = (struct flyt_prepare){0};
}

void flyt_prepare_end(struct flyt_session *session)
{
    while (session->prepare->first)
        unload(session, &session->prepare->first);
    flyt_prepare_fini(session);
}
