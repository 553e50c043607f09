#!/usr/bin/env python3
"""A stand-in for MongoDB, for tests. It is NOT MongoDB: documents live in this process's memory, there are no indexes,
no transactions, no authentication, sessions are not looked at, and only the commands below, as far as Flyt and its tests use them. It speaks the wire
protocol (OP_MSG, and OP_QUERY for the first greeting) and announces itself as the primary of a replica set of one
member, so that drivers accept majority concerns.

usage: mongod_stand_in.py [--port PORT]

Prints "listening on PORT". Lines on standard input make faults; each is answered by "ok" or "error: …". The end of
standard input ends it.
    down / up           closes the port and all connections / opens them again; documents stay
    step_down / step_up is no primary any more / is it again
    cut_before N [COLLECTION]  at the Nth write (into it) from now on (1: the next): drops the connection, without applying it
    cut_after N [COLLECTION]   the same, after applying it
    no_majority / majority   writes are applied here and time out for the others; reads with a concern time out
    before N LINE       at the Nth write from now on, before it is applied: runs LINE, a command for "hand" below
    hand DATABASE COMMAND    runs a database command (extended JSON), prints its reply in place of "ok"
    hold COLLECTION / let go   reading that collection waits / goes on
    refuse COLLECTION / take   writes into that collection fail, nothing is changed / are done again
    slow COLLECTION MS  finds in it take so long from now on; other connections go on meanwhile
    count               prints how many writes were applied
    finds COLLECTION    prints how many finds in it were answered
SIGSTOP and SIGCONT pause it.
"""
import argparse
import copy
import os
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bson  # noqa: E402

MESSAGE_BYTES_MAX = 48000000
DOCUMENT_BYTES_MAX = 16 << 20
FIRST_BATCH = 101


class Failure(Exception):
    def __init__(self, code, name, text):
        super().__init__(text)
        self.code, self.name = code, name


class Cut(Exception):
    """The connection is dropped."""


# ---- filters ----

MISSING = object()


def at_path(document, path):
    for part in path.split("."):
        if isinstance(document, list) and part.isdigit() and int(part) < len(document):
            document = document[int(part)]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        else:
            return MISSING
    return document


def equal(a, b):
    return a is not MISSING and b is not MISSING and bson.order(a) == bson.order(b)


def same_kind(a, b):
    return a is not MISSING and bson.order(a)[0] == bson.order(b)[0]


OPERATORS = {
    "$eq": lambda v, x: equal(v, x) or (x is None and v is MISSING),
    "$ne": None,  # compares() negates the others
    "$nin": None,
    "$gt": lambda v, x: same_kind(v, x) and bson.order(v) > bson.order(x),
    "$gte": lambda v, x: same_kind(v, x) and bson.order(v) >= bson.order(x),
    "$lt": lambda v, x: same_kind(v, x) and bson.order(v) < bson.order(x),
    "$lte": lambda v, x: same_kind(v, x) and bson.order(v) <= bson.order(x),
    "$in": lambda v, x: any(equal(v, one) for one in x),
    "$exists": lambda v, x: (v is not MISSING) == bool(x),
}


def compares(operator, value, operand):
    """Of a list, all but the negations also look at each element."""
    if operator in ("$ne", "$nin"):
        return not compares({"$ne": "$eq", "$nin": "$in"}[operator], value, operand)
    if isinstance(value, list) and operator != "$exists" and any(OPERATORS[operator](one, operand) for one in value):
        return True
    return OPERATORS[operator](value, operand)


def matches_value(value, wanted):
    if isinstance(wanted, dict) and wanted and next(iter(wanted)).startswith("$"):
        for operator, operand in wanted.items():
            if operator == "$not":
                if matches_value(value, operand):
                    return False
            elif operator not in OPERATORS:
                raise Failure(2, "BadValue", "unknown operator: %s" % operator)
            elif not compares(operator, value, operand):
                return False
        return True
    if isinstance(value, list) and not isinstance(wanted, list):
        return any(equal(one, wanted) for one in value)
    return OPERATORS["$eq"](value, wanted)


