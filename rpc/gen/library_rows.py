"""Rows of NVIDIA's libraries (rpc/library/*.rows): reads them, checks them, and makes each set in braces several calls.

rpc/library/GRAMMAR.md says what stands in a file.
"""
import hashlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

CODES = ("success", "refused", "failed", "handle", "invalid", "memory")
# a number's name -> type in C, bytes
NUMBERS = {"s32": ("int32_t", 4), "u32": ("uint32_t", 4), "s64": ("int64_t", 8), "u64": ("uint64_t", 8), "f32": ("float", 4),
           "f64": ("double", 8), "c32": ("struct flyt_c32", 8), "c64": ("struct flyt_c64", 16), "size": ("size_t", 8),
           "enum": ("int", 4), "address": ("uint64_t", 8), "s8": ("int8_t", 1), "char": ("char", 1), "f16": ("uint16_t", 2)}
LETTERS = {"S": "f32", "D": "f64", "C": "c32", "Z": "c64", "H": "f16", "I": "s32"}
REAL = {"f32": "f32", "f64": "f64", "c32": "f32", "c64": "f64", "f16": "f16"}
ADDRESSES = {"in", "out", "inout", "in*", "inout*", "out*", "unread"}
BY_MODE = {"scalar", "result", "update"}
HOST = {"hin", "hout", "hinout", "hin?", "hout?"}
CLASSES = {"stream", "sync", "cached", "more", "new", "end", "set", "get", "attributes", "make", "unmake", "fill", "tell", "hand", "none", "aside"}
WORDS = {"waits", "asked", "trusted", "draws", "restarts", "served", "finds", "gathers", "apart", "at once", "staged", "area"}
# Host arrays of 32-bit numbers that the library follows: the server looks at them first.
CHECKED = {"offsets": 2, "indices": 2, "order": 1}
OBJECTS_MAX = 4


class RowError(Exception):
    """A line that breaks the grammar."""


@dataclass
class Field:
    """Of an object's state, or of a descriptor."""
    name: str
    type: str
    count: int = 1
    default: str = "0"
    number: int = -1
    first: str = ""     # what the client begins with, where that is another value

    @property
    def bytes(self):
        return NUMBERS[self.type][1] * self.count


@dataclass
class Object:
    """A kind of handles."""
    name: str
    number: int
    is_small: bool
    is_apart: bool = False   # what one has done says nothing of another
    is_sequential: bool = False  # its calls have an order, whatever streams they are in
    is_bound: bool = False   # the library keeps streams in it: the server has one for each set of SMs
    sms_field: str = ""      # of its state: for how many SMs it works
    is_unstreamed: bool = False  # its work is in the device's default stream
    is_waiting: bool = False     # its calls are made by a thread
    is_light: bool = False       # the library takes none of a GPU's memory for one
    stays: str = ""     # what it is called, where it stands against moving
    sequence: str = ""  # the call that brings it to a place in its sequence
    also: str = ""      # the kind of another library for which these may stand
    room: int = 0       # a handle lives in so many bytes of the program's memory; 0: it is a pointer or a number
    fields: list = field(default_factory=list)
    stream_setter: str = ""
    mode_setter: str = ""
    mode_field: str = ""
    applies: list = field(default_factory=list)     # (setter, [field], is streamed)
    workspace: tuple = ()   # the fields that are where its workspace is, and how large
    area: tuple = ()    # the field that is where its area is, and the one that says whether it gets one


@dataclass
class Value:
    """A kind of descriptors."""
    name: str
    bytes: int
    of: str = ""               # the other library that it is of
    create: list = field(default_factory=list)
    attribute: str = ""
    destroy: str = ""
    is_filled: bool = False    # by hand, on the server
    is_made: bool = False      # by hand, on the server
    is_told: bool = False      # what a call has changed in it is told by hand, on the server
    is_ended: bool = False     # by hand, on the server
    has_list: bool = False
    functions: list = field(default_factory=list)   # of the other library's, that work on it
    fields: list = field(default_factory=list)


