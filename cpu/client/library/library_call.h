/*
 * What the replaced libraries of NVIDIA's (libcublas and the rest) are made of. Their entry points are generated from
 * the rows (rpc/library): each puts its parameters into a call with these functions, and ends with flyt_lib_finish.
 *
 * All results are the library's own status codes. A function that finds something wrong notes it in the call; what
 * follows does nothing then, and flyt_lib_finish returns it.
 */
#ifndef FLYT_CLIENT_LIBRARY_CALL_H
#define FLYT_CLIENT_LIBRARY_CALL_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cpu/client/core/api.h"
#include "rpc/library/library.h"

#define FLYT_LIB_ENTRY __attribute__((visibility("default")))

struct flyt_lib_object;
struct flyt_stream;

/* How a program uses a library: `code` is the library's answer to everything where the node does not have it.
 * node_version is that of the present node's, 0 until it has told. */
struct flyt_lib_use {
    pthread_mutex_t mutex;
    _Atomic int is_known;
    int code;
    _Atomic uint32_t node_version;
};

struct flyt_lib {
    const char *name, *soname;
    uint32_t version; /* major × 1000 + minor */
    int success, refused, failed, handle, invalid, memory;
    int told; /* a status with which results come, besides success; the same: there is none */
    struct flyt_lib_use *use;
};

/* What a call does to where its object is in a sequence: takes so many of it, brings it to a place, or to where nobody
 * here knows. */
enum flyt_lib_way { FLYT_LIB_TAKES, FLYT_LIB_PLACES, FLYT_LIB_LOSES };
struct flyt_lib_step {
    enum flyt_lib_way way;
    uint64_t by;
};

/* Of a call that its row says draws or restarts, from what made its object, by hand of its library. A draw
 * is asked for before it is sent, all else when it has succeeded. `notes`: the object's, of the function's own, at
 * first 0. */
enum { FLYT_LIB_NOTES = 4 };
typedef struct flyt_lib_step flyt_lib_step_fn(const void *made, uint32_t notes[FLYT_LIB_NOTES], const char *name,
                                              const void *arguments);

/* Handles of one type. */
struct flyt_lib_kind {
    const char *name;
    const struct flyt_lib *library;
    const char *also;  /* the kind of another library for which these may stand, too; NULL: none */
    const char *stays; /* what one is called that is not made again at another server; NULL: it is */
    unsigned number;
    bool is_small;   /* a handle is a C int */
    bool is_apart;   /* what succeeded with one is new with another */
    bool is_waiting; /* a thread of the server's makes its calls */
    unsigned room;   /* a handle lives in so many bytes of the program's memory: struct flyt_lib_room; 0: in none */
    bool has_stream;
    flyt_lib_step_fn *step;           /* NULL: one from which was drawn cannot be made again */
    const struct flyt_lib_row *place; /* the call that brings one to a place, a uint64_t; with step */
    unsigned state_bytes;
    const void *defaults;
    unsigned workspace_at, workspace_bytes_at; /* where in the state the address of its workspace is, and its size;
                                                  workspace_bytes_at 0: it has none */
    int mode_at; /* where in the state the pointer mode is, an int: 0 for the host, else the device; negative: nowhere
                  */
};

/* An attribute of a descriptor. */
struct flyt_lib_attribute {
    unsigned number, at, bytes;
};

/* What a handle in the program's memory begins with. A copy of it is as good. */
struct flyt_lib_room {
    uint64_t id, number; /* the object's; its number never comes again */
};

/* Descriptors of one type, which live in the program's memory. They begin with struct flyt_lib_value_head. */
struct flyt_lib_value_kind {
    unsigned bytes, room, count;
    const struct flyt_lib_attribute *attributes;
    const void *defaults;
    uint32_t magic;
    bool has_list; /* one array of any length besides, which travels with the calls: struct flyt_lib_list */
};

/* At the end of such a descriptor's memory. */
struct flyt_lib_list {
    void *data;
    size_t bytes;
};

