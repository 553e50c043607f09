#include "cpu/server/move/in/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu/image/parts.h"
#include "cpu/image/reader.h"
#include "cpu/server/move/in/arrived_pages.h"
#include "cpu/server/cuda/image_cache.h"
#include "cpu/server/code/image_name.h"
#include "cpu/server/move/in/load_array.h"
#include "cpu/server/move/in/load_memory.h"
#include "cpu/server/move/in/load_variables.h"
#include "cpu/server/move/in/prepare.h"
#include "cpu/server/move/in/prepared.h"
#include "cpu/server/move/in/receiving.h"
#include "cpu/server/move/out/save.h"
#include "cpu/server/core/session.h"
#include "cpu/server/move/common/counts.h"
#include "cpu/server/move/common/state.h"
#include "rpc/base/fault_point.h"

enum { EVENTS_FIRST = 64, MODULES_FIRST = 16 };

static const char image_name[] = "the session's state";

/* An object of kind FLYT_CHECKPOINT_MODULE. */
struct module {
    uint64_t number, library_id;
};

struct load {
    struct flyt_session *session;
    struct flyt_adopted_extents *adopted;
    struct flyt_error *err;
    struct flyt_checkpoint_reader *reader;
    unsigned char *piece; /* the session's (prepare.h) */
    unsigned char *check; /* likewise; NULL: there was no large variable yet */
    struct flyt_state_event *events;
    size_t event_count, event_room;
    /* The variable whose pieces come. */
    uint64_t module_id;
    CUdeviceptr address;
    uint64_t sequence;
    struct flyt_load_memory memory;
    struct flyt_load_variables *variables; /* NULL: there was no small one yet */
    struct flyt_receiving *receiving;      /* NULL: it does not come from another node */
    bool is_trial;                         /* only where variables come to be is of interest */
    uint64_t extent_count, page_count;
    uint64_t offset_ns; /* of the clock on the wall */
    struct module *modules;
    size_t module_count, module_room;
    struct flyt_checkpoint_parts parts; /* of the module image that comes */
};

static int no_memory(const struct load *self)
{
    return flyt_error_set(self->err, -ENOMEM, "out of host memory");
}

/* ---- module images and modules ---- */

static int take_module_image(struct load *self, const struct flyt_checkpoint_record *record)
{
    const unsigned char *sha256 = (const unsigned char *)record->body->module_image.sha256;
    int status = flyt_checkpoint_parts_take(&self->parts, self->reader, record, self->err);
    if (status <= 0)
        return status;
    status = flyt_image_cache_put(self->session->images, sha256, self->parts.image, self->parts.image_bytes);
    return status
               ? flyt_error_set(self->err, status, "a library of %s cannot be kept: %s", image_name, strerror(-status))
               : 0;
}

static void name_image(const struct load *self, const unsigned char *hash, char *ret_name, size_t room)
{
    char *image = NULL;
    uint64_t bytes;
    if (flyt_image_cache_get(self->session->images, hash, &image, &bytes) == 0)
        flyt_image_name(image, bytes, ret_name, room);
    free(image);
}

/* 10 × major + minor of one of the session's devices. */
static int capability_of(const struct flyt_session *session, unsigned ordinal)
{
    CUdevice cu_device = session->devices[ordinal].cu_device;
    int major = 0, minor = 0;
    session->driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, cu_device);
    session->driver->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, cu_device);
    return 10 * major + minor;
}

/* What was loaded is so for the first device. Whether it can be for those of another compute capability, too. */
static CUresult load_for_others(const struct load *self, uint64_t library_id, unsigned *ret_ordinal)
{
    struct flyt_session *session = self->session;
    CUlibrary library = flyt_prepare_library(session, library_id);
    CUresult result = CUDA_SUCCESS;
    CUmodule module;
    for (unsigned i = 1; library && i < session->device_count && result == CUDA_SUCCESS; i++) {
        if (capability_of(session, i) == capability_of(session, 0))
            continue;
        session->current_device = NULL;
        result = session->driver->cuCtxSetCurrent(session->devices[i].cu_primary);
        if (result == CUDA_SUCCESS)
            result = session->driver->cuLibraryGetModule(&module, library);
        *ret_ordinal = i;
    }
    return result;
}

