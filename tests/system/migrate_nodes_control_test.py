#!/usr/bin/env python3
"""A VM's programs move to another node, as the cluster manager sees it: a real one with its store, and nodes that are played by
hand (node_by_hand.py) and move nothing."""
import concurrent.futures
import contextlib
import signal
import time

from cluster import metric_values
from harness import expect, expect_equal, main, scenario, within
from movers_by_hand import FIGURES, cluster, cluster_on_mongod, finish, metrics_of
from node_by_hand import (ARRIVED, CONFLICT, COPYING, DONE, FAILED, GIB, ORDER_APPLY, ORDER_MIGRATE, ORDER_RECEIVE, ORDER_SEND,
                          ORDER_SEND_BACK, ORDER_SWITCH, PREPARING, STOPPING, SWITCHING, UNAVAILABLE)

VM = "10.0.0.7"
HERE, THERE = "GPU-n1-0", "GPU-n2-1"
BOTH = {"n1:0": (16, GIB, 2), "n1:1": (0, 0, 0), "n2:0": (0, 0, 0), "n2:1": (16, GIB, 2)}
STAYED = dict(BOTH, **{"n2:1": (0, 0, 0)})
MOVED = dict(BOTH, **{"n1:0": (0, 0, 0)})


@contextlib.contextmanager
def two_nodes(make=cluster, **options):
    """A VM on n1:0, and room on n2."""
    with make(nodes=("n1", "n2"), **options) as c:
        expect_equal(c.vm(VM)["gpu"], HERE, "where it is first")
        yield c


def begin(c, number=1, *words):
    """What n1 was ordered to send, and n2 to receive."""
    c.ctl("migrate", VM, "--to", "n2:1", "--detach", *words)
    return (c.nodes["n1"].wait_migration(number, ORDER_SEND), c.nodes["n2"].wait_migration(number, ORDER_RECEIVE))


def says(c, name, migration, phase, *words, **figures):
    expect_equal(c.nodes[name].report(migration, phase, *words, **figures)[0], "OK", "the answer to", name, phase)


def copied(c, sent, received):
    for phase in (PREPARING, COPYING, STOPPING):
        says(c, "n2", received, phase)
        says(c, "n1", sent, phase, **FIGURES)
    says(c, "n2", received, ARRIVED)


def arrived(c, sent, received):
    """Both have everything: from here the cluster manager goes on by itself."""
    copied(c, sent, received)
    says(c, "n1", sent, ARRIVED, **FIGURES)


def switched(c, sent, received):
    arrived(c, sent, received)
    within(60, lambda: sent.phase == SWITCHING, "n1 is told to let its programs go")


def gone_on(c, sent, received):
    """The programs go on at n2."""
    says(c, "n2", received, DONE, standstill_us=9000)


def dropped(c, received, text="as the test says"):
    """n2 has nothing of it any more, and says so."""
    with c.nodes["n2"].mutex:
        c.nodes["n2"].allocations.pop(received.allocation.id, None)
    says(c, "n2", received, FAILED, UNAVAILABLE, text)


def has(node, allocation_id):
    return allocation_id in node.allocations


def expect_moved(c, sent):
    c.ends(sent, "done")
    c.expect_on(VM, "n2:1")
    within(60, lambda: not has(c.nodes["n1"], sent.allocation.id), "n1 has nothing of it any more")
    expect_equal(c.charged(), MOVED, "charged afterwards")
    expect_equal(c.ask(VM)[0], "n2", "where the VM is sent")


def expect_stayed(c, sent, *parts):
    c.ends(sent, "failed")
    c.expect_on(VM, "n1:0")
    within(60, lambda: not has(c.nodes["n2"], sent.allocation.id), "n2 has nothing of it any more")
    expect_equal(c.charged(), STAYED, "charged afterwards")
    expect_equal(c.ask(VM)[0], "n1", "where the VM is sent")
    reason = c.migration(sent)["reason"]
    for part in parts:
        expect(part in reason, "the reason", repr(reason), "without", repr(part))


def measured(c, name):
    return dict((labels["scope"], n) for labels, n in metric_values(metrics_of(c), "flyt_migration_" + name))["node"]


