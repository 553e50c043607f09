#!/usr/bin/env python3
"""What a node says of itself and others is not believed beyond what it can know: GPUs and allocations of another node. A real
cluster manager; nodes are played by hand (node_by_hand.py)."""
import by_hand
from harness import expect, expect_equal, main, scenario, within
from movers_by_hand import cluster, cluster_on_mongod
from node_by_hand import NodeByHand

VM = "10.0.0.7"


def thief(c, name, of, **options):
    """A node that reports the GPUs of another one, and what that holds."""
    c.nodes[name] = NodeByHand(c.manager.url, name, given=of.gpus, allocations=dict(of.allocations), **options)
    return c.nodes[name]


def nodes_of_gpus(c):
    return {g["uuid"]: g["node"] for g in c.ctl("gpus")}


def stored(c):
    return sorted((g["node"], g["index"], [a["id"] for a in g["allocations"]]) for g in c.gpu_documents())


def events(c, kind):
    return [e for e in c.ctl("events") if e["kind"] == kind]


@scenario
def by_naming_them():
    """While the owner is away, after the manager's restart too: what the store says stays, and the owner comes back."""
    with cluster() as c:
        row = c.vm(VM, 16)
        before, held = nodes_of_gpus(c), stored(c)
        for starts in (1, 2):
            c.node.drop()
            if starts == 2:
                c.nodes.pop("n2").close()
                c.manager.restart()
            other = thief(c, "n2", c.node)
            within(60, lambda: c.ctl_run("vms").status == 0, "the manager answers")
            expect_equal((nodes_of_gpus(c), stored(c)), (before, held), "whose they are")
            expect_equal(c.row(VM)["node"], "n1", "the allocation's node")
            expect_equal(list(other.told), [], "what the other one is told that it has")
            beats = other.beats
            within(60, lambda: other.beats > beats + 2, "it is heard")
            expect_equal(len(other.orders), 0, "what it is ordered", other.orders)
        texts = [e["text"] for e in events(c, "gpu.claimed")]
        expect(texts and all("node n2 reports GPU GPU-n1-" in t and "flytctl node adopt n2 GPU-n1-" in t for t in texts),
               "events", texts)
        c.node.connect()
        expect_equal(list(c.node.told), [int(row["id"], 16)], "what the owner has")
        expect_equal(c.attach(VM)["node"], "n1", "where programs go")
        # Nor does an operator give it away while its owner is there.
        c.refused(1, "is up and reports it", "node", "adopt", "n2", "GPU-n1-0")
        expect_equal(nodes_of_gpus(c), before, "whose they are")


@scenario
def a_node_with_another_name():
    """It was renamed while its programs ran: nothing is taken from it, and the operator's word gives it what it has."""
    with cluster() as c:
        c.ctl("vm", "add", VM, "--sm", "16", "--memory", "1G", "--devices", "2")
        old, allocation = c.nodes["n1"], within(60, lambda: c.ask(VM), "the VM is granted something")[2].id
        within(60, lambda: [a["revision_applied"] for a in c.rows(VM)] == [1, 1], "the node holds it")
        c.nodes.pop("n1")
        old.close()
        new = thief(c, "n9", old)
        expect(allocation in new.allocations, "its programs go on", new.allocations)
        c.refused(3, "there is no node nowhere", "node", "adopt", "nowhere", "n1:0")
        c.refused(1, "name that as well", "node", "adopt", "n9", "n1:0")
        c.ctl("node", "adopt", "n9", "n1:0", "n1:1")
        new.connect()
        expect_equal(list(new.told), [allocation], "what it is to have")
        expect_equal(set(nodes_of_gpus(c).values()), {"n9"}, "whose the GPUs are")
        expect_equal(set(n for n, _, _ in stored(c)), {"n9"}, "in the store")
        expect_equal({a["node"] for a in c.rows(VM)}, {"n9"}, "where the allocation is")
        expect(allocation in new.allocations, "its programs go on", new.allocations)
        expect_equal(len(events(c, "gpu.adopted")), 2, "events")
        expect_equal(c.ask(VM)[0], "n9", "where programs go")
        c.manager.restart()
        c.reconnect()
        expect_equal(set(nodes_of_gpus(c).values()), {"n9"}, "whose the GPUs are, after a restart")


