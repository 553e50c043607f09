/* Descriptors of cuDNN's graph interface in the client, and what is noted so that they are made again at another
 * server. */
#ifndef FLYT_LIBRARY_CUDNN_BACKEND_H
#define FLYT_LIBRARY_CUDNN_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cpu/client/library/library_call.h"
#include "rpc/library/cudnn_list.h"

extern const struct flyt_lib flyt_lib_cudnn;
extern const struct flyt_lib_kind flyt_lib_kind_cudnn_cudnn, flyt_lib_kind_cudnn_backend;
extern const struct flyt_lib_row flyt_lib_row_cudnnBackendCreateDescriptor, flyt_lib_row_cudnnBackendFinalize,
    flyt_lib_row_cudnnBackendDestroyDescriptor, flyt_lib_row_cudnnBackendGetAttribute, flyt_lib_row_cudnnBackendExecute;

enum { SUCCESS = 0, INVALID = 2000, IS_NULL = 2002, NOT_FINALIZED = 2004, NOT_SUPPORTED = 3000, NO_MEMORY = 4003 };
enum { LIST_BYTES_MAX = 60000 };

struct attribute {
    int name, type;
    int64_t count;
    size_t bytes;
    void *elements;
};

/* A tensor whose data lies in the program's memory. */
struct by_value {
    int64_t tensor_id;
    size_t bytes;
};

struct descriptor {
    uint32_t magic;
    int type;
    bool is_final;
    void *object; /* the server's, as the library's handles are; NULL: none yet */
    struct attribute *attributes;
    size_t attribute_count;
    struct by_value *values;
    size_t value_count;
    void *graph;        /* of heuristics: the server's object */
    bool is_filled;     /* by another one's attribute */
    bool has_workspace; /* the plan that is made again is to need no more than the program was told */
};

struct flyt_cudnn_list {
    unsigned char *data;
    size_t bytes, capacity;
};

/* Room behind the list for an attribute; NULL: no memory, or more than a call may have. */
void *flyt_cudnn_list_add(struct flyt_cudnn_list *list, int name, int type, int64_t count, size_t bytes);

/* Asks the server for an attribute. ids: of descriptors to be filled, as many as requested, or NULL; answer: for what
 * is told, or NULL. */
int flyt_cudnn_ask_into(struct descriptor *self, int name, int type, int64_t requested, int64_t *ret_count,
                        const uint64_t *ids, void *answer, size_t bytes);

/* ---- cudnn_again.c ---- */

/* The ids of objects in a list, to be freed. false: no memory. */
bool flyt_cudnn_list_named(const struct flyt_cudnn_list *list, uint64_t **ret_ids, size_t *ret_count);
/* An attribute of `self` has filled the first of these descriptors, as many as `count` and no more than `requested`. */
void flyt_cudnn_note_filled(struct descriptor *self, int name, void **descs, const uint64_t *ids, int64_t requested,
                            int64_t count);
/* The program has been told of a plan's workspace, and will have so much. */
void flyt_cudnn_note_workspace(struct descriptor *self, const void *bytes);

#endif
