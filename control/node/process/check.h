/*
 * What a unit's hardening may take away from servers without anybody noticing: looked for at the start, one sentence in
 * the log for each.
 */
#ifndef FLYT_NODE_CHECK_H
#define FLYT_NODE_CHECK_H

#include "control/node/model/node.h"

/* Warns. Returns how many things are missing. */
unsigned flyt_node_check_host(const struct flyt_node *node);

#endif
