#include "cpu/client/cuda/watch.h"

#include <stddef.h>

const struct flyt_watch *flyt_watch_table;
const struct flyt_watch *_Atomic flyt_watch_installed;