/* A program that runs elsewhere is not stopped for a GPU that has no code for it. */
static int cannot_load(const struct load *self, const flyt_checkpoint_object *object, unsigned ordinal, CUresult result)
{
    int capability = capability_of(self->session, ordinal);
    flyt_library_load_args args = {0};
    char name[128] = "";
    XDR xdrs;
    xdrmem_create(&xdrs, object->value.value_val, object->value.value_len, XDR_DECODE);
    if (xdr_flyt_library_load_args(&xdrs, &args))
        name_image(self, (const unsigned char *)args.image_hash, name, sizeof name);
    xdr_free((xdrproc_t)xdr_flyt_library_load_args, &args);
    return flyt_error_set(self->err, -ENOTSUP,
                          "the library %s%s cannot be loaded for this GPU, of compute capability %d.%d%s, "
                          "cuda_result=%d",
                          *name ? "with the kernel " : "without kernels", name, capability / 10, capability % 10,
                          result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_INVALID_PTX ||
                                  result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                              ? ": it has no code for it"
                              : "",
                          (int)result);
}

static int take_module(struct load *self, const flyt_checkpoint_object *object)
{
    if (self->module_count == self->module_room) {
        size_t room = self->module_room ? 2 * self->module_room : MODULES_FIRST;
        struct module *modules = reallocarray(self->modules, room, sizeof *modules);
        if (!modules)
            return no_memory(self);
        self->modules = modules;
        self->module_room = room;
    }
    struct module *module = &self->modules[self->module_count];
    unsigned ordinal = 0;
    CUresult result;
    module->number = object->number;
    if (flyt_prepare_load(self->session, object->value.value_val, object->value.value_len, &module->library_id,
                          &result) != 0)
        return flyt_error_set(self->err, -EBADMSG, "%s has a library that makes no sense", image_name);
    self->module_count++;
    if (self->is_trial && result == CUDA_ERROR_OUT_OF_MEMORY)
        return flyt_error_set(self->err, -ENOMEM, "the GPU has no room for a library of %s", image_name);
    if (!self->receiving)
        return 0;
    if (result == CUDA_SUCCESS)
        result = load_for_others(self, module->library_id, &ordinal);
    return result == CUDA_SUCCESS ? 0 : cannot_load(self, object, ordinal, result);
}

static int take_object_gone(struct load *self, uint64_t number)
{
    for (size_t i = 0; i < self->module_count; i++)
        if (self->modules[i].number == number) {
            flyt_prepare_unload(self->session, self->modules[i].library_id);
            self->modules[i] = self->modules[--self->module_count];
            return 0;
        }
    return flyt_error_set(self->err, -ENOTSUP, "%s takes back an object that is no library", image_name);
}

/* ---- events ---- */

static int take_event(struct load *self, const flyt_checkpoint_object *object)
{
    if (self->event_count == FLYT_OBJECTS_MAX)
        return flyt_error_set(self->err, -EBADMSG, "%s has more than %d events", image_name, FLYT_OBJECTS_MAX);
    if (self->event_count == self->event_room) {
        size_t room = self->event_room ? 2 * self->event_room : EVENTS_FIRST;
        struct flyt_state_event *events = reallocarray(self->events, room, sizeof *events);
        if (!events)
            return no_memory(self);
        self->events = events;
        self->event_room = room;
    }
    if (!flyt_state_event_get(object->value.value_val, object->value.value_len, &self->events[self->event_count]))
        return flyt_error_set(self->err, -EBADMSG, "%s has an event that makes no sense", image_name);
    flyt_state_event_from_wall(&self->events[self->event_count], self->offset_ns);
    self->event_count++;
    return 0;
}

static int compare_events(const void *left, const void *right)
{
    uint64_t a = ((const struct flyt_state_event *)left)->event_id;
    uint64_t b = ((const struct flyt_state_event *)right)->event_id;
    return a < b ? -1 : a > b;
}

/* ---- variables and constants ---- */

