/*
 * What is made ahead, one by one, for a session that is to go on here: extents and libraries. The submission thread.
 */
#ifndef FLYT_SERVER_PREPARED_H
#define FLYT_SERVER_PREPARED_H

#include <cuda.h>
#include <stdint.h>

#include "rpc/transport/manager_link.h"

struct flyt_adopted_extents;
struct flyt_library;
struct flyt_session;

/* Memory for an extent, as MAKE has it, which is in `adopted` then. 0 and its handle; -ENOMEM; -EPROTO: it cannot be;
 * -EEXIST: there is one of its id; -EIO. */
int flyt_prepare_make(const struct flyt_session *session, struct flyt_adopted_extents *adopted,
                      const struct flyt_manager_link_extent *extent, CUmemGenericAllocationHandle *ret_handle);

/* Loads a library ahead, as LIBRARY has it, with arguments of library_load as XDR: 0 also where the driver does not
 * load it, *ret_result then tells why; -EBADMSG: they are none. One that was loaded with them already stays. */
int flyt_prepare_load(struct flyt_session *session, const void *args, uint32_t bytes, uint64_t *ret_library_id,
                      CUresult *ret_result);

void flyt_prepare_unload(struct flyt_session *session, uint64_t library_id);

/* The library that was loaded ahead under this id, NULL: none. It stays the session's. */
CUlibrary flyt_prepare_library(const struct flyt_session *session, uint64_t library_id);

/* Takes out the library that was loaded ahead with the id, the image and the options of this one. NULL: there is none.
 */
CUlibrary flyt_prepare_adopt(struct flyt_session *session, const struct flyt_library *library);

/* The session has gone on: unloads what was not adopted, and forgets the rest. */
void flyt_prepare_end(struct flyt_session *session);

/* Frees what is in host memory. */
void flyt_prepare_fini(struct flyt_session *session);

#endif
