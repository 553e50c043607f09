"""The client's side of a library: entry points with NVIDIA's names, which put their arguments where the rows say."""
import re

import library_shared as shared
from library_rows import ADDRESSES, BY_MODE, HOST, NUMBERS, RowError, mode_object


def c_type(library, one):
    """The type of a parameter as the binary interface has it."""
    word, place = one.kind.split()[0], library.object_of(one)
    if one.kind in NUMBERS:
        return NUMBERS[one.kind][0]
    if place and place.room:
        return "void *" if word == "new" else "const void *"
    if place:
        plain = "int" if place.is_small else "void *"
        return plain if word not in ("new",) else ("int *" if place.is_small else "void **")
    return "const void *" if one.kind in ("in", "in*", "unread", "scalar", "hin", "hin?") else "void *"


def prototype(library, call):
    names = [f"{c_type(library, one)} {one.name}".replace("* ", "*") for one in call.parameters]
    return f"FLYT_LIB_ENTRY int {call.symbol}({', '.join(names) or 'void'})"


def flags(call):
    names = {"stream": "FLYT_LIB_IN_STREAM", "sync": "FLYT_LIB_ASKS", "cached": "FLYT_LIB_CACHED", "more": "FLYT_LIB_ASKS | FLYT_LIB_MORE", "new": "FLYT_LIB_ASKS",
             "end": "FLYT_LIB_ASKS", "aside": "FLYT_LIB_ASIDE"}
    out = ["FLYT_LIB_ASKS" if "asked" in call.words else names[call.kind]]
    if call.words & {"waits", "gathers"}:
        out.append("FLYT_LIB_WAITS")
    out += [f"FLYT_LIB_{word.upper()}" for word in ("trusted", "draws", "restarts", "staged") if word in call.words]
    if call.kind == "more" and call.arguments:
        out.append("FLYT_LIB_LAST")
    return " | ".join(out)


def formula(call):
    """Makes a formula over parameters one over what the call has of them: descriptors are in its arguments."""
    values = {one.name for one in call.parameters if one.is_value}
    return lambda text: re.sub(r"[A-Za-z_]\w*", lambda found: f"sent.{found[0]}" if found[0] in values else found[0], text)


def handle(library, one):
    """A parameter's handle as a number."""
    kind = library.object_of(one)
    if kind.room:
        return f"flyt_lib_in_room({one.name}, &kind_{kind.name})"
    return ("(uint64_t)(unsigned)" if kind.is_small else "(uint64_t)(uintptr_t)") + one.name


def put(library, call, one):
    """Statements that put a parameter into the call."""
    word = one.kind.split()[0].rstrip("?")
    name = one.name
    if library.object_of(one):
        if word == "new":
            return [f"    flyt_lib_new(&call, {name}, &kind_{library.object_of(one).name});"]
        function = "object_optional" if one.is_optional else "end" if word == "end" else "object"
        return [f"    flyt_lib_{function}(&call, {handle(library, one)}, &kind_{library.object_of(one).name});"]
    if one.kind in NUMBERS:
        return [f"    sent.{name} = {name};"]
    if one.kind in ADDRESSES:
        return [f"    sent.{name} = (uint64_t)(uintptr_t){name};"]
    if one.kind == "either":
        return [f"    sent.{name} = flyt_lib_either(&call, {name}, {one.extent}, {shared.element_bytes(one.type)}, &kind_{one.by});"]
    if one.kind == "stream":
        return [f"    flyt_lib_stream(&call, {name});"]
    if word == "scratch" and one.extent.startswith("of "):
        return [f"    sent.{name}_bytes = {name} != NULL;"]
    if word == "scratch":
        return [f"    sent.{name}_bytes = {name} ? (size_t)({formula(call)(one.extent)}) : 0;"]
    if one.is_value:
        function = "flyt_lib_value" if word == "val" else "flyt_lib_value_set"
        return [f"    {function}(&call, &sent.{name}, {name}, &value_{one.type});"]
    optional = "true" if one.is_optional else "false"
    if word in BY_MODE:
        size = f"(size_t)({formula(call)(one.extent)}) * {shared.element_bytes(one.type, formula(call))}"
        mode = formula(call)(one.by) if one.by else "sent.pointer_mode"
        return [f"    flyt_lib_scalar(&call, &sent.{name}, {name}, {mode}, {size}, FLYT_LIB_{word.upper()});"]
    lines, size = [], shared.extent_bytes(one, formula(call))
    if word in ("hin", "hinout"):
        lines.append(f"    sent.{name}_bytes = flyt_lib_in(&call, {name}, {size}, {optional});")
    if word in ("hout", "hinout"):
        lines.append(f"    sent.{name}_bytes = flyt_lib_out(&call, {name}, {size}, {optional});")
    return lines


