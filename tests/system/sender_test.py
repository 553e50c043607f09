#!/usr/bin/env python3
"""A program that calls its GPU without a pause (programs/sender.cu), whose servers are killed, each in the midst of a call:
what had not begun is executed by the next one, once, and what cannot be known ends the session with an error."""
import harness
from cluster import System
from harness import environment, expect, expect_equal, helper, main, scenario, within
from steady import add_vm, events, is_idle

LAUNCHES, ALLOCATIONS, ASKERS = 60, 12, 3


def run_sender(fault, askers, deaths):
    """What it came to where each server is killed there, so often."""
    with System(vms=1, gpus=1, sms=48, memory="1G", env=environment(FLYT_FAULT=fault)) as system:
        add_vm(system, 0, memory="512M")
        process = system.start_in_vm(0, helper("sender"), str(LAUNCHES), str(ALLOCATIONS), str(askers))
        result = harness.finish(process, timeout=240)
        within(60, lambda: len(events(system, "session.server_lost")) == deaths, "deaths are told")
        within(60, lambda: len(events(system, "session.resumed")) == deaths, "and that the session went on")
        within(60, lambda: not system.flytctl("sessions"), "its session has ended")
        is_idle(system)
        return result


# Of a fault point ":kill:N": N - 1 calls of its kind are executed by each server, and the Nth is by the next one.


def goes_on(fault, deaths, askers):
    result = run_sender(fault, askers, deaths)
    expect_equal((result.status, result.out, result.err), (0, "launched %d of %d\n" % (LAUNCHES, LAUNCHES), ""), fault, result)


def ends(fault, words):
    """The next server is asked once more what is known."""
    result = run_sender(fault, ASKERS, 1)
    expect_equal((result.status, result.out), (7, "error 46\n"), fault, result)
    expect("the server process ended while work was unfinished: " + words in result.err, fault, result.err)


@scenario
def launches_on_their_way_are_executed_once():
    goes_on("kernel_launch.received:kill:25", (LAUNCHES - 1) // 24, ASKERS)


@scenario
def a_question_is_asked_again():
    """Alone: a question that was not answered is not asked again where something was executed behind it."""
    for point in ("received", "begun", "done", "executed"):
        goes_on("memory_alloc.%s:kill:7" % point, ALLOCATIONS // 6, 0)


@scenario
def a_launch_that_had_begun_ends_the_session():
    ends("kernel_launch.begun:kill:25", "a call was being executed")
    ends("kernel_launch.done:kill:25", "a call was being executed")


if __name__ == "__main__":
    main()
