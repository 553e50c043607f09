/* Nodes' documents. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/io/document.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/node_document.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/placement.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/text.h"
#include "rpc/base/clock.h"

static const char *const state_names[] = {"lost", "fenced", "up", NULL};

/* What a document says that is not the node's as such. */
struct content {
    enum { LOST, FENCED, UP } state;
    const char *host_ip; /* borrowed; of one that is read */
};

static const struct flyt_field url_fields[] = {{"", .kind = FLYT_FIELD_TEXT, .size = sizeof(char *)}, {0}};
static const struct flyt_item url_item = {.fields = url_fields, .bytes = sizeof(char *)};

enum { DOCUMENT, CONTENT, KEPT, SHOWN, PARTS };
#define OF_SHOWN(kind, ...) FLYT_##kind(struct flyt_node, __VA_ARGS__), .part = SHOWN

/* What is shown alone is written for people: the node says it again when it registers. */
static const struct flyt_field fields[] = {
    FLYT_DOCUMENT_FIELDS(DOCUMENT),
    {"state", FLYT_CHOICE(struct content, state, state_names), .part = CONTENT},
    {"schedule", FLYT_CHOICE(struct flyt_node, place.schedule, flyt_schedule_names), .part = KEPT},
    {"boot_id", OF_SHOWN(TEXT, boot_id)},
    {"host_ip", FLYT_TEXT(struct content, host_ip), .part = CONTENT, .rules = FLYT_BORROWED},
    {"build", OF_SHOWN(TEXT, build)},
    {"last_seen_ms", FLYT_NUMBER(struct flyt_node, last_seen_ms), .part = KEPT},
    {"data_urls", OF_SHOWN(ARRAY, data_urls, data_url_count, &url_item)},
    {0},
};

cJSON *flyt_node_document(void *object)
{
    const struct flyt_node *node = object;
    const struct content content = {.state = node->place.is_up ? UP
                                             : node->is_fenced ? FENCED
                                                               : LOST,
                                    .host_ip = node->host_ip};

    return flyt_document_write(fields, (const void *const[PARTS]){[CONTENT] = &content, [KEPT] = node, [SHOWN] = node},
                               "node", node->key);
}

static struct flyt_node *node_new(struct flyt_cluster *cluster, const char *name, uint64_t revision)
{
    struct flyt_node *node = calloc(1, sizeof *node);

    if (!node)
        return NULL;
    node->cluster = cluster;
    node->key = strdup(name);
    node->last_heard_ms = flyt_clock_ms();
    node->record =
        node->key ? flyt_record_new(cluster->store_writer, "nodes", name, revision, flyt_node_document, node) : NULL;
    if (!node->record)
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
    flyt_record_free(node->record);
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
    free(node->gpus);
    explicit_bzero(node->node_key, sizeof node->node_key);
    free(node);
}

int flyt_node_load(struct flyt_cluster *cluster, const cJSON *document)
{
    struct flyt_document its;
    struct content content = {.state = LOST};
    int status = flyt_document_read(fields, document, (void *const[PARTS]){[DOCUMENT] = &its, [CONTENT] = &content},
                                    "the document of a", "node");
    if (status)
        return status;
    struct flyt_node *node = node_new(cluster, its.id, its.revision);
    if (!node)
        return -ENOMEM;
    node->is_fenced = content.state == FENCED;
    if (*content.host_ip && !flyt_text_set(&node->host_ip, content.host_ip))
        node->place.host_ip = node->host_ip;
    return flyt_document_read(fields, document, (void *const[PARTS]){[KEPT] = node}, "node", its.id);
}
