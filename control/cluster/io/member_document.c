/* Documents of members and of join tokens. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/io/document.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/member_document.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/member.h"
#include "control/cluster/model/table.h"

enum { DOCUMENT, CONTENT, PARTS };

static const struct flyt_field member_fields[] = {
    FLYT_DOCUMENT_FIELDS(DOCUMENT),
    {"serial", FLYT_TEXT(struct flyt_member, serial), .part = CONTENT, .rules = FLYT_BORROWED},
    {"enrolled_ms", FLYT_NUMBER(struct flyt_member, enrolled_ms), .part = CONTENT},
    {0},
};

static const struct flyt_field token_fields[] = {
    FLYT_DOCUMENT_FIELDS(DOCUMENT),
    {"kind", FLYT_CHOICE(struct flyt_token, kind, flyt_kind_names), .part = CONTENT, .min = 1, .rules = FLYT_NEEDED},
    {"name", FLYT_TEXT(struct flyt_token, name), .part = CONTENT, .rules = FLYT_BORROWED},
    {"expires_ms", FLYT_NUMBER(struct flyt_token, expires_ms), .part = CONTENT},
    {0},
};

cJSON *flyt_member_document(void *member)
{
    return flyt_document_write(member_fields, (const void *const[PARTS]){[CONTENT] = member}, "member",
                               ((struct flyt_member *)member)->key);
}

cJSON *flyt_token_document(void *token)
{
    return flyt_document_write(token_fields, (const void *const[PARTS]){[CONTENT] = token}, "join token of",
                               ((struct flyt_token *)token)->name);
}

void flyt_member_free(struct flyt_member *member)
{
    if (!member)
        return;
    flyt_record_free(member->record);
    free((char *)member->key);
    free(member->serial);
    free(member);
}

void flyt_token_free(struct flyt_token *token)
{
    if (!token)
        return;
    flyt_record_free(token->record);
    free((char *)token->key);
    free(token->name);
    free(token);
}

struct flyt_member *flyt_member_new(struct flyt_cluster *cluster, const char *key, const char *serial,
                                    uint64_t revision)
{
    struct flyt_member *member = calloc(1, sizeof *member);

    if (!member)
        return NULL;
    member->key = strdup(key);
    member->serial = strdup(serial);
    if (member->key && member->serial)
        member->record = flyt_record_new(cluster->store_writer, "members", key, revision, flyt_member_document, member);
    if (!member->record || flyt_table_add(&cluster->members, member)) {
        flyt_member_free(member);
        return NULL;
    }
    return member;
}

struct flyt_token *flyt_token_new(struct flyt_cluster *cluster, const char *key, enum flyt_peer_kind kind,
                                  const char *name, uint64_t revision)
{
    struct flyt_token *token = calloc(1, sizeof *token);

    if (!token)
        return NULL;
    token->key = strdup(key);
    token->name = strdup(name);
    token->kind = kind;
    if (token->key && token->name)
        token->record = flyt_record_new(cluster->store_writer, "tokens", key, revision, flyt_token_document, token);
    if (!token->record || flyt_table_add(&cluster->tokens, token)) {
        flyt_token_free(token);
        return NULL;
    }
    return token;
}

int flyt_member_load(struct flyt_cluster *cluster, const cJSON *document)
{
    struct flyt_document its;
    struct flyt_member read = {0};
    int status =
        flyt_document_read(member_fields, document, (void *const[PARTS]){&its, &read}, "the document of a", "member");
    if (status)
        return status;
    struct flyt_member *member = flyt_member_new(cluster, its.id, read.serial, its.revision);
    if (!member)
        return -ENOMEM;
    member->enrolled_ms = read.enrolled_ms;
    return 0;
}

int flyt_token_load(struct flyt_cluster *cluster, const cJSON *document)
{
    struct flyt_document its;
    struct flyt_token read = {0};
    int status = flyt_document_read(token_fields, document, (void *const[PARTS]){&its, &read}, "the document of a",
                                    "join token");
    if (status)
        return status;
    struct flyt_token *token = flyt_token_new(cluster, its.id, read.kind, read.name, its.revision);
    if (!token)
        return -ENOMEM;
    token->expires_ms = read.expires_ms;
    return 0;
}
