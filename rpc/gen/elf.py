"""What a shared library exports: name and version of every defined global symbol, read from its dynamic symbol table.

Only what that needs of ELF is here: 64-bit little-endian files with section headers, as every x86-64 Linux library is.
"""
import struct
from dataclasses import dataclass

SHT_DYNSYM, SHT_GNU_VERDEF, SHT_GNU_VERSYM = 11, 0x6FFFFFFD, 0x6FFFFFFF
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


def exported(path):
    """Every Symbol that the library defines, by name. The absolute symbols that name its versions are left out."""
    data = path.read_bytes()
    table = list(sections(data, path))
    found = {section[0]: section for section in table}
    if SHT_DYNSYM not in found:
        raise ElfError(f"{path}: no dynamic symbols")
    _, start, length, link, _ = found[SHT_DYNSYM]
    strings = data[table[link][1]:table[link][1] + table[link][2]]
    versions = version_names(data, found, strings)
    out = []
    for index in range(length // 24):
        name, info, other, section, _, _ = struct.unpack_from("<IBBHQQ", data, start + index * 24)
        if section in (SHN_UNDEF, SHN_ABS) or info >> 4 not in (STB_GLOBAL, STB_WEAK):
            continue
        version = 1
        if SHT_GNU_VERSYM in found:
            version, = struct.unpack_from("<H", data, found[SHT_GNU_VERSYM][1] + index * 2)
        named = versions.get(version & VERSYM_INDEX, "")
        out.append(Symbol(text_at(strings, name), named, not version & VERSYM_HIDDEN))
    return sorted(out, key=lambda symbol: symbol.name)