def goes_well(c):
    n1, n2 = c.nodes["n1"], c.nodes["n2"]
    before = c.row(VM)
    process = c.start("migrate", VM, "--to", "n2:1", "--rounds", "5", "--stop-timeout", "750", "--timeout", "90", "--rest",
                      "32M", "--streams", "3", "--pack", "zstd")
    sent, received = n1.wait_migration(procedure=ORDER_SEND), n2.wait_migration(procedure=ORDER_RECEIVE)
    wanted = received.allocation
    expect_equal((wanted.gpus, wanted.revision, wanted.vm_ip, wanted.slots[0].sms, wanted.slots[0].memory, received.timeout_s),
                 ([THERE], before["revision"] + 1, VM, 16, GIB, 90), "what n2 was ordered")
    expect_equal((sent.allocation.gpus, sent.bounds, sent.node, sent.urls, sent.streams, sent.packing, sent.is_encrypted),
                 ([HERE], [5, 750, 90, 32 << 20], "n2", n2.urls, 3, 2, False), "what n1 was ordered")
    expect_equal((sent.id, sent.secret), (received.id, received.secret), "what both know")
    expect(len(set(sent.secret)) > 8, "the secret", sent.secret)
    expect_equal((n1.count(ORDER_MIGRATE), n2.count(ORDER_MIGRATE)), (0, 0), "orders to move within a node")
    # Both are charged and recorded.
    expect_equal(c.charged(), BOTH, "charged meanwhile")
    expect_equal((c.entries(), c.entries("arriving")), ([("n1:0", before["id"])], [("n2:1", before["id"])]), "recorded")
    copied(c, sent, received)
    row = c.migration(sent)
    expect_equal((row["phase"], row["node"], row["target_node"], row["source"], row["target"], row["streams"], row["packing"],
                  row["encrypted"], row["round"], row["sessions"]),
                 ("stopping", "n1", "n2", "n1:0", "n2:1", 3, "zstd", False, 3, 2), "its row")
    expect_equal(([m["id"] for m in c.migrations("n1")], [m["id"] for m in c.migrations("n2")]), ([row["id"]],) * 2, "by node")
    expect_equal((c.ask(VM)[0], n2.count(ORDER_SWITCH), n1.count(ORDER_SWITCH)), ("n1", 0, 0), "before anything has arrived")
    n1.answers[ORDER_SWITCH] = "deaf"
    says(c, "n1", sent, ARRIVED, **FIGURES)
    within(60, lambda: n1.ordered(ORDER_SWITCH), "n1 is told to switch")
    # Recorded as n2's before n1 was told; until it has answered the VM is sent nowhere: n1 may let in nobody by then.
    expect_equal(n2.ordered(ORDER_SWITCH), [(sent.id, 2)], "what n2 was told first")
    expect_equal((c.entries(), c.entries("arriving")), ([("n1:0", before["id"]), ("n2:1", before["id"])], []), "recorded then")
    revisions = {g["node"]: e["revision"] for g in c.gpu_documents() for e in g["allocations"]}
    expect(revisions["n2"] > wanted.revision > revisions["n1"], "revisions", revisions)
    expect_equal((c.migration(sent)["phase"], c.ask(VM, is_waiting=0), c.told(VM)), ("switching", None, []),
                 "until n1 has answered")
    c.refused(1, "too late", "migrate", VM, "--cancel")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asking = pool.submit(c.ask, VM)
        del n1.answers[ORDER_SWITCH]
        expect_equal(asking.result()[0], "n2", "where a program is sent that waits for the answer")
    within(60, lambda: c.told(VM), "the VM is told")        # what is not answered is asked, and told again
    expect_equal((c.told(VM), sent.phase), (["n2"], SWITCHING), "whom it was told, and when")
    says(c, "n1", sent, SWITCHING, **FIGURES)
    node, urls, granted = c.ask(VM)
    expect_equal((node, urls, granted.gpus, "%016x" % granted.id), ("n2", n2.urls, [THERE], before["id"]), "what it is granted")
    expect_equal(c.charged(), BOTH, "charged until it has gone on")
    expect(has(n1, granted.id), "n1 keeps it until then")
    gone_on(c, sent, received)
    finish(process, 0, "has moved to n2:1", "standstill")
    expect_moved(c, sent)
    row = c.migration(sent)
    expect(41000 <= row["standstill_us"] <= 50000, "the standstill", row)
    expect_equal((row["copied_bytes"], row["round"], row["reason"], row["cancelled"]), (3 * GIB, 3, None, False), "its row")
    events = [e["kind"] for e in c.ctl("events", VM) if e["kind"].startswith("migration.")]
    expect_equal(events, ["migration.started", "migration.done"], "events")
    counted = metric_values(metrics_of(c), "flyt_migrations_total")
    expect_equal({(labels["outcome"], labels["scope"]): n for labels, n in counted if n}, {("done", "node"): 1}, "counted")
    for name, value in (("rounds", 3), ("copied_bytes", 3 * GIB), ("standstill_seconds", row["standstill_us"] / 1e6)):
        expect_equal([measured(c, name + end) for end in ("_count", "_sum")], [1, value], name)
    c.manager.restart()
    c.reconnect()
    expect_moved(c, sent)
    # It changes size there, and comes back.
    finish(c.start("resize", VM, "--sm", "8"), 0, "is resized")
    c.ctl("migrate", VM, "--to", "n1:1", "--detach")
    sent, received = n2.wait_migration(procedure=ORDER_SEND), n1.wait_migration(procedure=ORDER_RECEIVE)
    expect_equal(received.allocation.slots[0].sms, 8, "its size on the way back")
    says(c, "n2", sent, ARRIVED, **FIGURES)
    within(60, lambda: sent.phase == SWITCHING, "n2 lets its programs go")
    says(c, "n1", received, DONE)
    c.ends(sent, "done")
    c.expect_on(VM, "n1:1")


