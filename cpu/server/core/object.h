/*
 * The objects that a session's client named with ids: streams, events and libraries, by session and type. (Kernels are
 * found in their library, module.h.) Only the submission thread uses it.
 */
#ifndef FLYT_SERVER_OBJECT_H
#define FLYT_SERVER_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/base/id.h"
#include "rpc/base/idtable.h"

/* A session may have this many objects of a type; more is CUDA_ERROR_OUT_OF_MEMORY. */
enum { FLYT_OBJECTS_MAX = 1 << 20 };

/* First member of every object. */
struct flyt_object {
    uint64_t id;             /* its top byte is the type (enum flyt_id_type) */
    bool is_sequential;      /* calls that name it have an order, whatever streams they are in (defer.h) */
    uint64_t made;           /* a digest of what a row, or its handler, says that it was made of; 0: none does */
    unsigned deferred_count; /* calls that name the object and are deferred */
    uint64_t blocked_pass;   /* the last pass over the deferred calls in which one that names it stayed (defer.h) */
};

struct flyt_objects {
    struct flyt_idtable tables[FLYT_OBJECTS_KINDS];
    uint64_t refused_count; /* streams and events that could not be made */
};

void flyt_objects_init(struct flyt_objects *objects);
void flyt_objects_fini(struct flyt_objects *objects);

/* The object of an id of any of the types; NULL: unknown. */
struct flyt_object *flyt_object_find(struct flyt_objects *objects, uint64_t id);

/* How many there are of a kind. */
unsigned flyt_objects_count(const struct flyt_objects *objects, enum flyt_objects_of kind);
/* Calls visit for each of a kind, until it returns something else than 0, which is returned. It may remove its object.
 */
int flyt_objects_each(struct flyt_objects *objects, enum flyt_objects_of kind,
                      int (*visit)(void *user, uint64_t number, void *object), void *user);

/* Enters the object under object->id. 0; -EEXIST: the id is taken; -EINVAL: the id is not of type `type` or no number
 * that a table holds; -ENOSPC: FLYT_OBJECTS_MAX; -ENOMEM. */
int flyt_object_insert(struct flyt_objects *objects, struct flyt_object *object, enum flyt_id_type type);

/* Notes what an object was made of: `made` is a digest (digest.h) of the arguments of its call. Nothing happens where
 * there is none of the id. */
void flyt_objects_note_made(struct flyt_objects *objects, uint64_t id, uint64_t made);
/* A digest of the object for a comparison with another session's (move/common/counts.h); 0: nothing was noted. */
uint64_t flyt_object_digest(const struct flyt_object *object);

/* Takes the object out; it must be in. The caller frees it. */
void flyt_object_remove(struct flyt_objects *objects, struct flyt_object *object);

#endif
