#!/usr/bin/env python3
"""flyt-server against clients that do not follow the rules: garbage, truncated and oversized records, handles that are
unknown, of the wrong type or another session's, absurd sizes, ends in the middle. That session ends or gets the CUDA
error; the listener and all other sessions go on, and nothing stays behind. Speaks the wire's format by itself."""
import contextlib
import fcntl
import glob
import mmap
import os
import select
import signal
import socket
import struct

import harness
from harness import Failed, expect, expect_equal, is_alive, main, run, scenario, server, within
from tables import BASE_HASH, PROCEDURES, listed

PROGRAM, VERSION = 0x20000F17, 1
HANDSHAKE, QUERY, CHUNK = 1, 2, 3
CALL_ERROR = 6      # what the server calls where a call without a reply has failed
INVALID_VALUE, OUT_OF_MEMORY, INVALID_HANDLE = 1, 2, 400
STREAM_ID, EVENT_ID = 0x11 << 56, 0x12 << 56
WINDOW = 0x200000000000
REGION_BASE = WINDOW + (15 << 40)


def u32(*values):
    return struct.pack(">%dI" % len(values), *values)


def u64(*values):
    return struct.pack(">%dQ" % len(values), *values)


def opaque(data):
    return u32(len(data)) + data + bytes(-len(data) % 4)


def box(address, width, height=1, depth=1, pitch=None, slice_bytes=None):
    return u64(address, width, height, depth, width if pitch is None else pitch,
               width if slice_bytes is None else slice_bytes)


def handshake(base_hash=BASE_HASH, kind=0, token=b""):
    rows = b"".join(u32(number) + u64(signature) for number, signature in listed())
    return (base_hash + u32(len(PROCEDURES)) + rows + opaque(b"a test") + u32(13000, os.getpid()) + opaque(b"raw") +
            u32(kind) + opaque(token) + opaque(b""))


class Client:
    """One connection. Calls go out as given; replies are (result, rest). Of what the server calls, errors are kept as
    (thread, result), the rest is passed over."""

    def __init__(self, url):
        host, port = url.removeprefix("tcp://").rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.xid = 0
        self.errors = []

    def record(self, procedure, args):
        self.xid += 1
        body = u32(self.xid, 0, 2, PROGRAM, VERSION, procedure, 0, 0, 0, 0) + args
        return u32(0x80000000 | len(body)) + body

    def send(self, procedure, args):
        self.socket.sendall(self.record(procedure, args))

    def exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def reply(self):
        while True:
            mark = struct.unpack(">I", self.exactly(4))[0]
            body = self.exactly(mark & 0x7FFFFFFF)
            xid, direction = struct.unpack(">2I", body[:8])
            if direction == 1 and xid == self.xid:
                return body[24:]
            if direction == 0 and struct.unpack(">I", body[20:24])[0] == CALL_ERROR:
                self.errors.append(struct.unpack(">Ii", body[48:56]))

    def open(self, **named):
        """Makes the handshake; returns its status and token."""
        self.send(HANDSHAKE, handshake(**named))
        body = self.reply()
        status, length = struct.unpack(">2I", body[:8])
        at = 8 + length + -length % 4 + 8
        bytes_ = struct.unpack(">I", body[at:at + 4])[0]
        return status, body[at + 4:at + 4 + bytes_]

    def call(self, name, args=b""):
        """A call of the tables with a reply: its result and what follows the progress."""
        self.send(PROCEDURES[name].number, u32(1) + args)
        body = self.reply()
        return struct.unpack(">i", body[:4])[0], body[28:]

    def is_closed(self):
        try:
            while self.socket.recv(65536):
                pass
        except (ConnectionError, EOFError):
            pass
        except TimeoutError:
            return False
        return True


def session(url):
    client = Client(url)
    status, client.token = client.open()
    expect_equal(status, 0, "status of the handshake")
    return client


def serves(s):
    """A well-behaved session works."""
    client = session(s.url)
    result, rest = client.call("memory_alloc", u32(0) + u64(4096))
    expect_equal(result, 0, "an allocation")
    expect(struct.unpack(">Q", rest)[0] >= WINDOW, "its address is in the window")
    client.socket.close()


@scenario
def garbage_at_the_door():
    with server() as s:
        before = s.settle()
        for data in (b"GET / HTTP/1.0\r\n\r\n", os.urandom(4096), u32(0xFFFFFFFF) + bytes(100), u32(0x80000004) + bytes(4)):
            client = Client(s.url)
            client.socket.sendall(data)
            with contextlib.suppress(OSError):  # closed already
                client.socket.shutdown(socket.SHUT_WR)
            expect(client.is_closed(), "the connection ends after", data[:16])
        serves(s)
        within(60, lambda: len(s.children()) == before, "as many processes as before: %d" % before)


