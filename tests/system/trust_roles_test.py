#!/usr/bin/env python3
"""Who may call what: every procedure of the cluster manager, called as everybody; a VM sees and changes itself alone, a
viewer changes nothing, and one identity has one holder."""
import os
import re

import by_hand
import harness
from by_hand import array, opaque, u32, u64
from harness import expect, expect_equal, helper, main, scenario, within
from trust import Trusted

EVERYBODY = {"anonymous", "node", "vm", "operator", "viewer"}
NUMBER, TEXT, NAMES = u32(0) + u64(0), u32(0) + opaque(""), u32(0) + array()
NOBODY = "no-such-thing"

# Name: number, arguments that harm nothing where they are let through, and who may call it: what each is for, not what
# the code says.
PROCEDURES = {
    "NULL": (0, b"", EVERYBODY),
    "HELLO": (1, None, EVERYBODY),
    "ENROL": (2, opaque("flyt1.nothing") + opaque(b"nothing"), EVERYBODY),
    "NODE_REGISTER": (10, None, {"node"}),
    "NODE_HEARTBEAT": (11, u64(1) + array() * 3, {"node"}),
    "NODE_EVENT": (12, u64(0) + u64(0) + opaque("test.event") + opaque("") * 2 + opaque("by hand") + opaque("") * 2,
                   {"node"}),
    "NODE_NEEDS": (13, array(), {"node"}),
    "NODE_MIGRATION": (14, u64(1) + u64(1) + u32(1) + u32(0) + opaque("") + u32(0) * 2 + u64(0) * 8, {"node"}),
    "NODE_DRIVER": (15, opaque("") + u32(0), {"node"}),
    "NODE_LIBRARIES": (16, array() * 2, {"node"}),
    "VM_ATTACH": (20, u32(0), {"vm"}),
    "VM_REPORT": (21, u32(0), {"vm"}),
    "VM_USAGE": (22, b"", {"vm"}),
    "VM_MEMORY": (23, opaque("it is slow"), {"vm"}),
    "VIEW": (30, opaque("nodes") + opaque("") + u64(0) + u32(0), {"operator", "viewer"}),
    "VM_SET": (31, u32(1) + opaque(NOBODY) + TEXT * 3 + NUMBER * 5 + TEXT * 2 + NAMES * 4 + NUMBER * 4 + TEXT +
               NUMBER + TEXT + NAMES, {"operator"}),
    "VM_REMOVE": (32, opaque(NOBODY) + u32(0), {"operator"}),
    "TENANT_SET": (33, opaque(NOBODY) + NUMBER * 4 + u32(1), {"operator"}),
    "RESIZE": (34, opaque(NOBODY) + NUMBER * 7 + u32(0) * 2 + u32(0), {"operator"}),
    "SCHEDULE": (35, u32(1) + opaque(NOBODY) + u32(0), {"operator"}),
    "GPU_SET": (36, opaque(NOBODY) + u32(8), {"operator"}),
    "ALLOCATION": (37, u64(1) + u32(2), {"operator"}),
    "NODE_FENCE": (38, opaque(NOBODY) + u32(1), {"operator"}),
    "JOIN_TOKEN": (39, u32(2) + opaque("10.0.0.250") + u32(60), {"operator"}),
    "SESSION_KILL": (40, u64(1), {"operator"}),
    "BACKUP": (41, u64(0), {"operator"}),
    "REVOKE": (42, u32(2) + opaque(NOBODY), {"operator"}),
    "ADMIT": (43, opaque(b"nothing"), {"operator"}),
    "DRAIN": (44, opaque(NOBODY) + u32(0) * 2, {"operator"}),
    "MIGRATE": (45, opaque(NOBODY) + opaque("") + u32(0) * 3 + u64(0) + u32(0) + NUMBER * 2 + u32(0) * 2, {"operator"}),
    "MIGRATE_CANCEL": (46, opaque(NOBODY), {"operator"}),
    "CHECKPOINT": (47, opaque(NOBODY) + u64(0) + opaque("/nowhere") + u32(0) * 5, {"operator"}),
    "RESTORE": (48, opaque(NOBODY) + opaque("/nowhere") + u32(0), {"operator"}),
    "NODE_ADOPT": (49, opaque(NOBODY) + array(), {"operator"}),
    "VM_DEVICE": (50, opaque(NOBODY) + opaque("n9") + u32(0), {"operator"}),
}


