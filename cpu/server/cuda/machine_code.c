#include "cpu/server/cuda/machine_code.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/code/footprint.h"
#include "cpu/server/cuda/image_cache.h"
#include "cpu/server/code/image_code.h"
#include "cpu/server/code/image_refusal.h"
#include "cpu/server/code/image_state.h"
#include "cpu/server/core/session.h"
#include "rpc/base/build_name.h"
#include "rpc/base/log.h"
#include "rpc/base/sha256.h"

static bool is_elf(const char *image, uint64_t bytes)
{
    return bytes >= SELFMAG && memcmp(image, ELFMAG, SELFMAG) == 0;
}

/* ---- compiling ---- */

/* Everything that machine code depends on. */
struct key {
    char build[64];
    unsigned char text_hash[FLYT_SHA256_BYTES];
    int32_t major, minor, driver_version, is_soft;
    struct {
        int32_t id;
        uint32_t value;
    } options[FLYT_OPTIONS_MAX];
};

static void make_key(const struct flyt_session *session, const char *text, uint64_t bytes, int major, int minor,
                     const flyt_load_option *options, unsigned option_count, unsigned char *ret_key)
{
    struct key key;
    memset(&key, 0, sizeof key);
    snprintf(key.build, sizeof key.build, "%s", flyt_build_name);
    flyt_sha256_of(text, bytes, key.text_hash);
    key.major = major;
    key.minor = minor;
    key.driver_version = session->driver_version;
    key.is_soft = session->driver->is_soft;
    for (unsigned i = 0; i < option_count && i < FLYT_OPTIONS_MAX; i++) {
        key.options[i].id = (int32_t)options[i].id;
        key.options[i].value = (uint32_t)options[i].value;
    }
    flyt_sha256_of(&key, sizeof key, ret_key);
}

/* What was made before, or what the linker makes now. The linker's code: it does not take it. */
static CUresult compile(struct flyt_session *session, const char *text, uint64_t bytes, const unsigned char *key,
                        struct flyt_jit *jit, struct flyt_machine_code *code)
{
    if (flyt_image_cache_get_code(session->images, key, &code->image, &code->bytes) == 0)
        return CUDA_SUCCESS;
    CUresult result = flyt_jit_link(session->driver, text, bytes + 1, "module", jit, &code->image, &code->bytes);
    if (result != CUDA_SUCCESS)
        return result;
    int status = flyt_image_cache_put_code(session->images, key, code->image, code->bytes);
    if (status)
        flyt_debug("session %s: machine code of %llu bytes is not kept: %s", session->label,
                   (unsigned long long)code->bytes, strerror(-status));
    return CUDA_SUCCESS;
}

/* ---- judging ---- */

static CUresult judge_code(const struct flyt_session *session, const char *ptx, struct flyt_jit *jit,
                           struct flyt_machine_code *code)
{
    char why[512];
    if (!flyt_footprint_of_code(code->image, code->bytes, &code->footprint_bytes))
        return flyt_jit_refuse(jit, CUDA_ERROR_INVALID_IMAGE, "the machine code is damaged");
    if (flyt_image_refusal_of_code(code->image, code->bytes, why, sizeof why))
        return flyt_jit_refuse(jit, CUDA_ERROR_NOT_SUPPORTED, "%s", why);
    code->function_bytes = flyt_footprint_of_functions(code->image, code->bytes);
    if (!session->manager)
        return CUDA_SUCCESS;
    code->state = flyt_image_state(code->image, code->bytes, ptx);
    code->symbols_status = flyt_image_symbols(code->image, code->bytes, &code->symbols);
    return CUDA_SUCCESS;
}

/* PTX begins with its version; the driver gets nothing else that it might take for an image of another kind. */
static bool is_ptx(const char *text)
{
    size_t bytes;
    const char *first = flyt_ptx_token(text, &bytes);
    return first && flyt_ptx_is(first, bytes, ".version");
}

/* The driver may have the text as it is. */
static void judge_text(struct flyt_machine_code *code)
{
    code->footprint_bytes = flyt_footprint_at_most(code->image);
    code->state = FLYT_IMAGE_UNKNOWN;
    code->symbols_status = -EBADMSG;
}

