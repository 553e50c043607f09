#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/name.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/placement.h"
#include "control/cluster/model/quota.h"
#include "rpc/base/error.h"
#include "rpc/base/time_slice_rules.h"

enum { DEVICES_MAX = FLYT_SLOTS_MAX, SMS_MAX = 1 << 20, SESSIONS_MAX = 4096, PRIORITY_MAX = 1000 };

/* 2^53: what a double still counts exactly; far above any GPU's memory. */
static const double memory_max_bytes = 9007199254740992.0;

/* Any of BSON's numbers. */
static bool get_number(const cJSON *item, double *ret_number)
{
    static const char *const names[] = {"$numberInt", "$numberLong", "$numberDouble", "$numberDecimal"};
    char *end;

    if (cJSON_IsNumber(item)) {
        *ret_number = item->valuedouble;
        return isfinite(*ret_number);
    }
    for (size_t i = 0; cJSON_IsObject(item) && i < sizeof names / sizeof *names; i++) {
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(item, names[i]);
        if (!cJSON_IsString(text) || !*text->valuestring)
            continue;
        *ret_number = strtod(text->valuestring, &end);
        return !*end && isfinite(*ret_number);
    }
    return false;
}

static const cJSON *field(const cJSON *document, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, name);

    return cJSON_IsNull(item) ? NULL : item;
}

/* A whole number from minimum to maximum; `*number` stays what it is where the field is absent. */
static int read_number(const cJSON *document, const char *name, double minimum, double maximum, double *number,
                       struct flyt_error *err)
{
    const cJSON *item = field(document, name);
    double value;

    if (!item)
        return 0;
    if (cJSON_IsBool(item))
        value = cJSON_IsTrue(item);
    else if (!get_number(item, &value))
        return flyt_error_set(err, -EINVAL, "%s is not a number", name);
    if (value != floor(value))
        return flyt_error_set(err, -EINVAL, "%s is %g, not a whole number", name, value);
    if (value < minimum || value > maximum)
        return flyt_error_set(err, -EINVAL, "%s is %g, not between %g and %g", name, value, minimum, maximum);
    *number = value;
    return 0;
}

static int read_text(const cJSON *document, const char *name, char **text, struct flyt_error *err)
{
    const cJSON *item = field(document, name);

    if (!item || (cJSON_IsString(item) && !*item->valuestring))
        return 0;
    if (!cJSON_IsString(item))
        return flyt_error_set(err, -EINVAL, "%s is not a string", name);
    if (strlen(item->valuestring) > FLYT_NAME_BYTES_MAX)
        return flyt_error_set(err, -EINVAL, "%s is longer than %d bytes", name, FLYT_NAME_BYTES_MAX);
    *text = strdup(item->valuestring);
    return *text ? 0 : flyt_error_set(err, -ENOMEM, "no memory");
}

static int read_names(const cJSON *document, const char *name, struct flyt_name_list *list, struct flyt_error *err)
{
    const cJSON *item = field(document, name), *one = item;
    int count = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : 1;

    if (!item || !count)
        return 0;
    if (count > FLYT_NAMES_MAX)
        return flyt_error_set(err, -EINVAL, "%s has more than %d names", name, FLYT_NAMES_MAX);
    list->names = calloc((size_t)count, sizeof *list->names);
    if (!list->names)
        return flyt_error_set(err, -ENOMEM, "no memory");
    if (cJSON_IsArray(item))
        one = item->child;
    for (int i = 0; i < count; i++, one = one->next) {
        if (!cJSON_IsString(one) || strlen(one->valuestring) > FLYT_NAME_BYTES_MAX)
            return flyt_error_set(err, -EINVAL, "%s is not a list of names", name);
        list->names[i] = strdup(one->valuestring);
        if (!list->names[i])
            return flyt_error_set(err, -ENOMEM, "no memory");
        list->count++;
    }
    return 0;
}

static int read_libraries(const cJSON *document, struct flyt_name_list *list, struct flyt_error *err)
{
    struct flyt_place_libraries libraries = {.count = 0};
    int status = read_names(document, "libraries", list, err);

    for (unsigned i = 0; !status && i < list->count; i++)
        if (!flyt_place_libraries_read(&libraries, list->names[i]))
            status = flyt_error_set(
                err, -EINVAL, "libraries has \"%.64s\", not a library as \"cudnn\" or \"cudnn 9.10\"", list->names[i]);
    return status;
}

