/*
 * Memory that sessions of one VM share: an export lets others have one of this session's extents, an import is an
 * extent of another session's, mapped in the window of its device here. The node manager is the broker
 * (control/node/link/ broker.h): it alone has a descriptor of every extent, and knows which sessions are of one VM. So
 * without one there is no sharing: CUDA_ERROR_NOT_SUPPORTED.
 *
 * An import is charged to nobody here: it is its owner's, and the node manager charges it to the VM when that has gone.
 * It is not cleared, hashed or copied either: that is done where it is charged. So where the session goes on at another
 * server its own one carries it, and the client imports it again, at the address that it had.
 *
 * The submission thread.
 */
#ifndef FLYT_SERVER_IPC_H
#define FLYT_SERVER_IPC_H

#include <cuda.h>
#include <stdint.h>

#include "cpu/server/core/object.h"
#include "cpu/server/cuda/memory.h"
#include "rpc/transport/manager_link.h"

struct flyt_device;
struct flyt_ipc_question;
struct flyt_session;

enum { FLYT_IMPORTS_MAX = 4096 }; /* of a device */

struct flyt_export {
    struct flyt_object object;
    struct flyt_export *next;
    struct flyt_device *device;
    uint64_t address; /* that it was asked for */
    bool is_revoked;  /* what was there has been freed */
    struct flyt_manager_link_shared shared;
};

struct flyt_import {
    struct flyt_object object;
    struct flyt_import *next;
    struct flyt_device *device;
    struct flyt_extent extent;
    struct flyt_manager_link_shared shared; /* as the node manager gave it */
    unsigned physical_count;                /* physical memory that is it (physical.h) */
};

struct flyt_ipc {
    struct flyt_export *exports;
    struct flyt_import *imports;
    struct flyt_ipc_question *questions; /* that the node manager has not answered */
    uint64_t last_number;                /* of a question */
};

/* Of a device that is reset, or (NULL) at the session's end. An import that physical memory is outlives the reset. */
void flyt_export_drop(struct flyt_export *one, const struct flyt_device *device);
void flyt_import_drop(struct flyt_import *import, const struct flyt_device *device);

/* An allocation is freed: nobody can have it any more who has not got it. */
void flyt_ipc_revoke(struct flyt_device *device, uint64_t address, uint64_t bytes);

/* The node manager's answer; fd (-1: none) is taken over. */
void flyt_ipc_take_answer(struct flyt_session *session, const struct flyt_manager_link_shared *answer, int fd);
/* It is another one, and knows the session's extents: tells it of exports and imports, and asks again. */
void flyt_ipc_tell(struct flyt_session *session);

#endif
