#!/usr/bin/env python3
"""Many programs on one server at once, some of which end badly: the others are correct, and nothing is left.

Runs alone: seventeen programs at once are load enough; beside other tests Linux 6.18 let nothing run for a minute (it logged
a workqueue lockup), and the listener gave up servers that had not become ready.
"""
import ctypes
import errno
import os
import re
import signal
import subprocess
import time

import harness
from harness import (Failed, app, environment, expect, expect_equal, finish, helper, is_alive, lines, main, run, scenario,
                     server, start, through_flyt, within)

GOOD = ("threads_own_streams", "threads_shared_streams", "matrix", "sort", "reduce_scan", "events", "host_functions",
        "memory_async", "bulk_copies")
FAULTY = ("fault_address", "device_assert", "process_ends", "fork_child")


def says_working(program, what):
    """Waits for the first line, which is "working"; a failure with all that the program said where it is another."""
    line = program.stdout.readline()
    if line != b"working\n":
        raise Failed("%s began with %r: %r" % (what, line, finish(program)))


def begin(url, program, *arguments):
    return start(through_flyt(url, program, *arguments), environment(FLYT_TEST_FORWARDED="1"), stdout=subprocess.PIPE,
                 stderr=subprocess.PIPE)


@scenario
def a_crowd():
    """Fifteen programs at once: nine ordinary ones, four that fault, fork or exit in the middle, two that are killed."""
    for kind in ("tcp", "unix"):
        with server(kind) as s:
            at_start = s.settle()
            running = [(name, begin(s.url, app(name))) for name in GOOD + FAULTY]
            victims = [begin(s.url, helper("until_lost"), way) for way in ("copy", "threads")]
            for victim in victims:
                says_working(victim, "a victim")
                victim.kill()
                expect_equal(finish(victim).status, -signal.SIGKILL, "the victim's end")
            for name, program in running:
                result = finish(program, 120)
                expect(result.status == 0, kind, name, result)
            within(10, lambda: len(s.children()) <= at_start,
                   "the end of the serving processes (%d at the start)" % at_start)
            last = run(through_flyt(s.url, app("memory")))
            expect_equal(last.status, 0, "a program afterwards", last)


@scenario
def a_driver_that_does_not_return():
    """What the driver keeps waiting for a kernel without end stops neither other streams nor the end of its process."""
    with server() as s:
        at_start = s.settle()
        victim = begin(s.url, helper("stuck"))
        says_working(victim, "the victim")
        time.sleep(0.5)  # the driver begins to wait at some time after that
        victim.kill()
        finish(victim)
        within(15, lambda: len(s.children()) <= at_start, "the end of the serving process")


PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000


def stop_main_thread(pid):
    """Stops the process's main thread, and only that one, until this test ends. False: that is not permitted here."""
    libc = ctypes.CDLL(None, use_errno=True)
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        if libc.ptrace(request, ctypes.c_long(pid), ctypes.c_void_p(0), ctypes.c_void_p(0)) != 0:
            expect_equal(ctypes.get_errno(), errno.EPERM, "errno of ptrace")
            return False
    expect(os.WIFSTOPPED(os.waitpid(pid, WALL)[1]), "the thread of process", pid, "does not stop")
    return True


