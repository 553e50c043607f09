#!/usr/bin/env python3
"""What a VM is granted is what its programs get, no more, and what changes while they run, changes for them."""
import json

from cluster import System
from harness import expect, expect_equal, main, scenario, within
from steady import (MIB, OUT_OF_MEMORY, OWN, RECORDED, Steady, add_vm, allocation, allocations, events, is_idle, refused,
                    uses, vm)


@scenario
def each_sees_its_own():
    """Two VMs on one GPU: memory and SMs are those of the allocation, for every program of it."""
    with System(vms=2, sms=32, memory="1G") as system:
        add_vm(system, 0, sm=8, memory="128M")
        add_vm(system, 1, sm=12, memory="320M")
        programs = [Steady(system, 0), Steady(system, 1), Steady(system, 1)]
        expect_equal([p.ask("device") for p in programs], [[128, 8], [320, 16], [320, 16]], "MiB and SMs by properties")
        expect_equal([p.total() for p in programs], [128, 320, 320], "MiB by cudaMemGetInfo")
        expect_equal([p.ask("priorities") for p in programs], [[0, -1, -1]] * 3, "priorities of streams")
        rows = [allocation(system, i) for i in range(2)]
        expect_equal([(a["sms"], a["memory_bytes"], a["gpu"]) for a in rows],
                     [(8, 128 * MIB, rows[0]["gpu"]), (16, 320 * MIB, rows[0]["gpu"])], "allocations")
        expect(not set(rows[0]["sm_groups"]) & set(rows[1]["sm_groups"]), "groups are disjoint:", rows)
        gpu = system.flytctl("gpus")[0]
        expect_equal((gpu["memory_allocated_bytes"], gpu["groups_allocated"]), (448 * MIB, 3), "what the GPU has given")
        for program in programs:
            program.ends_right()
        is_idle(system)


@scenario
def programs_share_a_limit():
    """Two processes of one VM together never get over its limit; what one frees the other gets."""
    with System(vms=2, memory="1G") as system:
        add_vm(system, 0, memory="128M")
        add_vm(system, 1, memory="128M")
        first, second, other = Steady(system, 0), Steady(system, 0), Steady(system, 1)
        for program in (first, second):
            program.say("fill 8")
        counts = []
        for program in (first, second):
            answer = program.line("fill").split()
            expect_equal((answer[0], int(answer[2])), ("fill", OUT_OF_MEMORY), answer)
            counts.append(int(answer[1]))
        expect(0 < sum(counts) <= 16, "blocks of 8 MiB of 128 MiB, together:", counts)
        expect(sum(counts) >= 12, "most of it can be had:", counts)
        expect(allocation(system, 0)["memory_used_bytes"] <= 128 * MIB, "in use:", allocation(system, 0))
        expect_equal(first.alloc(16), OUT_OF_MEMORY, "more")
        expect_equal(other.ask("fill 8"), [sum(counts), OUT_OF_MEMORY], "another VM has all of its own")
        giver, taker = (first, second) if counts[0] >= 2 else (second, first)
        giver.gives_back()
        giver.gives_back()
        taker.takes(16)
        for program in (first, second, other):
            program.ends_right()
        is_idle(system)


@scenario
def resized_while_they_run():
    """Up and down: the running program sees it and is held to it. Who, before and after are events."""
    with System(memory="1G") as system:
        add_vm(system, 0, "--name", "alice", memory="128M")
        program, idle = Steady(system, 0), Steady(system, 0)
        revision = allocation(system, 0)["revision"]
        program.takes(64)
        expect_equal(program.alloc(96), OUT_OF_MEMORY, "beyond the limit")
        system.flytctl("resize", "alice", "--memory", "256M")
        expect_equal([p.total() for p in (program, idle)], [256, 256], "at once when flytctl has ended")
        program.takes(96)
        expect_equal(program.alloc(128), OUT_OF_MEMORY, "beyond the new limit")
        system.flytctl("resize", "alice", "--memory", "192M")
        expect_equal(program.total(), 192)
        expect_equal(program.alloc(64), OUT_OF_MEMORY, "beyond the lower limit")
        row = allocation(system, 0)
        expect_equal((row["revision"], row["revision_applied"], row["memory_bytes"], row["memory_now_bytes"]),
                     (revision + 2, revision + 2, 192 * MIB, 192 * MIB), row)
        happened = events(system, "vm.resized", system.vm_ip(0))
        expect_equal(len(happened), 2, happened)
        changes = [(json.loads(e["before"]), json.loads(e["after"])) for e in happened]
        expect(happened[0]["who"].startswith("operator:"), "who", happened)
        expect_equal([(before["memory_bytes"], after["memory_bytes"]) for before, after in changes],
                     [(128 * MIB, 256 * MIB), (256 * MIB, 192 * MIB)], "before and after")
        expect_equal(vm(system, 0)["memory_bytes"], 192 * MIB, "the document")
        for sms in (32, 16):
            system.flytctl("resize", "alice", "--sm", sms)
            expect_equal(allocation(system, 0)["sms_now"], sms, "SMs when flytctl has ended")
            program.goes_on()
        for p in (program, idle):
            p.ends_right()
        again = Steady(system, 0)
        expect_equal(again.ask("device"), [192, 16], "a new program")
        again.ends_right()


@scenario
def less_than_is_in_use():
    """Refused with the figures; --when-free takes hold as memory is released, and is charged until then."""
    with System(vms=2, memory="512M") as system:
        add_vm(system, 0, "--name", "alice", memory="256M")
        program = Steady(system, 0)
        for _ in range(3):
            program.takes(64)
        uses(system, 0, 192 + OWN)
        expect_equal(program.ask("watch"), [0], "it is told of what is above its limit")
        text = refused(system, "resize", "alice", "--memory", "100M")
        expect("%d MiB" % (192 + OWN) in text and "100 MiB" in text, "the figures:", text)
        row = allocation(system, 0)
        expect_equal((row["memory_bytes"], row["memory_now_bytes"], program.total()), (256 * MIB, 256 * MIB, 256), row)
        expect_equal(vm(system, 0)["memory_bytes"], 256 * MIB, "the document is as it was")
        program.takes(32)
        program.gives_back()
        refused(system, "resize", "alice", "--memory", "100M", "--when-free", "--timeout", "0", status=RECORDED)
        within(30, lambda: allocation(system, 0)["revision_applied"] == allocation(system, 0)["revision"], "it is known")
        expect_equal(program.alloc(2), OUT_OF_MEMORY, "nothing more until it is below")
        # What it has given back may be kept by its server still, and counts then; or it is told once more without that.
        answers = [[told, (192 + kept + OWN - 100) << 10] for told in (1, 2) for kept in (0, 32)]
        within(30, lambda: program.ask("over") in answers, "the program is told by how much it is above")
        charged = system.flytctl("gpus")[0]["memory_allocated_bytes"]
        expect(charged >= (192 + OWN) * MIB, "what is in use stays charged:", charged)
        program.gives_back()
        program.gives_back()
        within(30, lambda: allocation(system, 0)["memory_now_bytes"] == 100 * MIB, "the limit takes hold")
        within(30, lambda: system.flytctl("gpus")[0]["memory_allocated_bytes"] == 100 * MIB, "the rest is free")
        expect_equal(program.total(), 100)
        program.takes(16)
        expect_equal(program.alloc(64), OUT_OF_MEMORY, "beyond the limit")
        program.ends_right()
        is_idle(system)


main()
