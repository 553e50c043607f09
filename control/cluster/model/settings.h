/* The settings of /etc/flyt/cluster.conf. */
#ifndef FLYT_CLUSTER_SETTINGS_H
#define FLYT_CLUSTER_SETTINGS_H

#include "control/base/config.h"
#include "control/cluster/model/quota.h"

/* When what programs have is encrypted on its way to another node: else only where their own channels are. */
enum flyt_encryption { FLYT_ENCRYPTION_AUTO, FLYT_ENCRYPTION_ALWAYS, FLYT_ENCRYPTION_ASKED };

struct flyt_cluster_settings {
    char *name;
    char *listen;
    char *socket;
    char *socket_group;
    char *store;
    uint64_t store_timeout_ms;
    char *backup_folder;
    char *advertise;
    struct flyt_strings managers;
    struct {
        char *authority, *certificate, *key, *authority_key;
        uint64_t valid_days;
    } tls;
    int policy;
    int isolation;
    int sharing;
    uint64_t window_ms;
    uint64_t sessions;
    char *tenant;
    bool is_encrypted;
    int migration_encryption; /* enum flyt_encryption */
    struct flyt_quota quota;
    uint64_t client_lost_ms, allocation_linger_ms, desired_poll_ms, heartbeat_ms, node_lost_ms, fence_after_ms,
        lease_ms, lease_renew_ms, order_ms;
    uint64_t events_max, connections_max, per_address_max, per_identity_max;
    char *metrics;
};

extern const struct flyt_setting flyt_cluster_settings_table[];
/* What the table cannot say. 0 or negative and *err. */
int flyt_cluster_settings_check(const void *settings, struct flyt_error *err);

#endif