@scenario
def moves():
    with two_nodes() as c:
        goes_well(c)


@scenario
def moves_with_a_shared_store():
    with two_nodes(cluster_on_mongod) as c:
        goes_well(c)


@scenario
def chosen():
    """Which node and GPU: its own node first; the same compute capability first; what does not fit is named."""
    with cluster(nodes=("n1", "n2", "n3"), gpus=2, compute={1: (8, 0)}) as c:
        expect_equal(c.vm(VM)["gpu"], HERE, "where it is first")

        def chosen_for(node, *words):
            """Which GPU of this node; the order is refused."""
            count = len(c.nodes[node].ordered(ORDER_RECEIVE))
            c.nodes[node].answers[ORDER_RECEIVE] = ("NO_CAPACITY", "the test says no")
            c.refused(1, "node %s refused: the test says no" % node, "migrate", VM, *words)
            orders = c.nodes[node].ordered(ORDER_RECEIVE)
            expect_equal(len(orders), count + 1, "orders to", node, orders)
            within(60, lambda: c.charged()["n1:0"][0] == 16 and not c.entries("arriving"), "nothing is left of it")
            return orders[-1].allocation.gpus

        def chosen_near(*words):
            """The same of its own node."""
            count = c.nodes["n1"].count(ORDER_MIGRATE)
            c.nodes["n1"].migrate = ("NOT_SUPPORTED", "it has no code for this GPU")
            c.refused(1, "refused: it has no code for this GPU", "migrate", VM, *words)
            orders = c.nodes["n1"].ordered(ORDER_MIGRATE)
            expect_equal(len(orders), count + 1, "orders to n1", orders)
            within(60, lambda: c.charged()["n1:0"][0] == 16 and not c.entries("arriving"), "nothing is left of it")
            return orders[-1].allocation.gpus
        # n1:1 has another compute capability: first what other nodes have of the same one.
        expect_equal(chosen_for("n2"), ["GPU-n2-0"], "any")
        expect_equal(chosen_near("--to", "n1:1"), ["GPU-n1-1"], "by name, of its node and another compute capability")
        expect_equal(chosen_near("--to", "n1"), ["GPU-n1-1"], "of its node, which has no other")
        expect_equal(chosen_for("n3", "--to", "n3"), ["GPU-n3-0"], "of a node")
        expect_equal(chosen_for("n3", "--to", "GPU-n3-1"), ["GPU-n3-1"], "by name, of another compute capability")
        c.ctl("cordon", "n2")
        expect_equal(chosen_for("n3"), ["GPU-n3-0"], "beside a cordoned node")
        c.refused(1, "node cordoned", "migrate", VM, "--to", "n2")
        c.refused(1, "n2:1: node cordoned", "migrate", VM, "--to", "n2:1")
        c.ctl("cordon", "n3:0")
        expect_equal(chosen_near(), ["GPU-n1-1"], "where there is no other, one of another compute capability, of its node")
        c.ctl("cordon", "n1:1")
        expect_equal(chosen_for("n3"), ["GPU-n3-1"], "or of another node")
        c.nodes["n3"].drop()
        within(60, lambda: c.ctl_run("migrate", VM, "--to", "n3:1").err.find("not connected") >= 0, "a node that is away")
        c.refused(1, "VM 10.0.0.7 cannot move to node n3: it is not connected", "migrate", VM, "--to", "n3")
        c.refused(1, "nor to another node", "migrate", VM)
        c.ctl("uncordon", "n2")
        expect_equal(chosen_for("n2"), ["GPU-n2-0"], "once it may be used again")
        c.ctl("vm", "set", VM, "--exclude-gpu", "n2:0")
        within(60, lambda: [v for v in c.ctl("vms") if v.get("exclude_gpus")], "the document is read")
        expect_equal(chosen_for("n2"), ["GPU-n2-1"], "the VM's own conditions")
        c.refused(1, "not among the GPUs wanted", "migrate", VM, "--to", "n2:0")
        c.refused(2, "1 to 8", "migrate", VM, "--to", "n2:1", "--streams", "9")
        # Nodes that refuse, or are too old.
        c.nodes["n1"].answers[ORDER_SEND] = ("NOT_SUPPORTED", "a program uses the device-side heap")
        c.nodes["n2"].answers.clear()
        c.refused(1, "node n1 refused: a program uses the device-side heap", "migrate", VM, "--to", "n2:1")
        within(60, lambda: not c.nodes["n2"].allocations, "n2 has dropped it")
        c.nodes["n1"].knows_migrations = False
        c.refused(1, "node n1 (build by hand) cannot send programs to another node: it is older", "migrate", VM, "--to", "n2:1")
        within(60, lambda: not c.nodes["n2"].allocations, "n2 has dropped it")
        c.nodes["n2"].knows_migrations = False
        c.refused(1, "node n2 (build by hand) cannot receive programs of another node", "migrate", VM, "--to", "n2:1")
        within(60, lambda: not c.entries("arriving"), "nothing of them is recorded any more")
        expect_equal((c.row(VM)["gpu"], c.charged()["n1:0"]), (HERE, (16, GIB, 2)), "where it is")


