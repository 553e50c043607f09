/*
 * The folders of VMs' core dumps of the GPU, STATE_DIR/coredumps/VM: what a VM's programs have left there stays until
 * somebody removes it: it is the address's, also when another tenant has that. Servers get a folder by its descriptor
 * and bound what is in it (cpu/server/cuda/coredump.h).
 */
#ifndef FLYT_NODE_COREDUMPS_H
#define FLYT_NODE_COREDUMPS_H

#include <stdbool.h>

#include "control/node/model/node.h"

enum { FLYT_NODE_COREDUMPS_PATH_BYTES = 512 };

/* A VM's folder. 0; -EINVAL: the address is none; -ENAMETOOLONG. ret_path has FLYT_NODE_COREDUMPS_PATH_BYTES. */
int flyt_node_coredumps_path(const struct flyt_node *node, const char *vm_ip, char *ret_path);
/* Makes it where it is not there, and opens it; is_for_all: its servers are users of their own, who may write there. 0
 * and a descriptor for the caller, or a negative errno. */
int flyt_node_coredumps_open(const struct flyt_node *node, const char *vm_ip, bool is_for_all, int *ret_fd);
/* Whether it is the name of a file, as servers give them. */
bool flyt_node_coredumps_is_name(const char *name);

#endif