@scenario
def bad_records_in_a_session():
    with server() as s:
        before, bystander = s.settle(), session(s.url)
        alloc = PROCEDURES["memory_alloc"].number
        for name, data in (
            ("a record of random bytes", u32(0x80000000 | 64) + os.urandom(64)),
            ("arguments that are cut off", u32(0x80000000 | 44) + u32(2, 0, 2, PROGRAM, VERSION, alloc, 0, 0, 0, 0, 1)),
            ("arguments that are too long", u32(0x80000000 | 60) + u32(2, 0, 2, PROGRAM, VERSION, alloc, *([0] * 9))),
            ("a record longer than any", u32(0xFFFFFFFF) + bytes(1 << 16)),
            ("a second handshake", None),
        ):
            client = session(s.url)
            client.socket.sendall(data or client.record(HANDSHAKE, handshake()))
            expect(client.is_closed(), "the connection ends after", name)
            expect_equal(bystander.call("memory_alloc", u32(0) + u64(64))[0], 0, "another session after", name)
        bystander.socket.close()
        serves(s)
        within(60, lambda: len(s.children()) == before, "as many processes as before: %d" % before)


@scenario
def handles_that_are_not_the_sessions():
    with server() as s:
        one, other = session(s.url), session(s.url)
        one.send(PROCEDURES["stream_create"].number, u32(1) + u64(STREAM_ID | 99) + u32(0, 0, 0))
        expect_equal(one.call("stream_synchronize", u64(STREAM_ID | 99))[0], 0, "the session's own stream")
        for name, handle in (("another session's stream", STREAM_ID | 99), ("an unknown stream", STREAM_ID | 1 << 40),
                             ("an event for a stream", EVENT_ID | 99), ("zero", 0), ("all ones", (1 << 64) - 1)):
            expect_equal(other.call("stream_synchronize", u64(handle))[0], INVALID_HANDLE, name)
        expect_equal(other.call("event_query", u64(STREAM_ID | 1))[0], INVALID_HANDLE, "a stream for an event")
        expect_equal(other.call("library_global", u64(0x13 << 56 | 5) + opaque(b"x") + u32(0))[0], INVALID_HANDLE, "a library")
        expect_equal(other.call("device_memory_info", u32(77))[0], 101, "an unknown device")
        serves(s)


@scenario
def absurd_sizes():
    with server() as s:
        client = session(s.url)
        result, rest = client.call("memory_alloc", u32(0) + u64(4096))
        expect_equal(result, 0, "an allocation")
        address = struct.unpack(">Q", rest)[0]
        for count in (1 << 40, 1 << 63, (1 << 64) - 1):
            expect_equal(client.call("memory_alloc", u32(0) + u64(count))[0], OUT_OF_MEMORY, "an allocation of", count)
        huge = 1 << 62
        for name, where in (("a range beyond its allocation", box(address, 8192)),
                            ("nobody's memory", box(WINDOW + (1 << 39), 16)), ("address zero", box(0, 16)),
                            ("an address of the host", box(0x7FFFF0000000, 16)),
                            ("rows that overflow", box(address, 16, huge, huge, huge, huge)),
                            ("slices that overflow", box(address, 16, 2, 1 << 60, 16, 1 << 60))):
            result, _ = client.call("copy_out", u64(STREAM_ID | 1) + where)
            expect_equal(result, INVALID_VALUE, name)
        expect_equal(client.call("device_memory_info", u32(0))[0], 0, "the session afterwards")


