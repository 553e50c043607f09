"""Rows of the call tables, read and checked. The grammar of a table is in rpc/api/GRAMMAR.md.

Everything here raises TableError with file and line on a bad row. Nothing here knows what is made of the rows.
"""
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

import extents

CLASSES = ("cached", "oneway", "sync", "bulk")
CALL_HANDLES_MAX = 8  # FLYT_CALL_IDS_MAX of cpu/server/core/defer.h: the server keeps so many ids of a call
MOVES = ("as memory", "as nothing")  # and `by PROC`
RESUME_STATES = ("awaited", "left")
CUDA_LIBRARIES = ("cuda", "cudart")
EXECUTORS = ("worker", "threads", "caller")  # beside the submission thread
NOT_KEPT = ("called", "asked", "local")

# Type in a table -> (declaration in .x, bytes on the wire).
SCALARS = {"u32": ("unsigned", 4), "s32": ("int", 4), "u64": ("unsigned hyper", 8), "s64": ("hyper", 8),
           "f32": ("float", 4), "f64": ("double", 8), "device": ("unsigned", 4)}
# Type in a table -> (declaration in .x, bytes on the wire or None).
OPAQUES = {
    "hash": ("opaque {n}[FLYT_HASH_BYTES]", 32),
    "uuid": ("opaque {n}[FLYT_UUID_BYTES]", 16),
    "string": ("string {n}<FLYT_STRING_BYTES_MAX>", None),
    "symbol": ("string {n}<FLYT_SYMBOL_BYTES_MAX>", None),
    "log": ("string {n}<FLYT_LOG_BYTES_MAX>", None),
    "params": ("opaque {n}<FLYT_PARAM_BYTES_MAX>", None),
    "payload": ("opaque {n}<FLYT_CHUNK_BYTES_MAX>", None),
}
TEXTS = ("string", "symbol", "log")


class TableError(Exception):
    """A row that cannot be understood; the text names file and line."""


@dataclass
class Kind:
    """A kind of object: what its ids are called, and where its objects are."""
    name: str
    number: int
    how: str  # kept, within KIND, called, local
    place: str
    is_ordered: bool = False
    reason: str = ""  # why the server's function that finds one is written by hand; empty: it is made
    first: int = 1  # the client's numbers begin there
    c_type: str = ""  # of the driver's handle, where the object is nothing but that: all about it is made of rows
    is_noted: bool = False  # a handler by hand notes what an object was made of, for a comparison where the session goes on

    @property
    def is_kept(self):
        return self.how == "kept"

    @property
    def is_handle(self):
        """Whether a row may name one."""
        return self.how.split()[0] not in NOT_KEPT


@dataclass
class Field:
    """One argument, result or part of a structure. `bound` is None, a number (so many) or a word (up to FLYT_<word>_MAX).
    `role` of a handle: "" (found), new (made by the call), end (the call ends it)."""
    type: str
    name: str
    tables: object
    bound: str | None = None
    role: str = ""
    is_optional: bool = False
    extent: str = ""  # of memory of the program's: the formula (extents.py)
    place_by: str = ""  # of a number that lies on the host or on the device: the argument that says where

    @property
    def is_handle(self):
        return self.type in self.tables.handles

    @property
    def is_new(self):
        return self.role == "new"

    @property
    def is_text(self):
        return self.type in TEXTS

    @property
    def is_ordered(self):
        return self.is_handle and self.tables.kinds[self.type].is_ordered

    @property
    def handle_count(self):
        """How many ids it may bring."""
        return int(self.bound or 1) if self.is_handle else 0

    @property
    def object_name(self):
        return self.name.removesuffix("_ids") + "s" if self.bound and self.name.endswith("_ids") else \
            self.name.removesuffix("_id")

    def declaration(self):
        if self.type in OPAQUES:
            return OPAQUES[self.type][0].format(n=self.name)
        if self.type == "blob":
            return f"opaque {self.name}" + (f"[{self.bound}]" if self.bound.isdigit() else f"<FLYT_{self.bound}_MAX>")
        if self.is_handle and self.bound:
            return f"unsigned hyper {self.name}<{self.bound}>"
        if self.place_by:
            return f"unsigned hyper {self.name}"
        base = "unsigned hyper" if self.is_handle else \
            SCALARS[self.type][0] if self.type in SCALARS else "flyt_" + self.type
        if self.bound is None:
            return f"{base} {self.name}"
        if self.bound.isdigit():
            return f"{base} {self.name}[{self.bound}]"
        return f"{base} {self.name}<FLYT_{self.bound}_MAX>"

    def wire_bytes(self):
        """None where that depends on the value."""
        if self.place_by:
            return 8
        if self.type == "blob":
            return (int(self.bound) + 3) // 4 * 4 if self.bound.isdigit() else None
        if self.bound and (self.is_handle or not self.bound.isdigit()):
            return None
        if self.type in OPAQUES:
            one = OPAQUES[self.type][1]
        elif self.is_handle:
            one = 8
        elif self.type in SCALARS:
            one = SCALARS[self.type][1]
        else:
            sizes = [part.wire_bytes() for part in self.tables.structs[self.type].fields]
            one = None if None in sizes else sum(sizes)
        return None if one is None else one * int(self.bound or 1)


