#!/usr/bin/env python3
"""flood_known.py PORT SOURCE COUNT AUTHORITY CERTIFICATE KEY VM_IP: from the loopback address SOURCE holds as many connections
of one VM's certificate to a cluster manager as it is let, COUNT at most, every second one with HELLO, and opens new ones for
ever. Prints "flooding" when it has opened COUNT, and "NUMBER" of those that it has opened when it is told to end."""
import contextlib
import os
import select
import signal
import socket
import ssl
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import by_hand  # noqa: E402
from by_hand import HELLO, KINDS, PROTOCOL, opaque, u32  # noqa: E402


def open_one(port, source, context, vm_ip, says_hello):
    connection = socket.create_connection(("127.0.0.1", port), 10, (source, 0))
    connection.sendall(by_hand.mark(by_hand.call_head(1, by_hand.CONTROL, 0, by_hand.AUTH_TLS)))
    answer = b""
    while len(answer) < 36:
        part = connection.recv(36 - len(answer))
        if not part:
            raise ConnectionError
        answer += part
    connection = context.wrap_socket(connection)
    if says_hello:
        connection.sendall(by_hand.mark(by_hand.call_head(2, by_hand.CONTROL, HELLO) + u32(PROTOCOL) + opaque("flood") +
                                        u32(KINDS["vm"]) + opaque(vm_ip) + os.urandom(16)))
    connection.setblocking(False)
    return connection


def main():
    port, source, count, (authority, certificate, key, vm_ip) = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.set_alpn_protocols(["sunrpc"])
    context.load_verify_locations(authority)
    context.load_cert_chain(certificate, key)
    held, opened, told = [], 0, []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    while not told:
        with contextlib.suppress(OSError):
            held.append(open_one(port, source, context, vm_ip, opened % 2))
        opened += 1
        if opened == count:
            print("flooding", flush=True)
        poll = select.poll()
        for one in held:
            poll.register(one, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(0)}
        for one in [one for one in held if one.fileno() in ready]:
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                try:
                    if one.recv(4096):
                        continue
                except ssl.SSLWantReadError:
                    continue
                except OSError:
                    pass
                held.remove(one)
                one.close()
        while len(held) >= count:
            held.pop(0).close()
    print(opened, flush=True)


main()
