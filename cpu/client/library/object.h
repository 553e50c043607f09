/* The objects of NVIDIA's libraries that the program has: handles and plans, with the settings that were made. A small
 * handle is the number of its record. */
#ifndef FLYT_CLIENT_LIBRARY_OBJECT_H
#define FLYT_CLIENT_LIBRARY_OBJECT_H

#include <cuda.h>
#include "cpu/client/core/table.h"
#include "cpu/client/library/library_call.h"
#include "cpu/client/library/sequence.h"

struct flyt_restore;
struct flyt_lib_workspace;

/* A call that made an object further: of its own, or of another one that it is made from. */
struct flyt_lib_further {
    struct flyt_lib_further *next;
    uint32_t row;
    uint64_t object_id; /* whose call it is */
    size_t bytes;
    unsigned char arguments[];
};

struct flyt_lib_object {
    struct flyt_record record;
    const struct flyt_lib_kind *kind;
    uint64_t number; /* counts all that were made, from 1: unlike its id it never comes again */
    uint64_t context_id;
    int device;
    void *stream; /* CUstream */
    unsigned char state[FLYT_LIB_STATE_BYTES] __attribute__((aligned(8)));
    uint64_t area;                         /* device memory that it works in, and that goes with it; 0: none */
    struct flyt_lib_workspace *workspaces; /* the same for each stream, that used last first: workspace.c's */
    uint32_t row;                          /* what made it, and from what: */
    void *arguments;
    size_t argument_bytes;
    struct flyt_lib_further *further;  /* in their order */
    struct flyt_lib_sequence sequence; /* where it is in one */
    _Atomic(const char *) stays;       /* what it is called that is not made again; NULL: it is */
    /* Under the lock of object.c: */
    struct flyt_lib_object *previous, *next; /* all, in the order in which they were made; one that is gone, too, */
    struct flyt_lib_object *next_late;
    struct flyt_lib_object **named; /* as long as others are made again from it: */
    size_t named_count, name_count; /* those that it names; how many name it */
    bool is_gone;                   /* the program has it no more */
    uint32_t end_row;               /* by which it has ended */
};

/* By its id on the wire, of whatever kind; NULL: unknown. */
struct flyt_lib_object *flyt_lib_find_id(uint64_t id);
/* An object of the kind, not published; NULL: no memory. Takes over `arguments`. */
struct flyt_lib_object *flyt_lib_object_new(const struct flyt_lib_kind *kind, uint64_t context_id, int device,
                                            uint32_t row, void *arguments, size_t bytes);
void flyt_lib_object_publish(struct flyt_lib_object *object, void *ret_handle);
/* Notes a call that made the object further, for where it is made again, after those before it. One of the same bytes
 * as the last is that; is_last: earlier ones of its row go. false: no memory. */
bool flyt_lib_object_add(struct flyt_lib_object *object, uint32_t row, const void *arguments, size_t bytes,
                         bool is_last);
/* The object is made again from others, too, which are kept for that as long, by their ids. false: no memory, or one
 * is not there any more. */
bool flyt_lib_object_name(struct flyt_lib_object *object, const uint64_t *ids, size_t count);
/* The program has it no more: a call of this row has ended it. */
void flyt_lib_object_drop(struct flyt_lib_object *object, uint32_t end_row);
/* One that never was published. */
void flyt_lib_object_free(struct flyt_lib_object *object);

/* Where the call's first object works in a workspace, and the program has given it none: one of its stream's goes with
 * the call. The library's status. */
int flyt_lib_workspace_find(struct flyt_lib_call *call);
/* All that the object has. is_memory_gone: with its context. */
void flyt_lib_workspaces_free(struct flyt_lib_object *object, bool is_memory_gone);

/* For the table of parts (records/parts.c). */
void flyt_lib_objects_clear(uint64_t context_id, bool is_on_server);
int flyt_lib_objects_restore(struct flyt_restore *restore);
/* The same of all that the program has of NVIDIA's libraries: the libraries are opened first (library_call.c). */
int flyt_libs_restore(struct flyt_restore *restore);

#endif
