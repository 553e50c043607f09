#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "control/base/size.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/placement.h"

/* Why a GPU is not possible, in the order in which they are looked at. */
enum obstacle {
    POSSIBLE,
    NODE_AWAY,
    NODE_CORDONED,
    NODE_DRAINING,
    CORDONED,
    DRAINING,
    UNHEALTHY,
    OTHER_TYPE,
    OTHER_GPU,
    OTHER_ISOLATION,
    PRESENT_GPU,
    OTHER_COMPUTE,
    SMALLER_GROUPS,
    LACKS_LIBRARY,
    TOO_FEW_SMS,
    TOO_LITTLE_TIME,
    TOO_LITTLE_MEMORY,
    TOO_FEW_SLOTS,
    TOO_FEW_TOGETHER, /* possible, but its node has not enough such GPUs */
    OBSTACLE_COUNT
};

static bool names_gpu(const char *name, const struct flyt_place_node *node, const struct flyt_capacity *gpu)
{
    size_t bytes = strlen(name), node_bytes = strlen(node->name);
    char index[16];

    if (bytes && !strncasecmp(name, gpu->uuid, bytes))
        return true;
    snprintf(index, sizeof index, "%u", gpu->index);
    return bytes > node_bytes && !strncmp(name, node->name, node_bytes) && name[node_bytes] == ':' &&
           !strcmp(name + node_bytes + 1, index);
}

static bool lists_gpu(const struct flyt_name_list *list, const struct flyt_place_node *node,
                      const struct flyt_capacity *gpu)
{
    for (unsigned i = 0; i < list->count; i++)
        if (names_gpu(list->names[i], node, gpu))
            return true;
    return false;
}

static bool lists_type(const struct flyt_name_list *list, const struct flyt_capacity *gpu)
{
    for (unsigned i = 0; i < list->count; i++)
        if (list->names[i][0] && strcasestr(gpu->type, list->names[i]))
            return true;
    return false;
}

/* ---- libraries ---- */

void flyt_place_libraries_add(struct flyt_place_libraries *libraries, const char *name, unsigned version)
{
    for (unsigned i = 0; i < libraries->count; i++) {
        struct flyt_place_library *one = &libraries->items[i];
        if (strcmp(one->name, name) || one->version / 1000 != version / 1000)
            continue;
        if (version > one->version)
            one->version = version;
        return;
    }
    if (libraries->count == FLYT_PLACE_LIBRARIES_MAX || strlen(name) >= FLYT_LIBRARY_NAME_BYTES)
        return;
    struct flyt_place_library *added = &libraries->items[libraries->count++];
    snprintf(added->name, sizeof added->name, "%s", name);
    added->version = version;
}

bool flyt_place_libraries_read(struct flyt_place_libraries *libraries, const char *text)
{
    char name[FLYT_LIBRARY_NAME_BYTES], major[4], minor[4];
    int name_end = 0, end = 0;

    _Static_assert(FLYT_LIBRARY_NAME_BYTES == 16, "the format's 15 and the end");
    int found = sscanf(text, "%15[a-z0-9]%n %3[0-9].%3[0-9]%n", name, &name_end, major, minor, &end);
    bool is_any = found == 1 && !text[name_end];
    if (!is_any && (found != 3 || text[end]))
        return false;
    flyt_place_libraries_add(libraries, name, is_any ? 0 : (unsigned)(atoi(major) * 1000 + atoi(minor)));
    return true;
}

/* The node's version of it that is the nearest: the same major one, else any; 0: it has none. */
static unsigned version_of(const struct flyt_place_node *node, const struct flyt_place_library *wanted)
{
    unsigned found = 0;

    for (unsigned i = 0; i < node->libraries.count; i++) {
        const struct flyt_place_library *one = &node->libraries.items[i];
        if (!strcmp(one->name, wanted->name) && (!found || one->version / 1000 == wanted->version / 1000))
            found = one->version;
    }
    return found;
}

