/* What a fake server (fake_server.c) says that it has found: GPUs whose SMs split as an H200's do, or as the
 * environment says. */
#ifndef FLYT_NODE_FAKE_READY_H
#define FLYT_NODE_FAKE_READY_H

#include <stdint.h>

#include "rpc/transport/manager_link.h"

/* capabilities: as --soft-cc has them. */
void fake_ready(struct flyt_manager_link_ready *ready, unsigned gpu, unsigned group_size, unsigned sm_count,
                uint64_t memory_bytes, const char *capabilities);

#endif
