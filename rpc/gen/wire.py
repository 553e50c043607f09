"""Rows of the call tables, and what the wire needs of them: .x parts, client calls, server stubs, signatures.

The grammar of a table is in rpc/api/README.md. Everything here raises TableError with file and line on a bad row.
"""
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

CLASSES = ("cached", "oneway", "sync", "bulk")
HANDLES = ("stream", "event", "library", "kernel")
MOVES = ("as memory", "as nothing")  # and `by PROC`

# Type in a table -> (declaration in .x, is an array allowed after it).
SCALARS = {"u32": "unsigned", "s32": "int", "u64": "unsigned hyper", "s64": "hyper", "f32": "float", "f64": "double"}
STRUCTS = {name: "flyt_" + name for name in ("box", "launch_attribute", "load_option", "link_input", "kernel_info")}
OPAQUES = {
    "hash": "opaque {n}[FLYT_HASH_BYTES]",
    "uuid": "opaque {n}[FLYT_UUID_BYTES]",
    "string": "string {n}<FLYT_STRING_BYTES_MAX>",
    "symbol": "string {n}<FLYT_SYMBOL_BYTES_MAX>",
    "log": "string {n}<FLYT_LOG_BYTES_MAX>",
    "params": "opaque {n}<FLYT_PARAM_BYTES_MAX>",
    "payload": "opaque {n}<FLYT_CHUNK_BYTES_MAX>",
}


class TableError(Exception):
    """A row that cannot be understood; the text names file and line."""


@dataclass
class Field:
    """One argument or result. `bound` is None, a number (fixed array) or a word (FLYT_<word>_MAX elements)."""
    type: str
    name: str
    bound: str | None = None
    is_new: bool = False

    @property
    def is_handle(self):
        return self.type in HANDLES

    def declaration(self):
        if self.type in OPAQUES:
            return OPAQUES[self.type].format(n=self.name)
        base = "unsigned hyper" if self.is_handle else SCALARS.get(self.type) or STRUCTS[self.type]
        if self.bound is None:
            return f"{base} {self.name}"
        if self.bound.isdigit():
            return f"{base} {self.name}[{self.bound}]"
        return f"{base} {self.name}<FLYT_{self.bound}_MAX>"


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
    moves: str = ""

    @property
    def has_reply(self):
        """A bulk call that carries its payload to the server needs no reply."""
        return self.klass in ("sync", "cached") or (self.klass == "bulk" and any(f.type == "payload" for f in self.rets))

    @property
    def payload(self):
        """The payload field and whether it is an argument, or None."""
        for fields, is_arg in ((self.args, True), (self.rets, False)):
            for one in fields:
                if one.type == "payload":
                    return one, is_arg
        return None

    def signature(self):
        """A 64-bit hash over everything that both sides must mean alike."""
        words = [self.name, self.klass] + [f"arg {f.declaration()}" for f in self.args] + [
            f"ret {f.declaration()}" for f in self.rets]
        return int.from_bytes(hashlib.sha256("\n".join(words).encode()).digest()[:8], "big")


@dataclass
class Entry:
    """One symbol of NVIDIA's library: how its calls are answered."""
    library: str
    symbol: str
    klass: str
    family: str
    place: str
    note: str = ""


@dataclass
class Tables:
    procedures: list = field(default_factory=list)
    entries: list = field(default_factory=list)


def parse_field(words, place):
    kind = words[0]
    if kind == "new":
        if len(words) != 3 or words[1] not in HANDLES:
            raise TableError(f"{place}: expected `new HANDLE NAME`")
        return Field(words[1], words[2], None, True)
    if len(words) not in (3, 4):
        raise TableError(f"{place}: expected `{kind} TYPE NAME [COUNT]`")
    known = words[1] in SCALARS or words[1] in STRUCTS or words[1] in OPAQUES or words[1] in HANDLES
    if not known:
        raise TableError(f"{place}: unknown type {words[1]}")
    if words[1] in OPAQUES and len(words) == 4:
        raise TableError(f"{place}: {words[1]} takes no count")
    if len(words) == 4 and words[3] == "0":
        raise TableError(f"{place}: an array of nothing")
    return Field(words[1], words[2], words[3] if len(words) == 4 else None)


