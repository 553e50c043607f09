#!/usr/bin/env python3
"""Compares the rows of one of NVIDIA's libraries with the toolkit's header, parameter by parameter, and what the replaced
library exports with what NVIDIA's does. Skips, by name, what the toolkit does not have.

usage: library_check.py NAME.rows LIBRARY CUDA_PATH
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import elf  # noqa: E402
import library_header  # noqa: E402
import library_rows  # noqa: E402
from library_rows import NUMBERS  # noqa: E402

SKIPPED = 77
# What a value of a type is to the binary interface, and whether what it points to may be written, told by a compiler.
TELL = """#include <cstdio>
#include <cstddef>
#include <type_traits>
{headers}
template <typename T> static void tell()
{{
    using bare = std::decay_t<T>;
    if constexpr (std::is_pointer_v<bare>)
        std::puts(std::is_const_v<std::remove_pointer_t<bare>> ? "pointer const" : "pointer");
    else
        std::printf("%s %zu\\n", std::is_class_v<bare> ? "struct" : std::is_floating_point_v<bare> ? "float" : "integer", sizeof(bare));
}}
int main()
{{
{calls}
}}
"""
FLOATS, STRUCTS = {"f32", "f64"}, {"c32", "c64", "f16"}
WRITTEN = {"either", "out", "inout", "result", "update", "hout", "hinout", "new"}


def types_told(header, include, types):
    """{type as the header has it: what it is}."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "tell.cc", Path(folder) / "tell"
        calls = "\n".join(f"    tell<{one}>();" for one in types)
        source.write_text(TELL.format(headers=library_header.includes(header), calls=calls), encoding="utf-8")
        subprocess.run(["g++", "-std=c++17", "-w", f"-I{include}", "-o", program, source], check=True)
        lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(zip(types, lines))


def kind_told(library, one):
    """What the row says that a parameter is, in the same words."""
    kind = library.object_of(one)
    if kind and kind.is_small and not one.kind.startswith("new "):
        return "integer 4"
    if one.kind in NUMBERS:
        word = "float" if one.kind in FLOATS else "struct" if one.kind in STRUCTS else "integer"
        return f"{word} {NUMBERS[one.kind][1]}"
    return "pointer"


def differences(library, call, declared, told):
    """A sentence for each."""
    if len(declared) != len(call.parameters):
        return [f"has {len(call.parameters)} parameters, and {len(declared)} in {library.header}"]
    out = []
    for place, (ours, theirs) in enumerate(zip(call.parameters, declared), 1):
        is_named = theirs.name != f"p{place - 1}"
        if is_named and ours.name != theirs.name:
            out.append(f"parameter {place} is {ours.name}, and {theirs.name} in {library.header}")
        is_what = told[theirs.type]
        if kind_told(library, ours) != is_what.replace(" const", ""):
            out.append(f"{ours.name} is {ours.kind}, and {theirs.type} in {library.header}")
        elif is_what.endswith("const") and ours.kind.split()[0].rstrip("?") in WRITTEN:
            out.append(f"{ours.name} is written ({ours.kind}), and {theirs.type} in {library.header}")
    return out


def compare_header(library, include):
    """The number of differences."""
    calls = [call for call in library.calls if call.kind not in ("hand", "none") and "served" not in call.words]
    prefix = os.path.commonprefix([call.symbol for call in calls])
    declared = library_header.read(library.header, include, prefix)
    known = [call for call in calls if call.symbol in declared]
    types = sorted({one.type for call in known for one in declared[call.symbol]})
    told = types_told(library.header, include, types)
    count = 0
    for call in calls:
        found = differences(library, call, declared[call.symbol], told) if call in known else [f"is not declared in {library.header}"]
        for text in found:
            print(f"{call.place}: {call.symbol}: {text}")
        count += len(found)
    print(f"{library.name}: {len(known)} calls compared with {library.header}, {count} differences")
    return count


def compare_exports(library, ours, theirs):
    """The number of differences of two sets of elf.Symbol. What a library has of C++'s own templates is no interface of its. What is
    refused as a later release's, an earlier one lacks."""
    later = {prefix + call.symbol for call in library.calls if call.reason.startswith("of a later release") for prefix in ("", library.also)}
    ours = {one for one in ours if one.name not in later or one in theirs}
    ours, theirs = ({one for one in symbols if not one.name.startswith("_ZNSt") and one.name != "_ZSt19piecewise_construct"} for symbols in (ours, theirs))
    for what, symbols in (("lacks", theirs - ours), ("exports beyond NVIDIA's", ours - theirs)):
        for symbol in sorted(symbols, key=lambda one: one.name):
            print(f"{library.soname} {what} {symbol.name}@@{symbol.version}")
    print(f"{library.soname}: {len(ours & theirs)} of {len(theirs)} symbols as in NVIDIA's")
    return len(ours ^ theirs)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    library, built, cuda = library_rows.load(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    count, missing = 0, []
    if all((cuda / "include" / one).exists() for one in library.header.split(",")):
        count += compare_header(library, cuda / "include")
    else:
        missing.append(library.header)
    real = cuda / "lib64" / library.soname
    if real.exists():
        count += compare_exports(library, set(elf.exported(built)), set(elf.exported(real)))
    else:
        missing.append(library.soname)
    if missing: # the last line is a test's reason
        print(f"{cuda} has no {' and no '.join(missing)}")
    sys.exit(1 if count else SKIPPED if missing else 0)


if __name__ == "__main__":
    main()
