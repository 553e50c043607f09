#!/usr/bin/env python3
"""Many at once: a hundred VMs before a GPU that has room for few, and many changes of the same thing. At no moment is more
given than there is."""
import threading
import time

from caller import Caller
from cluster import System
from harness import expect, expect_equal, main, scenario, within
from steady import (MIB, OUT_OF_MEMORY, Steady, add_vm, all_agree, allocation, allocations, is_idle, stored)

VMS = 100
FREE_SMS, SMS_EACH, MEMORY_EACH = 96, 8, 64 * MIB


class Watch:
    """Looks all the time whether the store gives more than the GPUs have; fails when it is ended."""

    def __init__(self, system):
        self.system, self.found, self.looks = system, [], 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self):
        while not self._ending.is_set():
            for gpu in stored(self.system):
                entries = gpu["allocations"]
                groups = [g for e in entries for g in e["sm_groups"]]
                memory = sum(e["memory_bytes"] + e.get("leaving_bytes", 0) for e in entries)
                slots = sum(e["sessions"] for e in entries)
                if len(groups) != len(set(groups)) or memory > gpu["memory_bytes"] or slots > gpu["client_slots"]:
                    self.found.append((groups, memory, slots))
            self.looks += 1
            time.sleep(0.005)

    def end(self):
        self._ending.set()
        self._thread.join()
        expect_equal(self.found, [], "more was given than there is")
        expect(self.looks > 10, "it was looked at", self.looks, "times")


@scenario
def a_hundred_attach():
    """Twelve get a GPU, the others a reason; when some end, others get it."""
    with System(vms=0, sms=FREE_SMS, memory="2G", namespaces=False, tls=False,
                cluster={"allocation_linger_s": 600}, node={"client_slots": 48}) as system:
        ips = ["10.66.0.%d" % (i + 1) for i in range(VMS)]
        operator = Caller(system.operator_url, "operator", "tester")
        for ip in ips:
            operator.call("vm-add %s compute_units=%d memory_bytes=%d sessions=1" % (ip, SMS_EACH, MEMORY_EACH))
        vms = [Caller(system.manager_url, "vm", ip) for ip in ips]
        watch = Watch(system)
        for vm in vms:
            vm.say("attach")
        answers = [vm.answer("attach") for vm in vms]
        granted = [i for i, a in enumerate(answers) if a["status"] == "OK"]
        expect_equal(len(granted), FREE_SMS // SMS_EACH, "VMs with a grant")
        for answer in answers:
            expect(answer["status"] == "OK" or (answer["status"] == "NO_CAPACITY" and "not enough SMs" in answer["text"]),
                   "a refusal with its reason", answer)
        all_agree(system)
        # Five of them end, five of the others are let in.
        for i in granted[:5]:
            operator.call("vm-remove %s kill" % ips[i])
        within(60, lambda: len(allocations(system)) == len(granted) - 5, "five have gone")
        waiting = [i for i in range(VMS) if i not in granted]
        for i in waiting:
            vms[i].say("attach")
        late = [vms[i].answer("attach") for i in waiting]
        expect_equal(sum(a["status"] == "OK" for a in late), 5, "VMs let in afterwards")
        watch.end()
        all_agree(system)
        for process in [operator, *vms]:
            process.kill()


@scenario
def one_vm_is_resized_by_many():
    """Ten at once, while its program runs: one after another; the document, the store, the node and the program agree."""
    with System(vms=1, memory="1G") as system:
        add_vm(system, 0, memory="128M")
        program = Steady(system, 0)
        program.takes(32)
        revision = allocation(system, 0)["revision"]
        sizes = [72 + 16 * i for i in range(10)]    # none is what it has: a resize to that changes nothing
        watch = Watch(system)
        callers = [Caller(system.operator_url, "operator", "o%d" % i) for i in range(len(sizes))]
        for caller, mib in zip(callers, sizes):
            caller.say("resize %s memory_bytes=%d" % (system.vm_ip(0), mib * MIB))
        expect_equal({c.answer("resize")["status"] for c in callers}, {"OK"}, "answers")
        watch.end()
        row = allocation(system, 0)
        expect(row["memory_bytes"] // MIB in sizes, row)
        expect_equal((row["revision"], row["memory_now_bytes"]), (revision + len(sizes), row["memory_bytes"]), row)
        expect_equal(program.total(), row["memory_bytes"] // MIB)
        expect_equal([d["memory"] * 1024 for d in stored(system, "vm_required_resources")], [program.total()], "document")
        expect_equal(program.alloc(program.total()), OUT_OF_MEMORY, "beyond the limit")
        program.ends_right()
        for caller in callers:
            caller.kill()


@scenario
def several_vms_want_the_rest():
    """Three VMs of one GPU want more at once than is left: one gets it, the others hear why; nobody loses what it had."""
    with System(vms=3, memory="512M") as system:
        for i in range(3):
            add_vm(system, i, memory="128M")
        programs = [Steady(system, i) for i in range(3)]
        free = 512 - system.flytctl("gpus")[0]["memory_allocated_bytes"] // MIB
        for program in programs:
            program.takes(64)
        watch = Watch(system)
        for turn in range(3):
            callers = [Caller(system.operator_url, "operator", "o%d" % i) for i in range(3)]
            for i, caller in enumerate(callers):
                caller.say("resize %s memory_bytes=%d" % (system.vm_ip(i), (128 + free // 2 + 4) * MIB))
            answers = [caller.answer("resize") for caller in callers]
            winners = [i for i, a in enumerate(answers) if a["status"] == "OK"]
            expect_equal(sorted(a["status"] for a in answers), ["NO_CAPACITY", "NO_CAPACITY", "OK"], answers)
            for i, program in enumerate(programs):
                expect_equal(program.total(), 128 + (free // 2 + 4) * (i in winners), "turn", turn, "VM", i)
            callers[0].call("resize %s memory_bytes=%d" % (system.vm_ip(winners[0]), 128 * MIB))
            for caller in callers:
                caller.kill()
        watch.end()
        all_agree(system)
        for program in programs:
            program.ends_right()
        is_idle(system)


main()