@dataclass
class Struct:
    """A structure that rows have as a value."""
    name: str
    place: str
    fields: list = field(default_factory=list)


@dataclass(frozen=True)
class Results:
    """What the calls of a table return to the program: a type of C, its numbers for success and for a function that is
    refused, and the header that declares it."""
    type: str
    success: int
    refused: int
    header: str


CUDA_RESULTS = Results("CUresult", 0, 801, "cuda.h")


@dataclass
class Procedure:
    """One call on the wire."""
    number: int
    name: str
    klass: str
    family: str
    place: str
    args: list = field(default_factory=list)
    rets: list = field(default_factory=list)
    is_after_all: bool = False
    may_repeat: bool = False
    is_at_once: bool = False
    may_pass_stop: bool = False
    resume_states: list = field(default_factory=list)
    records: str = ""
    awaits: str = ""
    data: str = ""
    moves: str = ""
    driver: list = field(default_factory=list)  # the driver's function and the names of its arguments; empty: by hand
    by_hand: str = ""  # why it is
    is_alone: bool = False
    executor: str = ""  # empty: the submission thread
    results: Results = CUDA_RESULTS
    tables: object = None

    @property
    def has_reply(self):
        """A bulk call that carries its payload to the server needs no reply."""
        return self.klass in ("sync", "cached") or (self.klass == "bulk" and any(f.type == "payload" for f in self.rets))

    @property
    def has_status(self):
        """Whether its handler's word is another than CUDA's: then the reply has both."""
        return self.results is not CUDA_RESULTS

    @property
    def subject(self):
        """The kind of object, made of rows, that a row with `driver` is about, or None: it is about a device."""
        kind = self.tables.kinds.get(self.args[0].type) if self.driver and self.args else None
        return kind if kind and kind.c_type and not self.args[0].bound else None

    @property
    def is_setter(self):
        """Whether the last value of its argument is what it leaves."""
        return self.subject is not None and not self.args[0].role and self.moves == f"by {self.name}"

    @property
    def payload(self):
        """The payload field and whether it is an argument, or None."""
        for fields, is_arg in ((self.args, True), (self.rets, False)):
            for one in fields:
                if one.type == "payload":
                    return one, is_arg
        return None

    @property
    def handles(self):
        return [one for one in self.args if one.is_handle]

    @property
    def stream(self):
        """The argument that names the stream in which the call has its place, if it names one and does not end it."""
        return next((one for one in self.handles if one.type == "stream" and not one.role and not one.bound), None)

    def id_place(self, name):
        """The place of a handle among those of a call by which it may have to wait, -1: none. Arrays come last."""
        names = [one.name for one in self.handles if one.is_ordered and not one.bound]
        return names.index(name) if name in names else -1

    def wire_offset(self, name, fields, head_bytes):
        """Bytes of encoded fields in front of one; None where that depends on the values, or there is none of the name."""
        total = head_bytes
        for one in fields:
            if one.name == name:
                return total
            size = one.wire_bytes()
            if size is None:
                return None
            total += size
        return None