def sent_body(library, call):
    mode = mode_object(library, call) if shared.needs_mode(call) else None
    objects = [p for p in call.parameters if library.object_of(p)]
    rest = [p for p in call.parameters if not library.object_of(p)]
    lines = [f"    struct flyt_args_{call.symbol} sent;", "    memset(&sent, 0, sizeof sent);",
             f"    struct flyt_lib_call call = {{.row = &row_{call.symbol}, .arguments = &sent}};"]
    lines.append("    flyt_lib_begin(&call);")
    for one in objects:
        lines += put(library, call, one)
    if mode:
        lines.append(f"    sent.pointer_mode = flyt_lib_mode(&call, {mode[0]});")
    for one in sorted(rest, key=lambda one: not one.is_value):
        lines += put(library, call, one)
    if "area" in call.words:
        kind, size = library.object_of(objects[0]), call.of("hout")[0].name
        places = ", ".join(f"offsetof(struct flyt_state_{kind.name}, {name})" for name in kind.area)
        return lines + [f"    return flyt_lib_finish_with_area(&call, {size}, {places});"]
    lines.append("    return flyt_lib_finish(&call);")
    return lines


def addresses_c(library, call):
    """Where the addresses are that a library may read as NULL, descriptors' too."""
    out = []
    for one in call.parameters:
        place = f"offsetof(struct flyt_args_{call.symbol}, {one.name}"
        if one.kind in ADDRESSES | {"either"} and one.kind != "unread":
            out.append(f"{{{place}), 8}}")
        elif one.kind in BY_MODE:
            out.append(f"{{{place}.place), 4}}")
        elif one.kind.startswith("val "):
            out += [f"{{{place}.{field.name}), 8}}" for field in library.values[one.type].fields if field.type == "address"]
    if len(out) > 64:
        raise RowError(f"{call.place}: {call.symbol} has more than 64 addresses")
    return out


def row_c(library, call, storage="static "):
    values = [p for p in call.parameters if p.is_value]
    key_ends = ", ".join(f"{{offsetof(struct flyt_args_{call.symbol}, {p.name}), offsetof(struct flyt_value_{p.type}, key_end)}}"
                         for p in values)
    more = f", .value_count = {len(values)}, .values = {{{key_ends}}}" if values else ""
    addresses = addresses_c(library, call)
    if addresses:
        more += f", .address_count = {len(addresses)}, .addresses = addresses_{call.symbol}"
        addresses = [f"static const struct flyt_lib_address addresses_{call.symbol}[] = {{{', '.join(addresses)}}};\n"]
    if "staged" in call.words:
        more += f", .stage_at = offsetof(struct flyt_args_{call.symbol}, stage)"
    name = f"row_{call.symbol}" if storage else f"flyt_lib_row_{call.symbol}"
    return "".join(addresses) + (f"{storage}const struct flyt_lib_row {name} = {{.library = &this_library, .name = \"{call.symbol}\", .id = {call.id:#x}u, "
            f".flags = {flags(call)}, .bytes = sizeof(struct flyt_args_{call.symbol}), "
            f".key_bytes = offsetof(struct flyt_args_{call.symbol}, key_end){more}}};")


def setting(library, call):
    """(object's parameter, [(field, parameter)]) of a call of class set or get."""
    by_name = {one.name: one for one in call.parameters}
    pairs = [argument.split("=") for argument in call.arguments]
    owner = next(one for one in call.parameters if library.object_of(one))
    return owner, [(name, by_name[parameter]) for name, parameter in pairs]