def expression(document, value):
    """What an aggregation expression gives; compares across types, as MongoDB's do."""
    if isinstance(value, str) and value == "$$ROOT":
        return document
    if isinstance(value, str) and value.startswith("$"):
        return at_path(document, value[1:])
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$"):
        (operator, operand), = value.items()
        if operator == "$literal":
            return operand
        if operator == "$and":
            return all(expression(document, one) for one in operand)
        compare = {"$eq": "__eq__", "$ne": "__ne__", "$gt": "__gt__", "$gte": "__ge__", "$lt": "__lt__", "$lte": "__le__"}
        if operator in compare:
            a, b = (bson.order(v if v is not MISSING else None) for v in (expression(document, one) for one in operand))
            return getattr(a, compare[operator])(b)
        raise Failure(168, "InvalidPipelineOperator", "Unrecognized expression '%s'" % operator)
    return value


def matches(document, wanted):
    for name, value in wanted.items():
        if name == "$and":
            held = all(matches(document, one) for one in value)
        elif name == "$or":
            held = any(matches(document, one) for one in value)
        elif name == "$nor":
            held = not any(matches(document, one) for one in value)
        elif name == "$expr":
            held = bool(expression(document, value))
        elif name == "$comment":
            held = True
        elif name.startswith("$"):
            raise Failure(2, "BadValue", "unknown top level operator: %s" % name)
        else:
            held = matches_value(at_path(document, name), value)
        if not held:
            return False
    return True


# ---- updates ----

def set_path(document, path, value):
    *parents, last = path.split(".")
    for part in parents:
        document = document.setdefault(part, {})
    document[last] = value