@scenario
def memory_that_is_mapped():
    """Mappings lie in their window, in whole granules, and one at a place; what is not mapped is nobody's memory."""
    physical, virtual, granule = 0x28 << 56, 0x400000000000, 2 << 20
    with server() as s:
        client, other = session(s.url), session(s.url)

        def expect_refused(name, procedure, *values, code=INVALID_VALUE):
            expect_equal(client.call(procedure, *values)[0], code, name)
        for name, number, count in (("one", 1, granule), ("two granules", 2, 2 * granule)):
            expect_equal(client.call("virtual_create", u64(physical | number) + u32(0) + u64(count))[0], 0, name)
        expect_refused("a taken id", "virtual_create", u64(physical | 1) + u32(0) + u64(granule), code=INVALID_HANDLE)
        expect_refused("an id of a stream", "virtual_create", u64(STREAM_ID | 77) + u32(0) + u64(granule), code=INVALID_HANDLE)
        expect_refused("half a granule", "virtual_create", u64(physical | 3) + u32(0) + u64(granule // 2))
        expect_refused("no bytes", "virtual_create", u64(physical | 3) + u32(0) + u64(0))
        for count in (1 << 50, (1 << 64) - granule):
            expect_refused("too much", "virtual_create", u64(physical | 3) + u32(0) + u64(count), code=OUT_OF_MEMORY)
        expect_refused("an unknown device", "virtual_create", u64(physical | 3) + u32(77) + u64(granule), code=101)

        def mapping(number, address, count=granule):
            return u64(physical | number) + u64(address, count)
        for name, where in (("the window of a device", mapping(1, WINDOW + (1 << 39))), ("an odd address", mapping(1, virtual + 4096)),
                            ("behind the window", mapping(1, virtual + (8 << 40))), ("address zero", mapping(1, 0)),
                            ("over the window's end", mapping(2, virtual + (8 << 40) - granule, 2 * granule)),
                            ("more than there is", mapping(1, virtual, 2 * granule)), ("no bytes", mapping(1, virtual, 0)),
                            ("bytes that overflow", mapping(1, virtual, (1 << 64) - granule))):
            expect_refused(name, "virtual_map", where)
        expect_refused("an unknown id", "virtual_map", mapping(9, virtual), code=INVALID_HANDLE)
        expect_equal(other.call("virtual_map", mapping(1, virtual))[0], INVALID_HANDLE, "another session's memory")
        expect_equal(client.call("virtual_map", mapping(2, virtual, 2 * granule))[0], 0, "a mapping")
        expect_equal(client.call("virtual_map", mapping(1, virtual + 2 * granule))[0], 0, "its neighbour")
        expect_refused("a place that is taken", "virtual_map", mapping(1, virtual + granule))
        expect_equal(client.call("virtual_access", u32(0) + u64(virtual, 3 * granule) + u32(3))[0], 0, "access")
        for name, where in (("a part of a mapping", u64(virtual, granule)), ("more than is mapped", u64(virtual, 4 * granule)),
                            ("what is not mapped", u64(virtual + 8 * granule, granule)), ("no bytes", u64(virtual, 0))):
            expect_refused(name, "virtual_unmap", where)
            expect_refused(name, "virtual_access", u32(0) + where + u32(3))
        expect_refused("other flags", "virtual_access", u32(0) + u64(virtual, 3 * granule) + u32(4))
        expect_refused("an unknown device", "virtual_access", u32(77) + u64(virtual, 3 * granule) + u32(3), code=101)
        stream = u64(STREAM_ID | 1)
        expect_equal(client.call("copy_out", stream + box(virtual + 2 * granule - 8, 16))[1][-16:], bytes(16), "clear memory")
        for name, where in (("a range beyond the last mapping", box(virtual + 3 * granule - 8, 16)),
                            ("what is not mapped", box(virtual + 4 * granule, 16))):
            expect_equal(client.call("copy_out", stream + where)[0], INVALID_VALUE, name)
        client.errors.clear()
        client.send(PROCEDURES["virtual_release"].number, u32(1) + u64(physical | 1))
        expect_equal(client.call("virtual_unmap", u64(virtual, 3 * granule))[0], 0, "the end of both")
        expect_equal(client.errors, [(1, INVALID_VALUE)], "memory that is mapped was to be let go")
        for number in (1, 2):
            client.send(PROCEDURES["virtual_release"].number, u32(1) + u64(physical | number))
        expect_refused("an id that has ended", "virtual_map", mapping(1, virtual), code=INVALID_HANDLE)
        expect_refused("outside of a move", "virtual_restore", u64(physical | 5) + u32(0) + u64(WINDOW, granule))
        serves(s)


WAIT32, WRITE32, FLUSH, WAIT64, WRITE64, BARRIER = 1, 2, 3, 4, 5, 6     # CUstreamBatchMemOpType


def op(operation, address, value=0):
    return u32(operation, 0) + u64(address, value)


class Values:
    """A session with 4 KiB of memory, whose stream works on its words; of as much it has let go."""
    size, stream, thread, ops_max = 4096, STREAM_ID | 1, 1, 255

    def __init__(self, s):
        self.client = session(s.url)
        self.address, self.freed = self.allocate(), self.allocate()
        self.client.send(PROCEDURES["memory_free"].number, u32(self.thread) + u64(self.freed))
        expect_equal(self.does(op(WRITE64, self.address), op(WRITE64, self.address + self.size - 8)), [], "errors")

    def allocate(self):
        result, rest = self.client.call("memory_alloc", u32(0) + u64(self.size))
        expect_equal(result, 0, "an allocation")
        return struct.unpack(">Q", rest)[0]

    def send(self, *ops):
        self.client.send(PROCEDURES["stream_memory_ops"].number,
                         u32(self.thread) + u64(self.stream) + u32(len(ops)) + b"".join(ops))

    def does(self, *ops):
        """The errors that come of it."""
        self.client.errors.clear()
        self.send(*ops)
        expect_equal(self.client.call("stream_synchronize", u64(self.stream))[0], 0, "the session goes on")
        return list(self.client.errors)

    def refuses(self, name, *ops):
        expect_equal(self.does(*ops), [(self.thread, INVALID_VALUE)], "errors of", name)

    def word(self, offset=0):
        result, rest = self.client.call("copy_out", u64(self.stream) + box(self.address + offset, 8))
        expect_equal(result, 0, "a copy")
        return struct.unpack("<Q", rest[-8:])[0]


@scenario
def values_of_streams_elsewhere():
    """Memory operations of streams reach the session's memory alone. One that is refused takes along those of its call."""
    with server() as s:
        values, bystander = Values(s), session(s.url)
        own, end = values.address, values.address + values.size
        for name, address in (("address zero", 0), ("an address of the host", 0x7FFFF0000000), ("what is behind its end", end),
                              ("memory that was freed", values.freed), ("nobody's memory", WINDOW + (1 << 39)),
                              ("the window of a GPU that it lacks", WINDOW + (1 << 40)), ("the last word", (1 << 64) - 8)):
            for operation in (WAIT32, WRITE32, WAIT64, WRITE64):
                values.refuses("%s, %d" % (name, operation), op(operation, address))
        for name, operation, address in (("half a word too far", WRITE32, own + 2), ("half a long word too far", WAIT64, own + 4),
                                         ("its last four bytes and four more", WRITE64, end - 4)):
            values.refuses(name, op(operation, address, 1))
        for operation in (0, FLUSH, 7, 255, (1 << 32) - 1):
            values.refuses("operation %d" % operation, op(operation, own, 1))
        values.refuses("none")
        values.refuses("a good one before a bad one", op(WRITE64, own, 1), op(WRITE64, end, 1))
        expect_equal((values.word(), values.word(values.size - 8)), (0, 0), "nothing of that was written")
        many = [op(WRITE32, own, i) for i in range(values.ops_max - 3)]
        expect_equal(values.does(*many, op(BARRIER, 0), op(WRITE64, end - 8, 99), op(WAIT64, end - 8, 99)), [], "errors")
        expect_equal((values.word(), values.word(values.size - 8)), (values.ops_max - 4, 99), "what was written")
        values.send(*many, *many)
        expect(values.client.is_closed(), "a call with more of them than any ends the session")
        expect_equal(bystander.call("device_memory_info", u32(0))[0], 0, "another session")


PAGE = os.sysconf("SC_PAGESIZE")
CLIENT_BRINGS_REGION, REGION, IS_SEEN, IS_MAPPED, IS_FILLED = 8, 1, 1, 2, 8


class Shared(Client):
    """A session over a unix socket that brings a region: a memfd of so many bytes with these seals, or another descriptor. `use`:
    what the server says that it makes of it; None: it did not ask for it."""
    stream, thread = STREAM_ID | 1, 1

    def __init__(self, url, features=CLIENT_BRINGS_REGION, size=1 << 30, seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW, fd=None):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(url.removeprefix("unix://"))
        self.xid, self.errors, self.early = 0, [], b""
        self.send(HANDSHAKE, handshake() + opaque(b"") + opaque(b"") + opaque(u64(features) if features else b""))
        self.early, self.fds, _, _ = socket.recv_fds(self.socket, 65536, 8)
        expect_equal(struct.unpack(">I", self.reply()[:4])[0], 0, "status of the handshake")
        self.use = None
        if features & CLIENT_BRINGS_REGION:
            fd = self.make(size, seals) if fd is None else fd
            socket.send_fds(self.socket, [b"1"], [fd])
            self.use = self.exactly(1)[0]
            os.close(fd)

    def make(self, size, seals):
        fd = os.memfd_create("region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        self.memory = mmap.mmap(fd, size) if size else None
        return fd

    def exactly(self, count):
        early, self.early = self.early[:count], self.early[count:]
        return early + super().exactly(count - len(early))

    def lock(self, offset, count, word="lock", region=REGION):
        return self.call("region_" + word, u32(region) + u64(offset, count))[0]

    def copy(self, word, device_box, offset, pitch=0, slice_bytes=0, region=REGION):
        """Errors of a copy between the device and the region."""
        self.errors.clear()
        self.send(PROCEDURES["copy_%s_region" % word].number,
                  u32(self.thread) + u64(self.stream) + device_box + u32(region) + u64(offset, pitch, slice_bytes))
        expect_equal(self.call("stream_synchronize", u64(self.stream))[0], 0, "the session goes on")
        return list(self.errors)


    def fill(self, where, element_bytes=1, value=0):
        """Errors of a fill."""
        self.errors.clear()
        self.send(PROCEDURES["memory_set"].number, u32(self.thread) + u64(self.stream) + where + u32(element_bytes, value))
        expect_equal(self.call("stream_synchronize", u64(self.stream))[0], 0, "the session goes on")
        return list(self.errors)


@scenario
def fills_of_a_region():
    """Locked pages are filled by their addresses, which no other page of the host is."""
    with server(kind="unix") as s:
        client = Shared(s.url)
        here, there = REGION_BASE + 4 * PAGE, 4 * PAGE
        expect_equal(client.lock(there, 4 * PAGE), 0, "locking")
        client.memory[:12 * PAGE] = b"\1" * 12 * PAGE
        expect_equal(client.fill(box(here + 4, 4 * PAGE - 8), 4, 0x05040302), [], "errors of a fill")
        expect_equal(client.memory[:12 * PAGE],
                     b"\1" * (there + 4) + b"\2\3\4\5" * (PAGE - 2) + b"\1" * (4 * PAGE + 4), "what was filled")
        expect_equal(client.fill(box(here, 6, 3, 2, 16, 64), 2, 0x0807), [], "errors of a box")
        for at in (sl * 64 + row * 16 for sl in range(2) for row in range(3)):
            expect_equal(client.memory[there + at:there + at + 6], b"\7\x08" * 3, "a row of the box")
        before = client.memory[:12 * PAGE]
        for name, where in (("before what is locked", box(here - 1, 2)), ("behind it", box(here + 4 * PAGE, 1)),
                            ("over its end", box(here + 4 * PAGE - 1, 2)), ("rows over its end", box(here, 1, 4 * PAGE, 1, 2)),
                            ("what is not locked", box(REGION_BASE, 1)), ("behind the region", box(REGION_BASE + (1 << 30), 1)),
                            ("before it", box(REGION_BASE - 1, 2)), ("a span that overflows", box(here, 1, 1 << 20, 1, 1 << 60)),
                            ("sizes that overflow", box(here, 1 << 32, 1 << 32, 1, 1 << 32)),
                            ("rows that overlap", box(here, 10, 3, 1, 9))):
            expect_equal(client.fill(where), [(client.thread, INVALID_VALUE)], "errors of", name)
        expect_equal(client.fill(box(here + 1, 4), 4), [(client.thread, INVALID_VALUE)], "errors of what is not aligned")
        expect_equal(client.fill(box(here, 0)), [], "errors of nothing")
        expect_equal(client.lock(there, 4 * PAGE, "unlock"), 0, "unlocking")
        expect_equal(client.fill(box(here, 1)), [(client.thread, INVALID_VALUE)], "errors of what is not locked any more")
        expect_equal(client.memory[:12 * PAGE], before, "what was refused")
    with server(kind="unix") as s:
        client = Shared(s.url, 0)
        expect_equal(client.fill(box(REGION_BASE, 1)), [(client.thread, INVALID_VALUE)], "errors without a region")


@scenario
def regions():
    """What both sides name is copied without a byte on the wire; all that is not locked is refused, and harms nobody."""
    with server(kind="unix") as s:
        client = Shared(s.url)
        expect_equal((len(client.fds), client.use), (1, IS_SEEN | IS_MAPPED | IS_FILLED), "descriptors, and what is made of the region")
        address = struct.unpack(">Q", client.call("memory_alloc", u32(0) + u64(1 << 20))[1])[0]
        expect_equal(client.lock(4 * PAGE, 4 * PAGE), 0, "locking")
        sent = os.urandom(4 * PAGE)
        client.memory[4 * PAGE:8 * PAGE] = sent
        expect_equal(client.copy("in", box(address, 4 * PAGE), 4 * PAGE), [], "errors of a copy to the device")
        client.memory[4 * PAGE:8 * PAGE] = bytes(4 * PAGE)
        expect_equal(client.copy("out", box(address + 10, 100), 8 * PAGE - 100), [], "errors of a copy back")
        expect_equal(client.memory[4 * PAGE:8 * PAGE], bytes(4 * PAGE - 100) + sent[10:110], "what was copied")
        rows = box(address, 10, 3, 2, 16, 64)
        expect_equal(client.copy("out", rows, 4 * PAGE, 20, 80), [], "errors of a box")
        for at, back in ((sl * 80 + row * 20, sl * 64 + row * 16) for sl in range(2) for row in range(3)):
            expect_equal(client.memory[4 * PAGE + at:4 * PAGE + at + 10], sent[back:back + 10], "a row of the box")
        refused = [(client.thread, INVALID_VALUE)]
        for name, device_box, offset, pitch, slice_bytes in (
                ("before what is locked", box(address, 2), 4 * PAGE - 1, 0, 0), ("behind it", box(address, 1), 8 * PAGE, 0, 0),
                ("over its end", box(address, 2), 8 * PAGE - 1, 0, 0), ("rows over its end", box(address, 1, 4 * PAGE, 1, 1), 4 * PAGE, 2, 0),
                ("outside of the region", box(address, 1), (1 << 64) - 1, 0, 0),
                ("a span that overflows", box(address, 1, 1 << 20, 1, 1), 4 * PAGE, 1 << 60, 0),
                ("rows that overlap", box(address, 10, 3, 1, 16), 4 * PAGE, 9, 0),
                ("slices that no driver copies", box(address, 10, 3, 2, 16, 64), 4 * PAGE, 20, 79),
                ("nobody's memory", box(WINDOW + (1 << 39), 16), 4 * PAGE, 0, 0)):
            for word in ("in", "out"):
                expect_equal(client.copy(word, device_box, offset, pitch, slice_bytes), refused, "errors of", name)
        expect_equal(client.copy("in", box(address, 1), 4 * PAGE, region=2), refused, "errors of another region")
        for name, offset, count in (("overlapping", 7 * PAGE, 2 * PAGE), ("no page", 1, PAGE),
                                    ("nothing", 0, 0), ("behind the end", 1 << 62, PAGE), ("all there are", PAGE, (1 << 64) - PAGE)):
            expect_equal(client.lock(offset, count), INVALID_VALUE, "locking " + name)
        virtual, granule, far = 0x400000000000, 2 << 20, 16 << 20

        def map_again(at, count=granule, offset=far, region=REGION):
            return client.call("virtual_map_region", u64(at, count) + u32(region) + u64(offset))[0]
        expect_equal(map_again(virtual), INVALID_VALUE, "mapping what is not locked")
        expect_equal(client.lock(far, 2 * granule), 0, "locking two granules")
        for name, where in (("the window of a device", (WINDOW + (1 << 39),)), ("an odd address", (virtual + PAGE,)), ("no bytes", (virtual, 0)),
                            ("behind the window", (virtual + (8 << 40),)), ("another region", (virtual, granule, far, 2)),
                            ("more than is locked", (virtual, 4 * granule)), ("half a granule", (virtual, granule // 2))):
            expect_equal(map_again(*where), INVALID_VALUE, "mapping at or of " + name)
        expect_equal(map_again(virtual, 2 * granule), 0, "mapping")
        expect_equal(map_again(virtual + granule), INVALID_VALUE, "mapping where something is")
        expect_equal(client.lock(far, 2 * granule, "unlock"), INVALID_VALUE, "unlocking what is mapped")
        client.memory[far + granule:far + granule + 4] = b"host"
        expect_equal(client.call("copy_out", u64(STREAM_ID | 1) + box(virtual + granule, 4))[1][-4:], b"host", "a copy from there")
        expect_equal(client.call("virtual_unmap", u64(virtual, 2 * granule))[0], 0, "unmapping")
        expect_equal(client.call("copy_out", u64(STREAM_ID | 1) + box(virtual + granule, 4))[0], INVALID_VALUE, "a copy from there")
        expect_equal(client.lock(far, 2 * granule, "unlock"), 0, "unlocking what was mapped")
        expect_equal(client.lock(4 * PAGE, PAGE, "unlock"), INVALID_VALUE, "unlocking a part")
        expect_equal(client.lock(4 * PAGE, 4 * PAGE, "unlock"), 0, "unlocking")
        expect_equal(client.lock(4 * PAGE, 4 * PAGE, "unlock"), INVALID_VALUE, "unlocking again")
        expect_equal(client.copy("in", box(address, 1), 4 * PAGE), refused, "errors of a copy of what is not locked any more")
        expect_equal(client.lock(5 * PAGE, PAGE), 0, "locking anew")
        expect_equal(client.lock(5 * PAGE, PAGE), 0, "locking once more what is locked")
        expect_equal(Shared(s.url, 0).use, None, "a client that brings no region is asked for none")
        for name, none in (("can be cut", {"seals": 0}), ("is empty", {"size": 0}), ("is a pipe", {"fd": os.pipe()[0]}),
                           ("is a file", {"fd": os.open(__file__, os.O_RDONLY)})):
            without = Shared(s.url, **none)
            expect_equal(without.use, 0, "a region that", name)
            expect_equal(without.lock(0, PAGE), INVALID_VALUE, "locking then")
        silent = Shared(s.url, 0)
        silent.socket.close()
        gone = socket.socket(socket.AF_UNIX)
        gone.connect(s.url.removeprefix("unix://"))
        gone.sendall(silent.record(HANDSHAKE, handshake() + opaque(b"") + opaque(b"") + opaque(u64(CLIENT_BRINGS_REGION))))
        gone.close()
        expect_equal(Shared(s.url).use, IS_SEEN | IS_MAPPED | IS_FILLED, "a session after these")
    with server() as s:
        client = session(s.url)
        expect_equal(client.call("region_lock", u32(REGION) + u64(0, PAGE))[0], INVALID_VALUE, "locking without a region")
        serves(s)


@scenario
def refused_handshakes():
    with server() as s:
        expect_equal(Client(s.url).open(base_hash=bytes(32))[0], 1, "another base protocol")
        expect_equal(Client(s.url).open(kind=1, token=os.urandom(32))[0], 3, "a data stream of no session")
        expect_equal(Client(s.url).open(kind=1)[0], 3, "a data stream without a token")
        serves(s)


@scenario
def ends_in_the_middle_of_a_transfer():
    with server() as s:
        before = s.settle()
        client = session(s.url)
        data = Client(s.url)
        expect_equal(data.open(kind=1, token=client.token)[0], 0, "a data stream")
        body = u32(7, 0, 2, PROGRAM, VERSION, CHUNK, 0, 0, 0, 0) + u64(1, 0) + u32(4 << 20)
        data.socket.sendall(u32(0x80000000 | len(body) + (4 << 20)) + body + bytes(100000))
        expect_equal(client.call("memory_alloc", u32(0) + u64(64))[0], 0, "the session beside its unfinished chunk")
        data.socket.close()
        expect(client.is_closed(), "a session that lost data ends")
        client = session(s.url)
        client.socket.sendall(client.record(CHUNK, u64(1, 0) + u32(1 << 20) + bytes(1 << 20))[:5000])
        client.socket.close()
        serves(s)
        within(10, lambda: len(s.children()) == before, "the processes are those of the beginning")


@scenario
def streams_that_come_while_data_waits():
    """What a data stream carries first is the answer to its handshake, also where much waits to be sent: the client would take
    a chunk for the answer, and what is in it would be lost."""
    size, streams = 64 << 20, 4
    with server() as s:
        for _ in range(8):
            client = session(s.url)
            result, rest = client.call("memory_alloc", u32(0) + u64(size))
            expect_equal(result, 0, "an allocation")
            address = struct.unpack(">Q", rest)[0]
            client.send(PROCEDURES["copy_out_transfer"].number, u32(0) + u64(STREAM_ID | 1) + box(address, size) + u64(1, size))
            select.select([client.socket], [], [], 60)      # it begins to come, and is not read
            others = [Client(s.url) for _ in range(streams)]
            for data in others:
                data.send(HANDSHAKE, handshake(kind=1, token=client.token))
            for data in others:
                mark = struct.unpack(">I", data.exactly(4))[0]
                first = struct.unpack(">2I", data.exactly(mark & 0x7FFFFFFF)[:8])
                expect_equal(first, (data.xid, 1), "xid and direction of the first record")
            for data in others + [client]:
                data.socket.close()


@scenario
def a_stream_that_has_ended_carries_nothing():
    """What is sent after the client has closed a data stream comes over the main connection, for nobody reads it there."""
    size = 1 << 20
    with server() as s:
        client = session(s.url)
        result, rest = client.call("memory_alloc", u32(0) + u64(size))
        expect_equal(result, 0, "an allocation")
        address = struct.unpack(">Q", rest)[0]
        pid = within(10, lambda: [p for p in s.children() if harness.socket_inodes(p) & set(harness.peers_of(os.getpid()))],
                     "who serves it")[0]
        threads = len(os.listdir("/proc/%d/task" % pid))
        data = Client(s.url)
        expect_equal(data.open(kind=1, token=client.token)[0], 0, "a data stream")
        within(10, lambda: len(os.listdir("/proc/%d/task" % pid)) == threads + 2, "one thread reads it, one sends")
        data.socket.shutdown(socket.SHUT_WR)        # what still came over it would be seen
        within(10, lambda: len(os.listdir("/proc/%d/task" % pid)) < threads + 2, "its end is known")
        client.send(PROCEDURES["copy_out_transfer"].number, u32(0) + u64(STREAM_ID | 1) + box(address, size) + u64(1, size))
        come = 0
        while come < size:
            expect(select.select([client.socket, data.socket], [], [], 60)[0] == [client.socket], "where it comes")
            mark = struct.unpack(">I", client.exactly(4))[0]
            body = client.exactly(mark & 0x7FFFFFFF)
            if len(body) >= 1 << 16:
                come += len(body) >> 16 << 16
        expect_equal(client.call("device_memory_info", u32(0))[0], 0, "the session afterwards")


@scenario
def a_server_process_is_killed():
    with server() as s:
        before = s.settle()
        client, bystander = session(s.url), session(s.url)
        serving = within(10, lambda: [p for p in s.children() if s.log().count("session") >= 2], "both are served")
        expect(len(serving) >= before, "one process for each session and the warm ones")
        for pid in s.children():
            if harness.socket_inodes(pid) & set(harness.peers_of(os.getpid())):
                os.kill(pid, signal.SIGKILL)
                break
        else:
            raise Failed("no server process has a connection of this test")
        within(10, lambda: sum(c.is_closed() for c in (client, bystander) if c.socket.settimeout(0.2) is None) == 1,
               "one of the two sessions has ended")
        serves(s)
        # A process that has ended this moment may not have been waited for yet.
        within(10, lambda: not zombies_of(s.pid), "every process that ended has been waited for")


def zombies_of(listener_pid):
    return [p for p in os.listdir("/proc") if p.isdigit() and parent(p) == listener_pid and not is_alive(int(p))]


def parent(pid):
    try:
        with open("/proc/%s/stat" % pid) as f:
            return int(f.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None


@scenario
def sigterm_leaves_nothing():
    with server(kind="unix") as s:
        folder = glob.glob(os.path.join(harness.WORK, "flyt-images-*"))
        expect_equal(len(folder), 1, "folders of images")
        children = s.children()
        os.kill(s.pid, signal.SIGTERM)
        expect_equal(s.process.wait(60), 0, "exit status")
        expect_equal([p for p in children if is_alive(p)], [], "processes")
        expect(not os.path.exists(s.url.removeprefix("unix://")), "the socket's file is there")
        expect_equal(glob.glob(os.path.join(harness.WORK, "flyt-images-*")), [], "folders of images")


def timers(port):
    """Kinds and seconds of the timers of the established connections to a port (proc(5), /proc/net/tcp: tr, tm->when)."""
    with open("/proc/net/tcp") as f:
        rows = [line.split() for line in f.read().splitlines()[1:]]
    return [(int(r[5].split(":")[0], 16), int(r[5].split(":")[1], 16) / os.sysconf("SC_CLK_TCK"))
            for r in rows if int(r[1].rsplit(":", 1)[1], 16) == port and r[3] == "01"]


@scenario
def silent_clients_are_missed():
    keepalive = 2
    with server() as s:
        client = session(s.url)
        found = timers(int(s.url.rsplit(":", 1)[1]))
        expect(any(kind == keepalive and seconds <= 20 for kind, seconds in found), "timers of the server's end:", found)
        client.socket.close()


@scenario
def a_stopped_server_process_stops_nobody():
    with server() as s:
        s.settle()
        client = session(s.url)
        for pid in s.children():
            if harness.socket_inodes(pid) & set(harness.peers_of(os.getpid())):
                harness.stop(pid)
        streams = []
        for _ in range(256):
            streams.append(Client(s.url))
            streams[-1].send(HANDSHAKE, handshake(kind=1, token=client.token))
        serves(s)
        for c in (client, *streams):
            c.socket.close()


@scenario
def unfinished_images_go_with_the_server():
    def folders():
        return set(glob.glob(os.path.join(harness.WORK, "flyt-images-*")))
    before = folders()  # of a server above, while one of its processes holds it
    with server(kind="unix") as s:
        [folder] = folders() - before
        with open(os.path.join(folder, ".part-1-0123456789abcdef"), "w") as f:
            f.write("a process was killed while it wrote this")
        os.kill(s.pid, signal.SIGTERM)
        expect_equal(s.process.wait(60), 0, "exit status")
        expect(not os.path.exists(folder), "the folder of images is there:", folder)


@scenario
def options():
    program = os.path.join(harness.BUILD, "bin", "flyt-server")
    for wrong in ([], ["--listen", "nonsense"], ["--listen", "tcp://:0", "--soft", "0"], ["--warm"],
                  ["--listen", "tcp://:0", "--soft", "1", "--soft-sm-rate", "-1"],
                  *(["--listen", "tcp://:0", "--soft", "2", "--soft-cc", text] for text in ("", "9", "9.0,", ",9.0", "9.0;8.0")),
                  ["--listen", "tcp://:0", "--warm", "x"], ["--listen", "tcp://:0", "more"]):
        result = run([program, *wrong])
        expect(result.status in (1, 2), wrong, result)
        expect_equal(len(harness.lines(result.err)), 1, "lines on stderr of", wrong, result)
    expect("--soft-memory" in run([program, "--help"]).out, "--help lists the options")
    expect(run([program, "--version"]).out.startswith("flyt-server "), "--version")
    if not glob.glob("/dev/nvidia[0-9]*"):
        result = run([program, "--listen", "tcp://127.0.0.1:0"])
        expect_equal(result.status, 1, "without a driver", result)
        expect("--soft" in result.err, "says what to do", result)


main()