def set_or_get_body(library, call):
    owner, pairs = setting(library, call)
    kind = library.object_of(owner)
    lines = [f"    struct flyt_lib_object *object = flyt_lib_find({handle(library, owner)}, &kind_{kind.name});",
             "    if (!object)", f"        return {library.codes['handle']};"]
    if call.kind == "get":
        for name, one in pairs:
            lines += [f"    if (!{one.name})", f"        return {library.codes['invalid']};"]
        lines.append(f"    const struct flyt_state_{kind.name} *state = flyt_lib_state(object);")
    for name, one in pairs:
        if name == "stream" and call.kind == "set":
            lines.append(f"    flyt_lib_set_stream(object, {one.name});")
        elif name == "stream":
            lines.append(f"    *(void **){one.name} = flyt_lib_get_stream(object);")
        elif call.kind == "get":
            field = next(f for f in kind.fields if f.name == name)
            lines.append(f"    memcpy({one.name}, &state->{name}, sizeof({NUMBERS[field.type][0]}));")
    stored = [(name, one) for name, one in pairs if name != "stream"]
    if call.kind == "set" and stored:
        lines.append(f"    struct flyt_state_{kind.name} *state = flyt_lib_state(object);")
        for name, one in stored:
            field = next(f for f in kind.fields if f.name == name)
            cast = f"({NUMBERS[field.type][0]})" + ("(uintptr_t)" if c_type(library, one).endswith("*") else "")
            lines.append(f"    state->{name} = {cast}{one.name};")
    elif call.kind == "get":
        lines.append("    (void)state;")
    return lines + [f"    return {library.codes['success']};"]


def fill_or_tell_body(library, call):
    """Of a call that sets fields of a descriptor, or tells them: its first parameter is the descriptor."""
    value, by_name = library.values[call.arguments[0]], {one.name: one for one in call.parameters}
    fields, desc = {one.name: one for one in value.fields}, call.parameters[0].name
    const = "const " if call.kind == "tell" else ""
    lines = [f"    {const}struct flyt_value_{value.name} *value = flyt_lib_valid(&value_{value.name}, {desc});"]
    checks = ["!value"]
    for name, number in (one.split(":") for one in call.arguments[1:] if ":" in one): # it has to be such a one
        checks.append(f"value->{name} != {number}")
    pairs = [(fields[name], by_name[parameter]) for name, parameter in (one.split("=") for one in call.arguments[1:] if "=" in one)]
    for field, one in pairs:
        if call.kind == "tell":
            checks.append(f"!{one.name}")
        elif one.kind == "hin":
            checks.append(f"!{one.name} || {one.extent} < 0 || {one.extent} > {field.count}")
    lines += [f"    if ({' || '.join(checks)})", f"        return {library.codes['invalid']};"]
    for field, one in pairs:
        if call.kind == "tell":
            lines.append(f"    memcpy({one.name}, &value->{field.name}, sizeof value->{field.name});")
        elif one.kind == "hin":
            lines += [f"    memset(value->{field.name}, 0, sizeof value->{field.name});",
                      f"    memcpy(value->{field.name}, {one.name}, (size_t){one.extent} * {shared.element_bytes(one.type)});"]
        else:
            cast = f"({NUMBERS[field.type][0]})" + ("(uintptr_t)" if c_type(library, one).endswith("*") else "")
            lines.append(f"    value->{field.name} = {cast}{one.name};")
    return lines + [f"    return {library.codes['success']};"]


def make_of_fields_body(library, call, value):
    """Of a call that makes a descriptor of fields that it names: its first parameter is where that goes."""
    fields, by_name, desc = {one.name: one for one in value.fields}, {one.name: one for one in call.parameters}, call.parameters[0].name
    pairs = [(fields[name], by_name[parameter]) for name, parameter in (one.split("=") for one in call.arguments[1:] if "=" in one)]
    checks = [f"!{desc}"] + [f"{one.name} < 0" for field, one in pairs if field.type == "s64"]
    lines = [f"    if ({' || '.join(checks)})", f"        return {library.codes['invalid']};",
             f"    struct flyt_value_{value.name} *value = flyt_lib_make(&value_{value.name}, NULL, 0);",
             "    if (!value)", f"        return {library.codes['memory']};"]
    lines += [f"    value->{name} = {number};" for name, number in (one.split(":") for one in call.arguments[1:] if ":" in one)]
    for field, one in pairs:
        cast = f"({NUMBERS[field.type][0]})" + ("(uintptr_t)" if c_type(library, one).endswith("*") else "")
        lines.append(f"    value->{field.name} = {cast}{one.name};")
    return lines + [f"    *(void **){desc} = value;", f"    return {library.codes['success']};"]