static int driver_failed(const struct load *self, const char *symbol, CUresult result)
{
    return flyt_error_set(self->err, -EIO, "the variable %s cannot be written, cuda_result=%d", symbol, (int)result);
}

/* Helping threads' context: nothing of the session runs yet. */
static int enter(const struct load *self, const flyt_checkpoint_global *global)
{
    struct flyt_session *session = self->session;
    unsigned ordinal = flyt_state_ordinal(global->module_id);
    if (ordinal >= session->device_count)
        return flyt_error_set(self->err, -EBADMSG, "%s has variables on device %u, and the allocation %u devices",
                              image_name, ordinal, session->device_count);
    session->current_device = NULL;
    CUresult result = session->driver->cuCtxSetCurrent(session->devices[ordinal].cu_primary);
    return result == CUDA_SUCCESS ? 0 : driver_failed(self, global->symbol, result);
}

/* The first piece came: where it is to go. */
static int find_variable(struct load *self, const flyt_checkpoint_global *global)
{
    const unsigned long long library_id = flyt_state_library_id(global->module_id);
    CUlibrary library = flyt_prepare_library(self->session, library_id);
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (!library)
        return flyt_error_set(self->err, -ENOENT,
                              "the variable %s is of a library that was not loaded, library_id=%llx", global->symbol,
                              library_id);
    CUresult result = self->session->driver->cuLibraryGetGlobal(&address, &bytes, library, global->symbol);
    if (result == CUDA_ERROR_NOT_FOUND)
        return flyt_error_set(self->err, -EXDEV, "the library has no variable %s here", global->symbol);
    if (result != CUDA_SUCCESS)
        return driver_failed(self, global->symbol, result);
    if (bytes != global->total_bytes)
        return flyt_error_set(self->err, -EXDEV, "the variable %s has %zu bytes here, and had %llu", global->symbol,
                              bytes, (unsigned long long)global->total_bytes);
    if (global->address && global->address != address)
        return flyt_error_set(self->err, -EXDEV,
                              "the variable %s has come to be elsewhere, and the program may have its address",
                              global->symbol);
    if (global->address) /* the program still has it when the session moves on */
        flyt_save_note_used(self->session, address);
    self->module_id = global->module_id;
    self->address = address;
    return 0;
}

/* Writes the piece, and reads what is there then. */
static CUresult write_variable(const struct load *self, CUdeviceptr address, uint64_t bytes)
{
    const struct flyt_driver *driver = self->session->driver;
    CUresult result = driver->cuMemcpyHtoDAsync(address, self->piece, bytes, NULL);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemcpyDtoHAsync(self->check, address, bytes, NULL);
    CUresult waited = driver->cuStreamSynchronize(NULL);
    return result == CUDA_SUCCESS ? waited : result;
}

static int settle_variables(struct load *self)
{
    return self->variables ? flyt_load_variables_settle(self->variables, self->err) : 0;
}

static int take_small(struct load *self, const flyt_checkpoint_global *global, uint64_t bytes)
{
    const CUdeviceptr address = self->address + global->offset_bytes;
    unsigned char *place;
    if (!self->variables)
        self->variables = calloc(1, sizeof *self->variables);
    if (!self->variables)
        return no_memory(self);
    self->variables->session = self->session;
    int status = flyt_load_variables_room(self->variables, address, bytes, &place, self->err);
    if (!status)
        status = flyt_checkpoint_place(self->reader, place, self->err);
    if (!status)
        status = enter(self, global);
    return status ? status
                  : flyt_load_variables_write(self->variables, flyt_state_ordinal(global->module_id), address, bytes,
                                              global->symbol, self->err);
}

/* A piece that is waited for. */
static int take_large(struct load *self, const struct flyt_checkpoint_record *record)
{
    const flyt_checkpoint_global *global = &record->body->global;
    int status = settle_variables(self);
    if (!self->check)
        self->check = malloc(FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX);
    if (!status)
        status = enter(self, global);
    if (!status)
        status = self->check ? flyt_checkpoint_place(self->reader, self->piece, self->err) : no_memory(self);
    if (status)
        return status;
    CUresult result = write_variable(self, self->address + global->offset_bytes, record->place_bytes);
    if (result == CUDA_SUCCESS && flyt_fault_point("prepare.variable") == FLYT_FAULT_ERROR)
        self->check[0] ^= 1;
    if (result != CUDA_SUCCESS)
        return driver_failed(self, global->symbol, result);
    return memcmp(self->check, self->piece, record->place_bytes) == 0
               ? 0
               : flyt_error_set(self->err, -EIO, "what arrived differs: the variable %s is not what was written",
                                global->symbol);
}

