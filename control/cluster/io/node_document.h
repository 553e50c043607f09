/* Nodes' documents, and the nodes that are made of them. */
#ifndef FLYT_CLUSTER_IO_NODE_DOCUMENT_H
#define FLYT_CLUSTER_IO_NODE_DOCUMENT_H

#include <cjson/cJSON.h>

struct flyt_cluster;
struct flyt_node;

struct flyt_node *flyt_node_get(struct flyt_cluster *cluster, const char *name); /* makes it; NULL: no memory */
/* Of a struct flyt_node. NULL: no memory. */
cJSON *flyt_node_document(void *node);
int flyt_node_load(struct flyt_cluster *cluster, const cJSON *document);
/* Those that it has reported. */
void flyt_node_free_sessions(struct flyt_node *node);
void flyt_node_free(struct flyt_node *node);

#endif
