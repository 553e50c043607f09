#include "cpu/server/prepare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/grant.h"
#include "cpu/server/jit.h"
#include "cpu/server/load.h"
#include "cpu/server/load_memory.h"
#include "cpu/server/module.h"
#include "cpu/server/session.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

struct flyt_prepared_library {
    struct flyt_prepared_library *next;
    flyt_library_load_args args; /* as library_load will have them */
    CUlibrary cu_library;
};

bool flyt_prepare_takes(uint32_t kind)
{
    return kind == FLYT_SERVER_LINK_PREPARE || kind == FLYT_SERVER_LINK_MAKE || kind == FLYT_SERVER_LINK_UNMAKE ||
           kind == FLYT_SERVER_LINK_LIBRARY || kind == FLYT_SERVER_LINK_STATE;
}

/* Answers with PREPARED; what has failed is kept. */
static int answer(struct flyt_given *given, struct flyt_server_link_message *message, int link_fd, uint64_t move_id,
                  uint64_t sequence, const struct flyt_error *err)
{
    if (err->code && !given->err.code)
        given->err = *err;
    message->kind = FLYT_SERVER_LINK_PREPARED;
    message->prepared =
        (struct flyt_server_link_prepared){.move_id = move_id, .outcome = err->code, .sequence = sequence};
    flyt_server_link_say(message, err->code ? err->text : NULL);
    return flyt_server_link_send(link_fd, message, NULL, 0);
}

/* ---- PREPARE ---- */

static int begin(struct flyt_session *session, struct flyt_given *given, struct flyt_server_link_message *message,
                 int link_fd)
{
    struct flyt_prepare *self = &session->prepare;
    struct flyt_error err = {0};
    if (given->err.code)
        err = given->err;
    else if (self->is_begun || given->is_resume)
        flyt_error_set(&err, -EPROTO, "the node manager prepares a session twice, or behind what it is to have");
    else
        flyt_grant_prepare(session, &message->session, &err);
    if (!err.code) {
        self->is_begun = given->is_prepared = true;
        self->granted = message->session;
    }
    return answer(given, message, link_fd, 0, 0, &err);
}

/* ---- MAKE, UNMAKE ---- */

/* 0 and what makes it, or a negative errno. */
static int check_extent(const struct flyt_session *session, const struct flyt_given *given,
                        const struct flyt_server_link_extent *extent, CUmemAllocationProp *ret_properties)
{
    const struct flyt_prepare *self = &session->prepare;
    struct flyt_error err;
    if (!self->is_begun || extent->slot >= self->granted.slot_count)
        return -EPROTO;
    unsigned ordinal = self->granted.slots[extent->slot].device_index;
    int status = flyt_given_check(given, extent, &err);
    if (status)
        return status;
    if (flyt_window_device(extent->address) != (int)ordinal)
        return -EPROTO;
    *ret_properties = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = session->devices[ordinal].cu_device},
    };
    return 0;
}

static int make_extent(const struct flyt_session *session, struct flyt_given *given,
                       const struct flyt_server_link_extent *extent, int *ret_fd)
{
    const struct flyt_driver *driver = session->driver;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties;
    int fd = -1, status = check_extent(session, given, extent, &properties);
    if (!status && flyt_fault_point("prepare.make") == FLYT_FAULT_ERROR)
        status = -EIO;
    if (status)
        return status;
    CUresult result = driver->cuMemCreate(&handle, extent->bytes, &properties, 0);
    if (result != CUDA_SUCCESS)
        return result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
    result = driver->cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    status = result == CUDA_SUCCESS ? flyt_given_add(given, extent, handle) : -EIO;
    if (status) {
        flyt_close(fd);
        driver->cuMemRelease(handle);
        return status;
    }
    *ret_fd = fd;
    return 0;
}

