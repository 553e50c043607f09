/*
 * What is told of this node: its inventory at registration, its figures with each heartbeat, and metrics for
 * Prometheus. What is filled owns all its parts: xdr_free.
 */
#ifndef FLYT_NODE_REPORT_H
#define FLYT_NODE_REPORT_H

#include "control.h"
#include "control/base/metrics.h"
#include "control/node/model/node.h"

/* 0 or -ENOMEM: nothing is to be freed. */
int flyt_node_report_inventory(const struct flyt_node *node, flyt_register_args *ret_args);
int flyt_node_report_figures(const struct flyt_node *node, uint64_t sequence, flyt_heartbeat_args *ret_args);
/* One GPU as flyt_node_gpu_describe, with parts of its own. */
int flyt_node_report_gpu(const struct flyt_node *node, const struct flyt_node_gpu *gpu, flyt_gpu *ret_gpu);
/* Where programs connect: `data_urls`, or `listen` with host_ip in place of no host; behind these, because older
 * programs do not know such a URL, the unix socket of this machine, where there is room. Into FLYT_URLS_MAX texts;
 * returns how many. */
unsigned flyt_node_report_urls(const struct flyt_node *node, char (*ret_urls)[FLYT_URL_BYTES_MAX + 1]);

struct flyt_node_metrics;
/* The families in a registry, which the caller owns. NULL: no memory. */
struct flyt_node_metrics *flyt_node_metrics_new(struct flyt_metrics *registry);
struct flyt_node_metrics *flyt_node_metrics_free(struct flyt_node_metrics *metrics);
/* A migration is done: counted once, when it ends. */
void flyt_node_metrics_observe(struct flyt_node_metrics *metrics, const flyt_migration_use *use);
/* Sets all others: before each answer. */
void flyt_node_metrics_refresh(struct flyt_node_metrics *metrics, const struct flyt_node *node);
/* The same in pieces, as flyt_metrics_refresh_fn. */
bool flyt_node_metrics_refresh_some(struct flyt_node_metrics *metrics, const struct flyt_node *node,
                                    uint64_t *position);

/* What sessions' launches have needed: of those that have needed something. 0 or -ENOMEM; *ret_args is to be freed by
 * xdr_free in both cases. */
int flyt_node_report_needs(const struct flyt_node *node, flyt_needs_args *ret_args);

#endif
