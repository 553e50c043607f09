"""What the wire needs of the rows: .x parts, client calls, server stubs, signatures, kinds of objects."""
from rows import SCALARS

# ---- .x parts ----

def x_types(tables):
    out = []
    for struct in tables.structs.values():
        out += [f"struct flyt_{struct.name} {{"] + [f"    {f.declaration()};" for f in struct.fields] + ["};"]
    for proc in tables.procedures:
        out.append(f"struct flyt_{proc.name}_args {{")
        out.append("    unsigned thread;")
        out += [f"    {f.declaration()};" for f in proc.args] + ["};"]
        if proc.has_reply:
            out.append(f"struct flyt_{proc.name}_res {{")
            out += ["    int result;", "    flyt_progress progress;"] + (["    int status;"] if proc.has_status else [])
            out += [f"    {f.declaration()};" for f in proc.rets] + ["};"]
    return "\n".join(out) + "\n"


def x_procedures(tables):
    return "".join(f"        {'flyt_' + p.name + '_res' if p.has_reply else 'void'} "
                   f"FLYT_{p.name.upper()}(flyt_{p.name}_args) = {p.number};\n" for p in tables.procedures)


# ---- signatures ----

def signatures_c(tables, signer, base_hash, banner):
    rows = "".join(f"    {{{p.number}, {signer.signature(p):#018x}ull}}, /* {p.name} */\n"
                   for p in tables.procedures)
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

/* SHA-256 of what is written by hand of the protocol but for what is of the handshake (rpc/gen/rows.py): equal on both
 * sides or the handshake is refused. */
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

RES_HEAD_BYTES = 4 + 3 * 8  # result, progress
STATUS_BYTES = 4
ARGS_HEAD_BYTES = 4  # thread


# ---- arguments of calls without a reply, encoded and decoded where they lie ----

WORDS = {"u32": 4, "s32": 4, "u64": 8, "s64": 8, "device": 4}
TAILS = {"params": "FLYT_PARAM_BYTES_MAX", "payload": "FLYT_CHUNK_BYTES_MAX"}


def word_parts(one, name):
    """[(member, bytes, is it signed)] of what lies at fixed places as whole words; None: it is not such."""
    if one.type in one.tables.structs and not one.bound:
        parts = [word_parts(part, f"{name}.{part.name}") for part in one.tables.structs[one.type].fields]
        return None if None in parts else [part for several in parts for part in several]
    size = 8 if one.is_handle else WORDS.get(one.type)
    if not size or (one.bound and (one.is_handle or not one.bound.isdigit())):
        return None
    return [(name + (f"[{i}]" if one.bound else ""), size, one.type in ("s32", "s64")) for i in range(int(one.bound or 1))]


def in_place_layout(proc):
    """Where the arguments of a call without a reply lie when it is encoded: ([(member, its place, bytes, is it signed)],
    [(array, place of its length)], tail, bytes before the tail), or None. Words and structures of words lie at fixed
    places, as do arrays of structures as long as they are empty; bytes come last. Every other call, and every array with
    something in it, is XDR's."""
    words, arrays, at, tail = [("thread", 0, 4, False)], [], 4, None
    if proc.has_reply:
        return None
    for one in proc.args:
        if tail:
            return None
        parts = word_parts(one, one.name)
        if one.type in one.tables.structs and one.bound and not one.bound.isdigit():
            arrays.append((one.name, at))
            at += 4
        elif one.type in TAILS:
            tail = one
        elif parts is None:
            return None
        else:
            for name, size, is_signed in parts:
                words.append((name, at, size, is_signed))
                at += size
    return words, arrays, tail, at


def wire_member(name):
    return name.replace(".", "_").replace("[", "_").replace("]", "")