enum flyt_lib_flag {
    FLYT_LIB_IN_STREAM = 1 << 0,
    FLYT_LIB_ASKS = 1 << 1,
    FLYT_LIB_CACHED = 1 << 2,
    FLYT_LIB_WAITS = 1 << 3, /* a thread of the server's makes it */
    FLYT_LIB_TRUSTED = 1 << 4,
    FLYT_LIB_MORE = 1 << 5,     /* it makes its object further, and is done again where that is made again */
    FLYT_LIB_LAST = 1 << 6,     /* of such calls the last one alone */
    FLYT_LIB_DRAWS = 1 << 7,    /* its object goes on to where no call can bring it again, */
    FLYT_LIB_RESTARTS = 1 << 8, /* and is at a beginning after this */
    FLYT_LIB_ASIDE = 1 << 9,    /* it takes no place in any stream; its results come whatever its status is */
    FLYT_LIB_STAGED = 1 << 10,  /* its arrays go through device memory where they do not fit into it */
};

enum { FLYT_LIB_VALUES_MAX = 8, FLYT_LIB_ARRAYS_MAX = 12 };

/* Where in the arguments an address is, of 8 bytes, or a scalar's place, of 4: 0 is NULL. */
struct flyt_lib_address {
    unsigned at, bytes;
};

/* What is known of a call of one name. */
struct flyt_lib_row {
    const struct flyt_lib *library;
    const char *name;
    uint32_t id;
    unsigned flags;
    unsigned bytes, key_bytes; /* of its arguments; of these what makes two calls alike */
    unsigned value_count;
    struct {
        unsigned at, key_bytes;
    } values[FLYT_LIB_VALUES_MAX];
    unsigned stage_at;      /* where in its arguments struct flyt_lib_stage is, of one that may be staged */
    unsigned address_count; /* 64 at most: which of them are NULL is part of what makes two calls alike, too */
    const struct flyt_lib_address *addresses;
};

/* One call, on its caller's stack. */
struct flyt_lib_call {
    const struct flyt_lib_row *row;
    void *arguments;
    int status;
    bool waits; /* something that the program's memory gets */
    bool has_stream;
    void *stream; /* CUstream */
    int device;
    uint64_t context_id;
    unsigned object_count, in_count, out_count;
    struct flyt_lib_object *objects[FLYT_LIB_OBJECTS_MAX];
    struct {
        const void *data;
        size_t bytes;
        bool is_aside; /* no part of what makes two calls alike */
    } in[FLYT_LIB_ARRAYS_MAX];
    struct {
        void *data;
        size_t bytes;
    } out[FLYT_LIB_ARRAYS_MAX];
    uint64_t workspace_address, workspace_bytes; /* of its first object, where the program has given it none; 0: none */
    bool is_staged;                              /* its arrays are not in it, */
    struct flyt_lib_stage stage;                 /* and this is what its arguments say of that */
    struct {
        void *data; /* host memory that gets what the call writes at an address of the device's; NULL: none */
        uint64_t address;
        size_t bytes;
    } fetched;
    const struct flyt_lib_kind *made; /* the object that the call makes, */
    void *ret_made;                   /* and where its handle goes; */
    const uint64_t *named;            /* it is made again from these objects, too, which its arguments name */
    size_t named_count;
    bool is_end;
    /* Of a call that is aside; may be NULL: writes down what its answer says, before the session can go on elsewhere.
     * It makes no calls. */
    void (*note)(struct flyt_lib_call *call, int status);
    void *note_user;
};

enum flyt_lib_use_of_scalar { FLYT_LIB_SCALAR, FLYT_LIB_RESULT, FLYT_LIB_UPDATE };

