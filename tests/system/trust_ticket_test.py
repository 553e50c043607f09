#!/usr/bin/env python3
"""Tickets before a node: forged, replayed, old, another's, altered. All are refused with a sentence or by closing the
connection, programs beside them go on, and nothing secret is in a log."""
import base64
import contextlib
import os
import sqlite3

import by_hand
import harness
from by_hand import Handshake, Program, Ticket, opaque, u32
from harness import expect, expect_equal, helper, lines, main, scenario, within
from trust import Watched


class Scene:
    """A system with two VMs that have an allocation each, a program that runs all the time, and its handshake."""

    def __init__(self, system):
        self.system = system
        for i in range(2):
            system.flytctl("vm", "add", system.vm_ip(i), "--sm", "8", "--memory", "128M", "--sessions", "8")
            result = system.run_in_vm(i, helper("echo"))
            expect_equal(result.status, 0, "a program of VM", i, result)
        self.up, self.down = system.recorded(0)
        self.handshake, _ = by_hand.parse_handshake(self.up[0])
        self.program = system.start_in_vm(0, helper("marker"), "wait")
        expect_equal(self.program.stdout.readline(), b"waiting\n", "the program beside", system.log("node-0")[-2000:])
        self.sessions = self.seen()

    def seen(self):
        return sorted(s["id"] for s in self.system.flytctl("sessions"))

    def attach(self, ticket, **fields):
        """The node's reply; None: the connection was closed."""
        program = Program(self.system.node_url)
        reply = program.attach(self.handshake.changed(**fields), ticket)
        program.close()
        return reply

    def denied(self, ticket, sentence, **fields):
        reply = self.attach(ticket, **fields)
        expect(reply is not None and reply.status == "DENIED" and sentence in reply.message, "expected DENIED with",
               repr(sentence), "got", reply)

    def end(self):
        """Nobody was harmed: the program ends well, further ones run."""
        within(20, lambda: self.seen() == self.sessions, "the sessions from before, and no others")
        expect_equal(self.system.supervisor.get("node-0")["starts"], 1, "starts of the node manager")
        self.program.stdin.close()
        self.program.stdin = None
        result = harness.finish(self.program)
        expect_equal((result.status, result.out.strip()), (0, "correct"), "the program beside", result)
        for i in range(2):
            result = self.system.run_in_vm(i, helper("echo"))
            expect_equal(result.status, 0, "a program afterwards", result)


@scenario
def tickets():
    with Watched(vms=2) as system:
        scene = Scene(system)
        good = system.forge(0)
        reply = scene.attach(good)
        expect(reply and reply.status == "OK", "the ticket that this test computes by itself", reply)
        within(20, lambda: scene.seen() == scene.sessions, "its session ends")
        other = system.allocation(1)
        with_wrong_key = Ticket(os.urandom(32), good.vm_ip, good.allocation, good.generation, good.key_number)
        scene.denied(with_wrong_key, "not one of this node's")
        # Good keys of one thing, used for another.
        scene.denied(good.changed(vm_ip=system.vm_ip(1)), "not one of this node's")
        scene.denied(good.changed(allocation=int(other["id"], 16)), "not one of this node's")
        scene.denied(good.changed(generation=good.generation + 1), "not one of this node's")
        # Whoever had the node's key once: what it says must still hold.
        scene.denied(system.forge(0, generation=good.generation + 1), "revoked")
        scene.denied(system.forge(0, generation=good.generation - 1 & 0xffffffff), "revoked")
        scene.denied(system.forge(0, allocation=int(other["id"], 16)), "another VM's")
        scene.denied(system.forge(0, allocation=12345), "not on this node")
        scene.denied(system.forge(0, key_number=good.key_number + 1), "earlier key")
        scene.denied(system.forge(1, vm_ip=system.vm_ip(0)), "another VM's")
        # No credentials, and none that one could read.
        for credentials, sentence in ((b"", "programs of VMs"), (b"x", "credentials"), (bytes(64), "credentials"),
                                      (good.credentials[:-1], "credentials"), (good.credentials + b"\0" * 4, "credentials"),
                                      (u32(1) + opaque("x" * 300) + bytes(24), "credentials")):
            program = Program(system.node_url)
            reply = program.attach(scene.handshake, good, credentials)
            expect(reply and reply.status == "DENIED" and sentence in reply.message, "credentials", credentials[:8], reply)
            program.close()
        scene.end()