def sum_of(value, more):
    """What $inc makes: 64 bits wide where one of the two is, or where it must be."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Failure(14, "TypeMismatch", "Cannot apply $inc to a value of non-numeric type")
    if isinstance(value, float) or isinstance(more, float):
        return float(value) + float(more)
    return bson.Int64(value + more) if isinstance(value, bson.Int64) or isinstance(more, bson.Int64) else value + more


def updated(document, change):
    """The document after an update: operators or a replacement. _id stays the first member."""
    if not any(name.startswith("$") for name in change):
        if "_id" in change and "_id" in document and not equal(change["_id"], document["_id"]):
            raise Failure(66, "ImmutableField", "the (immutable) field '_id' was found to have been altered")
        new = {"_id": document["_id"]} if "_id" in document else {}
        new.update((k, v) for k, v in change.items() if k != "_id" or "_id" not in new)
        return new
    is_deep = any("." in path for members in change.values() for path in members)
    new = copy.deepcopy(dict(document)) if is_deep else dict(document)
    for operator, members in change.items():
        for path, value in members.items():
            there = at_path(new, path)
            if operator == "$set":
                set_path(new, path, value)
            elif operator == "$unset":
                *parents, last = path.split(".")
                parent = at_path(new, ".".join(parents)) if parents else new
                if isinstance(parent, dict):
                    parent.pop(last, None)
            elif operator == "$inc":
                set_path(new, path, value if there is MISSING else sum_of(there, value))
            elif operator == "$push":
                set_path(new, path, ([] if there is MISSING else there) + [value])
            elif operator != "$setOnInsert":
                raise Failure(9, "FailedToParse", "Unknown modifier: %s" % operator)
    return new


def check_size(document, former=None):
    """The document as it is kept; `former`: what it is made of."""
    encoded = bson.Encoded(document, former)
    if len(encoded.bytes) > DOCUMENT_BYTES_MAX:
        raise Failure(10334, "BSONObjectTooLarge", "object to insert too large")
    return encoded


# ---- the server ----

class StandIn:
    def __init__(self, port):
        self.databases = {}   # name -> collection -> list of documents, in order of _id
        self.cursors = {}     # id -> (namespace, rest)
        self.mutex = threading.RLock()
        self.refused = None     # a collection that is not written
        self.held, self.let_go = None, threading.Condition(self.mutex)   # a collection that is not read
        self.is_primary, self.has_majority = True, True
        self.faults = []      # [writes to go, kind, collection (any: "") or line to run]
        self.write_count = 0
        self.slow, self.finds = {}, {}  # by collection: seconds; how many were answered
        self.connections = set()
        self.listener = None
        self.port = port
        self.next_number = 1
        self.open()

    # -- connections

    def open(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        self.port = listener.getsockname()[1]
        self.listener = listener
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def close(self):
        listener, self.listener = self.listener, None
        if listener:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.drop_all()

    def drop_all(self):
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended by itself

    def accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # closed
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections.add(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            while True:
                header = receive(connection, 16)
                size, request, _, opcode = struct.unpack("<iiii", header)
                if size < 16 or size > MESSAGE_BYTES_MAX:
                    return
                reply = self.message(request, opcode, receive(connection, size - 16))
                if reply is None:
                    return
                connection.sendall(reply)
        except (OSError, EOFError, Cut):
            pass  # the connection ends here
        finally:
            self.connections.discard(connection)
            connection.close()

    def message(self, request, opcode, body):
        if opcode == 2013:  # OP_MSG
            flags, at, sequences, command = struct.unpack_from("<I", body)[0], 4, {}, None
            end = len(body) - (4 if flags & 1 else 0)
            while at < end:
                kind = body[at]
                if kind == 0:
                    command, at = bson.decode_at(body, at + 1)
                elif kind == 1:
                    size, = struct.unpack_from("<i", body, at + 1)
                    stop = at + 1 + size
                    zero = body.index(b"\0", at + 5)
                    name, at, documents = body[at + 5:zero].decode(), zero + 1, []
                    while at < stop:
                        document, at = bson.decode_at(body, at)
                        documents.append(document)
                    sequences[name] = documents
                else:
                    return None
            command.update(sequences)
            reply = b"\0\0\0\0\0" + bson.encode(self.run(command.get("$db", "test"), command))
            return struct.pack("<iiii", 16 + len(reply), 0, request, 2013) + reply
        if opcode == 2004:  # OP_QUERY
            zero = body.index(b"\0", 4)
            database = body[4:zero].decode().split(".")[0]
            document = bson.encode(self.run(database, bson.decode_at(body, zero + 9)[0]))
            reply = struct.pack("<iqii", 8, 0, 0, 1) + document
            return struct.pack("<iiii", 16 + len(reply), 0, request, 1) + reply
        return None

    # -- commands

    def run(self, database, command):
        name = next(iter(command))
        function = getattr(self, "do_" + name.lower(), None)
        if name == "find":
            time.sleep(self.slow.get(command[name], 0))
        with self.mutex:
            try:
                if not function:
                    raise Failure(59, "CommandNotFound", "no such command: '%s' (this is a stand-in)" % name)
                reply = function(database, command)
            except Failure as failure:
                return {"ok": 0.0, "errmsg": str(failure), "code": failure.code, "codeName": failure.name}
        reply.setdefault("ok", 1.0)
        return reply

    def hello(self, database, command):
        me = "127.0.0.1:%d" % self.port
        reply = {"helloOk": True, "isWritablePrimary": self.is_primary, "ismaster": self.is_primary,
                 "secondary": not self.is_primary, "setName": "standin", "setVersion": 1, "hosts": [me], "me": me,
                 "maxBsonObjectSize": DOCUMENT_BYTES_MAX, "maxMessageSizeBytes": MESSAGE_BYTES_MAX,
                 "maxWriteBatchSize": 100000, "localTime": bson.Date(int(time.time() * 1000)),
                 "logicalSessionTimeoutMinutes": 30, "minWireVersion": 0, "maxWireVersion": 17, "readOnly": False,
                 "msg": "a stand-in for tests, not MongoDB"}
        if self.is_primary:
            reply["primary"] = me
        return reply

    do_hello = do_ismaster = hello

    def do_ping(self, database, command):
        return {}

    do_endsessions = do_ping

    def do_buildinfo(self, database, command):
        return {"version": "6.0.0", "versionArray": [6, 0, 0, 0], "gitVersion": "stand-in, not MongoDB",
                "maxBsonObjectSize": DOCUMENT_BYTES_MAX}

    def do_createindexes(self, database, command):
        return {"numIndexesBefore": 1, "numIndexesAfter": 1, "note": "a stand-in has no indexes"}

    def do_create(self, database, command):
        self.check_writable()
        self.databases.setdefault(database, {}).setdefault(command["create"], [])
        return {}

    def do_drop(self, database, command):
        self.check_writable()
        self.databases.get(database, {}).pop(command["drop"], None)
        return {}

    def do_dropdatabase(self, database, command):
        self.check_writable()
        self.databases.pop(database, None)
        return {"dropped": database}

    def do_listcollections(self, database, command):
        self.check_readable(command)
        rows = [{"name": name, "type": "collection"} for name in sorted(self.databases.get(database, {}))]
        return {"cursor": {"id": bson.Int64(0), "ns": database + ".$cmd.listCollections", "firstBatch": rows}}

    # -- reading

    def check_readable(self, command):
        if not self.is_primary:
            raise Failure(13435, "NotPrimaryNoSecondaryOk", "not primary and secondaryOk=false")
        level = command.get("readConcern", {}).get("level", "local")
        if level == "linearizable" and not self.has_majority:
            raise Failure(50, "MaxTimeMSExpired", "operation exceeded time limit")

    def documents(self, database, collection):
        return self.databases.get(database, {}).get(collection, [])

    def do_find(self, database, command):
        self.check_readable(command)
        while command["find"] == self.held:
            self.let_go.wait()
        self.finds[command["find"]] = self.finds.get(command["find"], 0) + 1
        rows = self.documents(database, command["find"])
        if "min" in command:
            if command.get("hint") != {"_id": 1}:
                raise Failure(51173, "Location51173", "min() requires a hint of the same index")
            least = bson.order(command["min"]["_id"])
            rows = [row for row in rows if bson.order(row["_id"]) >= least]
        rows = [rows[i] for i in self.found(rows, command.get("filter", {}))]
        rows = self.sorted(rows, command.get("sort", {}))[command.get("skip", 0):]
        if command.get("limit"):
            rows = rows[:abs(command["limit"])]
        rows = [projected(row, command.get("projection")) for row in rows]
        return self.batch(database, command["find"], rows, command.get("batchSize", FIRST_BATCH),
                          command.get("singleBatch", False))

    @staticmethod
    def sorted(rows, keys):
        for path, direction in reversed(list(keys.items())):
            def key(row):
                value = at_path(row, path)
                return bson.order(None if value is MISSING else value)
            rows = sorted(rows, key=key, reverse=direction < 0)
        return rows

    def batch(self, database, collection, rows, count, is_single):
        namespace, number = "%s.%s" % (database, collection), 0
        if len(rows) > count and not is_single:
            number, self.next_number = self.next_number, self.next_number + 1
            self.cursors[number] = (namespace, rows[count:])
        return {"cursor": {"id": bson.Int64(number), "ns": namespace, "firstBatch": rows[:count]}}

    def do_getmore(self, database, command):
        number = int(command["getMore"])
        if number not in self.cursors:
            raise Failure(43, "CursorNotFound", "cursor id %d not found" % number)
        namespace, rows = self.cursors.pop(number)
        count = command.get("batchSize") or FIRST_BATCH
        if len(rows) > count:
            self.cursors[number] = (namespace, rows[count:])
        return {"cursor": {"id": bson.Int64(number if len(rows) > count else 0), "ns": namespace,
                           "nextBatch": rows[:count]}}

    def do_killcursors(self, database, command):
        for number in command["cursors"]:
            self.cursors.pop(int(number), None)
        return {"cursorsKilled": command["cursors"], "cursorsNotFound": [], "cursorsAlive": [], "cursorsUnknown": []}

    def do_count(self, database, command):
        self.check_readable(command)
        return {"n": sum(matches(row, command.get("query", {})) for row in self.documents(database, command["count"]))}

    def do_aggregate(self, database, command):
        self.check_readable(command)
        rows = list(self.documents(database, command["aggregate"]))
        for stage in command["pipeline"]:
            (name, value), = stage.items()
            if name == "$match":
                rows = [row for row in rows if matches(row, value)]
            elif name == "$sort":
                rows = self.sorted(rows, value)
            elif name == "$skip":
                rows = rows[value:]
            elif name == "$limit":
                rows = rows[:value]
            elif name == "$count":
                rows = [{value: len(rows)}]
            elif name == "$group" and value.get("_id") in (None, 1) and list(value) == ["_id", "n"]:
                rows = [{"_id": value["_id"], "n": len(rows)}] if rows else []
            else:
                raise Failure(40324, "Location40324", "Unrecognized pipeline stage name: '%s' (stand-in)" % name)
        return self.batch(database, command["aggregate"], rows,
                          command.get("cursor", {}).get("batchSize", FIRST_BATCH), False)

    # -- writing; what is kept is of check_size, and is replaced, never changed

    def check_writable(self):
        if not self.is_primary:
            raise Failure(10107, "NotWritablePrimary", "not primary")

    def before_write(self, collection):
        """Runs the faults that are due; says whether the connection is to be cut after the write."""
        self.check_writable()
        if collection == self.refused:
            raise Failure(10107, "NotWritablePrimary", "not primary")
        is_cut, self.faults = False, [
            [left - (kind == "before" or argument in ("", collection)), kind, argument] for left, kind, argument in self.faults]
        due, self.faults = [f for f in self.faults if f[0] <= 0], [f for f in self.faults if f[0] > 0]
        for _, kind, argument in due:
            if kind == "before":
                self.hand(argument)
            elif kind == "cut_before":
                raise Cut()
            else:
                is_cut = True
        return is_cut

    def after_write(self, command, reply, is_cut):
        self.write_count += 1
        if is_cut:
            raise Cut()
        if not self.has_majority and command.get("writeConcern", {}).get("w") == "majority":
            reply["writeConcernError"] = {"code": 64, "codeName": "WriteConcernFailed",
                                          "errmsg": "waiting for replication timed out",
                                          "errInfo": {"wtimeout": True}}
        return reply

    @staticmethod
    def place(rows, key):
        """Where the first document is whose _id is not before key."""
        low, high = 0, len(rows)
        while low < high:
            middle = (low + high) // 2
            if bson.order(rows[middle]["_id"]) < key:
                low = middle + 1
            else:
                high = middle
        return low

    def found(self, rows, query):
        """The places of the documents that match; by the index where the query names an _id that is text."""
        if isinstance(query.get("_id"), str):
            low = self.place(rows, bson.order(query["_id"]))
            return [low] if low < len(rows) and matches(rows[low], query) else []
        return [i for i, row in enumerate(rows) if matches(row, query)]

    def add(self, rows, document):
        key = bson.order(document["_id"])
        low = self.place(rows, key)
        if low < len(rows) and bson.order(rows[low]["_id"]) == key:
            raise Failure(11000, "DuplicateKey", "E11000 duplicate key error dup key: { _id: %s }"
                          % bson.dumps(document["_id"]))
        rows.insert(low, check_size(document))

    def collection(self, database, name):
        return self.databases.setdefault(database, {}).setdefault(name, [])

    def do_insert(self, database, command):
        is_cut = self.before_write(command["insert"])
        rows, count, errors = self.collection(database, command["insert"]), 0, []
        for index, document in enumerate(command["documents"]):
            if "_id" not in document:
                document = {"_id": bson.ObjectId.new(), **document}
            try:
                self.add(rows, document)
                count += 1
            except Failure as failure:
                errors.append({"index": index, "code": failure.code, "errmsg": str(failure)})
                if command.get("ordered", True):
                    break
        reply = {"n": count}
        if errors:
            reply["writeErrors"] = errors
        return self.after_write(command, reply, is_cut)

    def upsert(self, rows, query, change):
        document = {k: v for k, v in query.items() if not k.startswith("$") and
                    not (isinstance(v, dict) and next(iter(v), "").startswith("$"))}
        if "$setOnInsert" in change:
            change = {**change, "$set": {**change.get("$set", {}), **change["$setOnInsert"]}}
        document = updated(document, change)
        if "_id" not in document:
            document = {"_id": bson.ObjectId.new(), **document}
        self.add(rows, document)
        return document

    def do_update(self, database, command):
        is_cut = self.before_write(command["update"])
        rows, reply = self.collection(database, command["update"]), {"n": 0, "nModified": 0}
        for index, one in enumerate(command["updates"]):
            try:
                found = self.found(rows, one["q"])
                for i in found if one.get("multi") else found[:1]:
                    new = check_size(updated(rows[i], one["u"]), rows[i])
                    reply["n"] += 1
                    reply["nModified"] += new.bytes != rows[i].bytes
                    rows[i] = new
                if not found and one.get("upsert"):
                    document = self.upsert(rows, one["q"], one["u"])
                    reply["n"] += 1
                    reply.setdefault("upserted", []).append({"index": index, "_id": document["_id"]})
            except Failure as failure:
                reply.setdefault("writeErrors", []).append(
                    {"index": index, "code": failure.code, "errmsg": str(failure)})
                break
        return self.after_write(command, reply, is_cut)

    def do_delete(self, database, command):
        is_cut = self.before_write(command["delete"])
        rows, count = self.collection(database, command["delete"]), 0
        for one in command["deletes"]:
            found = self.found(rows, one["q"])
            for i in reversed(found[:1] if one.get("limit") else found):
                del rows[i]
                count += 1
        return self.after_write(command, {"n": count}, is_cut)

    def do_findandmodify(self, database, command):
        is_cut = self.before_write(command[next(iter(command))])
        rows = self.collection(database, command[next(iter(command))])
        found = self.sorted([row for row in rows if matches(row, command.get("query", {}))], command.get("sort", {}))
        value, last = None, {"n": min(len(found), 1)}
        if found:
            i = next(i for i, row in enumerate(rows) if row is found[0])
            value = rows[i]
            if command.get("remove"):
                del rows[i]
            else:
                rows[i] = check_size(updated(rows[i], command["update"]))
                last["updatedExisting"] = True
                value = rows[i] if command.get("new") else value
        elif command.get("upsert"):
            document = self.upsert(rows, command.get("query", {}), command["update"])
            value = document if command.get("new") else None
            last = {"n": 1, "updatedExisting": False, "upserted": document["_id"]}
        elif not command.get("remove"):
            last["updatedExisting"] = False
        return self.after_write(command, {"lastErrorObject": last, "value": value}, is_cut)

    # -- faults

    def hand(self, line):
        database, text = line.split(" ", 1)
        primary, self.is_primary = self.is_primary, True
        faults, self.faults = self.faults, []
        try:
            return bson.dumps(self.run(database, bson.loads(text)))
        finally:
            self.is_primary, self.faults = primary, faults

    def control(self, line):
        word, _, rest = line.partition(" ")
        with self.mutex:
            if word == "down":
                self.close()
            elif word == "up":
                self.open()
            elif word in ("step_down", "step_up"):
                self.is_primary = word == "step_up"
            elif word in ("majority", "no_majority"):
                self.has_majority = word == "majority"
            elif word in ("cut_before", "cut_after", "before"):
                left, _, argument = rest.partition(" ")
                self.faults.append([int(left), word, argument])
            elif word == "hand":
                return self.hand(rest)
            elif word in ("refuse", "take"):
                self.refused = rest if word == "refuse" else None
            elif word in ("hold", "let"):
                self.held = rest if word == "hold" else None
                self.let_go.notify_all()
            elif word == "slow":
                collection, milliseconds = rest.split()
                self.slow[collection] = int(milliseconds) / 1000
            elif word == "finds":
                return str(self.finds.get(rest, 0))
            elif word == "count":
                return str(self.write_count)
            else:
                raise ValueError("no such line: " + word)
        return "ok"


def projected(row, projection):
    if not projection:
        return row
    if any(projection.values()):
        names = [k for k, v in projection.items() if v]
        if projection.get("_id", 1):
            names.append("_id")
        return {k: v for k, v in row.items() if k in names}
    return {k: v for k, v in row.items() if k not in projection}


def receive(connection, count):
    parts = []
    while count:
        data = connection.recv(min(count, 1 << 20))
        if not data:
            raise EOFError
        parts.append(data)
        count -= len(data)
    return b"".join(parts)


def main():
    parser = argparse.ArgumentParser(description="A stand-in for MongoDB, for tests. Not MongoDB.")
    parser.add_argument("--port", type=int, default=0)
    server = StandIn(parser.parse_args().port)
    print("listening on %d" % server.port, flush=True)
    for line in sys.stdin:
        try:
            answer = server.control(line.strip())
        except Exception as error:  # said to who wrote the line
            answer = "error: %s" % error
        print(answer, flush=True)


if __name__ == "__main__":
    main()
