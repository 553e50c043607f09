/* Linking of images that were compiled apart: on a thread of its own, for loading waits for nobody's linking. */
#include <errno.h>
#include <stdlib.h>

#include "cpu/server/core/call.h"
#include "cpu/server/cuda/image_cache.h"
#include "cpu/server/cuda/jit.h"
#include "cpu/server/core/session.h"
#include "flyt_serve.h"
#include "rpc/base/log.h"
#include "rpc/base/sha256.h"

struct link_job {
    struct flyt_job job;
    struct flyt_jit jit;
    flyt_link_input *inputs; /* copies of the call's */
    unsigned input_count;
    bool is_trial;
    flyt_image_link_res res;
};

static void free_inputs(flyt_link_input *inputs, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        free(inputs[i].name);
        free(inputs[i].options.options_val);
    }
    free(inputs);
}

/* The call's arguments go when its handler returns. */
static CUresult copy_inputs(struct link_job *self, const flyt_image_link_args *args)
{
    unsigned count = args->inputs.inputs_len;
    self->inputs = calloc(count + 1, sizeof *self->inputs);
    if (!self->inputs)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (self->input_count = 0; self->input_count < count; self->input_count++) {
        const flyt_link_input *from = &args->inputs.inputs_val[self->input_count];
        flyt_link_input *to = &self->inputs[self->input_count];
        size_t option_bytes = from->options.options_len * sizeof *from->options.options_val;
        *to = *from;
        to->name = strdup(from->name);
        to->options.options_val = malloc(option_bytes + 1);
        if (!to->name || !to->options.options_val) {
            self->input_count++;
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (option_bytes)
            memcpy(to->options.options_val, from->options.options_val, option_bytes);
    }
    return CUDA_SUCCESS;
}

static CUresult add_input(struct link_job *self, CUlinkState state, const flyt_link_input *input)
{
    const struct flyt_session *session = self->job.session;
    char *image;
    uint64_t bytes;
    int status = flyt_image_cache_get(session->images, (const unsigned char *)input->image_hash, &image, &bytes);
    if (status)
        return status == -ENOENT ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_OUT_OF_MEMORY;
    struct flyt_jit *jit = calloc(1, sizeof *jit);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (jit)
        result = flyt_jit_init(jit, input->options.options_val, input->options.options_len, FLYT_JIT_INPUT);
    if (result == CUDA_SUCCESS) /* PTX is counted with its NUL, which the copy has */
        result = session->driver->cuLinkAddData(state, (CUjitInputType)input->kind, image,
                                                bytes + (input->kind == CU_JIT_INPUT_PTX), input->name,
                                                jit->option_count, jit->options, jit->values);
    else if (jit)
        memcpy(self->jit.error_log, jit->error_log, sizeof jit->error_log);
    flyt_jit_explain(&self->jit, result, image, bytes);
    free(jit);
    free(image);
    return result;
}

/* Keeps the linked image, which belongs to the state. */
static CUresult keep_image(struct link_job *self, const void *image, size_t bytes)
{
    unsigned char hash[FLYT_HASH_BYTES];
    if (!bytes || bytes > FLYT_IMAGE_BYTES_MAX)
        return CUDA_ERROR_INVALID_IMAGE;
    flyt_sha256_of(image, bytes, hash);
    int status = flyt_image_cache_put(self->job.session->images, hash, image, bytes);
    if (status) {
        flyt_warn("session %s: a linked image of %zu bytes is not kept: %s", self->job.session->label, bytes,
                  strerror(-status));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(self->res.image_hash, hash, sizeof hash);
    self->res.bytes = bytes;
    return CUDA_SUCCESS;
}

static CUresult link_images(struct link_job *self)
{
    const struct flyt_session *session = self->job.session;
    const struct flyt_driver *driver = session->driver;
    struct flyt_jit *jit = &self->jit;
    CUlinkState state;
    void *image;
    size_t bytes;
    CUresult result = driver->cuCtxSetCurrent(session->devices[0].cu_primary);
    if (result == CUDA_SUCCESS)
        result = driver->cuLinkCreate(jit->option_count, jit->options, jit->values, &state);
    if (result != CUDA_SUCCESS)
        return result;
    for (unsigned i = 0; i < self->input_count && result == CUDA_SUCCESS; i++)
        result = add_input(self, state, &self->inputs[i]);
    if (result == CUDA_SUCCESS && !self->is_trial) {
        result = driver->cuLinkComplete(state, &image, &bytes);
        if (result == CUDA_SUCCESS)
            result = keep_image(self, image, bytes);
    }
    CUresult destroyed = driver->cuLinkDestroy(state);
    return result == CUDA_SUCCESS ? destroyed : result;
}

static CUresult link_run(struct flyt_job *job)
{
    return link_images((struct link_job *)job);
}

static void link_finish(struct flyt_job *job, CUresult result)
{
    struct link_job *self = (struct link_job *)job;
    self->res.info_log = self->jit.info_log;
    self->res.error_log = self->jit.error_log;
    if (result != CUDA_SUCCESS)
        flyt_debug("session %s: images are not linked, cuda_result=%d: %s", job->session->label, (int)result,
                   self->jit.error_log);
    flyt_job_reply_with(job, result, &self->res, sizeof self->res);
}

static void link_free(struct flyt_job *job)
{
    struct link_job *self = (struct link_job *)job;
    free_inputs(self->inputs, self->input_count);
    free(self);
}

static const struct flyt_job_ops link_ops = {NULL, link_finish, link_free};

CUresult flyt_serve_image_link(struct flyt_call *call, const flyt_image_link_args *args, flyt_image_link_res *res)
{
    struct link_job *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = flyt_jit_init(&self->jit, args->options.options_val, args->options.options_len, FLYT_JIT_LINK);
    if (result == CUDA_SUCCESS)
        result = copy_inputs(self, args);
    if (result != CUDA_SUCCESS) {
        if (self->jit.error_log[0])
            res->error_log = strdup(self->jit.error_log);
        link_free(&self->job);
        return result;
    }
    self->is_trial = args->is_trial;
    return flyt_job_on_worker(&self->job, &link_ops, call, link_run);
}

CUresult flyt_serve_image_fetch(struct flyt_call *call, const flyt_image_fetch_args *args, flyt_image_fetch_res *res)
{
    char *data = malloc(FLYT_INLINE_BYTES_MAX);
    if (!data)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ssize_t bytes = flyt_image_cache_read(call->session->images, (const unsigned char *)args->image_hash,
                                          args->offset_bytes, data, FLYT_INLINE_BYTES_MAX);
    if (bytes < 0) {
        free(data);
        return bytes == -ENOENT ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_UNKNOWN;
    }
    res->data.data_val = data;
    res->data.data_len = (u_int)bytes;
    return CUDA_SUCCESS;
}