int flyt_prepare_make(struct flyt_session *session, struct flyt_given *given,
                      const struct flyt_server_link_extent *extent, struct flyt_server_link_message *message,
                      int link_fd, int *ret_outcome)
{
    struct flyt_server_link_made made = {.extent = *extent};
    flyt_auto_close int fd = -1;
    made.outcome = make_extent(session, given, &made.extent, &fd);
    if (made.outcome)
        flyt_info("memory of a session that is to go on here is not made, bytes=%llu: %s",
                  (unsigned long long)made.extent.bytes, strerror(-made.outcome));
    message->kind = FLYT_SERVER_LINK_MADE;
    message->made = made;
    message->data_bytes = 0;
    *ret_outcome = made.outcome;
    return flyt_server_link_send(link_fd, message, &fd, fd >= 0);
}

/* ---- libraries ---- */

static struct flyt_prepared_library **place_of(struct flyt_session *session, uint64_t library_id)
{
    struct flyt_prepared_library **at = &session->prepare.first;
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
    session->prepare.library_count--;
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
    char *image = NULL;
    uint64_t bytes;
    CUmodule module;
    CUresult result =
        jit ? flyt_jit_init(jit, library->args.options.options_val, library->args.options.options_len, true)
            : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS &&
        flyt_image_cache_get(&session->images, (unsigned char *)library->args.image_hash, &image, &bytes) != 0)
        result = CUDA_ERROR_FILE_NOT_FOUND;
    session->current_device = NULL;
    if (result == CUDA_SUCCESS)
        result = driver->cuCtxSetCurrent(session->devices[0].cu_primary);
    if (result == CUDA_SUCCESS)
        result = driver->cuLibraryLoadData(&library->cu_library, image, jit->options, jit->values, jit->option_count,
                                           NULL, NULL, 0);
    /* Compiles and places it now: in the order in which they come. */
    if (result == CUDA_SUCCESS) {
        result = driver->cuLibraryGetModule(&module, library->cu_library);
        if (result != CUDA_SUCCESS)
            driver->cuLibraryUnload(library->cu_library);
    }
    free(image);
    free(jit);
    return result;
}

/* What cannot be loaded ahead is loaded when the program comes; where its variables are needed, STATE fails. */
static void load_library(struct flyt_session *session, const struct flyt_server_link_message *message)
{
    struct flyt_prepared_library *library = calloc(1, sizeof *library);
    XDR xdrs;
    if (!library)
        return;
    xdrmem_create(&xdrs, (char *)message->data, message->data_bytes, XDR_DECODE);
    bool is_good =
        xdr_flyt_library_load_args(&xdrs, &library->args) && library->args.library_id == message->library.library_id &&
        flyt_id_type(library->args.library_id) == FLYT_ID_LIBRARY && session->prepare.library_count < FLYT_OBJECTS_MAX;
    CUresult result = is_good && flyt_fault_point("prepare.library") == FLYT_FAULT_NONE ? load_image(session, library)
                                                                                        : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) {
        flyt_info("a library is not loaded ahead, cuda_result=%d", (int)result);
        free_library(library);
        return;
    }
    *place_of(session, library->args.library_id) = library;
    session->prepare.library_count++;
}

static void take_library(struct flyt_session *session, const struct flyt_server_link_message *message)
{
    struct flyt_prepare *self = &session->prepare;
    struct flyt_prepared_library **at = place_of(session, message->library.library_id);
    self->has_state = false; /* the program runs, elsewhere */
    if (!self->is_begun)
        return;
    if (*at)
        unload(session, at);
    if (!message->library.has_ended)
        load_library(session, message);
}

/* ---- STATE ---- */

static int take_state(struct flyt_session *session, struct flyt_given *given, struct flyt_server_link_message *message,
                      int fd, int link_fd)
{
    struct flyt_load_memory memory = {.session = session, .given = given, .message = message, .link_fd = link_fd};
    struct flyt_error err = {0};
    const uint64_t move_id = message->stop.move_id;
    uint64_t sequence = 0;
    session->prepare.has_state = false;
    if (given->err.code)
        err = given->err;
    else if (!session->prepare.is_begun)
        flyt_error_set(&err, -EPROTO, "the node manager brings the state of a session that was not prepared");
    else if (flyt_fault_point("prepare.state") == FLYT_FAULT_ERROR)
        flyt_error_set(&err, -EIO, "the state is not taken: a test wants that");
    else
        flyt_load_state(&memory, fd, &sequence, &err);
    session->prepare.has_state = !err.code;
    return answer(given, message, link_fd, move_id, sequence, &err);
}

