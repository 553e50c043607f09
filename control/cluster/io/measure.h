/* Measurements of what this manager does. */
#ifndef FLYT_CLUSTER_IO_MEASURE_H
#define FLYT_CLUSTER_IO_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/base/error.h"

struct flyt_cluster;
struct flyt_migration;
struct flyt_checkpoint_op;

int flyt_measure_start(struct flyt_cluster *cluster, struct flyt_error *err);
void flyt_measure_stop(struct flyt_cluster *cluster);
void flyt_measure_call(const char *procedure, bool is_served, uint64_t took_us, bool has_failed, void *user);
void flyt_measure_store(const char *operation, bool has_failed, uint64_t took_us, void *user);
void flyt_measure_attach(struct flyt_cluster *cluster, uint64_t took_us, bool has_failed);
void flyt_measure_placement(struct flyt_cluster *cluster, uint64_t took_ns);
void flyt_measure_limit(struct flyt_cluster *cluster, const char *limit);
void flyt_measure_heartbeat(struct flyt_cluster *cluster, const char *node);
/* One that is over; its phase says how. What it took is measured where it was done, and that is known. */
void flyt_measure_migration(struct flyt_cluster *cluster, const struct flyt_migration *migration);
void flyt_measure_checkpoint_op(struct flyt_cluster *cluster, const struct flyt_checkpoint_op *op);

#endif
