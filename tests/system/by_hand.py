"""Flyt's protocols spoken by hand, independently of the programs under test: XDR (RFC 4506), RPC records (RFC 5531),
STARTTLS (RFC 9289), what control.x and flyt.x say about calls, and the tickets of rpc/base/ticket.h.

    peer = Peer("tcp://127.0.0.1:9402")
    peer.start_tls(authority, certificate, key)
    answer = peer.hello("vm", "10.0.0.7")           # Answer: state "done", outcome ("OK", "")
"""
import contextlib
import hashlib
import hmac
import os
import socket
import ssl
import struct
import subprocess
import threading
import time

import harness
import tables

CONTROL, ORDER, LOCAL, DATA = 0x20000f19, 0x20000f1a, 0x20000f1b, 0x20000f17
PROTOCOL = 3     # of HELLO: another one is refused
KINDS = {"node": 1, "vm": 2, "operator": 3, "viewer": 4}
STATUSES = ("OK", "INVALID", "NOT_FOUND", "EXISTS", "CONFLICT", "DENIED", "NO_CAPACITY", "QUOTA", "IN_USE", "NOT_LEADER",
            "UNAVAILABLE", "TIMEOUT", "NOT_SUPPORTED", "STALE", "HELD")
HELLO, ENROL, REGISTER, HEARTBEAT, ATTACH, VIEW, VM_SET, JOIN_TOKEN, REVOKE = 1, 2, 10, 11, 20, 30, 31, 39, 42
HANDSHAKE_STATUSES = ("OK", "BASE_DIFFERS", "DENIED", "NO_SESSION", "BUSY", "NO_DEVICE", "CHALLENGE", "ROWS")
AUTH_NONE, AUTH_TLS = 0, 7


# ---- XDR ----

def u32(value):
    return struct.pack(">I", value & 0xffffffff)


def u64(value):
    return struct.pack(">Q", value)


def opaque(data):
    data = data.encode() if isinstance(data, str) else data
    return u32(len(data)) + data + bytes(-len(data) % 4)


def array(items=()):
    return u32(len(items)) + b"".join(items)