@dataclass
class Entry:
    """One symbol of NVIDIA's library: how its calls are answered."""
    library: str
    symbol: str
    klass: str
    family: str
    place: str
    note: str = ""
    core: str = ""  # what follows `=`: then its function is made (entries.py)
    same: list = field(default_factory=list)
    results: Results = CUDA_RESULTS


@dataclass
class Tables:
    procedures: list = field(default_factory=list)
    entries: list = field(default_factory=list)
    kinds: dict = field(default_factory=dict)
    structs: dict = field(default_factory=dict)

    @property
    def handles(self):
        return [kind.name for kind in self.kinds.values() if kind.is_handle]

    def entries_of(self, family):
        return [one for one in self.entries if one.family == family]

    def knows(self, name):
        return name in SCALARS or name in OPAQUES or name == "blob" or name in self.structs or name in self.handles


# ---- one row ----

ROLES = ("new", "end")
HOST_WORDS = ("in", "out")  # memory of the program's


def parse_field(words, place, tables):
    """arg|ret|inout|field TYPE NAME [COUNT], new|end HANDLE NAME, in|out TYPE NAME[FORMULA] COUNT, scalar TYPE NAME by ARGUMENT.
    A `?` behind a handle: it may be none."""
    word = words[0]
    if word == "scalar":
        if len(words) != 5 or words[3] != "by":
            raise TableError(f"{place}: expected `scalar TYPE NAME by ARGUMENT`")
        return Field(words[1], words[2], tables, place_by=words[4])
    if word in HOST_WORDS:
        found = re.fullmatch(r"(\w+)\s+(\w+)\s*\[(.*)\]\s+([A-Z]\w*)", " ".join(words[1:]))
        if not found:
            raise TableError(f"{place}: expected `{word} TYPE NAME[FORMULA] COUNT`")
        return Field(found[1], found[2], tables, found[4], extent=found[3])
    if word in ROLES:
        if len(words) != 3:
            raise TableError(f"{place}: expected `{word} HANDLE NAME`")
        return Field(words[1], words[2], tables, None, word)
    if len(words) not in (3, 4):
        raise TableError(f"{place}: expected `{word} TYPE NAME [COUNT]`")
    if len(words) == 4 and words[3] == "0":
        raise TableError(f"{place}: an array of nothing")
    return Field(words[1].removesuffix("?"), words[2], tables, words[3] if len(words) == 4 else None,
                 is_optional=words[1].endswith("?"))


def check_field(one, place):
    """Once all tables are read: what they name is there."""
    if not one.tables.knows(one.type):
        raise TableError(f"{place}: unknown type {one.type}")
    if (one.role or one.is_optional) and not one.is_handle:
        raise TableError(f"{place}: {one.type} is no kind of object")
    if one.type in OPAQUES and one.bound:
        raise TableError(f"{place}: {one.type} takes no count")
    if one.type == "blob" and not one.bound:
        raise TableError(f"{place}: a blob has a count of bytes")
    if one.is_handle and one.bound and not one.bound.isdigit():
        raise TableError(f"{place}: the count of an array of handles is a number")


ENTRY_CLASSES = ("local", "cached", "oneway", "sync", "bulk", "manual", "none")


def parse_entry(words, line, family, place):
    """entry LIBRARY CLASS SYMBOL… : reason, or entry LIBRARY CLASS SYMBOL [SAME…] = CORE…"""
    head, _, core = line.partition(" = ")
    note = head.split(":", 1)[1].strip() if ":" in head else ""
    body = head.split(":", 1)[0].split()
    if len(body) < 4 or body[2] not in ENTRY_CLASSES:
        raise TableError(f"{place}: expected `entry LIBRARY CLASS SYMBOL… : REASON`, or `entry LIBRARY CLASS SYMBOL = CORE`")
    if (body[2] in ("manual", "none") or not core) and not note:
        raise TableError(f"{place}: a {body[2]} entry that no row makes says why: `: REASON`")
    entries = [Entry(body[1], symbol, body[2], family, place, note) for symbol in body[3:]]
    if core:
        entries[0].core, entries[0].same = core, body[4:]
    return entries


