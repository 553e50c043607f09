"""Rows that say which function of the driver they call: the client's function and the server's handler, whole.

A row is about the device of the current context, about devices that the program names, or about an object of a kind that is `of` a type of the driver's: then
its structures on both sides, what makes and ends it, and what makes it again at the next server are made, too.
"""
import extents
from wire import CLIENT_TYPES, handler_prototype


def rows_of(tables):
    return [p for p in tables.procedures if p.driver]


def kinds_of(tables):
    return [kind for kind in tables.kinds.values() if kind.c_type]


def rows_of_kind(tables, kind, role):
    return [p for p in rows_of(tables) if p.subject is kind and p.args[0].role == role]


def setters_of(tables, kind):
    return [p for p in rows_of_kind(tables, kind, "") if p.is_setter]


def host_ins(p):
    return [one for one in p.args if one.extent]


def host_outs(p):
    return [one for one in p.rets if one.extent]


def scalars(p):
    return [one for one in p.args if one.place_by]


def number_rets(p):
    return [one for one in p.rets if not one.extent]


def devices(p):
    """Arguments that are devices: a program that names one needs no context."""
    return [one for one in p.args if one.type == "device"]


def extent_c(one, prefix=""):
    return extents.to_c(one.extent, lambda name: prefix + name)


def banner_and(banner, *includes):
    return "\n".join([banner, *(f"#include {one}" for one in includes), ""])


# ---- the server ----

def handler_places(p):
    """The server's side of devices and of memory of the program's: they are there; what came is so much as the arguments say,
    what goes has room."""
    out = "".join(f"    if (args->{one.name} >= call->session->device_count)\n        return CUDA_ERROR_INVALID_DEVICE;\n"
                  for one in devices(p))
    out += "".join(f"    if (args->{one.name}.{one.name}_len != {extent_c(one, 'args->')})\n"
                  "        return CUDA_ERROR_INVALID_VALUE;\n" for one in host_ins(p))
    for one in scalars(p):
        out += (f"    {CLIENT_TYPES[one.type]} {one.name}_value;\n    struct flyt_device *{one.name}_device;\n"
                f"    memcpy(&{one.name}_value, &args->{one.name}, sizeof {one.name}_value);\n"
                f"    if (args->{one.place_by} && !flyt_memory_covers(call->session, args->{one.name}, sizeof {one.name}_value, "
                f"&{one.name}_device))\n        return CUDA_ERROR_INVALID_VALUE;\n")
    for one in host_outs(p):
        out += (f"    uint64_t {one.name}_count = {extent_c(one, 'args->')};\n"
                f"    if ({one.name}_count > FLYT_{one.bound}_MAX)\n        return CUDA_ERROR_INVALID_VALUE;\n"
                f"    res->{one.name}.{one.name}_val = calloc({one.name}_count + 1, sizeof *res->{one.name}.{one.name}_val);\n"
                f"    if (!res->{one.name}.{one.name}_val)\n        return CUDA_ERROR_OUT_OF_MEMORY;\n"
                f"    res->{one.name}.{one.name}_len = (u_int){one.name}_count;\n")
    return out


def driver_argument(p, name):
    if name == "device" and p.subject:
        return "device->cu_device"
    if name in [one.name for one in devices(p)]:
        return f"call->session->devices[args->{name}].cu_device"
    for one in scalars(p):
        if name == one.name:
            return f"args->{one.place_by} ? (void *)(uintptr_t)args->{name} : &{name}_value"
    if name in [one.name for one in host_ins(p)]:
        return f"(void *)args->{name}.{name}_val"  # whatever the driver calls such numbers
    if name in [one.name for one in host_outs(p)]:
        return f"(void *)res->{name}.{name}_val"
    return f"&res->{name}" if name in [one.name for one in number_rets(p)] else f"args->{name}"


def driver_call(p, subject=""):
    arguments = ", ".join(([subject] if subject else []) + [driver_argument(p, name) for name in p.driver[1:]])
    return f"call->session->driver->{p.driver[0]}({arguments})"


def unless_lacking(*names):
    """An older driver may lack what rows call: then these calls alone are refused."""
    return f"    if ({' || '.join('!call->session->driver->' + name for name in names)})\n        return CUDA_ERROR_NOT_SUPPORTED;\n"


