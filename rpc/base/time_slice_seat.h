/*
 * A server's place among those that share SMs in time (time_slices.h): it says how it is, and sees whether it may work.
 * One thread uses it, but for flyt_time_slice_seat_wait, _wakes and _wake. Nothing here waits for another process, but
 * _wait.
 */
#ifndef FLYT_BASE_TIME_SLICE_SEAT_H
#define FLYT_BASE_TIME_SLICE_SEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/base/time_slice_rules.h"

struct flyt_time_slice_seat;

/* With the descriptors that flyt_time_slices_join gave (FLYT_TIME_SLICES_FDS), which stay the caller's. 0; -EBADMSG:
 * they are none, or may still be cut short; -EPROTO: of a build that does this in another way; another negative errno.
 */
int flyt_time_slice_seat_open(const int *fds, struct flyt_time_slice_seat **ret_seat);
/* NULL is allowed. Returns NULL. The others hear that it is idle. */
struct flyt_time_slice_seat *flyt_time_slice_seat_close(struct flyt_time_slice_seat *seat);

/*
 * Says how it is. WAITS: wants to work; asked again when it is woken and at *ret_again_ns (both have the same answer:
 * it may work, or not yet). RUNS: whether it may go on. IDLE, and WAITS after it ran: what it had on the GPU is done.
 * BESIDE: it is not, and takes long: after FLYT_TIME_SLICE_BESIDE_MS from when it might not go on, or of an earlier
 * seat. Returns whether it may work.
 */
bool flyt_time_slice_seat_tell(struct flyt_time_slice_seat *seat, enum flyt_time_slice_state state, uint64_t now_ns,
                               uint64_t *ret_again_ns);
/* It has work on the GPU, or none. */
void flyt_time_slice_seat_set_idle(struct flyt_time_slice_seat *seat, bool is_idle, uint64_t now_ns);
/* It runs, and looks after its work: to be called at least every FLYT_TIME_SLICE_LOST_MS / 4 until that is done. */
void flyt_time_slice_seat_be_seen(struct flyt_time_slice_seat *seat, uint64_t now_ns);
/* Whether others wait for the token. */
bool flyt_time_slice_seat_is_wanted(const struct flyt_time_slice_seat *seat);
/* A number that is another one when the server is to ask again. */
uint32_t flyt_time_slice_seat_wakes(const struct flyt_time_slice_seat *seat);
/* Waits until it is another one than `wakes`, for timeout_ns at most. */
void flyt_time_slice_seat_wait(struct flyt_time_slice_seat *seat, uint32_t wakes, uint64_t timeout_ns);
/* Ends such a wait of another thread, which looks at `wakes` again. */
void flyt_time_slice_seat_wake(struct flyt_time_slice_seat *seat);

#endif
