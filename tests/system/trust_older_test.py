#!/usr/bin/env python3
"""Clients of other builds at a newer node, through the node manager: a client that lacks procedures or means others by
their numbers, and one whose handshake has no late fields."""
import by_hand
from by_hand import Program, u32
from harness import app, expect, expect_equal, helper, lines, main, scenario, within
from steady import Steady
from trust import Watched


def allow(system):
    system.flytctl("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", "64M", "--sessions", "8")
    result = system.run_in_vm(0, helper("echo"))
    expect_equal(result.status, 0, "a program of this build", result)
    own = by_hand.parse_handshake(system.recorded(0)[0][0])[0]
    return own.changed(procedures=by_hand.procedures_of(own), rows=b"")


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
        first = own.changed(credentials=ticket.credentials, features=b"")
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


@scenario
def without_grants():
    """A client that does not say that it heeds grants is told no window of data that it may send; another one is."""
    with Watched() as system:
        own = allow(system)
        for features, window in ((b"", 0), (by_hand.u64(2), 0), (b"odd", 0), (by_hand.u64(1), 32 << 20),
                                 (own.features, 32 << 20)):
            program = Program(system.node_url)
            reply = program.attach(own.changed(features=features), system.forge(0))
            expect(reply is not None and reply.status == "OK", "features", features, reply)
            expect_equal(int.from_bytes(reply.window, "big"), window, "window with features", features)
            expect_equal(program.call(0).state, "done", "the null call")
            program.close()
        within(20, lambda: not system.flytctl("sessions"), "their sessions end")


NOT_SUPPORTED = 801      # cudaErrorNotSupported
LACKING = ("event_elapsed", "kernel_cluster_occupancy", "kernel_available_shared", "profiler_set")


def calls_of(codes):
    """What programs/rows.cu prints where its calls give these codes."""
    return ["right"] * 2 + ["%s %d" % pair for pair in zip(LACKING, codes)] + ["right"] * 2


@scenario
def an_older_library():
    """Programs of today with the client library of an older build (older_tables.py), through client manager and node: they
    work; what the library lacks, or has otherwise, is not supported, said once, and harms nothing; nor does it take the
    node for another's."""
    with Watched(vms=2) as system:
        for i in range(2):
            system.flytctl("vm", "add", system.vm_ip(i), "--sm", "8", "--memory", "128M", "--sessions", "4")
        result = system.run_in_vm(0, helper("rows"))
        expect_equal((result.status, lines(result.out), result.err), (0, calls_of([0] * 4), ""), "the library of today")
        own, _ = by_hand.parse_handshake(system.recorded(0)[0][0])
        expect_equal(own.procedures, [], "a list beside the hash over all rows")
        today = dict(by_hand.procedures_of(own))
        older = {"FLYT_LIB_DIR": helper("older/lib")}
        first = len(system.relay.connections)
        result = system.run_in_vm(0, helper("rows"), **older)
        expect_equal((result.status, lines(result.out)), (0, calls_of([NOT_SUPPORTED] * 4)), "the older library", result)
        for name in LACKING:
            expect_equal(len([line for line in lines(result.err) if name in line]), 1, "lines about", name, result)
        # It was an older one: fewer rows, one that is there no more, one that was another, and its name.
        theirs = by_hand.parse_handshake(system.recorded(first)[0][2])[0]
        expect_equal(theirs.build, "an-older-build", "what it says it is")
        expect_equal(theirs.base_hash, own.base_hash, "the base protocol")
        lacked = set(today) - {p for p, _ in theirs.procedures}
        expect_equal((len(lacked), [p for p, _ in theirs.procedures if p not in today]), (13, [65000]),
                     "rows that it lacks, and those that were given up")
        expect_equal(len([p for p, s in theirs.procedures if today.get(p, s) != s]), 1, "rows that differ")
        # Libraries of both builds beside each other on one node, in one VM and in two, and what they may hold.
        programs = [Steady(system, i, FLYT_LIB_DIR=path) for i in range(2)
                    for path in (older["FLYT_LIB_DIR"], system.env["FLYT_LIB_DIR"])]
        for program in programs:
            program.takes(32)
        for program in programs:
            program.goes_on()
            expect_equal(program.total(), 128, "MiB")
        system.flytctl("resize", system.vm_ip(0), "--memory", "160M", "--sm", "16")
        # Properties are asked for again when the news has reached the program.
        within(20, lambda: [program.ask("device") for program in programs] == [[160, 16]] * 2 + [[128, 8]] * 2,
               "all programs see the resize")
        system.kill("node-0")
        for program in programs:
            program.goes_on()
            program.ends_right()
        for name in ("launch", "memory_async"):
            result = system.run_in_vm(0, app(name), **older)
            expect_equal(result.status, 0, name, result)
        within(20, lambda: not system.flytctl("sessions"), "their sessions end")


if __name__ == "__main__":
    main()