def value_body(library, call):
    """Of a call that works on a descriptor: its parameters have the places that cublasLt gives them, behind a handle or not."""
    names = [one.name for one in call.parameters if not library.object_of(one)]
    if call.kind == "attributes":
        word, value = call.arguments
        names += ["NULL"] if word == "get" and len(names) == 4 else []
        lines = [line for one in call.parameters if library.object_of(one) for line in
                 (f"    if (!flyt_lib_find({handle(library, one)}, &kind_{library.object_of(one).name}))", f"        return {library.codes['handle']};")]
        return lines + [f"    return flyt_lib_attribute_{word}(&this_library, &value_{value}, {', '.join(names)});"]
    if call.kind == "unmake":
        room = f"(void *)(uintptr_t){names[0]}" if c_type(library, call.parameters[0]).startswith("const") else names[0]
        return [f"    return flyt_lib_unmake(&this_library, &value_{call.arguments[0]}, {room});"]
    value = library.values[call.arguments[0]]
    if any("=" in one or ":" in one for one in call.arguments):
        return make_of_fields_body(library, call, value)
    room = ", ".join(call.arguments[1:]) or "NULL, 0"
    lines = [f"    struct flyt_value_{value.name} *value = flyt_lib_make(&value_{value.name}, {room});",
             "    if (!value)", f"        return {library.codes['memory']};"]
    numbers = {one.name: one for one in value.fields}
    given = [one for one in call.parameters if one.kind in NUMBERS]
    for name, one in zip(value.create[1:], [p for p in given if p.name not in call.arguments[1:]]):
        lines.append(f"    value->{name} = ({NUMBERS[numbers[name].type][0]}){one.name};")
    if len(call.arguments) == 1:
        lines.append(f"    *(void **){call.parameters[0].name} = value;")
    return lines + [f"    return {library.codes['success']};"]


def entry_c(library, call):
    if call.kind == "none":
        return f"FLYT_LIB_ENTRY int {call.symbol}(void)\n{{\n    return flyt_lib_refuse(&this_library, \"{call.symbol}\");\n}}"
    if "served" in call.words:
        return row_c(library, call, storage="")
    if call.is_sent:
        head, body = row_c(library, call) + "\n", sent_body(library, call)
    elif call.kind in ("set", "get"):
        head, body = "", set_or_get_body(library, call)
    elif call.kind in ("fill", "tell"):
        head, body = "", fill_or_tell_body(library, call)
    else:
        head, body = "", value_body(library, call)
    return f"{head}{prototype(library, call)}\n{{\n" + "\n".join(body) + "\n}"


def kind_c(library, one):
    defaults = ", ".join(f".{f.name} = {f.first or f.default}" for f in one.fields if (f.first or f.default) != "0")
    places = "".join(f", .{name} = offsetof(struct flyt_state_{one.name}, {field})" for name, field in
                     zip(("workspace_at", "workspace_bytes_at"), one.workspace))
    mode = f", .mode_at = offsetof(struct flyt_state_{one.name}, {one.mode_field})" if one.mode_field else ", .mode_at = -1"
    check = f"_Static_assert(offsetof(struct flyt_state_{one.name}, {one.workspace[1]}), \"0 is none\");\n" if one.workspace else ""
    sequence = f".step = flyt_lib_step_of_{library.name}, .place = &row_{one.sequence}, " if one.sequence else ""
    if one.sequence:
        check += f"static const struct flyt_lib_row row_{one.sequence};\nextern flyt_lib_step_fn flyt_lib_step_of_{library.name};\n"
    return (f"static const struct flyt_state_{one.name} defaults_{one.name} = {{{defaults or '0'}}};\n{check}"
            f"const struct flyt_lib_kind flyt_lib_kind_{library.name}_{one.name} = {{.name = \"{one.name}\", .library = &this_library, .number = {one.number}, .also = {quoted(one.also)}, .stays = {quoted(one.stays)}, .is_small = {'true' if one.is_small else 'false'}, .is_apart = {'true' if one.is_apart else 'false'}, .is_waiting = {'true' if one.is_waiting else 'false'}, .room = {one.room}, "
            f".state_bytes = sizeof(struct flyt_state_{one.name}), .defaults = &defaults_{one.name}{mode}{places}, "
            f"{sequence}.has_stream = {'true' if one.stream_setter else 'false'}}};\n"
            f"#define kind_{one.name} flyt_lib_kind_{library.name}_{one.name}")


