#include "cpu/server/cuda/module.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/server/core/call.h"
#include "cpu/server/cuda/constant.h"
#include "cpu/server/cuda/image_cache.h"
#include "cpu/server/core/job.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/cuda/reserve.h"
#include "cpu/server/core/session.h"
#include "cpu/server/cuda/settings.h"
#include "cpu/server/bulk/transfer.h"
#include "flyt_serve.h"
#include "rpc/base/log.h"

struct flyt_kernel *flyt_library_kernel(struct flyt_library *library, uint32_t index)
{
    return index < library->kernel_count ? &library->kernels[index] : NULL;
}

static void free_infos(flyt_kernel_info *infos, uint32_t count)
{
    for (uint32_t i = 0; infos && i < count; i++) {
        free(infos[i].name);
        free(infos[i].params.params_val);
    }
    free(infos);
}

/* Unloads and frees a library that is in no table. NULL is allowed. */
static void free_library(struct flyt_library *library)
{
    if (!library)
        return;
    if (library->cu_library)
        flyt_session_check(library->session, library->session->driver->cuLibraryUnload(library->cu_library));
    flyt_reserve_forget(library);
    flyt_constant_forget(library->session, library);
    if (library->is_entered)
        library->session->observer->library_gone(library->session, library);
    for (uint32_t i = 0; library->kernels && i < library->kernel_count; i++)
        flyt_settings_free(&library->kernels[i]);
    free_infos(library->infos, library->kernel_count);
    flyt_machine_code_fini(&library->code);
    free(library->is_asked);
    free(library->options);
    free(library->kernels);
    free(library);
}

void flyt_library_destroy(struct flyt_library *library)
{
    flyt_object_remove(&library->session->objects, &library->object);
    library->session->unload_count++;
    library->session->observer->library_leaving(library->session, library);
    free_library(library);
}

/* Libraries are loaded for all devices: they go with the only one. */
void flyt_library_drop(struct flyt_library *library, const struct flyt_device *device)
{
    if (!device || library->session->device_count == 1)
        flyt_library_destroy(library);
}

/* ---- images ---- */

CUresult flyt_serve_image_find(struct flyt_call *call, const flyt_image_find_args *args, flyt_image_find_res *res)
{
    res->is_known = flyt_image_cache_has(call->session->images, (const unsigned char *)args->image_hash);
    return CUDA_SUCCESS;
}

struct store_job {
    struct flyt_job job;
    struct flyt_transfer *transfer; /* NULL: all is there */
    unsigned char hash[FLYT_HASH_BYTES];
    char *image;
    uint64_t bytes, have_bytes;
};

