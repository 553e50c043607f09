/*
 * Measurements in the Prometheus text format, version 0.0.4, served over HTTP (libmicrohttpd) at /metrics, with
 * /healthz beside it. A registry belongs to the loop's thread: the HTTP server runs on the same loop (no thread). An
 * answer is made in pieces of FLYT_METRICS_PIECE_US each, between which the loop does what else there is to do: who
 * asks waits for it, and who asks meanwhile for the next one.
 */
#ifndef FLYT_CONTROL_METRICS_H
#define FLYT_CONTROL_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "rpc/base/error.h"

struct flyt_metrics;
struct flyt_metric; /* a family: one name, several label values */

enum flyt_metric_kind { FLYT_COUNTER, FLYT_GAUGE, FLYT_HISTOGRAM };
enum { FLYT_METRIC_LABELS_MAX = 6, FLYT_METRICS_PIECE_US = 4000 };

struct flyt_metrics *flyt_metrics_new(void);
struct flyt_metrics *flyt_metrics_free(struct flyt_metrics *metrics);

/*
 * A family. name: with unit ("flyt_call_duration_seconds", counters "_total"); labels: names, separated by spaces, ""
 * for none; buckets: upper bounds of a histogram, ended by 0 (NULL: 0.0005 … 10 seconds). The family without labels
 * has its value 0 from the beginning. Made once for a name; the registry owns it. NULL: no memory.
 */
struct flyt_metric *flyt_metric_new(struct flyt_metrics *metrics, enum flyt_metric_kind kind, const char *name,
                                    const char *labels, const char *help, const double *buckets);

/* `values`: as many strings as the family has labels; each new combination begins at 0. */
void flyt_metric_add(struct flyt_metric *metric, const char *const *values, double amount);
void flyt_metric_set(struct flyt_metric *metric, const char *const *values, double value);
void flyt_metric_observe(struct flyt_metric *metric, const char *const *values, double value);
/* A gauge is about to be set anew from a list: combinations that are not set until the next text is made are forgotten
 * then. */
void flyt_metric_renew(struct flyt_metric *metric);

/* The whole text, at once; malloc'ed. */
char *flyt_metrics_text(struct flyt_metrics *metrics);

struct flyt_metrics_server;
/* Sets gauges, a few hundred at a time: from *position (0 at the beginning of an answer), which it moves on. Whether
 * there are more. Between two calls everything may change. */
typedef bool (*flyt_metrics_refresh_fn)(void *user, uint64_t *position);
/*
 * Serves on ADDRESS:PORT ("127.0.0.1:9400"; port 0: the kernel's choice, logged at info). `refresh` (may be NULL) is
 * called before each answer until there is no more. 0 or a negative errno and *err.
 */
int flyt_metrics_serve(struct flyt_metrics *metrics, sd_event *event, const char *listen,
                       flyt_metrics_refresh_fn refresh, void *user, struct flyt_error *err,
                       struct flyt_metrics_server **ret_server);
struct flyt_metrics_server *flyt_metrics_server_free(struct flyt_metrics_server *server);

#endif