def in_place_struct(proc):
    """The layout as a structure, which both who encodes and who decodes uses."""
    layout = in_place_layout(proc)
    if not layout:
        return ""
    words, arrays, tail, end = layout
    members = {at: f"uint{8 * size}_t {wire_member(name)};" for name, at, size, is_signed in words}
    members.update({at: f"uint32_t {name}_len; /* 0 */" for name, at in arrays})
    lines = [members[at] for at in sorted(members)]
    if tail:
        lines += [f"uint32_t {tail.name}_len;", f"unsigned char {tail.name}[];"]
    body = "\n    ".join(lines)
    return f"""struct flyt_{proc.name}_wire {{
    {body}
}} __attribute__((packed));
_Static_assert(sizeof(struct flyt_{proc.name}_wire) == {end + 4 if tail else end}, "as XDR lays it out");

"""


def layouts_h(tables, banner):
    structs = "".join(in_place_struct(p) for p in tables.procedures)
    return f"""{banner}
#ifndef FLYT_GEN_LAYOUTS_H
#define FLYT_GEN_LAYOUTS_H
#include <stdint.h>

/* Arguments of calls without a reply as XDR lays them out where every array is empty: big-endian, padded behind the
 * last member to whole words. */

{structs}#endif
"""


def in_place_steps(proc):
    """Lines of C that decode the arguments of a call where they lie, or None."""
    layout = in_place_layout(proc)
    if not layout:
        return None
    words, arrays, tail, _ = layout
    lines = [f"const struct flyt_{proc.name}_wire *wire = (const void *)data;"]
    if tail:
        lines += ["if (bytes < sizeof *wire)", "    return false;", f"u_int length = be32toh(wire->{tail.name}_len);"]
        refused = [f"length > {TAILS[tail.type]}", "bytes - sizeof *wire != RNDUP((size_t)length)"]
    else:
        refused = ["bytes != sizeof *wire"]
    refused += [f"wire->{name}_len" for name, _ in arrays]
    lines += [f"if ({' || '.join(refused)})", "    return false;"]
    for name, _, size, is_signed in words:
        cast = {4: "(int)", 8: "(quad_t)"}[size] if is_signed else ""
        lines.append(f"args->{name} = {cast}be{8 * size}toh(wire->{wire_member(name)});")
    for name, _ in arrays:
        lines += [f"args->{name}.{name}_len = 0;", f"args->{name}.{name}_val = NULL;"]
    if tail:
        lines += [f"args->{tail.name}.{tail.name}_len = length;",
                  f"args->{tail.name}.{tail.name}_val = length ? (char *)wire->{tail.name} : NULL;"]
    return lines + ["return true;"]


def in_place_encoder(proc):
    """The same the other way round: an XDR routine for encoding alone, which writes the arguments into the buffer at once
    where they have such a layout; or nothing."""
    layout = in_place_layout(proc)
    if not layout:
        return ""
    words, arrays, tail, _ = layout
    others = [f"args->{name}.{name}_len" for name, _ in arrays]
    bytes_text = "sizeof *wire"
    lines = [f"struct flyt_{proc.name}_wire *wire;"]
    if tail:
        lines.append(f"const u_int length = args->{tail.name}.{tail.name}_len;")
        others.append(f"length > {TAILS[tail.type]}")
        bytes_text += " + RNDUP(length)"
    if others:
        lines += [f"if ({' || '.join(others)})", f"    return xdr_flyt_{proc.name}_args(xdrs, args);"]
    lines += [f"wire = (void *)XDR_INLINE(xdrs, (u_int)({bytes_text}));", "if (!wire)",
              f"    return xdr_flyt_{proc.name}_args(xdrs, args);"]
    for name, _, size, is_signed in words:
        cast = {4: "(uint32_t)", 8: "(uint64_t)"}[size] if is_signed else ""
        lines.append(f"wire->{wire_member(name)} = htobe{8 * size}({cast}args->{name});")
    lines += [f"wire->{name}_len = 0;" for name, _ in arrays]
    if tail:
        lines += [f"wire->{tail.name}_len = htobe32(length);",
                  f"flyt_put_tail(wire->{tail.name}, args->{tail.name}.{tail.name}_val, length);"]
    body = "\n    ".join(lines + ["return TRUE;"])
    return f"""static inline bool_t flyt_encode_{proc.name}_args(XDR *xdrs, flyt_{proc.name}_args *args)
{{
    {body}
}}

"""


