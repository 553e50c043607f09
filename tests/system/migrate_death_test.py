#!/usr/bin/env python3
"""VMs move within their node, and the server process that a program leaves is killed at each moment between its word that the
program has stopped and its client's way to the new one: the program goes on there, with all that it had, and every call
is executed once (programs/survivor.cu, programs/sender.cu)."""
import harness
from cluster import System
from harness import environment, expect, expect_equal, main, scenario, within
from sender import Sender
from steady import add_vm, events, is_idle
from survivor import Survivor

# Of the server that is left (cpu/server/move/POINTS.md), in their order.
POINTS = ("move.told", "move.leave", "move.moved", "move.left")
# Where to, and how its memory comes there (None: it is given that).
WAYS = (("same", None), ("other", None), ("other", "copying.peer:error"))
PATIENCE = ("--stop-timeout", "60000", "--timeout", "240")


def whole_system(point, more):
    faults = "%s:kill%s" % (point, "," + more if more else "")
    system = System(vms=1, gpus=2, sms=64, memory="1G", env=environment(FLYT_FAULT=faults))
    try:
        add_vm(system, 0, "--name", "alice", "--sessions", 4, sm=16, memory="512M")
    except BaseException:
        system.print_logs()
        system.close()
        raise
    return system


def moves(system, way):
    """To its end; the server that was left has been killed."""
    before = {s["id"]: s["server_pid"] for s in system.flytctl("sessions")}
    gpus = {"%s:%d" % (g["node"], g["index"]): g["sms_allocated"] for g in system.flytctl("gpus")}
    here = next(name for name, sms in gpus.items() if sms)
    target = here if way == "same" else next(name for name in gpus if name != here)
    words = ["--force"] if way == "same" else []
    result = system.flytctl_run("migrate", "alice", "--to", target, *PATIENCE, *words, timeout=300)
    expect_equal(result.status, 0, "flytctl migrate --to", target, result)
    after = within(60, lambda: (lambda now: set(now) == set(before) and all(
        before[id] != pid for id, pid in now.items()) and now)(
            {s["id"]: s["server_pid"] for s in system.flytctl("sessions")}), "it goes on at another server")
    expect_equal(set(after), set(before), "the session")


def all_ways(runs):
    for point in POINTS:
        for way, more in WAYS:
            with whole_system(point, more) as system:
                runs(system, way, (point, way, more))
                expect("made to end by FLYT_FAULT" in system.log("node-0"), "a server was killed:", point, way, more)
                expect_equal(events(system, "migration.failed"), [], "migrations that failed", point, way, more)
                is_idle(system)


@scenario
def it_goes_on_where_all_of_it_is():
    """One program that has one of everything and waits meanwhile, and one that calls its GPU without a pause."""
    def runs(system, way, what):
        program = Survivor(system, 0)
        program.does("check", "right 1")
        sender = Sender(system, 0)
        moves(system, way)
        program.does("check", "right 2")
        sender.ends_right(what)
        program.does("end", "ended")
        result = harness.finish(program.process)
        expect_equal((result.status, result.err), (0, ""), what, result)
    all_ways(runs)


if __name__ == "__main__":
    main()
