/* Who belongs to the cluster: join tokens, enrolment, admission by the store's record, revocation. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "control/base/name.h"
#include "control/base/peer.h"
#include "control/base/tls.h"
#include "control/cluster/api/member.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/member_document.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/link.h"
#include "control/cluster/model/member.h"
#include "control/cluster/model/settings.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/text.h"
#include "control/cluster/model/vm.h"
#include "control/store/store.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"
#include "rpc/base/sha256.h"

enum { TOKENS_MAX = 10000, TOKEN_VALID_S = 3600, TOKEN_VALID_MAX_S = 30 * 86400, SECRET_BYTES = 32 };
enum { REFUSALS_MAX = 50, REFUSALS_MS = 300000 }; /* events of refusals, in such a time */

static bool parse_kind(const char *name, enum flyt_peer_kind *ret_kind)
{
    for (unsigned kind = FLYT_PEER_NODE; kind <= FLYT_PEER_VIEWER; kind++) {
        if (strcmp(name, flyt_kind_name((enum flyt_peer_kind)kind)))
            continue;
        *ret_kind = (enum flyt_peer_kind)kind;
        return true;
    }
    return false;
}

/* ---- admission ---- */

static const char *member_key(enum flyt_peer_kind kind, const char *name, char *key)
{
    snprintf(key, FLYT_NAME_BYTES_MAX + 16, "%s:%s", flyt_kind_name(kind), name);
    return key;
}

/* Who is not let in is an event, within bounds: strangers must not push out what else has happened. */
static void tell_refusal(struct flyt_cluster *cluster, const char *object, const char *sentence)
{
    uint64_t now_ms = flyt_clock_ms();

    if (now_ms - cluster->refusals_since_ms > REFUSALS_MS) {
        cluster->refusals_since_ms = now_ms;
        cluster->refusals = 0;
    }
    flyt_warn("%s", sentence);
    if (cluster->is_leader && cluster->refusals++ < REFUSALS_MAX)
        flyt_event_add(cluster, "member.refused", "manager", object, NULL, NULL, "%s", sentence);
}

bool flyt_member_admit(struct flyt_identity *identity, void *user)
{
    struct flyt_cluster *cluster = user;
    char sentence[1024];
    char key[FLYT_NAME_BYTES_MAX + 16];

    if (!identity->serial[0])
        return true; /* a unix socket: the file's permissions have decided */
    /* Who does not lead has no records: it only tells where the leader is, and looks again when it leads
     * (flyt_member_recheck). */
    if (!cluster->is_loaded)
        return true;
    for (unsigned kind = FLYT_PEER_NODE; kind <= FLYT_PEER_VIEWER; kind++) {
        if (identity->role != (enum flyt_role)(1 << kind))
            continue;
        const struct flyt_member *member =
            flyt_table_find(&cluster->members, member_key((enum flyt_peer_kind)kind, identity->name, key));
        if (member && !strcasecmp(member->serial, identity->serial))
            return true;
        snprintf(sentence, sizeof sentence, "%s from %s was not admitted: %s", key, identity->address,
                 member ? "its certificate is not the one that it was enrolled with" : "it is no member (any more)");
        tell_refusal(cluster, key, sentence);
        return false;
    }
    return false;
}

void flyt_member_recheck(struct flyt_cluster *cluster)
{
    struct flyt_link *link, *next;

    for (link = TAILQ_FIRST(&cluster->links); link; link = next) {
        struct flyt_identity identity = *flyt_peer_identity(link->peer);
        next = TAILQ_NEXT(link, entry);
        /* Nobody yet who has TLS without a certificate: all that he may do is enrol. */
        if (identity.role != FLYT_ROLE_ANONYMOUS && !flyt_member_admit(&identity, cluster))
            flyt_link_close(link, "it is no member");
    }
}

