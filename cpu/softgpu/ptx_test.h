/*
 * What the engine's tests share: a harness (ptx_harness.h) that all tests of a program have one after the other, and
 * how PTX begins. To be included by one source file.
 */
#ifndef FLYT_SOFTGPU_PTX_TEST_H
#define FLYT_SOFTGPU_PTX_TEST_H

#include "cpu/softgpu/ptx_harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define HEAD ".version 8.0\n.target sm_75\n.address_size 64\n"

static struct flyt_ptx_harness harness;

/* The group's set-up, where one worker is enough, and its tear-down. */
static inline int set_up(void **state)
{
    (void)state;
    flyt_ptx_harness_init(&harness, 1);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    flyt_ptx_harness_fini(&harness);
    return 0;
}

#endif
