/*
 * NVIDIA's libraries on the server: what is generated from the rows (rpc/library) for each, and what that calls.
 *
 * A library is the node's own file, never one from a client; it is loaded when a client first asks for it. A call goes
 * to it with the arguments as they came, the real handles of its objects, and the driver's stream of its stream; before
 * that its objects are given the settings that came with the call.
 */
#ifndef FLYT_SERVER_LIBRARY_H
#define FLYT_SERVER_LIBRARY_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/server/core/device.h"
#include "cpu/server/core/object.h"
#include "rpc/library/library.h"

struct flyt_libcall;
struct flyt_server_library;
struct flyt_session;

/* ---- what is generated ---- */

struct flyt_server_kind {
    const char *name, *also; /* also: the kind of another library for which these may stand; NULL: none */
    /* What it is, where it is not made again at another server, and so stands against moving; else NULL. */
    const char *stays;
    bool is_small;
    bool has_room;      /* the library's handle lives in memory of the server's, of malloc */
    bool is_light;      /* the library takes none of a GPU's memory for one */
    bool is_sequential; /* its calls are made in their order, whatever streams they are in */
    bool is_bound;      /* the library keeps streams in it: there is a real one for each context it is used in */
    bool has_sms;       /* the int32_t at sms_at of its state says for how many SMs it works; 0: those there are */
    unsigned sms_at;
    bool is_reset; /* its stream's setter takes away what the address at reset_at of its state has told */
    unsigned reset_at;
    bool is_waiting;    /* its calls are made by a thread */
    bool is_unstreamed; /* its work is in the device's default stream */
    unsigned state_bytes;
    const void *defaults;
    /* Gives `real` what *want and *have differ in, and writes it into *have; is_streamed: it has just got another
     * stream. The library's status. */
    int (*apply)(struct flyt_server_library *library, void *real, const void *want, void *have, bool is_streamed);
    const char *stream_setter, *mode_setter; /* NULL: none */
};

struct flyt_server_attribute {
    unsigned number, at, bytes;
};

struct flyt_server_value {
    int (*create)(void *function, const void *value, void *made);
    const char *create_name, *attribute_name, *destroy_name; /* NULL where that is by hand */
    const struct flyt_server_attribute *attributes;
    unsigned count;
    uint32_t magic;
    const void *defaults; /* what differs from them is set */
    /* By hand, instead of attributes: gives `real` what `value` says. `list`: the descriptor's array, or NULL. The
     * library's status. */
    int (*fill)(struct flyt_libcall *call, const void *value, const void *list, void *real);
    /* By hand, instead of `create` and what follows it: makes what `value` says. The library's status. */
    int (*make)(struct flyt_libcall *call, const void *value, void **ret_real);
    /* By hand: writes into `value`, which is as it came, what a call has changed in `real`. The library's status. */
    int (*tell)(struct flyt_libcall *call, void *real, void *value);
    /* By hand, instead of destroy_name: ends it after the call. */
    void (*end)(struct flyt_libcall *call, void *real);
    unsigned bytes;
    unsigned list_at; /* where in the value the array's length is, an uint32_t in bytes; 0: it has none */
};

enum {
    FLYT_LIBCALL_WAITS = 1,
    FLYT_LIBCALL_NEW = 2,
    FLYT_LIBCALL_END = 4,
    FLYT_LIBCALL_IN_STREAM = 8,
    FLYT_LIBCALL_ANSWERS = 16,
    FLYT_LIBCALL_IS_ASIDE = 32,
    FLYT_LIBCALL_APART = 64,
    FLYT_LIBCALL_AT_ONCE = 128
};

/* What a call that is one of several says of itself, each time that it is looked at. */
enum flyt_gathered {
    FLYT_GATHERED_NOT,  /* it goes on waiting, which time alone does not end */
    FLYT_GATHERED,      /* it is made now */
    FLYT_GATHERED_RUNS, /* another one makes it now, and uses this one's arguments */
    FLYT_GATHERED_DONE  /* another one has made it, with the call's status */
};

struct flyt_server_row {
    uint32_t id;
    const char *name;
    int (*run)(struct flyt_libcall *call);
    /* Of rows that say `finds`: finds the objects whose ids are in the arguments, on the submission thread. */
    CUresult (*resolve)(struct flyt_libcall *call);
    /* Of rows that say `gathers`: on the submission thread. */
    enum flyt_gathered (*gather)(struct flyt_libcall *call);
    unsigned bytes, object_count;
    uint32_t made_as; /* of one that makes an object: equal for all by which it may be made again */
    unsigned char kinds[FLYT_LIB_OBJECTS_MAX], optional, made,
        flags; /* optional: a bit for the object that may be missing */
};

/* A function that was looked up: by the address of its name, which is a constant. A slot is never given to another. */
struct flyt_server_name {
    _Atomic(const char *) name;
    _Atomic(void *) function;
};
enum { FLYT_SERVER_NAMES = 256 };

