#ifndef FLYT_SERVER_MOVING_H
#define FLYT_SERVER_MOVING_H

struct flyt_part;

/* Moves the session; installs the observer. */
extern const struct flyt_part flyt_moving_part;

#endif
