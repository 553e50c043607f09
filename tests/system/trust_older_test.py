#!/usr/bin/env python3
"""Clients of other builds at a newer node, through the node manager: a client that lacks procedures or means others by
their numbers, and one whose handshake has no late fields."""
import by_hand
from by_hand import Program, u32
from harness import expect, expect_equal, helper, main, scenario, within
from trust import Watched


def allow(system):
    system.flytctl("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", "64M", "--sessions", "8")
    result = system.run_in_vm(0, helper("echo"))
    expect_equal(result.status, 0, "a program of this build", result)
    return by_hand.parse_handshake(system.recorded(0)[0][0])[0]


@scenario
def fewer_procedures():
    """Rows that the client lacks, or has with another signature, are not accepted; the others are, and work."""
    with Watched() as system:
        own = allow(system)
        count = len(own.procedures)
        expect(count > 20, "procedures of this build", count)
        lacking = own.procedures[::3]
        changed = [(p, s ^ (1 if i == 7 else 0)) for i, (p, s) in enumerate(own.procedures)]
        unknown = own.procedures + [(own.procedures[-1][0] + 1000 + i, i) for i in range(5)]
        for what, procedures, accepted in (
                ("a third of the rows", lacking, {p for p, _ in lacking}),
                ("a changed signature", changed, {p for p, _ in own.procedures} - {own.procedures[7][0]}),
                ("rows that the node lacks", unknown, {p for p, _ in own.procedures}), ("no row", [], set())):
            program = Program(system.node_url)
            reply = program.attach(own.changed(procedures=procedures, build="an older build"), system.forge(0))
            expect(reply is not None and reply.status == "OK", what, reply)
            expect_equal(set(reply.accepted), accepted, "accepted with", what)
            # The session works: the null call, and the question that anybody may ask.
            for procedure in (0, 2):
                answer = program.call(procedure)
                expect_equal(answer.state, "done", "procedure", procedure, "with", what, answer)
            program.close()
        within(20, lambda: not system.flytctl("sessions"), "their sessions end")
        result = system.run_in_vm(0, helper("echo"))
        expect_equal(result.status, 0, "a program of this build afterwards", result)


@scenario
def another_base():
    """A different base protocol: a sentence that says which side is older, and no session."""
    with Watched() as system:
        own = allow(system)
        program = Program(system.node_url)
        reply = program.attach(own.changed(base_hash=bytes(32), build="0.0.1-ancient"), system.forge(0))
        expect(reply is not None and reply.status == "BASE_DIFFERS", "another base", reply)
        expect("0.0.1-ancient" in reply.message, "what it says:", reply.message)
        program.close()
        within(20, lambda: not system.flytctl("sessions"), "no session")


@scenario
def without_late_fields():
    """A record that ends before the fields that were added: refused where a proof is wanted, taken where it is not in the
    first record; and one with fields of the future behind those that are known."""
    with Watched() as system:
        own = allow(system)
        ticket = system.forge(0)
        first = own.changed(credentials=ticket.credentials)
        program = Program(system.node_url)
        reply = program.handshake(first, None)
        expect_equal(reply.status, "CHALLENGE", "a first record without the late fields", reply)
        proof = ticket.proof(reply.challenge, program.sent)
        expect_equal(program.handshake(first, proof).status, "OK", "the proof of such a record")
        program.close()
        # No proof at all, as a client would that knows no challenges.
        program = Program(system.node_url)
        expect_equal(program.handshake(first, None).status, "CHALLENGE", "the first answer")
        again = program.handshake(first, None)
        expect(again is None or again.status == "DENIED", "no proof", again)
        program.close()
        # Of the future.
        program = Program(system.node_url)

        class Newer(by_hand.Handshake):
            def bytes(self, proof=None):
                return super().bytes(proof) + by_hand.opaque(b"a field of the future") + u32(7)
        newer = Newer(**vars(first))
        reply = program.handshake(newer)
        expect_equal(reply.status, "CHALLENGE", "a record with more fields", reply)
        reply = program.handshake(newer, ticket.proof(reply.challenge, program.sent))
        expect_equal(reply.status, "OK", "its proof", reply)
        expect_equal(program.call(0).state, "done", "the null call")
        program.close()
        within(20, lambda: not system.flytctl("sessions"), "their sessions end")


if __name__ == "__main__":
    main()
