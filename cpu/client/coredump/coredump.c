#include "cpu/client/coredump/coredump.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "rpc/base/log.h"

static const unsigned known_flags = CU_COREDUMP_LIGHTWEIGHT_FLAGS | CU_COREDUMP_SKIP_ABORT;

struct settings {
    bool is_enabled, is_of_host;
    unsigned flags;                      /* CUCoredumpGenerationFlags */
    char file[FLYT_COREDUMP_NAME_BYTES]; /* empty: the default */
};

/* A context that has begun with something else than what CUDA begins with, or has set something. */
struct record {
    struct record *next;
    uint64_t context_id;
    int device;
    bool has_begun_enabled; /* else it leaves no dump, whatever it sets */
    struct settings settings;
};

static const struct settings defaults = {.is_of_host = true};

static struct {
    pthread_once_t once;
    pthread_mutex_t mutex; /* held across calls */
    struct settings common;
    char pipe[FLYT_COREDUMP_NAME_BYTES];
    unsigned fixed; /* attributes that the environment has set: a bit each, by number */
    struct record *records;
    _Atomic bool is_common_set; /* something in `common` is not CUDA's default */
} coredumps = {.once = PTHREAD_ONCE_INIT, .mutex = PTHREAD_MUTEX_INITIALIZER};

/* What the server was told, by device: flags, and above them whether there is to be a dump. */
static _Atomic uint64_t told[FLYT_DEVICES_MAX];
#define TOLD_ENABLED ((uint64_t)1 << 32)

FLYT_ANSWER_CALL(coredump_set)

/* ---- the environment ---- */

static bool read_switch(const char *variable, CUcoredumpSettings attribute, bool *value)
{
    const char *text = getenv(variable);
    if (!text || !*text)
        return false;
    *value = strcmp(text, "0") != 0;
    coredumps.fixed |= 1u << attribute;
    return true;
}

static void read_name(const char *variable, CUcoredumpSettings attribute, char *name)
{
    const char *text = getenv(variable);
    if (!text || !*text || strlen(text) >= FLYT_COREDUMP_NAME_BYTES)
        return;
    strcpy(name, text);
    coredumps.fixed |= 1u << attribute;
}

/* Names by commas, as cuda-gdb's documentation has them. */
static void read_flags(void)
{
    static const struct {
        const char *name;
        unsigned flag;
    } names[] = {
        {"skip_nonrelocated_elf_images", CU_COREDUMP_SKIP_NONRELOCATED_ELF_IMAGES},
        {"skip_global_memory", CU_COREDUMP_SKIP_GLOBAL_MEMORY},
        {"skip_shared_memory", CU_COREDUMP_SKIP_SHARED_MEMORY},
        {"skip_local_memory", CU_COREDUMP_SKIP_LOCAL_MEMORY},
        {"skip_abort", CU_COREDUMP_SKIP_ABORT},
        {"skip_constbank_memory", CU_COREDUMP_SKIP_CONSTBANK_MEMORY},
    };
    const char *text = getenv("CUDA_COREDUMP_GENERATION_FLAGS");
    if (!text || !*text)
        return;
    coredumps.fixed |= 1u << CU_COREDUMP_GENERATION_FLAGS;
    for (size_t bytes; *text; text += bytes + (text[bytes] == ',')) {
        bytes = strcspn(text, ",");
        for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
            if (strlen(names[i].name) == bytes && strncmp(names[i].name, text, bytes) == 0)
                coredumps.common.flags |= names[i].flag;
    }
}

static void read_environment(void)
{
    bool is_light = false, is_triggered = false;
    coredumps.common = defaults;
    read_switch("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", CU_COREDUMP_ENABLE_ON_EXCEPTION, &coredumps.common.is_enabled);
    read_switch("CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION", CU_COREDUMP_TRIGGER_HOST, &coredumps.common.is_of_host);
    if (read_switch("CUDA_ENABLE_LIGHTWEIGHT_COREDUMP", CU_COREDUMP_LIGHTWEIGHT, &is_light) && is_light)
        coredumps.common.flags |= CU_COREDUMP_LIGHTWEIGHT_FLAGS;
    read_flags();
    read_name("CUDA_COREDUMP_FILE", CU_COREDUMP_FILE, coredumps.common.file);
    read_name("CUDA_COREDUMP_PIPE", CU_COREDUMP_PIPE, coredumps.pipe);
    atomic_store(&coredumps.is_common_set, coredumps.fixed != 0);
    if (read_switch("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", CU_COREDUMP_ENABLE_USER_TRIGGER, &is_triggered) &&
        is_triggered)
        flyt_not_supported("CUDA_ENABLE_USER_TRIGGERED_COREDUMP");
}

