#!/usr/bin/env python3
"""flood.py PORT SOURCE COUNT KIND…: from the loopback address SOURCE holds COUNT connections to a port as one who means
harm, and opens a new one for each that is closed, for ever. KIND, in turn: silent; half (a record that never ends); slow (a byte now and then); starttls
(asks for TLS and goes silent); hello (begins TLS and goes silent). Prints "flooding" when it has begun."""
import errno
import selectors
import socket
import sys
import time

NULL_TLS = bytes.fromhex("80000028" "00000001" "00000000" "00000002" "20000f19" "00000001" "00000000" "00000007" "00000000"
                         "00000000" "00000000")
BEGINNING = {"silent": b"", "half": b"\x80\x00\x40\x00" + b"\0" * 1000, "slow": b"\x80", "starttls": NULL_TLS,
             "hello": NULL_TLS + b"\x16\x03\x01\x40\x00"}


class One:
    def __init__(self, source, address, kind):
        self.kind = kind
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.is_connected = False
        self.socket.setsockopt(socket.IPPROTO_IP, 24, 1)    # IP_BIND_ADDRESS_NO_PORT
        self.socket.bind((source, 0))
        error = self.socket.connect_ex(address)
        if error not in (0, errno.EINPROGRESS):
            raise OSError(error, "connect")


def main():
    address, source, count, kinds = ("127.0.0.1", int(sys.argv[1])), sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    selector, opened, said, slow = selectors.DefaultSelector(), 0, False, []
    while True:
        begin = time.monotonic()
        while len(selector.get_map()) < count and time.monotonic() - begin < 0.02:
            try:
                one = One(source, address, kinds[opened % len(kinds)])
            except OSError:
                break
            opened += 1
            selector.register(one.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, one)
        for key, events in selector.select(0.02):
            one = key.data
            try:
                if not one.is_connected and events & selectors.EVENT_WRITE:
                    one.is_connected = True
                    one.socket.send(BEGINNING[one.kind])
                    selector.modify(one.socket, selectors.EVENT_READ, one)
                    if one.kind == "slow":
                        slow.append(one)
                if events & selectors.EVENT_READ and not one.socket.recv(4096):
                    raise OSError("closed")
            except BlockingIOError:
                pass
            except OSError:
                selector.unregister(one.socket)
                one.socket.close()
        slow = [one for one in slow if one.socket.fileno() >= 0]
        for one in slow[:50]:
            try:
                one.socket.send(b"\0")
            except OSError:
                pass
        if not said and opened >= count:
            said = True
            print("flooding", flush=True)


main()
