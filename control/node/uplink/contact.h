/*
 * Since when no cluster manager was reached: what self-fencing counts from, also over restarts of the node manager,
 * which else could put the end off for ever. STATE_DIR/contact has it ("BOOT_ID MS"), written by the writer's thread
 * (writer.h). It lags by what is being written, and need not be on the disk: after a crash of the machine no program is
 * left. It is kept also where nothing is to end: that may be set later. The loop's thread.
 */
#ifndef FLYT_NODE_CONTACT_H
#define FLYT_NODE_CONTACT_H

#include <stdint.h>

#include "control/node/model/node.h"

struct flyt_node_contact;

/* As it was kept before a restart, if that was since the machine's start, else now. 0 or -ENOMEM; a file that cannot be
 * opened is logged, and nothing is kept. */
int flyt_node_contact_new(struct flyt_node *node, struct flyt_node_contact **ret_contact);
/* What is being written is written. NULL is allowed. */
struct flyt_node_contact *flyt_node_contact_free(struct flyt_node_contact *contact);
/* On the clock of flyt_node_contact_clock_ms. */
uint64_t flyt_node_contact_get_ms(const struct flyt_node_contact *contact);
void flyt_node_contact_set(struct flyt_node_contact *contact, uint64_t contact_ms);
/* CLOCK_BOOTTIME, which counts a suspended machine's time. */
uint64_t flyt_node_contact_clock_ms(void);

#endif