void flyt_coredump_init(void)
{
    pthread_once(&coredumps.once, read_environment);
}

/* ---- values ---- */

static size_t bytes_of(CUcoredumpSettings attribute)
{
    switch (attribute) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_TRIGGER_HOST:
    case CU_COREDUMP_LIGHTWEIGHT:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
        return sizeof(bool);
    case CU_COREDUMP_FILE:
    case CU_COREDUMP_PIPE:
        return FLYT_COREDUMP_NAME_BYTES;
    case CU_COREDUMP_GENERATION_FLAGS:
        return sizeof(int);
    default:
        return 0;
    }
}

static CUresult read_bool(bool is_on, void *value)
{
    memcpy(value, &is_on, sizeof is_on);
    return CUDA_SUCCESS;
}

static CUresult read_text(const char *name, char *value, size_t bytes)
{
    if (strlen(name) >= bytes)
        return CUDA_ERROR_INVALID_VALUE;
    strcpy(value, name);
    return CUDA_SUCCESS;
}

static CUresult read_value(const struct settings *settings, CUcoredumpSettings attribute, void *value, size_t bytes)
{
    const size_t needed = bytes_of(attribute);
    if (needed != FLYT_COREDUMP_NAME_BYTES && bytes != needed)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
        return read_bool(settings->is_enabled, value);
    case CU_COREDUMP_TRIGGER_HOST:
        return read_bool(settings->is_of_host, value);
    case CU_COREDUMP_LIGHTWEIGHT:
        return read_bool((settings->flags & CU_COREDUMP_LIGHTWEIGHT_FLAGS) == CU_COREDUMP_LIGHTWEIGHT_FLAGS, value);
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
        return read_bool(false, value);
    case CU_COREDUMP_GENERATION_FLAGS:
        memcpy(value, &settings->flags, sizeof settings->flags);
        return CUDA_SUCCESS;
    case CU_COREDUMP_FILE:
        return read_text(settings->file, value, bytes);
    default:
        return read_text(coredumps.pipe, value, bytes);
    }
}

/* A name ends with a 0 or with its bytes. */
static CUresult write_text(char *name, const char *value, size_t bytes)
{
    bytes = strnlen(value, bytes);
    if (!bytes || bytes >= FLYT_COREDUMP_NAME_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(name, value, bytes);
    name[bytes] = 0;
    return CUDA_SUCCESS;
}

static CUresult write_flags(struct settings *settings, const void *value, size_t bytes)
{
    unsigned flags;
    if (bytes < sizeof flags)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&flags, value, sizeof flags);
    if (flags & ~known_flags)
        return CUDA_ERROR_INVALID_VALUE;
    settings->flags = flags;
    return CUDA_SUCCESS;
}

/* Of those that a context and the process have. */
static CUresult write_value(struct settings *settings, CUcoredumpSettings attribute, const void *value, size_t bytes)
{
    bool is_on = bytes && *(const unsigned char *)value;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
        settings->is_enabled = is_on;
        return CUDA_SUCCESS;
    case CU_COREDUMP_TRIGGER_HOST:
        settings->is_of_host = is_on;
        return CUDA_SUCCESS;
    case CU_COREDUMP_LIGHTWEIGHT:
        settings->flags &= ~(unsigned)CU_COREDUMP_LIGHTWEIGHT_FLAGS;
        settings->flags |= is_on ? CU_COREDUMP_LIGHTWEIGHT_FLAGS : 0;
        return CUDA_SUCCESS;
    case CU_COREDUMP_GENERATION_FLAGS:
        return write_flags(settings, value, bytes);
    default:
        return write_text(settings->file, value, bytes);
    }
}

/* ---- the server ---- */

/* What it is to be told of the device. What a dump leaves out is the process's to say, when the fault comes: what a
 * context sets of it is read again, and does nothing (NVIDIA's driver 580). */
static uint64_t wanted_locked(int device)
{
    const struct record *record = coredumps.records;
    while (record && !(record->device == device && record->has_begun_enabled && record->settings.is_enabled))
        record = record->next;
    return record ? TOLD_ENABLED | coredumps.common.flags : 0;
}

