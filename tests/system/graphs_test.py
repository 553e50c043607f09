#!/usr/bin/env python3
"""A program that launches graphs (programs/replays.cu): it is moved, its SMs change, its server is killed, a capture is
under way meanwhile. All graphs are there every time, and their kernels run on the SMs that the program has then."""
from cluster import System
from harness import environment, expect_equal, helper, main, run, scenario, server, through_flyt
from steady import add_vm
from survivor import Survivor, ends, its_server_is_killed, moves, resizes


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


@scenario
def while_they_are_launched():
    """Graphs that change, and one whose condition is carried over a function of the host's, at every step of a move."""
    with System(vms=1, gpus=2, sms=64, memory="1G") as system:
        add_vm(system, 0, "--name", "alice", sm=16, memory="512M")
        program = Survivor(system, 0, program="replays")
        launched = (0, 0)
        for i in range(2):
            program.does("go", "going")
            moves(system)
            moves(system)
            resizes(system, 32 if i else 8)
            program.say("halt")
            words = program.line("halt", 120).split()
            expect_equal(words[0], "halted", words)
            expect_equal(all(int(n) > before for n, before in zip(words[1:], launched)), True, words, launched)
            launched = tuple(map(int, words[1:]))
            program.does("check", "right %d" % (i + 1))
        its_server_is_killed(system)
        program.does("check", "right 3")
        ends(program, system)


if __name__ == "__main__":
    main()