/* Finds the library at the node, and the calling thread's context. */
FLYT_API void flyt_lib_begin(struct flyt_lib_call *call);
/* The call names an object; the first one's device and stream are the call's. */
FLYT_API void flyt_lib_object(struct flyt_lib_call *call, uint64_t handle, const struct flyt_lib_kind *kind);
/* The same, or none for 0. */
FLYT_API void flyt_lib_object_optional(struct flyt_lib_call *call, uint64_t handle, const struct flyt_lib_kind *kind);
FLYT_API void flyt_lib_end(struct flyt_lib_call *call, uint64_t handle, const struct flyt_lib_kind *kind);
FLYT_API void flyt_lib_new(struct flyt_lib_call *call, void *ret_handle, const struct flyt_lib_kind *kind);
FLYT_API void flyt_lib_stream(struct flyt_lib_call *call, void *stream);
/* The pointer mode of the call's object at `place`. */
FLYT_API int flyt_lib_mode(const struct flyt_lib_call *call, unsigned place);
/* A number of `bytes` bytes that is where `mode` says. */
FLYT_API void flyt_lib_scalar(struct flyt_lib_call *call, struct flyt_lib_scalar *scalar, const void *address, int mode,
                              size_t bytes, enum flyt_lib_use_of_scalar use);
/* Host memory that the call reads, or writes: the bytes as the arguments have them, 0 for NULL. */
FLYT_API uint32_t flyt_lib_in(struct flyt_lib_call *call, const void *data, size_t bytes, bool is_optional);
/* The same of bytes that do not make two calls differ: addresses, say. */
FLYT_API uint32_t flyt_lib_in_aside(struct flyt_lib_call *call, const void *data, size_t bytes);
FLYT_API uint32_t flyt_lib_out(struct flyt_lib_call *call, void *data, size_t bytes, bool is_optional);
/* Memory that the call writes: the device's, or where its first object is of the kind, the program's, for which the
 * device's then stands. The device's address. */
FLYT_API uint64_t flyt_lib_either(struct flyt_lib_call *call, void *data, size_t count, size_t element_bytes,
                                  const struct flyt_lib_kind *kind);
/* Copies a descriptor into the arguments. */
FLYT_API void flyt_lib_value(struct flyt_lib_call *call, void *to, const void *value,
                             const struct flyt_lib_value_kind *kind);
/* The same of one that the call changes: what the library has made of it comes back. */
FLYT_API void flyt_lib_value_set(struct flyt_lib_call *call, void *to, void *value,
                                 const struct flyt_lib_value_kind *kind);
FLYT_API int flyt_lib_finish(struct flyt_lib_call *call);
/* The same of a call that says how large an area its object works in, a size_t at `bytes`: where the int at wish_at of
 * the object's state is not 0, that is memory of the program's from now on, whose address is at area_at of the state.
 */
FLYT_API int flyt_lib_finish_with_area(struct flyt_lib_call *call, const void *bytes, unsigned area_at,
                                       unsigned wish_at);

/* Ends an object without waiting: the row's call is made when what names the object has been executed. */
FLYT_API void flyt_lib_forget(const struct flyt_lib_row *row, uint64_t handle, const struct flyt_lib_kind *kind);

/* ---- objects that are made again otherwise than they were made ---- */

/* The object is made again at another server by this call, in the place of the one that made it, and from the objects
 * of these handles. No further calls that made it are made again. false: no memory, or one of the objects has gone. */
FLYT_API bool flyt_lib_remake(uint64_t handle, const struct flyt_lib_kind *kind, const struct flyt_lib_row *row,
                              const void *arguments, size_t bytes, const uint64_t *named, size_t named_count);
/* It is made further by this call of another object. false: as above. */
FLYT_API bool flyt_lib_make_further(uint64_t handle, const struct flyt_lib_kind *kind, const struct flyt_lib_row *row,
                                    uint64_t other, const void *arguments, size_t bytes);
/* The arguments of the call that makes it again; NULL: there is no such object. */
FLYT_API const void *flyt_lib_recipe(uint64_t handle, const struct flyt_lib_kind *kind, size_t *ret_bytes);
/* It is not made again, and is called so (a constant) where it stands against that. NULL: it is. */
FLYT_API void flyt_lib_stay(uint64_t handle, const struct flyt_lib_kind *kind, const char *what);

/* (major × 1000 + minor) × 1000 + patch level of the node's library, of the present node's where the session has moved;
 * of the replaced library, patch level 0, where the node has told none. A program that is connected has the library
 * opened for it. Never connects: programs ask before they fork. */
