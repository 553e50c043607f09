"""The server's side of a library: for each call a function that gives NVIDIA's library the arguments which came."""
import re

import library_shared as shared
from library_client import hash_of, quoted
from library_rows import ADDRESSES, BY_MODE, CHECKED, HOST, NUMBERS, mode_object, split


def of_arguments(call):
    """Makes a formula over parameters one over the arguments that came."""
    names = {one.name for one in call.parameters if one.kind in NUMBERS or one.is_value}
    return lambda formula: re.sub(r"[A-Za-z_]\w*", lambda found: f"sent->{found[0]}" if found[0] in names else found[0], formula)


def c_type(library, one):
    if one.kind in NUMBERS:
        return NUMBERS[one.kind][0]
    kind = library.object_of(one)
    if kind and kind.is_small and not one.kind.startswith("new "):
        return "int"
    return "void *"


def argument(library, call, one, places):
    """(statements before the call, the expression) of a parameter."""
    word = one.kind.split()[0].rstrip("?")
    kind = library.object_of(one)
    if kind and word == "new":
        return [], "call->made" if kind.room else "&call->made"
    if kind:
        place = f"call->objects[{places[one.name]}]"
        real = f"({place} ? {place}->real : NULL)" if one.is_optional else f"{place}->real"
        return [], f"(int)(intptr_t){real}" if kind.is_small else real
    if one.kind in NUMBERS:
        return [], f"sent->{one.name}"
    if one.kind in ADDRESSES:
        return [], f"(void *)(uintptr_t)sent->{one.name}"
    if one.kind == "either":
        return [f"    void *const {one.name} = flyt_libcall_either(call, sent->{one.name}, {shared.extent_bytes(one, of_arguments(call))}, "
                f"{library.objects[one.by].number});"], one.name
    if one.kind == "stream":
        return [], "call->cu_stream"
    if word == "scratch" and one.extent.startswith("of "):
        return scratch_of(library, call, one, places)
    if word == "scratch":
        return [f"    void *const {one.name} = flyt_libcall_scratch(call, sent->{one.name}_bytes, (size_t)({of_arguments(call)(one.extent)}));"], one.name
    if one.is_value:
        function = "flyt_libcall_value" if word == "val" else "flyt_libcall_value_set"
        return [f"    void *const {one.name} = {function}(call, &sent->{one.name}, &value_{one.type});"], one.name
    if word in BY_MODE:
        size = f"(size_t)({of_arguments(call)(one.extent)}) * {shared.element_bytes(one.type, of_arguments(call))}"
        mode = of_arguments(call)(one.by) if one.by else "sent->pointer_mode"
        return [f"    void *const {one.name} = flyt_libcall_scalar(call, &sent->{one.name}, {size}, {mode}, {'false' if word == 'scalar' else 'true'});"], one.name
    size = shared.extent_bytes(one, of_arguments(call))
    function = word[1:]
    before = [] if one.is_optional else [f"    flyt_libcall_require(call, sent->{one.name}_bytes, {size});"]
    return before + [f"    void *const {one.name} = flyt_libcall_{function}(call, sent->{one.name}_bytes, {size});"] + check(call, one), one.name


def check(call, one):
    """Of an array that the library follows: looks whether it may."""
    word, _, inside = one.type.partition("(")
    if word not in CHECKED:
        return []
    formulas = ", ".join(map(of_arguments(call), split(inside[:-1])))
    return [f"    flyt_libcall_check_{word}(call, {one.name}, sent->{one.name}_bytes / 4, {formulas});"]


def scratch_of(library, call, one, places):
    """Memory of as many bytes as another function of the library's says, from the parameters that it has of the same names."""
    other = next(other for other in library.calls if other.symbol == one.extent[3:])
    by_name = {p.name: p for p in call.parameters}
    arguments = [argument(library, call, by_name[p.name], places)[1] if p.name in by_name else f"&{one.name}_wanted" for p in other.parameters]
    types = ", ".join(c_type(library, p) for p in other.parameters)
    return [f"    size_t {one.name}_wanted = 0;", f"    void *{one.name} = NULL;",
            f"    if (sent->{one.name}_bytes && !call->status) {{",
            f"        int (*tell)({types}) = (int (*)({types}))flyt_server_library_function(call->library, \"{other.symbol}\");",
            f"        call->status = tell ? tell({', '.join(arguments)}) : call->library->refused;",
            f"        {one.name} = call->status ? NULL : flyt_libcall_scratch(call, {one.name}_wanted, {one.name}_wanted);", "    }"], one.name


