/* Which function makes a tensor map, on the wire. */
#ifndef FLYT_API_TENSORMAP_H
#define FLYT_API_TENSORMAP_H

enum flyt_tensormap_kind {
    FLYT_TENSORMAP_TILED,
    FLYT_TENSORMAP_IM2COL,
    FLYT_TENSORMAP_IM2COL_WIDE,
    FLYT_TENSORMAP_REPLACED /* an existing one, at another address */
};

enum { FLYT_TENSORMAP_RANK_MAX = 5 };

#endif