static CUresult tell_locked(int device, uint64_t wanted)
{
    if (wanted == atomic_load(&told[device]))
        return CUDA_SUCCESS;
    flyt_coredump_set_args args = {.thread = flyt_thread_number(),
                                   .device = (unsigned)device,
                                   .is_enabled = wanted >> 32 & 1,
                                   .flags = (uint32_t)wanted};
    flyt_coredump_set_res res = {0};
    int status = call_coredump_set(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "coredump_set");
    if (!result)
        atomic_store(&told[device], wanted);
    flyt_answer_end();
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        flyt_not_supported("a core dump of the GPU, for which the server has no folder,");
    else if (result == CUDA_ERROR_ILLEGAL_STATE)
        flyt_not_supported("a core dump of a GPU that the program used already before it asked for one");
    return result;
}

/* The process's flags have changed. */
static void tell_all_locked(void)
{
    for (int device = 0; device < FLYT_DEVICES_MAX; device++)
        if (atomic_load(&told[device]))
            tell_locked(device, wanted_locked(device));
}

/* ---- contexts and the process ---- */

static struct record *find_locked(uint64_t context_id)
{
    struct record *record = coredumps.records;
    while (record && record->context_id != context_id)
        record = record->next;
    return record;
}

static struct record *add_locked(uint64_t context_id, int device, const struct settings *settings)
{
    struct record *record = malloc(sizeof *record);
    if (!record)
        return NULL;
    *record =
        (struct record){.next = coredumps.records, .context_id = context_id, .device = device, .settings = *settings};
    coredumps.records = record;
    return record;
}

static CUresult read_attribute(uint64_t context_id, CUcoredumpSettings attribute, void *value, size_t bytes)
{
    flyt_coredump_init();
    pthread_mutex_lock(&coredumps.mutex);
    const struct record *record = context_id ? find_locked(context_id) : NULL;
    const struct settings *settings = record ? &record->settings : context_id ? &defaults : &coredumps.common;
    CUresult result = read_value(settings, attribute, value, bytes);
    pthread_mutex_unlock(&coredumps.mutex);
    return result;
}

static CUresult write_of_context_locked(uint64_t context_id, int device, CUcoredumpSettings attribute,
                                        const void *value, size_t bytes)
{
    if (attribute == CU_COREDUMP_PIPE || attribute == CU_COREDUMP_ENABLE_USER_TRIGGER)
        return CUDA_ERROR_NOT_PERMITTED;
    struct record *record = find_locked(context_id);
    if (!record)
        record = add_locked(context_id, device, &defaults);
    if (!record)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = write_value(&record->settings, attribute, value, bytes);
    if (!result && attribute == CU_COREDUMP_ENABLE_ON_EXCEPTION) {
        if (record->settings.is_enabled && !record->has_begun_enabled)
            flyt_info("a context that began without core dumps of the GPU leaves none, as with NVIDIA's driver");
        result = tell_locked(device, wanted_locked(device));
    }
    return result;
}

static CUresult write_of_process_locked(CUcoredumpSettings attribute, const void *value, size_t bytes)
{
    CUresult result;
    if (attribute == CU_COREDUMP_ENABLE_USER_TRIGGER)
        result = bytes && *(const unsigned char *)value ? flyt_not_supported("a core dump that a user's pipe triggers")
                                                        : CUDA_SUCCESS;
    else if (attribute == CU_COREDUMP_PIPE)
        result = write_text(coredumps.pipe, value, bytes);
    else
        result = write_value(&coredumps.common, attribute, value, bytes);
    if (!result)
        atomic_store(&coredumps.is_common_set, true);
    if (!result && (attribute == CU_COREDUMP_GENERATION_FLAGS || attribute == CU_COREDUMP_LIGHTWEIGHT))
        tell_all_locked();
    return result;
}

static CUresult write_attribute(uint64_t context_id, int device, CUcoredumpSettings attribute, const void *value,
                                size_t bytes)
{
    flyt_coredump_init();
    pthread_mutex_lock(&coredumps.mutex);
    CUresult result = coredumps.fixed >> attribute & 1 ? CUDA_ERROR_NOT_PERMITTED
                      : context_id ? write_of_context_locked(context_id, device, attribute, value, bytes)
                                   : write_of_process_locked(attribute, value, bytes);
    pthread_mutex_unlock(&coredumps.mutex);
    return result;
}

/* What all calls begin with: there is such an attribute, and a context. */
static CUresult begin(flyt_coredump_context_fn enter, CUcoredumpSettings attribute, const size_t *bytes,
                      uint64_t *ret_context_id, int *ret_device)
{
    *ret_context_id = 0;
    *ret_device = 0;
    return bytes_of(attribute) && bytes ? enter(ret_context_id, ret_device) : CUDA_ERROR_INVALID_VALUE;
}