/* Closes the connections of an identity. */
static void disconnect(struct flyt_cluster *cluster, enum flyt_peer_kind kind, const char *name, const char *why)
{
    struct flyt_link *link, *next;

    for (link = TAILQ_FIRST(&cluster->links); link; link = next) {
        next = TAILQ_NEXT(link, entry);
        const struct flyt_identity *identity = flyt_peer_identity(link->peer);
        if (identity->role == (enum flyt_role)(1 << kind) && !strcmp(identity->name, name))
            flyt_link_close(link, why);
    }
}

/* A VM's tickets are worthless from the moment on that the node knows. */
static void revoke_tickets(struct flyt_cluster_allocation *allocation)
{
    allocation->generation++;
    allocation->revision++;
    flyt_allocation_write(allocation);
    flyt_allocation_order(allocation);
}

static void revoke_identity(struct flyt_cluster *cluster, enum flyt_peer_kind kind, const char *name)
{
    struct flyt_vm *vm = kind == FLYT_PEER_VM ? flyt_table_find(&cluster->vms, name) : NULL;

    disconnect(cluster, kind, name, "its membership was revoked");
    if (vm && vm->allocation)
        revoke_tickets(vm->allocation);
}

void flyt_member_revoke_removed(struct flyt_cluster *cluster)
{
    char key[FLYT_NAME_BYTES_MAX + 16];

    /* In clear nobody has a record. */
    for (size_t i = 0; cluster->tls && i < cluster->vms.count; i++) {
        struct flyt_vm *vm = cluster->vms.items[i];
        if (!vm->allocation || flyt_table_find(&cluster->members, member_key(FLYT_PEER_VM, vm->key, key)))
            continue;
        flyt_event_add(cluster, "member.revoked", "document", key, NULL, NULL,
                       "it has an allocation and no record: its tickets are worthless from now on");
        revoke_tickets(vm->allocation);
    }
}

void flyt_member_changed(struct flyt_cluster *cluster, const struct flyt_change *change)
{
    struct flyt_member *member = flyt_table_find(&cluster->members, change->id);
    const char *colon = strchr(change->id, ':');
    char kind_name[16];
    enum flyt_peer_kind kind;

    if (change->document || !member || !colon)
        return; /* only removal by hand says something: enrolment is this manager's own writing */
    snprintf(kind_name, sizeof kind_name, "%.*s", (int)(colon - change->id), change->id);
    if (!parse_kind(kind_name, &kind))
        return;
    flyt_table_remove(&cluster->members, member);
    flyt_member_free(member);
    flyt_event_add(cluster, "member.revoked", "document", change->id, NULL, NULL, "its record was removed by hand");
    revoke_identity(cluster, kind, colon + 1);
}

/* ---- tokens ---- */

struct token_call {
    struct flyt_record_wait wait;
    struct flyt_call *call;
    struct flyt_cluster *cluster;
    char key[2 * FLYT_SHA256_BYTES + 1];
    char who[FLYT_NAME_BYTES_MAX + 1];
    char text[FLYT_JOIN_TOKEN_BYTES];
};

static void token_written(void *user, enum flyt_store_result result, const char *err)
{
    struct token_call *made = user;
    struct flyt_token *token = flyt_table_find(&made->cluster->tokens, made->key);
    static char empty[] = "";

    if (result == FLYT_STORE_OK && token) {
        flyt_token_res res = {.outcome = {FLYT_STATUS_OK, empty}, .token = made->text};
        flyt_event_add(made->cluster, "token.made", made->who, token->name, NULL, NULL,
                       "a join token for %s %s, valid once", flyt_kind_name(token->kind), token->name);
        flyt_call_reply(made->call, &res);
    } else {
        if (token) {
            flyt_table_remove(&made->cluster->tokens, token);
            flyt_record_delete(token->record, NULL);
            token->record = NULL;
            flyt_token_free(token);
        }
        flyt_call_reply(made->call,
                        &(flyt_token_res){.outcome = {FLYT_STATUS_UNAVAILABLE, (char *)err}, .token = empty});
    }
    explicit_bzero(made, sizeof *made);
    free(made);
}

