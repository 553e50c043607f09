#!/usr/bin/env python3
"""Makes, from the rows of one of NVIDIA's libraries, a library with its names that writes down what it is called with
(NAME_recorder.c), and a program that calls each row once or more and writes down what has to come (NAME_caller.c).

usage: library_recorder.py OUTPUT_FOLDER NAME.rows
"""
import hashlib
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import library_client  # noqa: E402
import library_rows  # noqa: E402
import library_shared as shared  # noqa: E402
from library_rows import ADDRESSES, BY_MODE, CHECKED, HOST, NUMBERS, mode_object, split  # noqa: E402

OUT_SEED, IN_SEED = 0x5A5A, 0


def derived(call, one, bits):
    digest = hashlib.sha256(f"{call.symbol} {one.name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") & ((1 << bits) - 1)


def formulas(call):
    """The text of all extents and types of a call."""
    return [text for one in call.parameters for text in (one.extent, one.type) if text and text != "1"]


def depends_on_descriptor(call, one):
    values = {p.name for p in call.parameters if p.is_value}
    if checked(one): # where it begins depends on one, and there is none
        return False
    return bool(one.by) or bool(values & set(re.findall(r"[A-Za-z_]\w*", one.type + " " + one.extent)) and one.kind.split()[0].rstrip("?") in BY_MODE | HOST)


def checked(one):
    """What an array is that the server looks at: the word and its first number."""
    word, _, inside = one.type.partition("(")
    return (word, split(inside[:-1])[0]) if word in CHECKED else None


def number_of(call, one):
    """A value as text in C: small where the size of something depends on it, a type's number where it is one."""
    text = " ".join(formulas(call))
    if re.search(rf"\bscale\({one.name}\b", text):
        return "68"
    if re.search(rf"\b(type|scale)\([^)]*\b{one.name}\b", text):
        return "0"
    if re.search(rf"\b{one.name}\b", text):
        return str(2 + derived(call, one, 2))
    if one.kind in ("f32", "f64"):
        return f"{derived(call, one, 20)} / 64.0"
    if one.kind in ("c32", "c64"):
        return f"{{{derived(call, one, 20)} / 64.0, -3}}"
    bits = {1: 6, 2: 14, 4: 30, 8: 60, 16: 60}[NUMBERS[one.kind][1]]
    return f"{derived(call, one, bits)}" + ("ll" if bits > 30 else "")


def size_of(one):
    return f"(size_t)({one.extent}) * {shared.element_bytes(one.type)}"


def seed(call, place, is_out):
    return f"{(call.id + place * 7919 + (OUT_SEED if is_out else IN_SEED)) & 0xffffffff:#x}u"


def recorded(library, call, number, mode):
    """Statements that write a call down. `number`: an object parameter's number as text; `mode`: whether numbers by the
    pointer mode are on the device, as text."""
    lines = [f'    static _Thread_local struct record record;\n    record.at = (size_t)sprintf(record.text, "{call.symbol}");']
    for one in call.parameters:
        word, name = one.kind.split()[0].rstrip("?"), one.name
        if library.object_of(one):
            if word != "new":
                lines.append(f'    record_word(&record, "{name}", \'#\', {number(one)});')
        elif one.kind in NUMBERS:
            lines.append(f'    record_bytes(&record, "{name}", &{name}, sizeof {name});')
        elif one.kind in ADDRESSES | {"either"}:
            lines.append(f'    record_word(&record, "{name}", \'@\', (uint64_t)(uintptr_t){name});')
        elif one.is_value:
            lines.append(f'    record_word(&record, "{name}", \'v\', {name} != NULL);')
        elif word == "stream":
            lines.append(f'    record_stream(&record, "{name}", {name});')
        elif depends_on_descriptor(call, one):
            continue
        elif word == "scratch":
            lines.append(f'    record_word(&record, "{name}", \'s\', {name} ? (uint64_t)({one.extent}) : 0);')
        elif word in BY_MODE:
            if word == "result":
                lines.append(f'    record_word(&record, "{name}", \'@\', {mode} ? (uint64_t)(uintptr_t){name} : 0);')
            else:
                lines += [f"    if ({mode})", f'        record_word(&record, "{name}", \'@\', (uint64_t)(uintptr_t){name});', "    else",
                          f'        record_bytes(&record, "{name}", {name}, {size_of(one)});']
        elif word in ("hin", "hinout"):
            lines.append(f'    record_bytes(&record, "{name}", {name}, {size_of(one)});')
        else:
            lines.append(f'    record_word(&record, "{name}", \'o\', {name} != NULL);')
    return lines + [f'    record_{library.object_of(one).name}(&record, "{one.name}", {number(one)});' for one in used(library, call)]