def parse_object(line, place):
    """object NAME NUMBER HOW [of TYPE] [from N] [ordered] [noted] [: why it is found by hand]"""
    reason = line.split(":", 1)[1].strip() if ":" in line else ""
    found = re.fullmatch(r"object (\w+) (0x[0-9a-f]{2}) (kept|within \w+|" + "|".join(NOT_KEPT) +
                         r")(?: of (\w+))?(?: from (\d+))?( ordered)?( noted)?", " ".join(line.split(":", 1)[0].split()))
    if not found:
        raise TableError(f"{place}: expected `object NAME 0xNN kept|within KIND|called|local [of TYPE] [from N] [ordered] [noted] [: reason]`")
    name, number, how, c_type, first, ordered, noted = found.groups()
    if noted and (how != "kept" or c_type):
        raise TableError(f"{place}: what is noted of an object is kept with it, and not made of rows")
    if c_type and (how != "kept" or reason):
        raise TableError(f"{place}: what is `of {c_type}` alone is kept, and nothing of it is by hand")
    return Kind(name, int(number, 16), how, place, bool(ordered), reason, int(first or 1), c_type or "", bool(noted))


def parse_results(words, place):
    """result TYPE SUCCESS REFUSED HEADER"""
    if len(words) != 5 or not re.fullmatch(r"[A-Za-z_]\w*", words[1]) or not all(re.fullmatch(r"-?\d+", one) for one in words[2:4]):
        raise TableError(f"{place}: expected `result TYPE SUCCESS REFUSED HEADER`, two of them numbers")
    if words[2] == words[3]:
        raise TableError(f"{place}: a function that is refused returns no success")
    return Results(words[1], int(words[2]), int(words[3]), words[4])


def logical_lines(path):
    """Lines without comments; a line that ends in a backslash goes on in the next. Yields (number, text)."""
    held, start = "", 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = re.sub(r"#.*", "", line).rstrip()
        start = start if held else number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        if (held + line).strip():
            yield start, held + line
        held = ""
    if held:
        raise TableError(f"{path}:{start}: the last row ends in a backslash")


# ---- one table ----

def enter(into, key, value, place):
    if key in into:
        raise TableError(f"{place}: {key} is taken by {into[key].place}")
    into[key] = value


def parse_clause(proc, words, place):
    """What a procedure's row says beside its fields. False: it is no clause."""
    if words == ["after", "all"]:
        proc.is_after_all = True
    elif words == ["again"]:
        proc.may_repeat = True
    elif words == ["at", "once"]:
        proc.is_at_once = True
    elif words == ["passes", "stop"]:
        proc.may_pass_stop = True
    elif words[0] == "while" and words[1:] and set(words[1:]) <= set(RESUME_STATES):
        proc.resume_states = words[1:]
    elif words[0] in ("records", "awaits") and len(words) == 2:
        setattr(proc, words[0], words[1])
    elif words[0] == "data" and " ".join(words[1:]) in ("ahead", "ahead unless is_pull", "back"):
        proc.data = " ".join(words[1:])
    elif words[0] == "driver" and words[1:]:
        proc.driver = words[1:]
    elif words[:2] == ["by", "hand:"] and words[2:]:
        proc.by_hand = " ".join(words[2:])
    elif words == ["alone"]:
        proc.is_alone = True
    elif words[0] == "executor" and len(words) == 2 and words[1] in EXECUTORS:
        proc.executor = words[1]
    elif words[0] == "moves":
        proc.moves = " ".join(words[1:]) or "?"
    else:
        return False
    return True