def in_place_decoder(proc):
    steps = in_place_steps(proc)
    if not steps:
        return ""
    body = "\n    ".join(steps)
    return f"""static bool decode_{proc.name}(const unsigned char *data, size_t bytes, void *into)
{{
    flyt_{proc.name}_args *args = into;
    {body}
}}

"""


def data_parts(proc, args):
    """Of a call that has data beside it."""
    if proc.data == "back":
        return [f".answer_bytes_offset = offsetof({args}, bytes)"]
    if proc.data == "ahead unless is_pull":
        return [".has_data_ahead = true", f".pull_wire_offset = {proc.wire_offset('is_pull', proc.args, ARGS_HEAD_BYTES)}"]
    return [".has_data_ahead = true"] if proc.data else []


def order_parts(proc):
    """What its order among other calls depends on."""
    parts = [f".{name} = true" for name, is_so in (("is_after_all", proc.is_after_all), ("is_at_once", proc.is_at_once),
                                                  ("may_pass_stop", proc.may_pass_stop), ("may_repeat", proc.may_repeat))
             if is_so]
    if proc.executor:
        parts.append(f".executor = FLYT_EXECUTOR_{proc.executor.upper()}")
    if proc.resume_states:
        parts.append(".resume_states = " + " | ".join(f"FLYT_WHILE_{one.upper()}" for one in proc.resume_states))
    if proc.stream:
        parts.append(f".stream_wire_offset = {proc.wire_offset(proc.stream.name, proc.args, ARGS_HEAD_BYTES)}")
    ended = [one.name for one in proc.handles if one.role == "end"]
    places = {"ended": ended[0] if ended else "", "recorded": proc.records, "awaited": proc.awaits}
    return parts + [f".{word}_id = {proc.id_place(name) + 1}" for word, name in places.items() if name]