def used(library, call):
    """The parameters that are objects which the call works with as they are set."""
    return [one for one in call.parameters if call.kind in ("stream", "sync") and library.object_of(one) and not one.kind.startswith("new ")]


def tracked(kind):
    """The fields of an object that the server gives the library as the program has set them: not where it works, for which the client
    has memory of its own, nor how many SMs there are."""
    names = {name for _, fields, _ in kind.applies for name in fields if not kind.area} - {kind.sms_field, *kind.workspace}
    return [one for one in kind.fields if one.name in names]


def set_up(kind, where, begins):
    """How an object of the kind is set: a type, and the function that writes that down. `where`: it, as text with the object's number;
    `begins`: of a field, what is there at first, as text."""
    fields = ["void *stream;"] + [f"{NUMBERS[one.type][0]} {one.name};" for one in tracked(kind)]
    lines = [f'    record_stream(record, "stream", {where}.stream);'] if kind.stream_setter else []
    lines += [f'    record_bytes(record, "{one.name}", &{where}.{one.name}, sizeof {where}.{one.name});' for one in tracked(kind)]
    values = ", ".join(f".{one.name} = {begins(one)}" for one in tracked(kind))
    return (f"struct set_{kind.name} {{\n    {' '.join(fields)}\n}};", values,
            f"static void record_{kind.name}(struct record *record, const char *name, uint64_t number)\n{{\n    (void)record, (void)name;\n"
            "    if (!number)\n        return;\n" + "\n".join(lines) + "\n}")


def written(call):
    """(place, parameter, is by mode) of what a call writes into host memory."""
    for place, one in enumerate(call.parameters):
        word = one.kind.split()[0].rstrip("?")
        if word in ("hout", "hinout", "result", "update") and not depends_on_descriptor(call, one):
            yield place, one, word in BY_MODE


# ---- the library ----

def looked_at(call, one, mode):
    """Statements that write down where host memory is that the library may not read as numbers of 16 bytes."""
    word = one.kind.split()[0].rstrip("?")
    if word in BY_MODE and not one.by:
        return [f"    if (!({mode}))", f'        record_place(&record, "{one.name}", {one.name});']
    return [f'    record_place(&record, "{one.name}", {one.name});'] if word in HOST | {"scratch"} else []


def recorder_function(library, call):
    def number(one):
        kind = library.object_of(one)
        if kind.room:
            return f"({one.name} ? *(const uint64_t *){one.name} : 0)"
        return f"(uint64_t){one.name}" if kind.is_small else f"number_of({one.name})"
    mode = mode_object(library, call)
    objects = [one for one in call.parameters if library.object_of(one)]
    mode_text = f"modes[number_of({objects[mode[0]].name})]" if mode and shared.needs_mode(call) else "0"
    lines = recorded(library, call, number, mode_text)
    lines += [text for one in call.parameters for text in looked_at(call, one, mode_text)]
    for place, one, by_mode in written(call):
        lines += [f"    if (!({mode_text if by_mode else '0'}))", f"        fill({one.name}, {size_of(one)}, {seed(call, place, True)});"]
    for one in call.parameters:
        if one.kind == "scratch":
            lines.append(f"    memset({one.name}, 1, {one.name} ? (size_t)({one.extent}) : 0);")
        if one.kind.startswith("new "):
            kind = library.object_of(one)
            made = (f"*(uint64_t *){one.name} = ++made_count;" if kind.room else f"*{one.name} = (int)++made_count;" if kind.is_small else
                    f"*{one.name} = (void *)(uintptr_t)(OBJECTS + ++made_count);")
            lines += [f"    {made}", f'    record_word(&record, "{one.name}", \'#\', made_count);']
    text = library_client.prototype(library, call).replace("const void *", "void *")
    return f"{text}\n{{\n" + "\n".join(lines) + f'\n    record_end(&record, "FLYT_RECORD");\n    return {library.codes["success"]};\n}}'


