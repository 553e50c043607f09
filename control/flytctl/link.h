/*
 * flytctl's connection to the cluster manager that leads. Made at the first call: the managers of the settings are
 * tried in turn, HELLO says who we are, and where the answer is that another one leads, that one is asked; so it is
 * when a call is answered with NOT_LEADER, which nothing has been done for. Where nobody leads at present, that is
 * tried again until the deadline. A call that was sent and not answered is never sent again. Blocks; nothing waits
 * longer than the time-outs.
 */
#ifndef FLYT_FLYTCTL_LINK_H
#define FLYT_FLYTCTL_LINK_H

#include "control/base/peer.h"
#include "control/flytctl/flytctl.h"

enum { FLYT_LINK_HOPS_MAX = 8 };

struct flyt_link;

/*
 * Calls a procedure of FLYT_CONTROL_PROGRAM. `result` (result_bytes) begins with a flyt_outcome (or is one); on
 * FLYT_EXIT_OK it is the caller's, to be freed by xdr_free with xdr_res: the call was answered, the outcome in it may
 * be any but NOT_LEADER. Otherwise it is zeroed, and why has been said. wait_ms: how much longer than usual
 * (--deadline) the answer may take.
 */
enum flyt_exit flyt_link_call(struct flyt_ctl *ctl, uint32_t procedure, xdrproc_t xdr_args, const void *args,
                              xdrproc_t xdr_res, void *result, size_t result_bytes, uint64_t wait_ms);

/* Who answered HELLO: the address and the build; "" where nobody has yet. */
const char *flyt_link_address(const struct flyt_ctl *ctl);
const char *flyt_link_build(const struct flyt_ctl *ctl);

void flyt_link_close(struct flyt_ctl *ctl);

#endif
