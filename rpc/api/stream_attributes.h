/*
 * The attributes that a stream has: those which cuda.h calls "valid for streams". The one list of them, for client and
 * server, which keep the values that a program has set: the driver's stream may be another later.
 */
#ifndef FLYT_API_STREAM_ATTRIBUTES_H
#define FLYT_API_STREAM_ATTRIBUTES_H

#include <cuda.h>
#include <stdint.h>

/* X(PLACE, ATTRIBUTE, MEMBER of CUlaunchAttributeValue) */
#define FLYT_STREAM_ATTRIBUTES(X)                                                                                      \
    X(0, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, accessPolicyWindow)                                                 \
    X(1, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, syncPolicy)                                                       \
    X(2, CU_LAUNCH_ATTRIBUTE_PRIORITY, priority)                                                                       \
    X(3, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, memSyncDomainMap)                                                    \
    X(4, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, memSyncDomain)                                                           \
    X(5, CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING, nvlinkUtilCentricScheduling)

/* FLYT_STREAM_ATTRIBUTE_WORDS: the most that a value has, as `launch_attribute` of kernel.api carries it. */
enum { FLYT_STREAM_ATTRIBUTE_COUNT = 6, FLYT_STREAM_ATTRIBUTE_WORDS = 8 };

#define X(place, attribute, member)                                                                                    \
    _Static_assert(sizeof(((CUlaunchAttributeValue *)0)->member) <= FLYT_STREAM_ATTRIBUTE_WORDS * sizeof(uint32_t) &&  \
                       (place) < FLYT_STREAM_ATTRIBUTE_COUNT,                                                          \
                   "the value of an attribute finds room");
FLYT_STREAM_ATTRIBUTES(X)
#undef X

/* The attribute's place among these, -1: streams have none such. */
static inline int flyt_stream_attribute_place(unsigned attribute)
{
    switch (attribute) {
#define X(place, id, member)                                                                                           \
    case id:                                                                                                           \
        return place;
        FLYT_STREAM_ATTRIBUTES(X)
#undef X
    default:
        return -1;
    }
}

/* The attribute of a place, and the bytes of its value. */
static inline unsigned flyt_stream_attribute_at(int place, unsigned *ret_bytes)
{
    static const struct {
        unsigned attribute, bytes;
    } list[] = {
#define X(at, id, member) [at] = {id, sizeof(((CUlaunchAttributeValue *)0)->member)},
        FLYT_STREAM_ATTRIBUTES(X)
#undef X
    };
    *ret_bytes = list[place].bytes;
    return list[place].attribute;
}

#endif
