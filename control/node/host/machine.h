/*
 * What a process asks of its machine: the time, chance, and what of its environment is its own.
 */
#ifndef FLYT_NODE_MACHINE_H
#define FLYT_NODE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* Whether a variable of the environment (NAME=VALUE) is the service manager's word to this process alone, which none
 * that it starts may have: they could answer in its place. */
bool flyt_node_is_own_variable(const char *variable);
/* Milliseconds since 1970. */
uint64_t flyt_node_wall_ms(void);
/* A random number that is not 0. */
uint64_t flyt_node_random(void);
/* A name that a tenant chose, without what could break the log's lines; "?" for none. */
void flyt_node_clean_name(const char *from, char *ret_name, size_t bytes);

#endif
