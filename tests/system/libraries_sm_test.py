#!/usr/bin/env python3
"""Programs that call NVIDIA's libraries while their SMs change (programs/handles.cu): what they compute is right, and by the
software GPU's own accounts nothing of it runs on SMs that the VM has lost, whatever streams a library keeps."""
import tempfile

import harness
from cluster import System
from harness import expect_equal, main, scenario, within
from library_program import Handles, works
from steady import add_vm, allocation, is_idle

SIZES = (16, 40, 8, 56)
ROUNDS = 400         # that last as long as the changes


def resize(system, sms):
    system.flytctl("resize", "alice", "--sm", sms)
    within(30, lambda: allocation(system, 0)["switch_state"] == "vacated", "nothing is left on other SMs")


def whole_system(folder):
    system = System(sms=64, memory="1G", env={**harness.environment(), "FLYT_SOFT_ACCOUNT": folder})
    try:
        add_vm(system, 0, "--name", "alice", "--sessions", 8, sm=24, memory="512M")
    except BaseException:
        system.print_logs()
        system.close()
        raise
    return system


@scenario
def nothing_runs_where_it_was():
    with tempfile.TemporaryDirectory(dir=harness.WORK) as folder:
        with whole_system(folder) as system:
            program = Handles(system, command="all")
            program.rounds()
            pid = system.flytctl("sessions")[0]["server_pid"]
            seen = {24}
            for sms in SIZES + SIZES:
                resize(system, sms)
                before = works(folder, pid)
                program.rounds()

                def has_grown():
                    after = works(folder, pid)
                    grown = {sms for context, (sms, count) in after.items() if count > before.get(context, (0, 0))[1]}
                    return len(grown) == 1 and grown
                # The file follows within some 20 ms. All libraries' work is on the SMs that there are.
                expect_equal(within(10, has_grown, "work on one set of SMs alone"), {sms}, "the SMs on which it grew")
                seen.add(sms)
            told = works(folder, pid)
            expect_equal({sms for sms, count in told.values() if count}, seen, "nothing ran outside a partition", told)
            result = program.ends()
            expect_equal((result.status, result.err), (0, ""), result)
            is_idle(system)


@scenario
def they_change_in_the_middle():
    with tempfile.TemporaryDirectory(dir=harness.WORK) as folder:
        with whole_system(folder) as system:
            programs = [Handles(system, command="all") for _ in range(3)]
            for program in programs:
                program.asked(ROUNDS)
            for i in range(12):
                system.flytctl("resize", "alice", "--sm", SIZES[i % len(SIZES)])
            for program in programs:
                program.answered(ROUNDS)
            within(30, lambda: allocation(system, 0)["switch_state"] == "vacated", "nothing is left on other SMs")
            for program in programs:
                program.rounds()
                result = program.ends()
                expect_equal((result.status, result.err), (0, ""), result)
            is_idle(system)


if __name__ == "__main__":
    main()