def recorder_setters(library):
    """What the server calls of itself."""
    out, streams = [], {}
    for one in library.objects.values():
        handle = "int handle" if one.is_small else "void *handle"
        number = "*(const uint64_t *)handle" if one.room else "handle" if one.is_small else "number_of(handle)"
        type_, values, function = set_up(one, f"set_{one.name}[number]", lambda field: field.default)
        begins = f" = {{[0 ... OBJECTS_MAX - 1] = {{{values}}}}}" if values else ""
        out += [type_, f"static struct set_{one.name} set_{one.name}[OBJECTS_MAX]{begins};", function]
        if one.stream_setter:
            streams.setdefault(one.stream_setter, []).append(f"    set_{one.name}[{number}].stream = stream;")
        kept = {field.name for field in tracked(one)}
        types = {field.name: NUMBERS[field.type][0] for field in one.fields}
        for setter, names, _ in one.applies:
            lines = [f"    set_{one.name}[{number}].{name} = {name};" for name in names if name in kept]
            out.append(f"FLYT_LIB_ENTRY int {setter}({', '.join([handle] + [f'{types[name]} {name}' for name in names])})\n{{\n" +
                       "\n".join(lines + [f"    return {library.codes['success']};"]) + "\n}")
        if one.mode_setter:
            out.append(f"FLYT_LIB_ENTRY int {one.mode_setter}({handle}, int mode)\n{{\n    modes[number_of(handle)] = mode;\n    return {library.codes['success']};\n}}")
    for setter, lines in streams.items(): # one may be that of several kinds
        handle = "int handle" if "[handle]" in lines[0] else "void *handle"
        out.append(f"FLYT_LIB_ENTRY int {setter}({handle}, void *stream)\n{{\n" + "\n".join(lines + [f"    return {library.codes['success']};"]) + "\n}")
    return out


def recorder(library, banner):
    major, minor = divmod(library.version, 1000)
    calls = [call for call in library.calls if call.is_sent]
    out = [banner, '#include "tests/system/programs/library_record.h"', '#define FLYT_LIB_ENTRY __attribute__((visibility("default")))',
           "enum { OBJECTS = 0x1000, OBJECTS_MAX = 4096 };", "static unsigned made_count;\nstatic int modes[OBJECTS_MAX];",
           "static inline uint64_t number_of(const void *handle)\n{\n    return handle ? (uint64_t)(uintptr_t)handle - OBJECTS : 0;\n}",
           f"FLYT_LIB_ENTRY int {library.property}(int type, int *value)\n{{\n    *value = type == 0 ? {major} : type == 1 ? {minor} : 0;\n    return 0;\n}}"]
    out += recorder_setters(library) + [recorder_function(library, call) for call in calls]
    return "\n\n".join(out) + "\n"


# ---- the program ----

def caller_value(library, call, place, one):
    """(statements, the argument) of a parameter."""
    word, name, kind = one.kind.split()[0].rstrip("?"), one.name, library.object_of(one)
    if kind:
        if word == "new" and kind.room:
            return [f"    static uint64_t {name}_room[{kind.room} / 8];", f"    void *{name} = {name}_room;"], name
        if word == "new":
            return [f"    {'int ' if kind.is_small else 'void *'}{name} = 0;"], f"&{name}"
        c_type = "int " if kind.is_small else "void *"
        value = f"has_all ? object_{kind.name} : 0" if one.is_optional else f"object_{kind.name}"
        return [f"    {c_type}{name} = {value};"], name
    if one.kind in NUMBERS:
        return [f"    {NUMBERS[one.kind][0]} {name} = {number_of(call, one)};"], name
    if one.kind in ADDRESSES | {"either"}:
        return [f"    void *{name} = (void *)(uintptr_t){derived(call, one, 44)}ull;"], name
    if word == "stream":
        return [f"    void *{name} = current_stream;"], name
    if one.is_value:
        return [f"    void *{name} = NULL;"], name
    lines = [f"    static unsigned char {name}_bytes[4096];", f"    void *{name} = {name}_bytes;"]
    if depends_on_descriptor(call, one) or word == "scratch":
        return lines, name
    if word in BY_MODE:
        return lines + ["    if (is_on_device)", f"        {name} = (void *)(uintptr_t){derived(call, one, 44)}ull;", "    else",
                        f"        fill({name}_bytes, {size_of(one)}, {seed(call, place, False)});"], name
    if checked(one):
        word, number = checked(one)
        return lines + [f"    fill_{word}({name}_bytes, {one.extent}, {number});"], name
    return lines + [f"    fill({name}_bytes, {size_of(one)}, {seed(call, place, False)});"], name