def procedure_row(proc):
    args, res = f"flyt_{proc.name}_args", f"flyt_{proc.name}_res"
    parts = [f'.name = "{proc.name}"', f".xdr_args = (xdrproc_t)xdr_{args}", f".args_bytes = sizeof({args})"]
    if proc.has_reply:
        parts += [f".xdr_res = (xdrproc_t)xdr_{res}", f".res_bytes = sizeof({res})"]
    if proc.payload and not proc.payload[1]:
        name = proc.payload[0].name
        parts += [".has_payload = true", f".payload_offset_bytes = offsetof({res}, {name})",
                  f".payload_wire_offset_bytes = {proc.wire_offset(name, proc.rets, RES_HEAD_BYTES + (STATUS_BYTES if proc.has_status else 0)) or 0}"]
    parts += order_parts(proc) + data_parts(proc, args)
    if in_place_steps(proc):
        parts.append(f".decode_in_place = decode_{proc.name}")
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
    decoders = "".join(in_place_decoder(p) for p in tables.procedures)
    heads = "".join(f"HEAD(flyt_{p.name}_res);\n" for p in tables.procedures if p.has_reply)
    return f"""{banner}
#include "flyt_procedures.h"
#include <endian.h>
#include <stddef.h>
#include "flyt_layouts.h"

/* Results of every call begin with the same members. */
#define HEAD(type) \\
    _Static_assert(offsetof(type, result) == offsetof(struct flyt_result_head, result) && \\
                       offsetof(type, progress) == offsetof(struct flyt_result_head, progress), \\
                   #type " begins with result and progress")
{heads}
{decoders}static const struct flyt_procedure procedures[] = {{
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
#include <stdint.h>

/* What the results of every procedure of the tables begin with. */
struct flyt_result_head {{
    int result;
    flyt_progress progress;
}};

/* The states of a session that goes on in which a call is taken: its program is awaited; or has left. */
enum {{ FLYT_WHILE_AWAITED = 1, FLYT_WHILE_LEFT = 2 }};

/* Which thread of the server does what a call of the row is about; the others are for what blocks. */
enum flyt_executor {{
    FLYT_EXECUTOR_SUBMISSION,
    FLYT_EXECUTOR_WORKER, /* one, which does one such thing after the other */
    FLYT_EXECUTOR_THREADS, /* of several one of its own */
    FLYT_EXECUTOR_CALLER /* one for each client thread, which does what that one asks in its order */
}};

/* What is known of a procedure of FLYT_PROGRAM: its XDR routines, the sizes of the structs that they fill, and what its
 * row says of its order. */
struct flyt_procedure {{
    const char *name;
    xdrproc_t xdr_args, xdr_res; /* xdr_res: NULL where there is no reply */
    unsigned args_bytes, res_bytes; /* of the C structs, 0 for void */
    /* A reply that ends in a payload: where its {{ u_int length; char *value; }} is in the struct, and how many bytes of
     * the encoded results come before its length (0: not the same in every reply). */
    bool has_payload;
    unsigned payload_offset_bytes, payload_wire_offset_bytes;
    bool may_repeat; /* one that was executed, or half of it, may be sent once more to another server (`again`) */
    bool is_after_all, is_at_once; /* it waits for all earlier calls; it never waits */
    bool may_pass_stop; /* it is sent by a program that stands still */
    enum flyt_executor executor;
    unsigned char resume_states; /* FLYT_WHILE_…: also taken then */
    /* Places, from 1, among the ids of the call; 0: none. The object that it ends; the event that it records; the one
     * whose last record it waits for. */
    unsigned char ended_id, recorded_id, awaited_id;
    uint16_t stream_wire_offset; /* of the stream's id in the encoded arguments; 0: it names none, or ends it */
    /* Data goes to the server beside the call; but where is_pull, whose place in the encoded arguments this is (0: it
     * has none), is not 0, the server asks for it. */
    bool has_data_ahead;
    uint16_t pull_wire_offset;
    uint16_t answer_bytes_offset; /* of `bytes`, a uint64_t, in the arguments: so much comes back beside it; 0: nothing */
    /*
     * Decodes arguments from `data` of `bytes` bytes without allocating anything: what *into points to lies in `data`,
     * is good as long as that is, and must not be freed. False: XDR must decode them (or find that they are none); of
     * *into, zeroed before, nothing may be used. NULL: XDR always.
     */
    bool (*decode_in_place)(const unsigned char *data, size_t bytes, void *into);
}};

/* NULL where there is no such procedure. Numbers end before flyt_procedure_end. */
const struct flyt_procedure *flyt_procedure_find(unsigned procedure);
extern const unsigned flyt_procedure_end;

#endif
"""


# ---- the client's calls ----

PUT_TAIL = """static inline void flyt_put_tail(unsigned char *to, const char *tail, u_int bytes)
{
    if (!bytes)
        return;
    memset(to + RNDUP(bytes) - 4, 0, 4); /* its last word: what the bytes leave of it stays 0 */
    memcpy(to, tail, bytes);
}

"""


def encoders_h(tables, banner):
    """XDR routines for encoding alone, of the calls whose arguments are written at once."""
    includes = "".join(f"#include {one}\n" for one in ("<endian.h>", "<string.h>", '"flyt.h"', '"flyt_layouts.h"',
                                                       '"rpc/proto/limits.h"'))
    encoders = "".join(in_place_encoder(p) for p in tables.procedures)
    return f"""{banner}
#ifndef FLYT_GEN_ENCODERS_H
#define FLYT_GEN_ENCODERS_H
{includes}
{PUT_TAIL}{encoders}#endif
"""


