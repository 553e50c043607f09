/* What a person may want to know later: told, written behind, shown. */
#ifndef FLYT_CLUSTER_IO_EVENT_H
#define FLYT_CLUSTER_IO_EVENT_H

#include <cjson/cJSON.h>

#include "control/base/peer.h"

struct flyt_cluster;

/* Something that a person may want to know later. before and after: JSON objects, which are taken over, or NULL. */
void flyt_event_add(struct flyt_cluster *cluster, const char *kind, const char *who, const char *object, cJSON *before,
                    cJSON *after, const char *format, ...) __attribute__((format(printf, 7, 8)));
/* As it is stored and shown. NULL: no memory. */
cJSON *flyt_event_document(const struct flyt_event *event);
int flyt_event_load(struct flyt_cluster *cluster, const cJSON *document);
/* There is one. Borrowed until the next one comes. */
const struct flyt_event *flyt_event_last(const struct flyt_cluster *cluster);
void flyt_event_fini(struct flyt_cluster *cluster);
void flyt_event_save(struct flyt_cluster *cluster);
/* At the end: gives the store's thread all that the store does not have. */
void flyt_event_save_all(struct flyt_cluster *cluster);
/* Answers FLYT_VIEW of events, now or when there are new ones. */
void flyt_event_view(struct flyt_cluster *cluster, struct flyt_call *call, const flyt_view_args *args);
void flyt_event_tick(struct flyt_cluster *cluster);

#endif
