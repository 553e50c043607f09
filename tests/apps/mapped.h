/*
 * Whether kernels reach page-locked host memory. Natively they do; through Flyt where program and server share memory.
 * Who runs a program knows which: FLYT_TEST_MAPPED is 1 or 0 then, and a device that says otherwise fails the program,
 * for half of its checks would not be made.
 */
#ifndef TESTS_APPS_MAPPED_H
#define TESTS_APPS_MAPPED_H

#include "check.h"

/* cudaDevAttrCanMapHostMemory of device 0. */
static int can_map_host_memory(void)
{
    const char *word = getenv("FLYT_TEST_MAPPED");
    int can_map = -1;

    CHECK(cudaDeviceGetAttribute(&can_map, cudaDevAttrCanMapHostMemory, 0));
    if (word)
        EXPECT_EQ(can_map, atoi(word));
    return can_map;
}

#endif