def is_device(one):
    """Whether an argument is a device's number. The program's numbers are not the server's where it has asked for another
    order (cpu/client/core/visible.h)."""
    if "device" in one.name and one.type not in ("u32", "device"):
        raise ValueError(f"{one.name}: a device's number is u32 or device")
    return one.type == "device" or one.name in ("device", "peer_device")


def with_devices(p):
    """Declares what is sent in place of the arguments: with the server's numbers. The name of that."""
    devices = [one.name for one in p.args if is_device(one)]
    if not devices:
        return "", "args"
    lines = "".join(f"    sent.{name} = flyt_wire_device(sent.{name});\n" for name in devices)
    return f"    flyt_{p.name}_args sent = *args;\n{lines}", "&sent"


def client_calls_h(tables, banner):
    out = [banner, "#ifndef FLYT_GEN_CLIENT_CALLS_H", "#define FLYT_GEN_CLIENT_CALLS_H",
           '#include "cpu/client/core/visible.h"', '#include "flyt_encoders.h"', '#include "rpc/transport/channel.h"', ""]
    for p in tables.procedures:
        before, sent = with_devices(p)
        args, res, number = f"flyt_{p.name}_args", f"flyt_{p.name}_res", f"FLYT_{p.name.upper()}"
        payload = p.payload
        head = f"struct flyt_channel *channel, {args} *args"
        if p.has_reply and payload:
            out.append(f"""/* {p.place}: {p.klass}. The payload of the reply goes to `data` (data_bytes of room). */
static inline int flyt_call_{p.name}({head}, {res} *res, void *data, size_t data_bytes)
{{
{before}    return flyt_channel_call_payload(channel, {number}, (xdrproc_t)xdr_{args}, {sent}, (xdrproc_t)xdr_{res}, res, data,
                                     data_bytes);
}}
""")
        elif p.has_reply:
            out.append(f"""/* {p.place}: {p.klass}. `answered` decodes the answer into `answer`. */
static inline int flyt_call_{p.name}_into({head}, xdrproc_t answered, void *answer)
{{
{before}    return flyt_channel_call(channel, {number}, (xdrproc_t)xdr_{args}, {sent}, answered, answer);
}}

/* {p.place}: {p.klass}. */
static inline int flyt_call_{p.name}({head}, {res} *res)
{{
{before}    return flyt_channel_call(channel, {number}, (xdrproc_t)xdr_{args}, {sent}, (xdrproc_t)xdr_{res}, res);
}}
""")
        else:
            encoder = f"flyt_encode_{p.name}_args" if in_place_layout(p) else f"xdr_{args}"
            out.append(f"""/* {p.place}: {p.klass}, no reply. *ret_sequence (may be NULL) is the call's sequence number. */
static inline int flyt_send_{p.name}({head}, uint64_t *ret_sequence)
{{
{before}    return flyt_channel_send(channel, {number}, (xdrproc_t){encoder}, {sent}, ret_sequence);
}}
""")
    out.append("#endif\n")
    return "\n".join(out)


CLIENT_TYPES = {"u32": "unsigned", "s32": "int", "u64": "uint64_t", "s64": "int64_t", "f32": "float", "f64": "double",
                "device": "int"}

# ---- objects that the client makes again ----

def makers(tables):
    """Rows that make an object of numbers alone, without a reply: their call is made of the client's record of it."""
    return [p for p in tables.procedures if not p.has_reply and [one.is_new for one in p.args].count(True) == 1 and
            all(one.is_new or (one.type in SCALARS and not one.bound) for one in p.args)]


def enders(tables):
    """Rows that end an object, without a reply and with nothing else to say."""
    return [p for p in tables.procedures if not p.has_reply and [one.role for one in p.args] == ["end"]]


def ender_c(p):
    ended = p.args[0]
    return f"""/* {p.place}: the call that ends the object of a record which nobody finds any more. is_on_server false: the server has
 * ended it already. A loss shows later. */
static inline void flyt_end_{p.name}(struct flyt_record *record, bool is_on_server)
{{
    flyt_{p.name}_args args = {{.thread = flyt_thread_number(), .{ended.name} = record->minted_id}};
    if (is_on_server && flyt_client_is_usable())
        flyt_send_{p.name}(flyt_client.channel, &args, &record->destroyed);
    else
        record->created = 0;
}}
"""