@scenario
def replayed():
    """The bytes of a real handshake once more: the nonce is another."""
    with Watched(vms=2) as system:
        scene = Scene(system)
        for _ in range(3):
            program = Program(system.node_url)
            program.send(by_hand.mark(scene.up[0]))
            challenge = by_hand.Reply(by_hand.read_answer(program.record()).body)
            expect_equal(challenge.status, "CHALLENGE", "the first answer")
            old = by_hand.Reply(by_hand.read_answer(scene.down[0]).body)
            expect(challenge.challenge != old.challenge, "a nonce is used twice")
            program.send(by_hand.mark(scene.up[1]))
            reply = by_hand.Reply(by_hand.read_answer(program.record()).body)
            expect_equal(reply.status, "DENIED", "a replayed proof", reply)
            expect(by_hand.wait_closed(program), "the connection afterwards")
        # All of it at once, and what followed.
        program = Program(system.node_url)
        program.send(b"".join(by_hand.mark(record) for record in scene.up))
        expect(by_hand.Reply(by_hand.read_answer(program.record()).body).status == "CHALLENGE", "the first answer")
        try:
            reply = by_hand.Reply(by_hand.read_answer(program.record()).body)
            expect_equal(reply.status, "DENIED", "a replayed session", reply)
        except ConnectionError:
            pass
        expect(by_hand.wait_closed(program), "the connection afterwards")
        scene.end()


@scenario
def altered():
    """The second handshake differs from the first in any field; the proof is of another record; proofs without end."""
    with Watched(vms=2) as system:
        scene = Scene(system)
        good = system.forge(0)
        first = scene.handshake.changed(credentials=good.credentials)
        changes = {"base_hash": os.urandom(32), "procedures": [(16, 1)], "rows": os.urandom(32), "build": "another", "cuda": 12000, "pid": 1,
                   "program": "another", "kind": 1, "token": os.urandom(32),
                   "credentials": good.changed(program=1).credentials}
        for field, value in changes.items():
            program = Program(system.node_url)
            reply = program.handshake(first)
            expect_equal(reply.status, "CHALLENGE", "the first answer", reply)
            record = program.sent
            reply = program.handshake(first.changed(**{field: value}), good.proof(reply.challenge, record))
            expect(reply is None or reply.status == "DENIED", "the second handshake with another", field, reply)
            expect(by_hand.wait_closed(program), "the connection afterwards")
            program.close()
        wrong = [lambda nonce, record: good.proof(nonce, record + b"\0"), lambda nonce, record: good.proof(nonce[::-1], record),
                 lambda nonce, record: good.proof(nonce, record)[:-1], lambda nonce, record: good.proof(nonce, record) * 2,
                 lambda nonce, record: b"", lambda nonce, record: bytes(32)]
        for i, proof in enumerate(wrong):
            program = Program(system.node_url)
            reply = program.handshake(first)
            reply = program.handshake(first, proof(reply.challenge, program.sent))
            expect(reply is None or reply.status == "DENIED", "wrong proof", i, reply)
            expect(by_hand.wait_closed(program), "the connection afterwards")
        # Answered twice: the second time it is a call of the session, which ends with it.
        program = Program(system.node_url)
        reply = program.handshake(first)
        proof = good.proof(reply.challenge, program.sent)
        reply = program.handshake(first, proof)
        expect_equal(reply.status, "OK", "the proof", reply)
        program.handshake(first, proof)
        expect(by_hand.wait_closed(program), "a session whose handshake came once more")
        program.close()
        scene.end()


@scenario
def data_streams():
    """A further stream needs its own proof and its own VM's session."""
    with Watched(vms=2) as system:
        scene = Scene(system)
        mine = Program(system.node_url)
        reply = mine.attach(scene.handshake, system.forge(0))
        expect_equal(reply.status, "OK", "a session", reply)
        kind = dict(kind=1, token=reply.token)
        for what, ticket, fields in (("another VM's credentials", system.forge(1), kind),
                                     ("no such session", system.forge(0), dict(kind=1, token=os.urandom(32))),
                                     ("an empty token", system.forge(0), dict(kind=1, token=b"")),
                                     ("a cut token", system.forge(0), dict(kind=1, token=reply.token[:31]))):
            answer = scene.attach(ticket, **fields)
            expect(answer is None or answer.status in ("NO_SESSION", "DENIED"), what, answer)
        forged = Ticket(os.urandom(32), **{k: v for k, v in vars(system.forge(0)).items() if k not in ("key", "program")})
        scene.denied(forged, "not one of this node's", **kind)
        program = Program(system.node_url)
        answer = program.handshake(scene.handshake.changed(credentials=b"", **kind))
        expect(answer and answer.status == "DENIED", "a stream without credentials", answer)
        expect(mine.is_open(), "the session's own connection")
        mine.close()
        scene.end()


