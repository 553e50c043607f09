#!/usr/bin/env python3
"""The network between program and server vanishes without a word, while either owes the other an answer: both notice
after a minute, which is what FLYT_SOAK=1 is needed for. Two network namespaces with a wire between them."""
import contextlib
import os
import select
import subprocess

import harness
from harness import Server, environment, expect, expect_equal, finish, helper, lines, main, run, scenario, skip, start, within

NEAR, FAR = "flyt-near-%d" % os.getpid(), "flyt-far-%d" % os.getpid()
NEAR_ADDRESS, FAR_ADDRESS = "198.18.0.1", "198.18.0.2"
LOST = "46"


def ip(*words):
    """Runs ip(8); its exit status."""
    try:
        return subprocess.run(["ip", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    except OSError:
        return -1


@contextlib.contextmanager
def two_hosts():
    try:
        for words in (["netns", "add", FAR], ["-n", NEAR, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", FAR],
                      ["-n", NEAR, "addr", "add", NEAR_ADDRESS + "/24", "dev", "wire"],
                      ["-n", FAR, "addr", "add", FAR_ADDRESS + "/24", "dev", "wire"],
                      ["-n", NEAR, "link", "set", "lo", "up"],
                      ["-n", NEAR, "link", "set", "wire", "up"], ["-n", FAR, "link", "set", "wire", "up"]):
            expect_equal(ip(*words), 0, *words)
        yield
    finally:
        ip("netns", "del", FAR)
        ip("netns", "del", NEAR)


@scenario
def host_vanishes_in_the_middle():
    with two_hosts():
        s = Server(prefix=["ip", "netns", "exec", NEAR], address=NEAR_ADDRESS)
        at_start = s.settle()
        env = environment(FLYT_SERVER=s.url, LD_LIBRARY_PATH=os.path.join(harness.BUILD, "lib"))
        # Once before, so that nothing is to be uploaded: the kernel's keepalive would end idle data streams.
        first = run(["ip", "netns", "exec", FAR, helper("until_lost"), "not-at-all"], env)
        expect_equal(first.status, 7, "a program before", first)
        within(10, lambda: len(s.children()) <= at_start, "the end of that one's serving process")
        # The one sends something when the network is gone. The other waits for a kernel whose end the server wants to
        # tell it then.
        programs = {way: start(["ip", "netns", "exec", FAR, helper("until_lost"), way], env, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE) for way in ("late", "long")}
        for way, program in programs.items():
            expect(select.select([program.stdout], [], [], 60)[0], way, "does not begin to work")
            expect_equal(program.stdout.readline(), b"working\n", way, "first line")
        expect_equal(ip("-n", FAR, "addr", "flush", "dev", "wire"), 0, "taking the address away")
        for way, program in programs.items():
            result = finish(program, 120)
            said = lines(result.out)
            expect_equal(result.status, 7, way, "exit status", result)
            for line in said[:-1]:
                expect_equal(line.split()[1], LOST, way, line.split()[0], result)
            errors = lines(result.err)
            expect_equal(len(errors), 1, way, "lines on stderr", result)
            if way == "late":
                expect("has not answered" in errors[0], "the line says something else:", errors[0])
        within(60, lambda: len(s.children()) <= at_start, "the end of the serving processes")
        expect("the client has not answered for 60 s, client_pid=%d" % programs["long"].pid in s.log(),
               "no line says that the client was silent")
        expect_equal(run(["ip", "netns", "exec", NEAR, *harness.through_flyt(s.url, helper("echo"))]).status, 0,
                     "a program afterwards, on the server's host")
        s.close()


if not os.environ.get("FLYT_SOAK"):
    skip("takes more than a minute: FLYT_SOAK=1 runs it")
if ip("netns", "add", NEAR) != 0:
    skip("no network namespaces here")
main()