/* The first that is missing, or of another version; NULL: none is. */
static const struct flyt_place_library *find_lacking(const struct flyt_place_node *node,
                                                     const struct flyt_place_libraries *wanted)
{
    for (unsigned i = 0; i < wanted->count; i++) {
        unsigned there = version_of(node, &wanted->items[i]), version = wanted->items[i].version;
        if (version ? there / 1000 != version / 1000 || there < version : !there)
            return &wanted->items[i];
    }
    return NULL;
}

bool flyt_place_lacks_library(const struct flyt_place_node *node, const struct flyt_place_libraries *wanted,
                              char *reason, size_t reason_bytes)
{
    const struct flyt_place_library *lacking = find_lacking(node, wanted);

    if (!lacking)
        return false;
    unsigned there = version_of(node, lacking), version = lacking->version;
    char number[16] = "";
    if (version)
        snprintf(number, sizeof number, " %u.%u", version / 1000, version % 1000);
    if (there)
        snprintf(reason, reason_bytes, "needs %s%s, node has %u.%u", lacking->name, number, there / 1000, there % 1000);
    else
        snprintf(reason, reason_bytes, "needs %s%s, node %s", lacking->name, number,
                 node->has_told_libraries ? "has none" : "has not said which libraries it has");
    return true;
}

/* ---- GPUs ---- */

/* Groups that are taken and that it may have all the same. */
static const struct flyt_groupset *own_of(const struct flyt_capacity *gpu, const struct flyt_place_request *request)
{
    return request->is_timed ? &gpu->timed : NULL;
}

/* The minimum of the GPU's time that it is promised. */
static unsigned share_of(const struct flyt_capacity *gpu, const struct flyt_place_request *request, unsigned sms)
{
    if (request->is_timed)
        return request->minimum_share_pct;
    return gpu->isolation == FLYT_ISOLATION_STRICT ? flyt_capacity_share(gpu, sms) : 0;
}

/* What hinders the use of a GPU for this request; *ret_sms: what it would give. */
static enum obstacle look_at(const struct flyt_place_node *node, const struct flyt_capacity *gpu,
                             const struct flyt_place_request *request, unsigned *ret_sms)
{
    if (!node->is_up)
        return NODE_AWAY;
    if (node->schedule != FLYT_SCHEDULE_ACTIVE)
        return node->schedule == FLYT_SCHEDULE_CORDONED ? NODE_CORDONED : NODE_DRAINING;
    if (gpu->schedule != FLYT_SCHEDULE_ACTIVE)
        return gpu->schedule == FLYT_SCHEDULE_CORDONED ? CORDONED : DRAINING;
    if (gpu->is_unhealthy)
        return UNHEALTHY;
    if ((request->include_types.count && !lists_type(&request->include_types, gpu)) ||
        lists_type(&request->exclude_types, gpu))
        return OTHER_TYPE;
    if ((request->include_gpus.count && !lists_gpu(&request->include_gpus, node, gpu)) ||
        lists_gpu(&request->exclude_gpus, node, gpu))
        return OTHER_GPU;
    if (gpu->isolation != request->isolation)
        return OTHER_ISOLATION;
    if (request->present_gpus >> (gpu - node->gpus) & 1)
        return PRESENT_GPU;
    if (request->compute_capability && gpu->compute_capability != request->compute_capability)
        return OTHER_COMPUTE;
    if (gpu->regular_sms < request->group_sms)
        return SMALLER_GROUPS;
    if (find_lacking(node, &request->libraries))
        return LACKS_LIBRARY;
    *ret_sms = flyt_capacity_fit(gpu, own_of(gpu, request), request->sm_count);
    if (!*ret_sms)
        return TOO_FEW_SMS;
    if (share_of(gpu, request, *ret_sms) + gpu->share_taken_pct > 100)
        return TOO_LITTLE_TIME;
    if (flyt_capacity_memory(gpu, request->memory_bytes, request->session_count) > gpu->memory_free_bytes)
        return TOO_LITTLE_MEMORY;
    if (request->session_count > gpu->slots_free)
        return TOO_FEW_SLOTS;
    return POSSIBLE;
}

/* How good a possible GPU (or a node's best ones together) is: smaller is better, compared field by field. */
struct rank {
    unsigned elsewhere; /* 0: on the preferred machine */
    unsigned sms_over;
    uint64_t left; /* binpack: SMs free, spread: SMs taken; then memory */
    uint64_t left_bytes;
};