/* `code` has the text, which is let go of where machine code is made of it. */
static CUresult make_of_text(struct flyt_session *session, int major, int minor, const flyt_load_option *options,
                             unsigned option_count, struct flyt_jit *jit, struct flyt_machine_code *code)
{
    unsigned char key[FLYT_SHA256_BYTES];
    char why[512], *text = code->image;
    code->bytes = strlen(text); /* a compiler reads no further */
    if (!is_ptx(text))
        return flyt_jit_refuse(jit, CUDA_ERROR_INVALID_IMAGE, "neither PTX, machine code nor a fat binary, or damaged");
    if (flyt_image_refusal_of_ptx(text, why, sizeof why))
        return flyt_jit_refuse(jit, CUDA_ERROR_NOT_SUPPORTED, "%s", why);
    if (flyt_image_blocks(text, &code->blocks) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    make_key(session, text, code->bytes, major, minor, options, option_count, key);
    struct flyt_machine_code linked = {.is_linked = true, .blocks = code->blocks};
    CUresult result = compile(session, text, code->bytes, key, jit, &linked);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    if (result != CUDA_SUCCESS) {
        flyt_debug("session %s: a module is not linked, cuda_result=%d: %s", session->label, (int)result,
                   jit->error_log);
        judge_text(code);
        return CUDA_SUCCESS;
    }
    result = judge_code(session, text, jit, &linked);
    free(text);
    *code = linked;
    return result;
}

/* ---- all of it ---- */

static CUresult choose(const char *image, uint64_t bytes, int major, int minor, bool runs_code,
                       struct flyt_machine_code *code, struct flyt_jit *jit)
{
    int status = flyt_image_choose(image, bytes, major, minor, runs_code, &code->image, &code->bytes);
    if (status == -ENOMEM)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (status == -ENOENT)
        return flyt_jit_refuse(jit, CUDA_ERROR_NO_BINARY_FOR_GPU, "%s",
                               runs_code ? "no image for this device" : "machine code only, no PTX for this device");
    return status ? flyt_jit_refuse(jit, CUDA_ERROR_INVALID_IMAGE,
                                    "neither PTX, machine code nor a fat binary, or damaged")
                  : CUDA_SUCCESS;
}

static CUresult make(struct flyt_session *session, const char *image, uint64_t bytes, const flyt_load_option *options,
                     unsigned option_count, struct flyt_jit *jit, struct flyt_machine_code *code)
{
    const struct flyt_driver *driver = session->driver;
    const CUdevice cu_device = session->devices[0].cu_device;
    int major = 0, minor = 0;
    CUresult result = driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, cu_device);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, cu_device);
    if (result == CUDA_SUCCESS)
        result = choose(image, bytes, major, minor, !driver->is_soft, code, jit);
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_elf(code->image, code->bytes))
        return make_of_text(session, major, minor, options, option_count, jit, code);
    /* PTX of the same module tells more than its machine code (image_state.h, image_blocks.h). */
    struct flyt_machine_code text = {0};
    if (flyt_fatbin_is(image))
        flyt_image_choose(image, bytes, major, minor, false, &text.image, &text.bytes);
    result = judge_code(session, text.image, jit, code);
    if (result == CUDA_SUCCESS && text.image && flyt_image_blocks(text.image, &code->blocks) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    free(text.image);
    return result;
}

CUresult flyt_machine_code_make(struct flyt_session *session, const char *image, uint64_t bytes,
                                const flyt_load_option *options, unsigned option_count, struct flyt_jit *jit,
                                struct flyt_machine_code *ret_code)
{
    struct flyt_machine_code code = {0};
    CUresult result = flyt_jit_init(jit, options, option_count, FLYT_JIT_LINK);
    if (result == CUDA_SUCCESS)
        result = make(session, image, bytes, options, option_count, jit, &code);
    /* What is given to the driver as it is comes with all options, and the driver's own logs. */
    if (result == CUDA_SUCCESS && !code.is_linked)
        result = flyt_jit_init(jit, options, option_count, FLYT_JIT_LOAD);
    if (result == CUDA_SUCCESS)
        *ret_code = code;
    else
        flyt_machine_code_fini(&code);
    return result;
}

void flyt_machine_code_fini(struct flyt_machine_code *code)
{
    free(code->image);
    flyt_image_symbols_free(&code->symbols);
    flyt_image_blocks_free(&code->blocks);
    *code = (struct flyt_machine_code){0};
}

CUresult flyt_machine_code_load(const struct flyt_driver *driver, const struct flyt_machine_code *code,
                                struct flyt_jit *jit, CUlibrary *ret_library)
{
    return driver->cuLibraryLoadData(ret_library, code->image, jit->options, jit->values,
                                     code->is_linked ? 0 : jit->option_count, NULL, NULL, 0);
}