int flyt_prepare_take(struct flyt_session *session, struct flyt_given *given, struct flyt_server_link_message *message,
                      int fd, int link_fd)
{
    const struct flyt_server_link_extent extent = message->extent; /* of MAKE and UNMAKE */
    int outcome, status = 0;
    switch (message->kind) {
    case FLYT_SERVER_LINK_PREPARE:
        status = begin(session, given, message, link_fd);
        break;
    case FLYT_SERVER_LINK_MAKE:
        status = flyt_prepare_make(session, given, &extent, message, link_fd, &outcome);
        break;
    case FLYT_SERVER_LINK_UNMAKE:
        flyt_given_drop(given, session->driver, extent.extent_id);
        break;
    case FLYT_SERVER_LINK_LIBRARY:
        take_library(session, message);
        break;
    default:
        status = take_state(session, given, message, fd, link_fd);
    }
    flyt_close(fd);
    return status;
}

/* ---- SESSION, and the program ---- */

int flyt_prepare_check(const struct flyt_session *session, const struct flyt_given *given,
                       const struct flyt_server_link_session *granted, struct flyt_error *err)
{
    const struct flyt_prepare *self = &session->prepare;
    if (!self->is_begun || given->err.code)
        return 0; /* flyt_given_map refuses it */
    if (!given->is_resume || !self->has_state)
        return flyt_error_set(err, -EPROTO, "the session was prepared, but its state has not come");
    if (granted->slot_count != self->granted.slot_count)
        return flyt_error_set(err, -EPROTO, "the session was prepared for %u devices, and is to have %u",
                              self->granted.slot_count, granted->slot_count);
    for (unsigned i = 0; i < granted->slot_count; i++) {
        const struct flyt_server_link_slot *slot = &granted->slots[i], *before = &self->granted.slots[i];
        if (slot->device_index != before->device_index || slot->gpu_index != before->gpu_index ||
            memcmp(slot->gpu_uuid, before->gpu_uuid, sizeof slot->gpu_uuid) != 0)
            return flyt_error_set(err, -EPROTO, "device %u of the session was prepared on another GPU",
                                  slot->device_index);
    }
    return 0;
}

CUlibrary flyt_prepare_library(const struct flyt_session *session, uint64_t library_id)
{
    const struct flyt_prepared_library *library = session->prepare.first;
    while (library && library->args.library_id != library_id)
        library = library->next;
    return library ? library->cu_library : NULL;
}

CUlibrary flyt_prepare_adopt(struct flyt_session *session, const struct flyt_library *library)
{
    struct flyt_prepared_library **at = place_of(session, library->object.id);
    const flyt_library_load_args *args = *at ? &(*at)->args : NULL;
    if (!args || memcmp(args->image_hash, library->image_hash, sizeof args->image_hash) != 0 ||
        args->options.options_len != library->option_count)
        return NULL;
    for (unsigned i = 0; i < library->option_count; i++)
        if (args->options.options_val[i].id != library->options[i].id ||
            args->options.options_val[i].value != library->options[i].value)
            return NULL;
    CUlibrary cu_library = (*at)->cu_library;
    drop(session, at);
    return cu_library;
}

static int compare_id(const void *key, const void *event)
{
    uint64_t a = *(const uint64_t *)key, b = ((const struct flyt_state_event *)event)->event_id;
    return a < b ? -1 : a > b;
}

const struct flyt_state_event *flyt_prepare_event(const struct flyt_session *session, uint64_t event_id)
{
    const struct flyt_prepare *self = &session->prepare;
    if (!self->event_count)
        return NULL;
    return bsearch(&event_id, self->events, self->event_count, sizeof *self->events, compare_id);
}

void flyt_prepare_end(struct flyt_session *session)
{
    while (session->prepare.first)
        unload(session, &session->prepare.first);
    flyt_prepare_fini(session);
}

void flyt_prepare_fini(struct flyt_session *session)
{
    while (session->prepare.first)
        drop(session, &session->prepare.first);
    free(session->prepare.events);
    session->prepare = (struct flyt_prepare){0};
}