CUresult flyt_coredump_get(flyt_coredump_context_fn enter, CUcoredumpSettings attribute, void *value, size_t *bytes)
{
    uint64_t context_id;
    int device;
    CUresult result = begin(enter, attribute, bytes, &context_id, &device);
    if (!result && context_id && (attribute == CU_COREDUMP_PIPE || attribute == CU_COREDUMP_ENABLE_USER_TRIGGER))
        result = CUDA_ERROR_INVALID_VALUE; /* they are the process's */
    if (!result && value)
        result = read_attribute(context_id, attribute, value, *bytes);
    else if (!result)
        *bytes = bytes_of(attribute);
    return result;
}

CUresult flyt_coredump_set(flyt_coredump_context_fn enter, CUcoredumpSettings attribute, const void *value,
                           size_t *bytes)
{
    uint64_t context_id;
    int device;
    CUresult result = begin(enter, attribute, bytes, &context_id, &device);
    if (!result && value)
        result = write_attribute(context_id, device, attribute, value, *bytes);
    else if (!result)
        *bytes = bytes_of(attribute);
    return result;
}

/* The process's settings are there before cuInit; in the child of a fork their mutex may be a parent's thread's. */
static CUresult enter_process(uint64_t *ret_context_id, int *ret_device)
{
    return flyt_client_is_forked() ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

CUresult flyt_coredump_get_global(CUcoredumpSettings attribute, void *value, size_t *bytes)
{
    return flyt_coredump_get(enter_process, attribute, value, bytes);
}

CUresult flyt_coredump_set_global(CUcoredumpSettings attribute, const void *value, size_t *bytes)
{
    return flyt_coredump_set(enter_process, attribute, value, bytes);
}

CUresult flyt_coredump_flags_check(unsigned context_flags)
{
    return context_flags & CU_CTX_USER_COREDUMP_ENABLE ? flyt_not_supported("CU_CTX_USER_COREDUMP_ENABLE")
                                                       : CUDA_SUCCESS;
}

void flyt_coredump_begin(uint64_t context_id, int device, unsigned context_flags)
{
    if (!atomic_load(&coredumps.is_common_set) && !(context_flags & CU_CTX_COREDUMP_ENABLE))
        return;
    pthread_mutex_lock(&coredumps.mutex);
    struct record *record = find_locked(context_id);
    if (!record)
        record = add_locked(context_id, device, &coredumps.common);
    if (record) {
        record->settings.is_enabled |= (context_flags & CU_CTX_COREDUMP_ENABLE) != 0;
        record->has_begun_enabled = record->settings.is_enabled;
    } else {
        flyt_warn("a context begins without what was set of core dumps: out of memory");
    }
    tell_locked(device, wanted_locked(device));
    pthread_mutex_unlock(&coredumps.mutex);
}

void flyt_coredump_clear(uint64_t context_id, bool is_on_server)
{
    pthread_mutex_lock(&coredumps.mutex);
    struct record **link = &coredumps.records;
    while (*link && (*link)->context_id != context_id)
        link = &(*link)->next;
    struct record *record = *link;
    if (record) {
        *link = record->next;
        tell_locked(record->device, wanted_locked(record->device));
        free(record);
    }
    pthread_mutex_unlock(&coredumps.mutex);
}

void flyt_coredump_before_reset(int device, uint64_t context_id)
{
    flyt_coredump_clear(context_id, true);
}

/* A server that makes no dumps takes the session all the same: they are said to be not supported. */
int flyt_coredump_restore(struct flyt_restore *restore)
{
    int status = 0;
    for (unsigned device = 0; device < FLYT_DEVICES_MAX && !status; device++) {
        uint64_t wanted = atomic_load(&told[device]);
        if (!wanted)
            continue;
        flyt_coredump_set_args args = {
            .thread = FLYT_RESTORE_THREAD, .device = device, .is_enabled = 1, .flags = (uint32_t)wanted};
        flyt_coredump_set_res res = {0};
        int called = flyt_call_coredump_set(restore->fresh, &args, &res);
        bool is_refused = called == FLYT_CHANNEL_UNSUPPORTED ||
                          (called == FLYT_CHANNEL_OK &&
                           (res.result == CUDA_ERROR_NOT_SUPPORTED || res.result == CUDA_ERROR_ILLEGAL_STATE));
        if (is_refused)
            flyt_not_supported("a core dump of the GPU at the server where the program goes on");
        else
            status = flyt_restore_answered(restore, called, res.result, "core dumps of device %u", device);
    }
    return status;
}
