#!/usr/bin/env python3
"""A daemon as systemd's own library makes one: says what it was passed, keeps descriptors, and does what it is told on
the socket "orders", one line a connection."""
import ctypes
import json
import os
import signal
import socket
import sys

systemd = ctypes.CDLL("libsystemd.so.0")


def notify(text, fds=()):
    array = (ctypes.c_int * len(fds))(*fds)
    status = systemd.sd_pid_notify_with_fds(0, 0, text.encode(), array, len(fds))
    if status <= 0:
        sys.exit("sd_notify: %d" % status)


def passed():
    names = ctypes.POINTER(ctypes.c_char_p)()
    count = systemd.sd_listen_fds_with_names(0, ctypes.byref(names))
    if count < 0:
        sys.exit("sd_listen_fds: %d" % count)
    return [(names[i].decode(), 3 + i) for i in range(count)]


def contents(fd):
    return os.pread(fd, 4096, 0).decode()


def obey(words, kept):
    if words[0] == "keep":              # keep NAME TEXT: a new descriptor
        fd = os.memfd_create(words[1])
        os.write(fd, words[2].encode())
        notify("FDSTORE=1\nFDNAME=" + words[1], [fd])
        kept.append((words[1], fd))
    elif words[0] == "again":           # again NAME: one that is kept already
        notify("FDSTORE=1\nFDNAME=" + words[1], [dict(kept)[words[1]]])
    elif words[0] == "many":            # many COUNT NAME: one message
        fds = [os.memfd_create(words[2]) for _ in range(int(words[1]))]
        notify("FDSTORE=1\nFDNAME=" + words[2], fds)
        for fd in fds:
            os.close(fd)
    elif words[0] == "forget":
        notify("FDSTOREREMOVE=1\nFDNAME=" + words[1])
    elif words[0] == "say":
        notify(" ".join(words[1:]).replace("\\n", "\n"))
    elif words[0] == "exit":
        os._exit(int(words[1]))
    elif words[0] == "leave":           # a child that outlives this process, and that tries to speak for it
        if os.fork() == 0:
            os.setsid()
            notify("STATUS=from the child")
            signal.pause()
            os._exit(0)


def main():
    if "--fail" in sys.argv:
        sys.exit(3)
    fds = passed()
    kept = [(name, fd) for name, fd in fds if name != "orders"]
    print(json.dumps({"pid": os.getpid(), "passed": [[name, contents(fd) if name != "orders" else ""] for name, fd in fds]}),
          flush=True)
    orders = socket.socket(fileno=dict(fds)["orders"])
    if "--deaf" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    notify("READY=1\nSTATUS=serving")
    while True:
        connection, _ = orders.accept()
        with connection:
            line = connection.recv(4096).decode()
            obey(line.split(), kept)
            connection.sendall(b"done\n")


main()