def register_args(name):
    return (opaque("boot") + array() + opaque("") + os.urandom(32) + u32(1) + u64(0) + u32(0) + array() * 4 + u32(0) + u32(0))


def hello_args(kind, name):
    return u32(by_hand.PROTOCOL) + opaque("by hand") + u32(by_hand.KINDS[kind]) + opaque(name) + os.urandom(16)


def state_of(system):
    """All that an operator sees, but for what moves by itself."""
    moving = {"last_seen_ms", "uptime_ms", "age_ms", "connected", "address", "programs", "busy_pct", "state",
              "memory_used_bytes", "memory_peak_bytes", "power_w", "temperature_c", "warm", "servers"}
    return {view: [{k: v for k, v in row.items() if k not in moving} for row in system.flytctl(*view.split())]
            for view in ("nodes", "gpus", "vms", "allocations", "tenants", "members")}


@scenario
def every_procedure():
    with open(os.path.join(harness.ROOT, "rpc", "proto", "control.x")) as f:
        program = re.search(r"program FLYT_CONTROL_PROGRAM \{(.*?)\} = 0x20000f19", f.read(), re.S)[1]
    known = {name: int(number) for name, number in re.findall(r"FLYT_(?:CONTROL_)?(\w+)\([^)]*\) = (\d+);", program)}
    expect_equal({name: row[0] for name, row in PROCEDURES.items()}, known, "procedures of this test and of control.x")
    with Trusted(nodes=1, vms=0) as system:
        names = {"node": "n9", "vm": "10.0.0.9", "operator": "alice", "viewer": "guest"}
        before = state_of(system)
        for role in sorted(EVERYBODY):
            for name, (number, args, allowed) in PROCEDURES.items():
                if role == "anonymous":
                    peer = system.connect()
                    own = hello_args("viewer", "nobody")
                else:
                    peer = system.peer(role, names[role])
                    own = hello_args(role, names[role])
                if name == "HELLO":
                    args = own
                elif name == "NODE_REGISTER":
                    args = register_args(role)
                answer = peer.call(number, args)
                if role in allowed:
                    expect_equal(answer.state, "done", name, "as", role, answer)
                    # Without a certificate nobody is anybody.
                    if role == "anonymous" and name in ("HELLO", "ENROL"):
                        expect_equal(answer.outcome[0], "DENIED", name, "as nobody", answer)
                    elif name not in ("NULL", "ENROL"):
                        expect(answer.outcome[0] != "DENIED", name, "as", role, answer.outcome)
                else:
                    expect(answer.state in ("refused", "closed"), name, "as", role, "was answered", answer)
                peer.close()
        # What nobody has: numbers in between, another version, other programs.
        peer = system.peer("operator", "alice")
        for number in (3, 9, 24, 29, 51, 99, 0xffffffff):
            expect_equal(peer.call(number).state, "error", "procedure", number)
        expect_equal(peer.call(30, PROCEDURES["VIEW"][1], version=2).state, "error", "version 2")
        peer.program = by_hand.ORDER
        expect_equal(peer.call(1).state, "error", "an order to the cluster manager")
        within(10, lambda: {n["name"] for n in system.flytctl("nodes")} == {"node-0", "n9"}, "n9 has registered")
        within(20, lambda: not system.flytctl("vms"), "the VM without a document is forgotten")
        after = state_of(system)
        for view in ("gpus", "vms", "allocations", "tenants"):
            expect_equal(after[view], before[view], view)
        expect_equal({m["member"] for m in after["members"]},
                     {"node:node-0"} | {"%s:%s" % pair for pair in names.items()}, "members")