class Reader:
    """Takes values from the front of bytes; ValueError where there are too few."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if self.at + count > len(self.data):
            raise ValueError("the record ends at byte %d, %d more were expected" % (len(self.data), count))
        self.at += count
        return self.data[self.at - count:self.at]

    def u32(self):
        return struct.unpack(">I", self.take(4))[0]

    def u64(self):
        return struct.unpack(">Q", self.take(8))[0]

    def opaque(self):
        count = self.u32()
        data = self.take(count)
        self.take(-count % 4)
        return data

    def text(self):
        return self.opaque().decode()

    def rest(self):
        return self.data[self.at:]


# ---- RPC ----

class Answer:
    """state: done (there is a result), refused (MSG_DENIED), error (accepted, but not executed), closed. `why` is the
    number that goes with refused (auth_stat) and error (accept_stat); `body` a Reader behind the head."""

    def __init__(self, state, why=0, body=None, verifier=b""):
        self.state, self.why, self.body, self.verifier = state, why, body, verifier

    @property
    def outcome(self):
        """(status, text): what every result of control.x begins with."""
        reader = Reader(self.body.data[self.body.at:])
        return STATUSES[reader.u32()], reader.text()

    def skip_outcome(self):
        """The Reader behind the outcome."""
        self.body.u32()
        self.body.opaque()
        return self.body

    def __repr__(self):
        return "%s %d %r" % (self.state, self.why, self.body and self.body.rest()[:120])


def call_head(xid, program, procedure, flavour=AUTH_NONE, version=1):
    return struct.pack(">IIIIII", xid, 0, 2, program, version, procedure) + struct.pack(">IIII", flavour, 0, 0, 0)


def mark(record):
    return u32(0x80000000 | len(record)) + record


def read_answer(record):
    reader = Reader(record)
    reader.take(4)
    if reader.u32() != 1:
        raise ValueError("a call where a reply was expected")
    if reader.u32() != 0:
        what = reader.u32()
        return Answer("refused", reader.u32() if what else 0, reader)
    reader.u32()
    verifier, status = reader.opaque(), reader.u32()
    return Answer("error", status, reader, verifier) if status else Answer("done", 0, reader, verifier)


class Peer:
    """A connection to tcp://HOST:PORT or unix:///PATH. Orders that come are answered OK and kept in `orders`."""

    def __init__(self, url, program=CONTROL, timeout=60):
        self.program, self.xid, self.orders = program, 1, []
        if url.startswith("unix://"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(url[len("unix://"):])
        else:
            host, port = url[len("tcp://"):].rsplit(":", 1)
            self.socket = socket.create_connection((host, int(port)), timeout)

    @property
    def address(self):
        return "%s:%d" % self.socket.getsockname()[:2]

    def start_tls(self, authority, certificate=None, key=None):
        """STARTTLS. ssl.SSLError or ConnectionError where one side refuses; with TLS 1.3 the other side's refusal of a
        certificate comes with the first answer."""
        answer = self.call(0, flavour=AUTH_TLS)
        harness.expect_equal((answer.state, answer.verifier), ("done", b"STARTTLS"), "the answer to AUTH_TLS", answer)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.set_alpn_protocols(["sunrpc"])      # RFC 9289, section 5.1
        context.load_verify_locations(authority)
        if certificate:
            context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(self.socket)
        return self

    def send(self, data):
        self.socket.sendall(data)

    def receive(self, count):
        data = b""
        while len(data) < count:
            chunk = self.socket.recv(count - len(data))
            if not chunk:
                raise ConnectionError("the connection ended")
            data += chunk
        return data

    def record(self):
        """The next record without its marks."""
        data, last = b"", False
        while not last:
            word = Reader(self.receive(4)).u32()
            last = bool(word >> 31)
            data += self.receive(word & 0x7fffffff)
        return data

    def answer(self):
        """The next reply; orders on the way are served."""
        while True:
            record = self.record()
            reader = Reader(record)
            xid, is_reply = reader.u32(), reader.u32()
            if is_reply:
                return read_answer(record)
            reader.take(12)
            procedure = reader.u32()
            self.orders.append((procedure, record))
            body = b"" if procedure == 0 else u32(0) + opaque("")
            self.send(mark(struct.pack(">IIIIII", xid, 1, 0, 0, 0, 0) + body))

    def stay(self):
        """Answers orders from now on, until close(); no calls after that."""
        def serve():
            with contextlib.suppress(OSError, ValueError):
                self.socket.settimeout(None)
                self.answer()
        threading.Thread(target=serve, daemon=True).start()

    def call(self, procedure, args=b"", flavour=AUTH_NONE, version=1):
        """An Answer; "closed" where the connection ended instead."""
        self.xid += 1
        try:
            self.send(mark(call_head(self.xid, self.program, procedure, flavour, version) + args))
            return self.answer()
        except (ConnectionError, ssl.SSLError):
            return Answer("closed")

    def hello(self, kind, name, instance=None):
        instance = instance or os.urandom(16)
        return self.call(HELLO, u32(PROTOCOL) + opaque("by hand") + u32(KINDS[kind]) + opaque(name) + instance)

    def enrol(self, token, request):
        """(status, text, kind, name, certificates, authority)"""
        answer = self.call(ENROL, opaque(token) + opaque(request))
        harness.expect_equal(answer.state, "done", "the answer to ENROL", answer)
        reader = answer.body
        return (STATUSES[reader.u32()], reader.text(), reader.u32(), reader.text(), reader.opaque(), reader.opaque())

    def is_open(self, seconds=0.2):
        """Whether the other side has not closed it; waits so long for that."""
        self.socket.settimeout(seconds)
        try:
            return bool(self.socket.recv(1))
        except TimeoutError:
            return True
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                self.socket.settimeout(60)

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self.socket.close()


# ---- certificates ----

def openssl(*words, data=None):
    result = subprocess.run(["openssl", *words], input=data, capture_output=True)
    harness.expect_equal(result.returncode, 0, "openssl", *words, result.stderr.decode())
    return result.stdout


def new_request(folder, name):
    """A key in FOLDER/NAME-key.pem and a request for it, DER."""
    key = os.path.join(folder, name + "-key.pem")
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
    os.chmod(key, 0o600)
    return key, openssl("req", "-new", "-key", key, "-subj", "/CN=" + name, "-outform", "DER")


def join(manager_url, authority, token, folder, name):
    """Enrols with a token; (certificate, key), files in folder."""
    key, request = new_request(folder, name)
    peer = Peer(manager_url).start_tls(authority)
    status, text, _, _, certificates, _ = peer.enrol(token, request)
    peer.close()
    harness.expect_equal((status, text), ("OK", ""), "enrolment of", name)
    path = os.path.join(folder, name + ".pem")
    with open(path, "wb") as f:
        f.write(certificates)
    return path, key


# ---- tickets and the data channel's handshake ----

def mac(key, data):
    return hmac.new(key, data, hashlib.sha256).digest()


class Ticket:
    """What a client manager derives for one program from its grant."""

    def __init__(self, key, vm_ip, allocation, generation, key_number, program=None):
        self.key, self.vm_ip, self.allocation = key, vm_ip, allocation
        self.generation, self.key_number = generation, key_number
        self.program = int.from_bytes(os.urandom(8), "big") if program is None else program

    def changed(self, **fields):
        """A copy with other fields and the same key."""
        values = dict(vars(self), **fields)
        return Ticket(**values)

    @property
    def credentials(self):
        return (u32(1) + opaque(self.vm_ip) + u64(self.allocation) + u32(self.generation) + u32(self.key_number) +
                u64(self.program))

    def proof(self, nonce, record):
        return mac(mac(self.key, b"flyt program" + u64(self.program)),
                   b"flyt proof" + nonce + hashlib.sha256(record).digest())


def ticket_of_node(node_key, vm_ip, allocation, generation, key_number):
    """The ticket of one's own making, for who has the node's key."""
    return mac(node_key, b"flyt ticket" + vm_ip.encode() + b"\0" + u64(allocation) + u32(generation) + u32(key_number))


class Handshake:
    """The fields of flyt_handshake_args; bytes(proof) gives the arguments."""

    def __init__(self, base_hash, procedures=(), build="by hand", cuda=13000, pid=1234, program="by-hand", kind=0,
                 token=b"", credentials=b"", rows=b"", features=b""):
        self.base_hash, self.procedures, self.build, self.cuda, self.pid = base_hash, procedures, build, cuda, pid
        self.program, self.kind, self.token, self.credentials = program, kind, token, credentials
        self.rows, self.features = rows, features

    def changed(self, **fields):
        return Handshake(**dict(vars(self), **fields))

    def bytes(self, proof=None):
        """proof None: a record of before there were proofs."""
        return (self.base_hash + array([u32(p) + u64(s) for p, s in self.procedures]) + opaque(self.build) +
                u32(self.cuda) + u32(self.pid) + opaque(self.program) + u32(self.kind) + opaque(self.token) +
                opaque(self.credentials) + (b"" if proof is None else opaque(proof) + opaque(self.rows) +
                                            opaque(self.features)))


def parse_handshake(record):
    """(Handshake, proof) of a handshake call's record without marks."""
    reader = Reader(record)
    reader.take(40)
    base_hash = reader.take(32)
    procedures = [(reader.u32(), reader.u64()) for _ in range(reader.u32())]
    values = [reader.text(), reader.u32(), reader.u32(), reader.text(), reader.u32(), reader.opaque(), reader.opaque()]
    proof, rows, features = (reader.opaque() if reader.rest() else None for _ in range(3))
    return Handshake(base_hash, procedures, *values, rows or b"", features or b""), proof


def procedures_of(handshake):
    """What this build's tables say that has `handshake` as its hash over all rows: [(number, signature)]."""
    listed = tables.listed()
    packed = b"".join(u32(number) + u64(signature) for number, signature in listed)
    harness.expect_equal(handshake.rows, hashlib.sha256(packed).digest(), "the hash over all rows")
    return listed


class Reply:
    """flyt_handshake_res."""

    def __init__(self, reader):
        self.status, self.message = HANDSHAKE_STATUSES[reader.u32()], reader.text()
        self.session, self.token, self.build = reader.u64(), reader.opaque(), reader.text()
        self.accepted = [reader.u32() for _ in range(reader.u32())]
        self.devices, self.driver, self.streams, self.features = (reader.u32() for _ in range(4))
        self.challenge, self.rows, self.window = (reader.opaque() if reader.rest() else b"" for _ in range(3))

    def __repr__(self):
        return "%s %s" % (self.status, self.message)


class Program(Peer):
    """A program's connection to a node."""

    def __init__(self, url, timeout=60):
        super().__init__(url, DATA, timeout)
        self.sent = None

    def handshake(self, handshake, proof=b""):
        """A Reply, or None where the connection was closed."""
        return self.reply() if self.begin(handshake, proof) else None

    def begin(self, handshake, proof=b""):
        """Sends it alone; False where the connection was closed."""
        self.xid += 1
        self.sent = call_head(self.xid, DATA, 1) + handshake.bytes(proof)
        try:
            self.send(mark(self.sent))
        except ConnectionError:
            return False
        return True

    def reply(self):
        try:
            answer = read_answer(self.record())
        except ConnectionError:
            return None
        harness.expect_equal(answer.state, "done", "the answer to a handshake", answer)
        return Reply(answer.body)

    def attach(self, handshake, ticket, credentials=None):
        """The whole of it: the reply to the proof, or to the first record where that is no challenge."""
        handshake = handshake.changed(credentials=ticket.credentials if credentials is None else credentials)
        reply = self.handshake(handshake)
        if reply is None or reply.status != "CHALLENGE":
            return reply
        return self.handshake(handshake, ticket.proof(reply.challenge, self.sent))


class Relay:
    """Between programs and a node: passes bytes on, keeps them, and changes them where told.

    `change(direction, data)` ("up" towards the node, "down") may return other bytes, or None to cut both sides."""

    def __init__(self, target, change=None):
        self.host, self.port = target[len("tcp://"):].rsplit(":", 1)
        self.change, self.connections = change, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "tcp://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection((self.host, int(self.port)))
                seen = {"up": bytearray(), "down": bytearray()}
                self.connections.append(seen)
                for source, target, direction in ((near, far, "up"), (far, near, "down")):
                    threading.Thread(target=self._pass, args=(source, target, direction, seen), daemon=True).start()

    def _pass(self, source, target, direction, seen):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                seen[direction] += data
                if self.change:
                    data = self.change(direction, data)
                if data is None:
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def everything(self):
        """All bytes of all connections and both directions."""
        return b"\n".join(bytes(seen[d]) for seen in self.connections for d in ("up", "down"))

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()


def records_of(stream):
    """The whole records (without marks) at the front of a stream of bytes, and what is behind them."""
    records, at, parts = [], 0, b""
    while at + 4 <= len(stream):
        word = struct.unpack(">I", stream[at:at + 4])[0]
        length = word & 0x7fffffff
        if at + 4 + length > len(stream):
            break
        parts += bytes(stream[at + 4:at + 4 + length])
        at += 4 + length
        if word >> 31:
            records.append(parts)
            parts = b""
    return records, bytes(stream[at:])


def wait_closed(peer, seconds=60):
    """Whether the other side closes the connection in this time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not peer.is_open(0.2):
            return True
    return False
