#!/usr/bin/env python3
"""A VM's programs that share memory and events (programs/sharer.cu) move together: to other processes on the same GPU, to another
GPU, through the host's memory. Afterwards they share what they shared, at the same addresses; where it fails at any point all
is as it was, and nothing more is charged."""
import os
import signal

import sharer
from cluster import System
from harness import environment, expect, expect_equal, main, scenario, within
from sharer import MIB, sharers, total
from steady import add_vm, allocation, is_idle

PATIENCE = ("--stop-timeout", "60000", "--timeout", "240")
# Where to, and how memory comes there (None: as it likes).
WAYS = (("same", None), ("other", None), ("other", "copying.peer:error"))
TOLERANCE = 4 * MIB         # of what servers hold for themselves
LITTLE, LARGE, PHYSICAL, POOLED = 12000, 3 * MIB, 2 * MIB, MIB


def whole_system(faults=None, nodes=1):
    options = dict(sharer.OPTIONS)
    if faults:
        options["env"] = environment(FLYT_FAULT=faults)
    system = System(vms=1, nodes=nodes, gpus=3 - nodes, **options)
    try:
        add_vm(system, 0, "--name", "vm0", "--sessions", 6, sm=16, memory=sharer.VM_MEMORY)
    except BaseException:
        system.print_logs()
        system.close()
        raise
    return system


def place(system):
    """"node:index" of the GPU that the VM has, and of another one; None: there is but one."""
    gpus = {g["uuid"]: "%s:%d" % (g["node"], g["index"]) for g in system.flytctl("gpus")}
    here = gpus[allocation(system, 0)["gpu"]]
    return here, next((name for name in sorted(gpus.values()) if name != here), None)


def migrates(system, way, *words):
    here, other = place(system)
    same = way == "same" or not other
    return system.flytctl_run("migrate", "vm0", "--to", here if same else other, *PATIENCE, *(["--force"] if same else []),
                              *words, timeout=300)


def servers(system):
    return {s["id"]: s["server_pid"] for s in system.flytctl("sessions")}


def moves(system, way):
    before = servers(system)
    result = migrates(system, way)
    expect_equal(result.status, 0, "flytctl migrate", way, result)
    after = servers(system)
    expect_equal(set(after), set(before), "sessions")
    expect(all(after[id] != pid for id, pid in before.items()), "server processes:", before, after)


def passes(system, sender, receiver, name):
    path = system.path("%s.%s" % (name, receiver.name[0]))
    receiver.says("receive", name, path)
    receiver.hears("listens")
    sender.does("send", name, path)
    receiver.hears("ok")


class Family:
    """A, B and C: each of A's things is B's and C's, and B has memory and an event that A has."""

    def __init__(self, system):
        self.system = system
        self.a, self.b, self.c = a, b, c = sharers(system, 3)
        self.bytes = {"little": LITTLE, "large": LARGE, "physical": PHYSICAL, "pooled": POOLED, "back": LARGE}
        for name in ("little", "large"):
            a.does("alloc", name, self.bytes[name])
            for other in (b, c):
                other.does("open", name, a.does("handle", name))
        a.does("create", "physical", PHYSICAL)
        passes(system, a, b, "physical")
        passes(system, b, c, "physical")
        path = system.path("pool")
        b.says("receive_pool", path)
        b.hears("listens")
        a.does("make_pool", path)
        b.hears("ok")
        a.does("take", "pooled", POOLED)
        b.does("accept", "pooled", a.does("pointer", "pooled"))
        b.does("alloc", "back", LARGE)
        a.does("open", "back", b.does("handle", "back"))
        self.has = {"little": (a, b, c), "large": (a, b, c), "physical": (a, b, c), "pooled": (a, b), "back": (b, a)}
        for name, owner in (("event", a), ("answer", b)):
            owner.does("make_event", name)
            handle = owner.does("event_handle", name)
            for other in {a, b, c} - {owner}:
                other.does("open_event", name, handle)
        # One that its maker has destroyed: those who have it keep it.
        a.does("make_event", "orphan")
        handle = a.does("event_handle", "orphan")
        for other in (b, c):
            other.does("open_event", "orphan", handle)
        a.does("end_event", "orphan")
        # Freed memory whose handle was asked for: nobody has it.
        a.does("alloc", "gone", MIB)
        a.does("handle", "gone")
        a.does("free", "gone")
        self.seed, self.seeds = 100, {}
        self.writes()

    def writes(self):
        """Each thing, by one of those who have it."""
        for i, (name, those) in enumerate(sorted(self.has.items())):
            self.seed += 1
            those[(self.seed + i) % len(those)].does("fill", name, self.seed)
            self.seeds[name] = self.seed

    def finds_it(self, what):
        for name, those in sorted(self.has.items()):
            for one in those:
                expect_equal(one.does("sum", name), total(self.seeds[name], self.bytes[name]), one.name, name, what)

    def shares(self, what):
        self.finds_it(what)
        self.writes()
        self.finds_it(what)
        self.orders(what)

    def orders(self, what):
        """By each event, in each direction."""
        a, b, c = self.a, self.b, self.c
        for event, writer, readers in (("event", a, (b, c)), ("event", c, (a, b)), ("answer", b, (a, c)), ("orphan", b, (c,))):
            self.seed += 1
            self.seeds["little"] = self.seed
            writer.does("hold")
            writer.does("fill_later", "little", self.seed)
            writer.does("record", event)
            for reader in readers:
                reader.is_refused("CUDA_ERROR_NOT_READY", "query", event)
                reader.does("await", event)
                reader.says("sum", "little")
            writer.does("let_go")
            for reader in readers:
                expect_equal(reader.hears("ok")[1], total(self.seed, LITTLE), reader.name, what, event)

    def left(self):
        """Free bytes of the VM, as each of its programs sees them."""
        return int(self.a.does("left"))

    def has_left(self, before):
        within(30, lambda: abs(self.left() - before) <= TOLERANCE,
               "as much is free as before: %d, and not %d" % (before, self.left()))

    def ends(self):
        for name, those in sorted(self.has.items()):
            for one in reversed(those):
                one.does("free", name)
        for one in (self.c, self.b, self.a):
            one.ends()
        is_idle(self.system)