@scenario
def a_submission_thread_that_hangs():
    """As if the driver never came back to it (it is stopped, its process's other threads are not): the program's end ends
    the serving process after a few seconds all the same, and nobody else is concerned."""
    with server(env=environment(FLYT_LOG="info")) as s:
        at_start = s.settle()
        env = environment(FLYT_SERVER=s.url, LD_LIBRARY_PATH=os.path.join(harness.BUILD, "lib"))
        victim = start([helper("until_lost"), "synchronize"], env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        says_working(victim, "the victim")
        serving = within(10, lambda: s.serving(victim.pid), "the process that serves the victim")
        if not stop_main_thread(serving):
            print("skip a_submission_thread_that_hangs: a thread of another process may not be stopped here")
            return
        victim.kill()
        finish(victim)
        expect_equal(run(through_flyt(s.url, helper("echo"))).status, 0, "a program meanwhile")
        within(20, lambda: not is_alive(serving), "the end of the serving process")
        os.waitpid(serving, WALL)  # who has stopped a thread hears of its end before the parent does
        within(10, lambda: len(s.children()) <= at_start, "the end of the serving processes")
        within(10, lambda: not os.path.exists("/proc/%d" % serving), "the listener's noticing it")
        expect("ended in the middle of a call to the driver, client_pid=%d" % victim.pid in s.log(),
               "the log does not name the session:", s.log())
        expect_equal(run(through_flyt(s.url, helper("echo"))).status, 0, "a program afterwards")


def starting_at_once(log):
    """How many server processes were starting at the same time at most, and how many were started: from the log's lines,
    not from the count that the server keeps."""
    starting, most, started = set(), 0, 0
    for pid, what in re.findall(r"server process (\d+): (starts|ready)", log):
        if what == "starts":
            started += 1
            starting.add(pid)
        else:
            starting.discard(pid)
        most = max(most, len(starting))
    return most, started


@scenario
def a_burst():
    """64 programs at the same moment on a server with one warm process: all are served, each by a process of its own,
    of which only as many start at once as there are CPUs (2 at least)."""
    programs, starts_max = 64, max(2, len(os.sched_getaffinity(0)))
    with server("unix", ("--soft", "1", "--warm", "1"), environment(FLYT_LOG="debug")) as s:
        at_start = s.settle()
        running = [begin(s.url, helper("echo"), str(i)) for i in range(programs)]
        for i, program in enumerate(running):
            result = finish(program, 120)
            expect_equal((result.status, result.out), (0, "[%d]\n" % i), "program", i, result)
        within(10, lambda: len(s.children()) <= at_start, "the end of the serving processes")
        most, started = starting_at_once(s.log())
        expect(started >= programs, "the log names", started, "server processes only")
        expect(most <= starts_max, most, "server processes were starting at once, instead of", starts_max)
        expect_equal(run(through_flyt(s.url, helper("echo"))).status, 0, "a program afterwards")


class Steady:
    """A program that works in rounds until it is killed; its output goes to a file."""

    def __init__(self, url, name):
        self.path = os.path.join(harness.WORK, name)
        with open(self.path, "wb") as out:
            self.program = start(through_flyt(url, helper("endless")), stdout=out, stderr=subprocess.STDOUT)
        self.goes_on("in the beginning")

    def rounds(self):
        with open(self.path) as f:
            return f.read().count("round")

    def goes_on(self, when):
        rounds = self.rounds()
        within(20, lambda: self.rounds() > rounds + 1, "two further rounds of the steady program " + when)

    def kill(self):
        self.program.kill()
        expect_equal(self.program.wait(60), -signal.SIGKILL, "the steady program's end")


@scenario
def beside_faults():
    """Another program's faults, each fatal to its own context, and its SIGKILL disturb nobody."""
    with server() as s:
        at_start = s.settle()
        steady = Steady(s.url, "steady")
        for fault in ("fault_address", "fault_misaligned", "device_assert", "device_trap"):
            result = run(through_flyt(s.url, app(fault)))
            expect_equal(result.status, 0, fault, result)
            steady.goes_on("after " + fault)
        victim = Steady(s.url, "victim")
        victim.kill()
        steady.goes_on("after another's SIGKILL")
        expect_equal(run(through_flyt(s.url, app("memory"))).status, 0, "a new program")
        steady.kill()
        within(10, lambda: len(s.children()) <= at_start, "the end of the serving processes")


def memory_kb(pid, name):
    with open("/proc/%d/status" % pid) as f:
        return int(next(line for line in f if line.startswith(name)).split()[1])


def open_files(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


@scenario
def listener_does_not_grow():
    """Neither memory nor descriptors of the listening process depend on how many programs have come and gone."""
    programs = 1000 if os.environ.get("FLYT_SOAK") else 40
    with server() as s:
        for _ in range(10):
            expect_equal(run(through_flyt(s.url, helper("echo"))).status, 0, "a program")
        at_start = s.settle()
        files, memory = open_files(s.pid), memory_kb(s.pid, "VmRSS")
        for i in range(programs):
            if i % 4 == 3:
                victim = begin(s.url, helper("until_lost"), "launch")
                victim.stdout.readline()
                victim.kill()
                finish(victim)
            else:
                result = run(through_flyt(s.url, helper("echo")))
                expect_equal(result.status, 0, "program", i, result)
        within(10, lambda: len(s.children()) <= at_start, "the end of the serving processes")
        # A little later than their processes, what the listener held for them goes.
        within(10, lambda: open_files(s.pid) <= files, "no more than %d descriptors" % files)
        grown_kb = memory_kb(s.pid, "VmRSS") - memory
        expect(grown_kb < 512 + programs, "the listener has grown by %d KiB in %d programs" % (grown_kb, programs))


@scenario
def soak_all_programs_at_once():
    """FLYT_SOAK=1: all test programs, four at a time, again and again for five minutes, on one server."""
    if not os.environ.get("FLYT_SOAK"):
        return
    with server("unix") as s:
        at_start = s.settle()
        until, rounds = time.monotonic() + 300, 0
        while time.monotonic() < until:
            result = run([os.path.join(harness.ROOT, "tests", "apps", "run"), "--server", s.url, "--build", harness.BUILD,
                          "-j", "4"], timeout=300)
            expect_equal(result.status, 0, "round", rounds, result)
            rounds += 1
        within(20, lambda: len(s.children()) <= at_start, "the end of the serving processes")


main()
