#!/usr/bin/env python3
"""The connection ends in the middle: every call returns the documented code for ever, one line on stderr says address and
cause, nothing hangs, exit status and exit handlers are the program's own, and the server goes on serving others."""
import os
import select
import signal
import socket
import subprocess
import threading
import time

import harness
from harness import (environment, expect, expect_equal, finish, helper, is_alive, lines, main, run, scenario, server, start,
                     shared_memory, through_flyt, within)

LOST = "46"
WAYS = ("synchronize", "launch", "copy", "blocking", "event", "query", "credit", "threads", "callback")
QUIET = ("event", "credit", "callback")     # nothing is sent for a while, or for ever
KINDS = ("tcp", "unix")     # the latter: through rings


def begin_work(url, way):
    """A program that has begun to work in this way."""
    env = environment(FLYT_SERVER=url, LD_LIBRARY_PATH=os.path.join(harness.BUILD, "lib"))
    program = start([helper("until_lost"), way], env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    expect(select.select([program.stdout], [], [], 30)[0], way, "does not begin to work")
    expect_equal(program.stdout.readline(), b"working\n", "first line of", way)
    expect_equal(len(shared_memory(program.pid, "flyt-rings")), int(url.startswith("unix:")), "rings of", way)
    return program


def check_end(program, url, way, code=LOST):
    result = finish(program, 50)
    said = lines(result.out)
    expect_equal(result.status, 7, way, "exit status", result)
    expect_equal(said[-1], "atexit", way, "the exit handler's line", result)
    expect(len(said) >= 8, way, "not all calls returned", result)
    for line in said[:-1]:
        expect_equal(line.split()[1], code, way, line.split()[0], result)
    errors = lines(result.err)
    expect_equal(len(errors), 1, way, "lines on stderr", result)
    expect(url in errors[0], way, "the line does not name the server:", errors[0])


@scenario
def serving_process_killed():
    for kind in KINDS:
        with server(kind) as s:
            for way in WAYS:
                program = begin_work(s.url, way)
                serving = within(10, lambda: s.serving(program.pid), "the process that serves the program")
                os.kill(serving, signal.SIGKILL)
                check_end(program, s.url, way)
            expect_equal(run(through_flyt(s.url, helper("echo"))).status, 0, kind, "a program afterwards")


@scenario
def whole_server_killed():
    for kind in KINDS:
        for way in ("synchronize", "copy"):
            with server(kind) as s:
                program = begin_work(s.url, way)
                s.close()
                check_end(program, s.url, way)


@scenario
def server_ended_by_sigterm():
    """Ctrl-C on the server, or systemd's stop: every process of it goes, and programs hear of it."""
    for kind in KINDS:
        with server(kind) as s:
            program = begin_work(s.url, "synchronize")
            children = s.children()
            expect(children, "the server has no processes")
            os.kill(s.pid, signal.SIGTERM)
            check_end(program, s.url, "synchronize")
            s.process.wait(60)
            within(30, lambda: not any(map(is_alive, children)), "the end of the server's processes")


class Wire:
    """A TCP proxy before a server, whose connections can be cut."""

    def __init__(self, url):
        host, port = url[6:].rsplit(":", 1)
        self.target = (host, int(port))
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(16)
        self.url = "tcp://127.0.0.1:%d" % self.listener.getsockname()[1]
        self.sockets, self.is_cut, self.limit_bytes = [], False, None
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.target)
            except OSError:
                return
            self.sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.pass_on, args=(source, sink), daemon=True).start()

    def pass_on(self, source, sink):
        try:
            while data := source.recv(1 << 16):
                if self.limit_bytes is not None:
                    data = data[:self.limit_bytes]
                    self.limit_bytes -= len(data)
                    sink.sendall(data)
                    if not self.limit_bytes:
                        self.cut()
                        return
                else:
                    sink.sendall(data)
        except OSError:
            pass

    def cut(self):
        for s in self.sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
        for s in self.sockets:
            s.close()


@scenario
def wire_cut():
    """The network goes, in the middle of a record too; the serving process then leaves."""
    with server() as s:
        at_start = s.settle()
        for way in WAYS:
            for limit_bytes in (None,) if way in QUIET else (None, 3, 50):
                wire = Wire(s.url)
                try:
                    program = begin_work(wire.url, way)
                    if limit_bytes is None:
                        wire.cut()
                    else:
                        wire.limit_bytes = limit_bytes
                    check_end(program, wire.url, way)
                finally:
                    wire.close()
        within(10, lambda: len(s.children()) <= at_start, "the end of the serving processes")


@scenario
def program_ends_while_blocked():
    """A program that waits for ever (a host function that never returns) can still be ended, and its server goes."""
    for kind in KINDS:
        with server(kind) as s:
            at_start = s.settle()
            for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
                program = begin_work(s.url, "callback")
                program.send_signal(number)
                expect_equal(finish(program).status, -number, "exit by signal", number)
            within(10, lambda: len(s.children()) <= at_start, "the end of the serving processes")


main()
