"""What a shared library exports and imports: name and version of every global symbol, read from its dynamic symbol table.

Only what that needs of ELF is here: 64-bit little-endian files with section headers, as every x86-64 Linux library is.
"""
import struct
from dataclasses import dataclass

SHT_DYNSYM, SHT_GNU_VERDEF, SHT_GNU_VERNEED, SHT_GNU_VERSYM = 11, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
SHN_UNDEF, SHN_ABS = 0, 0xFFF1
STB_GLOBAL, STB_WEAK = 1, 2
VERSYM_HIDDEN, VERSYM_INDEX = 0x8000, 0x7FFF


class ElfError(Exception):
    """The file is no library that this reader understands; the text names it."""


@dataclass(frozen=True)
class Symbol:
    """`version` is empty where the library has none; `is_default`: NAME@@VERSION, what a linker binds to."""
    name: str
    version: str = ""
    is_default: bool = True


@dataclass(frozen=True)
class Import:
    """`library` is the file that is to have it, `version` its version there; both are empty where the library has no versions."""
    name: str
    library: str = ""
    version: str = ""


def text_at(strings, offset):
    return strings[offset:strings.index(b"\0", offset)].decode()


def sections(data, path):
    if data[:4] != b"\x7fELF" or data[4] != 2 or data[5] != 1:
        raise ElfError(f"{path}: not a 64-bit little-endian ELF file")
    offset, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    if offset == 0 or count == 0:
        raise ElfError(f"{path}: no section headers")
    # (type, file offset, bytes, link, info), the fields of Elf64_Shdr that are used
    for index in range(count):
        _, kind, _, _, start, length, link, info = struct.unpack_from("<IIQQQQII", data, offset + index * size)
        yield kind, start, length, link, info


def version_names(data, found, strings):
    """Version index -> name, from the verdef records; index 1 is the library's own name, no version."""
    names = {}
    if SHT_GNU_VERDEF not in found:
        return names
    _, at, _, _, count = found[SHT_GNU_VERDEF]
    for _ in range(count):
        _, flags, index, _, _, aux, following = struct.unpack_from("<HHHHIII", data, at)
        name, _ = struct.unpack_from("<II", data, at + aux)
        if not flags & 1:  # VER_FLG_BASE
            names[index] = text_at(strings, name)
        at += following
    return names


def versions_needed(data, found, strings):
    """Version index -> (the library's file, the version's name), from the verneed records."""
    needed = {}
    if SHT_GNU_VERNEED not in found:
        return needed
    _, at, _, _, count = found[SHT_GNU_VERNEED]
    for _ in range(count):
        _, names, file, aux, following = struct.unpack_from("<HHIII", data, at)
        place = at + aux
        for _ in range(names):
            _, _, index, name, step = struct.unpack_from("<IHHII", data, place)
            needed[index] = text_at(strings, file), text_at(strings, name)
            place += step
        at += following
    return needed


def dynamic_symbols(path):
    """The file's contents, its sections by type, the strings of its dynamic symbols, and of each of these (name, binding, section,
    its version's index or None)."""
    data = path.read_bytes()
    table = list(sections(data, path))
    found = {section[0]: section for section in table}
    if SHT_DYNSYM not in found:
        raise ElfError(f"{path}: no dynamic symbols")
    _, start, length, link, _ = found[SHT_DYNSYM]
    strings = data[table[link][1]:table[link][1] + table[link][2]]
    symbols = []
    for index in range(length // 24):
        name, info, _, section, _, _ = struct.unpack_from("<IBBHQQ", data, start + index * 24)
        version, = struct.unpack_from("<H", data, found[SHT_GNU_VERSYM][1] + index * 2) if SHT_GNU_VERSYM in found else (None,)
        symbols.append((text_at(strings, name), info >> 4, section, version))
    return data, found, strings, symbols


def exported(path):
    """Every Symbol that the library defines, by name. The absolute symbols that name its versions are left out."""
    data, found, strings, symbols = dynamic_symbols(path)
    versions = version_names(data, found, strings)
    out = []
    for name, binding, section, index in symbols:
        if section in (SHN_UNDEF, SHN_ABS) or binding not in (STB_GLOBAL, STB_WEAK):
            continue
        version = 1 if index is None else index
        out.append(Symbol(name, versions.get(version & VERSYM_INDEX, ""), not version & VERSYM_HIDDEN))
    return sorted(out, key=lambda symbol: symbol.name)


def imported(path):
    """Every Import of the library, by name: what it uses and does not define."""
    data, found, strings, symbols = dynamic_symbols(path)
    needed = versions_needed(data, found, strings)
    out = {Import(name, *needed.get((index or 0) & VERSYM_INDEX, ("", ""))) for name, _, section, index in symbols
           if section == SHN_UNDEF and name}
    return sorted(out, key=lambda one: one.name)