@scenario
def they_share_afterwards():
    for way, faults in WAYS:
        with whole_system(faults) as system:
            family = Family(system)
            family.shares("before")
            before = family.left()
            for i in range(3):
                moves(system, way)
                family.shares((way, faults, i))
                family.has_left(before)
            newcomer, = sharers(system, 1)
            newcomer.does("open", "large", family.a.does("handle", "large"))
            expect_equal(newcomer.does("sum", "large"), total(family.seeds["large"], LARGE), "of a handle")
            newcomer.does("open_event", "event", family.a.does("event_handle", "event"))
            newcomer.does("synchronize", "event")
            newcomer.ends()
            family.ends()


@scenario
def what_was_under_way_is_there():
    """B's kernel writes A's memory when A has stopped long since: what A takes along is what B has written."""
    for way, faults in WAYS:
        with whole_system(faults) as system:
            a, b = sharers(system, 2)
            a.does("alloc", "memory", LARGE)
            a.does("fill", "memory", 1)
            b.does("open", "memory", a.does("handle", "memory"))
            b.does("hold")
            b.does("fill_later", "memory", 2)
            before = len(system.flytctl("migrations"))
            migrates(system, way, "--detach")
            within(60, lambda: len(system.flytctl("migrations")) > before, "the migration is known")
            within(120, lambda: system.flytctl("migrations")[-1]["phase"] == "stopping", "A has been stopped")
            b.does("let_go")
            within(120, lambda: system.flytctl("migrations")[-1]["phase"] == "done", "it is done")
            for one in (a, b):
                expect_equal(one.does("sum", "memory"), total(2, LARGE), one.name, way, faults)
            b.does("free", "memory")
            for one in (b, a):
                one.ends()
            is_idle(system)


@scenario
def at_another_node():
    """And back; and, where one cannot go on there, all stay."""
    with whole_system(nodes=2) as system:
        family = Family(system)
        family.shares("before")
        before = family.left()
        for i in range(2):
            moves(system, "other")
            family.shares(i)
            family.has_left(before)
        family.ends()
    for point in ("node.send.arrive:error:2", "node.load.client:error:2"):
        with whole_system(point, nodes=2) as system:
            family = Family(system)
            before, here = family.left(), place(system)
            expect(migrates(system, "other").status != 0, "it fails:", point)
            within(60, lambda: place(system) == here and len(system.flytctl("sessions")) == 3, "all are where they were")
            family.shares(point)
            family.has_left(before)
            family.ends()


