#include "cpu/client/green/green.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/part.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/table.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/stream_record.h"

FLYT_ANSWER_CALL(green_units)
FLYT_ANSWER_CALL(green_create)

enum { WORDS = FLYT_SM_UNITS_MAX / 64, FLAGS_KNOWN = 3, MAGIC = 0x464c5953 };
_Static_assert(FLAGS_KNOWN == (CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                               CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE),
               "all flags that there are");
_Static_assert(sizeof((flyt_green_create_args){0}.ranks) == WORDS * sizeof(uint64_t), "a bit for each group");

/* Some of a device's SM groups. */
struct set {
    uint32_t magic, device;
    uint64_t split; /* of which it is a result; 0: of none, so that it can be split */
    uint64_t ranks[WORDS];
};
_Static_assert(sizeof(struct set) <= sizeof((CUdevResource){0}._internal_padding), "kept in the resource");

struct descriptor {
    struct descriptor *next;
    struct set set;
};

struct green {
    struct flyt_record record;
    struct set set;
    CUcontext context;
    CUstream gate; /* waits for what streams that are made later have to come after; NULL: nothing */
};

static struct flyt_table table = FLYT_TABLE_INIT(FLYT_ID_GREEN, struct green, 1);

static struct {
    pthread_mutex_t mutex;
    struct descriptor *descriptors;
    uint64_t last_split;
    /* What the server has told last. */
    struct units {
        unsigned count, group_size, sms[FLYT_SM_UNITS_MAX];
    } units[FLYT_DEVICES_MAX];
} books = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct green *find(CUgreenCtx handle)
{
    return flyt_table_find(&table, (uint64_t)(uintptr_t)handle);
}

/* ---- sets of groups ---- */

static bool has(const struct set *set, unsigned rank)
{
    return set->ranks[rank / 64] >> (rank % 64) & 1;
}

static void add(struct set *set, unsigned rank)
{
    set->ranks[rank / 64] |= 1ull << (rank % 64);
}

static unsigned sms_of(const struct set *set)
{
    unsigned sum = 0;
    pthread_mutex_lock(&books.mutex);
    const struct units *units = &books.units[set->device];
    for (unsigned rank = 0; rank < units->count; rank++)
        sum += has(set, rank) ? units->sms[rank] : 0;
    pthread_mutex_unlock(&books.mutex);
    return sum;
}

/* A resource that has no SMs is none. */
static void show(const struct set *set, CUdevResource *ret_resource)
{
    const unsigned sm_count = sms_of(set);
    *ret_resource = (CUdevResource){0};
    if (!sm_count)
        return;
    memcpy(ret_resource->_internal_padding, set, sizeof *set);
    ret_resource->type = CU_DEV_RESOURCE_TYPE_SM;
    ret_resource->sm.smCount = sm_count;
    ret_resource->sm.minSmPartitionSize = ret_resource->sm.smCoscheduledAlignment = books.units[set->device].group_size;
}