static int take_global(struct load *self, const struct flyt_checkpoint_record *record)
{
    const flyt_checkpoint_global *global = &record->body->global;
    int status = enter(self, global);
    if (!status && !global->offset_bytes)
        status = find_variable(self, global);
    if (status || !record->place_bytes || self->is_trial)
        return status;
    if (record->place_bytes <= FLYT_LOAD_VARIABLES_BYTES_MAX)
        return take_small(self, global, record->place_bytes);
    return take_large(self, record);
}

/* ---- memory that is here already ---- */

_Static_assert(sizeof(struct flyt_page_hash) == FLYT_CHECKPOINT_PAGE_HASH_BYTES, "hashes come as they are");
_Static_assert(sizeof(struct flyt_page_key) == FLYT_CHECKPOINT_HASH_KEY_BYTES, "so does their key");

static int take_hashes(struct load *self, const struct flyt_checkpoint_record *record)
{
    const flyt_checkpoint_hashes *hashes = &record->body->hashes;
    if (self->memory.is_begun || self->receiving)
        return flyt_error_set(self->err, -EBADMSG, "%s has memory, and tells of other memory", image_name);
    int status = flyt_checkpoint_place(self->reader, self->piece, self->err);
    return status ? status
                  : flyt_arrived_pages_compare(self->session, self->adopted, hashes->address, hashes->page_count,
                                               (const struct flyt_page_hash *)self->piece, self->err);
}

/* ---- the image ---- */

static int take_head(const struct load *self, const flyt_checkpoint_head *head)
{
    if (!self->is_trial && !flyt_checkpoint_id_is_none(head->parent_id))
        return flyt_error_set(self->err, -ENOTSUP, "%s builds on another image", image_name);
    return 0;
}

static int take_object(struct load *self, const flyt_checkpoint_object *object)
{
    if (object->kind == FLYT_CHECKPOINT_EVENT)
        return take_event(self, object);
    if (object->kind == FLYT_CHECKPOINT_MODULE)
        return take_module(self, object);
    if (object->kind == FLYT_CHECKPOINT_ARRAY)
        return self->is_trial ? 0 : flyt_load_array_take(self->session->prepare, object, self->err);
    return flyt_error_set(self->err, -ENOTSUP, "%s has an object of kind %u, which this server cannot make", image_name,
                          object->kind);
}

/* What one that comes from another node has told so far is in its place, and compared, before the next round is. */
static int settle_round(struct load *self)
{
    int status = settle_variables(self);
    if (!status)
        status = self->receiving ? flyt_load_memory_settle(&self->memory, self->err) : 0;
    return self->receiving && !status ? flyt_receiving_settle(self->receiving, self->err) : status;
}

static int take_pages(struct load *self, const struct flyt_checkpoint_record *record)
{
    const flyt_checkpoint_pages *pages = &record->body->pages;
    int status = 0;
    if (self->is_trial)
        return flyt_load_memory_try(&self->memory, pages, self->err);
    if (self->receiving && !self->receiving->has_begun)
        return flyt_error_set(self->err, -EBADMSG, "%s is not one for another node", image_name);
    status = flyt_load_memory_fill(&self->memory, self->reader, record, self->err);
    bool is_compared = self->receiving && pages->encoding != FLYT_CHECKPOINT_ZERO;
    return is_compared && !status ? flyt_receiving_placed(self->receiving, pages, self->err) : status;
}

