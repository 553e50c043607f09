#!/usr/bin/env python3
"""VMs move to another GPU of their node, and what arrives there is not what was sent, or what their clients make again is not
what they had (points of cpu/server/move/POINTS.md): each time the move fails and says why, and the programs go on where they
were and find everything right (programs/movers)."""
import movers
from cluster import System
from harness import environment, expect_equal, main, scenario, within
from steady import add_vm, allocation, events, is_idle

PATIENCE = ("--stop-timeout", "60000", "--timeout", "240")
MOVES = 2
# Pointers in memory, pages that soon are what they were, and many objects; constants; and what is set
# of kernels and devices.
PROGRAMS, WITH_CONSTANTS = ("linked_list", "changes_and_changes_back", "many_streams"), ("constant_array",)
ONE_WITH_SETTINGS = ("stream_attributes",)
WITH_SETTINGS = ("large_shared_memory", "kernel_attributes", "device_limits", "stream_attributes")


def whole_system(faults):
    system = System(vms=1, gpus=2, sms=64, memory="1G", env=environment(FLYT_FAULT=faults))
    try:
        add_vm(system, 0, "--name", "alice", "--sessions", 2 * (len(PROGRAMS) + 1), sm=16, memory="512M")
    except BaseException:
        system.print_logs()
        system.close()
        raise
    return system


def where(system):
    """The GPU that alice has, the other one, and her programs' servers, as the node manager said last."""
    names = {gpu["uuid"]: "%s:%d" % (gpu["node"], gpu["index"]) for gpu in system.flytctl("gpus")}
    here = names[allocation(system, 0)["gpu"]]
    return (here, next(name for name in names.values() if name != here),
            {s["id"]: s["server_pid"] for s in system.flytctl("sessions")})


def stays(names, faults, words, told_in="event", way="other"):
    """told_in: what says why: the event, or the node's log. way: to the other GPU, or to new servers on the same one."""
    chosen = movers.seed()
    with whole_system(faults) as system:
        def why():
            told = [event["text"] for event in events(system, "migration.failed")]
            return sum(words in text for text in told) if told_in == "event" else system.log("node-0").count(words)

        first = []

        def moves_in_vain(_):
            if not first:
                within(60, lambda: len(system.flytctl("sessions")) == len(names), "the node manager has told of all programs")
                first.append(where(system))
            before, said, failed = first[0], why(), len(events(system, "migration.failed"))
            target = before[1:2] if way == "other" else (before[0], "--force")
            result = system.flytctl_run("migrate", "alice", "--to", *target, *PATIENCE, timeout=300)
            expect_equal(result.status, 1, "flytctl migrate --to", *target, faults, result)
            within(60, lambda: len(events(system, "migration.failed")) == failed + 1, "an event")
            within(60, lambda: why() > said, "it says why: " + words)
            within(60, lambda: where(system) == before, "it is where it was")

        batch = [case for case in movers.cases() if case.name in names]
        expect_equal(len(batch), len(names), "programs")
        movers.under(system, 0, batch, moves_in_vain, MOVES, chosen)
        is_idle(system)


@scenario
def memory_that_differs():
    stays(PROGRAMS, "prepare.arrived:error", "what arrived differs: ")


@scenario
def variables_that_differ():
    """Where nothing else stands against it: on the same GPU they are where they were."""
    stays(WITH_CONSTANTS, "prepare.variable:error", "what arrived differs: the variable ", way="same")


@scenario
def settings_that_are_missing():
    """Attributes of kernels, limits of the device: whatever is set again is passed over."""
    stays(WITH_SETTINGS, "prepare.setting:error", "and it had set ", "log")


@scenario
def settings_that_are_missing_of_one():
    """The others could go on: they wait for this one, and all go back."""
    stays(PROGRAMS + ONE_WITH_SETTINGS, "prepare.setting:error", "and it had set ", "log")


@scenario
def objects_that_are_others():
    """Their clients are there already when this is found: they come back to the servers that they have left."""
    stays(PROGRAMS, "prepare.counts:error", "again, and it had ", "log")


if __name__ == "__main__":
    main()