static int read_choice(const cJSON *document, const char *name, const char *first, const char *second, int *choice,
                       struct flyt_error *err)
{
    const cJSON *item = field(document, name);

    if (!item || (cJSON_IsString(item) && !*item->valuestring))
        return 0;
    if (!cJSON_IsString(item))
        return flyt_error_set(err, -EINVAL, "%s is neither \"%s\" nor \"%s\"", name, first, second);
    if (!strcmp(item->valuestring, first))
        *choice = 0;
    else if (!strcmp(item->valuestring, second))
        *choice = 1;
    else
        return flyt_error_set(err, -EINVAL, "%s is \"%.64s\", neither \"%s\" nor \"%s\"", name, item->valuestring,
                              first, second);
    return 0;
}

static int read_memory(const cJSON *document, uint64_t *memory_bytes, struct flyt_error *err)
{
    const cJSON *item = field(document, "memory");
    double gib;

    if (!item)
        return flyt_error_set(err, -EINVAL, "memory (GiB) is missing");
    if (!get_number(item, &gib))
        return flyt_error_set(err, -EINVAL, "memory is not a number of GiB");
    double bytes = floor(gib * 1073741824.0 + 0.5);
    if (bytes < 1 || bytes > memory_max_bytes)
        return flyt_error_set(err, -EINVAL, "memory is %g GiB, which no GPU can have", gib);
    *memory_bytes = (uint64_t)bytes;
    return 0;
}

static int read_required(const cJSON *document, struct flyt_desired *desired, struct flyt_error *err)
{
    double sms = 0;
    int status = read_text(document, "vm_ip", &desired->vm_ip, err);

    if (status)
        return status;
    if (!desired->vm_ip)
        return flyt_error_set(err, -EINVAL, "vm_ip is missing");
    if (!flyt_is_address(desired->vm_ip))
        return flyt_error_set(err, -EINVAL, "vm_ip is \"%.64s\", not an IP address", desired->vm_ip);
    status = read_number(document, "compute_units", 1, SMS_MAX, &sms, err);
    if (status)
        return status;
    if (!sms)
        return flyt_error_set(err, -EINVAL, "compute_units (SMs) is missing");
    desired->sm_count = (unsigned)sms;
    return read_memory(document, &desired->memory_bytes, err);
}

static int read_optional(const cJSON *document, struct flyt_desired *desired, struct flyt_error *err)
{
    double devices = 1, sessions = 0, priority = 0, reserved = 0, suspended = 0;
    double minimum = -1, maximum = -1, window = 0, minimum_sms = 0;
    int status;

    bool is_wrong = (status = read_text(document, "name", &desired->name, err)) ||
                    (status = read_text(document, "host_ip", &desired->host_ip, err)) ||
                    (status = read_text(document, "tenant", &desired->tenant, err)) ||
                    (status = read_number(document, "devices", 1, DEVICES_MAX, &devices, err)) ||
                    (status = read_number(document, "sessions", 1, SESSIONS_MAX, &sessions, err)) ||
                    (status = read_number(document, "priority", -PRIORITY_MAX, PRIORITY_MAX, &priority, err)) ||
                    (status = read_number(document, "reserved", 0, 1, &reserved, err)) ||
                    (status = read_number(document, "suspended", 0, 1, &suspended, err)) ||
                    (status = read_number(document, "minimum_share", 0, 100, &minimum, err)) ||
                    (status = read_number(document, "maximum_share", 0, 100, &maximum, err)) ||
                    (status = read_number(document, "window_ms", FLYT_TIME_SLICE_WINDOW_MIN_MS,
                                          FLYT_TIME_SLICE_WINDOW_MAX_MS, &window, err)) ||
                    (status = read_number(document, "minimum_sms", 0, SMS_MAX, &minimum_sms, err)) ||
                    (status = read_choice(document, "shown_sms", "present", "minimum", &desired->shown, err)) ||
                    (status = read_choice(document, "sharing", "exclusive", "time", &desired->sharing, err)) ||
                    (status = read_choice(document, "policy", "binpack", "spread", &desired->policy, err)) ||
                    (status = read_choice(document, "isolation", "shared", "strict", &desired->isolation, err)) ||
                    (status = read_names(document, "include_types", &desired->include_types, err)) ||
                    (status = read_names(document, "exclude_types", &desired->exclude_types, err)) ||
                    (status = read_names(document, "include_gpus", &desired->include_gpus, err)) ||
                    (status = read_names(document, "exclude_gpus", &desired->exclude_gpus, err)) ||
                    (status = read_libraries(document, &desired->libraries, err));
    if (is_wrong)
        return status;
    if (maximum > 0 && minimum > maximum)
        return flyt_error_set(err, -EINVAL, "minimum_share is %g, more than maximum_share, %g", minimum, maximum);
    if (minimum_sms > desired->sm_count)
        return flyt_error_set(err, -EINVAL, "minimum_sms is %g, more than compute_units, %u", minimum_sms,
                              desired->sm_count);
    if (desired->shown == FLYT_SHOWN_MINIMUM && minimum_sms < 1)
        return flyt_error_set(err, -EINVAL, "shown_sms is \"minimum\", and there is no minimum_sms");
    desired->minimum_sms = (unsigned)minimum_sms;
    desired->minimum_share_pct = (int)minimum;
    desired->maximum_share_pct = (int)maximum;
    desired->window_ms = (unsigned)window;
    desired->is_suspended = suspended != 0;
    desired->device_count = (unsigned)devices;
    desired->session_count = (unsigned)sessions;
    desired->priority = (int)priority;
    desired->is_reserved = reserved != 0;
    return 0;
}