static int take_record(struct load *self, const struct flyt_checkpoint_record *record)
{
    int status;
    switch (record->type) {
    case FLYT_CHECKPOINT_HEAD:
        return take_head(self, &record->body->head);
    case FLYT_CHECKPOINT_ROUND:
        return settle_round(self);
    case FLYT_CHECKPOINT_STREAMS:
        return self->receiving ? flyt_receiving_begin(self->receiving, &record->body->streams, self->err)
                               : flyt_error_set(self->err, -ENOTSUP, "%s is not all in one place", image_name);
    case FLYT_CHECKPOINT_ELSEWHERE: /* its connections were told, so that it is received */
        return flyt_receiving_expect(self->receiving, &record->body->elsewhere, self->err);
    case FLYT_CHECKPOINT_HASH_KEY: /* of a stream: what is received is compared otherwise */
        return self->receiving ? 0 : flyt_arrived_pages_begin(self->session, record->body->hash_key.key, self->err);
    case FLYT_CHECKPOINT_HASHES:
        return take_hashes(self, record);
    case FLYT_CHECKPOINT_SLOT:
    case FLYT_CHECKPOINT_ALIVE:
    case FLYT_CHECKPOINT_ALLOCATIONS: /* the program brings them itself; that they are in extents was checked */
        return 0;
    case FLYT_CHECKPOINT_EXTENT:
        if (self->is_trial)
            return 0;
        return flyt_load_memory_make(&self->memory, record->body->extent.address, record->body->extent.bytes,
                                     self->err);
    case FLYT_CHECKPOINT_EXTENT_GONE:
        if (self->is_trial)
            return 0;
        return flyt_load_memory_drop(&self->memory, record->body->extent_gone.address, self->err);
    case FLYT_CHECKPOINT_PAGES:
        return take_pages(self, record);
    case FLYT_CHECKPOINT_MODULE_IMAGE:
        return take_module_image(self, record);
    case FLYT_CHECKPOINT_OBJECT_GONE:
        status = settle_variables(self); /* of a library that may be unloaded */
        return status ? status : take_object_gone(self, record->body->object_gone.number);
    case FLYT_CHECKPOINT_END:
        return settle_round(self);
    case FLYT_CHECKPOINT_OBJECT:
        status = settle_variables(self);
        return status ? status : take_object(self, &record->body->object);
    case FLYT_CHECKPOINT_GLOBAL:
        return take_global(self, record);
    case FLYT_CHECKPOINT_SEQUENCE:
        self->sequence = record->body->sequence.received;
        return 0;
    case FLYT_CHECKPOINT_STOPPED:
        self->session->prepare->has_stopped = true;
        self->session->prepare->error_count = record->body->stopped.error_count;
        return 0;
    case FLYT_CHECKPOINT_COUNTS:
        self->session->prepare->has_counts = true;
        self->session->prepare->counts = record->body->counts;
        flyt_counts_told(&record->body->counts, &self->session->prepare->tallies);
        return 0;
    case FLYT_CHECKPOINT_SETTINGS:
        self->session->prepare->has_settings = true;
        self->session->prepare->settings = record->body->settings;
        return 0;
    case FLYT_CHECKPOINT_TALLIES:
        self->session->prepare->tallies = record->body->tallies;
        return 0;
    default:
        return flyt_error_set(self->err, -ENOTSUP, "%s has records of type %d, which this server cannot make",
                              image_name, (int)record->type);
    }
}

/* Reads all of it. applies: else nothing is, and contents of pages are passed over, which are checked as they are
 * applied: what was made of an image that is damaged there is let go of. */
static int read_all(struct load *self, int fd, bool is_file, bool applies)
{
    struct flyt_checkpoint_record record;
    int status = flyt_checkpoint_reader_new(fd, image_name, is_file, &self->reader, self->err);
    if (status)
        return status;
    if (self->receiving)
        flyt_checkpoint_reader_set_source(self->reader, flyt_receiving_read, flyt_receiving_wait, self->receiving);
    if (!applies || self->is_trial)
        flyt_checkpoint_reader_skim(self->reader);
    while ((status = flyt_checkpoint_next(self->reader, &record, self->err)) > 0) {
        status = applies ? take_record(self, &record) : 0;
        if (status)
            break;
    }
    self->extent_count = flyt_checkpoint_reader_totals(self->reader)->extent_count;
    self->page_count = flyt_checkpoint_reader_page_count(self->reader);
    self->reader = flyt_checkpoint_reader_free(self->reader);
    return status;
}

