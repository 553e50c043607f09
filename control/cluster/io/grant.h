/* What a VM is told of what it has. */
#ifndef FLYT_CLUSTER_IO_GRANT_H
#define FLYT_CLUSTER_IO_GRANT_H

#include "control/base/peer.h"

struct flyt_vm;

/* Answers an attach: status OK: with the grant, where there is one to be used now. */
void flyt_vm_reply_grant(struct flyt_vm *vm, struct flyt_call *call, flyt_status status, const char *text);
/* Answers who waits for a grant. */
void flyt_vm_answer(struct flyt_vm *vm, flyt_status status, const char *text);
/* Tells the client manager what its VM has now. */
void flyt_vm_tell(struct flyt_vm *vm, const char *reason);
/* Its client manager has gone. */
void flyt_vm_unlinked(struct flyt_vm *vm);

#endif