def asks(tables):
    """Rows of one question, about objects and numbers, which are answered with numbers."""
    def is_word(one):
        return not one.bound and not one.role and (one.is_handle or one.type in SCALARS)
    return [p for p in tables.procedures if p.klass in ("sync", "cached") and not p.driver and not p.has_status and
            all(is_word(one) for one in p.args + p.rets)]


def ask_c(p):
    """The question alone: what is to be done before and after it is its caller's."""
    def type_of(one):
        return "uint64_t" if one.is_handle else CLIENT_TYPES[one.type]
    params = [f"{type_of(one)} {one.name}" for one in p.args] + [f"{type_of(one)} *ret_{one.name}" for one in p.rets]
    members = "".join(f", .{one.name} = {one.name}" for one in p.args)
    results = "".join(f"    if (result == CUDA_SUCCESS)\n        *ret_{one.name} = res.{one.name};\n" for one in p.rets)
    end = f'flyt_client_reply(status, res.result, "{p.name}");\n'
    return f"""/* {p.place} */
static inline CUresult flyt_ask_{p.name}({", ".join(params) or "void"})
{{
    flyt_{p.name}_args args = {{.thread = flyt_thread_number(){members}}};
    flyt_{p.name}_res res = {{0}};
    int status = flyt_call_{p.name}(flyt_client.channel, &args, &res);
""" + (f"    CUresult result = {end}{results}    return result;\n}}\n" if results else f"    return {end}}}\n")


def client_asks_h(tables, banner):
    return f"""{banner}
#ifndef FLYT_GEN_CLIENT_ASKS_H
#define FLYT_GEN_CLIENT_ASKS_H
#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "flyt_client_calls.h"

/* Calls with a reply of nothing but numbers: the call's result, and where that is CUDA_SUCCESS what was answered. They
 * block. Nothing is kept of the answer: see cpu/client/core/answer.h for calls of which something is. */

{chr(10).join(ask_c(p) for p in asks(tables))}
#endif
"""


def record_c(p):
    made = next(one for one in p.args if one.is_new)
    members = "".join(f", .{one.name} = ({CLIENT_TYPES[one.type]})(one)->{one.name}" for one in p.args if not one.is_new)
    return f"""/* {p.place}: the call that makes an object, of its record, whose members have the names of the arguments. */
#define FLYT_{p.name.upper()}_OF(one, of_thread) ((flyt_{p.name}_args){{ \\
    .thread = (of_thread), .{made.name} = (one)->record.minted_id{members}}})

/* Makes it, and has it found from now on; where the call cannot be sent, the record is the table's again. */
#define flyt_new_{p.name}(table, one) \\
    flyt_new_{p.name}_of(table, &(one)->record, FLYT_{p.name.upper()}_OF(one, flyt_thread_number()))

static inline CUresult flyt_new_{p.name}_of(struct flyt_table *table, struct flyt_record *record, flyt_{p.name}_args args)
{{
    int status = flyt_send_{p.name}(flyt_client.channel, &args, &record->created);
    CUresult result = flyt_client_status(status, "{p.name}");
    if (result == CUDA_SUCCESS)
        flyt_table_publish(record);
    else
        flyt_table_free(table, record);
    return result;
}}

/* Makes it again where the session goes on. 0, or the error, which is then also in restore->err. */
#define flyt_again_{p.name}(restore, one) \\
    flyt_again_{p.name}_of(restore, FLYT_{p.name.upper()}_OF(one, FLYT_RESTORE_THREAD))

static inline int flyt_again_{p.name}_of(struct flyt_restore *restore, flyt_{p.name}_args args)
{{
    uint64_t sequence = 0;
    int sent = flyt_send_{p.name}(restore->fresh, &args, &sequence);
    return flyt_restore_sent(restore, sent, sequence, "{made.type}", args.{made.name});
}}
"""


