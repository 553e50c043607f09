/* Who may connect: members by their certificates, and tokens by which one becomes a member. */
#ifndef FLYT_CLUSTER_MODEL_MEMBER_H
#define FLYT_CLUSTER_MODEL_MEMBER_H

#include "control/base/peer.h"

struct flyt_record;

struct flyt_member {
    const char *key; /* "node:NAME" */
    char *serial;
    uint64_t enrolled_ms;
    struct flyt_record *record;
};

struct flyt_token {
    const char *key; /* SHA-256 of the secret */
    enum flyt_peer_kind kind;
    char *name;
    uint64_t expires_ms;
    struct flyt_record *record;
};

#endif
