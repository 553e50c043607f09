#!/usr/bin/env python3
"""Programs of a VM end by themselves while the VM moves: the others move, whichever way their memory goes, and it is told
how many have ended. One program's stream waits for its host function (programs/holder.cu), so that the move comes no
further than the stop before the test lets it."""
import harness
from cluster import System
from harness import environment, expect, expect_equal, main, scenario, within
from steady import Steady, add_vm, allocation, events, is_idle

PATIENCE = ("--stop-timeout", "60000", "--timeout", "240")
# How memory comes to the new servers (None: as it likes): to other processes on the same GPU, to another GPU, through the host.
WAYS = (("same", None), ("other", None), ("other", "copying.peer:error"))


class Holder(Steady):
    def __init__(self, system, i):
        self.system, self.name = system, "the program that holds the move in VM %d" % i
        self.process = system.start_in_vm(i, harness.helper("holder"))
        self._said = b""
        self.wait_ready()

    def does(self, words, answer):
        self.say(words)
        expect_equal(self.line(words, 120), answer, self.name, words)


def whole_system(faults):
    system = System(vms=1, gpus=2, sms=64, memory="1G", env=environment(FLYT_FAULT=faults) if faults else None)
    try:
        add_vm(system, 0, "--name", "alice", "--sessions", 8, sm=16, memory="768M")
    except BaseException:
        system.print_logs()
        system.close()
        raise
    return system


def begins_to_move(system, way):
    gpus = {g["uuid"]: "%s:%d" % (g["node"], g["index"]) for g in system.flytctl("gpus")}
    here = gpus[allocation(system, 0)["gpu"]]
    target = here if way == "same" else next(name for name in gpus.values() if name != here)
    before = len(system.flytctl("migrations"))
    system.flytctl("migrate", "alice", "--to", target, "--detach", *PATIENCE, *(["--force"] if way == "same" else []))
    within(60, lambda: len(system.flytctl("migrations")) > before, "the migration is known")


def phase(system):
    return system.flytctl("migrations")[-1]["phase"]


def exits(program):
    """By itself, with its libraries' and its own exit handlers; it asks nothing of its GPU any more."""
    program.say("end")
    result = harness.finish(program.process)
    expect_equal((result.status, result.err), (0, ""), result)


def is_killed(program):
    harness.kill_group(program.process)
    harness.finish(program.process)


def session_count(system, count):
    within(60, lambda: len(system.flytctl("sessions")) == count, "there are %d sessions" % count)


def others_move(system, way, what, ended):
    """`ended`: classes of programs, and how each ends: (before it is stopped, when it has stopped)."""
    holder, steady = Holder(system, 0), Steady(system, 0)
    early, late = ([(kind(system, 0), how) for kind, how in some] for some in ended)
    holder.does("hold", "held")
    session_count(system, 2 + len(early + late))
    before = {s["id"]: s["server_pid"] for s in system.flytctl("sessions")}
    begins_to_move(system, way)
    for program, how in early:
        how(program)
    within(120, lambda: phase(system) == "stopping", "all but one have been stopped")
    for program, how in late:
        how(program)
    session_count(system, 2)
    expect_equal(phase(system), "stopping", "it waits for the one that is held", what)
    holder.does("release", "released")
    within(120, lambda: phase(system) in ("done", "failed"), "it ends")
    expect_equal(phase(system), "done", what, system.flytctl("migrations")[-1])
    after = within(60, lambda: (lambda now: len(now) == 2 and all(before[id] != pid for id, pid in now.items()) and now)(
        {s["id"]: s["server_pid"] for s in system.flytctl("sessions")}), "they go on at other servers")
    expect(set(after) < set(before), "sessions", before, after)
    steady.goes_on()
    steady.ends_right()
    holder.say("end")
    result = harness.finish(holder.process)
    expect_equal((result.status, result.err), (0, ""), result)
    is_idle(system)
    expect_equal(events(system, "migration.failed"), [], "migrations that failed", what)
    told = [e["text"] for e in events(system, "migration.done")]
    expect(any("%d of its programs ended meanwhile" % len(early + late) in text for text in told[-2:]), told)


@scenario
def the_others_move():
    for way, faults in WAYS:
        with whole_system(faults) as system:
            others_move(system, way, (way, faults), ([(Steady, is_killed), (Holder, exits)],
                                                      [(Steady, is_killed), (Holder, exits), (Steady, is_killed)]))


if __name__ == "__main__":
    main()