def claims(c, name, epoch):
    """A node that says that it has seen this epoch: what it is answered."""
    node = c.nodes.get(name)
    if not node:
        node = c.nodes[name] = NodeByHand(c.manager.url, name, epoch=0)
    node.epoch = epoch
    with node.mutex:
        args = node.registration()
    try:
        return node.call(by_hand.REGISTER, args).outcome
    except ConnectionError:
        node.connect()
        return None


def leads(c):
    """How often the manager began to lead, and at which epoch it does."""
    return c.manager.log().count("this manager leads:"), c.ctl("status")[0]["epoch"]


def on_both(test):
    with cluster() as c:
        test(c)
    with cluster_on_mongod() as c:
        test(c)


@scenario
def an_epoch_of_a_later_leader():
    """The store was set back, and nodes have seen what it does not know of: the manager goes above that."""
    def test(c):
        c.vm(VM, 16)
        claims(c, "n2", leads(c)[1] + 3)
        within(60, lambda: leads(c) == (2, 5), "the manager leads at a higher epoch")
        c.reconnect()
        within(60, lambda: all(n.epoch == 5 for n in c.nodes.values()), "all nodes follow it")
        expect_equal(c.row(VM)["node"], "n1", "the allocation")
    on_both(test)


@scenario
def epochs_that_cannot_be():
    """A damaged state, or a lie: the manager leads on, others notice nothing, and an event tells."""
    def test(c):
        c.vm(VM, 16)
        for number, epoch in enumerate((2 ** 64 - 1, 2 ** 53, 2 ** 40), 1):
            for _ in range(3):
                expect_equal(claims(c, "n2", epoch)[0], "STALE", "what the node is answered")
            texts = [e["text"] for e in events(c, "node.epoch_refused")]
            expect_equal(len(texts), number, "events", texts)
            expect("no leader can have come so far" in texts[-1] and str(epoch) in texts[-1], "the last one", texts)
        expect_equal(leads(c), (1, 1), "the manager leads on")
        expect_equal(c.ctl_run("resize", VM, "--sm", "8").status, 0, "n1 takes orders")
        expect_equal(c.node.epoch, 1, "the epoch of n1")
    on_both(test)


@scenario
def again_and_again():
    """One node deposes a manager once, however often it says something new."""
    with cluster() as c:
        claims(c, "n2", 3)
        within(60, lambda: leads(c) == (2, 4), "the manager leads at a higher epoch")
        c.reconnect()
        for epoch in (5, 6, 7):
            within(60, lambda: (claims(c, "n2", epoch) or ("",))[0] == "STALE", "it is refused")
        beats = c.node.beats
        within(60, lambda: c.node.beats > beats + 5, "n1 is heard")
        expect_equal(leads(c), (2, 4), "the manager leads on")
        texts = [e["text"] for e in events(c, "node.epoch_refused")]
        expect(len(texts) == 3 and all("too often" in t for t in texts), "events", texts)


@scenario
def revisions_that_cannot_be():
    """A node that says of its allocation what no manager can have ordered, as it registers and as it answers: it is not
    believed, an event tells once, other VMs notice nothing, and the operator takes the allocation away."""
    with cluster() as c:
        revision = c.vm(VM, 16)["revision"]
        mine, = c.node.allocations.values()
        for number, impossible in enumerate((2 ** 64 - 1, 2 ** 53 + 1), 1):
            mine.revision = impossible
            c.node.drop()
            c.node.connect()
            texts = within(60, lambda: len(events(c, "allocation.impossible")) >= number and
                           [e["text"] for e in events(c, "allocation.impossible")], "an event tells")
            expect("at revision %d" % impossible in texts[-1] and "flytctl allocation kill" in texts[-1], "events", texts)
            c.node.refusal = ("STALE", "the node has a later revision")
            expect(c.ctl_run("resize", VM, "--sm", "8").status != 0, "a resize is refused")
            beats = c.node.beats
            within(60, lambda: c.node.beats > beats + 3, "it is heard")
            expect_equal(len(events(c, "allocation.impossible")), number, "events")
            expect(c.row(VM)["revision"] < revision + 100, "the manager's own revision", c.row(VM))
            c.node.refusal = None
        c.vm("10.0.0.8", 16)
        c.ctl("allocation", "kill", c.row(VM)["id"])
        within(60, lambda: not c.rows(VM), "it is taken away")
        expect_equal(mine.id in c.node.allocations, False, "the node has it no more")


if __name__ == "__main__":
    main()
