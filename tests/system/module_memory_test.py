#!/usr/bin/env python3
"""What modules, streams and limits take of a GPU is charged to a VM: no spelling of PTX gets by the limit."""
from charged import Modules, add_modules_vm, used_bytes
from cluster import System
from harness import expect, expect_equal, main, scenario, within
from steady import MIB, is_idle

REFUSED = ("CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_INVALID_PTX")


@scenario
def no_text_takes_more_than_the_limit():
    """1 GiB in a VM with 256 MiB, in all spellings; the texts that are no PTX for a compiler may be refused as such."""
    with System(memory="2G") as system:
        add_modules_vm(system)
        program = Modules(system)
        for name, answer in program.refusals():
            expect(answer in REFUSED, "a module of 1 GiB, spelled", name, "is answered with", answer)
            expect(answer == REFUSED[0] or name in ("expression", "in-kernel", "glued"), name, answer)
        expect_equal(used_bytes(system), 0, "charged for what was refused")
        program.ends()
        is_idle(system)


@scenario
def what_fits_is_charged():
    with System(memory="2G") as system:
        add_modules_vm(system)
        program = Modules(system)
        program.refusals()
        expect_equal(program.ask("load"), "CUDA_SUCCESS", "a module that fits")
        within(20, lambda: 40 * MIB <= used_bytes(system) <= 42 * MIB, "40 MiB and its code are charged")
        expect_equal(program.ask("unload"), "CUDA_SUCCESS", "its end")
        within(20, lambda: used_bytes(system) == 0, "nothing is charged")
        program.ends()


@scenario
def streams_and_limits_have_a_price():
    with System(memory="2G") as system:
        add_modules_vm(system)
        program = Modules(system)
        program.refusals()
        expect_equal(program.ask("streams 100"), "CUDA_SUCCESS", "100 streams")
        within(20, lambda: 48 * MIB <= used_bytes(system) <= 58 * MIB, "100 streams are charged")
        expect_equal(program.ask("streams 1000"), "CUDA_ERROR_OUT_OF_MEMORY", "1000 more")
        expect(used_bytes(system) <= 256 * MIB, "never more than the limit")
        program.ends()
        is_idle(system)
        program = Modules(system)
        program.refusals()
        # CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, _STACK_SIZE, _PRINTF_FIFO_SIZE, _MALLOC_HEAP_SIZE.
        expect_equal(program.ask("limit 4 1000000"), "CUDA_ERROR_OUT_OF_MEMORY", "launches that a GPU keeps room for")
        expect_equal(program.ask("limit 4 4096"), "CUDA_SUCCESS", "few of them")
        for limit, name in ((0, "stacks"), (1, "room for printf"), (2, "a heap")):
            expect_equal(program.ask("limit %d %d" % (limit, 1 << 30)), "CUDA_ERROR_OUT_OF_MEMORY", name, "of 1 GiB")
        before = used_bytes(system)
        expect_equal(program.ask("limit 2 %d" % (64 * MIB)), "CUDA_SUCCESS", "a heap of 64 MiB")
        within(20, lambda: used_bytes(system) - before >= 50 * MIB, "it is charged")
        expect_equal(program.ask("limit 77 1"), "CUDA_ERROR_INVALID_VALUE", "one that does not exist")
        program.ends()


@scenario
def a_copy_on_another_gpu_is_charged_before_it_is_made():
    """A module of 40 MiB that is loaded on a full GPU by the first question about its kernel there."""
    with System(memory="2G", gpus=2) as system:
        add_modules_vm(system, gpus=2)
        program = Modules(system)
        program.refusals()
        expect_equal(program.ask("library"), "CUDA_SUCCESS", "a module that fits")
        expect_equal(program.ask("second fill"), "CUDA_SUCCESS", "memory on the second GPU")
        within(20, lambda: 264 * MIB <= used_bytes(system) <= 268 * MIB, "both are charged")
        for call in ("get", "set", "cache", "occupancy", "shared"):
            expect_equal(program.ask("second %s" % call), "CUDA_ERROR_OUT_OF_MEMORY", call, "on the second GPU")
        expect_equal(program.ask("second empty"), "CUDA_SUCCESS", "the memory's end")
        expect_equal(program.ask("second get"), "CUDA_SUCCESS", "the first question")
        within(20, lambda: 80 * MIB <= used_bytes(system) <= 84 * MIB, "two copies are charged")
        for call in ("set", "cache", "occupancy", "shared"):
            expect_equal(program.ask("second %s" % call), "CUDA_SUCCESS", call, "on the second GPU")
        program.ends()
        is_idle(system)


main()
