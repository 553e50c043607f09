#!/usr/bin/env python3
"""The database of several cluster managers (several.py) is paused, steps down or goes, and documents are changed in it by
hand."""
import signal
import time

from harness import expect, expect_equal, helper, main, scenario, within
from several import REAL, Several, add, begins, ends, runs

GIB = 1 << 30


@scenario
def database_goes():
    """Paused, stepped down, gone, and back: programs go on, and what cannot be recorded is refused with a sentence."""
    if REAL:
        print("    left out: it is not this test's to pause the server of FLYT_TEST_MONGODB_URI")
        return
    with Several(managers=2, vms=3) as system:
        for i in range(2):
            add(system, i)
        add(system, 2, sm=16)
        program = begins(system, 0)
        runs(system, 1, "a program")
        faults = {"paused": (system.mongod.pause, system.mongod.resume),
                  "stepped down": (lambda: system.mongod.say("step_down"), lambda: system.mongod.say("step_up")),
                  "gone": (lambda: system.mongod.say("down"), lambda: system.mongod.say("up"))}
        for name, (begin, end) in faults.items():
            before = system.granted()
            begin()
            try:
                within(30, lambda: not system.leader_now(), "nobody leads without a store, " + name)
                runs(system, 1, "a program of a VM that has its grant, the database is " + name)
                if name == "paused":
                    late = system.run_in_vm(2, helper("echo"))
                    expect(late.status != 0 and len(late.err.splitlines()) == 1, "a VM that has nothing yet", late)
                expect_equal(program.poll(), None, "the running program, the database is " + name)
            finally:
                end()
            system.leader()
            system.wait_registered()
            expect_equal(system.granted(), before, "allocations after the database was", name)
            runs(system, 1, "a program after the database was " + name)
        runs(system, 2, "the VM that had nothing")
        ends(program, "the program that ran all the time")
        for name in system.daemons():
            expect_equal(system.supervisor.get(name)["starts"], 1, "starts of", name)


