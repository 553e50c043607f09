"""What client and server share of a library: the layout of each call's arguments, of objects' settings and of descriptors."""
from library_rows import ADDRESSES, BY_MODE, CHECKED, HOST, NUMBERS, mode_object

def needs_mode(call):
    return any(not one.by for one in call.of(*BY_MODE))


# Their size first: no padding lies between them.
def by_size(fields):
    return sorted(fields, key=lambda one: -one[2])


def key_fields(library, call):
    """(type, name, bytes) of what makes two calls alike."""
    fields = []
    for one in call.parameters:
        if one.kind in NUMBERS:
            fields.append((NUMBERS[one.kind][0], one.name, min(8, NUMBERS[one.kind][1])))
        elif one.kind.split()[0] in HOST:
            fields.append(("uint32_t", f"{one.name}_bytes", 4))
        elif one.kind == "scratch":
            fields.append(("uint64_t", f"{one.name}_bytes", 8))
    if needs_mode(call):
        fields.append(("int32_t", "pointer_mode", 4))
    return by_size(fields)


def other_fields(library, call):
    fields = []
    for one in call.parameters:
        if one.kind in ADDRESSES or one.kind == "either":
            fields.append(("uint64_t", one.name, 8))
        elif one.kind in BY_MODE:
            fields.append(("struct flyt_lib_scalar", one.name, 8))
        elif one.is_value:
            fields.append((f"struct flyt_value_{one.type}", one.name, 8))
    if "staged" in call.words:
        fields.append(("struct flyt_lib_stage", "stage", 8))
    return fields


def arguments_struct(library, call):
    key, other = key_fields(library, call), other_fields(library, call)
    lines = [f"    {kind} {name};" for kind, name, _ in key]
    lines.append("    uint64_t key_end[0];")
    lines += [f"    {kind} {name};" for kind, name, _ in other]
    return f"struct flyt_args_{call.symbol} {{\n" + "\n".join(lines) + "\n};"


def fields_c(fields):
    return "\n".join(f"    {NUMBERS[one.type][0]} {one.name}{f'[{one.count}]' if one.count > 1 else ''};" for one in fields)


def value_struct(value):
    """Addresses last, behind what makes two descriptors alike."""
    plain = sorted((one for one in value.fields if one.type != "address"), key=lambda one: -NUMBERS[one.type][1])
    addresses = [one for one in value.fields if one.type == "address"]
    return (f"struct flyt_value_{value.name} {{\n    struct flyt_lib_value_head head;\n"
            f"{fields_c(plain)}\n    uint64_t key_end[0];\n{fields_c(addresses)}\n}};\n"
            f"_Static_assert(sizeof(struct flyt_value_{value.name}) + {16 if value.has_list else 0} <= {value.bytes}, \"it lives in the program's bytes\");")


def object_struct(one):
    fields = sorted(one.fields, key=lambda f: -NUMBERS[f.type][1])
    body = fields_c(fields) or "    uint32_t nothing;"
    return (f"struct flyt_state_{one.name} {{\n{body}\n}};\n"
            f"_Static_assert(sizeof(struct flyt_state_{one.name}) <= FLYT_LIB_STATE_BYTES, \"an object has room for it\");")


def header(library, banner):
    out = [banner, f"#ifndef FLYT_LIB_{library.name.upper()}_H", f"#define FLYT_LIB_{library.name.upper()}_H", "",
           '#include "rpc/library/library.h"', ""]
    out += [f'#include "flyt_lib_{other}.h"' for other in sorted({one.of for one in library.values.values() if one.of})]
    out += [object_struct(one) for one in library.objects.values()]
    out += [value_struct(one) for one in library.values.values() if not one.of]
    out += [arguments_struct(library, call) for call in library.calls if call.is_sent]
    out += ["", "#endif"]
    return "\n".join(out) + "\n"


def element_bytes(type_name, text=lambda formula: formula):
    """An expression in C; `text` makes what names parameters right for its place."""
    if type_name in NUMBERS:
        return str(NUMBERS[type_name][1])
    word, inside = type_name.split("(", 1)
    if word in CHECKED:
        return "4"
    inside = text(inside[:-1])
    return f"(size_t)({inside})" if word == "bytes" else f"flyt_lib_{word}_bytes({inside})"


def extent_bytes(one, text=lambda formula: formula):
    return f"flyt_lib_extent({text(one.extent)}, {element_bytes(one.type, text)})"


__all__ = ["arguments_struct", "element_bytes", "extent_bytes", "header", "mode_object"]
