/* Documents of members and of join tokens, and what is made of them. */
#ifndef FLYT_CLUSTER_IO_MEMBER_DOCUMENT_H
#define FLYT_CLUSTER_IO_MEMBER_DOCUMENT_H

#include <cjson/cJSON.h>
#include <stdint.h>

#include "control.h"

struct flyt_cluster;
struct flyt_member;
struct flyt_token;

/* In the registry; texts are copied. revision: of its document, 0: there is none. NULL: no memory. */
struct flyt_member *flyt_member_new(struct flyt_cluster *cluster, const char *key, const char *serial,
                                    uint64_t revision);
struct flyt_token *flyt_token_new(struct flyt_cluster *cluster, const char *key, enum flyt_peer_kind kind,
                                  const char *name, uint64_t revision);
/* Both are out of the registry by then; NULL is allowed. */
void flyt_member_free(struct flyt_member *member);
void flyt_token_free(struct flyt_token *token);
/* Of a struct flyt_member, of a struct flyt_token. NULL: no memory. */
cJSON *flyt_member_document(void *member);
cJSON *flyt_token_document(void *token);
/* From the store. 0 or a negative errno. */
int flyt_member_load(struct flyt_cluster *cluster, const cJSON *document);
int flyt_token_load(struct flyt_cluster *cluster, const cJSON *document);

#endif