def encryption_of(address, setting, is_encrypted):
    with two_nodes(manager={"migration_encrypted": '"%s"' % setting, "encrypted": "true" if is_encrypted else "false"}) as c:
        c.nodes["n2"].urls = [address]
        c.nodes["n2"].connect()
        sent, received = begin(c)
        expect_equal(sent.urls, [address], "the addresses of n2")
        result = sent.is_encrypted
        expect_equal(received.is_encrypted, result, "what n2 was told")
        expect_equal(c.migration(sent)["encrypted"], result, "as it is shown")
        says(c, "n1", sent, FAILED, CONFLICT, "enough")
        expect_stayed(c, sent, "enough")
        return result


@scenario
def encrypted():
    """What is asked is encrypted always; the rest as the setting says, and as the way there is."""
    far, near = "tcp://192.0.2.7:9400", "tcp://127.0.0.1:9400"
    expect_equal([encryption_of(address, setting, False) for setting in ("auto", "always", "asked") for address in (far, near)],
                 [True, False, True, True, False, False], "programs with channels in clear")
    expect_equal([encryption_of(near, setting, True) for setting in ("auto", "asked")], [True, True],
                 "programs with encrypted channels")


@scenario
def orders_without_an_answer():
    """n1 has taken the order, and says so late: what both say meanwhile is no reason to give up."""
    with two_nodes(manager={"order_timeout_s": 4.0}) as c:
        n1, n2 = c.nodes["n1"], c.nodes["n2"]
        n1.answers[ORDER_SEND] = "silent"
        process = c.start("migrate", VM, "--to", "n2:1")
        sent, received = n1.wait_migration(procedure=ORDER_SEND), n2.wait_migration(procedure=ORDER_RECEIVE)
        says(c, "n2", received, PREPARING)
        beats = n1.beats
        within(60, lambda: n1.beats > beats + 1, "n1 says what it has")
        expect_equal((sent.is_cancelled, received.is_cancelled), (False, False), "who was told to give up")
        switched(c, sent, received)
        gone_on(c, sent, received)
        expect_moved(c, sent)
        finish(process, 0, "has moved to n2:1")


@scenario
def fails_before_the_switch():
    """Each side, and the cluster manager's own reasons: the programs go on where they are, n2 has nothing of it."""
    with two_nodes() as c:
        n1, n2 = c.nodes["n1"], c.nodes["n2"]
        # The source gives up.
        sent, received = begin(c)
        copied(c, sent, received)
        says(c, "n1", sent, FAILED, CONFLICT, "solver (pid 12) did not stop within 2000 ms")
        expect_stayed(c, sent, "did not stop within")
        expect(received.is_cancelled, "n2 was told")
        # The target has no memory for it.
        process = c.start("migrate", VM, "--to", "n2")
        sent, received = n1.wait_migration(2, ORDER_SEND), n2.wait_migration(2, ORDER_RECEIVE)
        says(c, "n1", sent, COPYING, **FIGURES)
        dropped(c, received, "there is no memory for it")
        finish(process, 1, "there is no memory for it")
        expect(sent.is_cancelled, "n1 was told")
        c.ends(sent, "failed")
        # The target has not all programs.
        c.ctl("migrate", VM, "--to", "n2:1", "--detach")
        sent, received = n1.wait_migration(3, ORDER_SEND), n2.wait_migration(3, ORDER_RECEIVE)
        n2.answers[ORDER_SWITCH] = ("CONFLICT", "1 program has come, of 2")
        arrived(c, sent, received)
        expect_stayed(c, sent, "1 program has come, of 2")
        expect_equal((sent.is_cancelled, received.is_cancelled, n1.count(ORDER_SWITCH)), (True, True, 0), "who was told what")
        del n2.answers[ORDER_SWITCH]
        # Cancelled by an operator; also when everything has arrived and n2 does not answer.
        for number, is_late in ((4, False), (5, True)):
            c.ctl("migrate", VM, "--to", "n2:1", "--detach")
            sent, received = n1.wait_migration(number, ORDER_SEND), n2.wait_migration(number, ORDER_RECEIVE)
            if is_late:
                n2.answers[ORDER_SWITCH] = "deaf"
                arrived(c, sent, received)
                within(60, lambda: n2.count(ORDER_SWITCH) > 1, "n2 is told to switch")
            result = c.ctl_run("migrate", VM, "--cancel")
            expect_equal(result.status, 0, "the cancelling", result)
            expect_stayed(c, sent, "cancelled it")
        # The allocation is to end.
        del n2.answers[ORDER_SWITCH]
        c.ctl("migrate", VM, "--to", "n2:1", "--detach")
        sent, received = n1.wait_migration(6, ORDER_SEND), n2.wait_migration(6, ORDER_RECEIVE)
        copied(c, sent, received)
        c.ctl("vm", "remove", VM, "--kill")
        c.ends(sent, "failed")
        within(60, lambda: not c.ctl("allocations") and not n1.allocations and not n2.allocations, "all has ended")
        expect_equal(set(c.charged().values()), {(0, 0, 0)}, "charged")