def parse_table(path, tables):
    family, proc, struct, fields, results = path.stem, None, None, [], CUDA_RESULTS
    for number, line in logical_lines(path):
        place, words = f"{path}:{number}", line.split()
        if words[0] == "family":
            if words[1:] != [path.stem]:
                raise TableError(f"{place}: expected `family {path.stem}`, as the file is called")
        elif words[0] == "result":
            if results is not CUDA_RESULTS or proc or tables.entries_of(family):
                raise TableError(f"{place}: a table says once what its calls return, before the first of them")
            results = parse_results(words, place)
        elif words[0] == "object":
            kind = parse_object(line, place)
            enter(tables.kinds, kind.name, kind, place)
        elif words[0] == "struct":
            if len(words) != 2:
                raise TableError(f"{place}: expected `struct NAME`")
            struct = Struct(words[1], place)
            enter(tables.structs, struct.name, struct, place)
        elif words[0] == "field" and struct:
            struct.fields.append(parse_field(words, place, tables))
            fields.append((struct.fields[-1], place))
        elif words[0] == "proc":
            if len(words) != 4 or not words[1].isdecimal() or words[3] not in CLASSES:
                raise TableError(f"{place}: expected `proc NUMBER NAME CLASS`")
            proc = Procedure(int(words[1]), words[2], words[3], family, place, results=results, tables=tables)
            tables.procedures.append(proc)
        elif words[0] == "entry":
            made = parse_entry(words, line, family, place)
            for one in made:
                one.results = results
            if results is not CUDA_RESULTS and made[0].library in CUDA_LIBRARIES:
                raise TableError(f"{place}: what {made[0].library} returns is CUDA's, the table says {results.type}")
            tables.entries += made
        elif proc is None:
            raise TableError(f"{place}: {words[0]} before any proc")
        elif words[0] in ("arg", "ret", "inout", "scalar", *ROLES, *HOST_WORDS):
            one = parse_field(words, place, tables)
            fields.append((one, place))
            proc.args += [one] if words[0] not in ("ret", "out") else []
            proc.rets += [one] if words[0] in ("ret", "out", "inout") else []
        elif not parse_clause(proc, words, place):
            raise TableError(f"{place}: unknown word {words[0]}")
    return fields


# ---- all tables ----

def check_fields(proc):
    for fields in (proc.args, proc.rets):
        names = [one.name for one in fields] + (["status"] if proc.has_status and fields is proc.rets else [])
        if len(set(names)) != len(names):
            raise TableError(f"{proc.place}: two fields have one name")
        for index, one in enumerate(fields):
            if one.type == "payload" and index != len(fields) - 1:
                raise TableError(f"{proc.place}: a payload is the last field")
    if any(one.role or one.is_optional for one in proc.rets):
        raise TableError(f"{proc.place}: a result names no object of the call")
    handles = sum(one.handle_count for one in proc.args)
    if handles > CALL_HANDLES_MAX:
        raise TableError(f"{proc.place}: {handles} handles among its arguments: the server keeps {CALL_HANDLES_MAX} of "
                         "a call (FLYT_CALL_IDS_MAX, cpu/server/core/defer.h)")


def check_procedure(proc):
    check_fields(proc)
    check_driver(proc)
    if proc.executor and proc.is_at_once:
        raise TableError(f"{proc.place}: what never waits has no executor to wait for")
    if proc.executor and proc.driver:
        raise TableError(f"{proc.place}: a row with `driver` is executed by the submission thread")
    if proc.rets and not proc.has_reply:
        raise TableError(f"{proc.place}: a {proc.klass} call has no results")
    if proc.may_repeat and not proc.has_reply:
        raise TableError(f"{proc.place}: a {proc.klass} call has no answer that could be missing: it is not made again")
    if (proc.klass == "bulk") != (proc.payload is not None):
        raise TableError(f"{proc.place}: bulk calls, and only they, have a payload")
    for word in ("records", "awaits"):
        name = getattr(proc, word)
        if name and not any(one.name == name and one.type == "event" and not one.role for one in proc.handles):
            raise TableError(f"{proc.place}: `{word}` an event that is among its arguments")
    if "is_pull" in proc.data and not any(one.name == "is_pull" for one in proc.args):
        raise TableError(f"{proc.place}: it has no argument is_pull")
    if proc.data == "back" and not any((one.name, one.type) == ("bytes", "u64") for one in proc.args):
        raise TableError(f"{proc.place}: a call that is answered with data says how many `bytes`")