def check_procedure(proc):
    for fields in (proc.args, proc.rets):
        names = [one.name for one in fields]
        if len(set(names)) != len(names):
            raise TableError(f"{proc.place}: two fields have one name")
        for index, one in enumerate(fields):
            if one.type == "payload" and index != len(fields) - 1:
                raise TableError(f"{proc.place}: a payload is the last field")
    if proc.rets and not proc.has_reply:
        raise TableError(f"{proc.place}: a {proc.klass} call has no results")
    if proc.may_repeat and not proc.has_reply:
        raise TableError(f"{proc.place}: a {proc.klass} call has no answer that could be missing: it is not made again")
    if (proc.klass == "bulk") != (proc.payload is not None):
        raise TableError(f"{proc.place}: bulk calls, and only they, have a payload")


def check_moves(proc, names):
    """Whatever may leave something in its server says how a session that moves has it again."""
    if not proc.moves and proc.klass != "cached" and not proc.may_repeat:
        raise TableError(f"{proc.place}: it does not say what `moves` of it")
    if proc.moves and proc.moves not in MOVES and not (proc.moves[:3] == "by " and proc.moves[3:] in names):
        raise TableError(f"{proc.place}: expected `moves by PROC`, `moves as memory` or `moves as nothing`")


ENTRY_CLASSES = ("local", "cached", "oneway", "sync", "bulk", "manual", "none")


def parse_entry(words, line, family, place):
    """entry LIBRARY CLASS SYMBOL… [: note] — a `manual` or `none` entry says why."""
    note = line.split(":", 1)[1].strip() if ":" in line else ""
    body = line.split(":", 1)[0].split()
    if len(body) < 4 or body[2] not in ENTRY_CLASSES:
        raise TableError(f"{place}: expected `entry LIBRARY CLASS SYMBOL… [: reason]`")
    if body[2] in ("manual", "none") and not note:
        raise TableError(f"{place}: a {body[2]} entry needs a reason")
    return [Entry(body[1], symbol, body[2], family, place, note) for symbol in body[3:]]


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


def parse_table(path, tables):
    family, proc = path.stem, None
    for number, line in logical_lines(path):
        place, words = f"{path}:{number}", line.split()
        if words[0] == "family":
            if words[1:] != [path.stem]:
                raise TableError(f"{place}: expected `family {path.stem}`, as the file is called")
        elif words[0] == "proc":
            if len(words) != 4 or not words[1].isdecimal() or words[3] not in CLASSES:
                raise TableError(f"{place}: expected `proc NUMBER NAME CLASS`")
            proc = Procedure(int(words[1]), words[2], words[3], family, place)
            tables.procedures.append(proc)
        elif words[0] == "entry":
            tables.entries += parse_entry(words, line, family, place)
        elif proc is None:
            raise TableError(f"{place}: {words[0]} before any proc")
        elif words[0] in ("arg", "new"):
            proc.args.append(parse_field(words, place))
        elif words[0] == "ret":
            proc.rets.append(parse_field(words, place))
        elif words[0] == "after" and words[1:] == ["all"]:
            proc.is_after_all = True
        elif words == ["again"]:
            proc.may_repeat = True
        elif words[0] == "moves":
            proc.moves = " ".join(words[1:]) or "?"
        else:
            raise TableError(f"{place}: unknown word {words[0]}")


def load(paths):
    tables = Tables()
    for path in sorted(paths):
        parse_table(Path(path), tables)
    tables.procedures.sort(key=lambda p: p.number)
    seen = {}
    for proc in tables.procedures:
        check_procedure(proc)
        for key in (proc.number, proc.name):
            if key in seen:
                raise TableError(f"{proc.place}: {key} is taken by {seen[key].place}")
            seen[key] = proc
        if proc.number < 16:
            raise TableError(f"{proc.place}: numbers below 16 belong to rpc/proto/flyt.x")
    for proc in tables.procedures:
        check_moves(proc, {one.name for one in tables.procedures})
    return tables


# ---- .x parts ----

def x_types(tables):
    out = []
    for proc in tables.procedures:
        out.append(f"struct flyt_{proc.name}_args {{")
        out.append("    unsigned thread;")
        out += [f"    {f.declaration()};" for f in proc.args] + ["};"]
        if proc.has_reply:
            out.append(f"struct flyt_{proc.name}_res {{")
            out += ["    int result;", "    flyt_progress progress;"]
            out += [f"    {f.declaration()};" for f in proc.rets] + ["};"]
    return "\n".join(out) + "\n"