@scenario
def source_goes_on_at_the_switch():
    """Recorded as n2's already, and n1 has waited too long: n2 drops it, it is n1's again, the VM was told nothing else."""
    with two_nodes() as c:
        n1, n2 = c.nodes["n1"], c.nodes["n2"]
        sent, received = begin(c)
        c.ask(VM)
        n2.gives_up = True
        n1.answers[ORDER_SWITCH] = ("CONFLICT", "its programs go on here")
        arrived(c, sent, received)
        within(60, lambda: c.phase(sent) == "failed", "it has failed")
        expect("n2" not in c.told(VM), "what the VM was told", c.told(VM))
        expect_equal((n1.count(ORDER_SEND_BACK), received.is_cancelled), (0, True), "who was told what")
        expect_stayed(c, sent, "its programs go on here")
        kinds = [e["kind"] for e in c.ctl("events", VM) if e["kind"].startswith("migration.")]
        expect_equal(kinds, ["migration.started", "migration.back", "migration.failed"], "events")


@scenario
def target_fails_after_the_switch():
    """No program has come to n2: it is n1's again, whose servers take their programs back."""
    with two_nodes() as c:
        n1 = c.nodes["n1"]
        sent, received = begin(c)
        c.ask(VM)
        switched(c, sent, received)
        within(60, lambda: c.told(VM) == ["n2"], "the VM is told")
        n1.answers[ORDER_SEND_BACK] = "deaf"
        dropped(c, received, "no program came within 60 s")
        within(60, lambda: n1.ordered(ORDER_SEND_BACK), "n1 is to take them back")
        expect_equal(n1.ordered(ORDER_SEND_BACK)[0], (sent.id, "no program came within 60 s"), "what it is told")
        # The documents were first.
        id_text = "%016x" % sent.allocation.id
        expect_equal((c.entries(), c.entries("arriving")), ([("n1:0", id_text)], [("n2:1", id_text)]), "recorded before")
        within(60, lambda: c.told(VM)[-1] == "n1", "the VM is told where to go")
        expect_equal(c.phase(sent) in ("done", "failed"), False, "over before n1 has answered")
        del n1.answers[ORDER_SEND_BACK]
        expect_stayed(c, sent, "no program came within 60 s")
        # And the next one goes well.
        sent, received = begin(c, 2)
        switched(c, sent, received)
        gone_on(c, sent, received)
        expect_moved(c, sent)


class Standing(dict):
    """Figures of programs that stand still: for longer each time that they are told."""

    def __init__(self, *args, **figures):
        super().__init__(*args, **figures)
        self.begun = time.monotonic()

    def get(self, name, other=None):
        longer = int((time.monotonic() - self.begun) * 1e6) if name == "standstill_us" else 0
        return super().get(name, other) + longer


@scenario
def source_dies_with_its_answer():
    """n1 has let its programs go, and is restarted before it can say so: what it had not said of their standstill counts."""
    with two_nodes() as c:
        n1, n2 = c.nodes["n1"], c.nodes["n2"]
        sent, received = begin(c)
        copied(c, sent, received)
        n1.answers[ORDER_SWITCH] = "silent"
        with n2.mutex:                  # it answers nothing
            sent.figures = Standing(FIGURES)
            says(c, "n1", sent, ARRIVED)
            time.sleep(1)
        within(60, lambda: sent.phase == SWITCHING, "n1 lets its programs go")
        n1.drop()
        n1.answers.clear()
        sent.figures = {}
        n1.connect()
        gone_on(c, sent, received)
        expect_moved(c, sent)
        row = c.migration(sent)
        expect(row["standstill_us"] >= 41000 + 1000000 + 9000, "the standstill", row)


def ends_well(c, state, sent, received):
    if state == "copying":
        switched(c, sent, received)
    within(60, lambda: sent.phase == SWITCHING, "n1 lets its programs go")
    gone_on(c, sent, received)
    expect_moved(c, sent)


def ends_badly(c, state, sent, received):
    c.nodes["n2"].gives_up = True
    if state == "switched":
        dropped(c, received)
        expect_stayed(c, sent, "as the test says")
        expect_equal(sent.phase, FAILED, "where n1 has them")
        return
    says(c, "n1", sent, FAILED, CONFLICT, "nobody told it to switch")
    expect_stayed(c, sent, "nobody told it to switch")