static bool is_better(const struct rank *one, const struct rank *other)
{
    if (one->elsewhere != other->elsewhere)
        return one->elsewhere < other->elsewhere;
    if (one->sms_over != other->sms_over)
        return one->sms_over < other->sms_over;
    if (one->left != other->left)
        return one->left < other->left;
    return one->left_bytes < other->left_bytes;
}

static bool is_elsewhere(const struct flyt_place_node *node, const struct flyt_place_request *request)
{
    return !(request->host_ip && node->host_ip && !strcmp(request->host_ip, node->host_ip));
}

static struct rank rank_of(bool elsewhere, const struct flyt_capacity *gpu, const struct flyt_place_request *request,
                           unsigned sms)
{
    bool is_binpack = request->policy == FLYT_POLICY_BINPACK;

    return (struct rank){
        .elsewhere = elsewhere,
        .sms_over = sms - request->sm_count,
        .left = is_binpack ? gpu->sms_free : gpu->sms_total - gpu->sms_free,
        .left_bytes = is_binpack ? gpu->memory_free_bytes : gpu->memory_bytes - gpu->memory_free_bytes,
    };
}

/* The best GPUs of one node, at most device_count, the best first. */
struct choice {
    unsigned count;
    unsigned gpus[FLYT_SLOTS_MAX];
    struct rank ranks[FLYT_SLOTS_MAX];
};

static void choice_add(struct choice *choice, unsigned wanted, unsigned gpu, const struct rank *rank)
{
    unsigned place = choice->count;

    while (place && is_better(rank, &choice->ranks[place - 1]))
        place--;
    if (place >= wanted)
        return;
    if (choice->count < wanted)
        choice->count++;
    for (unsigned i = choice->count - 1; i > place; i--) {
        choice->gpus[i] = choice->gpus[i - 1];
        choice->ranks[i] = choice->ranks[i - 1];
    }
    choice->gpus[place] = gpu;
    choice->ranks[place] = *rank;
}

static struct rank choice_rank(const struct choice *choice)
{
    struct rank sum = {.elsewhere = choice->ranks[0].elsewhere};

    for (unsigned i = 0; i < choice->count; i++) {
        sum.sms_over += choice->ranks[i].sms_over;
        sum.left += choice->ranks[i].left;
        sum.left_bytes += choice->ranks[i].left_bytes;
    }
    return sum;
}