def x_procedures(tables):
    return "".join(f"        {'flyt_' + p.name + '_res' if p.has_reply else 'void'} "
                   f"FLYT_{p.name.upper()}(flyt_{p.name}_args) = {p.number};\n" for p in tables.procedures)


# ---- signatures ----

def signatures_c(tables, base_hash, banner):
    rows = "".join(f"    {{{p.number}, {p.signature():#018x}ull}}, /* {p.name} */\n" for p in tables.procedures)
    names = "".join(f'    case {p.number}:\n        return "{p.name}";\n' for p in tables.procedures)
    replies = "".join(f"    case {p.number}:\n" for p in tables.procedures if p.has_reply)
    hash_bytes = ", ".join(f"0x{b:02x}" for b in base_hash)
    return f"""{banner}
#include "flyt_signatures.h"

const unsigned char flyt_base_hash[32] = {{{hash_bytes}}};

const struct flyt_signature flyt_signatures[] = {{
{rows}}};
const unsigned flyt_signature_count = sizeof flyt_signatures / sizeof flyt_signatures[0];

const char *flyt_procedure_name(unsigned procedure)
{{
    switch (procedure) {{
    case 0:
        return "null";
    case 1:
        return "handshake";
    case 2:
        return "query";
    case 3:
        return "chunk";
{names}    default:
        return "unknown";
    }}
}}

bool flyt_procedure_has_reply(unsigned procedure)
{{
    switch (procedure) {{
    case 0:
    case 1:
    case 2:
{replies}        return true;
    default:
        return false;
    }}
}}
"""


def signatures_h(banner):
    return f"""{banner}
#ifndef FLYT_GEN_SIGNATURES_H
#define FLYT_GEN_SIGNATURES_H
#include "flyt.h"
#include <stdbool.h>

/* SHA-256 of rpc/proto/flyt.x and rpc/proto/limits.h but for what is of the handshake: equal on both sides or the
 * handshake is refused. */
extern const unsigned char flyt_base_hash[32];
/* Every procedure of the tables with its row's hash, by rising number. */
extern const struct flyt_signature flyt_signatures[];
extern const unsigned flyt_signature_count;
/* The row's name for logs, "unknown" for a number without a row. Never NULL. */
const char *flyt_procedure_name(unsigned procedure);
/* Whether a call of this procedure is answered. */
bool flyt_procedure_has_reply(unsigned procedure);

#endif
"""


# ---- what is known of each procedure's structs ----

WIRE_BYTES = {"u32": 4, "s32": 4, "f32": 4, "u64": 8, "s64": 8, "f64": 8, "hash": 32, "uuid": 16}
RES_HEAD_BYTES = 4 + 3 * 8  # result, progress


def payload_wire_offset(proc):
    """Bytes of the encoded results in front of the payload's length; 0 where that depends on the values."""
    total = RES_HEAD_BYTES
    for one in proc.rets[:-1]:
        size = 8 if one.is_handle else WIRE_BYTES.get(one.type)
        if size is None or (one.bound and not one.bound.isdigit()):
            return 0
        total += size * int(one.bound or 1)
    return total


def procedure_row(proc):
    args, res = f"flyt_{proc.name}_args", f"flyt_{proc.name}_res"
    parts = [f'.name = "{proc.name}"', f".xdr_args = (xdrproc_t)xdr_{args}", f".args_bytes = sizeof({args})"]
    if proc.has_reply:
        parts += [f".xdr_res = (xdrproc_t)xdr_{res}", f".res_bytes = sizeof({res})"]
    if proc.payload and not proc.payload[1]:
        name = proc.payload[0].name
        parts += [".has_payload = true", f".payload_offset_bytes = offsetof({res}, {name})",
                  f".payload_wire_offset_bytes = {payload_wire_offset(proc)}"]
    if proc.may_repeat:
        parts.append(".may_repeat = true")
    return f"    [{proc.number}] = {{{', '.join(parts)}}},\n"


