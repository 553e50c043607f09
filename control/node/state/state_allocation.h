/*
 * An allocation as a JSON object, for the node manager's state file. By names, so that the file of another build is of
 * use: what that did not know keeps its zero, what this one does not know is left out.
 */
#ifndef FLYT_NODE_STATE_ALLOCATION_H
#define FLYT_NODE_STATE_ALLOCATION_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "control.h"

/* Numbers as text: JSON's own are doubles. */
bool flyt_node_state_put_number(cJSON *object, const char *name, uint64_t value);
/* False: it is absent, no number, or above max. */
bool flyt_node_state_get_number(const cJSON *object, const char *name, uint64_t max, uint64_t *ret_value);

/* Bytes as hexadecimal digits. False: no memory; it is absent, or of another length. */
bool flyt_node_state_put_hex(cJSON *object, const char *name, const unsigned char *bytes, size_t count);
bool flyt_node_state_get_hex(const cJSON *object, const char *name, unsigned char *bytes, size_t count);

/* A new object at the array's end, which owns it. NULL: no memory. */
cJSON *flyt_node_state_add_object(cJSON *array);
/* The member, to be looked through; NULL where it is absent, as in the file of a build that did not know it. False, and
 * NULL: it is no array, or has more than max. */
bool flyt_node_state_get_array(const cJSON *root, const char *name, int max, const cJSON **ret_array);

/* Fills an empty object. False: no memory. */
bool flyt_node_state_put_allocation(cJSON *object, const flyt_allocation *allocation);
/* *ret_allocation is to be freed with xdr_free(xdr_flyt_allocation). False: it is damaged, or no memory. */
bool flyt_node_state_get_allocation(const cJSON *object, flyt_allocation *ret_allocation);

#endif
