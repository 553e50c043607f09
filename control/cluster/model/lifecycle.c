#include <stddef.h>

#include "control/cluster/model/lifecycle.h"

#define GONE     FLYT_HELD_IS_GONE
#define MADE     FLYT_HELD_IS_MADE
#define WRITTEN  FLYT_HELD_IS_WRITTEN
#define FAILED   FLYT_HELD_HAS_FAILED
#define ADOPTED  FLYT_HELD_IS_ADOPTED
#define LEAVING  FLYT_HELD_IS_LEAVING
#define REFUSED  FLYT_HELD_IS_REFUSED
#define EMPTIED  FLYT_HELD_HAS_EMPTIED
#define CLOSING  FLYT_HELD_IS_CLOSING
#define APPLIED  FLYT_HELD_IS_APPLIED
#define USED     FLYT_HELD_IS_USED
#define QUIET    FLYT_HELD_IS_QUIET
#define LINGERED FLYT_HELD_HAS_LINGERED
#define REMOVED  FLYT_HELD_IS_REMOVED
#define KNOWN    FLYT_HELD_IS_KNOWN
#define DUE      FLYT_HELD_IS_DUE
#define REACHED  FLYT_HELD_IS_REACHED

/* The first row counts of which all of the one is seen, and none of the other. */
static const struct {
    unsigned all, none;
    enum flyt_allocation_step step;
} rows[] = {
    {GONE, 0, FLYT_HELD_FORGET},
    {WRITTEN, MADE, FLYT_HELD_GRANT},
    {FAILED, MADE, FLYT_HELD_TAKE_BACK},
    {0, MADE, FLYT_HELD_WAIT},
    {ADOPTED | WRITTEN, 0, FLYT_HELD_ADOPT},
    {ADOPTED | FAILED, 0, FLYT_HELD_ORPHAN},
    {ADOPTED, 0, FLYT_HELD_WAIT},
    {REFUSED, LEAVING, FLYT_HELD_END_REFUSED},
    {EMPTIED, 0, FLYT_HELD_RELEASE},
    {CLOSING | APPLIED | USED, LEAVING, FLYT_HELD_OPEN},
    {CLOSING | APPLIED | KNOWN, LEAVING | USED, FLYT_HELD_END_IDLE},
    {QUIET | REMOVED, CLOSING | LEAVING, FLYT_HELD_END_REMOVED},
    {QUIET | LINGERED, KNOWN | LEAVING, FLYT_HELD_END_UNUSED},
    {QUIET | LINGERED | KNOWN, CLOSING | LEAVING, FLYT_HELD_CLOSE},
    {DUE | FAILED, WRITTEN, FLYT_HELD_WRITE},
    {DUE | WRITTEN | REACHED, 0, FLYT_HELD_ORDER},
};

enum flyt_allocation_step flyt_allocation_next(unsigned seen)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if ((seen & rows[i].all) == rows[i].all && !(seen & rows[i].none))
            return rows[i].step;
    return FLYT_HELD_WAIT;
}

#define ALLOCATION FLYT_ATTACH_IS_HELD
#define ASKED      (FLYT_ATTACH_IS_HELD | FLYT_ATTACH_IS_ASKED)
#define ANSWERED   (ASKED | FLYT_ATTACH_IS_ANSWERED)
#define UNREACHED  (ANSWERED | FLYT_ATTACH_IS_UNREACHED)

static const struct {
    unsigned all, none;
    enum flyt_attach_step step;
} attach_rows[] = {
    {0, ALLOCATION, FLYT_ATTACH_PLACE},
    {ALLOCATION | FLYT_ATTACH_IS_UNKNOWN, 0, FLYT_ATTACH_SAY_UNKNOWN},
    {0, FLYT_ATTACH_IS_MADE, FLYT_ATTACH_WAIT},
    {FLYT_ATTACH_IS_LEAVING, 0, FLYT_ATTACH_WAIT},
    {ASKED | FLYT_ATTACH_HAS_FAILED, 0, FLYT_ATTACH_SAY_UNWRITTEN},
    {UNREACHED | FLYT_ATTACH_IS_AWAITED, 0, FLYT_ATTACH_WAIT_FOR_NODE},
    {UNREACHED, 0, FLYT_ATTACH_SAY_UNREACHED},
    {ANSWERED | FLYT_ATTACH_IS_REFUSED, 0, FLYT_ATTACH_SAY_REFUSED},
    {ANSWERED, 0, FLYT_ATTACH_SAY_GRANTED},
    {ASKED, 0, FLYT_ATTACH_WAIT},
    {FLYT_ATTACH_IS_AWAITED, 0, FLYT_ATTACH_WAIT},
    {FLYT_ATTACH_IS_AWAY, 0, FLYT_ATTACH_SAY_AWAY},
    {FLYT_ATTACH_IS_CLOSING, 0, FLYT_ATTACH_OPEN},
    {FLYT_ATTACH_IS_BLOCKED, 0, FLYT_ATTACH_SAY_REMOVED},
    {FLYT_ATTACH_IS_OPEN, 0, FLYT_ATTACH_SAY_GRANTED},
    {0, FLYT_ATTACH_IS_WRITTEN, FLYT_ATTACH_WRITE},
    {0, 0, FLYT_ATTACH_ORDER},
};

enum flyt_attach_step flyt_attach_next(unsigned seen)
{
    size_t i = 0;

    while ((seen & attach_rows[i].all) != attach_rows[i].all || (seen & attach_rows[i].none))
        i++;
    return attach_rows[i].step;
}