@scenario
def viewers_change_nothing():
    """Every changing call with arguments that would change something, were they let through; flytctl says who may."""
    with Trusted(nodes=1, vms=1) as system:
        vm_ip = system.vm_ip(0)
        system.flytctl("vm", "add", vm_ip, "--sm", "8", "--memory", "64M")
        program = system.start_in_vm(0, helper("echo"), "wait")
        session = within(30, lambda: system.flytctl("sessions"), "the session")[0]
        allocation = int(system.allocation(0)["id"], 16)
        before = state_of(system)
        is_set = u32(1) + u64(16)
        calls = {
            "VM_SET": u32(0) + opaque("10.0.0.66") + TEXT * 3 + is_set * 2 + NUMBER * 3 + TEXT * 2 + NAMES * 4 +
            NUMBER * 4 + TEXT + NUMBER + TEXT + NAMES,
            "VM_REMOVE": opaque(vm_ip) + u32(1), "TENANT_SET": opaque("red") + is_set * 4 + u32(0),
            "RESIZE": opaque(vm_ip) + is_set + NUMBER * 6 + u32(0) * 3, "SCHEDULE": u32(1) + opaque("node-0") + u32(2),
            "GPU_SET": opaque("node-0:0") + u32(2), "ALLOCATION": u64(allocation) + u32(2),
            "NODE_FENCE": opaque("node-0") + u32(1), "JOIN_TOKEN": u32(3) + opaque("mallory") + u32(600),
            "SESSION_KILL": u64(int(session["id"], 16)), "BACKUP": u64(0), "REVOKE": u32(1) + opaque("node-0"),
            "ADMIT": opaque(open(system.authority, "rb").read()), "DRAIN": opaque(vm_ip) + u32(0) + u32(1),
            "NODE_ADOPT": opaque("node-0") + array([opaque("node-0:0")]),
        }
        for role, name in (("viewer", "guest"), ("vm", vm_ip), ("node", "node-0")):
            # The daemons' own certificates; without HELLO, so that nobody's place is taken.
            state = system.path("vm-0" if role == "vm" else "node-0", "state", "x")[:-2]
            files = system.identity(role, name) if role == "viewer" else (state + "/certificate.pem", state + "/key.pem")
            for procedure, args in calls.items():
                peer = system.connect(files)
                answer = peer.call(PROCEDURES[procedure][0], args)
                expect(answer.state in ("refused", "closed"), procedure, "as", role, answer)
                peer.close()
        certificate, key = system.identity("viewer", "guest")
        as_viewer = [system.program("flytctl"), "--authority", system.authority, "--certificate", certificate, "--key",
                     key, "--manager", system.manager_url]
        expect_equal(harness.run([*as_viewer, "vms"], system.env).status, 0, "flytctl vms of a viewer")
        for words in (["vm", "remove", vm_ip], ["drain", "node-0"], ["session", "kill", session["id"]],
                      ["vm", "join-token", vm_ip], ["resize", vm_ip, "--sm", "16"]):
            result = harness.run([*as_viewer, *words], system.env)
            expect(result.status != 0 and len(result.err.splitlines()) == 1, words, result)
            expect("viewer" in result.err or "role" in result.err or "operator" in result.err, words, result.err)
        expect_equal(state_of(system)["gpus"], before["gpus"], "GPUs")
        for view in ("nodes", "vms", "allocations", "tenants"):
            expect_equal(state_of(system)[view], before[view], view)
        expect_equal([s["id"] for s in system.flytctl("sessions")], [session["id"]], "sessions")
        expect_equal(program.poll(), None, "the program")


