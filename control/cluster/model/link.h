/* A connection of a node, a VM, an operator or another manager. */
#ifndef FLYT_CLUSTER_MODEL_LINK_H
#define FLYT_CLUSTER_MODEL_LINK_H

#include <sys/queue.h>

#include "control/base/peer.h"

struct flyt_backup;
struct flyt_cluster;
struct flyt_node;
struct flyt_vm;

/* What the pointer of a connection's user says first: the cluster itself before `ready`, a link afterwards. */
enum flyt_user_kind { FLYT_USER_CLUSTER, FLYT_USER_LINK };

/* A connection that said HELLO, or has not yet. */
struct flyt_link {
    enum flyt_user_kind user_kind;
    struct flyt_cluster *cluster;
    struct flyt_peer *peer;
    enum flyt_peer_kind kind; /* 0: no HELLO yet */
    bool is_clear;            /* HELLO is believed */
    char name[FLYT_NAME_BYTES_MAX + 1];
    char build[FLYT_NAME_BYTES_MAX + 1];
    char address[FLYT_NAME_BYTES_MAX + 1];
    unsigned char instance[FLYT_INSTANCE_BYTES];
    uint64_t silent_since_ms; /* monotonic: without a HELLO */
    struct flyt_node *node;   /* the one that it is, or NULL */
    struct flyt_vm *vm;
    struct flyt_backup *backup; /* that it fetches, or NULL */
    TAILQ_ENTRY(flyt_link) entry;
};

#endif
