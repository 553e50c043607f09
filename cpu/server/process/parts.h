/* The parts of every session of a server process, from bottom to top. */
#ifndef FLYT_SERVER_PARTS_H
#define FLYT_SERVER_PARTS_H

#include "cpu/server/core/part.h"

extern flyt_part_list flyt_parts;

#endif