static void hash_secret(const unsigned char *secret, char *ret_key)
{
    unsigned char digest[FLYT_SHA256_BYTES];

    flyt_sha256_of(secret, SECRET_BYTES, digest);
    for (unsigned i = 0; i < sizeof digest; i++)
        snprintf(ret_key + 2 * i, 3, "%02x", digest[i]);
}

static void drop_expired(struct flyt_cluster *cluster)
{
    uint64_t now_ms = flyt_wall_ms();

    for (size_t i = cluster->tokens.count; i-- > 0;) {
        struct flyt_token *token = cluster->tokens.items[i];
        if (token->expires_ms > now_ms)
            continue;
        flyt_table_remove(&cluster->tokens, token);
        flyt_record_delete(token->record, NULL);
        token->record = NULL;
        flyt_token_free(token);
    }
}

static void refuse_token(struct flyt_call *call, flyt_status status, const char *sentence)
{
    static char empty[] = "";

    flyt_call_reply(call, &(flyt_token_res){.outcome = {status, (char *)sentence}, .token = empty});
}

void flyt_serve_join_token(struct flyt_call *call, void *data)
{
    const flyt_token_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    const struct flyt_cluster_settings *settings = cluster->settings;
    unsigned char authority[32], secret[SECRET_BYTES];
    struct flyt_error err = {0};

    if (!flyt_lead_may(cluster, call))
        return;
    drop_expired(cluster);
    if (args->kind < FLYT_PEER_NODE || args->kind > FLYT_PEER_VIEWER || !*args->name) {
        refuse_token(call, FLYT_STATUS_INVALID, "a token is for a node, vm, operator or viewer with a name");
        return;
    }
    if (args->kind == FLYT_PEER_VM ? !flyt_is_address(args->name) : !flyt_is_name(args->name)) {
        refuse_token(call, FLYT_STATUS_INVALID,
                     args->kind == FLYT_PEER_VM
                         ? "a VM is named by its vm_ip, an IP address"
                         : "a name has letters, digits, and '.', '_', '-', '@' behind the first");
        return;
    }
    if (!settings->tls.authority_key) {
        refuse_token(call, FLYT_STATUS_NOT_SUPPORTED, "this manager has no tls.authority_key: it cannot enrol anybody");
        return;
    }
    if (cluster->tokens.count >= TOKENS_MAX) {
        refuse_token(call, FLYT_STATUS_NO_CAPACITY, "there are too many unused tokens");
        return;
    }
    if (flyt_tls_fingerprint(settings->tls.authority, &err, authority)) {
        refuse_token(call, FLYT_STATUS_UNAVAILABLE, err.text);
        return;
    }
    struct token_call *made = calloc(1, sizeof *made);
    if (!made || getrandom(secret, sizeof secret, 0) != sizeof secret) {
        free(made);
        flyt_call_fail(call);
        return;
    }
    made->call = call;
    made->cluster = cluster;
    flyt_call_who(call, made->who);
    flyt_join_token_make(authority, secret, made->text);
    hash_secret(secret, made->key);
    explicit_bzero(secret, sizeof secret);
    struct flyt_token *token = flyt_token_new(cluster, made->key, args->kind, args->name, 0);
    if (!token) {
        free(made);
        flyt_call_fail(call);
        return;
    }
    uint64_t valid_s = args->valid_s ? args->valid_s : TOKEN_VALID_S;
    token->expires_ms = flyt_wall_ms() + (valid_s < TOKEN_VALID_MAX_S ? valid_s : TOKEN_VALID_MAX_S) * 1000;
    made->wait = (struct flyt_record_wait){.done = token_written, .user = made};
    flyt_record_change(token->record, &made->wait);
}

/* ---- enrolment ---- */

struct enrolment {
    struct flyt_record_wait wait;
    struct flyt_call *call;
    struct flyt_cluster *cluster;
    enum flyt_peer_kind kind;
    char name[FLYT_NAME_BYTES_MAX + 1];
    char *certificates, *serial;
};

static void enrolment_free(struct enrolment *enrolment)
{
    free(enrolment->certificates);
    free(enrolment->serial);
    free(enrolment);
}