@scenario
def servers_that_are_left_die():
    """All of them, when they have stopped, and when their clients are on their way: all go on where they were to."""
    for way, point in (("other", "move.told"), ("same", "move.left")):
        with whole_system(point + ":kill") as system:
            family = Family(system)
            family.shares("before")
            before = family.left()
            moves(system, way)
            expect("made to end by FLYT_FAULT" in system.log("node-0"), "servers were killed:", point, way)
            family.shares((way, point))
            family.has_left(before)
            family.ends()


@scenario
def a_new_server_that_dies():
    """When its client makes its objects again: all are where they were, and move the next time."""
    with whole_system("prepare.counts:kill") as system:
        family = Family(system)
        family.shares("before")
        before, here = family.left(), place(system)
        expect(migrates(system, "other").status != 0, "it fails")
        expect_equal(place(system), here, "where it is")
        family.shares("where it was")
        family.has_left(before)
        family.ends()


@scenario
def after_a_restart_of_the_node_manager():
    """The next one knows who has what by what servers have told it."""
    with whole_system() as system:
        family = Family(system)
        family.shares("before")
        before = family.left()
        system.kill(system.node_name(0))
        system.restart(system.node_name(0))
        within(60, lambda: len(system.flytctl("sessions")) == 3, "all have come back")
        within(60, lambda: migrates(system, "other").status == 0, "it moves")
        family.shares("moved")
        family.has_left(before)
        family.ends()


@scenario
def into_images_and_back():
    """Of running programs, which go on; and of all, which wait there. What B has under way when A has stopped is in A's image.
    One of several is not written alone."""
    with whole_system() as system:
        folder = system.path("images")
        os.mkdir(folder)
        family = Family(system)
        family.shares("before")
        before = family.left()
        result = system.flytctl_run("checkpoint", min(servers(system)), "--to", folder)
        expect(result.status != 0 and "shares memory or events" in result.out + result.err, result)
        system.flytctl("checkpoint", "vm0", "--to", folder, "--leave-running")
        family.shares("in images, and running")
        family.b.does("hold")
        family.seed += 1
        family.seeds["large"] = family.seed
        family.b.does("fill_later", "large", family.seed)
        family.b.does("record", "answer")
        family.a.does("await", "answer")
        family.b.does("let_go")
        system.flytctl("checkpoint", "vm0", "--to", folder)
        expect_equal({s["state"] for s in system.flytctl("sessions")}, {"checkpointed"}, "all are in images")
        system.flytctl("restore", folder)
        family.shares("restored")
        family.has_left(before)
        moves(system, "other")
        family.shares("and moved")
        family.ends()


@scenario
def one_that_begins_while_others_are_written():
    """It is given memory of one of them when that is over: else it could write what is being written."""
    with whole_system() as system:
        folder = system.path("images")
        os.mkdir(folder)
        a, b = sharers(system, 2)
        a.does("alloc", "memory", LARGE)
        handle = a.does("handle", "memory")
        b.does("open", "memory", handle)
        b.does("hold")
        b.does("fill_later", "memory", 5)
        begun = system.flytctl("checkpoint", "vm0", "--to", folder, "--leave-running", "--stop-timeout", 3600000, "--detach")

        def phase():
            return system.flytctl("checkpoints", begun["id"])[0]["phase"]

        within(60, lambda: phase() == "stopping", "B's work is waited for")
        newcomer, = sharers(system, 1)
        newcomer.says("open", "memory", handle)
        newcomer.hears_nothing()
        b.does("let_go")
        newcomer.hears("ok")
        expect_equal(newcomer.does("sum", "memory"), total(5, LARGE), "what the newcomer finds")
        within(60, lambda: phase() == "done", "it is written")
        newcomer.does("free", "memory")
        b.does("free", "memory")
        for one in (newcomer, b, a):
            one.ends()
        is_idle(system)


@scenario
def one_that_begins_while_others_go_into_images():
    """Memory and events of those that have gone are not there for it."""
    with whole_system() as system:
        folder = system.path("images")
        os.mkdir(folder)
        a, b = sharers(system, 2)
        a.does("alloc", "memory", LARGE)
        a.does("make_event", "event")
        handle, event = a.does("handle", "memory"), a.does("event_handle", "event")
        b.does("open", "memory", handle)
        b.does("hold")
        b.does("fill_later", "memory", 5)
        begun = system.flytctl("checkpoint", "vm0", "--to", folder, "--stop-timeout", 3600000, "--detach")

        def phase():
            return system.flytctl("checkpoints", begun["id"])[0]["phase"]

        within(60, lambda: phase() == "stopping", "B's work is waited for")
        newcomers = sharers(system, 2)
        for one, words in zip(newcomers, (("open", "memory", handle), ("open_event", "event", event))):
            one.says(*words)
            one.hears_nothing()
        b.does("let_go")
        within(60, lambda: phase() == "done", "it is written")
        for one in newcomers:
            expect(one.hears()[0].startswith("CUDA_ERROR"), "what is in an image is not there")
            one.ends()
        expect_equal(system.flytctl_run("restore", folder, timeout=120).status, 0, "they come back")
        expect_equal(b.does("sum", "memory"), total(5, LARGE), "what B has")
        b.does("free", "memory")
        for one in (b, a):
            one.ends()
        is_idle(system)


