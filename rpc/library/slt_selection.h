/* What client and server share of cuSPARSELt beyond its rows: the attributes of an algorithm that is selected. */
#ifndef FLYT_LIBRARY_SLT_SELECTION_H
#define FLYT_LIBRARY_SLT_SELECTION_H

#include <stdint.h>

/* cusparseLtMatmulAlgAttribute_t; each is an int. */
enum flyt_slt_attribute {
    FLYT_SLT_CONFIG_ID,
    FLYT_SLT_CONFIG_MAX_ID,
    FLYT_SLT_SEARCH_ITERATIONS,
    FLYT_SLT_SPLIT_K,
    FLYT_SLT_SPLIT_K_MODE,
    FLYT_SLT_SPLIT_K_BUFFERS,
    FLYT_SLT_ATTRIBUTES
};

/* The four matrices of a product. */
enum { FLYT_SLT_MATRICES = 4, FLYT_SLT_ROOM_BYTES = 512 };

/* What the library tells of a selection. */
struct flyt_slt_selection {
    int32_t values[FLYT_SLT_ATTRIBUTES];
    uint32_t known; /* a bit for each attribute that it told */
};
_Static_assert(sizeof(struct flyt_slt_selection) == 28, "it travels");

#endif