BASE_ROWS = """    [0] = {.name = "null", .xdr_args = (xdrproc_t)xdr_void, .xdr_res = (xdrproc_t)xdr_void},
    [1] = {.name = "handshake", .xdr_args = (xdrproc_t)xdr_flyt_handshake_args,
           .args_bytes = sizeof(flyt_handshake_args), .xdr_res = (xdrproc_t)xdr_flyt_handshake_res,
           .res_bytes = sizeof(flyt_handshake_res)},
    [2] = {.name = "query", .xdr_args = (xdrproc_t)xdr_void, .xdr_res = (xdrproc_t)xdr_flyt_query_res,
           .res_bytes = sizeof(flyt_query_res)},
    [3] = {.name = "chunk", .xdr_args = (xdrproc_t)xdr_flyt_chunk, .args_bytes = sizeof(flyt_chunk)},
"""


def procedures_c(tables, banner):
    rows = "".join(procedure_row(p) for p in tables.procedures)
    return f"""{banner}
#include "flyt_procedures.h"
#include <stddef.h>

static const struct flyt_procedure procedures[] = {{
{BASE_ROWS}{rows}}};

const unsigned flyt_procedure_end = sizeof procedures / sizeof procedures[0];

const struct flyt_procedure *flyt_procedure_find(unsigned procedure)
{{
    return procedure < flyt_procedure_end && procedures[procedure].name ? &procedures[procedure] : NULL;
}}
"""


def procedures_h(banner):
    return f"""{banner}
#ifndef FLYT_GEN_PROCEDURES_H
#define FLYT_GEN_PROCEDURES_H
#include "flyt.h"
#include <stdbool.h>

/* What is known of a procedure of FLYT_PROGRAM: its XDR routines and the sizes of the structs that they fill. */
struct flyt_procedure {{
    const char *name;
    xdrproc_t xdr_args, xdr_res; /* xdr_res: NULL where there is no reply */
    unsigned args_bytes, res_bytes; /* of the C structs, 0 for void */
    /* A reply that ends in a payload: where its {{ u_int length; char *value; }} is in the struct, and how many bytes of
     * the encoded results come before its length (0: not the same in every reply). */
    bool has_payload;
    unsigned payload_offset_bytes, payload_wire_offset_bytes;
    bool may_repeat; /* one that was executed, or half of it, may be sent once more to another server (`again`) */
}};

/* NULL where there is no such procedure. Numbers end before flyt_procedure_end. */
const struct flyt_procedure *flyt_procedure_find(unsigned procedure);
extern const unsigned flyt_procedure_end;

#endif
"""


# ---- the client's calls ----

def client_calls_h(tables, banner):
    out = [banner, "#ifndef FLYT_GEN_CLIENT_CALLS_H", "#define FLYT_GEN_CLIENT_CALLS_H",
           '#include "rpc/transport/channel.h"', ""]
    for p in tables.procedures:
        args, res, number = f"flyt_{p.name}_args", f"flyt_{p.name}_res", f"FLYT_{p.name.upper()}"
        payload = p.payload
        head = f"struct flyt_channel *channel, {args} *args"
        if p.has_reply and payload:
            out.append(f"""/* {p.place}: {p.klass}. The payload of the reply goes to `data` (data_bytes of room). */
static inline int flyt_call_{p.name}({head}, {res} *res, void *data, size_t data_bytes)
{{
    return flyt_channel_call_payload(channel, {number}, (xdrproc_t)xdr_{args}, args, (xdrproc_t)xdr_{res}, res, data,
                                     data_bytes);
}}
""")
        elif p.has_reply:
            out.append(f"""/* {p.place}: {p.klass}. */
static inline int flyt_call_{p.name}({head}, {res} *res)
{{
    return flyt_channel_call(channel, {number}, (xdrproc_t)xdr_{args}, args, (xdrproc_t)xdr_{res}, res);
}}
""")
        else:
            out.append(f"""/* {p.place}: {p.klass}, no reply. *ret_sequence (may be NULL) is the call's sequence number. */
static inline int flyt_send_{p.name}({head}, uint64_t *ret_sequence)
{{
    return flyt_channel_send(channel, {number}, (xdrproc_t)xdr_{args}, args, ret_sequence);
}}
""")
    out.append("#endif\n")
    return "\n".join(out)


# ---- the server's stubs ----