def room_c(library, call, made):
    """The call of the library's function. What makes an object in memory that is given for that, or ends it, gives or frees that memory."""
    rooms = [one for one in call.parameters if call.kind in ("new", "end") and library.object_of(one) and library.object_of(one).room]
    if not rooms:
        return [f"    return {made};"]
    if call.kind == "end":
        return [f"    int status = {made};", "    free(call->objects[0]->real);", "    return status;"]
    return [f"    call->made = calloc(1, {library.object_of(rooms[0]).room});", "    if (!call->made)", f"        return {library.codes['memory']};",
            f"    int status = {made};", f"    if (status != {library.codes['success']}) {{", "        free(call->made);", "        call->made = NULL;", "    }",
            "    return status;"]


def run_c(library, call):
    if "served" in call.words:
        finds = f"\nCUresult flyt_server_resolve_{call.symbol}(struct flyt_libcall *call);" if "finds" in call.words else ""
        gathers = f"\nenum flyt_gathered flyt_server_gather_{call.symbol}(struct flyt_libcall *call);" if "gathers" in call.words else ""
        return f"int flyt_server_run_{call.symbol}(struct flyt_libcall *call);{finds}{gathers}"
    objects = [p.name for p in call.parameters if library.object_of(p) and not p.kind.startswith("new ")]
    places = {name: place for place, name in enumerate(objects)}
    values, before, after, arguments, types = [], [], [], [], []
    for one in call.parameters:
        statements, expression = argument(library, call, one, places)
        if one.is_value: # what others depend on
            values += statements
        elif one.extent.startswith("of "): # it is asked for with the others
            after += statements
        else:
            before += statements
        arguments.append(expression)
        types.append(c_type(library, one))
    mode = mode_object(library, call) if shared.needs_mode(call) else None
    lines = [f"    const struct flyt_args_{call.symbol} *sent = (const void *)call->arguments;", "    (void)sent;"]
    if mode:
        lines.append(f"    flyt_libcall_mode(call, {mode[0]}, sent->pointer_mode);")
    if "staged" in call.words:
        lines.append("    flyt_libcall_stage(call, &sent->stage);")
    lines += values + before + after
    if values or before or mode:
        lines += ["    if (call->status)", "        return call->status;"]
    made = f"((int (*)({', '.join(types) or 'void'}))call->function)({', '.join(arguments)})"
    lines += room_c(library, call, made)
    return f"static int run_{call.symbol}(struct flyt_libcall *call)\n{{\n" + "\n".join(lines) + "\n}"


def answers(call):
    """Whether it may write the program's memory."""
    return bool(call.of("result", "update", "hout", "hinout")) or any(one.kind.startswith("set ") for one in call.parameters)


def made_as(library, call):
    """What objects are compared by that a call makes: by its number; where the client may have one made again by another call of the
    kind, which rows do not say, by the kind."""
    new = next((library.object_of(p) for p in call.parameters if p.kind.startswith("new ")), None)
    return hash_of(f"{library.name} {new.name}") if new and "served" in call.words else call.id if new else 0


def row_c(library, call):
    kinds = [library.object_of(p).number for p in call.parameters if library.object_of(p) and not p.kind.startswith("new ")]
    optional = sum(1 << place for place, p in enumerate(p for p in call.parameters if library.object_of(p) and not p.kind.startswith("new "))
                   if p.is_optional)
    new = [library.object_of(p).number for p in call.parameters if p.kind.startswith("new ")]
    words = ["FLYT_LIBCALL_WAITS"] if "waits" in call.words else []
    words += ["FLYT_LIBCALL_IN_STREAM"] if call.kind in ("stream", "more") else []
    words += ["FLYT_LIBCALL_ANSWERS"] if call.kind == "stream" and answers(call) else []
    words += [f"FLYT_LIBCALL_{word.upper().replace(' ', '_')}" for word in ("apart", "at once") if word in call.words]
    words += ["FLYT_LIBCALL_IS_ASIDE"] if call.kind == "aside" else []
    words += ["FLYT_LIBCALL_NEW"] if call.kind == "new" else ["FLYT_LIBCALL_END"] if call.kind == "end" else []
    text = ", ".join(map(str, kinds)) or "0"
    is_served = "served" in call.words
    run = f"flyt_server_run_{call.symbol}" if is_served else f"run_{call.symbol}"
    run += f", .resolve = flyt_server_resolve_{call.symbol}" if "finds" in call.words else ""
    run += f", .gather = flyt_server_gather_{call.symbol}" if "gathers" in call.words else ""
    return (f"    {{.id = {call.id:#x}u, .name = \"{call.symbol}\", .run = {run}, .bytes = sizeof(struct flyt_args_{call.symbol}), "
            f".object_count = {len(kinds)}, .kinds = {{{text}}}, .optional = {optional}, .made = {new[0] if new else 0}, .made_as = {made_as(library, call):#x}u, .flags = {' | '.join(words) or '0'}}},")