struct flyt_server_library {
    const char *name, *soname, *property; /* property: the function that tells the version, */
    bool is_code;                         /* as one number, of which hundreds are the major and minor one */
    const struct flyt_server_row *rows;   /* by rising id */
    unsigned row_count;
    const struct flyt_server_kind *kinds;
    unsigned kind_count;
    const char *const *symbols; /* sorted: what the server may call by its name */
    unsigned symbol_count;
    int success, refused, failed, handle, invalid, memory, told; /* told: results go with this status, too */
    /* At run time: */
    pthread_mutex_t mutex;
    void *_Atomic file;      /* set once, last; with what is below it */
    uint32_t version, patch; /* version: major × 1000 + minor; patch: below 1000 */
    void **functions;        /* of the rows, */
    void **found;            /* and of symbols */
    struct flyt_server_name names[FLYT_SERVER_NAMES];
};

/* Whether its file is there, and all that is known of it. From any thread. */
static inline bool flyt_server_library_is_loaded(const struct flyt_server_library *library)
{
    return atomic_load_explicit(&library->file, memory_order_acquire) != NULL;
}

/* ---- objects ---- */

/* A real object that is in use in another context than its object is in now. */
struct flyt_libother {
    struct flyt_libother *next;
    const struct flyt_partition_context *partition;
    void *real;
    unsigned char state[FLYT_LIB_STATE_BYTES] __attribute__((aligned(8)));
    int mode;
};

struct flyt_libobject {
    struct flyt_object object;
    struct flyt_server_library *library;
    const struct flyt_server_kind *kind;
    struct flyt_device *device;
    const struct flyt_server_row *made_by;
    const struct flyt_partition_context *partition; /* in whose context the real one was made */
    void *real;                                     /* the library's handle, or its number */
    /* What the library has been told: */
    unsigned char state[FLYT_LIB_STATE_BYTES] __attribute__((aligned(8)));
    CUstream cu_stream;
    uint64_t switch_count; /* the device's when it was told its stream: another one may have the same address since */
    int mode;
    struct flyt_libother *others; /* of a kind that is bound */
    const char *staying;          /* what it is, where it stands against moving; NULL */
    bool is_filled;               /* of cuDNN's descriptors: by another one's attribute, */
    bool is_untold;       /* and it stands against moving only as long as the client has not been told what it is */
    unsigned taken_count; /* times that calls name it which a thread makes: others that name it wait, for its stream and
                             settings are that one's, and it may go only afterwards */
};

/* ---- a call ---- */

enum {
    FLYT_LIBCALL_VALUES_MAX = 12,
    FLYT_LIBCALL_VALUE_BYTES_MAX = 256,
    FLYT_LIBCALL_SCALARS_MAX = 4,
    FLYT_LIB_SCALAR_ROOM = 48 /* of a flyt_lib_scalar's value, aligned */
};

struct flyt_libcall {
    struct flyt_session *session;
    struct flyt_server_library *library;
    const struct flyt_server_row *row;
    void *function;
    unsigned char *arguments; /* at a multiple of FLYT_LIB_ALIGN, as results */
    size_t bytes, in_at;      /* in_at: where the next array is that the call reads */
    struct flyt_libobject *objects[FLYT_LIB_OBJECTS_MAX];
    struct flyt_libobject **found; /* those that its arguments name, by what resolves them; NULL: none */
    size_t found_count;
    CUstream cu_stream;
    /* Of the device, as they are for this call: */
    const struct flyt_partition_context *partition;
    uint64_t switch_count;
    unsigned sm_count; /* 0: no limit */
    void *made;        /* by a call that makes an object */
    unsigned char *results;
    size_t result_bytes, result_capacity;
    int status; /* not success: the arguments are not what the row says */
    struct {
        void *real;
        const struct flyt_server_value *kind;
        const void *sent;
        void *result; /* NULL: the client gets nothing back */
    } values[FLYT_LIBCALL_VALUES_MAX];
    unsigned value_count;
    /* Scalars that the library reads, at a multiple of FLYT_LIB_ALIGN. */
    unsigned char scalars[FLYT_LIBCALL_SCALARS_MAX][FLYT_LIB_SCALAR_ROOM] FLYT_LIB_ALIGNED;
    unsigned scalar_count;
    void *scratch; /* one at most */
    struct {
        unsigned char
            *memory; /* what is in the device's, while the call is made; NULL: its arrays are in its arguments */
        struct flyt_lib_stage place;
        size_t result_bytes; /* what the call has of its own meanwhile */
    } stage;
    struct {
        void *memory; /* what the library writes in host memory, and goes to an address of the device's; NULL: none */
        uint64_t address;
        size_t bytes;
    } fetched;
    /* Of a row that `gathers`: what it keeps; what says that the call has ended without having been made with the
     * others, set as long as these are not told otherwise; and, before it is asked, whether all that the client has
     * sent before has been executed. */
    void *gathered;
    void (*lose)(struct flyt_libcall *call);
    bool is_last;
    bool lets_pass; /* calls that wait for all before them do not wait for this one */
    int staying;    /* so many more objects of a table of the library's own stand against moving than before it */
};

