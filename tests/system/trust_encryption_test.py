#!/usr/bin/env python3
"""Encrypted channels, seen from the wire: after the handshake there is TLS 1.3 and nothing else, a changed bit ends the
session and nothing more, and nobody talks the node out of it."""
import harness
import by_hand
from by_hand import Program
from harness import expect, expect_equal, finish, helper, lines, main, scenario, within
from trust import Watched

MARKERS = [b"flyt-marker-on-the-wire.", bytes(b + 1 for b in b"flyt-marker-on-the-wire.")]
PROGRAM_NUMBER = by_hand.u32(by_hand.DATA) + by_hand.u32(1)


def encrypted(**options):
    return Watched(cluster={"encrypted": True}, **options)


def allow(system, i=0):
    system.flytctl("vm", "add", system.vm_ip(i), "--sm", "8", "--memory", "64M")


def behind_handshake(stream, records):
    """The bytes of one direction behind so many records, as TLS records: [(type, length)]; a failure where they are
    something else."""
    data = bytes(stream)
    for _ in range(records):
        length = int.from_bytes(data[:4], "big") & 0x7fffffff
        data = data[4 + length:]
    found = []
    while data:
        expect(len(data) >= 5 and data[0] in (20, 21, 22, 23) and data[1] == 3 and data[2] in (1, 3),
               "no TLS record but", data[:16].hex(), "behind", found[-3:])
        length = int.from_bytes(data[3:5], "big")
        expect(length <= 16384 + 256, "a record of", length)
        found.append((data[0], length))
        data = data[5 + length:]        # the last one may have been cut by the end
    return found


@scenario
def wire():
    """In clear the program's data can be found; encrypted, neither it nor any call."""
    for is_encrypted in (False, True):
        with Watched(cluster={"encrypted": is_encrypted}) as system:
            allow(system)
            program = system.start_in_vm(0, helper("marker"), "wait")
            expect_equal(program.stdout.readline(), b"waiting\n", "the program", system.log("node-0")[-2000:])
            shown = within(20, lambda: system.flytctl("sessions"), "the session")
            expect_equal([s["encrypted"] for s in shown], [is_encrypted], "what flytctl says")
            program.stdin.close()
            program.stdin = None
            result = finish(program)
            expect_equal((result.status, result.out.strip()), (0, "correct"), "the program", result)
            wire = system.relay.everything()
            expect(len(wire) > 8 << 20, "bytes that passed:", len(wire))
            for marker in MARKERS:
                expect_equal(marker in wire, not is_encrypted, "the program's data on the wire")
            expect_equal(b"succeed" in wire, False if is_encrypted else b"succeed" in wire, "the kernel's name")
            calls = wire.count(PROGRAM_NUMBER)
            connections = len(system.relay.connections)
            if not is_encrypted:
                expect(calls > 2 * connections + 5, "calls in clear", calls)
                continue
            expect_equal(calls, 2 * connections, "calls on the wire: two handshakes of each connection")
            for seen in system.relay.connections:
                up, down = behind_handshake(seen["up"], 2), behind_handshake(seen["down"], 1)
                expect(up and down and up[0][0] == 22 and down[0][0] == 22, "TLS begins with a handshake", up[:3], down[:3])
                expect(any(kind == 23 for kind, _ in up), "application data")


def flipper(direction, after, relay_of):
    """Changes one bit of the first bytes behind so many of a direction, once."""
    state = {"bytes": 0, "done": False}

    def change(to, data):
        if to != direction or state["done"]:
            return data
        state["bytes"] += len(data)
        if state["bytes"] < after or len(data) < 64:
            return data
        state["done"] = True
        at = len(data) - 20
        return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1:]
    change.state = state
    return change


@scenario
def changed_bits():
    """Early and late, in both directions: the program's error is the lost connection's, others are not disturbed."""
    changes = []
    with encrypted(vms=2, change=lambda to, data: changes[-1](to, data) if changes else data) as system:
        allow(system)
        allow(system, 1)
        result = system.run_in_vm(0, helper("marker"))
        expect_equal(result.status, 0, "a program", result)
        beside = system.start_in_vm(1, helper("marker"), "wait")
        expect_equal(beside.stdout.readline(), b"waiting\n", "the program beside")
        for direction, after in (("up", 200000), ("up", 2 << 20), ("down", 1 << 20)):
            changes.append(flipper(direction, after, system))
            result = system.run_in_vm(0, helper("marker"))
            expect(changes[-1].state["done"], "nothing was changed", direction, after)
            changes.append(lambda to, data: data)
            expect(result.status == 1 and "correct" not in result.out, "a program whose bytes were changed", result)
            expect(len(lines(result.err)) >= 1 and "flyt" in result.err, "its words", result)
            within(20, lambda: len(system.flytctl("sessions")) == 1, "its session ends")
            result = system.run_in_vm(0, helper("marker"))
            expect_equal((result.status, result.out.strip()), (0, "correct"), "the next program", result)
        expect_equal(system.supervisor.get("node-0")["starts"], 1, "starts of the node manager")
        beside.stdin.close()
        beside.stdin = None
        result = finish(beside)
        expect_equal((result.status, result.out.strip()), (0, "correct"), "the program beside", result)


@scenario
def no_way_around():
    """Who has proved his ticket and goes on in clear, or with another key, is cut off; before the proof nothing changes."""
    with encrypted() as system:
        allow(system)
        expect_equal(system.run_in_vm(0, helper("echo")).status, 0, "a program")
        handshake, _ = by_hand.parse_handshake(system.recorded(0)[0][0])
        garbage = [by_hand.mark(by_hand.call_head(9, by_hand.DATA, 0)), by_hand.mark(by_hand.call_head(9, by_hand.DATA, 2)),
                   b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", bytes(4096), b"\x17\x03\x03\x40\x00" + bytes(16384)]
        for said in garbage:
            program = Program(system.node_url)
            credentials = system.forge(0)
            first = handshake.changed(credentials=credentials.credentials)
            reply = program.handshake(first)
            expect_equal(reply.status, "CHALLENGE", "the first answer", reply)
            program.send(by_hand.mark(by_hand.call_head(program.xid + 1, by_hand.DATA, 1) + first.bytes(
                credentials.proof(reply.challenge, program.sent))))
            program.send(said)
            got = b""
            try:
                while len(got) < 65536:
                    chunk = program.socket.recv(65536)
                    if not chunk:
                        break
                    got += chunk
            except ConnectionError:
                pass
            # A TLS alert is all that may come; no reply of RPC.
            expect(not got or got[0] in (21, 22), "an answer in clear to", said[:8], ":", got[:32].hex())
            program.close()
        within(30, lambda: not system.flytctl("sessions"), "no session stays")
        expect_equal(system.run_in_vm(0, helper("echo")).status, 0, "a program afterwards")
        expect_equal(system.supervisor.get("node-0")["starts"], 1, "starts of the node manager")


if __name__ == "__main__":
    main()