static void refuse(struct flyt_call *call, flyt_status status, const char *sentence)
{
    static char empty[] = "";
    flyt_enrol_res res = {.outcome = {status, (char *)sentence}, .kind = FLYT_PEER_NODE, .name = empty};

    flyt_call_reply(call, &res);
}

static char *read_file(const char *path, size_t bytes_max, u_int *ret_bytes)
{
    FILE *file = fopen(path, "re");
    char *data = file ? malloc(bytes_max) : NULL;
    size_t bytes = data ? fread(data, 1, bytes_max, file) : 0;
    bool is_whole = data && !ferror(file) && feof(file);

    if (file)
        fclose(file);
    if (!is_whole) {
        free(data);
        return NULL;
    }
    *ret_bytes = (u_int)bytes;
    return data;
}

static void member_written(void *user, enum flyt_store_result result, const char *err)
{
    struct enrolment *enrolment = user;
    struct flyt_cluster *cluster = enrolment->cluster;
    static char empty[] = "";
    flyt_enrol_res res = {.outcome = {FLYT_STATUS_OK, empty}, .kind = enrolment->kind, .name = enrolment->name};
    char key[FLYT_NAME_BYTES_MAX + 16];

    res.authority.authority_val =
        read_file(cluster->settings->tls.authority, FLYT_CERTIFICATE_BYTES_MAX, &res.authority.authority_len);
    if (result != FLYT_STORE_OK) {
        refuse(enrolment->call, FLYT_STATUS_UNAVAILABLE, "the store did not take the record; make a new token");
    } else if (!res.authority.authority_val) {
        refuse(enrolment->call, FLYT_STATUS_UNAVAILABLE, "tls.authority cannot be read");
    } else {
        res.certificates.certificates_val = enrolment->certificates;
        res.certificates.certificates_len = (u_int)strlen(enrolment->certificates);
        flyt_event_add(cluster, "member.enrolled", "manager", member_key(enrolment->kind, enrolment->name, key), NULL,
                       NULL, "enrolled from %s with certificate %s", flyt_call_identity(enrolment->call)->address,
                       enrolment->serial);
        flyt_call_reply(enrolment->call, &res);
    }
    free(res.authority.authority_val);
    enrolment_free(enrolment);
}

/* The token is used up, and that is in the store: now the record. */
static void token_spent(void *user, enum flyt_store_result result, const char *err)
{
    struct enrolment *enrolment = user;
    struct flyt_cluster *cluster = enrolment->cluster;
    char key[FLYT_NAME_BYTES_MAX + 16];

    if (result != FLYT_STORE_OK) {
        refuse(enrolment->call, FLYT_STATUS_UNAVAILABLE, "the store is not reachable; make a new token");
        enrolment_free(enrolment);
        return;
    }
    struct flyt_member *member = flyt_table_find(&cluster->members, member_key(enrolment->kind, enrolment->name, key));
    if (member)
        disconnect(cluster, enrolment->kind, enrolment->name, "it was enrolled anew");
    else
        member = flyt_member_new(cluster, key, enrolment->serial, 0);
    if (!member || flyt_text_set(&member->serial, enrolment->serial)) {
        refuse(enrolment->call, FLYT_STATUS_UNAVAILABLE, "the cluster manager has no memory");
        enrolment_free(enrolment);
        return;
    }
    member->enrolled_ms = flyt_wall_ms();
    enrolment->wait = (struct flyt_record_wait){.done = member_written, .user = enrolment};
    flyt_record_change(member->record, &enrolment->wait);
}

/* A request that says for whom it is must say the same as the token, which is not used up by a mistake. */
static bool is_for_another(const struct flyt_token *token, const flyt_enrol_args *args)
{
    char name[FLYT_NAME_BYTES_MAX + 1];
    enum flyt_role role;

    return !flyt_tls_request_role((const unsigned char *)args->request.request_val, args->request.request_len, &role,
                                  name) &&
           (role != (enum flyt_role)(1 << token->kind) || strcmp(name, token->name));
}