@dataclass
class Parameter:
    """One of a call: its name, what kind it is, of what type, and of how many elements (a formula in C)."""
    name: str
    kind: str
    type: str = ""
    extent: str = "1"
    by: str = ""       # the descriptor's field that is the pointer mode

    @property
    def is_optional(self):
        return self.kind.endswith("?")

    @property
    def is_value(self):
        return self.kind.split()[0] in ("val", "set")


@dataclass
class Call:
    """One symbol."""
    symbol: str
    kind: str
    arguments: list
    parameters: list
    words: set
    reason: str
    place: str
    id: int = 0

    @property
    def is_sent(self):
        return self.kind in ("stream", "sync", "cached", "more", "new", "end", "aside")

    def of(self, *kinds):
        return [one for one in self.parameters if one.kind.rstrip("?") in kinds]


@dataclass
class Library:
    """One file of rows."""
    name: str
    soname: str
    header: str
    version: int       # major × 1000 + minor: that of the replaced library
    property: str      # the function that tells the real one's
    is_code: bool      # by one number, and not by property
    is_unversioned: bool
    also: str = ""     # what a second name of each declared function begins with
    codes: dict = field(default_factory=dict)
    objects: dict = field(default_factory=dict)
    values: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)

    @property
    def codes_c(self):
        """The codes as both sides have them: without one that is told, it is the success."""
        return {"told": self.codes["success"], **self.codes} if "success" in self.codes else self.codes

    def object_of(self, parameter):
        """The Object of a parameter that is a handle, or None."""
        return self.objects.get(parameter.kind.split()[-1].rstrip("?"))


def lines_of(path):
    """(place, indent, words as text) of each line, those that go on joined."""
    whole, place = "", ""
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        line = line.split("#")[0].rstrip()
        place = place if whole else f"{path}:{number}"
        whole += line[:-1] + " " if line.endswith("\\") else line
        if not line.endswith("\\"):
            if whole.strip():
                yield place, len(whole) - len(whole.lstrip()), whole.strip()
            whole = ""


def split(text, by=","):
    """Parts of text that the character separates outside of parentheses."""
    out, depth, start = [], 0, 0
    for place, one in enumerate(text + by):
        depth += (one == "(") - (one == ")")
        if one == by and not depth:
            out.append(text[start:place].strip())
            start = place + 1
    return [one for one in out if one]


def parse_parameter(library, text, place):
    name, *words = split(text, " ")
    if not words:
        raise RowError(f"{place}: expected NAME KIND: {text}")
    kind, rest = words[0], words[1:]
    if kind in ("new", "end", "val", "set"):
        table = library.values if kind in ("val", "set") else library.objects
        if len(rest) != 1 or rest[0] not in table:
            raise RowError(f"{place}: {kind} of what is declared above: {text}")
        return Parameter(name, f"{kind} {rest[0]}", rest[0])
    if kind.rstrip("?") in library.objects or kind in NUMBERS or kind in ADDRESSES or kind == "stream":
        if rest:
            raise RowError(f"{place}: nothing follows {kind}: {text}")
        return Parameter(name, kind)
    if kind == "scratch":
        if len(rest) != 1 and rest[:1] != ["of"] or len(rest) > 2:
            raise RowError(f"{place}: expected scratch N, or scratch of FUNCTION: {text}")
        return Parameter(name, kind, "", " ".join(rest))
    if kind == "either":
        if len(rest) != 3 or rest[0] not in NUMBERS or rest[2] not in library.objects:
            raise RowError(f"{place}: expected either TYPE N OBJECT: {text}")
        return Parameter(name, kind, *rest)
    by = ""
    if kind in BY_MODE and "by" in rest:
        rest, by = rest[:rest.index("by")], " ".join(rest[rest.index("by") + 1:])
    if kind in BY_MODE or kind in HOST:
        if not 1 <= len(rest) <= 2:
            raise RowError(f"{place}: expected {kind} TYPE [N]: {text}")
        if rest[0] not in NUMBERS and not re.fullmatch(r"(bytes|type|wide|scale|real)\(.*\)", rest[0]) and not is_checked(kind, rest[0]):
            raise RowError(f"{place}: unknown type {rest[0]}: {text}")
        return Parameter(name, kind, rest[0], rest[1] if len(rest) > 1 else "1", by)
    raise RowError(f"{place}: unknown kind {kind}: {text}")


