#!/usr/bin/env python3
"""What NVIDIA's libraries need of a GPU's memory counts for the VM that calls them: the work areas of cuFFT's plans are the
program's memory (programs/areas.cu), within the VM's limit, and move with it."""
from cluster import System
from harness import expect, expect_equal, main, scenario
from library_program import Program
from steady import MIB, add_vm, allocation, is_idle

LIMIT = 160         # MiB
ALLOC_FAILED = 2    # CUFFT_ALLOC_FAILED


def used(system):
    return allocation(system, 0)["memory_used_bytes"]


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
        expect(32 * MIB <= used(system) - used_before <= 36 * MIB, "what the VM uses more", used(system) - used_before)
        expect_equal(program.ask("plan 1 256"), [ALLOC_FAILED, before - 32 * MIB], "beyond the limit, and beyond that of its VM alone")
        expect_equal(program.ask("plan 1 64"), [0, before - 96 * MIB], "a second plan")
        expect_equal(program.ask("plan 2 120"), [ALLOC_FAILED, before - 96 * MIB], "beyond the limit together")
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


if __name__ == "__main__":
    main()