def check_extents(proc):
    numbers = [one.name for one in proc.args if one.type in SCALARS and not one.bound and one.type not in ("f32", "f64", "device")]
    for one in proc.args + proc.rets:
        if not one.extent:
            continue
        if not proc.driver or one.type not in SCALARS:
            raise TableError(f"{proc.place}: {one.name}: `in` and `out` are arrays of numbers of a row with `driver`")
        try:
            extents.to_c(one.extent, str)
            unknown = [name for name in extents.names(one.extent) if name not in numbers]
        except extents.ExtentError as error:
            raise TableError(f"{proc.place}: {one.name}: {error}") from None
        if unknown:
            raise TableError(f"{proc.place}: {one.name}: the call has no whole number {unknown[0]}")


def check_scalars(proc):
    words = [one.name for one in proc.args if one.type == "u32" and not one.bound and not one.place_by]
    for one in proc.args:
        if not one.place_by:
            continue
        if not proc.driver or proc.args[0].role or one.type not in SCALARS or one.type == "device":
            raise TableError(f"{proc.place}: {one.name}: a scalar is a number of a row with `driver` that makes and ends nothing")
        if one.place_by not in words:
            raise TableError(f"{proc.place}: {one.name}: the call has no u32 {one.place_by} that says where it lies")


def is_number(one):
    return one.type in SCALARS and not one.bound and not one.extent


def check_driver_head(proc):
    """What the call is about: the device of the current context, one that the program names, or an object of a kind that
    rows make."""
    first = proc.args[0] if proc.args else None
    if not first or not (proc.subject or first.type == "device" or (first.name, first.type) == ("device", "u32")):
        raise TableError(f"{proc.place}: a row with `driver` has an `arg u32 device`, an `arg device`, or an object that is `of` a "
                         "type, first")
    if first.role == "new" and (len(proc.args) < 2 or (proc.args[1].name, proc.args[1].type) != ("device", "u32")):
        raise TableError(f"{proc.place}: what makes an object with `driver` says on which `u32 device`")
    if first.role == "end" and len(proc.args) != 1:
        raise TableError(f"{proc.place}: what ends an object with `driver` names nothing else")
    if proc.klass != ("oneway" if first.role else "sync"):
        raise TableError(f"{proc.place}: a row with `driver` is a sync call, or a oneway one that makes or ends an object")


def check_driver(proc):
    """What is made of a row: the client's call, and the driver's call on the server."""
    check_extents(proc)
    check_scalars(proc)
    if proc.is_alone and not proc.driver:
        raise TableError(f"{proc.place}: `alone` is asked where the driver is called by the row")
    if not proc.driver:
        return
    check_driver_head(proc)
    others = proc.args[1:] + proc.rets
    for one in others:
        if not is_number(one) and (not one.extent or proc.args[0].role):
            raise TableError(f"{proc.place}: {one.name}: a row with `driver` has numbers, `in` and `out`, and no `in` to make an object")
    own = ["device"] if proc.subject else [proc.args[0].name] if proc.args[0].type == "device" else []
    for name in proc.driver[1:]:
        if name not in own + [one.name for one in others]:
            raise TableError(f"{proc.place}: it has no argument {name} for {proc.driver[0]}")
    if proc.is_setter and (len(proc.args) != 2 or proc.rets or proc.args[1].extent or proc.args[1].place_by):
        raise TableError(f"{proc.place}: what the client makes again of a call with `driver` is the last value of its one argument")
    if proc.moves.startswith("by ") and not proc.is_setter and proc.args[0].role != "new":
        raise TableError(f"{proc.place}: what a call with `driver` leaves is made again by itself")


def check_reasons(tables):
    """By hand stays what is not regular. (Entries say so where they are read.)"""
    for proc in tables.procedures:
        if proc.driver and proc.by_hand:
            raise TableError(f"{proc.place}: a row with `driver` is not by hand")
        if not proc.driver and not proc.by_hand:
            raise TableError(f"{proc.place}: a row without `driver` says why: `by hand: REASON`")


def check_made_kinds(tables):
    """Of an object that rows make, rows say how it begins and ends."""
    for kind in tables.kinds.values():
        for role in ("new", "end") if kind.c_type else ():
            made = [p for p in tables.procedures if any(one.type == kind.name and one.role == role for one in p.args)]
            if len(made) != 1 or not made[0].driver:
                raise TableError(f"{kind.place}: what is `of {kind.c_type}` has one row with `{role}`, and with `driver`")


