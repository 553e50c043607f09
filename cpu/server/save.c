#include "cpu/server/save.h"

#include <errno.h>

#include "cpu/server/session.h"

void flyt_save_libraries(struct flyt_session *session)
{
    (void)session;
}

void flyt_save_library(struct flyt_session *session, const struct flyt_library *library)
{
    (void)session;
    (void)library;
}

void flyt_save_library_gone(struct flyt_session *session, const struct flyt_library *library)
{
    (void)session;
    (void)library;
}

int flyt_save_state(struct flyt_session *session, uint64_t sequence, struct flyt_error *err)
{
    (void)session;
    return flyt_error_set(err, -ENOSYS, "variables and constants of libraries cannot be saved yet, sequence=%llu",
                          (unsigned long long)sequence);
}
