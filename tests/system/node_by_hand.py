"""A node manager spoken by hand (by_hand.py), in clear on the loopback interface: it has GPUs that are none, holds what it is
ordered, and moves programs as the test says.

    node = NodeByHand(manager.url, "n1", gpus=2)
    node.migrate = ("NOT_SUPPORTED", "why")        # how it answers ORDER_MIGRATE; None: OK; "silent": takes it, says nothing
    migration = node.wait_migration()               # a Migration that it was ordered
    node.report(migration, COPYING, round=2)        # FLYT_NODE_MIGRATION; what the manager answers
    node.move(migration); node.report(migration, DONE)
    node.wait_migration(procedure=ORDER_SEND)       # of a migration between nodes; likewise ORDER_RECEIVE
    node.answers[ORDER_SWITCH] = ("CONFLICT", "why")    # how it answers that; "silent": it says nothing, "deaf": and does nothing; None: OK

Its connection may end (`drop()`, or with the manager); `connect()` says HELLO and registers again.
"""
import contextlib
import os
import queue
import socket
import struct
import threading

import by_hand
from by_hand import STATUSES, Reader, array, opaque, u32, u64
from harness import expect_equal, within

NODE_MIGRATION = 14
ORDER_APPLY, ORDER_MIGRATE, ORDER_MIGRATION = 1, 5, 6
ORDER_RECEIVE, ORDER_SEND, ORDER_SWITCH, ORDER_SEND_BACK = 9, 12, 13, 14
PREPARING, COPYING, STOPPING, SWITCHING, DONE, FAILED, ARRIVED = 1, 2, 3, 4, 5, 6, 7
OK, NOT_FOUND, CONFLICT, UNAVAILABLE = 0, 2, 4, 10
VACATED = 2
GIB = 1 << 30


class Slot:
    def __init__(self, reader):
        self.gpu, self.index, self.sms = reader.text(), reader.u32(), reader.u32()
        self.groups = [reader.u32() for _ in range(reader.u32())]
        self.memory = reader.u64()
        self.rest = reader.take(16)

    @property
    def wire(self):
        return (opaque(self.gpu) + u32(self.index) + u32(self.sms) + array([u32(g) for g in self.groups]) +
                u64(self.memory) + self.rest)


class Allocation:
    """flyt_allocation."""

    def __init__(self, reader):
        self.id, self.vm_ip, self.tenant = reader.u64(), reader.text(), reader.text()
        self.state, self.isolation, self.revision, self.generation = reader.u32(), reader.u32(), reader.u64(), reader.u32()
        self.sessions_max, self.flags = reader.u32(), reader.take(16)
        self.slots = [Slot(reader) for _ in range(reader.u32())]

    @property
    def gpus(self):
        return [slot.gpu for slot in self.slots]

    @property
    def wire(self):
        return (u64(self.id) + opaque(self.vm_ip) + opaque(self.tenant) + u32(self.state) + u32(self.isolation) +
                u64(self.revision) + u32(self.generation) + u32(self.sessions_max) + self.flags +
                array([slot.wire for slot in self.slots]))

    def use(self, sessions, status=OK, text=""):
        slots = [u64(s.memory) + u64(0) * 3 + u32(s.sms) + u32(VACATED) + u32(0) + u64(0) * 2 for s in self.slots]
        return u64(self.id) + u64(self.revision) + u32(status) + opaque(text) + u32(sessions) + array(slots)


class Migration:
    """One that was ordered, and how far it is."""

    def __init__(self, migration_id, allocation, bounds):
        self.id, self.allocation, self.bounds = migration_id, allocation, bounds
        self.phase, self.status, self.text, self.is_cancelled, self.figures = PREPARING, OK, "", False, {}

    @property
    def use(self):
        f = self.figures
        return (u64(self.id) + u64(self.allocation.id) + u32(self.phase) + u32(self.status) + opaque(self.text) +
                u32(f.get("sessions", 1)) + u32(f.get("round", 0)) +
                b"".join(u64(f.get(name, 0)) for name in ("memory", "copied", "left", "dirty", "rate", "elapsed_ms",
                                                          "standstill_us", "last")))


def is_good(answer):
    return answer.state == "done" and answer.outcome[0] == "OK"