@scenario
def documents_by_hand():
    """Inserted, changed and deleted in the database; two of one VM and malformed ones are named and change nothing."""
    with Several(managers=2, vms=2) as system:
        first, second = system.vm_ip(0), system.vm_ip(1)
        collection = "vm_required_resources"
        system.by_hand("insert", collection, {"vm_ip": first, "compute_units": 16, "memory": 0.125})
        within(20, lambda: [v for v in system.flytctl("vms") if v["vm_ip"] == first and v["sms"] == 16],
               "the inserted document")
        program = begins(system, 0)
        row = [a for a in system.flytctl("allocations") if a["vm_ip"] == first][0]
        expect_equal((row["sms"], row["memory_bytes"]), (16, GIB // 8), "what it got")
        system.by_hand("update", collection, {"vm_ip": first}, {"$set": {"compute_units": 8, "memory": 0.25}})
        within(20, lambda: [(a["sms"], a["memory_now_bytes"]) for a in system.flytctl("allocations")] == [(8, GIB // 4)],
               "the changed document takes hold")
        before = system.granted()
        # Contradicting and malformed ones.
        bad = [{"vm_ip": second, "compute_units": 8, "memory": 0.125}, {"vm_ip": second, "compute_units": 24, "memory": 1}]
        for attempt in range(5):
            system.by_hand("insert", collection, *[dict(d) for d in bad])
            system.event("document.doubled", second, "neither")
            # A reading between the two has seen a good document: then it counts, and they are put there once more.
            if not [v for v in system.flytctl("vms") if v["vm_ip"] == second and v["sms"]]:
                break
            system.by_hand("delete", collection, {"vm_ip": second})
            within(20, lambda: not [v for v in system.flytctl("vms") if v["vm_ip"] == second and v["sms"]], "both gone")
        event = system.event("document.doubled", second, "neither")
        expect_equal(event["object"], second, "the event's object")
        result = system.run_in_vm(1, helper("echo"))
        expect(result.status != 0 and len(result.err.splitlines()) == 1, "a program of that VM", result)
        shapes = [{"_id": "no-vm", "compute_units": 8, "memory": 1}, {"_id": "text", "vm_ip": "10.9.0.1",
                  "compute_units": "eight", "memory": 1}, {"_id": "negative", "vm_ip": "10.9.0.2", "compute_units": -8,
                  "memory": 1}, {"_id": "no-memory", "vm_ip": "10.9.0.3", "compute_units": 8},
                  {"_id": "array", "vm_ip": ["10.9.0.4"], "compute_units": 8, "memory": 1},
                  {"_id": "huge", "vm_ip": "10.9.0.5", "compute_units": 8, "memory": 1e300}]
        system.by_hand("insert", collection, *shapes)
        for shape in shapes:
            within(20, lambda: [e for e in system.flytctl("events") if shape["_id"] in e["object"] + e["text"] or
                                isinstance(shape.get("vm_ip"), str) and shape["vm_ip"] in e["object"] + e["text"]],
                   "an event that names %s, of %s" % (shape, [e["text"] for e in system.events("document.malformed")]))
        expect_equal(system.granted(), before, "allocations")
        # Repaired: one of the two goes.
        system.by_hand("delete", collection, {"vm_ip": second, "compute_units": 24})
        within(20, lambda: [v for v in system.flytctl("vms") if v["vm_ip"] == second and v["sms"] == 8], "the one left")
        runs(system, 1, "a program of the VM whose documents agree")
        # Deleted: new programs are refused, the running one goes on; all that over a takeover too.
        system.by_hand("delete", collection, {"vm_ip": first})
        within(20, lambda: [a["state"] for a in system.flytctl("allocations") if a["vm_ip"] == first] == ["blocked"],
               "the deleted document's allocation is blocked")
        result = system.run_in_vm(0, helper("echo"))
        expect(result.status != 0 and len(result.err.splitlines()) == 1, "a new program of a deleted VM", result)
        since, old = time.monotonic(), system.leader()
        system.supervisor.signal(old, signal.SIGKILL)
        system.taken_over(old, since)
        system.wait_registered()
        result = system.run_in_vm(0, helper("echo"))
        expect(result.status != 0, "a new program of a deleted VM, after a takeover", result)
        ends(program, "the deleted VM's running program")


@scenario
def slow_reading():
    """The store's thread reads for longer than a lease lasts, again and again: the leader goes on leading."""
    if REAL:
        print("    left out: it is not this test's to slow the server of FLYT_TEST_MONGODB_URI down")
        return
    with Several(managers=2, vms=1, manager={"lease_s": 16.0, "store_timeout_s": 12.0}) as system:
        add(system, 0)
        runs(system, 0, "a program")
        leader = system.leader()
        epoch = system.hello_of(system.number(leader))[1]
        # Each of the two is shorter than store_timeout_s, and both together longer than lease_s.
        for collection in ("vm_required_resources", "tenants"):
            system.mongod.say("slow %s 8500" % collection)
        begin = int(system.mongod.ask("finds vm_required_resources"))
        program = begins(system, 0)
        within(120, lambda: int(system.mongod.ask("finds vm_required_resources")) >= begin + 2, "two slow readings")
        expect_equal(system.leader_now(), leader, "who leads")
        expect_equal(system.hello_of(system.number(leader))[1], epoch, "the epoch")
        ends(program, "the program that ran meanwhile")


@scenario
def gpus_by_hand():
    """What people did to a GPU's document does not keep a new leader from raising its epoch and knowing what is given."""
    with Several(managers=2, vms=2) as system:
        for i in range(2):
            add(system, i)
        program = begins(system, 0)
        before, old = system.granted(), system.leader()
        epoch = system.hello_of(system.number(old))[1]
        expect(before, "something is given")
        system.supervisor.signal(old, signal.SIGKILL)
        since = time.monotonic()
        document = system.by_hand("find", "gpus")[0]
        system.by_hand("update", "gpus", {"_id": document["_id"]}, {"$set": {"epoch": "high"}, "$unset": {"revision": 1}})
        system.taken_over(old, since)
        system.wait_registered()
        expect_equal(system.granted(), before, "allocations")
        for document in system.by_hand("find", "gpus"):
            expect(document["epoch"] > epoch and document["revision"] > 0, "the document of a GPU", document)
        runs(system, 1, "a program after the takeover")
        ends(program, "the program that ran all the time")


if __name__ == "__main__":
    main()
