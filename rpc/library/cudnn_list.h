/* Attributes of a descriptor of cuDNN's graph interface, as they travel: one behind the other, each followed by its
 * elements, at multiples of FLYT_LIB_ALIGN bytes. Elements that are handles or descriptors are the ids of objects. */
#ifndef FLYT_LIBRARY_CUDNN_LIST_H
#define FLYT_LIBRARY_CUDNN_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "rpc/library/library.h"

/* cudnnBackendAttributeType_t, cudnnBackendDescriptorType_t and cudnnBackendAttributeName_t, as far as they are told
 * apart. */
enum {
    FLYT_CUDNN_TYPE_HANDLE = 0,
    FLYT_CUDNN_TYPE_BOOLEAN = 2,
    FLYT_CUDNN_TYPE_INT64 = 3,
    FLYT_CUDNN_TYPE_DOUBLE = 5,
    FLYT_CUDNN_TYPE_VOID_PTR = 6,
    FLYT_CUDNN_TYPE_KNOB_TYPE = 9,
    FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR = 15,
    FLYT_CUDNN_TYPE_CHAR = 24,
    FLYT_CUDNN_TYPE_FRACTION = 26,
    FLYT_CUDNN_TYPES = 31,
};
enum {
    FLYT_CUDNN_ENGINE = 2,
    FLYT_CUDNN_CONFIG = 3,
    FLYT_CUDNN_HEURISTICS = 4,
    FLYT_CUDNN_EXECUTION_PLAN = 5,
    FLYT_CUDNN_KNOB_CHOICE = 7,
    FLYT_CUDNN_VARIANT_PACK = 16,
    FLYT_CUDNN_TENSOR = 17
};
enum {
    FLYT_CUDNN_HEURISTICS_MODE = 200,
    FLYT_CUDNN_HEURISTICS_GRAPH = 201,
    FLYT_CUDNN_HEURISTICS_RESULTS = 202,
    FLYT_CUDNN_CONFIG_ENGINE = 300,
    FLYT_CUDNN_CONFIG_KNOBS = 302,
    FLYT_CUDNN_PLAN_WORKSPACE = 402,
    FLYT_CUDNN_PLAN_JSON = 405,
    FLYT_CUDNN_TENSOR_DATA_TYPE = 901,
    FLYT_CUDNN_TENSOR_DIMENSIONS = 902,
    FLYT_CUDNN_TENSOR_UNIQUE_ID = 906,
    FLYT_CUDNN_TENSOR_IS_BY_VALUE = 908,
    FLYT_CUDNN_KNOB_TYPE = 600,
    FLYT_CUDNN_KNOB_VALUE = 601,
    FLYT_CUDNN_PACK_UNIQUE_IDS = 1000,
    FLYT_CUDNN_PACK_DATA_POINTERS = 1001,
    FLYT_CUDNN_ENGINE_GRAPH = 1300,
    FLYT_CUDNN_ENGINE_INDEX = 1301,
    /* Of ours: the bytes of a tensor by value, whose place among the data pointers is `count`. */
    FLYT_CUDNN_PACK_VALUE = -1,
    /* What an engine's configuration is made again from: its graph, and a struct flyt_cudnn_config (as characters),
     * which is asked of heuristics for the configurations that they have filled. */
    FLYT_CUDNN_AGAIN_GRAPH = -2,
    FLYT_CUDNN_AGAIN_CONFIG = -3,
    /* How much workspace a plan that is made again may need: the program has been told of so much. */
    FLYT_CUDNN_AGAIN_WORKSPACE = -4,
};

enum { FLYT_CUDNN_KNOBS_MAX = 48 };

/* Which engine of a graph's, and its knobs: by these the library makes the same configuration again. */
struct flyt_cudnn_config {
    int64_t engine, knob_count;
    struct {
        int64_t type, value;
    } knobs[FLYT_CUDNN_KNOBS_MAX];
};
_Static_assert(sizeof(struct flyt_cudnn_config) == 16 + 16 * FLYT_CUDNN_KNOBS_MAX, "it is on the wire");

struct flyt_cudnn_attribute {
    int32_t name, type;
    int64_t count;
    uint32_t bytes; /* of the elements, which follow */
    uint32_t reserved[3];
};
_Static_assert(sizeof(struct flyt_cudnn_attribute) == 2 * FLYT_LIB_ALIGN, "it is on the wire");

/* Bytes of an element of a type; 0: unknown. */
static inline size_t flyt_cudnn_element_bytes(int type)
{
    switch (type) {
    case FLYT_CUDNN_TYPE_BOOLEAN:
    case FLYT_CUDNN_TYPE_CHAR:
        return 1;
    case FLYT_CUDNN_TYPE_HANDLE:
    case FLYT_CUDNN_TYPE_INT64:
    case FLYT_CUDNN_TYPE_DOUBLE:
    case FLYT_CUDNN_TYPE_VOID_PTR:
    case FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    case FLYT_CUDNN_TYPE_FRACTION:
        return 16;
    default:
        return type > 0 && type < FLYT_CUDNN_TYPES ? 4 : 0;
    }
}

static inline bool flyt_cudnn_is_object(int type)
{
    return type == FLYT_CUDNN_TYPE_HANDLE || type == FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR;
}

/* The attribute at *at, which goes behind it, and its elements; NULL at the end, and, with *at not there, where the
 * bytes are no list. */
static inline struct flyt_cudnn_attribute *flyt_cudnn_list_next(void *list, size_t bytes, size_t *at,
                                                                void **ret_elements)
{
    if (bytes - *at < sizeof(struct flyt_cudnn_attribute))
        return NULL;
    struct flyt_cudnn_attribute *one = (void *)((char *)list + *at);
    size_t room = bytes - *at - sizeof *one, whole = flyt_lib_align(one->bytes);
    bool is_value = one->name == FLYT_CUDNN_PACK_VALUE;
    size_t element = flyt_cudnn_element_bytes(one->type);
    if (is_value && one->type != 0) /* it has no elements that a type would describe */
        return NULL;
    if (whole > room || one->count < 0 || (!is_value && (!element || (uint64_t)one->count != one->bytes / element)))
        return NULL;
    *ret_elements = one + 1;
    *at += sizeof *one + whole;
    return one;
}

/* Where a matrix of a recurrent network's weights lies, and its bias: the answer of cudnnGetRNNWeightParams. */
struct flyt_cudnn_rnn_params {
    uint64_t offset[2]; /* in the weights */
    int32_t is_there[2], data_type[2], dims[2], sizes[2][8], strides[2][8];
};

#endif
