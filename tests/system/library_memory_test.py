#!/usr/bin/env python3
"""What NVIDIA's libraries need of a GPU's memory counts for the VM that calls them: work areas of cuFFT's plans and workspaces of
cuBLAS's handles are the program's memory (programs/areas.cu), within the VM's limit, and move with it."""
from cluster import System
from harness import expect, expect_equal, main, scenario, within
from library_program import Program
from steady import MIB, add_vm, allocation, is_idle

LIMIT = 256         # MiB
ALLOC_FAILED = 2    # CUFFT_ALLOC_FAILED
WORKSPACE = 32      # MiB, of cuBLAS's for GPUs of compute capability 9.0, as the software GPU's is


def used(system):
    return allocation(system, 0)["memory_used_bytes"]


def grows(system, before, mib):
    within(30, lambda: mib * MIB <= used(system) - before <= (mib + 4) * MIB, "the VM uses %d MiB more" % mib)


def move(system):
    here = allocation(system, 0)["gpu"]
    target = next(g for g in system.flytctl("gpus") if g["uuid"] != here)
    system.flytctl("migrate", system.vm_ip(0), "--to", "%s:%d" % (target["node"], target["index"]))


@scenario
def work_areas_are_within_the_limit():
    with System(gpus=2, memory="1G") as system:
        add_vm(system, 0, memory="%dM" % LIMIT)
        program = Program(system, 0, "areas")
        program.ask("plan 0 1")                      # cuFFT is there
        before, used_before = program.ask("drop 0")[0], used(system)
        expect(before <= LIMIT * MIB, "what is free of the VM's limit", before)
        expect_equal(program.ask("plan 0 32"), [0, before - 32 * MIB], "a plan, and what is free")
        grows(system, used_before, 32)
        expect_equal(program.ask("plan 1 512"), [ALLOC_FAILED, before - 32 * MIB], "beyond the limit")
        expect_equal(program.ask("plan 1 64"), [0, before - 96 * MIB], "a second plan")
        expect_equal(program.ask("plan 2 200"), [ALLOC_FAILED, before - 96 * MIB], "beyond the limit together")
        expect_equal(program.ask("use 0"), [0], "a transform in its area")
        move(system)
        expect_equal(program.ask("use 0"), [0], "the same at another GPU")
        expect_equal(program.ask("drop 1"), [before - 32 * MIB], "the area goes with its plan")
        expect_equal(program.ask("plan 0 16"), [0, before - 16 * MIB])
        expect_equal(program.ask("use 0"), [0])
        expect_equal(program.ask("drop 0"), [before])
        result = program.ends()
        expect_equal((result.status, result.err), (0, ""), result)
        is_idle(system)


@scenario
def workspaces_are_within_the_limit():
    with System(gpus=2, memory="1G") as system:
        add_vm(system, 0, memory="%dM" % LIMIT)
        program = Program(system, 0, "areas")
        program.ask("blas 0")                        # cuBLAS is there
        before, used_before = program.ask("unblas")[0], used(system)
        expect_equal(program.ask("blas 1"), [0, before - WORKSPACE * MIB], "a product, and what is free")
        grows(system, used_before, WORKSPACE)
        expect_equal(program.ask("blas 1"), [0, before - WORKSPACE * MIB], "a second product in the stream")
        expect_equal(program.ask("blas 3"), [0, before - 3 * WORKSPACE * MIB], "each stream has its own")
        move(system)
        expect_equal(program.ask("blas 3"), [0, before - 3 * WORKSPACE * MIB], "the same at another GPU")
        status, left = program.ask("blas 30")        # what was used longest ago goes; smaller ones, of what is left
        expect(status == 0 and left > before // 10, "more streams than workspaces", status, left)
        left = program.ask("unblas")[0]
        expect(before - 16 * MIB <= left <= before, "they go with their handle; what streams have taken stays", before - left)
        before = left
        taken = before // MIB * 3 // 4 // 8 * 8
        program.ask("plan 0 %d" % taken)
        status, left = program.ask("blas 1")
        expect(status == 0 and before - taken * MIB > left > (before - taken * MIB) // 2, "a smaller one", status, left)
        result = program.ends()
        expect_equal((result.status, result.err), (0, ""), result)
        is_idle(system)


if __name__ == "__main__":
    main()