def client_records_h(tables, banner):
    return f"""{banner}
#ifndef FLYT_GEN_CLIENT_RECORDS_H
#define FLYT_GEN_CLIENT_RECORDS_H
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/table.h"
#include "cpu/client/core/thread.h"
#include "flyt_client_calls.h"

{chr(10).join([record_c(p) for p in makers(tables)] + [ender_c(p) for p in enders(tables)])}
#endif
"""


# ---- the server's stubs ----

def handler_params(p):
    """Declarations of the objects that are found for a handler."""
    out = []
    for one in p.handles:
        if one.is_new:
            continue
        if one.bound:
            out += [f"struct flyt_{one.type} *const *{one.object_name}", f"unsigned {one.object_name}_count"]
        else:
            out.append(f"struct flyt_{one.type} *{one.object_name}")
    return out


def handler_prototype(p):
    params = ["struct flyt_call *call", f"const flyt_{p.name}_args *args"] + handler_params(p)
    if p.has_reply:
        params.append(f"flyt_{p.name}_res *res")
    return f"{p.results.type} flyt_serve_{p.name}({', '.join(params)})"


def serve_h(tables, banner):
    headers = dict.fromkeys(["cuda.h"] + [p.results.header for p in tables.procedures])
    out = [banner, "#ifndef FLYT_GEN_SERVE_H", "#define FLYT_GEN_SERVE_H", '#include "flyt.h"',
           *[f"#include <{header}>" for header in headers], "", "struct flyt_call;"] + [f"struct flyt_{h};" for h in tables.handles] + [""]
    out.append("/* One handler per row, written in cpu/server. Objects are found and, but for those that may be none, never\n"
               " * NULL; the result is the call's, or FLYT_CALL_STARTED where the reply is sent later (cpu/server/core/call.h). */")
    out += [handler_prototype(p) + ";" for p in tables.procedures] + ["", "#endif", ""]
    return "\n".join(out)


def handles_code(p):
    """What flyt_call_begin looks at: objects of ordered kinds. One that a call makes may have the id of one that is still
    to go. Arrays come behind the others."""
    ordered = [one for one in p.handles if one.is_ordered]
    arrays = [one for one in ordered if one.bound]
    if not ordered:
        return ""
    objects = ", ".join("{args->%s, %s}" % (one.name, f"flyt_object_find(&call.session->objects, args->{one.name})"
                                            if one.is_new else f"(struct flyt_object *){one.object_name}")
                        for one in ordered if not one.bound)
    count = "sizeof handles / sizeof handles[0]"
    if not arrays:
        return (f"    const struct flyt_handle handles[] = {{{objects}}};\n    call.handles = handles;\n"
                f"    call.handle_count = {count};\n")
    out = (f"    struct flyt_handle handles[{sum(one.handle_count for one in ordered)}] = {{{objects}}};\n"
           f"    call.handles = handles;\n    call.handle_count = {len(ordered) - len(arrays)};\n")
    for one in arrays:
        out += (f"    for (u_int i = 0; i < args->{one.name}.{one.name}_len; i++)\n"
                f"        handles[call.handle_count++] = (struct flyt_handle){{args->{one.name}.{one.name}_val[i],\n"
                f"                                                                (struct flyt_object *){one.object_name}[i]}};\n")
    return out


def find_code(one):
    """(C that finds the objects of a handle, condition for all being there or "")."""
    find = f"flyt_session_find_{one.type}(call.session, "
    if not one.bound:
        name = one.object_name
        code = f"    struct flyt_{one.type} *{name} = {find}args->{one.name});\n"
        return code, f"({name} || !args->{one.name})" if one.is_optional else name
    name = one.object_name
    code = (f"    struct flyt_{one.type} *{name}[{one.bound}];\n    bool has_{name} = true;\n"
            f"    for (u_int i = 0; i < args->{one.name}.{one.name}_len; i++) {{\n"
            f"        {name}[i] = {find}args->{one.name}.{one.name}_val[i]);\n"
            f"        has_{name} = has_{name} && {name}[i];\n    }}\n")
    return code, f"has_{name}"


