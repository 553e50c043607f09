#!/usr/bin/env python3
"""A program that launches graphs (programs/replays.cu): it is moved, its SMs change, its server is killed, a capture is
under way meanwhile. All graphs are there every time, and their kernels run on the SMs that the program has then."""
import harness
from cluster import System
from harness import environment, expect_equal, helper, main, run, scenario, server, through_flyt, within
from steady import add_vm, allocation, is_idle
from survivor import Survivor, its_server_is_killed


def ends(program, system):
    program.does("end", "ended")
    result = harness.finish(program.process)
    expect_equal((result.status, result.err), (0, ""), result)
    is_idle(system)


def moves(system):
    """To the other one of two GPUs."""
    here = allocation(system, 0)["gpu"]
    there = next("%s:%d" % (gpu["node"], gpu["index"]) for gpu in system.flytctl("gpus") if gpu["uuid"] != here)
    result = system.flytctl_run("migrate", "alice", "--to", there, "--stop-timeout", "60000", "--timeout", "240", timeout=300)
    expect_equal(result.status, 0, "flytctl migrate --to", there, result)


def resizes(system, sms):
    system.flytctl("resize", "alice", "--sm", sms)
    within(30, lambda: allocation(system, 0)["switch_state"] == "vacated", "nothing is left on other SMs")


@scenario
def undisturbed():
    for kind in ("unix", "tcp"):
        with server(kind) as s:
            result = run(through_flyt(s.url, helper("replays")), environment(), timeout=240,
                         stdin=b"check\nbegin\nfinish\ncheck\nend\n")
            expect_equal((result.status, result.out), (0, "ready\nright 1\nbegun\nfinished\nright 2\nended\n"), kind, result)


@scenario
def servers_that_die():
    with System(vms=1, gpus=1, sms=48, memory="1G") as system:
        add_vm(system, 0, memory="512M")
        program = Survivor(system, 0, program="replays")
        program.does("check", "right 1")
        its_server_is_killed(system)
        program.does("check", "right 2")
        program.does("begin", "begun")
        its_server_is_killed(system)
        program.does("finish", "finished")
        its_server_is_killed(system)
        its_server_is_killed(system)
        program.does("check", "right 3")
        ends(program, system)


@scenario
def sms_that_change():
    with System(vms=1, gpus=1, sms=64, memory="1G") as system:
        add_vm(system, 0, "--name", "alice", sm=16, memory="512M")
        program = Survivor(system, 0, program="replays")
        for i, sms in enumerate((16, 48, 8, 64, 16)):
            if i:
                resizes(system, sms)
            program.does("sms", "sms %d %d %d" % (sms, sms, sms))
            program.does("check", "right %d" % (i + 1))
        ends(program, system)


@scenario
def there_and_back():
    with System(vms=1, gpus=2, sms=64, memory="1G") as system:
        add_vm(system, 0, "--name", "alice", sm=16, memory="512M")
        program = Survivor(system, 0, program="replays")
        for i in range(4):
            program.does("check", "right %d" % (2 * i + 1))
            program.does("begin", "begun")
            moves(system)
            program.does("finish", "finished")
            program.does("check", "right %d" % (2 * i + 2))
            program.does("sms", "sms 16 16 16")
        resizes(system, 32)
        program.does("sms", "sms 32 32 32")
        program.does("check", "right 9")
        its_server_is_killed(system)
        program.does("check", "right 10")
        ends(program, system)


if __name__ == "__main__":
    main()