def apply_c(library, one):
    """Gives the library what an object is to have and has not."""
    handle = "(int)(intptr_t)real" if one.is_small else "real"
    handle_type = "int" if one.is_small else "void *"
    state = f"struct flyt_state_{one.name}"
    lines = [f"static int apply_{one.name}(struct flyt_server_library *self, void *real, const void *wanted, void *present, bool is_streamed)\n{{",
             f"    const {state} *want = wanted;", f"    {state} *have = present;",
             "    (void)self, (void)real, (void)want, (void)have, (void)is_streamed;"]
    by_name = {f.name: f for f in one.fields}
    for setter, names, streamed in one.applies:
        differs = " || ".join(f"want->{name} != have->{name}" for name in names)
        if streamed:    # without it the stream's setter has taken it away
            differs = f"want->{names[0]} && (is_streamed || {differs})"
        types = ", ".join([handle_type] + [NUMBERS[by_name[name].type][0] for name in names])
        values = ", ".join([handle] + [f"want->{name}" for name in names])
        lines += [f"    if ({differs}) {{", f"        void *function = flyt_server_library_function(self, \"{setter}\");",
                  f"        int status = function ? ((int (*)({types}))function)({values}) : {library.codes['refused']};",
                  f"        if (status != {library.codes['success']})", "            return status;", "    }"]
        lines += [f"    have->{name} = want->{name};" for name in names]
    lines += [f"    return {library.codes['success']};", "}"]
    return "\n".join(lines)


def kind_c(library, one):
    defaults = ", ".join(f".{f.name} = {f.default}" for f in one.fields if f.default != "0")
    return (f"static const struct flyt_state_{one.name} defaults_{one.name} = {{{defaults or '0'}}};\n" + apply_c(library, one),
            f"    {{.name = \"{one.name}\", .also = {quoted(one.also)}, .stays = {quoted(one.stays)}, .is_small = {'true' if one.is_small else 'false'}, .has_room = {'true' if one.room else 'false'}, .is_sequential = {'true' if one.is_sequential else 'false'}, .is_unstreamed = {'true' if one.is_unstreamed else 'false'}, .is_waiting = {'true' if one.is_waiting else 'false'}, .is_bound = {'true' if one.is_bound else 'false'}, .is_light = {'true' if one.is_light else 'false'}, .state_bytes = sizeof(struct flyt_state_{one.name}), "
            + (f".has_sms = true, .sms_at = offsetof(struct flyt_state_{one.name}, {one.sms_field}), " if one.sms_field else "")
            + "".join(f".is_reset = true, .reset_at = offsetof(struct flyt_state_{one.name}, {names[0]}), " for _, names, streamed in one.applies if streamed) +
            f".defaults = &defaults_{one.name}, .apply = apply_{one.name}, .stream_setter = {quoted(one.stream_setter)}, "
            f".mode_setter = {quoted(one.mode_setter)}}},")


def defaults(value):
    return ", ".join(f".{f.name} = {f.default}" for f in value.fields if f.default != "0") or "0"