def reaches(c, state, sent, received):
    """As far as this, and no further before the answers are cleared."""
    n1, n2 = c.nodes["n1"], c.nodes["n2"]
    if state == "copying":
        copied(c, sent, received)
    elif state == "opening":        # n2 has done it, and the manager does not know
        n2.answers[ORDER_SWITCH] = "silent"
        arrived(c, sent, received)
        within(60, lambda: n2.ordered(ORDER_SWITCH), "n2 is told to switch")
    elif state == "recorded":       # and n1 does not know
        n1.answers[ORDER_SWITCH] = "deaf"
        arrived(c, sent, received)
        within(60, lambda: n1.ordered(ORDER_SWITCH), "n1 is told to switch")
    else:
        switched(c, sent, received)


STATES = ("copying", "opening", "recorded", "switched")


def killed_in(make, states, ends=(True, False)):
    for is_good in ends:
        for state in states:
            with two_nodes(make) as c:
                sent, received = begin(c, 1, "--streams", "3", "--pack", "zstd")
                reaches(c, state, sent, received)
                c.manager.restart(signal.SIGKILL)
                for node in c.nodes.values():
                    if not (state == "recorded" and not is_good):
                        node.answers.clear()
                if not is_good and state in ("copying", "opening"):
                    c.nodes["n2"].answers[ORDER_SWITCH] = "deaf"
                c.reconnect()
                expect_equal([(m["node"], m["target_node"], m["who"].split(":")[0], m["streams"], m["packing"], m["encrypted"])
                              for m in c.migrations()],
                             [("n1", "n2", "operator", 3, "zstd", False)], "what the next one knows of it, killed when", state)
                expect_equal(c.charged(), BOTH, "charged over the restart")
                for name, uuid in (("n1", HERE), ("n2", THERE)):
                    expect_equal(c.nodes[name].told[sent.allocation.id].gpus, [uuid], name, "is to have, killed when", state)
                (ends_well if is_good else ends_badly)(c, state, sent, received)


@scenario
def manager_killed():
    """In each state, and what it has begun then ends well, or badly."""
    killed_in(cluster, STATES)


@scenario
def manager_killed_with_a_shared_store():
    killed_in(cluster_on_mongod, ("recorded",), (True,))


