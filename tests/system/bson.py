"""BSON (bsonspec.org, version 1.1) for the MongoDB stand-in and for tests that write documents by hand: bytes to and
from Python values, relaxed extended JSON, and MongoDB's order of values.

int: int32 where it fits, else int64 (Int64 forces it); dict: document (order kept); list: array; the classes below:
what Python has no word for.
"""
import base64
import json
import math
import os
import struct
import time


class Int64(int):
    """An integer that stays 64 bits wide."""


class ObjectId(bytes):
    """12 bytes."""

    @classmethod
    def new(cls):
        return cls(struct.pack(">I", int(time.time())) + os.urandom(8))


class Date(int):
    """Milliseconds since 1970."""


class Timestamp(int):
    """64 bits: seconds, increment."""


class Decimal128(bytes):
    """16 bytes, uninterpreted."""


class Binary(bytes):
    subtype = 0

    def __new__(cls, data, subtype=0):
        self = super().__new__(cls, data)
        self.subtype = subtype
        return self


class Regex(tuple):
    """(pattern, options)."""


class Code(str):
    pass


class Symbol(str):
    pass


class Extreme:
    """The values before and after all others."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name


MIN_KEY, MAX_KEY = Extreme("MinKey"), Extreme("MaxKey")


# ---- bytes ----

def _cstring(text):
    data = text.encode("utf-8", "surrogatepass")
    if b"\0" in data:
        raise ValueError("a name holds a NUL")
    return data + b"\0"


def _string(text):
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<i", len(data) + 1) + data + b"\0"


def _value(value):
    """(type, bytes) of a value."""
    if value is None:
        return 0x0a, b""
    if isinstance(value, bool):
        return 0x08, b"\1" if value else b"\0"
    if isinstance(value, float):
        return 0x01, struct.pack("<d", value)
    if isinstance(value, Date):
        return 0x09, struct.pack("<q", value)
    if isinstance(value, Timestamp):
        return 0x11, struct.pack("<Q", value)
    if isinstance(value, int):
        if not isinstance(value, Int64) and -2**31 <= value < 2**31:
            return 0x10, struct.pack("<i", value)
        return 0x12, struct.pack("<q", value)
    if isinstance(value, Code):
        return 0x0d, _string(value)
    if isinstance(value, Symbol):
        return 0x0e, _string(value)
    if isinstance(value, str):
        return 0x02, _string(value)
    if isinstance(value, dict):
        return 0x03, encode(value)
    if isinstance(value, list):
        return 0x04, encode({str(i): v for i, v in enumerate(value)})
    if isinstance(value, ObjectId):
        return 0x07, bytes(value)
    if isinstance(value, Decimal128):
        return 0x13, bytes(value)
    if isinstance(value, bytes):
        return 0x05, struct.pack("<iB", len(value), getattr(value, "subtype", 0)) + value
    if isinstance(value, Regex):
        return 0x0b, _cstring(value[0]) + _cstring(value[1])
    if value is MIN_KEY:
        return 0xff, b""
    if value is MAX_KEY:
        return 0x7f, b""
    raise TypeError("no BSON for %r" % (value,))


def _member(name, value):
    kind, data = _value(value)
    return bytes((kind,)) + _cstring(name) + data


def _whole(members):
    body = b"".join(members)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


class Encoded(dict):
    """A document that nobody changes any more, with its bytes. Members that are the very objects of `former`, an Encoded
    too, are not encoded again."""
    __slots__ = ("bytes", "members")

    def __init__(self, document, former=None):
        super().__init__(document)
        known = former.members if isinstance(former, Encoded) else {}
        self.members = {name: known[name] if name in known and former[name] is value else _member(name, value)
                        for name, value in document.items()}
        self.bytes = _whole(self.members.values())


def encode(document):
    if isinstance(document, Encoded):
        return document.bytes
    return _whole([_member(name, value) for name, value in document.items()])


def _read_cstring(data, at):
    end = data.index(b"\0", at)
    return data[at:end].decode("utf-8", "surrogateescape"), end + 1


def _read_string(data, at):
    size, = struct.unpack_from("<i", data, at)
    return data[at + 4:at + 3 + size].decode("utf-8", "surrogateescape"), at + 4 + size


def _read_value(kind, data, at):
    """(value, where it ends)."""
    if kind == 0x01:
        return struct.unpack_from("<d", data, at)[0], at + 8
    if kind in (0x02, 0x0d, 0x0e):
        text, at = _read_string(data, at)
        return {0x02: str, 0x0d: Code, 0x0e: Symbol}[kind](text), at
    if kind in (0x03, 0x04):
        document, at = decode_at(data, at)
        return (document if kind == 0x03 else list(document.values())), at
    if kind == 0x05:
        size, subtype = struct.unpack_from("<iB", data, at)
        return Binary(data[at + 5:at + 5 + size], subtype), at + 5 + size
    if kind == 0x07:
        return ObjectId(data[at:at + 12]), at + 12
    if kind == 0x08:
        return data[at] != 0, at + 1
    if kind == 0x09:
        return Date(struct.unpack_from("<q", data, at)[0]), at + 8
    if kind in (0x0a, 0x06):
        return None, at
    if kind == 0x0b:
        pattern, at = _read_cstring(data, at)
        options, at = _read_cstring(data, at)
        return Regex((pattern, options)), at
    if kind == 0x10:
        return struct.unpack_from("<i", data, at)[0], at + 4
    if kind == 0x11:
        return Timestamp(struct.unpack_from("<Q", data, at)[0]), at + 8
    if kind == 0x12:
        return Int64(struct.unpack_from("<q", data, at)[0]), at + 8
    if kind == 0x13:
        return Decimal128(data[at:at + 16]), at + 16
    if kind == 0xff:
        return MIN_KEY, at
    if kind == 0x7f:
        return MAX_KEY, at
    raise ValueError("BSON type 0x%02x" % kind)


def decode_at(data, at):
    """(document, where it ends)."""
    size, = struct.unpack_from("<i", data, at)
    end = at + size - 1
    if size < 5 or end >= len(data) or data[end] != 0:
        raise ValueError("a document of %d bytes does not fit" % size)
    at += 4
    document = {}
    while at < end:
        kind = data[at]
        name, at = _read_cstring(data, at + 1)
        document[name], at = _read_value(kind, data, at)
    return document, end + 1


def decode(data):
    return decode_at(data, 0)[0]


# ---- extended JSON ----

_EXTENDED = {
    "$oid": lambda v: ObjectId(bytes.fromhex(v)),
    "$numberInt": int,
    "$numberLong": lambda v: Int64(int(v)),
    "$numberDouble": float,
    "$date": lambda v: Date(int(v["$numberLong"]) if isinstance(v, dict) else v),
    "$binary": lambda v: Binary(base64.b64decode(v["base64"]), int(v["subType"], 16)),
    "$symbol": Symbol,
    "$code": Code,
    "$minKey": lambda v: MIN_KEY,
    "$maxKey": lambda v: MAX_KEY,
}


def from_extended(value):
    """A value that json.loads made, as BSON has it."""
    if isinstance(value, dict):
        if len(value) == 1:
            (name, inner), = value.items()
            if name in _EXTENDED:
                return _EXTENDED[name](inner)
        return {k: from_extended(v) for k, v in value.items()}
    if isinstance(value, list):
        return [from_extended(v) for v in value]
    return value


def to_extended(value):
    """What json.dumps can print: relaxed extended JSON."""
    if isinstance(value, dict):
        return {k: to_extended(v) for k, v in value.items()}
    if isinstance(value, list):
        return [to_extended(v) for v in value]
    if isinstance(value, ObjectId):
        return {"$oid": value.hex()}
    if isinstance(value, Date):
        return {"$date": {"$numberLong": str(int(value))}}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$numberDouble": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, Decimal128):
        return {"$decimalBytes": value.hex()}
    if isinstance(value, bytes):
        return {"$binary": {"base64": base64.b64encode(value).decode(), "subType": "%02x" % getattr(value, "subtype", 0)}}
    if isinstance(value, (Regex, Extreme, Timestamp)):
        return {"$other": repr(value)}
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return value
    return int(value) if isinstance(value, int) else str(value)


def loads(text):
    return from_extended(json.loads(text))


def dumps(value):
    return json.dumps(to_extended(value), ensure_ascii=False)


# ---- order ----

def order(value):
    """A key that sorts as MongoDB does, across types (without a collation)."""
    if value is MIN_KEY:
        return (0,)
    if value is None:
        return (1,)
    if isinstance(value, bool):
        return (8, value)
    if isinstance(value, Date):
        return (9, int(value))
    if isinstance(value, Timestamp):
        return (10, int(value))
    if isinstance(value, (int, float)):
        return (2, 0, 0) if isinstance(value, float) and math.isnan(value) else (2, 1, value)
    if isinstance(value, Decimal128):
        return (2, 2, bytes(value))
    if isinstance(value, str):
        return (3, value.encode("utf-8", "surrogateescape"))
    if isinstance(value, dict):
        members = ((k.encode("utf-8", "surrogateescape"), order(v)) for k, v in value.items())
        return (4, tuple((key[0], name, key) for name, key in members))
    if isinstance(value, list):
        return (5, tuple(order(v) for v in value))
    if isinstance(value, ObjectId):
        return (7, bytes(value))
    if isinstance(value, bytes):
        return (6, len(value), getattr(value, "subtype", 0), bytes(value))
    if isinstance(value, Regex):
        return (11, value)
    return (12,)