/* Writes at *place, moves it on, and never past the end. */
static void append(char **place, size_t *room, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void append(char **place, size_t *room, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int written = vsnprintf(*place, *room, format, args);
    va_end(args);
    size_t moved = written < 0 ? 0 : (size_t)written < *room ? (size_t)written : *room - 1;
    *place += moved;
    *room -= moved;
}

/* What was found of all GPUs, for the reasons. */
struct tally {
    unsigned gpus;
    unsigned counts[OBSTACLE_COUNT];
    unsigned sms_max, slots_max, share_max_pct;
    uint64_t memory_max_bytes;
    bool reserve_needed;
    char library[96]; /* of the last one whose node lacks one */
};

static void tally_add(struct tally *tally, enum obstacle obstacle, const struct flyt_place_node *node,
                      const struct flyt_capacity *gpu, const struct flyt_place_request *request)
{
    tally->counts[obstacle]++;
    if (obstacle == LACKS_LIBRARY)
        flyt_place_lacks_library(node, &request->libraries, tally->library, sizeof tally->library);
    if (obstacle == TOO_FEW_SMS && gpu->sms_free > tally->sms_max)
        tally->sms_max = gpu->sms_free;
    if (obstacle == TOO_LITTLE_TIME && gpu->share_taken_pct < 100 && 100 - gpu->share_taken_pct > tally->share_max_pct)
        tally->share_max_pct = 100 - gpu->share_taken_pct;
    if (obstacle == TOO_FEW_SLOTS && gpu->slots_free > tally->slots_max)
        tally->slots_max = gpu->slots_free;
    if (obstacle == TOO_LITTLE_MEMORY) {
        if (gpu->memory_free_bytes > tally->memory_max_bytes)
            tally->memory_max_bytes = gpu->memory_free_bytes;
        tally->reserve_needed |= gpu->server_reserve_bytes != 0;
    }
}

static const char *isolation_name(enum flyt_isolation isolation)
{
    return isolation == FLYT_ISOLATION_STRICT ? "strict" : "shared";
}

static void say(const struct tally *tally, enum obstacle obstacle, const struct flyt_place_request *request,
                char **place, size_t *room)
{
    char need[32], most[32];

    switch (obstacle) {
    case NODE_AWAY:
        append(place, room, "node not connected");
        break;
    case NODE_CORDONED:
        append(place, room, "node cordoned");
        break;
    case NODE_DRAINING:
        append(place, room, "node draining");
        break;
    case CORDONED:
        append(place, room, "cordoned");
        break;
    case DRAINING:
        append(place, room, "draining");
        break;
    case UNHEALTHY:
        append(place, room, "not healthy");
        break;
    case OTHER_TYPE:
        append(place, room, "type not wanted");
        break;
    case OTHER_GPU:
        append(place, room, "not among the GPUs wanted");
        break;
    case OTHER_ISOLATION:
        append(place, room, "not for isolation class %s", isolation_name(request->isolation));
        break;
    case PRESENT_GPU:
        append(place, room, "where it is now");
        break;
    case OTHER_COMPUTE:
        append(place, room, "not of compute capability %u.%u, for which its programs' kernels were loaded",
               request->compute_capability / 100, request->compute_capability % 100);
        break;
    case SMALLER_GROUPS:
        append(place, room, "groups of fewer SMs than %u, where thread-block clusters of its programs may not run",
               request->group_sms);
        break;
    case LACKS_LIBRARY:
        append(place, room, "%s", tally->library);
        break;
    case TOO_FEW_SMS:
        append(place, room, "not enough SMs (needs %u, %u free at most)", request->sm_count, tally->sms_max);
        break;
    case TOO_LITTLE_TIME:
        if (request->is_timed)
            append(place, room, "not enough time (needs a minimum of %u %%, %u %% not promised at most)",
                   request->minimum_share_pct, tally->share_max_pct);
        else
            append(place, room, "not enough time (%u %% not promised at most)", tally->share_max_pct);
        break;
    case TOO_LITTLE_MEMORY:
        append(place, room, "not enough memory (needs %s%s, %s free at most)",
               flyt_size_text(request->memory_bytes, need), tally->reserve_needed ? " and its servers' reserve" : "",
               flyt_size_text(tally->memory_max_bytes, most));
        break;
    case TOO_FEW_SLOTS:
        append(place, room, "not enough client slots (needs %u, %u free at most)", request->session_count,
               tally->slots_max);
        break;
    case TOO_FEW_TOGETHER:
        append(place, room, "would do, but no node has %u of them", request->device_count);
        break;
    case POSSIBLE:
    case OBSTACLE_COUNT:
        break;
    }
}

static void explain(const struct tally *tally, const struct flyt_place_request *request, char *reason, size_t room)
{
    const char *between = "";

    *reason = '\0';
    if (!tally->gpus) {
        snprintf(reason, room, "there is no GPU in the cluster");
        return;
    }
    for (unsigned i = POSSIBLE + 1; i < OBSTACLE_COUNT; i++) {
        if (!tally->counts[i])
            continue;
        append(&reason, &room, "%s%u of %u GPU%s: ", between, tally->counts[i], tally->gpus,
               tally->gpus == 1 ? "" : "s");
        say(tally, i, request, &reason, &room);
        between = "; ";
    }
}

/* The choice becomes slots with their groups. */
static void settle(const struct flyt_place_node *node, const struct choice *choice,
                   const struct flyt_place_request *request, struct flyt_placement *placement)
{
    placement->slot_count = choice->count;
    for (unsigned i = 0; i < choice->count; i++) {
        struct flyt_place_slot *slot = &placement->slots[i];
        slot->gpu = choice->gpus[i];
        slot->sm_count = flyt_capacity_choose(&node->gpus[slot->gpu], own_of(&node->gpus[slot->gpu], request),
                                              request->sm_count, &slot->groups);
    }
}

/* By what lies side by side in a capacity (capacity.h): false is final, and no reason is given. */
static bool may_hold(const struct flyt_capacity *gpu, const struct flyt_place_request *request)
{
    return gpu->schedule == FLYT_SCHEDULE_ACTIVE && !gpu->is_unhealthy && gpu->isolation == request->isolation &&
           gpu->regular_sms >= request->group_sms && request->session_count <= gpu->slots_free &&
           (request->is_timed || request->sm_count <= gpu->sms_free) &&
           flyt_capacity_memory(gpu, request->memory_bytes, request->session_count) <= gpu->memory_free_bytes;
}

/* The best GPUs of a node. Of a request for one device those are passed over that are no better than `best` (NULL:
 * there is none yet) at their best. */
static void choose(const struct flyt_place_node *node, const struct flyt_place_request *request,
                   const struct rank *best, struct choice *ret_choice)
{
    const bool elsewhere = is_elsewhere(node, request);

    ret_choice->count = 0;
    for (unsigned g = 0; g < node->gpu_count; g++) {
        const struct flyt_capacity *gpu = &node->gpus[g];
        unsigned sms = 0;
        if (!may_hold(gpu, request))
            continue;
        struct rank rank = rank_of(elsewhere, gpu, request, request->sm_count);
        if (best && request->device_count == 1 && !is_better(&rank, best))
            continue;
        if (look_at(node, gpu, request, &sms) != POSSIBLE)
            continue;
        rank = rank_of(elsewhere, gpu, request, sms);
        choice_add(ret_choice, request->device_count, g, &rank);
    }
}

/* Why no node has enough. */
static void tell_why(struct flyt_place_node *const *nodes, unsigned node_count,
                     const struct flyt_place_request *request, char *reason, size_t reason_bytes)
{
    struct tally tally = {0};

    for (unsigned n = 0; n < node_count; n++) {
        tally.gpus += nodes[n]->gpu_count;
        for (unsigned g = 0; g < nodes[n]->gpu_count; g++) {
            unsigned sms = 0;
            enum obstacle obstacle = look_at(nodes[n], &nodes[n]->gpus[g], request, &sms);
            tally_add(&tally, obstacle == POSSIBLE ? TOO_FEW_TOGETHER : obstacle, nodes[n], &nodes[n]->gpus[g],
                      request);
        }
    }
    explain(&tally, request, reason, reason_bytes);
}

int flyt_place(struct flyt_place_node *const *nodes, unsigned node_count, const struct flyt_place_request *request,
               struct flyt_placement *ret_placement, char *reason, size_t reason_bytes)
{
    struct choice best = {0}, choice;
    struct rank best_rank = {0};
    unsigned best_node = 0;

    for (unsigned n = 0; n < node_count; n++) {
        if (!nodes[n]->is_up || nodes[n]->schedule != FLYT_SCHEDULE_ACTIVE)
            continue;
        choose(nodes[n], request, best.count ? &best_rank : NULL, &choice);
        if (!choice.count || choice.count < request->device_count)
            continue;
        struct rank rank = choice_rank(&choice);
        if (best.count && !is_better(&rank, &best_rank))
            continue;
        best = choice;
        best_rank = rank;
        best_node = n;
    }
    if (!best.count) {
        tell_why(nodes, node_count, request, reason, reason_bytes);
        return -ENOSPC;
    }
    memset(ret_placement, 0, sizeof *ret_placement);
    ret_placement->node = best_node;
    settle(nodes[best_node], &best, request, ret_placement);
    return 0;
}

bool flyt_place_refuses(const struct flyt_place_node *node, const struct flyt_capacity *gpu,
                        const struct flyt_place_request *request, char *reason, size_t reason_bytes)
{
    struct tally tally = {0};
    unsigned sms = 0;
    enum obstacle obstacle = look_at(node, gpu, request, &sms);

    *reason = '\0';
    if (obstacle == POSSIBLE)
        return false;
    tally_add(&tally, obstacle, node, gpu, request);
    say(&tally, obstacle, request, &reason, &reason_bytes);
    return true;
}
