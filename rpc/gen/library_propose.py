#!/usr/bin/env python3
"""Proposes rows for the functions of a header, to be reviewed: kinds are guessed from types, const and names.

usage: library_propose.py HEADER INCLUDE_FOLDER PREFIX HANDLE_TYPE=OBJECT…

Functions that differ in a letter for their type, or in _64, become one row. What cannot be guessed has the kind `???`.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import library_header  # noqa: E402

PLAIN = {"int": "s32", "cusolver_int_t": "s32", "signed char": "s8", "int32_t": "s32", "unsigned int": "u32", "unsigned": "u32", "int64_t": "s64", "long long": "s64", "size_t": "size",
         "unsigned long long": "u64", "float": "f32", "double": "f64", "cuComplex": "c32", "cuDoubleComplex": "c64", "char": "char",
         "const char": "char", "long long int": "s64", "const int": "s32", "const size_t": "size", "cufftHandle": "cufft",
         "cufftComplex": "c32", "cufftDoubleComplex": "c64", "cufftReal": "f32", "cufftDoubleReal": "f64", "__half": "f16"}
SCALARS = {"alpha", "beta"}


def kind_of(one, objects):
    """The kind of a parameter, as text."""
    bare = re.sub(r"\s*\bconst\b\s*", " ", one.type).strip().replace(" *", "*").replace("* ", "*")
    if bare in objects:
        return objects[bare]
    if bare.rstrip("*") in objects and bare.endswith("*"):
        return "new " + objects[bare.rstrip("*")]
    if bare in ("cudaStream_t",):
        return "stream"
    if bare in PLAIN:
        return PLAIN[bare]
    if not bare.endswith("*"):
        return "enum" if bare.endswith("_t") or bare in ("cudaDataType", "libraryPropertyType", "cufftType") else "???"
    element = PLAIN.get(bare.rstrip("*"), "")
    if bare.endswith("**"):
        return "in*" if one.type.startswith("const") else "inout*"
    if one.name in SCALARS:
        return f"scalar {element or '???'}"
    if one.name == "result":
        return f"result {element or '???'}"
    return "in" if one.type.startswith("const") else "inout"


def shape(symbol, kinds):
    """(symbol with sets in braces as far as its letters say, kinds) that functions which differ in types only share."""
    wide = symbol.endswith("_64")
    base = symbol[:-3] if wide else symbol
    if wide:
        kinds = [kind.replace("s64", "N") for kind in kinds]
    return base, wide, kinds


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    header, include, prefix = sys.argv[1:4]
    objects = dict(one.split("=") for one in sys.argv[4:])
    declared = library_header.read(header, include, prefix)
    rows = {}
    for symbol, parameters in declared.items():
        kinds = [kind_of(one, objects) for one in parameters]
        base = symbol[:-3] if symbol.endswith("_64") and symbol[:-3] in declared else symbol
        rows.setdefault(base, {})[symbol] = [(one.name, kind) for one, kind in zip(parameters, kinds)]
    folded = {}
    for base, twins in rows.items():
        parameters = twins[base]
        name = base
        if base + "_64" in twins:
            name += "{N}"
            parameters = [(n, "N" if kind == "s32" and wide == "s64" else kind)
                          for (n, kind), (_, wide) in zip(parameters, twins[base + "_64"])]
        found = re.fullmatch(rf"({prefix}(?:Dn|Sp)?)([SDCZH])([a-z].*)", name)
        if found:
            number = {"S": "f32", "D": "f64", "C": "c32", "Z": "c64", "H": "f16"}[found[2]]
            parameters = [(n, re.sub(rf"\b{number}\b", "T", kind)) for n, kind in parameters]
            folded.setdefault((found[1], found[3], tuple(parameters)), []).append((found[2], number))
        else:
            folded.setdefault((name, "", tuple(parameters)), [])
    for (first, last, parameters), letters in folded.items():
        names = [letter for letter, _ in letters]
        if len(letters) == 1: # no set: the type by its name
            parameters = [(n, re.sub(r"\bT\b", letters[0][1], kind)) for n, kind in parameters]
        sets = "".join(names) if len(names) < 2 else "{T}" if names == list("SDCZ") else f"{{T:{','.join(names)}}}"
        symbol = first + sets + last
        print(f"call {symbol} stream")
        print("    " + ", ".join(f"{name} {kind}" for name, kind in parameters))


if __name__ == "__main__":
    main()