void flyt_serve_enrol(struct flyt_call *call, void *data)
{
    const flyt_enrol_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    const struct flyt_cluster_settings *settings = cluster->settings;
    unsigned char authority[32], secret[SECRET_BYTES];
    char key[2 * FLYT_SHA256_BYTES + 1], sentence[1024];
    struct flyt_error err = {0};

    if (!cluster->is_leader) {
        refuse(call, FLYT_STATUS_NOT_LEADER, "this manager does not lead");
        return;
    }
    if (!settings->tls.authority_key) {
        refuse(call, FLYT_STATUS_NOT_SUPPORTED, "this manager has no tls.authority_key: it cannot enrol anybody");
        return;
    }
    drop_expired(cluster);
    struct flyt_token *token = NULL;
    if (!flyt_join_token_parse(args->token, authority, secret)) {
        hash_secret(secret, key);
        token = flyt_table_find(&cluster->tokens, key);
    }
    if (!token) {
        snprintf(sentence, sizeof sentence, "enrolment from %s refused: the join token is unknown, used or expired",
                 flyt_call_identity(call)->address);
        tell_refusal(cluster, "", sentence);
        refuse(call, FLYT_STATUS_DENIED, "the join token is unknown, was used already, or has expired");
        return;
    }
    if (is_for_another(token, args)) {
        snprintf(sentence, sizeof sentence, "the join token is for %s %s", flyt_kind_name(token->kind), token->name);
        refuse(call, FLYT_STATUS_DENIED, sentence);
        snprintf(sentence, sizeof sentence, "enrolment from %s refused: somebody else used the join token of %s %s",
                 flyt_call_identity(call)->address, flyt_kind_name(token->kind), token->name);
        tell_refusal(cluster, token->name, sentence);
        return;
    }
    struct enrolment *enrolment = calloc(1, sizeof *enrolment);
    if (!enrolment) {
        flyt_call_fail(call);
        return;
    }
    enrolment->call = call;
    enrolment->cluster = cluster;
    enrolment->kind = token->kind;
    snprintf(enrolment->name, sizeof enrolment->name, "%s", token->name);
    if (flyt_tls_sign(settings->tls.authority, settings->tls.authority_key,
                      (const unsigned char *)args->request.request_val, args->request.request_len,
                      (enum flyt_role)(1 << token->kind), token->name, (unsigned)settings->tls.valid_days, &err,
                      &enrolment->certificates, &enrolment->serial)) {
        flyt_warn("enrolment of %s %s from %s failed: %s", flyt_kind_name(token->kind), token->name,
                  flyt_call_identity(call)->address, err.text);
        refuse(call, FLYT_STATUS_INVALID, err.text);
        enrolment_free(enrolment);
        return;
    }
    /* From here on nobody else can use it. */
    struct flyt_record *record = token->record;
    token->record = NULL;
    flyt_table_remove(&cluster->tokens, token);
    flyt_token_free(token);
    enrolment->wait = (struct flyt_record_wait){.done = token_spent, .user = enrolment};
    flyt_record_delete(record, &enrolment->wait);
}

/* ---- revocation ---- */

struct revocation {
    struct flyt_record_wait wait;
    struct flyt_call *call;
    struct flyt_cluster *cluster;
    enum flyt_peer_kind kind;
    char name[FLYT_NAME_BYTES_MAX + 1];
    char who[FLYT_NAME_BYTES_MAX + 1];
};

static void revoked(void *user, enum flyt_store_result result, const char *err)
{
    struct revocation *revocation = user;
    char key[FLYT_NAME_BYTES_MAX + 16];

    if (result == FLYT_STORE_OK) {
        flyt_event_add(revocation->cluster, "member.revoked", revocation->who,
                       member_key(revocation->kind, revocation->name, key), NULL, NULL, "revoked by an operator");
        flyt_call_outcome(revocation->call, FLYT_STATUS_OK, "%s", "");
    } else {
        flyt_call_outcome(revocation->call, FLYT_STATUS_UNAVAILABLE,
                          "it is not admitted any more, but the store has not recorded that yet: %s", err);
    }
    free(revocation);
}