def handler_prototype(p):
    params = ["struct flyt_call *call", f"const flyt_{p.name}_args *args"]
    params += [f"struct flyt_{f.type} *{f.name.removesuffix('_id')}" for f in p.args if f.is_handle and not f.is_new]
    if p.has_reply:
        params.append(f"flyt_{p.name}_res *res")
    return f"CUresult flyt_serve_{p.name}({', '.join(params)})"


def serve_h(tables, banner):
    out = [banner, "#ifndef FLYT_GEN_SERVE_H", "#define FLYT_GEN_SERVE_H", '#include "flyt.h"', "#include <cuda.h>",
           "", "struct flyt_call;"] + [f"struct flyt_{h};" for h in HANDLES] + [""]
    out.append("/* One handler per row, written in cpu/server. Objects are found and never NULL; the result is the call's,\n"
               " * or FLYT_CALL_DEFERRED where the reply is sent later (cpu/server/call.h). */")
    out += [handler_prototype(p) + ";" for p in tables.procedures] + ["", "#endif", ""]
    return "\n".join(out)


def serve_c(tables, banner):
    out = [banner, '#include "cpu/server/call.h"', '#include "flyt_serve.h"', '#include "flyt_signatures.h"', ""]
    for p in tables.procedures:
        handles = [f for f in p.args if f.is_handle]
        ids = ", ".join(f"args->{f.name}" for f in handles) or "0"
        finds = [f for f in handles if not f.is_new]
        lookups = "".join(
            f"    struct flyt_{f.type} *{f.name.removesuffix('_id')} = flyt_session_find_{f.type}(call.session, args->{f.name});\n"
            for f in finds)
        names = ["&call", "args"] + [f.name.removesuffix("_id") for f in finds] + (["res"] if p.has_reply else [])
        serve = f"flyt_serve_{p.name}({', '.join(names)})"
        if finds:
            found = " && ".join(f.name.removesuffix("_id") for f in finds)
            serve = f"{found} ? {serve} : CUDA_ERROR_INVALID_HANDLE"
        res_type = f"flyt_{p.name}_res" if p.has_reply else "void"
        clear = "    memset(res, 0, sizeof *res);\n" if p.has_reply else ""
        end = "flyt_call_end(&call, result, &res->result, &res->progress)" if p.has_reply else "flyt_call_end_oneway(&call, result)"
        # XDR cannot encode a string that is NULL: a reply that is an error has empty ones.
        fill = "".join(f"    if (!res->{f.name})\n        res->{f.name} = strdup(\"\");\n"
                       for f in p.rets if f.type in ("string", "symbol", "log"))
        out.append(f"""/* {p.place} */
bool_t flyt_{p.name}_1_svc(flyt_{p.name}_args *args, {res_type} *res, struct svc_req *req)
{{
    const uint64_t ids[] = {{{ids}}};
    struct flyt_call call;
{clear}    if (!flyt_call_begin(&call, req, args->thread, ids, {len(handles)}, {str(p.is_after_all).lower()}))
        return FALSE;
{lookups}    CUresult result = flyt_call_result(&call);
    if (result == CUDA_SUCCESS)
        result = {serve};
{fill}    return {end};
}}
""")
    return "\n".join(out)


# ---- server stubs for tests of the wire: one function answers every procedure ----

def test_svc_c(tables, banner):
    out = [banner, '#include "rpc/transport/test_peer.h"', ""]
    names = [("null", "void", "void", False), ("handshake", "flyt_handshake_args", "flyt_handshake_res", True),
             ("query", "void", "flyt_query_res", True), ("chunk", "flyt_chunk", "void", False)]
    numbers = [0, 1, 2, 3] + [p.number for p in tables.procedures]
    names += [(p.name, f"flyt_{p.name}_args", f"flyt_{p.name}_res" if p.has_reply else "void", p.has_reply)
              for p in tables.procedures]
    for number, (name, args, res, has_reply) in zip(numbers, names):
        size = f"sizeof({res})" if has_reply else "0"
        out.append(f"""bool_t flyt_{name}_1_svc({args} *args, {res} *res, struct svc_req *req)
{{
    return flyt_test_serve({number}, args, res, {size}, req);
}}
""")
    out.append("""int flyt_program_1_freeresult(SVCXPRT *xprt, xdrproc_t xdr_res, caddr_t res)
{
    xdr_free(xdr_res, res);
    return 1;
}
""")
    return "\n".join(out)
