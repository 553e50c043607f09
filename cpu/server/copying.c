#include "cpu/server/copying.h"

#include <errno.h>

#include "cpu/server/session.h"
#include "rpc/base/descriptors.h"

CUresult flyt_copying_begin(struct flyt_session *session, const struct flyt_server_link_move *move,
                            struct flyt_error *err)
{
    flyt_error_set(err, -ENOSYS, "this server does not copy the memory of a running session");
    return CUDA_ERROR_NOT_SUPPORTED;
}

void flyt_copying_mirror(struct flyt_session *session, const struct flyt_server_link_extent *extent, int fd)
{
    flyt_close(fd);
}

void flyt_copying_extent_gone(struct flyt_session *session, uint64_t extent_id)
{
}

bool flyt_copying_advance(struct flyt_session *session)
{
    return false;
}

void flyt_copying_state(const struct flyt_session *session, struct flyt_server_link_move_state *ret_state)
{
    ret_state->phase = FLYT_SERVER_LINK_MOVE_COPYING;
    ret_state->outcome = -ENOSYS;
}

void flyt_copying_finish(struct flyt_session *session)
{
}

void flyt_copying_go_on(struct flyt_session *session)
{
}

int flyt_copying_result(const struct flyt_session *session)
{
    return -ENOSYS;
}

const char *flyt_copying_sentence(const struct flyt_session *session)
{
    return "this server does not copy the memory of a running session";
}

uint64_t flyt_copying_pages_last(const struct flyt_session *session)
{
    return 0;
}

void flyt_copying_end(struct flyt_session *session)
{
}