def is_checked(kind, type_name):
    """Whether it is an array that the server looks at, with as many formulas as that takes."""
    word, _, inside = type_name.partition("(")
    return CHECKED.get(word) == len(split(inside[:-1])) and kind.rstrip("?") in ("hin", "hinout")


def variants(symbol, place):
    """(symbol, {letter of a type: its number's name}) for each choice of the sets in braces."""
    found = re.search(r"\{([TN])(?::([^}]*))?\}", symbol)
    if not found:
        if "{" in symbol:
            raise RowError(f"{place}: unknown set in {symbol}")
        yield symbol, {}
        return
    if found[1] == "N":
        choices = [("", {"N": "s32"}), ("_64", {"N": "s64"})]
    else:
        letters = [one.strip() for one in (found[2] or "S,D,C,Z").split(",")]
        # Of two letters the first is the result's or the scalar's: Cs, Zd scale by a real number; Sc, Dz tell a real one.
        choices = []
        for letter in letters:
            known = [LETTERS[one.upper()] for one in letter if one.upper() in LETTERS]
            if not known:
                raise RowError(f"{place}: no type of {letter} is known: {symbol}")
            main = max(known, key=lambda kind: NUMBERS[kind][1])
            choices.append((letter, {"T": main, "R": REAL[main]}))
    for text, types in choices:
        for rest, more in variants(symbol[:found.start()] + text + symbol[found.end():], place):
            yield rest, {**types, **more}


def apply_types(text, types):
    return re.sub(r"\b[TNR]\b", lambda found: types.get(found[0], found[0]), text)


# How arguments lie on the wire, which all rows have in common: arrays at multiples of FLYT_LIB_ALIGN (rpc/library/library.h).
LAYOUT = "arrays at 16"


def settings(library, parameter):
    """What travels of an object besides its id, as text."""
    one = library.object_of(parameter)
    return "".join(f" {f.type} {f.name}" for f in one.fields) if one else ""


def row_id(library, symbol, parameters, words):
    text = f"{library.name} {symbol} " + ", ".join(f"{p.name} {p.kind} {p.type} {p.extent} {p.by}{settings(library, p)}" for p in parameters)
    return int.from_bytes(hashlib.sha256((f"{text} {' '.join(sorted(words))} {LAYOUT}").encode()).digest()[:4], "little")


