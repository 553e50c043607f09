"""A cluster manager spoken by hand (by_hand.py), for who has a manager's certificate: it says that it leads, with an epoch
of the test's choice, and gives a node orders before it answers the node's registration.

    with LeaderByHand(port, authority, certificate, key, epoch=1) as leader:
        leader.orders = [(by_hand.ORDER_APPLY, apply(1, removed=[allocation_id]))]
        leader.wait_orders()[0].outcome             # ("STALE", "the node follows a later leader")
"""
import contextlib
import select
import socket
import ssl
import threading

import by_hand
from by_hand import array, opaque, u32, u64
from harness import Failed, within

ORDER_APPLY, ORDER_SESSION_KILL, ORDER_GPU_SET = 1, 2, 3
ACTIVE = 1


def apply(epoch, allocations=(), removed=()):
    """Arguments of ORDER_APPLY; allocations as of allocation()."""
    return u64(epoch) + array(allocations) + array([u64(i) for i in removed])


def allocation(row, vm_ip, revision, memory_bytes):
    """flyt_allocation of a row that flytctl shows, on one GPU, with another revision and memory."""
    slot = (opaque(row["gpu"]) + u32(0) + u32(row["sms"]) + array([u32(g) for g in row["sm_groups"]]) + u64(memory_bytes) +
            u32(0) + u32(0) + u32(0) + u32(0))
    return (u64(int(row["id"], 16)) + opaque(vm_ip) + opaque("") + u32(ACTIVE) + u32(0) + u64(revision) +
            u32(row["generation"]) + u32(row["sessions_max"]) + 4 * u32(0) + array([slot]))


class LeaderByHand:
    """Listens on 127.0.0.1:port until close(). `orders`: what every node that connects is ordered, `answers` what it said,
    one list for each time that all were answered; `registrations`: how many came. `is_mute`: they are not answered."""

    def __init__(self, port, authority, certificate, key, epoch):
        self.epoch, self.orders, self.answers, self.registrations, self.is_mute = epoch, [], [], 0, False
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.set_alpn_protocols(["sunrpc"])
        self.context.load_cert_chain(certificate, key)
        self.context.load_verify_locations(authority)
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.connections, self.trouble = [], []
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                self.connections.append(near)
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near):
        try:
            Connection(self, near).serve()
        except (OSError, ValueError) as error:
            self.trouble.append(error)      # told where what is waited for does not come

    def wait_orders(self, count=1):
        """The answers to the orders of the count-th connection that answered all of them from now on."""
        wanted = len(self.answers) + count
        try:
            within(40, lambda: len(self.answers) >= wanted, "a node answers the orders of one that leads by hand")
        except Failed as failed:
            raise Failed("%s; how its connections ended: %r" % (failed, self.trouble[-3:])) from None
        return self.answers[wanted - 1]

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for near in self.connections:
            with contextlib.suppress(OSError):
                near.shutdown(socket.SHUT_RDWR)


class Connection(by_hand.Peer):
    """Of a node to a LeaderByHand. One thread does everything: orders go out when HELLO has been answered, and the
    registration is answered when they have been."""

    def __init__(self, leader, near):      # the other side has connected
        self.leader, self.socket, self.xid, self.program = leader, near, 1, by_hand.ORDER
        near.settimeout(60)

    def reply(self, xid, body, verifier=b""):
        self.send(by_hand.mark(u32(xid) + u32(1) + u32(0) + u32(0) + opaque(verifier) + u32(0) + body))

    def call_of_theirs(self, record):
        """(xid, procedure, flavour of the credentials) of a call."""
        reader = by_hand.Reader(record)
        xid, is_reply = reader.u32(), reader.u32()
        if is_reply:
            raise ValueError("a reply to nothing that was asked")
        reader.take(12)
        return xid, reader.u32(), reader.u32()

    def serve(self):
        xid, procedure, flavour = self.call_of_theirs(self.record())
        if (procedure, flavour) != (0, by_hand.AUTH_TLS):
            raise ValueError("procedure %d in clear" % procedure)
        self.reply(xid, b"", b"STARTTLS")
        self.socket = self.leader.context.wrap_socket(self.socket, server_side=True)
        while select.select([self.socket], [], [], 60)[0] or self.socket.pending():
            self.serve_one(*self.call_of_theirs(self.record())[:2])

    def serve_one(self, xid, procedure):
        fine, epoch = u32(0) + opaque(""), u64(self.leader.epoch)
        if procedure == by_hand.HELLO:
            self.reply(xid, fine + opaque("by hand") + epoch + u32(1) + array())
        elif procedure == by_hand.REGISTER:
            self.give_orders()
            self.leader.registrations += 1
            if not self.leader.is_mute:
                self.reply(xid, fine + epoch + u32(500) + u32(60) + array() + array())
        elif procedure == by_hand.HEARTBEAT:
            self.reply(xid, fine + epoch)
        else:
            self.reply(xid, fine if procedure else b"")

    def give_orders(self):
        orders = list(self.leader.orders)
        for number, (procedure, args) in enumerate(orders):
            self.send(by_hand.mark(by_hand.call_head(1000 + number, by_hand.ORDER, procedure) + args))
        answers = {}
        while len(answers) < len(orders):
            record = self.record()
            reader = by_hand.Reader(record)
            xid, is_reply = reader.u32(), reader.u32()
            if is_reply:
                answers[xid - 1000] = by_hand.read_answer(record)
            else:
                self.serve_one(*self.call_of_theirs(record)[:2])
        if orders:
            self.leader.answers.append([answers[i] for i in range(len(orders))])
