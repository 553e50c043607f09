/* What may be a name. Pure, any thread. */
#ifndef FLYT_CONTROL_NAME_H
#define FLYT_CONTROL_NAME_H

#include <stdbool.h>

/* An IPv4 or IPv6 address in text, as VMs are named by. */
bool flyt_is_address(const char *text);

/* The name of a node or a person, which stands in certificates, options and file names: letters and digits of ASCII,
 * and
 * '.', '_', '-', '@' behind the first; at most FLYT_NAME_BYTES_MAX (rpc/proto/control_limits.h). */
bool flyt_is_name(const char *text);

#endif