static int rewind_image(const struct load *self, int fd)
{
    return lseek(fd, 0, SEEK_SET) == 0 ? 0 : flyt_error_set(self->err, -errno, "%s cannot be read: %m", image_name);
}

/* Each event once. */
static int settle_events(struct load *self)
{
    struct flyt_prepare *prepare = self->session->prepare;
    if (self->event_count)
        qsort(self->events, self->event_count, sizeof *self->events, compare_events);
    for (size_t i = 1; i < self->event_count; i++)
        if (self->events[i - 1].event_id == self->events[i].event_id)
            return flyt_error_set(self->err, -EBADMSG, "%s has an event twice", image_name);
    free(prepare->events);
    prepare->events = self->events;
    prepare->event_count = self->event_count;
    self->events = NULL;
    return 0;
}

/* Everything, from one descriptor. is_file: it can be read twice. */
static int load_all(struct load *self, int fd, bool is_file)
{
    int status = 0;
    flyt_load_array_fini(self->session->prepare); /* of a state that came before */
    self->offset_ns = flyt_state_wall_offset(self->session->clock_ns);
    if (!self->session->prepare->piece)
        self->session->prepare->piece = malloc(FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX);
    self->piece = self->session->prepare->piece;
    if (!self->piece)
        return no_memory(self);
    if (is_file)
        status = rewind_image(self, fd);
    if (is_file && !status)
        status = read_all(self, fd, is_file, false);
    if (is_file && !status)
        status = rewind_image(self, fd);
    if (!status)
        status = read_all(self, fd, is_file, true);
    if (!status)
        status = flyt_load_memory_settle(&self->memory, self->err);
    if (!status && !self->memory.is_begun && !self->receiving)
        status = flyt_arrived_pages_end(self->session, self->adopted, self->err);
    return status ? status : settle_events(self);
}

static void end_load(struct load *self, bool keeps_extents)
{
    flyt_load_memory_end(&self->memory, keeps_extents);
    free(self->events);
    free(self->modules);
    flyt_checkpoint_parts_fini(&self->parts);
    free(self->check);
    if (self->variables)
        flyt_load_variables_end(self->variables);
    free(self->variables);
}

int flyt_load_state(struct flyt_session *session, struct flyt_adopted_extents *adopted, int fd, uint64_t *ret_sequence,
                    struct flyt_error *err)
{
    struct load self = {
        .session = session, .adopted = adopted, .err = err, .memory = {.session = session, .adopted = adopted}};
    struct stat file;
    int status = load_all(&self, fd, fstat(fd, &file) == 0 && S_ISREG(file.st_mode));
    end_load(&self, !status);
    if (!status)
        *ret_sequence = self.sequence;
    return status;
}

int flyt_load_trial(struct flyt_session *session, struct flyt_adopted_extents *adopted, int fd, struct flyt_error *err)
{
    struct load self = {.session = session,
                        .adopted = adopted,
                        .err = err,
                        .is_trial = true,
                        .memory = {.session = session, .adopted = adopted}};
    int status = load_all(&self, fd, true);
    end_load(&self, false);
    return status;
}

int flyt_load_stream(struct flyt_session *session, struct flyt_adopted_extents *adopted,
                     struct flyt_receiving *receiving, const struct flyt_load_teller *teller, struct flyt_error *err)
{
    struct load self = {.session = session,
                        .adopted = adopted,
                        .err = err,
                        .receiving = receiving,
                        .memory = {.session = session, .adopted = adopted, .teller = teller}};
    receiving->memory = &self.memory;
    int status = load_all(&self, -1, false);
    if (!status) {
        const struct flyt_load_result loaded = {self.sequence, self.extent_count, self.page_count};
        status = flyt_receiving_conclude(receiving, &loaded, err);
    }
    if (!status) {
        status = teller->done(teller->user, self.sequence);
        if (status)
            flyt_error_set(err, status, "the node manager has gone");
    }
    flyt_receiving_stop(receiving, err); /* before what they write to goes */
    end_load(&self, !status);
    return status;
}