FLYT_API uint32_t flyt_lib_node_version(const struct flyt_lib *library);

/* Says that a function is not forwarded, once, and returns the library's code for that. */
FLYT_API int flyt_lib_refuse(const struct flyt_lib *library, const char *name);

/* ---- for calls that are several in one, by hand ---- */

/* An object of the kind with a handle, in the call's context, which the program makes by calls of its library's own;
 * and its end. NULL: no memory. */
FLYT_API struct flyt_lib_object *flyt_lib_own_new(const struct flyt_lib_call *call, const struct flyt_lib_kind *kind,
                                                  void *ret_handle);
FLYT_API void flyt_lib_own_end(uint64_t handle, const struct flyt_lib_kind *kind);
/* The call is made where the object is. */
FLYT_API void flyt_lib_place(struct flyt_lib_call *call, const struct flyt_lib_object *object);
/* What the call's stream is. A status. */
struct flyt_lib_stream {
    uint64_t id;
    bool is_legacy, is_blocking; /* the legacy stream; ordered with that */
    uint64_t capture;            /* the number of the capture that it takes part in; 0: it does not */
};
FLYT_API int flyt_lib_stream_tell(const struct flyt_lib_call *call, struct flyt_lib_stream *ret_stream);
/* The call becomes a node of the graph that its streams capture, each of which it comes after, and before what that
 * gets then. At each launch `submit` does it, with a copy of the bytes and a stream of each device that the streams are
 * of, by the devices' numbers. `calls`, one for each stream, and one at least, say where these are and no more. submit
 * returns a status. */
typedef int (*flyt_lib_submit_fn)(const void *data, size_t bytes, void *const *streams);
FLYT_API int flyt_lib_capture(const struct flyt_lib_call *calls, unsigned count, flyt_lib_submit_fn submit,
                              const void *data, size_t bytes);
/* Whether a call that these bytes tell apart from others of its row has succeeded; and that it has. */
FLYT_API bool flyt_lib_was_well(const struct flyt_lib_row *row, const void *bytes, size_t count);
FLYT_API void flyt_lib_note_well(const struct flyt_lib_row *row, const void *bytes, size_t count);

/* ---- objects' settings, which the client keeps ---- */

/* The handle that lives there, as a number; 0: none of the kind. */
FLYT_API uint64_t flyt_lib_in_room(const void *room, const struct flyt_lib_kind *kind);
/* NULL: the handle is none of the kind. */
FLYT_API struct flyt_lib_object *flyt_lib_find(uint64_t handle, const struct flyt_lib_kind *kind);
FLYT_API void *flyt_lib_state(struct flyt_lib_object *object);
FLYT_API void flyt_lib_set_stream(struct flyt_lib_object *object, void *stream);
FLYT_API void *flyt_lib_get_stream(const struct flyt_lib_object *object);

/* ---- descriptors ---- */

/* Makes a descriptor of its default values: in `room` of so many bytes, or, where that is NULL, in memory of its own.
 * NULL: no memory, or not enough room. */
FLYT_API void *flyt_lib_make(const struct flyt_lib_value_kind *kind, void *room, size_t bytes);
FLYT_API int flyt_lib_unmake(const struct flyt_lib *library, const struct flyt_lib_value_kind *kind, void *value);
/* The descriptor, or NULL where it is none of the kind. */
FLYT_API void *flyt_lib_valid(const struct flyt_lib_value_kind *kind, const void *value);
/* Gives a descriptor its array. false: no memory. */
FLYT_API bool flyt_lib_list_set(const struct flyt_lib_value_kind *kind, void *value, const void *data, size_t bytes);
FLYT_API int flyt_lib_attribute_set(const struct flyt_lib *library, const struct flyt_lib_value_kind *kind, void *value,
                                    int number, const void *from, size_t bytes);
FLYT_API int flyt_lib_attribute_get(const struct flyt_lib *library, const struct flyt_lib_value_kind *kind,
                                    const void *value, int number, void *to, size_t bytes, void *ret_written);

#endif
