/*
 * What the engine's tests share: a harness (harness.h) that all tests of a program have one after the other, and
 * how PTX begins. To be included by one source file.
 */
#ifndef FLYT_SOFTGPU_PTX_TEST_H
#define FLYT_SOFTGPU_PTX_TEST_H

#include "cpu/softgpu/ptx/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define HEAD ".version 8.0\n.target sm_75\n.address_size 64\n"

static struct flyt_ptx_harness harness;
static enum flyt_ptx_isa test_isa; /* of the harness that set_up makes */

/* The group's set-up, where one worker is enough, and its tear-down. */
static inline int set_up(void **state)
{
    (void)state;
    flyt_ptx_harness_init(&harness, 1);
    harness.isa = test_isa;
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    flyt_ptx_harness_fini(&harness);
    return 0;
}

/* Runs the tests with each instruction set that the processor has: what is done on all lanes is compiled for each. */
#define RUN_WITH_EACH_ISA(tests, first)                                                                                \
    ({                                                                                                                 \
        static const char *const names_[] = {"best", "base", "v3", "v4"};                                              \
        int failed_ = 0;                                                                                               \
        for (test_isa = FLYT_PTX_ISA_BASE; test_isa <= FLYT_PTX_ISA_V4; test_isa++)                                    \
            if (flyt_ptx_isa_is_here(test_isa))                                                                        \
                failed_ += cmocka_run_group_tests_name(names_[test_isa], tests, first, tear_down);                     \
        failed_;                                                                                                       \
    })

#endif
