/*
 * SWITCH, which decides that programs which have arrived from another node go on here (receive.h), and their going on:
 * all together, as long as all can still go back. For receive.c. The loop's thread.
 */
#ifndef FLYT_NODE_RECEIVE_SWITCH_H
#define FLYT_NODE_RECEIVE_SWITCH_H

#include "control/node/ops/receive.h"

/* SWITCH is written, or answered, as soon as that can be. */
void flyt_node_receive_look_at_switch(struct flyt_node_receive *receive);
/* Whoever waits for SWITCH, if anybody does. */
void flyt_node_receive_answer_switch(struct flyt_node_receive *receive, flyt_status status, const char *text);
/* The clients of those that are LOADED may come. As long as none has gone on all can go back: so of several each waits
 * for the others. */
void flyt_node_receive_expect_all(struct flyt_node_receive *receive);
/* Those that could go on do when all could; not to wait for ever, for the client of one may never come. */
void flyt_node_receive_let_go(struct flyt_node_receive *receive);

#endif
