"""Random values of every struct on the wire, and the bounds of their fields, as C tables for tests.

The tests round-trip, truncate and mutate what these tables give them; see rpc/transport/codec_test.c.
"""
import re

import wire

# Structs that rpc/proto/flyt.x defines by hand.
BASE = ("handshake_args", "handshake_res", "query_res", "chunk", "progress", "back_pull", "back_host_function", "back_output", "back_call_error", "back_fatal", "back_credit",
        "back_transfer_failed", "back_send_all")
DECLARATION = re.compile(r"^(unsigned hyper|unsigned|hyper|int|float|double|opaque|string|flyt_\w+)\s+(\w+)"
                         r"(?:\[(\w+)\]|<(\w+)>)?$")
LATE = "flyt_late_bytes"  # of fields at the end of a struct, which an older peer's record may lack
SCALAR = {"unsigned": "u_int", "unsigned hyper": "uint64_t", "int": "int", "hyper": "int64_t", "float": "float",
          "double": "double"}


def base_structs(text):
    """The hand-written structs: name -> declarations. Comments and directives are dropped."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    found = {}
    for name, body in re.findall(r"struct flyt_(\w+)\s*\{(.*?)\}", text, flags=re.S):
        found[name] = [" ".join(line.split()) for line in body.split(";") if line.strip()]
    return found


def fill_statement(kind, name, fixed, bound):
    """C that gives one field of *value a random value."""
    if kind == "string":
        return f"    value->{name} = flyt_test_string(random, {bound});"
    if kind == "opaque" and fixed:
        return f"    flyt_test_bytes(random, value->{name}, sizeof value->{name});"
    if kind == LATE:
        return (f"    value->{name}.{LATE}_len = flyt_test_count(random, FLYT_LATE_BYTES_MAX);\n"
                f"    value->{name}.{LATE}_val = calloc(value->{name}.{LATE}_len + 1, 1);\n"
                f"    flyt_test_bytes(random, value->{name}.{LATE}_val, value->{name}.{LATE}_len);")
    if bound:
        element = f"value->{name}.{name}_val[i]"
        out = [f"    value->{name}.{name}_len = flyt_test_count(random, {bound});",
               f"    value->{name}.{name}_val = calloc(value->{name}.{name}_len + 1, sizeof {element.replace('[i]', '[0]')});"]
        if kind == "opaque":
            out.append(f"    flyt_test_bytes(random, value->{name}.{name}_val, value->{name}.{name}_len);")
        elif kind.startswith("flyt_"):
            out.append(f"    for (u_int i = 0; i < value->{name}.{name}_len; i++)\n        fill_{kind[5:]}(random, &{element});")
        else:
            out.append(f"    flyt_test_bytes(random, value->{name}.{name}_val, value->{name}.{name}_len * sizeof {element.replace('[i]', '[0]')});")
        return "\n".join(out)
    if kind in ("flyt_connection_kind", "flyt_handshake_status"):
        return f"    value->{name} = flyt_test_count(random, 1);"
    if kind.startswith("flyt_"):
        return f"    fill_{kind[5:]}(random, &value->{name});"
    return f"    flyt_test_bytes(random, &value->{name}, sizeof value->{name});"


def type_code(name, declarations):
    """The fill function and the table of bounded fields of one struct."""
    fills, fields = [], []
    for text in declarations:
        kind, field, fixed, bound = DECLARATION.match(text).groups()
        fills.append(fill_statement(kind, field, fixed, bound))
        if kind == LATE:
            fields.append(f"    {{offsetof(flyt_{name}, {field}), FLYT_LATE_BYTES_MAX, 1, false, true}},")
        elif kind == "string" and bound:
            fields.append(f"    {{offsetof(flyt_{name}, {field}), {bound}, 1, true, false}},")
        elif bound:
            fields.append(f"    {{offsetof(flyt_{name}, {field}), {bound}, "
                          f"sizeof *((flyt_{name} *)0)->{field}.{field}_val, false, false}},")
    out = [f"static void fill_{name}(struct flyt_test_random *random, void *into)\n{{\n    flyt_{name} *value = into;\n"]
    out += fills + ["}", ""]
    if fields:
        out += [f"static const struct flyt_test_field fields_{name}[] = {{"] + fields + ["};", ""]
    return "\n".join(out), bool(fields)


def test_values_c(tables, base_text, banner):
    structs = base_structs(base_text)
    types = {name: structs[name] for name in ("progress", "signature")}
    types.update({struct.name: [f.declaration() for f in struct.fields] for struct in tables.structs.values()})
    types.update({name: structs[name] for name in BASE})
    for proc in tables.procedures:
        types[f"{proc.name}_args"] = ["unsigned thread"] + [f.declaration() for f in proc.args]
        if proc.has_reply:
            types[f"{proc.name}_res"] = ["int result", "flyt_progress progress"] + [f.declaration() for f in proc.rets]
    out = [banner, '#include "flyt_encoders.h"', '#include "rpc/transport/test_values.h"', "#include <stddef.h>", "#include <stdlib.h>", ""]
    rows = []
    encoders = {f"{proc.name}_args" for proc in tables.procedures if wire.in_place_layout(proc)}
    for name, declarations in types.items():
        code, has_fields = type_code(name, declarations)
        out.append(code)
        table = f"fields_{name}, sizeof fields_{name} / sizeof fields_{name}[0]" if has_fields else "NULL, 0"
        rows.append(f'    {{"{name}", (xdrproc_t)xdr_flyt_{name}, sizeof(flyt_{name}), fill_{name}, {table}, '
                    f'{f"(xdrproc_t)flyt_encode_{name}" if name in encoders else "NULL"}}},')
    out += ["const struct flyt_test_type flyt_test_types[] = {"] + rows + ["};", "",
            "const unsigned flyt_test_type_count = sizeof flyt_test_types / sizeof flyt_test_types[0];", ""]
    return "\n".join(out)