def caller_function(library, call):
    values = [(one, caller_value(library, call, place, one)) for place, one in enumerate(call.parameters)]
    # Numbers first: sizes depend on them.
    ordered = sorted(values, key=lambda pair: pair[0].kind not in NUMBERS)
    lines = ["    (void)is_on_device, (void)has_all;"] + [text for _, (statements, _) in ordered for text in statements]

    def number(one):
        kind = library.object_of(one)
        return f"has_all ? number_{kind.name} : 0" if one.is_optional else f"number_{kind.name}"
    if call.kind == "end":
        kind = library.object_of(call.parameters[0])
        first = maker(library, kind)
        lines = [f"    call_{first.symbol}(0, 0, 1);"] + lines
    news = [one for one in call.parameters if one.kind.startswith("new ")]
    expected = recorded(library, call, number, "is_on_device")
    lines += ["    if (is_expected) {"] + ["    " + line for text in expected for line in text.split("\n")]
    lines += [f'        record_word(&record, "{one.name}", \'#\', ++made_count);' for one in news]
    lines += ['        record_end(&record, "FLYT_EXPECTED");', "    }"]
    arguments = ", ".join(argument for _, (_, argument) in values)
    if "area" in call.words: # whose size is what the recorder has written
        lines.append(f"    {without_area(library, call).symbol}({next(one.name for one in call.parameters if library.object_of(one))}, 0);")
    lines.append(f'    check({call.symbol}({arguments}), {library.codes["success"]}, "{call.symbol}");')
    for place, one, by_mode in written(call):
        lines += [f"    if (!({'is_on_device' if by_mode else '0'}) && !is_filled({one.name}_bytes, {size_of(one)}, {seed(call, place, True)}))",
                  f'        wrong("{call.symbol}", "{one.name}");']
    for one in news:
        kind = library.object_of(one)
        lines += [f"    object_{kind.name} = {one.name};", f"    number_{kind.name} = made_count;"]
    if call.kind == "end": # the others go on with one that there is
        lines += [f"    call_{maker(library, library.object_of(call.parameters[0])).symbol}(0, 0, 1);"]
    return f"static void call_{call.symbol}(int is_on_device, int has_all, int is_expected)\n{{\n" + "\n".join(lines) + "\n}"


def setters(library, kind):
    """The calls that set what is tracked."""
    names = {field.name for field in tracked(kind)}
    return [call for call in library.calls if call.kind == "set" and library.object_of(call.parameters[0]) is kind and
            all(text.split("=")[0] in names for text in call.arguments)]


def caller_settings(library):
    """What an object of each kind is to be set to, and the function that sets all of that, in another stream."""
    out, lines = [], ['    check(cudaStreamCreate(&current_stream), 0, "cudaStreamCreate");']
    for kind in library.objects.values():
        type_, values, function = set_up(kind, f"set_{kind.name}", lambda field: field.first or field.default)
        out += [type_, f"static struct set_{kind.name} set_{kind.name}" + (f" = {{{values}}};" if values else ";"), function]
        if kind.stream_setter:
            lines += [f'    check({kind.stream_setter}(object_{kind.name}, current_stream), {library.codes["success"]}, "{kind.stream_setter}");',
                      f"    set_{kind.name}.stream = current_stream;"]
        types = {field.name: field.type for field in kind.fields}
        for call in setters(library, kind):
            lines.append("    {")
            for text in call.arguments:
                field, name = text.split("=")
                bits = {"enum": 1, "s32": 10}.get(types[field], 30)
                lines.append(f"        set_{kind.name}.{field} = {derived(call, call.parameters[0], bits) | 1};")
            given = {text.split("=")[1]: text.split("=")[0] for text in call.arguments}
            values = [f"(void *)(uintptr_t)set_{kind.name}.{given[one.name]}" if one.kind in ADDRESSES else f"set_{kind.name}.{given[one.name]}"
                      for one in call.parameters[1:]]
            lines += [f'        check({call.symbol}({", ".join([f"object_{kind.name}"] + values)}), {library.codes["success"]}, "{call.symbol}");', "    }"]
    return out + ["static void set_all(void)\n{\n" + "\n".join(lines) + "\n}"]


def without_area(library, call):
    """The setter that says whether the call's object gets a work area."""
    kind = next(library.object_of(one) for one in call.parameters if library.object_of(one))
    return next(one for one in library.calls if one.kind == "set" and one.arguments[0].split("=")[0] == kind.area[1])


def maker(library, kind):
    return next(call for call in library.calls if call.kind == "new" and any(p.kind == f"new {kind.name}" for p in call.parameters))