def check_moves(proc, names):
    """Whatever may leave something in its server says how a session that moves has it again."""
    if not proc.moves and proc.klass != "cached" and not proc.may_repeat:
        raise TableError(f"{proc.place}: it does not say what `moves` of it")
    if proc.moves and proc.moves not in MOVES and not (proc.moves[:3] == "by " and proc.moves[3:] in names):
        raise TableError(f"{proc.place}: expected `moves by PROC`, `moves as memory` or `moves as nothing`")


def check_kinds(tables):
    numbers = {}
    for kind in tables.kinds.values():
        enter(numbers, kind.number, kind, kind.place)
        within = kind.how.split()[1:]
        if within and not (within[0] in tables.kinds and kind.reason):
            raise TableError(f"{kind.place}: what is `within` another kind names it, and says why it is found by hand")


def order_structs(tables):
    """Those that others are made of come first."""
    ordered = {}

    def visit(name, above):
        if name in above:
            raise TableError(f"{tables.structs[name].place}: {name} is a part of itself")
        for one in tables.structs[name].fields:
            if one.type in tables.structs:
                visit(one.type, above + (name,))
        ordered[name] = tables.structs[name]

    for name in tables.structs:
        visit(name, ())
    tables.structs = ordered


def load(paths):
    tables, fields = Tables(), []
    for path in sorted(paths):
        fields += parse_table(Path(path), tables)
    check_kinds(tables)
    for one, place in fields:
        check_field(one, place)
    order_structs(tables)
    tables.procedures.sort(key=lambda p: p.number)
    seen = {}
    for proc in tables.procedures:
        check_procedure(proc)
        for key in (proc.number, proc.name):
            enter(seen, key, proc, proc.place)
        if proc.number < 16:
            raise TableError(f"{proc.place}: numbers below 16 belong to rpc/proto/flyt.x")
    for proc in tables.procedures:
        check_moves(proc, {one.name for one in tables.procedures})
    check_made_kinds(tables)
    return tables


# ---- what both sides must mean alike ----

def without_comments(text):
    return " ".join(re.sub(r"/\*.*?\*/", " ", text, flags=re.S).split())


def bounds_of(text):
    """The numbers behind the names of limits.h."""
    return dict(re.findall(r"#define\s+(FLYT_\w+)\s+(\([^)]*\)|\w+)", without_comments(text).replace("#", "\n#")))


def base_hash(protocol, limits):
    """SHA-256 of what is written by hand of the protocol, its bounds by their numbers. Not of it: comments; the
    handshake, and notices of later rows, which grow at their ends; bounds that rows alone name, which are in their own
    hashes."""
    protocol = re.sub(r"/\* ---- (?:the handshake|rows that came later).*?(?=/\* ----|\Z)", "", protocol, flags=re.S)
    rules = re.search(r"/\* ---- what a peer may do.*?(?=/\* ----|#endif\n\Z)", limits, flags=re.S)
    bounds = bounds_of(limits)
    text = re.sub(r"\bFLYT_\w+", lambda one: bounds.get(one[0], one[0]), without_comments(protocol))
    return hashlib.sha256((text + without_comments(rules[0])).encode()).digest()


class Signer:
    """Hashes of rows: over all that both sides must mean alike, structures and bounds included."""

    def __init__(self, tables, limits):
        self.tables, self.bounds = tables, bounds_of(limits)

    def words(self, one):
        yield re.sub(r"\bFLYT_\w+", lambda name: self.bounds.get(name[0], name[0]), one.declaration())
        if one.type in self.tables.structs:
            for part in self.tables.structs[one.type].fields:
                yield from self.words(part)

    def signature(self, proc):
        words = [proc.name, proc.klass] + (["status"] if proc.has_status else [])
        for kind, fields in (("arg", proc.args), ("ret", proc.rets)):
            words += [f"{kind} {word}" for one in fields for word in self.words(one)]
            words += [f"extent {one.name} {one.extent}" for one in fields if one.extent]
            words += [f"scalar {one.type} {one.name} by {one.place_by}" for one in fields if one.place_by]
        return int.from_bytes(hashlib.sha256("\n".join(words).encode()).digest()[:8], "big")