@scenario
def vms_have_themselves():
    """What a VM calls is about itself, whatever it says it is; before HELLO it is nobody in particular."""
    with Trusted(nodes=1, vms=0) as system:
        for name in ("10.0.0.7", "10.0.0.8"):
            system.flytctl("vm", "add", name, "--sm", "8", "--memory", "64M")
        files = system.identity("vm", "10.0.0.7")
        peer = system.connect(files)
        status, text = peer.call(by_hand.ATTACH, u32(1)).outcome
        expect(status in ("INVALID", "DENIED"), "attach before HELLO:", status, text)
        expect_equal(peer.hello("vm", "10.0.0.8").outcome[0], "DENIED", "HELLO of another VM")
        expect_equal(peer.hello("vm", "10.0.0.7").outcome[0], "OK", "HELLO")
        for other in ("10.0.0.8", "10.0.0.9"):
            expect(peer.hello("vm", other).outcome[0] in ("DENIED", "CONFLICT"), "HELLO as another one later")
        answer = peer.call(by_hand.ATTACH, u32(1))
        expect_equal(answer.outcome, ("OK", ""), "attach")
        reader = answer.skip_outcome()
        expect_equal(reader.u32(), 1, "grants")
        reader.u64()
        expect_equal(reader.text(), "10.0.0.7", "whose grant")
        expect_equal(peer.call(21, u32(3)).outcome[0], "OK", "a report")
        vms = {v["vm_ip"]: v for v in system.flytctl("vms")}
        expect_equal((vms["10.0.0.7"]["programs"], vms["10.0.0.8"]["programs"]), (3, 0), "programs")
        expect_equal((vms["10.0.0.7"]["connected"], vms["10.0.0.8"]["connected"]), (True, False), "who is connected")
        # A node speaks for itself alone: an event has its name, and it cannot register as another.
        node = system.peer("node", "n9")
        node.call(12, u64(0) + u64(0) + opaque("test.event") + opaque("operator:root") + opaque("x") + opaque("by hand") +
                  opaque("") * 2)
        event = system.event("test.event", "by hand")
        expect("n9" in event["who"] and "root" not in event["who"], "who said it:", event)
        expect(node.hello("node", "node-0").outcome[0] in ("DENIED", "CONFLICT"), "HELLO as another node")
        expect_equal([n["state"] for n in system.flytctl("nodes", "node-0")], ["up"], "node-0")


@scenario
def one_holder():
    """A second live holder of an identity is refused, both addresses named; the first goes on; then the second gets in."""
    with Trusted(nodes=1, vms=1) as system:
        vm_ip = system.vm_ip(0)
        system.flytctl("vm", "add", vm_ip, "--sm", "8", "--memory", "64M")
        within(10, lambda: system.flytctl("vms")[0]["connected"], "the client manager is connected")
        first_address = system.flytctl("vms")[0]["address"]
        state = system.path("vm-0", "state", "x")[:-2]
        second = system.connect((state + "/certificate.pem", state + "/key.pem"))
        status, text = second.hello("vm", vm_ip).outcome
        expect_equal(status, "HELD", "HELLO of a second holder", text)
        expect(first_address in text and second.address in text, "both addresses,", first_address, second.address, text)
        event = system.event("identity.held", first_address, second.address)
        expect_equal(event["object"], vm_ip, "the event's object")
        expect(second.call(by_hand.ATTACH, u32(1)).outcome[0] != "OK", "attach of the second holder")
        result = system.run_in_vm(0, helper("echo"))
        expect_equal(result.status, 0, "a program of the first", result)
        # A frozen first one is asked, does not answer, and loses its place.
        system.supervisor.stop("vm-0")
        expect_equal(second.hello("vm", vm_ip).outcome[0], "OK", "HELLO after the first has gone")
        expect_equal(second.call(by_hand.ATTACH, u32(1)).outcome[0], "OK", "attach of the second one")
        address = second.address
        second.stay()
        # Now it is the daemon that comes second; it waits, and has its place when the other has gone.
        path = system.path("vm-0", "client.conf")
        log = harness.new_log(system.path("second.log"))
        daemon = harness.start([system.program("flyt-client-manager"), "--config", path], system.env, stderr=log)

        def said():
            log.seek(0)
            return log.read()
        within(20, lambda: "is connected from" in said() and address in said(), "the daemon names both")
        expect_equal(daemon.poll(), None, "the daemon waits")
        second.close()
        within(20, lambda: "connected, build" in said(), "the daemon is let in")
        expect_equal(system.run_in_vm(0, helper("echo")).status, 0, "a program")
        harness.kill_group(daemon)
        daemon.wait()
        log.close()


@scenario
def frozen_holder():
    """One that does not answer loses its place to who comes."""
    with Trusted(nodes=0, vms=0) as system:
        frozen = system.peer("vm", "10.0.0.7")       # never reads again
        second = system.connect(system.identity("vm", "10.0.0.7"))
        expect_equal(second.hello("vm", "10.0.0.7").outcome[0], "OK", "HELLO beside a frozen holder")
        expect(by_hand.wait_closed(frozen), "the frozen one's connection")


if __name__ == "__main__":
    main()
