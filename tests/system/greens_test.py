#!/usr/bin/env python3
"""A program with green contexts of its own (programs/greens.cu): it is moved, its SMs change, its server is killed. Each context
has as many SMs as before, of those that the VM has then; what the VM no longer has it lacks, and where nothing is left of it, it
has all."""
from cluster import System
from harness import environment, expect_equal, helper, main, run, scenario, server, through_flyt
from steady import add_vm
from survivor import Survivor, ends, its_server_is_killed, moves, resizes


@scenario
def undisturbed():
    for kind in ("unix", "tcp"):
        with server(kind) as s:
            result = run(through_flyt(s.url, helper("greens")), environment(), timeout=240, stdin=b"check\ncheck\nend\n")
            expect_equal((result.status, result.out), (0, "ready\nright 1\nright 2\nended\n"), kind, result)


@scenario
def sms_that_change():
    with System(vms=1, gpus=1, sms=64, memory="1G") as system:
        add_vm(system, 0, "--name", "alice", sm=16, memory="512M")
        program = Survivor(system, 0, program="greens")
        for i, (sms, seen) in enumerate(((16, "8 8 16 16"), (48, "8 8 16 48"), (8, "8 8 8 8"), (64, "8 8 16 64"))):
            if i:
                resizes(system, sms)
            program.does("sms", "sms " + seen)
            program.does("check", "right %d" % (i + 1))
        ends(program, system)


@scenario
def there_and_back():
    with System(vms=1, gpus=2, sms=64, memory="1G") as system:
        add_vm(system, 0, "--name", "alice", sm=24, memory="512M")
        program = Survivor(system, 0, program="greens")
        for i in range(2):
            program.does("check", "right %d" % (2 * i + 1))
            moves(system)
            program.does("sms", "sms 8 8 16 24")
            its_server_is_killed(system)
            program.does("sms", "sms 8 8 16 24")
            program.does("check", "right %d" % (2 * i + 2))
        ends(program, system)


if __name__ == "__main__":
    main()
