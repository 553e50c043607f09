/*
 * The folders in which servers keep the module images of a VM, STATE_DIR/images/…: one for each VM, so that none can
 * find out what another uses or push its images out.
 */
#ifndef FLYT_NODE_IMAGES_H
#define FLYT_NODE_IMAGES_H

#include "control/node/model/node.h"

/* Makes STATE_DIR/images and the empty folder that warm servers begin with; what an earlier node manager had still to
 * remove is removed soon. 0 or a negative errno and *err; then flyt_node_images_fini is still to be called. */
int flyt_node_images_init(struct flyt_node *node, struct flyt_error *err);
/* Waits for nothing: what is still to be removed is at the next start. */
void flyt_node_images_fini(struct flyt_node *node);
/* A VM's folder (NULL: that of warm servers), made where it is not there. ret_path has FLYT_MANAGER_LINK_FOLDER_BYTES.
 * 0 or a negative errno. */
int flyt_node_images_folder(struct flyt_node *node, const char *vm_ip, char *ret_path);
/* A VM's folder, made where it is not there, for its servers that are users of their own: nobody else can reach it, all
 * of them may write there. 0 and a descriptor for the caller, or a negative errno. */
int flyt_node_images_open(struct flyt_node *node, const char *vm_ip, int *ret_fd);
/* A VM has nothing here any more: a thread gives its folder another name, STATE_DIR/images/removed-…, and removes it. A
 * VM of the same address that comes before that has a new folder all the same: then the loop gives it the name. */
void flyt_node_images_remove(struct flyt_node *node, const char *vm_ip);

#endif