static CUresult take(const CUdevResource *resource, struct set *ret_set)
{
    if (resource->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    memcpy(ret_set, resource->_internal_padding, sizeof *ret_set);
    return ret_set->magic == MAGIC && ret_set->device < flyt_client.device_count ? CUDA_SUCCESS
                                                                                 : CUDA_ERROR_INVALID_VALUE;
}

/* Asks the server which groups there are. All of them, as a set. */
static CUresult look(int device, struct set *ret_all)
{
    flyt_green_units_args args = {.thread = flyt_thread_number(), .device = (unsigned)device};
    flyt_green_units_res res = {0};
    int status = call_green_units(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "green_units");
    *ret_all = (struct set){.magic = MAGIC, .device = (uint32_t)device};
    pthread_mutex_lock(&books.mutex);
    struct units *units = &books.units[device];
    if (!result) {
        units->group_size = res.group_size;
        units->count = res.sms.sms_len;
        memcpy(units->sms, res.sms.sms_val, res.sms.sms_len * sizeof units->sms[0]);
        for (unsigned rank = 0; rank < units->count; rank++)
            add(ret_all, rank);
    }
    pthread_mutex_unlock(&books.mutex);
    flyt_answer_end();
    return result;
}

/* ---- resources ---- */

static CUresult check_type(CUdevResourceType type)
{
    return type == CU_DEV_RESOURCE_TYPE_SM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

CUresult flyt_green_device_resource(int device, CUdevResourceType type, CUdevResource *ret_resource)
{
    struct set all;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_device_check(device);
    if (!result)
        result = check_type(type);
    if (!result)
        result = look(device, &all);
    if (!result)
        show(&all, ret_resource);
    return result;
}

CUresult flyt_green_resource(CUgreenCtx handle, CUdevResourceType type, CUdevResource *ret_resource)
{
    struct set all;
    CUresult result = flyt_client_enter();
    const struct green *green = find(handle);
    if (!result)
        result = check_type(type);
    if (!result && !green)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (!result)
        result = look((int)green->set.device, &all);
    if (!result) {
        struct set set = green->set;
        set.split = 0;
        show(&set, ret_resource);
    }
    return result;
}

CUresult flyt_green_context_resource(CUcontext context, CUdevResourceType type, CUdevResource *ret_resource)
{
    int device;
    CUresult result = flyt_client_enter();
    if (!result)
        result = check_type(type);
    if (!result)
        result = context ? flyt_context_device_any(context, &device) : CUDA_ERROR_INVALID_CONTEXT;
    if (result)
        return result;
    const uint64_t green_id = flyt_context_green((uint64_t)(uintptr_t)context);
    return green_id ? flyt_green_resource((CUgreenCtx)(uintptr_t)green_id, type, ret_resource)
                    : flyt_green_device_resource(device, type, ret_resource);
}

/* The ranks of whole groups that the set has, and how many SM groups one of at least min_count SMs takes. */
static unsigned whole_ranks(const struct set *set, unsigned min_count, unsigned ret_ranks[FLYT_SM_UNITS_MAX],
                            unsigned *ret_each)
{
    unsigned count = 0;
    pthread_mutex_lock(&books.mutex);
    const struct units *units = &books.units[set->device];
    const unsigned size = units->group_size ? units->group_size : 1;
    for (unsigned rank = 0; rank < units->count; rank++)
        if (has(set, rank) && units->sms[rank] == units->group_size)
            ret_ranks[count++] = rank;
    pthread_mutex_unlock(&books.mutex);
    *ret_each = min_count > size ? (min_count + size - 1) / size : 1;
    return count;
}

CUresult flyt_green_split(CUdevResource *results, unsigned *in_out_count, const CUdevResource *input,
                          CUdevResource *ret_remaining, unsigned flags, unsigned min_count)
{
    unsigned ranks[FLYT_SM_UNITS_MAX], each;
    struct set set;
    CUresult result = flyt_client_enter();
    if (!result)
        result = results && !*in_out_count ? CUDA_ERROR_INVALID_VALUE : take(input, &set);
    if (!result && flags & ~(unsigned)FLAGS_KNOWN)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && (set.split || min_count > input->sm.smCount))
        result = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (result)
        return result;
    unsigned count = whole_ranks(&set, min_count, ranks, &each) / each;
    if (!results) {
        *in_out_count = count;
        return CUDA_SUCCESS;
    }
    count = count < *in_out_count ? count : *in_out_count;
    if (!count)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    pthread_mutex_lock(&books.mutex);
    const uint64_t split = ++books.last_split;
    pthread_mutex_unlock(&books.mutex);
    struct set left = set;
    left.split = split;
    for (unsigned i = 0; i < count; i++) {
        struct set group = {.magic = MAGIC, .device = set.device, .split = split};
        for (unsigned k = i * each; k < (i + 1) * each; k++) {
            add(&group, ranks[k]);
            left.ranks[ranks[k] / 64] &= ~(1ull << (ranks[k] % 64));
        }
        show(&group, &results[i]);
    }
    if (ret_remaining)
        show(&left, ret_remaining);
    *in_out_count = count;
    return CUDA_SUCCESS;
}

/* The descriptor of the set; NULL: no memory. */
static struct descriptor *describe_locked(const struct set *set)
{
    struct descriptor *one = books.descriptors;
    while (one && (one->set.device != set->device || memcmp(one->set.ranks, set->ranks, sizeof set->ranks) != 0))
        one = one->next;
    if (!one) {
        one = malloc(sizeof *one);
        if (!one)
            return NULL;
        *one = (struct descriptor){.next = books.descriptors, .set = *set};
        books.descriptors = one;
    }
    return one;
}

CUresult flyt_green_describe(const CUdevResource *resources, unsigned count, CUdevResourceDesc *ret_desc)
{
    struct set all = {.magic = MAGIC}, one;
    CUresult result = flyt_client_enter();
    for (unsigned i = 0; i < count && !result; i++) {
        result = take(&resources[i], &one);
        /* The manual asks for results of one split; the driver of 13.0 takes others, too. */
        if (!result && i && one.device != all.device)
            result = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        if (result)
            break;
        all.device = one.device;
        for (unsigned word = 0; word < WORDS; word++)
            all.ranks[word] |= one.ranks[word];
    }
    if (result)
        return result;
    pthread_mutex_lock(&books.mutex);
    struct descriptor *desc = describe_locked(&all);
    pthread_mutex_unlock(&books.mutex);
    if (!desc)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_desc = (CUdevResourceDesc)desc;
    return CUDA_SUCCESS;
}

/* ---- green contexts ---- */

static flyt_green_create_args args_of(const struct green *green, uint32_t thread)
{
    flyt_green_create_args args = {.thread = thread, .green_id = green->record.minted_id, .device = green->set.device};
    memcpy(args.ranks, green->set.ranks, sizeof args.ranks);
    return args;
}

static CUresult ask_for(struct green *green)
{
    flyt_green_create_args args = args_of(green, flyt_thread_number());
    flyt_green_create_res res = {0};
    int status = call_green_create(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "green_create");
    if (!result) {
        green->record.created = 1; /* before any call that comes: the answer is there */
        flyt_table_publish(&green->record);
    }
    flyt_answer_end();
    return result;
}

/* Of a descriptor, or of what is none. */
static bool find_set(CUdevResourceDesc desc, struct set *ret_set)
{
    pthread_mutex_lock(&books.mutex);
    const struct descriptor *one = books.descriptors;
    while (one && (CUdevResourceDesc)one != desc)
        one = one->next;
    if (one)
        *ret_set = one->set;
    pthread_mutex_unlock(&books.mutex);
    return one != NULL;
}

static void end_on_server(struct green *green, bool is_on_server)
{
    flyt_green_destroy_args args = {.thread = flyt_thread_number(), .green_id = green->record.minted_id};
    if (is_on_server && flyt_client_is_usable())
        flyt_send_green_destroy(flyt_client.channel, &args, &green->record.destroyed); /* a loss shows later */
    else
        green->record.destroyed = 1;
}

CUresult flyt_green_create(CUdevResourceDesc desc, int device, unsigned flags, CUgreenCtx *ret_green)
{
    CUcontext primary;
    struct set set;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_device_check(device);
    if (!result && (flags != CU_GREEN_CTX_DEFAULT_STREAM || !find_set(desc, &set)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && set.device != (unsigned)device)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (!result)
        result = flyt_primary_retain(device, &primary);
    if (result)
        return result;
    struct green *green = flyt_table_new(&table);
    if (!green) {
        flyt_primary_release(device);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    green->set = set;
    green->gate = NULL;
    result = ask_for(green);
    if (!result)
        result = flyt_context_new_green(device, green->record.minted_id, &green->context);
    if (result) {
        if (flyt_table_take(&table, green->record.minted_id))
            end_on_server(green, true);
        flyt_table_free(&table, &green->record);
        flyt_primary_release(device);
        return result;
    }
    *ret_green = (CUgreenCtx)(uintptr_t)green->record.minted_id;
    return CUDA_SUCCESS;
}

/* Takes it out, with its context and that one's streams. False: somebody else has. */
static bool end(struct green *green, bool is_on_server)
{
    int device;
    unsigned peers;
    if (!flyt_table_take(&table, green->record.minted_id))
        return false;
    if (!flyt_context_take(green->context, &device, &peers)) {
        FLYT_PARTS_TELL_DOWN(context_end, (uint64_t)(uintptr_t)green->context, is_on_server);
        flyt_context_give_back(green->context);
    }
    end_on_server(green, is_on_server);
    flyt_table_free(&table, &green->record);
    return true;
}

CUresult flyt_green_destroy(CUgreenCtx handle)
{
    CUresult result = flyt_client_enter_release();
    struct green *green = find(handle);
    if (!result && !green)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result)
        return result;
    const int device = (int)green->set.device;
    return end(green, true) ? flyt_primary_release(device) : CUDA_ERROR_INVALID_CONTEXT;
}

void flyt_green_before_reset(int device, uint64_t context_id)
{
    uint32_t slot = 0;
    struct green *green;
    while ((green = flyt_table_next(&table, &slot)))
        if (green->set.device == (unsigned)device)
            end(green, true);
}

CUresult flyt_green_context(CUgreenCtx handle, CUcontext *ret_context)
{
    CUresult result = flyt_client_enter();
    const struct green *green = find(handle);
    if (!result && !green)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (!result)
        *ret_context = green->context;
    return result;
}

CUresult flyt_green_number(CUgreenCtx handle, unsigned long long *ret_number)
{
    uint64_t context_id;
    int device;
    CUresult result = flyt_client_enter();
    if (!result && !handle)
        result = flyt_context_get_of_streams(&context_id, &device);
    if (result)
        return result;
    const struct green *green = find(handle ? handle : (CUgreenCtx)(uintptr_t)flyt_context_green(context_id));
    return green ? flyt_context_number(green->context, ret_number) : CUDA_ERROR_INVALID_CONTEXT;
}

/* ---- streams ---- */

CUresult flyt_green_of_stream(CUstream handle, CUgreenCtx *ret_green)
{
    uint64_t context_id;
    int device;
    struct flyt_stream *stream;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_stream_get(handle, &stream);
    if (result)
        return result;
    context_id = stream->context_id;
    if (stream->is_legacy && flyt_context_get_of_streams(&context_id, &device))
        context_id = 0;
    *ret_green = (CUgreenCtx)(uintptr_t)flyt_context_green(context_id);
    return CUDA_SUCCESS;
}

CUresult flyt_green_stream_create(CUgreenCtx handle, unsigned flags, int priority, CUstream *ret_stream)
{
    CUresult result = flyt_client_enter();
    const struct green *green = find(handle);
    if (!result && !green)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (!result && flags != CU_STREAM_NON_BLOCKING)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_stream_create_in((uint64_t)(uintptr_t)green->context, (int)green->set.device, flags, priority,
                                       ret_stream);
    if (result || !green->gate)
        return result;
    result = flyt_green_pass_gate(green->gate, *ret_stream);
    if (result)
        flyt_stream_destroy(*ret_stream);
    return result;
}

CUstream *flyt_green_gate(CUcontext context)
{
    struct green *green = find((CUgreenCtx)(uintptr_t)flyt_context_green((uint64_t)(uintptr_t)context));
    return green ? &green->gate : NULL;
}

/* ---- at another server ---- */

int flyt_green_restore(struct flyt_restore *restore)
{
    uint32_t slot = 0;
    const struct green *green;
    int status = 0;
    while (!status && (green = flyt_table_next_at(&table, restore->sequence, &slot))) {
        flyt_green_create_args args = args_of(green, FLYT_RESTORE_THREAD);
        flyt_green_create_res res = {0};
        int called = flyt_call_green_create(restore->fresh, &args, &res);
        status = flyt_restore_answered(restore, called, res.result, "green context %#llx",
                                       (unsigned long long)green->record.minted_id);
    }
    return status;
}