void flyt_serve_revoke(struct flyt_call *call, void *data)
{
    const flyt_revoke_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    char key[FLYT_NAME_BYTES_MAX + 16];

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_member *member = flyt_table_find(&cluster->members, member_key(args->kind, args->name, key));
    struct revocation *revocation = member ? calloc(1, sizeof *revocation) : NULL;
    if (!member) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "%s is no member", key);
        return;
    }
    if (!revocation) {
        flyt_call_fail(call);
        return;
    }
    revocation->call = call;
    revocation->cluster = cluster;
    revocation->kind = args->kind;
    snprintf(revocation->name, sizeof revocation->name, "%s", args->name);
    flyt_call_who(call, revocation->who);
    struct flyt_record *record = member->record;
    member->record = NULL;
    flyt_table_remove(&cluster->members, member);
    flyt_member_free(member);
    revoke_identity(cluster, args->kind, revocation->name);
    revocation->wait = (struct flyt_record_wait){.done = revoked, .user = revocation};
    flyt_record_delete(record, &revocation->wait);
}

/* ---- admission of certificates that were made by hand ---- */

struct admission {
    struct flyt_record_wait wait;
    struct flyt_call *call;
    struct flyt_cluster *cluster;
    char key[FLYT_NAME_BYTES_MAX + 16];
    char who[FLYT_NAME_BYTES_MAX + 1];
    char serial[64];
};

static void admitted(void *user, enum flyt_store_result result, const char *err)
{
    struct admission *admission = user;

    if (result == FLYT_STORE_OK) {
        flyt_event_add(admission->cluster, "member.admitted", admission->who, admission->key, NULL, NULL,
                       "certificate %s is let in", admission->serial);
        flyt_call_outcome(admission->call, FLYT_STATUS_OK, "%s", "");
    } else {
        flyt_call_outcome(admission->call, FLYT_STATUS_UNAVAILABLE, "the store has not recorded it: %s", err);
    }
    free(admission);
}

/* Its kind, or 0: such a role is no member. */
static unsigned kind_of(enum flyt_role role)
{
    for (unsigned kind = FLYT_PEER_NODE; kind <= FLYT_PEER_VIEWER; kind++)
        if (role == (enum flyt_role)(1 << kind))
            return kind;
    return 0;
}

void flyt_serve_admit(struct flyt_call *call, void *data)
{
    const flyt_admit_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    char name[FLYT_NAME_BYTES_MAX + 1], serial[64];
    enum flyt_role role = FLYT_ROLE_ANONYMOUS;
    struct flyt_error err = {0};

    if (!flyt_lead_may(cluster, call))
        return;
    if (!cluster->settings->tls.authority) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_SUPPORTED, "this manager has no tls.authority: it knows no CA");
        return;
    }
    if (flyt_tls_read_member(cluster->settings->tls.authority, args->certificate.certificate_val,
                             args->certificate.certificate_len, &err, &role, name, serial)) {
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "%s", err.text);
        return;
    }
    if (!kind_of(role)) {
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "a manager's certificate needs no record");
        return;
    }
    struct admission *admission = calloc(1, sizeof *admission);
    if (!admission) {
        flyt_call_fail(call);
        return;
    }
    admission->call = call;
    admission->cluster = cluster;
    snprintf(admission->serial, sizeof admission->serial, "%s", serial);
    flyt_call_who(call, admission->who);
    struct flyt_member *member =
        flyt_table_find(&cluster->members, member_key((enum flyt_peer_kind)kind_of(role), name, admission->key));
    if (member && strcasecmp(member->serial, serial))
        disconnect(cluster, (enum flyt_peer_kind)kind_of(role), name, "another certificate was admitted for it");
    else if (!member)
        member = flyt_member_new(cluster, admission->key, serial, 0);
    if (!member || flyt_text_set(&member->serial, serial)) {
        free(admission);
        flyt_call_fail(call);
        return;
    }
    member->enrolled_ms = flyt_wall_ms();
    admission->wait = (struct flyt_record_wait){.done = admitted, .user = admission};
    flyt_record_change(member->record, &admission->wait);
}