/* ---- what the generated functions call ---- */

/* From now on the call's arrays are where it says. */
void flyt_libcall_stage(struct flyt_libcall *call, const struct flyt_lib_stage *place);
/* What may not be missing has come. */
void flyt_libcall_require(struct flyt_libcall *call, uint32_t bytes, size_t wanted_bytes);
/* Arrays of `count` numbers that the library follows into others, and which a client can have written: ones that rise
 * from `base` to `base` + `last`; ones from `base` on, below `base` + `limit`; and each of 0 … `limit` - 1 once. */
void flyt_libcall_check_offsets(struct flyt_libcall *call, const void *array, size_t count, int64_t last, int64_t base);
void flyt_libcall_check_indices(struct flyt_libcall *call, const void *array, size_t count, int64_t limit,
                                int64_t base);
void flyt_libcall_check_order(struct flyt_libcall *call, const void *array, size_t count, int64_t limit);
/* Device memory that the call writes; where its first object is of the kind, memory of the server's until the client
 * can fetch it from there. */
void *flyt_libcall_either(struct flyt_libcall *call, uint64_t address, size_t bytes, unsigned kind);
void *flyt_libcall_in(struct flyt_libcall *call, uint32_t bytes, size_t wanted_bytes);
/* Read and written: the client gets what is there after the call. */
void *flyt_libcall_inout(struct flyt_libcall *call, uint32_t bytes, size_t wanted_bytes);
void *flyt_libcall_out(struct flyt_libcall *call, uint32_t bytes, size_t wanted_bytes);
/* Memory of the server's until the library's function returns, in the place of the program's. */
void *flyt_libcall_scratch(struct flyt_libcall *call, uint64_t bytes, size_t wanted_bytes);
/* is_written: the library may write it, and the client then gets it. */
void *flyt_libcall_scalar(struct flyt_libcall *call, const struct flyt_lib_scalar *scalar, size_t bytes, int mode,
                          bool is_written);
void flyt_libcall_mode(struct flyt_libcall *call, unsigned place, int mode);
void *flyt_libcall_value(struct flyt_libcall *call, const void *value, const struct flyt_server_value *kind);
/* The same of one that the call changes. */
void *flyt_libcall_value_set(struct flyt_libcall *call, const void *value, const struct flyt_server_value *kind);
/* NULL: the library lacks it, or its rows do not name it. Takes no lock. */
void *flyt_server_library_function(struct flyt_server_library *library, const char *name);

/* ---- in this folder ---- */

/* The row of a number, in any library that is loaded; NULL: unknown. */
const struct flyt_server_row *flyt_server_library_row(uint32_t id, struct flyt_server_library **ret_library);
/* The library of a name; NULL: there is none. */
struct flyt_server_library *flyt_server_library_find(const char *name);
/* Loads it, unless that has happened. 0, or a negative errno and a sentence. From any thread. */
struct flyt_error;
int flyt_server_library_load(struct flyt_server_library *library, bool is_soft, struct flyt_error *err);
/* Loads them all. `tell` is called for each: `absent` is NULL where the node has it, else a sentence. */
typedef void (*flyt_server_library_fn)(const struct flyt_server_library *library, const char *absent);
void flyt_server_libraries_look(bool is_soft, flyt_server_library_fn tell);
/* Finds all functions of the library in its file, before the library counts as loaded. false: no memory. */
bool flyt_server_library_look_up(struct flyt_server_library *library, void *file);
/* The function of one of the library's rows; NULL: its file lacks it. */
void *flyt_server_library_row_function(struct flyt_server_library *library, const struct flyt_server_row *row);

/* From now on the object stands against moving as `what`, a constant, or does no more (NULL). The submission thread. */
void flyt_libobject_stay(struct flyt_session *session, struct flyt_libobject *object, const char *what);

/* Makes the real one for this context the object's, where there is one. false: the call is to make it, which takes
 * long.
 */
bool flyt_libobject_switch(struct flyt_libobject *object, const struct flyt_partition_context *partition);
/* Has the library make the object's real one for the call's context. The library's status. */
int flyt_libobject_make(struct flyt_libcall *call, struct flyt_libobject *object);
/* Ends the others with the library's function for that; its first status that is no success, or success. */
int flyt_libobject_end_others(struct flyt_libobject *object, void *function);

/* Gives the call's objects the settings that came with it and its stream, and calls the library. Its status. */
int flyt_libcall_run(struct flyt_libcall *call);

#endif
