#include "cpu/server/move/out/libraries.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "cpu/image/writer.h"
#include "cpu/server/cuda/module.h"
#include "cpu/server/move/out/move.h"
#include "cpu/server/move/out/save.h"
#include "cpu/server/core/session.h"
#include "flyt.h"
#include "flyt_signatures.h"
#include "rpc/base/build_name.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

_Static_assert((int)FLYT_SAVE_LIBRARY_BYTES_MAX <= (int)FLYT_MANAGER_LINK_DATA_BYTES_MAX,
               "arguments of library_load fit");

static int count_library(void *user, uint64_t number, void *object)
{
    ++*(size_t *)user;
    return 0;
}

static int list_library(void *user, uint64_t number, void *object)
{
    struct flyt_library ***at = user;
    *(*at)++ = object;
    return 0;
}

static int compare_load(const void *left, const void *right)
{
    uint64_t a = (*(struct flyt_library *const *)left)->load_number;
    uint64_t b = (*(struct flyt_library *const *)right)->load_number;
    return a < b ? -1 : a > b;
}

int flyt_save_list_libraries(struct flyt_session *session, struct flyt_library ***ret_libraries, size_t *ret_count)
{
    size_t count = 0;
    flyt_objects_each(&session->objects, FLYT_OBJECTS_LIBRARY, count_library, &count);
    struct flyt_library **libraries = calloc(count + 1, sizeof *libraries), **at = libraries;
    if (!libraries)
        return -ENOMEM;
    flyt_objects_each(&session->objects, FLYT_OBJECTS_LIBRARY, list_library, &at);
    qsort(libraries, count, sizeof *libraries, compare_load);
    *ret_libraries = libraries;
    *ret_count = count;
    return 0;
}

uint32_t flyt_save_encode_library(const struct flyt_library *library, unsigned char *ret_bytes)
{
    flyt_library_load_args args = {
        .library_id = library->object.id,
        .options = {.options_len = library->option_count, .options_val = (flyt_load_option *)library->options}};
    XDR xdrs;
    memcpy(args.image_hash, library->image_hash, sizeof args.image_hash);
    xdrmem_create(&xdrs, (char *)ret_bytes, FLYT_SAVE_LIBRARY_BYTES_MAX, XDR_ENCODE);
    bool has_room = xdr_flyt_library_load_args(&xdrs, &args);
    assert(has_room); /* it always fits */
    (void)has_room;
    return xdr_getpos(&xdrs);
}

void flyt_save_library(struct flyt_session *session, const struct flyt_library *library)
{
    const struct flyt_manager_link_library message = {.library_id = library->object.id};
    unsigned char data[FLYT_SAVE_LIBRARY_BYTES_MAX];
    if (session->move->move_id && session->manager)
        flyt_manager_tell_data(session->manager, FLYT_MANAGER_LINK_LIBRARY, &message, sizeof message, data,
                               flyt_save_encode_library(library, data), NULL, 0);
}

void flyt_save_library_gone(struct flyt_session *session, const struct flyt_library *library)
{
    const struct flyt_manager_link_library message = {.library_id = library->object.id, .has_ended = 1};
    if (session->move->move_id && session->manager)
        flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_LIBRARY, &message, sizeof message, NULL, NULL, 0);
}

void flyt_save_libraries(struct flyt_session *session)
{
    struct flyt_library **libraries;
    size_t count;
    if (flyt_save_list_libraries(session, &libraries, &count) != 0) {
        /* They are loaded when the program comes, then; their contents are not taken. */
        flyt_warn("session %s: out of host memory: libraries are not loaded ahead where it is moved to",
                  session->label);
        return;
    }
    for (size_t i = 0; i < count; i++)
        flyt_save_library(session, libraries[i]);
    free(libraries);
}