def value_c(library, value):
    """How a descriptor is made for a call: its `create` function gets the fields that it names."""
    if value.of:
        return f"extern const struct flyt_server_value flyt_server_value_{value.of}_{value.name};\n#define value_{value.name} flyt_server_value_{value.of}_{value.name}"
    by_name = {f.name: f for f in value.fields}
    fields = "\n".join(f"    {{{f.number}, offsetof(struct flyt_value_{value.name}, {f.name}), {f.bytes}}},"
                       for f in value.fields if f.name not in value.create and f.number >= 0)
    types = ", ".join(["void *"] + [NUMBERS[by_name[name].type][0] for name in value.create[1:]])
    values = ", ".join(["made"] + [f"value->{name}" for name in value.create[1:]])
    name = f"flyt_server_value_{library.name}_{value.name}"
    filled = f"flyt_server_fill_{library.name}_{value.name}" if value.is_filled else ""
    made = f"flyt_server_make_{library.name}_{value.name}" if value.is_made else ""
    told = f"flyt_server_tell_{library.name}_{value.name}" if value.is_told else ""
    ended = f"flyt_server_end_{library.name}_{value.name}" if value.is_ended else ""
    before = f"int {filled}(struct flyt_libcall *call, const void *value, const void *list, void *real);\n" if filled else ""
    before += f"int {made}(struct flyt_libcall *call, const void *value, void **ret_real);\n" if made else ""
    before += f"int {told}(struct flyt_libcall *call, void *real, void *value);\n" if told else ""
    before += f"void {ended}(struct flyt_libcall *call, void *real);\n" if ended else ""
    before += f"_Static_assert(sizeof(struct flyt_value_{value.name}) <= FLYT_LIBCALL_VALUE_BYTES_MAX, \"it is told\");\n" if told else ""
    if filled or made:
        fields = ""
    more = (f", .fill = {filled}" if filled else "") + (f", .make = {made}" if made else "") + (f", .tell = {told}" if told else "") + (f", .end = {ended}" if ended else "") + (
        f", .list_at = offsetof(struct flyt_value_{value.name}, list_bytes)" if value.has_list else "")
    create = "" if made else (f"static int create_{value.name}(void *function, const void *from, void *made)\n{{\n"
                              f"    const struct flyt_value_{value.name} *value = from;\n    (void)value;\n"
                              f"    return ((int (*)({types}))function)({values});\n}}\n")
    creates = "" if made else f".create = create_{value.name}, .create_name = \"{value.create[0]}\", "
    return (f"{before}{create}static const struct flyt_value_{value.name} defaults_{value.name} = {{{defaults(value)}}};\n"
            + (f"static const struct flyt_server_attribute attributes_{value.name}[] = {{\n{fields}\n}};\n" if fields else "") +
            f"#define value_{value.name} {name}\nextern const struct flyt_server_value {name};\nconst struct flyt_server_value {name} = {{.bytes = sizeof(struct flyt_value_{value.name}), {creates}"
            f".attribute_name = {quoted(value.attribute)}, .destroy_name = {quoted(value.destroy)}, "
            + (f".attributes = attributes_{value.name}, .count = sizeof attributes_{value.name} / sizeof attributes_{value.name}[0], " if fields else "") +
            f".magic = 0x{hash_of(value.name):08x}u, .defaults = &defaults_{value.name}{more}}};")


def symbols(library):
    """What the server may call of the library: all that its rows name and do not refuse."""
    names = {call.symbol for call in library.calls if call.kind != "none"}
    for one in library.objects.values():
        names |= {one.stream_setter, one.mode_setter} | {setter for setter, _, _ in one.applies}
    for value in library.values.values():
        names |= {value.attribute, value.destroy, *value.create[:1], *value.functions}
    return sorted(names - {"", None})


def source(library, banner):
    sent = sorted((call for call in library.calls if call.is_sent), key=lambda call: call.id)
    kinds = [kind_c(library, one) for one in library.objects.values()]
    codes = ", ".join(f".{name} = {number}" for name, number in library.codes_c.items())
    out = [banner, "#include <stdlib.h>", '#include "cpu/server/library/library.h"', f'#include "flyt_lib_{library.name}.h"']
    out += [text for text, _ in kinds]
    out += [value_c(library, one) for one in library.values.values()]
    out += [run_c(library, call) for call in sent]
    out.append("static const struct flyt_server_row rows[] = {\n" + "\n".join(row_c(library, call) for call in sent) + "\n};")
    out.append("static const struct flyt_server_kind kinds[] = {\n" + "\n".join(text for _, text in kinds) + "\n};")
    out.append("static const char *const symbols[] = {\n" + "\n".join(f"    {quoted(name)}," for name in symbols(library)) + "\n};")
    out.append(f"struct flyt_server_library flyt_server_library_{library.name} = {{.name = \"{library.name}\", .soname = \"{library.soname}\", .property = \"{library.property}\", .is_code = {'true' if library.is_code else 'false'}, .mutex = PTHREAD_MUTEX_INITIALIZER, "
               f".rows = rows, .row_count = sizeof rows / sizeof rows[0], .kinds = kinds, "
               f".kind_count = sizeof kinds / sizeof kinds[0], .symbols = symbols, .symbol_count = sizeof symbols / sizeof symbols[0], {codes}}};")
    return "\n\n".join(out) + "\n"


__all__ = ["source", "symbols", "HOST"]
