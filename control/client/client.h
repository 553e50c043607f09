/*
 * The client manager's parts, which one struct holds together. Everything belongs to the event loop's thread.
 */
#ifndef FLYT_CONTROL_CLIENT_H
#define FLYT_CONTROL_CLIENT_H

#include "control/base/daemon.h"
#include "control/base/metrics.h"
#include "control/base/tls.h"
#include "control/base/uplink.h"
#include "control/base/worker.h"
#include "control/client/vm_memory.h"

enum flyt_attach_time { FLYT_ATTACH_FIRST_USE, FLYT_ATTACH_START };

struct flyt_client_settings {
    struct flyt_strings managers;
    char *vm_ip;
    char *socket;
    struct flyt_strings allow_users, allow_groups;
    struct flyt_strings memory_groups;
    char *memory_devices;
    uint64_t memory_slow;
    int attach; /* enum flyt_attach_time */
    uint64_t attach_timeout_ms;
    int managed_memory; /* enum flyt_managed_memory */
    uint64_t programs_max, programs_per_user_max;
    char *state_dir;
    char *authority, *certificate, *key;
    char *metrics;
};

struct flyt_client_services;
struct flyt_program_entry;
struct flyt_waiting_program;
struct flyt_waiting_monitor;

/* Made at the first answer (status.c). */
struct flyt_client_gauges {
    struct flyt_metric *up, *connects, *programs, *memory, *sms, *expiry;
};

struct flyt_client_manager {
    struct flyt_daemon *daemon;
    const struct flyt_client_settings *settings;
    const char *join_token; /* --join */
    const char *join_file;  /* that the token is in, "-": standard input; NULL: none */
    const char *admits;     /* --admit-memory: to which group; NULL: that is not asked */
    struct flyt_tls *tls;   /* NULL: in clear */
    struct flyt_uplink *uplink;
    struct flyt_door *door;
    int listen_fd;
    bool owns_socket; /* not passed by the service manager */

    /* grant.c */
    flyt_grant *grants; /* malloc'ed array; the strings in it are the result's that it was taken from */
    unsigned grant_count;
    bool is_asking;
    bool asks_for_programs; /* the question under way: programs wait for its answer, else it only looks */
    bool must_ask;          /* the next program must not be served from what is here */
    struct flyt_waiting_program *waiting, **waiting_end; /* by their deadlines */
    sd_event_source *waiting_timer;

    /* devices.c */
    flyt_vm_usage_res usage; /* the cluster manager's last answer, where has_usage */
    bool has_usage, is_asking_usage;
    uint64_t usage_ms;                     /* when it came */
    uint64_t ask_usage_ms;                 /* not before is it asked again */
    struct flyt_waiting_monitor *monitors; /* who waits for the next one */
    unsigned monitor_count;

    /* memory.c */
    struct flyt_client_vm_memory memory;      /* fd -1: there is none, or none that is used */
    char memory_why[FLYT_TEXT_BYTES_MAX + 1]; /* it is not used; empty: it is, or there is none */

    /* program.c */
    const struct flyt_client_services *services;
    struct flyt_program_entry *programs;
    unsigned program_count;
    uint64_t program_number;
    struct flyt_worker *users; /* where users are looked up */
    sd_event_source *report_timer;

    /* status.c */
    uint64_t started_ms;
    struct flyt_metrics *metrics;
    struct flyt_metrics_server *metrics_server;
    struct flyt_client_gauges gauges;
    struct flyt_metric *attach_count, *attach_seconds, *refused_count, *change_count, *call_seconds;
};

/* ---- grant.c ---- */

/* Answers a program's FLYT_LOCAL_ATTACH, now or when the cluster manager has answered. has_failed: what this program
 * got before was no good. */
void flyt_grant_serve(struct flyt_client_manager *manager, struct flyt_call *call, bool has_failed);
/* The cluster manager can be reached (again). */
void flyt_grant_up(struct flyt_client_manager *manager);
/* FLYT_ORDER_CHANGED. Takes the grants out of *args. */
void flyt_grant_change(struct flyt_client_manager *manager, flyt_changed_args *args);
void flyt_grant_fini(struct flyt_client_manager *manager);

/* ---- devices.c ---- */

/* Answers a monitor's FLYT_LOCAL_DEVICES, now or when the cluster manager has answered. */
void flyt_devices_serve(struct flyt_client_manager *manager, struct flyt_call *call);
/* What is granted has changed: what was told of its use is of no use. */
void flyt_devices_changed(struct flyt_client_manager *manager);
void flyt_devices_fini(struct flyt_client_manager *manager);

/* ---- memory.c ---- */

/* Looks for the memory that this VM shares with its host, and measures it. */
void flyt_memory_init(struct flyt_client_manager *manager);
void flyt_memory_fini(struct flyt_client_manager *manager);
/* The cluster manager can be reached (again): it is told where the memory is not used. */
void flyt_memory_up(struct flyt_client_manager *manager);
/* Answers FLYT_LOCAL_MEMORY of a program that may have it. */
void flyt_memory_serve(struct flyt_client_manager *manager, struct flyt_call *call);
/* --admit-memory. 0 or negative and *err. */
int flyt_memory_admit(const struct flyt_client_manager *manager, const char *group, struct flyt_error *err);

/* ---- program.c ---- */

/* Who answers what programs ask: flyt_grant_serve, flyt_status_serve and so on. */
struct flyt_client_services {
    void (*attach)(struct flyt_client_manager *manager, struct flyt_call *call, bool has_failed);
    void (*status)(struct flyt_client_manager *manager, struct flyt_call *call);
    void (*devices)(struct flyt_client_manager *manager, struct flyt_call *call);
    void (*memory)(struct flyt_client_manager *manager, struct flyt_call *call);
    void (*measured)(const char *procedure, bool is_served, uint64_t took_us, bool has_failed, void *user);
};

/* Listens and serves. 0 or negative and *err. */
int flyt_programs_init(struct flyt_client_manager *manager, const struct flyt_client_services *services,
                       struct flyt_error *err);
void flyt_programs_fini(struct flyt_client_manager *manager);
/* Tells every program that what it has was changed. */
void flyt_programs_notify(struct flyt_client_manager *manager, uint64_t revision, const char *text);
/* Tells the cluster manager how many there are, soon. */
void flyt_programs_report(struct flyt_client_manager *manager);
/* Their pids, at most `room`; returns how many. The rest of each use is 0. */
unsigned flyt_programs_list(const struct flyt_client_manager *manager, flyt_program_use *ret_uses, unsigned room);
/* A JSON array of them, of many the last ones: an answer has its bounds. cJSON_Delete. Where there is no memory
 * (flyt_json_failures, control/base/json_memory.h) it lacks something, or is NULL. */
struct cJSON *flyt_programs_json(const struct flyt_client_manager *manager);

/* ---- status.c ---- */

int flyt_status_init(struct flyt_client_manager *manager, struct flyt_error *err);
void flyt_status_fini(struct flyt_client_manager *manager);
/* What is shown; malloc'ed. NULL: no memory for all of it. */
char *flyt_status_json(const struct flyt_client_manager *manager);
/* Serves FLYT_LOCAL_STATUS. */
void flyt_status_serve(struct flyt_client_manager *manager, struct flyt_call *call);
/* A program was answered after so long. */
void flyt_status_attached(struct flyt_client_manager *manager, uint64_t took_us, flyt_status status);
void flyt_status_measured(const char *procedure, bool is_served, uint64_t took_us, bool has_failed, void *user);

#endif