@scenario
def manager_killed_at_the_end():
    """While the ends are written: it is where its programs are, once."""
    with two_nodes() as c:
        for attempt in range(1, 5):
            sent, received = begin(c, attempt)
            switched(c, sent, received)
            if attempt % 2:
                dropped(c, received)
            else:
                gone_on(c, sent, received)
            c.manager.restart(signal.SIGKILL)
            c.reconnect()
            # The event of its end may be lost with the manager; what counts is where it is.
            c.expect_on(VM, "n1:0" if attempt % 2 else "n2:1")
            other = c.nodes["n2" if attempt % 2 else "n1"]
            within(60, lambda: not has(other, sent.allocation.id), "the other node has nothing of it any more")
            expect_equal(c.charged(), STAYED if attempt % 2 else MOVED, "charged afterwards")
            if attempt % 2:
                continue
            c.ctl("migrate", VM, "--to", "n1:0", "--detach")
            sent = c.nodes["n2"].wait_migration(attempt // 2, ORDER_SEND)
            received = c.nodes["n1"].wait_migration(attempt // 2, ORDER_RECEIVE)
            says(c, "n2", sent, ARRIVED, **FIGURES)
            within(60, lambda: sent.phase == SWITCHING, "n2 lets its programs go")
            says(c, "n1", received, DONE)
            c.manager.restart(signal.SIGKILL)
            c.reconnect()
            c.expect_on(VM, "n1:0")


@scenario
def nodes_away():
    """Either node's connection ends in each state, and it comes back as it was: nothing is decided meanwhile but what must be."""
    for name in ("n1", "n2"):
        for state in STATES:
            with two_nodes() as c:
                node = c.nodes[name]
                sent, received = begin(c)
                reaches(c, state, sent, received)
                node.drop()
                expect_equal(c.charged(), BOTH, "charged while", name, "is away")
                for each in c.nodes.values():
                    each.answers.clear()
                node.connect()
                expect_equal(node.told[sent.allocation.id].gpus, [HERE if name == "n1" else THERE], name, "is to have", state)
                ends_well(c, state, sent, received)


@scenario
def nodes_that_forgot():
    """A node comes back and knows nothing of it: before it is recorded as n2's that is the end; afterwards what n2 has
    decides, and programs that have gone on there stay there."""
    with two_nodes() as c:
        for number, name in ((1, "n1"), (2, "n2")):
            sent, received = begin(c, number)
            copied(c, sent, received)
            c.nodes[name].drop()
            del c.nodes[name].migrations[sent.id]
            if name == "n2":
                c.nodes[name].allocations.clear()
            c.nodes[name].connect()
            expect_stayed(c, sent, "node %s knows nothing of it" % name)
        # Recorded as n2's, and n1 was restarted before its programs were to leave: they go on there.
        sent, received = begin(c, 3)
        reaches(c, "recorded", sent, received)
        c.nodes["n1"].drop()
        c.nodes["n1"].answers.clear()
        del c.nodes["n1"].migrations[sent.id]
        c.nodes["n2"].gives_up = True
        c.nodes["n1"].connect()
        expect_stayed(c, sent, "node n1 knows nothing of it")
        c.nodes["n2"].gives_up = False
        for number, has_it in ((4, False), (5, True)):
            sent, received = begin(c, number)
            switched(c, sent, received)
            c.nodes["n2"].drop()
            del c.nodes["n2"].migrations[sent.id]
            if not has_it:
                c.nodes["n2"].allocations.clear()
            c.nodes["n2"].connect()
            if has_it:
                expect_moved(c, sent)
            else:
                expect_stayed(c, sent, "node n2 knows nothing of it")


@scenario
def source_away_at_the_end():
    """The programs go on at n2, and n1 is not there to be told: what it has stays charged until it is; a restart of the
    manager changes nothing. n1 has it still when it is back, and is told that it has it no longer."""
    for restarts in (False, True):
        with two_nodes() as c:
            sent, received = begin(c)
            switched(c, sent, received)
            within(60, lambda: c.migration(sent)["phase"] == "switching", "it switches")
            c.nodes["n1"].drop()
            gone_on(c, sent, received)
            if restarts:
                c.manager.restart(signal.SIGKILL)
                c.nodes["n2"].connect()
                within(60, lambda: c.ctl_run("vms").status == 0, "the manager answers")
            within(60, lambda: "is freed when that is back" in (c.migration(sent)["reason"] or ""), "what is waited for is said")
            expect_equal((c.charged(), c.row(VM)["gpu"], c.ask(VM)[0]), (BOTH, THERE, "n2"), "meanwhile")
            expect(has(c.nodes["n1"], sent.allocation.id), "n1 has it still")
            c.nodes["n1"].connect()
            expect(sent.allocation.id not in c.nodes["n1"].told, "what n1 is to have")
            expect_moved(c, sent)


@scenario
def a_stray():
    """n2 was away when the migration failed: what it may have is charged until it is back and has dropped it."""
    with two_nodes() as c:
        sent, received = begin(c)
        copied(c, sent, received)
        c.nodes["n2"].drop()
        says(c, "n1", sent, FAILED, CONFLICT, "the connection to node n2 ended")
        within(60, lambda: c.phase(sent) == "failed", "it has failed")
        expect(not c.migration(sent)["ended_ms"], "it is not over")
        expect(has(c.nodes["n2"], sent.allocation.id), "n2 has it still")
        expect_equal(c.charged(), BOTH, "charged while n2 is away")
        c.nodes["n2"].connect()
        expect_stayed(c, sent, "the connection to node n2 ended")
        expect(not [e for e in c.ctl("events") if e["kind"] == "allocation.orphan"], "no orphan of it")


@scenario
def fenced():
    """A node of the two is dead: before the switch it stays where it is, or ends with its node; afterwards it is where its
    programs can be."""
    for name, state, expected in (("n2", "copying", "n1:0"), ("n1", "copying", None), ("n2", "switched", "n1:0"),
                                  ("n1", "switched", "n2:1")):
        with two_nodes(manager={"node_lost_s": 4.0}) as c:
            sent, received = begin(c)
            reaches(c, state, sent, received)
            c.nodes[name].close()
            within(90, lambda: c.ctl_run("node", "fence", name, "--confirmed-dead").status == 0, name + " is fenced")
            if name == "n1" and state == "switched":
                gone_on(c, sent, received)
            within(60, lambda: not [m for m in c.migrations() if m["phase"] not in ("done", "failed")], "it is over")
            if expected is None:
                within(60, lambda: not c.ctl("allocations") and not c.nodes["n2"].allocations, "all has ended")
            else:
                c.expect_on(VM, expected)
            expect_equal({k: v for k, v in c.charged().items() if any(v)}, {expected: (16, GIB, 2)} if expected else {},
                         "charged when", name, "was fenced,", state)


@scenario
def drained():
    """A node's VMs move to others; what has room there on no GPU stays, and is named."""
    with cluster(nodes=("n1", "n2"), gpus=2, sms=32, slots=16) as c:
        vms = ["10.0.0.7", "10.0.0.8"]
        for vm_ip, sms in zip(vms, (8, 32)):
            c.ctl("vm", "add", vm_ip, "--sm", sms, "--memory", "1G", "--sessions", "2", "--include-gpu", "n1:0", "--include-gpu", "n1:1")
            c.attach(vm_ip)
            c.ctl("vm", "set", vm_ip, "--include-gpu", "")
        within(30, lambda: not [v for v in c.ctl("vms") if v.get("include_gpus")], "the documents are read")
        c.ctl("cordon", "n2:1")
        process = c.start("drain", "n1", "--migrate", "--streams", "2")
        sent, received = c.nodes["n1"].wait_migration(1, ORDER_SEND), c.nodes["n2"].wait_migration(1, ORDER_RECEIVE)
        expect_equal((sent.streams, received.allocation.gpus), (2, ["GPU-n2-0"]), "how, and where to")
        first, other = received.allocation.vm_ip, [v for v in vms if v != received.allocation.vm_ip][0]
        switched(c, sent, received)
        gone_on(c, sent, received)
        finish(process, 1, first + " has moved to n2:0", other + " stays where it is", "1 moved, 1 not")
        c.expect_on(first, "n2:0")


@scenario
def resized_on_the_way():
    """Where no GPU of the node has room, another node's has."""
    with two_nodes(gpus=2, sms=16) as c:
        c.vm("10.0.0.8")
        expect_equal(c.row("10.0.0.8")["gpu"], "GPU-n1-1", "what is on the other GPU")
        process = c.start("resize", VM, "--memory", "9G", "--migrate")
        finish(process, 1, "nor to another node")
        process = c.start("resize", VM, "--memory", "7.5G", "--migrate")    # beside it there is room: it stays
        finish(process, 0, "is resized")
        c.ctl("vm", "remove", "10.0.0.8", "--kill")
    with cluster(nodes=("n1", "n2"), gpus=1, sms=32) as c:
        c.vm(VM, 16)
        c.vm("10.0.0.8", 16)
        process = c.start("resize", VM, "--sm", "24", "--migrate")
        sent, received = c.nodes["n1"].wait_migration(1, ORDER_SEND), c.nodes["n2"].wait_migration(1, ORDER_RECEIVE)
        expect_equal((received.allocation.slots[0].sms, sent.allocation.slots[0].sms), (24, 16), "its size there, and here")
        says(c, "n1", sent, FAILED, CONFLICT, "as the test says")
        finish(process, 1, "as the test says")
        expect_equal(c.row(VM)["sms"], 16, "its size after the failure")
        process = c.start("resize", VM, "--sm", "24", "--migrate")
        sent, received = c.nodes["n1"].wait_migration(2, ORDER_SEND), c.nodes["n2"].wait_migration(2, ORDER_RECEIVE)
        switched(c, sent, received)
        gone_on(c, sent, received)
        finish(process, 0, "has moved to n2:0")
        row = c.expect_on(VM, "n2:0")
        expect_equal((row["sms"], row["sms_wanted"]), (24, 24), "its size")
        expect_equal(c.charged(), {"n1:0": (16, GIB, 2), "n2:0": (24, GIB, 2)}, "charged")


@scenario
def several_gpus():
    """A VM with two GPUs moves with both; so do the documents, over a kill at each step."""
    with cluster(nodes=("n1", "n2"), gpus=2) as c:
        c.ctl("vm", "add", VM, "--sm", "16", "--memory", "1G", "--sessions", "2", "--devices", "2")
        within(60, lambda: c.ask(VM), "it is granted something")
        for number, (state, is_good) in enumerate((("copying", False), ("switched", False), ("recorded", True)), 1):
            expect_equal(sorted(a["gpu"] for a in c.rows(VM)), ["GPU-n1-0", "GPU-n1-1"], "where it is")
            c.refused(1, "which move together", "migrate", VM, "--to", "n2:0")
            c.ctl("migrate", VM, "--to", "n2", "--detach")
            sent, received = c.nodes["n1"].wait_migration(number, ORDER_SEND), c.nodes["n2"].wait_migration(number, ORDER_RECEIVE)
            expect_equal(sorted(received.allocation.gpus), ["GPU-n2-0", "GPU-n2-1"], "where to")
            reaches(c, state, sent, received)
            c.manager.restart(signal.SIGKILL)
            for node in c.nodes.values():
                node.answers.clear()
            c.reconnect()
            if is_good:
                within(60, lambda: sent.phase == SWITCHING, "n1 lets its programs go")
                gone_on(c, sent, received)
            elif state == "copying":
                says(c, "n1", sent, FAILED, CONFLICT, "as the test says")
            else:
                dropped(c, received)
            c.ends(sent, "done" if is_good else "failed")
            name = "n2" if is_good else "n1"
            within(60, lambda: all(a["revision_applied"] == a["revision"] for a in c.rows(VM)), "the node has it")
            within(60, lambda: [p for p, _ in c.entries()] == [name + ":0", name + ":1"] and not c.entries("arriving"), "stored")
        expect_equal(sorted(a["gpu"] for a in c.rows(VM)), ["GPU-n2-0", "GPU-n2-1"], "where it is")


if __name__ == "__main__":
    main()
