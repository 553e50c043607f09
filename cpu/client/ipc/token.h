/*
 * What this program exports and imports, by tokens: 32 random bytes, which are all that another process of the VM needs
 * to be given the memory. Who asks for the token of one allocation again gets the same one, as long as that is not
 * freed: then the server has withdrawn it, and the record goes when it is looked at next.
 *
 * Functions do not enter the library. Any thread.
 */
#ifndef FLYT_CLIENT_IPC_TOKEN_H
#define FLYT_CLIENT_IPC_TOKEN_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/core/table.h"

enum { FLYT_TOKEN_OF_MEMORY_BYTES = 32 };

struct flyt_restore;

/* An extent of another process's, mapped at `address` here. */
struct flyt_import {
    struct flyt_record record;
    unsigned char token[FLYT_TOKEN_OF_MEMORY_BYTES];
    uint64_t address, bytes;
    int device;
};

/* Whether the server has a broker. */
bool flyt_ipc_is_supported(void);

/* Of the memory at the address, which is that of owner_id: a range's buffer_id, or the id of physical memory. Its
 * token, and where in its extent the address is. CUDA_ERROR_NOT_SUPPORTED: there is no broker;
 * CUDA_ERROR_INVALID_VALUE: nothing of the session's own is there; CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_ipc_export(uint64_t address, uint64_t owner_id, unsigned char *ret_token, uint64_t *ret_offset);
/* Whether this process has made the token. */
bool flyt_ipc_is_own(const unsigned char *token);

/* CUDA_SUCCESS: *ret_import, until flyt_ipc_import_end. CUDA_ERROR_NOT_SUPPORTED; CUDA_ERROR_INVALID_HANDLE: the token
 * names nothing, or nothing of this VM; CUDA_ERROR_INVALID_DEVICE: what it names is on a device that this program does
 * not see; CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_ipc_import(const unsigned char *token, struct flyt_import **ret_import);
/* Waits for what may use it. is_on_server false: the server has let go of it already. */
CUresult flyt_ipc_import_end(uint64_t import_id, bool is_on_server);

/* Exports, then imports: of these, another process's must be exported again before. */
int flyt_ipc_restore(struct flyt_restore *restore);
/* Behind the events: shares those again that were shared. Exports come first, as above: two processes that have events
 * of each other's wait for each other. */
int flyt_ipc_event_restore(struct flyt_restore *restore);

#endif