def handler(p):
    """What calls the driver in the context of the device, or in that of the object's, or in none."""
    kind = p.subject
    if p.args[0].type == "device":
        return f"""/* {p.place} */
{handler_prototype(p)}
{{
{unless_lacking(p.driver[0])}{handler_places(p)}    return {driver_call(p)};
}}
"""
    refuse = "    if (call->session->is_mps)\n        return CUDA_ERROR_NOT_SUPPORTED; /* it would be others' too */\n" if p.is_alone else ""
    name = p.args[0].object_name
    device = f" = {name}->device" if kind else ""
    use = "flyt_device_use(device)" if kind else "flyt_session_use_device(call->session, args->device, &device)"
    end = f"result == CUDA_SUCCESS ? {driver_call(p, f'{name}->cu_{kind.name}' if kind else '')} : result"
    if p.is_setter:
        place = setters_of(p.tables, kind).index(p)
        note = (f"    result = {end};\n    if (result == CUDA_SUCCESS)\n"
                f"        {name}->set[{place}] = flyt_digest({place + 1}, 0, 0, (uint64_t)args->{p.args[1].name});\n")
        end = "result"
    return f"""/* {p.place} */
{handler_prototype(p)}
{{
    struct flyt_device *device{device};
{unless_lacking(p.driver[0])}{refuse}{handler_places(p)}    CUresult result = {use};
{note if p.is_setter else ""}    return {end};
}}
"""


def new_handler(p):
    kind, args = p.subject, p.args[1:]
    ender = rows_of_kind(p.tables, kind, "end")[0]
    made = "".join(f"    one->made = flyt_digest(one->made, 0, {place}, (uint64_t)args->{one.name});\n"
                   for place, one in enumerate(args))
    return f"""/* {p.place} */
{handler_prototype(p)}
{{
    struct flyt_device *device;
{unless_lacking(p.driver[0], ender.driver[0])}    CUresult result = flyt_session_use_device(call->session, args->device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    struct flyt_{kind.name} *one = calloc(1, sizeof *one);
    if (!one)
        return CUDA_ERROR_OUT_OF_MEMORY;
    one->object.id = args->{p.args[0].name};
    one->device = device;
{made}    result = {driver_call(p, f"&one->cu_{kind.name}")};
    if (result == CUDA_SUCCESS) {{
        result = flyt_session_insert(call->session, &one->object, FLYT_ID_{kind.name.upper()});
        if (result == CUDA_SUCCESS)
            return CUDA_SUCCESS;
        call->session->driver->{ender.driver[0]}(one->cu_{kind.name});
    }}
    free(one);
    return result;
}}
"""


def end_handler(p):
    return f"""/* {p.place} */
{handler_prototype(p)}
{{
    return flyt_{p.subject.name}_end({p.args[0].object_name});
}}
"""


def kind_c(tables, kind):
    """What ends an object, and a digest of what it was made of and what was set of it."""
    ender = rows_of_kind(tables, kind, "end")[0]
    sets = " + ".join(["one->made"] + [f"one->set[{place}]" for place in range(len(setters_of(tables, kind)))])
    return f"""/* {kind.place} */
CUresult flyt_{kind.name}_end(struct flyt_{kind.name} *one)
{{
    struct flyt_session *session = one->device->session;
    CUresult result = flyt_device_use(one->device);
    if (result == CUDA_SUCCESS)
        result = session->driver->{ender.driver[0]}(one->cu_{kind.name});
    flyt_object_remove(&session->objects, &one->object);
    free(one);
    return result;
}}

void flyt_{kind.name}_drop(struct flyt_{kind.name} *one, const struct flyt_device *device)
{{
    if (!device || one->device == device)
        flyt_{kind.name}_end(one);
}}

uint64_t flyt_{kind.name}_digest(const struct flyt_{kind.name} *one)
{{
    return flyt_digest(one->object.id, one->device->ordinal, 0, {sets});
}}
"""


