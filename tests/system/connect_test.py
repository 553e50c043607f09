#!/usr/bin/env python3
"""A program that cannot get a server: each CUDA call returns the documented code, one line on stderr says address and
cause, nothing hangs, and the program ends as itself."""
import contextlib
import re
import socket
import struct
import threading

from harness import (bound_socket, environment, expect, expect_equal, helper, lines, main, run, scenario, server,
                     through_flyt, start, finish, kill_group)
import harness
import os
import subprocess

NOT_READY, VERSION_DIFFERS, NOT_PERMITTED, NO_DEVICE = 802, 803, 800, 100


def check_refusal(url, code, *words, program="codes", arguments=(), env=None):
    """Runs the program directly on the libraries; `words` must be in its one line on stderr."""
    libraries = os.path.join(harness.BUILD, "lib")
    env = env or environment(FLYT_SERVER=url, LD_LIBRARY_PATH=libraries)
    result = run([helper(program), *arguments], env)
    expect_equal(result.status, 7, "exit status", result)
    said = lines(result.out)
    expect_equal(said[-1], "atexit", "the exit handler's line", result)
    for line in said[:-1]:
        expect_equal(line.split()[1], str(code), line.split()[0], result)
    errors = lines(result.err)
    expect_equal(len(errors), 1, "lines on stderr", result)
    for word in words:
        expect(word in errors[0], "%r is not in the line: %s" % (word, errors[0]))


@contextlib.contextmanager
def fake_server(answer):
    """Accepts connections and gives each what answer(first bytes) returns (None: nothing), then closes it."""
    with bound_socket(listening=True) as (listener, url):
        done = threading.Event()

        def serve():
            listener.settimeout(0.1)
            while not done.is_set():
                try:
                    connection, _ = listener.accept()
                except socket.timeout:
                    continue
                with connection:
                    connection.settimeout(5)
                    reply = answer(connection.recv(65536))
                    if reply:
                        connection.sendall(reply)
                        # Closed by the other side first, so that what was sent is not lost in a reset.
                        connection.shutdown(socket.SHUT_WR)
                        with contextlib.suppress(OSError):
                            while connection.recv(65536):
                                pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield url
        finally:
            done.set()
            thread.join()


def xdr_string(value):
    return struct.pack(">I", len(value)) + value + bytes(-len(value) % 4)


def handshake_reply(request, status, message):
    """The answer to the call in `request` (RFC 5531, with its record mark), a handshake result by hand."""
    xid = request[4:8]
    body = xid + struct.pack(">5I", 1, 0, 0, 0, 0)             # reply, accepted, no verifier, success
    body += struct.pack(">I", status) + xdr_string(message)
    body += struct.pack(">Q", 0) + xdr_string(b"")             # session, token
    body += xdr_string(b"other build") + struct.pack(">5I", 0, 0, 0, 0, 0)
    return struct.pack(">I", 0x80000000 | len(body)) + body


@scenario
def no_server_named():
    libraries = os.path.join(harness.BUILD, "lib")
    check_refusal(None, NOT_READY, "FLYT_SERVER", env=environment(LD_LIBRARY_PATH=libraries))


@scenario
def nonsense_address():
    for url in ("nonsense", "tcp://", "tcp://127.0.0.1:99999", "http://127.0.0.1:80", "unix://relative"):
        check_refusal(url, NOT_READY, url)


@scenario
def refused_port():
    with bound_socket(listening=False) as (_, url):
        check_refusal(url, NOT_READY, url, "refused")


@scenario
def absent_socket():
    url = "unix://%s/absent.sock" % harness.WORK
    check_refusal(url, NOT_READY, url, "No such file")


@scenario
def unknown_host():
    check_refusal("tcp://host.invalid:7600", NOT_READY, "host.invalid")


@scenario
def many_threads_at_once():
    with bound_socket(listening=False) as (_, url):
        check_refusal(url, NOT_READY, url, arguments=["16"])


@scenario
def silent_server():
    with bound_socket(listening=True) as (_, url):
        check_refusal(url, NOT_READY, url, "did not answer in time")


@scenario
def closing_server():
    with fake_server(lambda request: None) as url:
        check_refusal(url, NOT_READY, url, "closed")


@scenario
def garbage_server():
    for garbage in (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" * 4, bytes(4096), b"\xff" * 4096,
                    b"\x80\x00\x00\x08" + b"garbage!", b"SSH-2.0-OpenSSH_9.2\r\n"):
        with fake_server(lambda request, g=garbage: g) as url:
            libraries = os.path.join(harness.BUILD, "lib")
            result = run([helper("codes")], environment(FLYT_SERVER=url, LD_LIBRARY_PATH=libraries))
            codes = {line.split()[1] for line in lines(result.out)[:-1]}
            expect(codes <= {str(NOT_READY), str(VERSION_DIFFERS)} and len(codes) == 1, garbage[:20], result)
            expect_equal(len(lines(result.err)), 1, "lines on stderr", result)
            expect(url in result.err, result)


@scenario
def statuses_of_the_handshake():
    sentence = b"the client is older: upgrade Flyt's libraries"
    for status, code in ((1, VERSION_DIFFERS), (2, NOT_PERMITTED), (4, NOT_READY), (5, NO_DEVICE)):
        with fake_server(lambda request, s=status: handshake_reply(request, s, sentence)) as url:
            check_refusal(url, code, url, sentence.decode())


@scenario
def control_characters_in_an_answer():
    with fake_server(lambda request: handshake_reply(request, 1, b"two\nlines\x1b[31m")) as url:
        check_refusal(url, VERSION_DIFFERS, url)


@scenario
def a_server_that_is_full_of_strangers():
    """Connections that say nothing do not keep a program out."""
    with server() as s:
        host, port = s.url[6:].rsplit(":", 1)
        with contextlib.ExitStack() as strangers:
            for _ in range(100):
                strangers.enter_context(socket.create_connection((host, int(port))))
            result = run(through_flyt(s.url, helper("codes")))
            expect_equal({line.split()[1] for line in lines(result.out)[:-1]}, {"0"}, "codes", result)


main()