static CUresult store_run(struct flyt_job *job)
{
    const struct store_job *self = (struct store_job *)job;
    int status = flyt_image_cache_put(job->session->images, self->hash, self->image, self->bytes);
    if (status == 0)
        return CUDA_SUCCESS;
    flyt_warn("session %s: a module image of %llu bytes is not kept: %s", job->session->label,
              (unsigned long long)self->bytes, strerror(-status));
    return status == -EBADMSG ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult store_gather(struct store_job *self)
{
    struct flyt_session *session = self->job.session;
    struct flyt_piece *piece;
    while (self->have_bytes < self->bytes && (piece = flyt_transfer_take(session, self->transfer))) {
        bool is_inside = piece->offset_bytes <= self->bytes && piece->bytes <= self->bytes - piece->offset_bytes;
        if (is_inside)
            memcpy(self->image + piece->offset_bytes, piece->buffer->data, piece->bytes);
        self->have_bytes += piece->bytes;
        flyt_piece_free(session, piece);
        if (!is_inside)
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (self->have_bytes < self->bytes)
        return CUDA_ERROR_NOT_READY;
    flyt_transfer_close(session, self->transfer, true);
    self->transfer = NULL;
    return CUDA_SUCCESS;
}

static CUresult store_advance(struct flyt_job *job)
{
    struct store_job *self = (struct store_job *)job;
    job->needs_poll = false;
    if (!self->transfer)
        return CUDA_SUCCESS;
    CUresult result = store_gather(self);
    return result == CUDA_SUCCESS ? flyt_job_run(job, store_run) : result;
}

static void store_free(struct flyt_job *job)
{
    struct store_job *self = (struct store_job *)job;
    if (self->transfer)
        flyt_transfer_close(job->session, self->transfer, false);
    free(self->image);
    free(self);
}

static const struct flyt_job_ops store_ops = {store_advance, flyt_job_reply, store_free};

CUresult flyt_serve_image_store(struct flyt_call *call, const flyt_image_store_args *args, flyt_image_store_res *res)
{
    if (!args->bytes || args->bytes > FLYT_IMAGE_BYTES_MAX) {
        flyt_transfer_drop(call->session, args->transfer_id, args->bytes);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct store_job *self = calloc(1, sizeof *self);
    if (self)
        self->image = malloc(args->bytes);
    if (self && self->image)
        self->transfer = flyt_transfer_open(call->session, args->transfer_id, args->bytes);
    if (!self || !self->transfer) {
        if (self)
            free(self->image);
        free(self);
        flyt_transfer_drop(call->session, args->transfer_id, args->bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    self->bytes = args->bytes;
    memcpy(self->hash, args->image_hash, sizeof self->hash);
    flyt_job_start(&self->job, &store_ops, call, NULL);
    flyt_job_keep_unexecuted(&self->job);
    return FLYT_CALL_STARTED;
}

/* ---- loading ---- */

struct load_job {
    struct flyt_job job;
    struct flyt_library *library;                             /* until it is the session's */
    enum { LOAD_READING, LOAD_CHARGING, LOAD_LOADING } stage; /* the submission thread's */
    struct flyt_jit jit;
    bool can_print;
    flyt_library_load_res res;
};

/* The parameters of a kernel, for the reply and for the check of every launch. */
static CUresult describe_kernel(const struct flyt_driver *driver, struct flyt_jit *jit, struct flyt_kernel *kernel,
                                flyt_kernel_info *ret_info)
{
    const char *name;
    CUresult result = driver->cuKernelGetName(&name, kernel->cu_kernel);
    if (result != CUDA_SUCCESS)
        return result;
    if (strlen(name) > FLYT_SYMBOL_BYTES_MAX)
        return flyt_jit_refuse(jit, CUDA_ERROR_NOT_SUPPORTED, "the name of a kernel has more than %d bytes: %.64s…",
                               FLYT_SYMBOL_BYTES_MAX, name);
    ret_info->name = strdup(name);
    if (!ret_info->name)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t room = 0, offset, bytes;
    u_int count = 0;
    while (count < FLYT_KERNEL_PARAMS_MAX &&
           (result = driver->cuKernelGetParamInfo(kernel->cu_kernel, count, &offset, &bytes)) == CUDA_SUCCESS) {
        if (count == room) {
            room = room ? 2 * room : 8;
            flyt_kernel_param *params = reallocarray(ret_info->params.params_val, room, sizeof *params);
            if (!params)
                return CUDA_ERROR_OUT_OF_MEMORY;
            ret_info->params.params_val = params;
        }
        ret_info->params.params_val[count++] =
            (flyt_kernel_param){.offset_bytes = (u_int)offset, .size_bytes = (u_int)bytes};
        ret_info->params.params_len = count;
        if (offset + bytes > kernel->param_bytes)
            kernel->param_bytes = (uint32_t)(offset + bytes);
    }
    /* The end of the parameters is told by this code. */
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
}

static CUresult describe(struct load_job *self)
{
    const struct flyt_driver *driver = self->job.session->driver;
    struct flyt_library *library = self->library;
    unsigned count = 0;
    CUresult result = driver->cuLibraryGetKernelCount(&count, library->cu_library);
    if (result != CUDA_SUCCESS || !count)
        return result;
    if (count > FLYT_LIBRARY_KERNELS_MAX) {
        flyt_warn("session %s: a library with %u kernels is not loaded: there may be %d at most",
                  self->job.session->label, count, FLYT_LIBRARY_KERNELS_MAX);
        return flyt_jit_refuse(&self->jit, CUDA_ERROR_NOT_SUPPORTED, "it has %u kernels; there may be %d at most",
                               count, FLYT_LIBRARY_KERNELS_MAX);
    }
    CUkernel *cu_kernels = calloc(count, sizeof *cu_kernels);
    library->kernels = calloc(count, sizeof *library->kernels);
    library->infos = calloc(count, sizeof *library->infos);
    library->kernel_count = library->infos ? count : 0;
    result = cu_kernels && library->kernels && library->infos
                 ? driver->cuLibraryEnumerateKernels(cu_kernels, count, library->cu_library)
                 : CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        library->kernels[i].cu_kernel = cu_kernels[i];
        library->kernels[i].library = library;
        result = describe_kernel(driver, &self->jit, &library->kernels[i], &library->infos[i]);
        if (result == CUDA_SUCCESS)
            flyt_image_blocks_get(&library->code.blocks, library->infos[i].name, library->kernels[i].required_block);
    }
    free(cu_kernels);
    return result;
}

/* On the wire, at most. */
static size_t info_bytes(const flyt_kernel_info *info)
{
    return strlen(info->name) + info->params.params_len * sizeof(flyt_kernel_param) + 3 * sizeof(u_int);
}

/* Moves what is to be told next into an array of its own, which xdr_free can free: as much as a reply holds. */
static CUresult take_infos(struct flyt_library *library, u_int *ret_count, flyt_kernel_info **ret_infos)
{
    flyt_kernel_info *infos = library->infos + library->told_count;
    uint32_t left = library->kernel_count - library->told_count, count = 0;
    size_t bytes = 0;
    while (count < left && count < FLYT_KERNELS_MAX && bytes < FLYT_KERNELS_PART_BYTES)
        bytes += info_bytes(&infos[count++]);
    flyt_kernel_info *part = calloc(count + 1, sizeof *part);
    if (!part)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (count) { /* else there may be no array at all */
        memcpy(part, infos, count * sizeof *part);
        memset(infos, 0, count * sizeof *infos);
    }
    library->told_count += count;
    if (count == left) {
        free(library->infos);
        library->infos = NULL;
    }
    *ret_infos = part;
    *ret_count = count;
    return CUDA_SUCCESS;
}

/* The image becomes machine code, which tells what it will take of the GPU. */
static CUresult read_image(struct flyt_job *job)
{
    struct load_job *self = (struct load_job *)job;
    struct flyt_session *session = job->session;
    struct flyt_library *library = self->library;
    uint64_t bytes;
    char *image;
    int status = flyt_image_cache_get(session->images, library->image_hash, &image, &bytes);
    if (status)
        return status == -ENOENT ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_OUT_OF_MEMORY;
    self->can_print = flyt_print_can(image, bytes);
    CUresult result = session->driver->cuCtxSetCurrent(session->devices[0].cu_primary);
    if (result == CUDA_SUCCESS)
        result = flyt_machine_code_make(session, image, bytes, library->options, library->option_count, &self->jit,
                                        &library->code);
    free(image);
    library->is_asked = calloc(library->code.symbols.count + 1, sizeof *library->is_asked);
    return result == CUDA_SUCCESS && !library->is_asked ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

static CUresult load(struct flyt_job *job)
{
    struct load_job *self = (struct load_job *)job;
    struct flyt_session *session = job->session;
    struct flyt_library *library = self->library;
    const struct flyt_driver *driver = session->driver;
    CUresult result = driver->cuCtxSetCurrent(session->devices[0].cu_primary);
    if (result == CUDA_SUCCESS && !library->cu_library) /* else it was loaded ahead */
        result = flyt_machine_code_load(driver, &library->code, &self->jit, &library->cu_library);
    /* Places it now, on this thread, not at the first launch on the submission thread. */
    CUmodule module;
    if (result == CUDA_SUCCESS)
        result = driver->cuLibraryGetModule(&module, library->cu_library);
    flyt_jit_explain(&self->jit, result, library->code.image, library->code.bytes);
    free(library->code.image);
    library->code.image = NULL;
    return result == CUDA_SUCCESS ? describe(self) : result;
}

/* Reading is done: what the module will take is charged, then it is loaded. CUDA_ERROR_NOT_READY: it is under way. */
static CUresult load_charged(struct load_job *self)
{
    struct flyt_session *session = self->job.session;
    self->stage = LOAD_CHARGING;
    session->devices[0].memory->attempt = self->job.sequence;
    CUresult result = flyt_reserve_library(&session->devices[0], self->library);
    if (result != CUDA_SUCCESS) {
        self->job.needs_poll = result == CUDA_ERROR_NOT_READY; /* memory is still to be given back */
        return result;
    }
    self->stage = LOAD_LOADING;
    self->library->load_number = ++session->load_count;
    if (session->resume.state == FLYT_RESUME_UNDER_WAY) {
        self->library->cu_library = session->observer->library_ahead(session, self->library);
        *(self->library->cu_library ? &session->resume.steps.adopted_count : &session->resume.steps.loaded_count) += 1;
    }
    return flyt_job_run(&self->job, load);
}

static CUresult load_advance(struct flyt_job *job)
{
    struct load_job *self = (struct load_job *)job;
    job->needs_poll = false;
    if (self->stage != LOAD_LOADING)
        return load_charged(self);
    self->res.kernel_count = self->library->kernel_count;
    CUresult result = take_infos(self->library, &self->res.kernels.kernels_len, &self->res.kernels.kernels_val);
    if (result == CUDA_SUCCESS)
        result = flyt_session_insert(job->session, &self->library->object, FLYT_ID_LIBRARY);
    if (result == CUDA_SUCCESS) {
        self->library->is_entered = true;
        job->session->observer->library_loaded(job->session, self->library);
        self->library = NULL;
        job->session->print.is_used |= self->can_print;
    }
    return result;
}

static void load_finish(struct flyt_job *job, CUresult result)
{
    struct load_job *self = (struct load_job *)job;
    self->res.info_log = self->jit.info_log;
    self->res.error_log = self->jit.error_log;
    if (result != CUDA_SUCCESS)
        flyt_debug("session %s: a module is not loaded, cuda_result=%d: %s", job->session->label, (int)result,
                   self->jit.error_log);
    flyt_job_reply_with(job, result, &self->res, sizeof self->res);
}

static void load_free(struct flyt_job *job)
{
    struct load_job *self = (struct load_job *)job;
    free_infos(self->res.kernels.kernels_val, self->res.kernels.kernels_len);
    free_library(self->library);
    free(self);
}

static const struct flyt_job_ops load_ops = {load_advance, load_finish, load_free};

/* A library that has its arguments, and nothing else. NULL: no host memory. */
static struct flyt_library *new_library(struct flyt_session *session, const flyt_library_load_args *args)
{
    struct flyt_library *library = calloc(1, sizeof *library);
    if (!library)
        return NULL;
    library->object.id = args->library_id;
    library->session = session;
    memcpy(library->image_hash, args->image_hash, sizeof library->image_hash);
    library->option_count = args->options.options_len;
    library->options = calloc(library->option_count + 1, sizeof *library->options);
    if (!library->options) {
        free(library);
        return NULL;
    }
    for (unsigned i = 0; i < library->option_count; i++)
        library->options[i] = args->options.options_val[i];
    return library;
}

CUresult flyt_serve_library_load(struct flyt_call *call, const flyt_library_load_args *args, flyt_library_load_res *res)
{
    struct load_job *self = calloc(1, sizeof *self);
    struct flyt_library *library = new_library(call->session, args);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (self && library)
        result = flyt_jit_init(&self->jit, args->options.options_val, args->options.options_len, FLYT_JIT_LOAD);
    if (result == CUDA_SUCCESS) {
        self->library = library;
        return flyt_job_on_worker(&self->job, &load_ops, call, read_image);
    }
    if (self && self->jit.error_log[0])
        res->error_log = strdup(self->jit.error_log);
    free_library(library);
    free(self);
    return result;
}

CUresult flyt_serve_library_kernels(struct flyt_call *call, const flyt_library_kernels_args *args,
                                    struct flyt_library *library, flyt_library_kernels_res *res)
{
    if (!library->infos || args->first != library->told_count)
        return CUDA_ERROR_INVALID_VALUE;
    return take_infos(library, &res->kernels.kernels_len, &res->kernels.kernels_val);
}

/* ---- unloading ---- */

struct unload_job {
    struct flyt_job job;
    struct flyt_library *library;
};

/* On the worker's thread: the driver waits for all that runs by then, be it of other libraries. */
static CUresult unload(struct flyt_job *job)
{
    const struct flyt_session *session = job->session;
    struct flyt_library *library = ((struct unload_job *)job)->library;
    CUresult result = session->driver->cuCtxSetCurrent(session->devices[0].cu_primary);
    if (result == CUDA_SUCCESS)
        result = session->driver->cuLibraryUnload(library->cu_library);
    library->cu_library = NULL;
    return result;
}

/* Nothing runs its kernels any more. */
static CUresult unload_advance(struct flyt_job *job)
{
    const struct unload_job *self = (struct unload_job *)job;
    return self->library->cu_library ? flyt_job_run(job, unload) : CUDA_SUCCESS;
}

static void unload_free(struct flyt_job *job)
{
    free_library(((struct unload_job *)job)->library);
    free(job);
}

static const struct flyt_job_ops unload_ops = {unload_advance, NULL, unload_free};

bool flyt_library_is_unloading(const struct flyt_session *session, uint64_t before_sequence)
{
    for (const struct flyt_job *job = session->jobs.first; job; job = job->next)
        if (job->ops == &unload_ops && job->sequence < before_sequence)
            return true;
    return flyt_defer_has(session, FLYT_LIBRARY_UNLOAD, before_sequence);
}

CUresult flyt_serve_library_unload(struct flyt_call *call, const flyt_library_unload_args *args,
                                   struct flyt_library *library)
{
    CUresult result;
    struct unload_job *self = flyt_stream_job_after_all(call, sizeof *self, &result);
    if (!self)
        return result;
    flyt_object_remove(&call->session->objects, &library->object);
    call->session->observer->library_leaving(call->session, library);
    self->library = library;
    return flyt_job_begin(&self->job, &unload_ops, call);
}

CUresult flyt_library_use(struct flyt_call *call, struct flyt_library *library, uint32_t ordinal,
                          struct flyt_device **ret_device)
{
    struct flyt_device *device;
    CUresult result = flyt_session_use_device(call->session, ordinal, &device);
    if (result == CUDA_SUCCESS) {
        device->memory->attempt = call->sequence;
        result = flyt_reserve_library(device, library);
    }
    if (result == CUDA_ERROR_NOT_READY) {
        call->session->is_retry_due = true;
        return FLYT_CALL_RETRY;
    }
    if (result == CUDA_SUCCESS)
        *ret_device = device;
    return result;
}

CUresult flyt_library_find_variable(struct flyt_call *call, struct flyt_library *library, const char *name,
                                    uint32_t ordinal, uint64_t *ret_address, uint64_t *ret_bytes)
{
    struct flyt_device *device;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    CUresult result = flyt_library_use(call, library, ordinal, &device);
    if (result == CUDA_SUCCESS)
        result = call->session->driver->cuLibraryGetGlobal(&address, &bytes, library->cu_library, name);
    if (result != CUDA_SUCCESS)
        return result;
    *ret_address = address;
    *ret_bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult flyt_serve_library_managed(struct flyt_call *call, const flyt_library_managed_args *args,
                                    struct flyt_library *library, flyt_library_managed_res *res)
{
    struct flyt_device *device;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    CUresult result = flyt_library_use(call, library, args->device, &device);
    if (result == CUDA_SUCCESS)
        result = call->session->driver->cuLibraryGetManaged(&address, &bytes, library->cu_library, args->name);
    if (result != CUDA_SUCCESS)
        return result;
    res->address = address;
    res->bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult flyt_serve_library_global(struct flyt_call *call, const flyt_library_global_args *args,
                                   struct flyt_library *library, flyt_library_global_res *res)
{
    uint64_t address, bytes;
    CUresult result = flyt_library_find_variable(call, library, args->name, args->device, &address, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    call->session->observer->used(call->session, FLYT_USE_ADDRESS);
    call->session->observer->name_asked(library, args->name);
    res->address = address;
    res->bytes = bytes;
    return CUDA_SUCCESS;
}

struct flyt_kernel *flyt_session_find_kernel(struct flyt_session *session, uint64_t id)
{
    if (flyt_id_type(id) != FLYT_ID_KERNEL)
        return NULL;
    struct flyt_library *library =
        flyt_idtable_find(&session->objects.tables[FLYT_OBJECTS_LIBRARY], flyt_kernel_library_number(id));
    return library ? flyt_library_kernel(library, flyt_kernel_index(id)) : NULL;
}