def server_c(tables, banner):
    make = {"new": new_handler, "end": end_handler, "": handler}
    reads = ["<string.h>", '"cpu/server/cuda/memory.h"'] if any(scalars(p) for p in rows_of(tables)) else []
    includes = ['"cpu/server/core/call.h"', '"cpu/server/core/digest.h"', '"cpu/server/core/driver.h"', '"cpu/server/core/session.h"',
                '"flyt_serve.h"', '"rpc/base/extent.h"', "<stdlib.h>"]
    return "\n".join([banner_and(banner, *includes, *reads)] + [kind_c(tables, kind) for kind in kinds_of(tables)] +
                     [make[p.args[0].role](p) for p in rows_of(tables)])


def driver_rows_h(tables, banner):
    """The functions of the driver that rows call."""
    names = sorted({p.driver[0] for p in rows_of(tables)})
    return f"{banner}\n#define FLYT_DRIVER_ROWS(X) {' '.join(f'X({name})' for name in names)}\n"


# ---- the client ----

def client_arguments(p):
    """Those that the program gives, behind what the call is about."""
    return p.args[2 if p.args[0].role == "new" else 0 if p.args[0].type == "device" else 1:]


def client_parameter(one, is_out):
    is_place = one.extent or one.place_by
    pointer = "*ret_" if is_out else "*" if is_place else ""
    return f"{'const ' if is_place and not is_out else ''}{CLIENT_TYPES[one.type]} {pointer}{one.name}"


def client_prototype(p):
    kind, role = p.subject, p.args[0].role
    params = [f"{kind.c_type} {kind.name}"] if kind and role != "new" else []
    params += [client_parameter(one, False) for one in client_arguments(p)]
    params += [client_parameter(one, True) for one in p.rets]
    if role == "new":
        params.append(f"{kind.c_type} *ret_{kind.name}")
    return f"CUresult flyt_{p.name}({', '.join(params) or 'void'})"


def client_rows_h(tables, banner):
    prototypes = "".join(f"/* {p.place} */\nFLYT_API {client_prototype(p)};\n" for p in rows_of(tables))
    return f"""{banner}
#ifndef FLYT_GEN_CLIENT_ROWS_H
#define FLYT_GEN_CLIENT_ROWS_H
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include "cpu/client/core/api.h"

struct flyt_restore;

/* Calls whose rows say everything: in the current context, or why there is none. */
{prototypes}
/* Of all kinds of objects that rows make: ends those of a context, or (is_on_server false) knows that the server has done
 * so; makes them again at another server (restore.h). */
void flyt_rows_clear(uint64_t context_id, bool is_on_server);
int flyt_rows_restore(struct flyt_restore *restore);

#endif
"""


def client_checks(p):
    """Before anything is sent: devices are there; memory of the program's is so large as the call may carry, and there; so are
    places of results."""
    out = "".join(f"    result = flyt_device_check({one.name});\n    if (result)\n        return result;\n" for one in devices(p))
    out += "".join(f"    if (!ret_{one.name})\n        return CUDA_ERROR_INVALID_VALUE;\n" for one in number_rets(p))
    for one in scalars(p):
        out += (f"    uint64_t {one.name}_bits = {one.place_by} ? (uint64_t)(uintptr_t){one.name} : 0;\n"
                f"    if (!{one.name})\n        return CUDA_ERROR_INVALID_VALUE;\n"
                f"    if (!{one.place_by})\n        memcpy(&{one.name}_bits, {one.name}, sizeof *{one.name});\n")
    for one, name in [(one, one.name) for one in host_ins(p)] + [(one, "ret_" + one.name) for one in host_outs(p)]:
        out += (f"    uint64_t {one.name}_count = {extent_c(one)};\n"
                f"    if ({one.name}_count > FLYT_{one.bound}_MAX || ({one.name}_count && !{name}))\n"
                "        return CUDA_ERROR_INVALID_VALUE;\n")
    return out


def client_argument(one):
    if one.extent:
        return f", .{one.name} = {{(u_int){one.name}_count, ({CLIENT_TYPES[one.type]} *){one.name}}}"
    if one.place_by:
        return f", .{one.name} = {one.name}_bits"
    return f", .{one.name} = {'(unsigned)' if one.type == 'device' else ''}{one.name}"