class Reader:
    """Reads one file."""

    def __init__(self, path):
        self.path, self.library, self.open, self.pending = path, None, None, None

    def read(self):
        for place, indent, text in lines_of(self.path):
            try:
                (self.inner if indent else self.outer)(place, text)
            except (ValueError, KeyError, IndexError) as error:
                raise RowError(f"{place}: cannot be understood: {text} ({error})") from error
        self.end_call()
        self.check()
        return self.library

    def outer(self, place, text):
        self.end_call()
        word, _, rest = text.partition(" ")
        if word == "library":
            name, soname, _, header, _, version, how, tells, *more = rest.split()
            if how not in ("property", "code") or more[:1] not in ([], ["unversioned"]) or more[1:2] not in ([], ["also"]) or len(more) == 2:
                raise RowError(f"{place}: expected library … property|code FUNCTION [unversioned [also PREFIX]]: {text}")
            major, minor = version.split(".")
            self.library = Library(name, soname, header, int(major) * 1000 + int(minor), tells, how == "code", bool(more), more[2] if more[2:] else "")
        elif word == "codes":
            words = rest.split()
            self.library.codes = {words[i]: int(words[i + 1]) for i in range(0, len(words), 2)}
        elif word == "object":
            name, *words = rest.split()
            self.open = self.library.objects[name] = Object(name, len(self.library.objects), "small" in words, "apart" in words, "sequential" in words, is_bound="bound" in words,
                                                           is_unstreamed="unstreamed" in words, is_waiting="waits" in words, is_light="light" in words)
            if "also" in words:
                at = words.index("also")
                self.open.also = words[at + 1]
                del words[at:at + 2]
            if "in" in words:
                at = words.index("in")
                self.open.room = int(words[at + 1])
                del words[at:at + 2]
            if set(words) - {"small", "apart", "sequential", "bound", "unstreamed", "waits", "light"} or self.open.room and self.open.is_small:
                raise RowError(f"{place}: expected object NAME [small | in N] [apart] [sequential] [bound] [unstreamed] [waits] [light] [also NAME]: {text}")
        elif word == "value":
            name, how, what = rest.split()
            self.open = self.library.values[name] = self.value_of(name, what, place) if how == "of" else Value(name, int(what))
        elif word == "call":
            symbol, kind, *arguments = rest.split(":")[0].split() if re.search(r" (hand|none):", rest) else rest.split()
            if kind not in CLASSES:
                raise RowError(f"{place}: unknown class {kind}")
            self.pending = [place, symbol, kind, arguments, rest.partition(":")[2].strip() if kind in ("hand", "none") else "", []]
        elif word == "refuse":
            reason, _, symbols = rest.partition(":")
            for symbol in symbols.split():
                for one, _ in variants(symbol, place):
                    self.library.calls.append(Call(one, "none", [], [], set(), reason, place))
        else:
            raise RowError(f"{place}: unknown word {word}")

    def value_of(self, name, other, place):
        """A descriptor that another library's rows describe."""
        path = Path(self.path).with_name(f"{other}.rows")
        library = load(path) if path.exists() and path != Path(self.path) else None
        found = library.values.get(name) if library else None
        if not found or found.of:
            raise RowError(f"{place}: {other}.rows has no value {name}")
        return replace(found, of=other, functions=[call.symbol for call in library.calls if name in call.arguments])

    def inner(self, place, text):
        if self.pending:
            self.pending[5].append(text)
        elif isinstance(self.open, Object):
            self.object_line(text)
        elif isinstance(self.open, Value):
            self.value_line(text)
        else:
            raise RowError(f"{place}: belongs to nothing")

    def object_line(self, text):
        words = text.split()
        one = self.open
        if words[0] == "state":
            one.fields.append(Field(words[2], words[1], default=words[4] if len(words) > 3 else "0",
                                    first=words[6] if words[5:6] == ["first"] else ""))
        elif words[0] in ("area", "workspace"):
            setattr(one, words[0], tuple(words[1:3]))
        elif words[0] == "stays":
            one.stays = " ".join(words[1:])
        elif words[0] == "sequence":
            one.sequence = words[1]
        elif words[0] == "stream":
            one.stream_setter = words[1]
        elif words[0] == "mode":
            one.mode_setter, one.mode_field = words[1:3]
        elif words[0] == "apply":
            one.applies.append((words[1], [w for w in words[2:] if w not in ("streamed", "sms")], words[-1] == "streamed"))
            one.sms_field = words[2] if words[-1] == "sms" else one.sms_field
        else:
            raise ValueError(words[0])

    def value_line(self, text):
        words = text.split()
        one = self.open
        if len(words) == 1 and words[0] in ("filled", "made", "told", "ended", "list"):
            setattr(one, "has_list" if words == ["list"] else f"is_{words[0]}", True)
            return
        if words[0] in ("create", "attribute", "destroy"):
            setattr(one, words[0], words[1:] if words[0] == "create" else words[1])
            return
        default = words.index("=") if "=" in words else len(words)
        count = int(words[3]) if default > 3 else 1
        one.fields.append(Field(words[1], words[2], count, words[default + 1] if default < len(words) else "0", -1 if words[0] == "-" else int(words[0])))

    def end_call(self):
        if not self.pending:
            self.open = None
            return
        place, symbol, kind, arguments, reason, lines = self.pending
        self.pending = None
        words = {line for line in lines if line in WORDS}
        text = " ".join(line for line in lines if line not in WORDS)
        for one, types in variants(symbol, place):
            parameters = [parse_parameter(self.library, apply_types(part, types), place) for part in split(text)]
            call = Call(one, kind, [apply_types(a, types) for a in arguments], parameters, words, reason, place)
            call.id = row_id(self.library, one, parameters, words)
            self.library.calls.append(call)

    @staticmethod
    def brings(call):
        """Whether the call brings its only object to a place that is a number."""
        return call.kind == "more" and "restarts" in call.words and [p.kind for p in call.parameters[1:]] == ["u64"]

    def check(self):
        library, seen, ids = self.library, {}, {}
        missing = [code for code in CODES if code not in library.codes]
        if missing:
            raise RowError(f"{self.path}: no codes for {' '.join(missing)}")
        for one in library.objects.values():
            if one.sms_field and one.sms_field not in {f.name for f in one.fields if f.type == "s32"}:
                raise RowError(f"{self.path}: {one.sms_field} of {one.name} is no s32 of its state")
            if one.is_bound and (one.stays or one.is_small):
                raise RowError(f"{self.path}: {one.name} cannot be bound, for it stays or is small")
            if one.sequence and not any(self.brings(call) for call in library.calls if call.symbol == one.sequence):
                raise RowError(f"{self.path}: {one.sequence} brings no {one.name} to a u64")
        for one in library.values.values():
            if bool(one.create) == one.is_made:
                raise RowError(f"{self.path}: {one.name} is made by one of the library's functions or by hand")
            if bool(one.destroy) == one.is_ended:
                raise RowError(f"{self.path}: {one.name} is ended by one of the library's functions or by hand")
        for call in library.calls:
            if call.symbol in seen:
                raise RowError(f"{call.place}: {call.symbol} stands there twice ({seen[call.symbol]})")
            seen[call.symbol] = call.place
            if call.is_sent and ids.setdefault(call.id, call) is not call:
                raise RowError(f"{call.place}: {call.symbol} has the number of {ids[call.id].symbol}")
            count = sum(1 for p in call.parameters if library.object_of(p))
            if call.kind == "more" and count != 1:
                raise RowError(f"{call.place}: {call.symbol} is to be done again with the one object that it names, and names {count}")
            if call.kind == "more" and call.arguments not in ([], ["last"]):
                raise RowError(f"{call.place}: expected more [last]: {' '.join(call.arguments)}")
            if call.kind in ("set", "get", "more", "new", "end") and any(library.object_of(p) and p.is_optional for p in call.parameters):
                raise RowError(f"{call.place}: {call.symbol} is nothing without its object")
            for word in ("new", "end"):
                if sum(1 for p in call.parameters if p.kind.startswith(word + " ")) != (call.kind == word):
                    raise RowError(f"{call.place}: {call.symbol} is {call.kind}, and has another number of parameters that are `{word}`")
            if any(library.object_of(p) and library.object_of(p).is_bound for p in call.parameters) and (
                    call.kind == "more" or call.kind == "new" and len(call.parameters) > 1 or call.words & {"draws", "restarts"}):
                raise RowError(f"{call.place}: an object that is bound is made by one call without further parameters, and draws nothing: {call.symbol}")
            if call.kind in ("set", "get"):
                self.check_setting(call)
            if call.kind in ("fill", "tell", "make"):
                self.check_fields(call)
            for one in call.parameters:
                if one.kind.startswith("set ") and (call.kind != "stream" or not library.values[one.type].is_told or library.values[one.type].has_list):
                    raise RowError(f"{call.place}: {one.name} of {call.symbol} cannot be set: a call in a stream does that to what is told and has no list")
            if "asked" in call.words and call.kind != "stream":
                raise RowError(f"{call.place}: {call.symbol} is {call.kind}, and not a call in a stream that would be asked")
            if sum(1 for p in call.parameters if library.object_of(p) and p.is_optional) > 1:
                raise RowError(f"{call.place}: {call.symbol} has more than one object that may be missing")
            if call.kind == "aside" and "served" not in call.words:
                raise RowError(f"{call.place}: {call.symbol} has no place in a stream, and so is served by hand")
            if call.words & {"apart", "at once"} and call.kind != "aside" or "gathers" in call.words and "served" not in call.words:
                raise RowError(f"{call.place}: {call.symbol} has words of another class: {', '.join(sorted(call.words))}")
            self.check_way(call)
            if call.words & {"draws", "restarts"} and not count:
                raise RowError(f"{call.place}: {call.symbol} names no object from which it draws")
            if count > OBJECTS_MAX:
                raise RowError(f"{call.place}: more than {OBJECTS_MAX} objects")
            if any(not one.by for one in call.of(*BY_MODE)) and not mode_object(library, call):
                raise RowError(f"{call.place}: no object with a pointer mode")


    def check_way(self, call):
        """What is staged, what has a scratch of another function's, and what works in no stream is made by a thread."""
        objects = [self.library.object_of(p) for p in call.parameters if self.library.object_of(p)]
        others = [one for p in call.of("scratch") if p.extent.startswith("of ") for one in [p.extent[3:]]
                  if not any(other.symbol == one and other.is_sent for other in self.library.calls)]
        if others:
            raise RowError(f"{call.place}: {call.symbol} has its scratch of {others[0]}, which is no call")
        if len(call.of("either")) > (1 if call.kind == "stream" and objects else 0):
            raise RowError(f"{call.place}: {call.symbol} has more than one result that is in either memory, or no object that tells")
        if "area" in call.words and not (call.kind == "more" and objects and objects[0].area and len(call.of("hout")) == 1):
            raise RowError(f"{call.place}: {call.symbol} says no size of an area, or its object has none")
        if "staged" in call.words and not ("waits" in call.words and call.kind in ("stream", "sync") and call.of(*HOST)):
            raise RowError(f"{call.place}: {call.symbol} has nothing to stage, or no thread that could wait for it")
        if call.kind in ("stream", "sync", "more") and "waits" not in call.words and "served" not in call.words and any(one.is_unstreamed for one in objects):
            raise RowError(f"{call.place}: {call.symbol} works in the default stream, for which no thread waits")

    def check_setting(self, call):
        """What it sets or tells are fields of its object and parameters of its own."""
        objects = [self.library.object_of(p) for p in call.parameters if self.library.object_of(p)]
        if not objects or not call.arguments:
            raise RowError(f"{call.place}: {call.symbol} has no object, or nothing that it would {call.kind}")
        fields = {one.name for one in objects[0].fields} | ({"stream"} if objects[0].stream_setter else set())
        names = {one.name for one in call.parameters}
        for argument in call.arguments:
            name, _, parameter = argument.partition("=")
            if name not in fields or parameter not in names:
                raise RowError(f"{call.place}: expected FIELD=PARAMETER, of a {objects[0].name} and of {call.symbol}: {argument}")

    def check_fields(self, call):
        """What it fills or tells are fields of its descriptor and parameters of its own; `make` may have a room instead."""
        words = call.arguments if call.arguments else [""]
        if words[0] not in self.library.values:
            raise RowError(f"{call.place}: expected {call.kind} VALUE, of what is declared above")
        fields, names = {one.name for one in self.library.values[words[0]].fields}, {one.name for one in call.parameters}
        for argument in words[1:]:
            name, sign, what = (argument + " ").partition("=" if "=" in argument else ":")
            is_right = name in fields and (what.strip() in names if sign == "=" else what.strip().isdigit())
            if sign and not is_right or not sign and (call.kind != "make" or argument not in names):
                raise RowError(f"{call.place}: expected FIELD=PARAMETER or FIELD:NUMBER, of a {words[0]} and of {call.symbol}: {argument}")


def mode_object(library, call):
    """The first object of the call that has a pointer mode, with its place among the call's objects; or None."""
    objects = [library.object_of(p) for p in call.parameters if library.object_of(p)]
    for place, one in enumerate(objects):
        if one.mode_field:
            return place, one
    return None


def load(path):
    return Reader(path).read()
