#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "control/base/config.h"
#include "control/cluster/model/placement.h"
#include "control/cluster/model/settings.h"
#include "rpc/base/error.h"
#include "rpc/base/time_slice_rules.h"
#include "rpc/base/url.h"

static const char *const policies[] = {"binpack", "spread", NULL};
static const char *const sharings[] = {"exclusive", "time", NULL};
static const char *const encryptions[] = {"auto", "always", "asked", NULL};
static const char *const isolations[] = {"shared", "strict", NULL};

#define AT(field) .offset = offsetof(struct flyt_cluster_settings, field)
#define TIB       (1ull << 40)

const struct flyt_setting flyt_cluster_settings_table[] = {
    {"name", FLYT_SETTING_STRING, AT(name), "cluster", .help = "of this manager, in logs, status and its certificate"},
    {"listen", FLYT_SETTING_STRING, AT(listen), "tcp://127.0.0.1:9402",
     .help = "where nodes, VMs and flytctl connect; other than loopback addresses need tls"},
    {"socket", FLYT_SETTING_STRING, AT(socket), "/run/flyt/cluster.sock",
     .help = "unix socket for operators on this machine, mode 0660; empty: none"},
    {"socket_group", FLYT_SETTING_STRING, AT(socket_group), "flyt", .help = "its group, where there is such a group"},
    {"store", FLYT_SETTING_STRING, AT(store), "sqlite:///var/lib/flyt/cluster/cluster.db",
     .help = "sqlite:///PATH or mongodb://HOST/DATABASE"},
    {"store_timeout_s", FLYT_SETTING_SECONDS, AT(store_timeout_ms), "2.5", 100, 60000,
     .help = "of one operation of the store"},
    {"backup_folder", FLYT_SETTING_STRING, AT(backup_folder), "", .is_live = true,
     .help = "where a backup's copy lies while it is fetched; empty: the store's, with MongoDB /var/lib/flyt/cluster"},
    {"advertise", FLYT_SETTING_STRING, AT(advertise), "",
     .help = "address of this manager as others reach it; empty: listen"},
    {"managers", FLYT_SETTING_STRINGS, AT(managers), "", .is_live = true, .help = "addresses of the other managers"},
    {"tls.authority", FLYT_SETTING_STRING, AT(tls.authority), "", .help = "the CA's certificates, PEM"},
    {"tls.certificate", FLYT_SETTING_STRING, AT(tls.certificate), "", .help = "own certificate, PEM"},
    {"tls.key", FLYT_SETTING_STRING, AT(tls.key), "", .help = "its key, PEM, mode 0600"},
    {"tls.authority_key", FLYT_SETTING_STRING, AT(tls.authority_key), "",
     .help = "the CA's key: this manager enrols nodes, VMs and operators; empty: it does not"},
    {"tls.valid_days", FLYT_SETTING_NUMBER, AT(tls.valid_days), "365", 1, 36500,
     .help = "how long a certificate that it signs is valid"},
    {"defaults.policy", FLYT_SETTING_CHOICE, AT(policy), "binpack", .choices = policies, .is_live = true,
     .help = "binpack (fill GPUs one after another) or spread"},
    {"defaults.isolation", FLYT_SETTING_CHOICE, AT(isolation), "shared", .choices = isolations, .is_live = true,
     .help = "shared (MPS) or strict"},
    {"defaults.sharing", FLYT_SETTING_CHOICE, AT(sharing), "exclusive", .choices = sharings, .is_live = true,
     .help = "exclusive (a VM's SMs are its own) or time (VMs that say nothing else share SMs, in turns)"},
    {"defaults.window_s", FLYT_SETTING_SECONDS, AT(window_ms), "0.1", FLYT_TIME_SLICE_WINDOW_MIN_MS,
     FLYT_TIME_SLICE_WINDOW_MAX_MS, .is_live = true,
     .help = "in which VMs that share SMs get their shares of the time"},
    {"defaults.sessions", FLYT_SETTING_NUMBER, AT(sessions), "4", 1, 4096, .is_live = true,
     .help = "client slots that a VM gets on each of its GPUs"},
    {"defaults.tenant", FLYT_SETTING_STRING, AT(tenant), "default", .help = "of VMs whose document names none"},
    {"encrypted", FLYT_SETTING_BOOL, AT(is_encrypted), "false", .is_live = true,
     .help = "programs encrypt the channel to their server (TLS 1.3)"},
    {"migration_encrypted", FLYT_SETTING_CHOICE, AT(migration_encryption), "auto", .choices = encryptions,
     .is_live = true,
     .help = "what programs have, when they move to another node: always; asked (where their channels are); auto (also "
             "where the node's addresses are others than loopback)"},
    {"quota.compute_units", FLYT_SETTING_NUMBER, AT(quota.sm_count), "0", 0, 1 << 30, .is_live = true,
     .help = "SMs of a tenant without a document of its own; 0: any number"},
    {"quota.memory", FLYT_SETTING_SIZE, AT(quota.memory_bytes), "0", 0, 1024 * TIB, .is_live = true,
     .help = "its memory"},
    {"quota.sessions", FLYT_SETTING_NUMBER, AT(quota.session_count), "0", 0, 1 << 30, .is_live = true,
     .help = "its client slots"},
    {"quota.vms", FLYT_SETTING_NUMBER, AT(quota.vm_count), "0", 0, 1 << 30, .is_live = true,
     .help = "its VMs with an allocation"},
    {"client_lost_s", FLYT_SETTING_SECONDS, AT(client_lost_ms), "60", 1000, 86400000, .is_live = true,
     .help = "a program that is silent so long is lost; told to nodes"},
    {"allocation_linger_s", FLYT_SETTING_SECONDS, AT(allocation_linger_ms), "600", 0, 86400000, .is_live = true,
     .help = "how long an allocation stays after its last session"},
    {"desired_poll_s", FLYT_SETTING_SECONDS, AT(desired_poll_ms), "2", 100, 3600000, .is_live = true,
     .help = "how often vm_required_resources is read"},
    {"heartbeat_s", FLYT_SETTING_SECONDS, AT(heartbeat_ms), "2", 100, 60000, .is_live = true,
     .help = "how often nodes report; told to nodes"},
    {"node_lost_s", FLYT_SETTING_SECONDS, AT(node_lost_ms), "10", 500, 3600000, .is_live = true,
     .help = "a node that is silent so long is lost; its allocations stay"},
    {"fence_after_s", FLYT_SETTING_SECONDS, AT(fence_after_ms), "0", 0, 86400000, .is_live = true,
     .help = "nodes fence themselves after this: a node lost for so long frees its allocations; 0: never"},
    {"lease_s", FLYT_SETTING_SECONDS, AT(lease_ms), "5", 1000, 60000, .help = "leadership with a shared store"},
    {"lease_renew_s", FLYT_SETTING_SECONDS, AT(lease_renew_ms), "1", 100, 30000, .help = "how often it is renewed"},
    {"order_timeout_s", FLYT_SETTING_SECONDS, AT(order_ms), "15", 100, 600000, .is_live = true,
     .help = "how long a node may take to carry out an order"},
    {"events_max", FLYT_SETTING_NUMBER, AT(events_max), "10000", 16, 1000000,
     .help = "events that are kept, the oldest are deleted"},
    {"connections_max", FLYT_SETTING_NUMBER, AT(connections_max), "16384", 4, 1000000, .help = "connections at once"},
    {"connections_per_address_max", FLYT_SETTING_NUMBER, AT(per_address_max), "4096", 1, 1000000,
     .help = "of one address, on the unix socket of one user: more than there are nodes and VMs behind one (NAT)"},
    {"connections_per_identity_max", FLYT_SETTING_NUMBER, AT(per_identity_max), "64", 2, 1000000,
     .help = "of one node, VM, operator or viewer"},
    {"metrics", FLYT_SETTING_STRING, AT(metrics), "127.0.0.1:9403",
     .help = "ADDRESS:PORT of /metrics and /healthz; empty: none"},
    {0},
};