def client_results(p):
    """What was answered goes to the program, all of it or nothing; the reply is freed on every path."""
    outs = host_outs(p)
    if not p.rets:
        return f'    return flyt_client_reply(status, res.result, "{p.name}");\n'
    out = f'    result = flyt_client_reply(status, res.result, "{p.name}");\n'
    if outs:
        wrong = " || ".join(f"res.{one.name}.{one.name}_len != {one.name}_count" for one in outs)
        out += f"    if (result == CUDA_SUCCESS && ({wrong}))\n        result = CUDA_ERROR_UNKNOWN; /* no answer to this call */\n"
    for one in p.rets:
        out += (f"    if (result == CUDA_SUCCESS && {one.name}_count)\n"
                f"        memcpy(ret_{one.name}, res.{one.name}.{one.name}_val, {one.name}_count * sizeof *ret_{one.name});\n"
                if one.extent else f"    if (result == CUDA_SUCCESS)\n        *ret_{one.name} = res.{one.name};\n")
    if outs:
        out += f"    xdr_free((xdrproc_t)xdr_flyt_{p.name}_res, (char *)&res);\n"
    return out + "    return result;\n"


def client_enter(p):
    """(C that finds what the call is about, its member of the arguments)."""
    kind = p.subject
    head = "    CUresult result = flyt_client_enter();\n"
    if kind:
        return (f"{head}    struct flyt_{kind.name} *one = flyt_table_find(&{kind.name}_table, (uint64_t)(uintptr_t){kind.name});\n"
                "    if (!result && !one)\n        result = CUDA_ERROR_INVALID_HANDLE;\n",
                f", .{p.args[0].name} = one->record.minted_id")
    if devices(p):
        return head, ""
    return (f"    int device;\n{head}    if (!result)\n        result = flyt_context_device(NULL, &device);\n",
            ", .device = (unsigned)device")


def client_row(p):
    enter, member = client_enter(p)
    fields = member + "".join(client_argument(one) for one in client_arguments(p))
    ask = f"flyt_call_{p.name}(flyt_client.channel, &args, &res)"
    end = client_results(p)
    if p.is_setter:
        value = p.args[1].name
        ask = f"call_{p.name}(&args, &res)"
        end = f"""    result = flyt_client_reply(status, res.result, "{p.name}");
    if (!result) {{
        atomic_store(&one->{p.name}.value, {value});
        atomic_store(&one->{p.name}.is_set, true);
    }}
    flyt_answer_end();
    pthread_mutex_unlock(&setting);
    return result;
"""
    return f"""/* {p.place} */
{client_prototype(p)}
{{
{enter}    if (result)
        return result;
{client_checks(p)}    flyt_{p.name}_args args = {{.thread = flyt_thread_number(){fields}}};
    flyt_{p.name}_res res = {{0}};
{"    pthread_mutex_lock(&setting); /* what was set last here was there */" + chr(10) if p.is_setter else ""}    int status = {ask};
{end}}}
"""


def client_new(p):
    kind = p.subject
    values = "".join(f"    one->{one.name} = {one.name};\n" for one in p.args[2:])
    unset = "".join(f"    atomic_store(&one->{setter.name}.is_set, false);\n" for setter in setters_of(p.tables, kind))
    return f"""/* {p.place} */
{client_prototype(p)}
{{
    uint64_t context_id;
    int device;
    CUresult result = flyt_client_enter();
    if (!result)
        result = ret_{kind.name} ? flyt_context_get(&context_id, &device) : CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    struct flyt_{kind.name} *one = flyt_table_new(&{kind.name}_table);
    if (!one)
        return CUDA_ERROR_OUT_OF_MEMORY;
    one->context_id = context_id;
    one->device = device;
{values}{unset}    result = flyt_new_{p.name}(&{kind.name}_table, one);
    if (!result)
        *ret_{kind.name} = ({kind.c_type})(uintptr_t)one->record.minted_id;
    return result;
}}
"""


def client_end(p):
    kind = p.subject
    return f"""static bool end_{kind.name}(uint64_t id, bool is_on_server)
{{
    struct flyt_{kind.name} *one = flyt_table_take(&{kind.name}_table, id);
    if (!one)
        return false;
    flyt_end_{p.name}(&one->record, is_on_server);
    flyt_table_free(&{kind.name}_table, &one->record);
    return true;
}}

/* {p.place} */
{client_prototype(p)}
{{
    CUresult result = flyt_client_enter_release();
    if (result)
        return result;
    return end_{kind.name}((uint64_t)(uintptr_t){kind.name}, true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}}
"""