def caller(library, banner):
    calls = [call for call in library.calls if call.is_sent]
    calls.sort(key=lambda call: call.kind != "new")
    out = [banner, '#include "tests/system/programs/library_record.h"', "extern int cudaDeviceSynchronize(void);",
           "extern int cudaStreamCreate(void **);\nstatic void *current_stream;", "static unsigned made_count, wrong_count;",
           "static void check(int status, int wanted, const char *name)\n{\n    if (status != wanted) {\n"
           '        printf("%s: status %d, expected %d\\n", name, status, wanted);\n        wrong_count++;\n    }\n}',
           "static void wrong(const char *name, const char *parameter)\n{\n"
           '    printf("%s: %s is not what the library wrote\\n", name, parameter);\n    wrong_count++;\n}']
    for kind in library.objects.values():
        out.append(f"static {'int ' if kind.is_small else 'void *'}object_{kind.name};\nstatic unsigned number_{kind.name};")
    out += [library_client.prototype(library, call).replace("FLYT_LIB_ENTRY", "extern").replace("const void *", "void *") + ";" for call in calls]
    refused = [call for call in library.calls if call.kind == "none"]
    out += [f"extern int {call.symbol}();" for call in refused]
    out += sorted({f"extern int {without_area(library, call).symbol}();" for call in calls if "area" in call.words})
    modes = {one.mode_setter: one for one in library.objects.values() if one.mode_setter}
    out += [f"extern int {name}({'int' if one.is_small else 'void *'}, int);" for name, one in modes.items()]
    declared = {call.symbol for call in calls}
    for kind in library.objects.values():
        if kind.stream_setter and kind.stream_setter not in declared:
            out.append(f"extern int {kind.stream_setter}({'int' if kind.is_small else 'void *'}, void *);")
            declared.add(kind.stream_setter)
        out += [library_client.prototype(library, call).replace("FLYT_LIB_ENTRY", "extern").replace("const void *", "void *") + ";" for call in setters(library, kind)]
    out += caller_settings(library) + [caller_function(library, call) for call in calls]
    main = [f"    call_{maker(library, kind).symbol}(0, 0, 1);" for kind in library.objects.values()]
    for call in calls:
        main.append(f"    call_{call.symbol}(0, 1, 1);")
        if call.kind in ("stream", "cached"): # sent without waiting; from what was answered
            main.append(f"    call_{call.symbol}(0, 1, {0 if call.kind == 'cached' else 1});")
        if any(library.object_of(p) and p.is_optional for p in call.parameters):
            main.append(f"    call_{call.symbol}(0, 0, 1);")
        mode = mode_object(library, call)
        if mode and shared.needs_mode(call):
            setter, name = mode[1].mode_setter, mode[1].name
            main += [f"    {setter}(object_{name}, 1);", f"    call_{call.symbol}(1, 1, 1);", f"    {setter}(object_{name}, 0);"]
    main += ["    set_all();"] + [f"    call_{call.symbol}(0, 1, 1);" for call in calls if call.kind in ("stream", "sync")]
    main += [f'    check({call.symbol}(), {library.codes["refused"]}, "{call.symbol}");' for call in refused]
    main += ['    check(cudaDeviceSynchronize(), 0, "cudaDeviceSynchronize");', "    return wrong_count ? 1 : 0;"]
    out.append("int main(void)\n{\n" + "\n".join(main) + "\n}")
    return "\n\n".join(out) + "\n"


def leave_out_served(library):
    """What is served by hand has no prototype in the rows; and without it, objects that only it makes are not there. A
    call before which the server asks for the size of its scratch comes as two."""
    calls = [call for call in library.calls if "served" not in call.words and not any(p.extent.startswith("of ") for p in call.parameters)]
    made = {p.type for call in calls for p in call.parameters if p.kind.startswith("new ")}
    gone = {one.name for one in library.objects.values() if one.name not in made}
    library.calls = [call for call in calls if not any(library.object_of(p) and library.object_of(p).name in gone for p in call.parameters)]
    library.objects = {name: one for name, one in library.objects.items() if name not in gone}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    out, path = Path(sys.argv[1]), sys.argv[2]
    library = library_rows.load(path)
    leave_out_served(library)
    banner = f"/* Made from {path} by rpc/gen/library_recorder.py: edit that. */"
    (out / f"{library.name}_recorder.c").write_text(recorder(library, banner), encoding="utf-8")
    (out / f"{library.name}_caller.c").write_text(caller(library, banner), encoding="utf-8")


if __name__ == "__main__":
    main()