def arguments(one):
    return [one.object_name] + ([f"args->{one.name}.{one.name}_len"] if one.bound else [])


def serve_call(p, finds):
    """The handler's call, behind the conditions that all objects are there."""
    names = ["&call", "args"] + [name for one in finds for name in arguments(one)] + (["res"] if p.has_reply else [])
    serve = f"flyt_serve_{p.name}({', '.join(names)})"
    conditions = [find_code(one)[1] for one in finds]
    if p.has_status:
        serve = f"flyt_call_status((int){serve}, {p.results.success}, {'&res->status' if p.has_reply else 'NULL'})"
    return f"{' && '.join(conditions)} ? {serve} : CUDA_ERROR_INVALID_HANDLE" if conditions else serve


def note_made(p):
    """What a row's object was made of is noted, for a comparison where the session goes on. (Rows with `driver` do so by themselves.)"""
    if p.driver or p not in makers(p.tables):
        return ""
    made = "0"
    for place, one in enumerate(one for one in p.args if not one.is_new):
        made = f"flyt_digest({made}, 0, {place}, (uint64_t)args->{one.name})"
    new = next(one for one in p.args if one.is_new)
    return f"""        if (result == CUDA_SUCCESS)
            flyt_objects_note_made(&call.session->objects, args->{new.name}, {made});
"""


def stub(p):
    finds = [one for one in p.handles if not one.is_new]
    res_type = f"flyt_{p.name}_res" if p.has_reply else "void"
    stream = f"    call.stream = {p.stream.object_name};\n" if p.stream else ""
    clear = "    memset(res, 0, sizeof *res);\n" if p.has_reply else ""
    end = "flyt_call_end(&call, result, &res->result, &res->progress)" if p.has_reply else "flyt_call_end_oneway(&call, result)"
    # Of what it makes the client hears nothing: it goes on as if it were there, and makes it again where the session goes on.
    refused = ("        call.session->objects.refused_count += (int)result > 0;\n"
               if not p.has_reply and any(one.is_new for one in p.args) else "")
    # XDR cannot encode a string that is NULL: a reply that is an error has empty ones.
    fill = "".join(f"    if (!res->{one.name})\n        res->{one.name} = strdup(\"\");\n" for one in p.rets if one.is_text)
    return f"""/* {p.place} */
bool_t flyt_{p.name}_1_svc(flyt_{p.name}_args *args, {res_type} *res, struct svc_req *req)
{{
    _Static_assert({sum(one.handle_count for one in p.handles)} <= FLYT_CALL_IDS_MAX, "the ids of a call find room in its record");
    struct flyt_call call = {{
        .session = flyt_connection_user(req->rq_xprt), .thread = args->thread, .procedure = {p.number}}};
{clear}{"".join(find_code(one)[0] for one in finds)}{stream}{handles_code(p)}    if (!flyt_call_begin(&call))
        return FALSE;
    CUresult result = flyt_call_result(&call);
    if (result == CUDA_SUCCESS){" {" if refused else ""}
        result = {serve_call(p, finds)};
{note_made(p)}{refused}{"    }" + chr(10) if refused else ""}{fill}    return {end};
}}
"""


def serve_c(tables, banner):
    """An object is found once: for what orders the call, and for its handler."""
    out = [banner, '#include "cpu/server/core/call.h"', '#include "cpu/server/core/digest.h"', '#include "cpu/server/core/driver.h"',
           '#include "cpu/server/core/session.h"', '#include "flyt_serve.h"',
           '#include "flyt_signatures.h"', ""]
    return "\n".join(out + [stub(p) for p in tables.procedures])


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
