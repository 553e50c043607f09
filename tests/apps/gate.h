/*
 * A gate closes a stream until the program opens it: gate_wait is a host function (cudaLaunchHostFunc,
 * cuLaunchHostFunc) that waits for gate_open. Tests of ordering use gates in place of timing: what is behind
 * a closed gate cannot have run, however fast or slow the machine is. A gate that stays closed for 30 s
 * fails the program. Any thread may open a gate.
 */
#ifndef TESTS_APPS_GATE_H
#define TESTS_APPS_GATE_H

#include "check.h"

/*
 * NVIDIA's driver loads a kernel at its first use, and that may wait for everything on the device, a closed gate
 * included: programs with gates have their kernels loaded at the start.
 */
__attribute__((constructor, unused)) static void load_kernels_eagerly(void)
{
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
}

struct gate {
    int open;    /* set by gate_open */
    int reached; /* set when the stream has come to the gate */
};

__attribute__((unused)) static void gate_wait(void *gate)
{
    struct gate *g = (struct gate *)gate;
    double start = now_ms();

    __atomic_store_n(&g->reached, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&g->open, __ATOMIC_ACQUIRE)) {
        EXPECT(now_ms() - start < 60e3, "the gate was never opened");
        usleep(100);
    }
}

__attribute__((unused)) static void gate_open(struct gate *g)
{
    __atomic_store_n(&g->open, 1, __ATOMIC_RELEASE);
}

/* Waits until the stream has come to the gate: everything before it is done then. */
__attribute__((unused)) static void gate_await_reached(struct gate *g)
{
    double start = now_ms();

    while (!__atomic_load_n(&g->reached, __ATOMIC_ACQUIRE)) {
        EXPECT(now_ms() - start < 60e3, "the stream never came to the gate");
        usleep(100);
    }
}

#endif
