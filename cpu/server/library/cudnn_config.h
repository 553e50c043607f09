/* Configurations of cuDNN's engines by their numbers, for clients that have them made again at another server; and the
 * functions of its graph interface. */
#ifndef FLYT_SERVER_LIBRARY_CUDNN_CONFIG_H
#define FLYT_SERVER_LIBRARY_CUDNN_CONFIG_H

#include "cpu/server/library/library.h"
#include "rpc/library/cudnn_list.h"

struct flyt_cudnn {
    const struct flyt_server_library *library;
    int (*create)(int type, void **ret_descriptor);
    int (*set)(void *descriptor, int name, int type, int64_t count, const void *elements);
    int (*get)(void *descriptor, int name, int type, int64_t requested, int64_t *ret_count, void *elements);
    int (*finalize)(void *descriptor);
    int (*destroy)(void *descriptor);
};

/* false: the library lacks one. */
bool flyt_cudnn_find(struct flyt_libcall *call, struct flyt_cudnn *ret);

/* All return the library's status. */

/* What a finalized configuration is; "not supported" where it has more knobs than there is room for. */
int flyt_cudnn_config_tell(struct flyt_libcall *call, void *config, struct flyt_cudnn_config *ret);
/* The same configuration of a graph; "not supported" where the library makes another one of it. */
int flyt_cudnn_config_make(struct flyt_libcall *call, void *graph, const struct flyt_cudnn_config *wanted,
                           void **ret_config);
/* Whether a plan needs no more workspace than so many bytes; else it is ended, and "not supported". */
int flyt_cudnn_plan_check(struct flyt_libcall *call, void *plan, int64_t workspace_bytes);

#endif