@scenario
def nothing_secret_in_logs():
    """With everything logged: no key, no secret, no token, no proof, in any spelling."""
    with Watched(vms=2, env=harness.environment(FLYT_LOG="trace")) as system:
        scene = Scene(system)
        token = system.token("viewer", "guest")
        good = system.forge(0)
        scene.denied(Ticket(os.urandom(32), good.vm_ip, good.allocation, good.generation, good.key_number), "not one of")
        _, proof = by_hand.parse_handshake(scene.up[1])
        reply = by_hand.Reply(by_hand.read_answer(scene.down[1]).body)
        expect_equal((len(proof), len(reply.token), reply.status), (32, 32, "OK"), "what was recorded")
        secrets = {"node key": system.node_key(), "ticket key": good.key, "session token": reply.token, "proof": proof,
                   "program secret": by_hand.mac(good.key, b"flyt program" + by_hand.u64(good.program)),
                   "join token": base64.urlsafe_b64decode(token[-43:] + "=")}
        scene.end()
        logs = system.logs()
        expect(len(lines(logs)) > 60, "the logs are not those of FLYT_LOG=trace", len(lines(logs)))
        for name, secret in secrets.items():
            for spelled in (secret.hex(), secret.hex().upper(), base64.b64encode(secret).decode(),
                            base64.urlsafe_b64encode(secret).decode().rstrip("="), secret.hex()[:24]):
                expect(spelled not in logs, "the", name, "is in a log")
        said = str(system.flytctl("events"))
        expect(not [name for name, secret in secrets.items() if secret.hex() in said], "a secret is in an event")


@scenario
def removed_while_nobody_looks():
    """A VM's record is removed by hand while no cluster manager runs: the next one makes its tickets worthless. Its running
    sessions stay, and may still open data streams, with their own token and none else."""
    with Watched(vms=2) as system:
        scene = Scene(system)
        old = [system.forge(i) for i in range(2)]
        session = Program(system.node_url)
        reply = session.attach(scene.handshake, old[0])
        expect_equal(reply.status, "OK", "a session", reply)
        before = [system.allocation(i) for i in range(2)]
        system.supervisor.stop("cluster")
        with contextlib.closing(sqlite3.connect(system.path("cluster", "cluster.db"))) as database, database:
            removed = database.execute("DELETE FROM documents WHERE collection='members' AND id=?",
                                       ("vm:" + system.vm_ip(0),)).rowcount
        expect_equal(removed, 1, "records that were removed")
        system.restart("cluster")
        within(30, lambda: system.allocation(0)["generation"] > before[0]["generation"], "its generation is raised")
        within(30, lambda: "revoked" in str(scene.attach(old[0])), "the node refuses its tickets")
        event = system.event("member.revoked", "no record")
        expect_equal(event["object"], "vm:" + system.vm_ip(0), "the event's object")
        within(30, lambda: not [v for v in system.flytctl("vms") if v["vm_ip"] == system.vm_ip(0) and v["connected"]],
               "its client manager is not let in")
        expect_equal(system.allocation(1)["generation"], before[1]["generation"], "the generation of another VM")
        expect_equal(scene.attach(old[1]).status, "OK", "another VM's ticket")
        expect_equal(session.call(0).state, "done", "the running session")
        data = {"kind": 1, "token": reply.token}
        expect_equal(scene.attach(old[0], **data).status, "OK", "a further data stream of the running session")
        expect_equal(scene.attach(old[0], kind=1, token=os.urandom(len(reply.token))).status, "NO_SESSION", "another token")
        expect_equal(scene.attach(old[1], **data).status, "NO_SESSION", "another VM's ticket with this session's token")
        forged = Ticket(os.urandom(32), *(getattr(old[0], f) for f in ("vm_ip", "allocation", "generation", "key_number")))
        scene.denied(forged, "not one of this node's", **data)
        session.close()
        result = system.run_in_vm(1, helper("echo"))
        expect_equal(result.status, 0, "a program of another VM", result)
        scene.program.stdin.close()
        scene.program.stdin = None
        result = harness.finish(scene.program)
        expect_equal((result.status, result.out.strip()), (0, "correct"), "the program beside", result)


if __name__ == "__main__":
    main()
