/* Nodes' documents. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/io/keep.h"
#include "control/cluster/io/node_document.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/placement.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/text.h"
#include "rpc/base/clock.h"

static const char *state_name(const struct flyt_node *node)
{
    return node->place.is_up ? "up" : node->is_fenced ? "fenced" : "lost";
}

static cJSON *make_document(void *object)
{
    static const char *const schedules[] = {"active", "cordoned", "draining"};
    struct flyt_node *node = object;
    cJSON *document = cJSON_CreateObject(), *urls;

    cJSON_AddStringToObject(document, "state", state_name(node));
    cJSON_AddStringToObject(document, "schedule", schedules[node->place.schedule]);
    cJSON_AddStringToObject(document, "boot_id", node->boot_id ? node->boot_id : "");
    cJSON_AddStringToObject(document, "host_ip", node->host_ip ? node->host_ip : "");
    cJSON_AddStringToObject(document, "build", node->build ? node->build : "");
    cJSON_AddNumberToObject(document, "last_seen_ms", (double)node->last_seen_ms);
    urls = cJSON_AddArrayToObject(document, "data_urls");
    for (unsigned i = 0; i < node->data_url_count; i++)
        cJSON_AddItemToArray(urls, cJSON_CreateString(node->data_urls[i]));
    if (!urls) {
        cJSON_Delete(document);
        return NULL;
    }
    return document;
}

static struct flyt_node *node_new(struct flyt_cluster *cluster, const char *name, uint64_t revision)
{
    struct flyt_node *node = calloc(1, sizeof *node);

    if (!node)
        return NULL;
    node->cluster = cluster;
    node->key = strdup(name);
    node->last_heard_ms = flyt_clock_ms();
    node->kept = node->key ? flyt_kept_new(cluster->keeper, "nodes", name, revision, make_document, node) : NULL;
    if (!node->kept)
        goto failed;
    node->place.name = node->key;
    if (cluster->nodes.count == cluster->place_room) {
        size_t room = cluster->place_room ? 2 * cluster->place_room : 16;
        struct flyt_place_node **list = realloc(cluster->place_nodes, room * sizeof *list);
        if (!list)
            goto failed;
        cluster->place_nodes = list;
        cluster->place_room = room;
    }
    size_t place = flyt_table_place(&cluster->nodes, name), count = cluster->nodes.count;
    if (flyt_table_add(&cluster->nodes, node))
        goto failed;
    memmove(cluster->place_nodes + place + 1, cluster->place_nodes + place,
            (count - place) * sizeof *cluster->place_nodes);
    cluster->place_nodes[place] = &node->place;
    return node;
failed:
    flyt_node_free(node);
    return NULL;
}

struct flyt_node *flyt_node_get(struct flyt_cluster *cluster, const char *name)
{
    struct flyt_node *node = flyt_table_find(&cluster->nodes, name);

    return node ? node : node_new(cluster, name, 0);
}

void flyt_node_free_sessions(struct flyt_node *node)
{
    for (unsigned i = 0; i < node->session_count; i++)
        xdr_free((xdrproc_t)xdr_flyt_session_use, (char *)&node->sessions[i]);
    free(node->sessions);
    node->sessions = NULL;
    node->session_count = 0;
}

void flyt_node_free(struct flyt_node *node)
{
    if (!node)
        return;
    flyt_kept_free(node->kept);
    flyt_node_free_sessions(node);
    free(node->earlier[0].items);
    free(node->earlier[1].items);
    free(node->driver_version);
    xdr_free((xdrproc_t)xdr_flyt_needs_args, &node->needs);
    xdr_free((xdrproc_t)xdr_flyt_libraries_args, &node->opened);
    for (unsigned i = 0; i < node->data_url_count; i++)
        free(node->data_urls[i]);
    free((char *)node->key);
    free(node->boot_id);
    free(node->host_ip);
    free(node->build);
    free(node->place.gpus);
    free(node->cards);
    explicit_bzero(node->node_key, sizeof node->node_key);
    free(node);
}

int flyt_node_load(struct flyt_cluster *cluster, const cJSON *document)
{
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(document, "_id");
    const cJSON *revision = cJSON_GetObjectItemCaseSensitive(document, "revision");
    const cJSON *state = cJSON_GetObjectItemCaseSensitive(document, "state");
    const cJSON *schedule = cJSON_GetObjectItemCaseSensitive(document, "schedule");
    const cJSON *seen = cJSON_GetObjectItemCaseSensitive(document, "last_seen_ms");
    const cJSON *host_ip = cJSON_GetObjectItemCaseSensitive(document, "host_ip");

    if (!cJSON_IsString(id))
        return -EINVAL;
    struct flyt_node *node =
        node_new(cluster, id->valuestring, cJSON_IsNumber(revision) ? (uint64_t)revision->valuedouble : 0);
    if (!node)
        return -ENOMEM;
    node->is_fenced = cJSON_IsString(state) && !strcmp(state->valuestring, "fenced");
    if (cJSON_IsString(schedule))
        node->place.schedule = !strcmp(schedule->valuestring, "cordoned")   ? FLYT_SCHEDULE_CORDONED
                               : !strcmp(schedule->valuestring, "draining") ? FLYT_SCHEDULE_DRAINING
                                                                            : FLYT_SCHEDULE_ACTIVE;
    node->last_seen_ms = cJSON_IsNumber(seen) && seen->valuedouble > 0 ? (uint64_t)seen->valuedouble : 0;
    if (cJSON_IsString(host_ip) && !flyt_text_set(&node->host_ip, host_ip->valuestring))
        node->place.host_ip = node->host_ip;
    return 0;
}
