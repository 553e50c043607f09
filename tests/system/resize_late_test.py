#!/usr/bin/env python3
"""What a node is ordered, where it answers late or the store takes nothing: a refusal belongs to the resize that caused it,
and what was not written is never ordered. A real cluster manager; nodes are played by hand (node_by_hand.py)."""
import time

from harness import expect, expect_equal, main, scenario, within
from manager import documents
from movers_by_hand import cluster, cluster_on_mongod, finish
from steady import RECORDED

PATIENT = dict(order_timeout_s=600.0)     # however long the test takes, the node's answer comes in time
VM = "10.0.0.7"
TEXT = "SM groups of another VM are not vacated"


def desired(c):
    """The VM's document."""
    found = (c.mongod.client.find("flyt", "vm_required_resources") if hasattr(c, "mongod") else
             documents(c.manager, "vm_required_resources"))
    return [d for d in found if d["vm_ip"] == VM][0]


def holds(c, sms):
    """Store, node and table say the same."""
    def same():
        row = c.row(VM)
        held = c.node.allocations[int(row["id"], 16)]
        entry = [a for gpu in c.gpu_documents() for a in gpu["allocations"]][0]
        return (row["sms"] == held.slots[0].sms == entry["sm_count"] == sms == desired(c)["compute_units"] and
                row["revision"] == held.revision == entry["revision"])
    within(60, same, "everybody has %d SMs at one revision" % sms)


def one_state_each(c):
    """No number was given to two states."""
    for (_, revision), states in c.node.states.items():
        expect_equal(len(states), 1, "states that the node was told of as revision", revision)


@scenario
def the_next_one_is_not_refused():
    """A resize is answered at its time-out, the node refuses it later; another one was asked for meanwhile."""
    with cluster(manager=PATIENT) as c:
        c.vm(VM, 16)
        node = c.node
        node.is_late, node.refusal = True, ("IN_USE", TEXT)
        first = c.ctl_run("resize", VM, "--sm", "24", "--timeout", "5")
        expect_equal(first.status, RECORDED, "the first one", first)
        recorded = c.row(VM)["revision"]
        second = c.start("resize", VM, "--sm", "8", "--timeout", "60")
        # Until it is recorded, which it is not before the first one has its answer; nothing depends on how long that is.
        until = time.monotonic() + 2
        while desired(c)["compute_units"] != 8 and time.monotonic() < until:
            time.sleep(0.05)
        node.refusal = None
        node.answer_late()
        finish(second, 0)
        holds(c, 8)
        expect(c.row(VM)["revision"] > recorded, "its revision", c.row(VM))
        events = [e["text"] for e in c.ctl("events", VM) if e["kind"] == "vm.resize_refused"]
        expect_equal(len(events), 1, "refused ones", events)
        expect(TEXT in events[0] and "revision %d is taken back" % recorded in events[0], "which one", events)
        one_state_each(c)


@scenario
def it_is_taken_back_though_nobody_waits():
    with cluster(manager=PATIENT) as c:
        c.vm(VM, 16)
        c.node.is_late, c.node.refusal = True, ("IN_USE", TEXT)
        expect_equal(c.ctl_run("resize", VM, "--sm", "24", "--timeout", "5").status, RECORDED, "the resize")
        c.node.refusal = None
        c.node.answer_late()
        holds(c, 16)
        one_state_each(c)


@scenario
def one_that_waits_too_long():
    """It has changed nothing when it gives up, and the one before it goes on."""
    with cluster(manager=PATIENT) as c:
        c.vm(VM, 16)
        c.node.is_late = True
        expect_equal(c.ctl_run("resize", VM, "--sm", "24", "--timeout", "5").status, RECORDED, "the first one")
        c.refused(1, "nothing was changed: a resize of the VM before this one", "resize", VM, "--sm", "8", "--timeout", "1")
        c.node.answer_late()
        holds(c, 24)
        one_state_each(c)


@scenario
def what_is_not_written_is_not_ordered():
    """The VM's document is removed while the node answers nothing and the GPU's document cannot be written."""
    with cluster_on_mongod(manager=PATIENT) as c:
        c.vm(VM, 16)
        node, allocation = c.node, int(c.row(VM)["id"], 16)
        node.is_late = True
        expect_equal(c.ctl_run("resize", VM, "--sm", "8", "--timeout", "5").status, RECORDED, "the resize")
        recorded = c.row(VM)["revision"]
        c.mongod.say("refuse gpus")
        c.ctl_run("vm", "remove", VM)
        within(60, lambda: c.row(VM)["revision"] > recorded, "it is to be blocked")
        node.answer_late()
        beats = node.beats
        within(60, lambda: node.beats > beats + 3, "the node's word is heard")
        # It comes again, and is told what it is to have: what is written.
        node.drop()
        node.connect()
        expect_equal(node.told[allocation].revision, recorded, "what it is told when it registers")
        beats = node.beats
        within(60, lambda: node.beats > beats + 3, "and again")
        expect_equal(max(r for _, r in node.states), recorded, "what it was ordered", sorted(node.states))
        c.mongod.say("take")
        within(60, lambda: node.allocations[allocation].state == 2, "it is blocked at the node, too")
        entry = [a for gpu in c.gpu_documents() for a in gpu["allocations"]][0]
        expect_equal((entry["state"], entry["revision"]), ("blocked", node.allocations[allocation].revision), "in the store")
        one_state_each(c)


@scenario
def a_write_that_fails():
    """Its number is not given to what comes after it."""
    with cluster_on_mongod(manager=PATIENT) as c:
        c.vm(VM, 16)
        before = c.row(VM)["revision"]
        c.mongod.say("refuse gpus")
        c.refused(4, "the store did not take it", "resize", VM, "--sm", "24")
        within(60, lambda: desired(c)["compute_units"] == 16, "the document is as before")
        failed = before + 1
        expect(c.row(VM)["revision"] > failed, "a number of its own for what was before", c.row(VM))
        c.mongod.say("take")
        holds(c, 16)
        expect_equal(c.ctl_run("resize", VM, "--sm", "24").status, 0, "again")
        holds(c, 24)
        expect(failed not in [r for _, r in c.node.states], "nobody was ordered the one that failed", sorted(c.node.states))
        one_state_each(c)


@scenario
def an_idle_allocation_whose_order_is_lost():
    """The node lets no new program in as it was ordered, and its answer is lost: the allocation goes all the same."""
    with cluster(manager=dict(order_timeout_s=2.0, allocation_linger_s=1.0)) as c:
        c.vm(VM, 16)
        node = c.node
        node.is_late = True
        node.sessions[VM] = 0
        within(120, lambda: node.late, "the order to let nobody in")
        node.is_late = False
        within(120, lambda: not c.ctl("allocations"), "the allocation goes")
        expect_equal(node.allocations, {}, "what the node still has")


if __name__ == "__main__":
    main()