class NodeByHand:
    def __init__(self, url, name, gpus=2, sms=32, group_size=8, memory=8 * GIB, slots=8, compute=None, isolation=None,
                 urls=None, given=None, allocations=None, epoch=0):
        self.url, self.name, self.instance, self.key = url, name, os.urandom(16), os.urandom(32)
        self.gpus = [dict(uuid="GPU-%s-%d" % (name, i), index=i, sms=sms, group_size=group_size, memory=memory, slots=slots,
                          compute=(compute or {}).get(i, (9, 0)), isolation=(isolation or {}).get(i, 0), health=0)
                     for i in range(gpus)] if given is None else given
        self.allocations, self.migrations, self.sessions = allocations or {}, {}, {}
        self.orders = []                # (procedure, what) of all orders, in their order
        self.migrate, self.knows_migrations, self.cancels = None, True, True
        self.gives_up = False           # also a migration for which it lets programs in already
        self.answers = {}               # of the orders of migrations between nodes
        self.refusal = None             # (status, text) of what it is ordered to hold from now on: it keeps what it has
        self.is_late, self.late = False, []     # ORDER_APPLY is answered by answer_late()
        self.states = {}                # (allocation, revision): the states that it was told of under that number
        self.urls = urls or ["tcp://127.0.0.1:9%03d" % (int(name[1:]) if name[1:].isdigit() else 0)]
        self.is_settled = True          # False: after a restart, when programs may still come back
        self.beats = 0                  # heartbeats that were answered
        self.epoch, self.socket, self.mutex = epoch, None, threading.RLock()
        self.connect()
        self.beating = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    # ---- what it says ----

    def gpu_wire(self, gpu):
        count = gpu["sms"] // gpu["group_size"]
        return (opaque(gpu["uuid"]) + u32(gpu["index"]) + opaque("by hand") + u32(gpu["sms"]) + u32(gpu["group_size"]) +
                array([u32(gpu["group_size"])] * count) + u64(gpu["memory"]) + u64(0) + u32(gpu["slots"]) +
                u32(gpu["isolation"]) + u32(gpu["health"]) + opaque("") + u32(gpu["compute"][0]) + u32(gpu["compute"][1]))

    def uses(self):
        return array([a.use(self.sessions.get(a.vm_ip, 1)) for a in self.allocations.values()])

    def registration(self):
        return (opaque("boot") + array([opaque(url) for url in self.urls]) + opaque("127.0.0.1") + self.key + u32(1) + u64(self.epoch) + u32(0) +
                array([self.gpu_wire(gpu) for gpu in self.gpus]) + array([a.wire for a in self.allocations.values()]) +
                self.uses() + array() + u32(0) + u32(0))

    def _beat(self):
        while not self.beating.wait(0.3):
            with self.mutex:
                args = u64(1) + array() + self.uses() + array()
            with contextlib.suppress(OSError, ConnectionError):
                if self.is_registered and not is_good(self.call(by_hand.HEARTBEAT, args)):
                    self.register()     # the manager has led no more for a while, and leads again
                self.beats += 1

    # ---- the connection ----

    def connect(self):
        """Again and again until it is registered: the manager may just be starting."""
        def try_it():
            try:
                self._open()
                hello = self.call(by_hand.HELLO, u32(by_hand.PROTOCOL) + opaque("by hand") + u32(by_hand.KINDS["node"]) +
                                  opaque(self.name) + self.instance)
                if not is_good(hello):
                    return False
                return self.register()
            except (OSError, ConnectionError):
                return False
        within(60, try_it, "node %s is registered" % self.name)

    def register(self):
        """Says what it has, on the connection that there is; whether that was taken."""
        with self.mutex:
            args = self.registration()
        answer = self.call(by_hand.REGISTER, args, self._take_registration)
        self.is_registered = is_good(answer)
        return self.is_registered

    def _take_registration(self, answer):
        """What it is to have: absolute. Before any order that comes behind it."""
        if not is_good(answer):
            return
        reader = Reader(answer.body.rest())     # the answer is read once more
        reader.u32()
        reader.opaque()
        with self.mutex:
            self.epoch = max(self.epoch, reader.u64())
            reader.take(8)
            told = [Allocation(reader) for _ in range(reader.u32())]
            self.told = {a.id: a for a in told}
            for allocation in told:
                self._note(allocation)
                self._hold(allocation)

    def _note(self, allocation):
        self.states.setdefault((allocation.id, allocation.revision), set()).add(allocation.wire)

    def _hold(self, allocation):
        """Takes a state that is not older; those of an allocation that moves are refused as the real one does."""
        old = self.allocations.get(allocation.id)
        if old is None or allocation.revision > old.revision:
            self.allocations[allocation.id] = allocation
        return self.allocations[allocation.id]

    def _open(self):
        self.drop()
        host, port = self.url[len("tcp://"):].rsplit(":", 1)
        peer = socket.create_connection((host, int(port)), 20)
        peer.settimeout(None)
        with self.mutex:
            self.socket, self.xid, self.waiting, self.has_ended = peer, 0, {}, threading.Event()
        threading.Thread(target=self._read, args=(peer, self.waiting, self.has_ended), daemon=True).start()

    def drop(self):
        """The connection ends, as by a pulled plug that is noticed at once."""
        peer, self.socket = self.socket, None
        self.is_registered = False
        if peer:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            peer.close()

    def close(self):
        self.beating.set()
        self.drop()

    def call(self, procedure, args, take=None):
        """An Answer; who reads has called take(it). ConnectionError where the connection ends first."""
        with self.mutex:
            if not self.socket:
                raise ConnectionError("not connected")
            self.xid += 1
            answers = queue.Queue()
            self.waiting[self.xid] = answers, take
            self.socket.sendall(by_hand.mark(by_hand.call_head(self.xid, by_hand.CONTROL, procedure) + args))
        try:
            answer = answers.get(timeout=60)
        except queue.Empty:
            raise ConnectionError("no answer within 60 s to procedure %d" % procedure) from None
        if answer is None:
            raise ConnectionError("the connection ended")
        return answer

    def _record(self, peer):
        def receive(count):
            data = b""
            while len(data) < count:
                chunk = peer.recv(count - len(data))
                if not chunk:
                    raise ConnectionError
                data += chunk
            return data
        data, last = b"", False
        while not last:
            word = Reader(receive(4)).u32()
            last = bool(word >> 31)
            data += receive(word & 0x7fffffff)
        return data

    def _read(self, peer, waiting, has_ended):
        with contextlib.suppress(OSError, ConnectionError, ValueError):
            while True:
                record = self._record(peer)
                xid, is_reply = struct.unpack(">II", record[:8])
                if is_reply:
                    answers, take = waiting.pop(xid)
                    answer = by_hand.read_answer(record)
                    if take:
                        take(answer)
                    answers.put(answer)
                    continue
                body = self._serve(Reader(record))
                if body is not None:
                    reply = by_hand.mark(struct.pack(">IIIII", xid, 1, 0, 0, 0) + body)
                    with self.mutex:
                        if self.is_late and Reader(record[20:]).u32() == ORDER_APPLY:
                            self.late.append((peer, reply))
                        else:
                            peer.sendall(reply)
        has_ended.set()
        for answers, _ in waiting.values():
            answers.put(None)

    # ---- orders ----

    def _serve(self, reader):
        """What follows the head of the reply: its state, then the result; None: no reply."""
        reader.take(20)
        procedure = reader.u32()
        reader.take(16)
        with self.mutex:
            if procedure in (ORDER_MIGRATE, ORDER_MIGRATION, ORDER_SEND, ORDER_RECEIVE) and not self.knows_migrations:
                self.orders.append((procedure, None))
                return u32(3)       # PROC_UNAVAIL
            if procedure > ORDER_SEND_BACK:     # of a later version than this node's
                return u32(3)
            if procedure == ORDER_APPLY:
                return u32(0) + self._apply(reader)
            if procedure == ORDER_MIGRATE:
                return self._order_migrate(reader)
            if procedure == ORDER_MIGRATION:
                return u32(0) + self._order_migration(reader)
            if procedure in (ORDER_RECEIVE, ORDER_SEND, ORDER_SWITCH, ORDER_SEND_BACK):
                return self._order_between(procedure, reader)
            return u32(0) + (u32(0) + opaque("") if procedure else b"")

    def _apply(self, reader):
        self.epoch = max(self.epoch, reader.u64())
        told = [Allocation(reader) for _ in range(reader.u32())]
        removed = [reader.u64() for _ in range(reader.u32())]
        for allocation in told:
            self._note(allocation)
        held = [self.allocations.get(a.id, a) if self.refusal else self._hold(a) for a in told]
        for allocation_id in removed:
            self.allocations.pop(allocation_id, None)
        self.orders.append((ORDER_APPLY, ([(a.id, a.revision, a.gpus) for a in told], removed)))
        outcome = (STATUSES.index(self.refusal[0]), self.refusal[1]) if self.refusal else (OK, "")
        return (u32(OK) + opaque("") + u64(self.epoch) +
                array([a.use(self.sessions.get(a.vm_ip, 1), *outcome) for a in held]))

    def answer_late(self):
        """What it has not answered, in the order in which it came; it answers at once from now on."""
        with self.mutex:
            self.is_late, late, self.late = False, self.late, []
            for peer, reply in late:
                peer.sendall(reply)

    def _order_migrate(self, reader):
        self.epoch = max(self.epoch, reader.u64())
        migration_id = reader.u64()
        migration = Migration(migration_id, Allocation(reader), [reader.u32() for _ in range(3)] + [reader.u64()])
        self.orders.append((ORDER_MIGRATE, migration))
        if self.migrate == "silent":
            self.migrations[migration_id] = migration
            return None
        if self.migrate:
            return u32(0) + u32(STATUSES.index(self.migrate[0])) + opaque(self.migrate[1])
        self.migrations[migration_id] = migration
        return u32(0) + u32(OK) + opaque("")

    def _order_migration(self, reader):
        self.epoch = max(self.epoch, reader.u64())
        migration_id, is_cancel = reader.u64(), reader.u32()
        self.orders.append((ORDER_MIGRATION, (migration_id, bool(is_cancel))))
        migration = self.migrations.get(migration_id)
        if migration is None:
            return (u32(NOT_FOUND if self.is_settled else UNAVAILABLE) + opaque("no such migration") + bytes(8 + 8) +
                    u32(PREPARING) + u32(0) + opaque("") + bytes(8 + 8 * 8))
        if is_cancel and migration.phase in (SWITCHING, DONE, FAILED) and not self.gives_up:
            return u32(CONFLICT) + opaque("too late") + migration.use
        if is_cancel:
            migration.is_cancelled = True
            if self.cancels and migration.bounds is None:   # it was to receive them
                self.allocations.pop(migration.allocation.id, None)
            if self.cancels:
                migration.phase, migration.status, migration.text = FAILED, CONFLICT, "it was cancelled"
        return u32(OK) + opaque("") + migration.use

    def _order_between(self, procedure, reader):
        self.epoch = max(self.epoch, reader.u64())
        migration_id = reader.u64()
        if procedure == ORDER_RECEIVE:
            migration = Migration(migration_id, Allocation(reader), None)
            migration.secret, migration.timeout_s, migration.is_encrypted = reader.take(32), reader.u32(), bool(reader.u32())
        elif procedure == ORDER_SEND:
            migration = Migration(migration_id, self.allocations.get(reader.u64()),
                                  [reader.u32() for _ in range(3)] + [reader.u64()])
            migration.node, migration.urls = reader.text(), [reader.text() for _ in range(reader.u32())]
            migration.secret = reader.take(32)
            migration.streams, migration.packing, migration.is_encrypted = reader.u32(), reader.u32(), bool(reader.u32())
        elif procedure == ORDER_SWITCH:
            migration = self.migrations.get(migration_id)
            count = reader.u32()
        else:
            migration, why = self.migrations.get(migration_id), reader.text()
        self.orders.append((procedure, migration if procedure in (ORDER_RECEIVE, ORDER_SEND) else
                            (migration_id, count if procedure == ORDER_SWITCH else why)))
        answer = self.answers.get(procedure)
        if answer == "deaf":
            return None
        outcome = (u32(STATUSES.index(answer[0])) + opaque(answer[1]) if answer and answer != "silent" else
                   u32(OK) + opaque("") if migration else u32(NOT_FOUND) + opaque("no such migration"))
        if migration and (not answer or answer == "silent"):
            if procedure in (ORDER_RECEIVE, ORDER_SEND):
                self.migrations[migration_id] = migration
            if procedure == ORDER_RECEIVE:
                self._hold(migration.allocation)
            if procedure == ORDER_SWITCH:
                migration.phase = SWITCHING
            if procedure == ORDER_SEND_BACK:
                migration.phase, migration.status, migration.text = FAILED, UNAVAILABLE, why
        if answer == "silent":
            return None
        if procedure == ORDER_SWITCH:
            outcome += migration.use if migration else bytes(16) + u32(PREPARING) + bytes(8 + 8 + 64)
        return u32(0) + outcome

    # ---- what a test has it do ----

    def count(self, procedure):
        with self.mutex:
            return len([1 for number, _ in self.orders if number == procedure])

    def ordered(self, procedure):
        """What it was ordered by this procedure, in its order."""
        with self.mutex:
            return [what for number, what in self.orders if number == procedure]

    def wait_migration(self, number=1, procedure=ORDER_MIGRATE):
        """The number-th migration that it was ordered."""
        def ordered():
            found = self.ordered(procedure)
            return found[number - 1] if len(found) >= number else None
        return within(60, ordered, "node %s is ordered migration %d" % (self.name, number))

    def report(self, migration, phase, status=OK, text="", **figures):
        """What the manager answers: its outcome."""
        with self.mutex:
            migration.phase, migration.status, migration.text = phase, status, text
            migration.figures.update(figures)
            args = migration.use
        answer = self.call(NODE_MIGRATION, args)
        expect_equal(answer.state, "done", "the answer to NODE_MIGRATION", answer)
        return answer.outcome

    def event(self, kind, obj, text):
        answer = self.call(12, u64(0) + u64(0) + opaque(kind) + opaque("") + opaque(obj) + opaque(text) + opaque("") * 2)
        expect_equal(answer.outcome[0], "OK", "the answer to NODE_EVENT")

    def asked(self, migration):
        """How often it was asked about this one."""
        with self.mutex:
            return len([1 for number, what in self.orders if number == ORDER_MIGRATION and what[0] == migration.id])

    def move(self, migration):
        """The allocation is on the target now."""
        with self.mutex:
            self.allocations[migration.allocation.id] = migration.allocation
