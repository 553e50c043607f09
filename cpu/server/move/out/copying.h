/*
 * Copies the memory of a session to that of another server (mirror.h), or into an image (writing.h), while its program
 * runs: a first round copies everything, each one after that looks at everything and copies what differs from what was
 * copied (page_table.h, on which it rests that this is exact). Looking and copying take a share of the GPU that is
 * bounded (throttle.h). When a round has found little, it is ready: rounds go on at long intervals, so that little
 * stays little. When the program has stopped, and nothing of it is on the GPU, flyt_copying_finish begins the last
 * rounds, and flyt_copying_result tells when a look at all pages has found each as it was copied.
 *
 * Rounds are the session's; within one, each device goes its own way (copier.h). The submission thread; nothing here
 * waits for the GPU but flyt_copying_fini.
 */
#ifndef FLYT_SERVER_COPYING_H
#define FLYT_SERVER_COPYING_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "rpc/base/error.h"
#include "rpc/base/page_hash.h"
#include "rpc/transport/manager_link.h"

struct flyt_checkpoint_writer;
struct flyt_copying; /* session->copying; NULL: nothing is copied */
struct flyt_device;
struct flyt_extent;
struct flyt_session;

/*
 * MOVE of kind FLYT_MANAGER_LINK_MOVE_MIRROR came: all memory that the session has is to be copied, that of each extent
 * from when its mirror is there. Makes all devices, and loads the kernel on each (tens of milliseconds).
 * CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY: no room for the hash memory; CUDA_ERROR_NOT_READY: what was copied for an
 * earlier move has not ended; CUDA_ERROR_INVALID_VALUE: a move of another kind; CUDA_ERROR_UNKNOWN: the driver failed;
 * with a sentence in *err. There is nothing to end then.
 */
CUresult flyt_copying_begin(struct flyt_session *session, const struct flyt_manager_link_move *move,
                            struct flyt_error *err);

/*
 * MOVE of kind FLYT_MANAGER_LINK_MOVE_WRITE came, with the descriptor that the image is to go to, which is taken over:
 * all memory is to be written from now on (writing.h). parent_fd: an earlier image of the session, on which this one is
 * to build; taken over, too; -1: none. As flyt_copying_begin; but where there is an earlier one, what there is no room
 * for, and what the driver says, may be told by flyt_copying_result.
 */
CUresult flyt_copying_begin_image(struct flyt_session *session, const struct flyt_manager_link_move *move, int fd,
                                  int parent_fd, struct flyt_error *err);

/*
 * MOVE of kind FLYT_MANAGER_LINK_MOVE_SEND came, with its connections: fd for the image, stream_fds, stream_count of
 * them, for contents. All are taken over. As flyt_copying_begin_image; the state is where it was to be when the other
 * server has said so.
 */
CUresult flyt_copying_begin_sending(struct flyt_session *session, const struct flyt_manager_link_move *move, int fd,
                                    const int *stream_fds, unsigned stream_count, struct flyt_error *err);

/* MIRROR came; fd is closed. Where it cannot be used, flyt_copying_result tells why: -ENOTSUP, where the GPUs cannot
 * reach each other's memory. That of an extent that is gone, or when nothing is copied, is let go of. */
void flyt_copying_mirror(struct flyt_session *session, const struct flyt_manager_link_extent *extent, int fd);

/* A free extent of the device is to be unmapped: it is copied no more, unless it is still there in the next round.
 * Whether nothing reads it any more, so that it may be; else it is to be asked again. */
bool flyt_copying_let_go(struct flyt_device *device, const struct flyt_extent *extent);
/* The same of all extents of the device. */
bool flyt_copying_let_go_all(struct flyt_device *device);
/* The extent, which was let go of, is unmapped: so is its mirror. */
void flyt_copying_extent_gone(struct flyt_session *session, uint64_t extent_id);

/* Whether something is on SMs that the device has left (resize.h), which is told by flyt_resize_settle when it is not.
 */
bool flyt_copying_holds_sms(const struct flyt_device *device);

/* Whether the GPU is at it, as the driver says: asked at the session's end, when nothing advances any more. */
bool flyt_copying_is_on_gpu(const struct flyt_device *device);

/* From the loop. Returns whether time can bring more. */
bool flyt_copying_advance(struct flyt_session *session);

/* What has been done: fills round, page_bytes, pages_*, copied_bytes and outcome, and phase with COPYING, READY or LAST
 * (of enum flyt_manager_link_move_phase). Leaves the rest as it is. */
void flyt_copying_state(const struct flyt_session *session, struct flyt_manager_link_move_state *ret_state);

/* Nothing of the session is on the GPU any more, nor comes: the last rounds, as fast as the GPU can. */
void flyt_copying_finish(struct flyt_session *session);
/* The program goes on after all: rounds go on as before flyt_copying_finish. */
void flyt_copying_go_on(struct flyt_session *session);

/* The result of an image's pages is 0: the state (save.h) follows them, whose descriptor is taken over, and ends the
 * image. The result is -EAGAIN from now on until all of it is where it was to be. */
void flyt_copying_put_state(struct flyt_session *session, int state_fd);

/*
 * 0: what is in the mirrors, or in the image, is what is in the session's memory, since flyt_copying_finish; -EAGAIN:
 * not yet; or why it cannot be, for ever, with a sentence: -ENOTSUP: a GPU cannot reach the other one's memory; -EIO:
 * the driver failed, or memory changes though nothing of the session runs; -EINVAL: a mirror is none, or nothing is
 * being copied; -ENOMEM; for an image also what write(2) says, -ENOENT: that of a library is not kept any more.
 */
int flyt_copying_result(const struct flyt_session *session);
/* Why the result is what it is; "" where it is 0 or -EAGAIN. Valid until flyt_copying_end. */
const char *flyt_copying_sentence(const struct flyt_session *session);
/* The image is whole: pages that were not written, because the one that it builds on has them. */
uint64_t flyt_copying_pages_kept(const struct flyt_session *session);
/* Pages that were copied since flyt_copying_finish. */
uint64_t flyt_copying_pages_last(const struct flyt_session *session);

/* The key of the hashes of what mirrors have; NULL: nothing was copied to mirrors. Good until flyt_copying_end. */
const struct flyt_page_key *flyt_copying_hash_key(const struct flyt_session *session);
/* The result is 0, and there is a key: puts the hashes of all memory that the session has into the round that the
 * writer is at. 0, or a negative errno with a sentence. */
int flyt_copying_put_hashes(const struct flyt_session *session, struct flyt_checkpoint_writer *writer,
                            struct flyt_error *err);

/* Lets go of the mirrors, whose memory is the other server's, or of the image's descriptor, and frees everything, as
 * soon as nothing of it is on the GPU and no thread of it writes: until then flyt_copying_advance goes on with it. Also
 * where nothing was begun. */
void flyt_copying_end(struct flyt_session *session);
/* The same at the session's end; waits for the GPU. */
void flyt_copying_fini(struct flyt_session *session);

#endif