@scenario
def the_node_manager_is_killed_when_all_have_drained():
    """The sessions that wait to copy their last pages go on where they were."""
    with whole_system("node.migrate.last:kill") as system:
        family = Family(system)
        family.shares("before")
        before, here, known = family.left(), place(system), servers(system)
        pid = system.supervisor.get(system.node_name(0))["pid"]
        expect(migrates(system, "other").status != 0, "it fails")
        expect(system.supervisor.get(system.node_name(0))["pid"] != pid, "it was killed")
        within(60, lambda: servers(system) == known, "all have come back")
        expect_equal(place(system), here, "where it is")
        family.shares("afterwards")
        family.has_left(before)
        family.ends()


@scenario
def servers_that_die_are_replaced():
    """Of one that has others' memory, of one whose memory others have, and of all at once; those that are left go on
    meanwhile."""
    with whole_system() as system:
        family = Family(system)
        family.shares("before")
        before = family.left()

        def dies(*programs):
            known = servers(system)
            those = [s for s in system.flytctl("sessions") if s["client_pid"] in [one.process.pid for one in programs]]
            expect_equal(len(those), len(programs), "sessions", system.flytctl("sessions"))
            for session in those:
                os.kill(session["server_pid"], signal.SIGKILL)

            def are_replaced():
                now = servers(system)
                return set(now) == set(known) and all(now[s["id"]] not in (0, s["server_pid"]) for s in those)

            for one in programs:
                one.does("left")
            within(60, are_replaced, "they go on at other servers")

        for programs in ((family.b,), (family.a,), (family.c, family.a), (family.a, family.b, family.c)):
            dies(*programs)
            family.shares([one.name for one in programs])
            family.has_left(before)
        moves(system, "other")
        family.shares("and moved")
        family.ends()


@scenario
def what_nobody_has_any_more_stays():
    """Memory that its owner has freed or was killed with while another has it: the VM does not move, by name, until that lets
    go of it."""
    with whole_system() as system:
        a, b = sharers(system, 2)
        for name in ("freed", "killed"):
            a.does("create", name, PHYSICAL)
            a.does("fill", name, 7)
            passes(system, a, b, name)
        a.does("free", "freed")

        def is_refused():
            result = migrates(system, "other")
            return result.status != 0 and "has memory of another process's" in result.out + result.err

        within(60, is_refused, "it is refused by name")
        b.does("free", "freed")
        within(60, lambda: migrates(system, "other").status == 0, "it moves")
        expect_equal(b.does("sum", "killed"), total(7, PHYSICAL), "behind it")
        a.kill()
        within(60, lambda: len(system.flytctl("sessions")) == 1, "the owner's session has ended")
        expect(is_refused(), "refused by name")
        expect_equal(b.does("sum", "killed"), total(7, PHYSICAL), "where it stays")
        b.does("free", "killed")
        moves(system, "other")
        b.ends()
        is_idle(system)


@scenario
def where_it_fails_all_is_as_it_was():
    """Before the commit, and behind it: at the first session, or at the second one when the first one is at its new server."""
    cases = (("other", "node.migrate.last:error:1"), ("other", "node.migrate.state:error:2"),
             ("same", "node.migrate.commit:error:1"), ("other", "node.migrate.leave:error:2"),
             ("same", "node.migrate.switch:error:3"), ("other", "node.migrate.switch:error:2"))
    for way, point in cases:
        with whole_system(point) as system:
            family = Family(system)
            family.shares("before")
            before, here = family.left(), place(system)
            expect(migrates(system, way).status != 0, "it fails:", way, point)
            expect_equal(place(system), here, "where it is", way, point)
            family.shares((way, point))
            family.has_left(before)
            moves(system, way)
            family.shares((way, point, "moved at last"))
            family.ends()


if __name__ == "__main__":
    main()
