/* GPUs' documents, and the GPUs that are made of them. */
#ifndef FLYT_CLUSTER_IO_GPU_DOCUMENT_H
#define FLYT_CLUSTER_IO_GPU_DOCUMENT_H

#include <cjson/cJSON.h>
#include <stdint.h>

#include "control.h"

struct flyt_cluster_gpu;
struct flyt_cluster;
struct flyt_node;

const char *flyt_health_name(enum flyt_health health);
const char *flyt_schedule_name(enum flyt_schedule schedule);
/* Of a struct flyt_cluster_gpu. NULL: no memory. */
cJSON *flyt_gpu_document(void *gpu);
/* From the store's document. 0 or a negative errno. */
int flyt_gpu_load(struct flyt_cluster *cluster, const cJSON *document);
/* One that the registry does not have; it is the node's. revision: of its document, 0: there is none. NULL: no memory,
 * or the node has too many. */
struct flyt_cluster_gpu *flyt_gpu_new(struct flyt_node *node, const char *uuid, const char *type, uint64_t revision);
void flyt_gpu_free(struct flyt_cluster_gpu *gpu);

#endif