def value_c(library, value):
    numbered = [f for f in value.fields if f.number >= 0] # what has no number is no attribute
    fields = "\n".join(f"    {{{f.number}, offsetof(struct flyt_value_{value.name}, {f.name}), {f.bytes}}}," for f in numbered)
    table = f"static const struct flyt_lib_attribute attributes_{value.name}[] = {{\n{fields}\n}};\n" if numbered else ""
    defaults = ", ".join(f".{f.name} = {f.default}" for f in value.fields if f.default != "0")
    return (f"{table}static const struct flyt_value_{value.name} defaults_{value.name} = {{{defaults or '0'}}};\n"
            f"#define value_{value.name} flyt_lib_value_{library}_{value.name}\n"
            f"extern const struct flyt_lib_value_kind value_{value.name};\n"
            f"const struct flyt_lib_value_kind value_{value.name} = {{.bytes = sizeof(struct flyt_value_{value.name}), "
            f".room = {value.bytes}, .count = {len(numbered)}, .attributes = {f'attributes_{value.name}' if numbered else 'NULL'}, .defaults = &defaults_{value.name}, "
            f"{'.has_list = true, ' if value.has_list else ''}.magic = 0x{abs(hash_of(value.name)):08x}u}};")


def quoted(text):
    return f'"{text}"' if text else "NULL"


def hash_of(text):
    out = 2166136261
    for one in text.encode():
        out = (out ^ one) * 16777619 & 0xffffffff
    return out


def library_c(library):
    codes = ", ".join(f".{name} = {number}" for name, number in library.codes_c.items())
    return (f"#define this_library flyt_lib_{library.name}\n"
            f"const struct flyt_lib this_library = {{.name = \"{library.name}\", .soname = \"{library.soname}\", {codes}, .version = {library.version}, .use = &flyt_lib_use_of_{library.name}}};")


def source(library, banner):
    out = [banner, "#include <string.h>", '#include "cpu/client/library/library_call.h"', f'#include "flyt_lib_{library.name}.h"', "",
           f"struct flyt_lib_use flyt_lib_use_of_{library.name} = {{.mutex = PTHREAD_MUTEX_INITIALIZER}};", library_c(library)]
    out += [kind_c(library, one) for one in library.objects.values()]
    out += [value_c(library.name, one) for one in library.values.values()]
    out += [entry_c(library, call) for call in library.calls if call.kind != "hand"]
    return "\n\n".join(out) + "\n"


def second_names(library):
    """(the second name, the first) of each function that a header declares."""
    return sorted((library.also + call.symbol, call.symbol) for call in library.calls if "declares it in no header" not in call.reason)


def linker_options(library):
    """What gives functions their second names."""
    return "\n".join(f"-Wl,--defsym={second}={first}" for second, first in second_names(library)) + "\n" if library.also else "\n"


def version_script(library, banner):
    names = "\n".join(f"    {call.symbol};" for call in sorted(library.calls, key=lambda call: call.symbol))
    if library.also:
        names += "\n" + "\n".join(f"    {second};" for second, _ in second_names(library))
    name = "" if library.is_unversioned else f"{library.soname} "
    return f"{banner}\n{name}{{\nglobal:\n{names}\nlocal:\n    *;\n}};\n"
