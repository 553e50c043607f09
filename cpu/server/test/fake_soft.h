/*
 * For tests over the software GPU that they are linked with: its functions as the server's table (driver.h), for which
 * no library is loaded. Functions fail the running test where something is not as it should be.
 */
#ifndef FLYT_SERVER_FAKE_SOFT_H
#define FLYT_SERVER_FAKE_SOFT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/server/core/driver.h"

#define assert_ok(call) assert_int_equal((call), CUDA_SUCCESS)

/* As what they are: the CPU does what the server has kernels of its own for. */
extern const struct flyt_driver fake_soft_driver;
/* As if they were a GPU's: the kernels are executed. */
extern const struct flyt_driver fake_soft_gpu_driver;

/* Starts it, and makes device 0's primary context current. A stream that waits for no other: the caller's. */
CUstream fake_soft_begin(void);

/* Two rows of a table of tests, with either driver: set_up finds it, a const struct flyt_driver *, in *state. */
#define FAKE_SOFT_BOTH(name, set_up, tear_down)                                                                        \
    {"kernel: " #name, name, set_up, tear_down, (void *)&fake_soft_gpu_driver},                                        \
    {                                                                                                                  \
        "CPU: " #name, name, set_up, tear_down, (void *)&fake_soft_driver                                              \
    }

#endif
