/* A call that is answered with an outcome only. */
#ifndef FLYT_FLYTCTL_ACTIONS_H
#define FLYT_FLYTCTL_ACTIONS_H

#include "control/flytctl/commands.h"
#include "control/flytctl/json.h"
#include "control/flytctl/link.h"
#include "control/flytctl/select.h"
#include "control/flytctl/text.h"

/* Makes it and tells how it ended; `done` is the sentence where it is done. */
enum flyt_exit flyt_act(struct flyt_ctl *ctl, uint32_t procedure, xdrproc_t xdr_args, const void *args,
                        const char *format, ...) __attribute__((format(printf, 5, 6)));

/* How a resize ended, as the beginning of a JSON object without its end: status, text, vm_ip, revision. */
void flyt_resize_put_head(FILE *out, const char *vm_ip, const flyt_resize_res *res);

/* Options as the protocol has them: absent ones leave what there is. */
flyt_set_number flyt_set_number_of(const struct flyt_arguments *arguments, const char *name);
flyt_set_text flyt_set_text_of(const struct flyt_arguments *arguments, const char *name);

#endif