unsigned flyt_desired_shown(const struct flyt_desired *desired)
{
    return desired->shown == FLYT_SHOWN_MINIMUM ? desired->minimum_sms : 0;
}

void flyt_desired_init(struct flyt_desired *desired)
{
    *desired = (struct flyt_desired){
        .policy = -1, .isolation = -1, .sharing = -1, .minimum_share_pct = -1, .maximum_share_pct = -1};
}

int flyt_desired_read(const cJSON *document, struct flyt_error *err, struct flyt_desired *ret_desired)
{
    struct flyt_desired desired;

    flyt_desired_init(&desired);
    if (!cJSON_IsObject(document))
        return flyt_error_set(err, -EINVAL, "it is not an object");
    int status = read_required(document, &desired, err);
    if (!status)
        status = read_optional(document, &desired, err);
    if (status) {
        flyt_desired_free(&desired);
        return status;
    }
    *ret_desired = desired;
    return 0;
}

static void free_names(struct flyt_name_list *list)
{
    for (unsigned i = 0; i < list->count; i++)
        free(list->names[i]);
    free(list->names);
}

void flyt_desired_free(struct flyt_desired *desired)
{
    free(desired->vm_ip);
    free(desired->name);
    free(desired->host_ip);
    free(desired->tenant);
    free_names(&desired->include_types);
    free_names(&desired->exclude_types);
    free_names(&desired->include_gpus);
    free_names(&desired->exclude_gpus);
    free_names(&desired->libraries);
    memset(desired, 0, sizeof *desired);
}

const char *flyt_desired_vm_ip(const cJSON *document)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, "vm_ip");

    return cJSON_IsString(item) && *item->valuestring ? item->valuestring : NULL;
}

char *flyt_desired_id(const cJSON *document)
{
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(document, "_id");

    if (!id)
        return NULL;
    return cJSON_IsString(id) ? strdup(id->valuestring) : cJSON_PrintUnformatted(id);
}

int flyt_quota_read(const cJSON *document, struct flyt_error *err, struct flyt_quota *ret_quota)
{
    double sms = 0, sessions = 0, vms = 0, gib = 0;
    const cJSON *memory = field(document, "memory");
    int status;

    bool is_wrong = (status = read_number(document, "compute_units", 0, memory_max_bytes, &sms, err)) ||
                    (status = read_number(document, "sessions", 0, memory_max_bytes, &sessions, err)) ||
                    (status = read_number(document, "vms", 0, memory_max_bytes, &vms, err));
    if (is_wrong)
        return status;
    if (memory && (!get_number(memory, &gib) || gib < 0 || gib * 1073741824.0 > memory_max_bytes))
        return flyt_error_set(err, -EINVAL, "memory is not a number of GiB");
    *ret_quota = (struct flyt_quota){.sm_count = (uint64_t)sms,
                                     .memory_bytes = (uint64_t)floor(gib * 1073741824.0 + 0.5),
                                     .session_count = (uint64_t)sessions,
                                     .vm_count = (uint64_t)vms};
    return 0;
}