static bool is_loopback(const char *host)
{
    struct in_addr four;

    return !strcmp(host, "::1") || !strcmp(host, "localhost") ||
           (inet_pton(AF_INET, host, &four) == 1 && (ntohl(four.s_addr) >> 24) == 127);
}

int flyt_cluster_settings_check(const void *data, struct flyt_error *err)
{
    const struct flyt_cluster_settings *settings = data;
    bool has_tls = settings->tls.certificate != NULL;
    struct flyt_url url;
    int status;

    if (has_tls != (settings->tls.authority != NULL) || has_tls != (settings->tls.key != NULL))
        return flyt_error_set(err, -EINVAL, "tls: authority, certificate and key belong together");
    if (settings->tls.authority_key && !has_tls)
        return flyt_error_set(err, -EINVAL, "tls.authority_key is of no use without tls.certificate");
    if (!settings->listen && !settings->socket)
        return flyt_error_set(err, -EINVAL, "neither listen nor socket is set: nobody could connect");
    if (settings->listen) {
        status = flyt_url_parse(settings->listen, err, &url);
        if (status)
            return status;
        if (url.scheme != FLYT_URL_TCP)
            return flyt_error_set(err, -EINVAL, "listen is %s, expected tcp://HOST:PORT", settings->listen);
        if (!has_tls && !is_loopback(url.host))
            return flyt_error_set(err, -EINVAL,
                                  "listen is %s: without tls only loopback addresses are served, set tls.certificate",
                                  settings->listen);
    }
    if (settings->per_address_max > settings->connections_max)
        return flyt_error_set(err, -EINVAL, "connections_per_address_max is more than connections_max");
    if (settings->per_identity_max > settings->per_address_max)
        return flyt_error_set(err, -EINVAL, "connections_per_identity_max is more than connections_per_address_max");
    if (settings->lease_renew_ms * 2 > settings->lease_ms)
        return flyt_error_set(err, -EINVAL, "lease_renew_s is more than half of lease_s");
    if (settings->heartbeat_ms * 2 > settings->node_lost_ms)
        return flyt_error_set(err, -EINVAL, "heartbeat_s is more than half of node_lost_s");
    if (settings->fence_after_ms && settings->fence_after_ms < 2 * settings->node_lost_ms)
        return flyt_error_set(err, -EINVAL, "fence_after_s is less than twice node_lost_s");
    for (size_t i = 0; i < settings->managers.count; i++) {
        status = flyt_url_parse(settings->managers.items[i], err, &url);
        if (status)
            return status;
    }
    if (settings->managers.count >= FLYT_MANAGERS_MAX)
        return flyt_error_set(err, -EINVAL, "managers has more than %d addresses", FLYT_MANAGERS_MAX - 1);
    return 0;
}