def client_kind(tables, kind):
    """The client's record of an object, and their table: what makes it again is in it."""
    maker = rows_of_kind(tables, kind, "new")[0]
    members = "".join(f"    {CLIENT_TYPES[one.type]} {one.name};\n" for one in maker.args[2:])
    sets = "".join(f"    struct {{\n        _Atomic bool is_set;\n        {CLIENT_TYPES[p.args[1].type]} _Atomic value;\n    }} {p.name};\n"
                   for p in setters_of(tables, kind))
    answers = "".join(f"FLYT_ANSWER_CALL({p.name})\n" for p in setters_of(tables, kind))
    return f"""/* {kind.place} */
struct flyt_{kind.name} {{
    struct flyt_record record;
    uint64_t context_id;
    int device;
{members}{sets}}};
static struct flyt_table {kind.name}_table = FLYT_TABLE_INIT(FLYT_ID_{kind.name.upper()}, struct flyt_{kind.name}, 1);
{answers}"""


def client_moves(tables, kind):
    maker = rows_of_kind(tables, kind, "new")[0]
    sets = "".join(f"""        if (!status && atomic_load(&one->{p.name}.is_set)) {{
            flyt_{p.name}_args args = {{.thread = FLYT_RESTORE_THREAD, .{p.args[0].name} = one->record.minted_id,
                .{p.args[1].name} = atomic_load(&one->{p.name}.value)}};
            flyt_{p.name}_res res = {{0}};
            int called = flyt_call_{p.name}(restore->fresh, &args, &res);
            status = flyt_restore_answered(restore, called, res.result, "{p.name} of {kind.name} %#llx",
                                           (unsigned long long)one->record.minted_id);
        }}
""" for p in setters_of(tables, kind))
    return f"""static void clear_{kind.name}(uint64_t context_id, bool is_on_server)
{{
    uint32_t slot = 0;
    const struct flyt_{kind.name} *one;
    while ((one = flyt_table_next(&{kind.name}_table, &slot)))
        if (one->context_id == context_id)
            end_{kind.name}(one->record.minted_id, is_on_server);
}}

static int restore_{kind.name}(struct flyt_restore *restore)
{{
    uint32_t slot = 0;
    struct flyt_{kind.name} *one;
    int status = 0;
    while (!status && (one = flyt_table_next_at(&{kind.name}_table, restore->sequence, &slot))) {{
        status = flyt_again_{maker.name}(restore, one);
{sets}    }}
    return status;
}}
"""


def client_rows_c(tables, banner):
    make = {"new": client_new, "end": client_end, "": client_row}
    kinds = kinds_of(tables)
    out = [banner_and(banner, '"flyt_client_rows.h"', "<pthread.h>", "<stdatomic.h>", "<string.h>", '"cpu/client/core/answer.h"', '"cpu/client/core/instance.h"',
                      '"cpu/client/core/thread.h"', '"cpu/client/cuda/context.h"', '"cpu/client/cuda/device.h"', '"flyt_client_records.h"',
                      '"rpc/base/extent.h"')]
    if any(setters_of(tables, kind) for kind in kinds):
        out.append("static pthread_mutex_t setting = PTHREAD_MUTEX_INITIALIZER; /* held across calls; not by a restore */\n")
    out += [client_kind(tables, kind) for kind in kinds] + [make[p.args[0].role](p) for p in rows_of(tables)]
    out += [client_moves(tables, kind) for kind in kinds]
    clear = "".join(f"    clear_{kind.name}(context_id, is_on_server);\n" for kind in kinds)
    restore = "".join(f"    status = status ? status : restore_{kind.name}(restore);\n" for kind in kinds)
    return "\n".join(out + [f"void flyt_rows_clear(uint64_t context_id, bool is_on_server)\n{{\n{clear}}}\n",
                            f"int flyt_rows_restore(struct flyt_restore *restore)\n{{\n    int status = 0;\n{restore}    return status;\n}}\n"])
