#!/usr/bin/env python3
"""Makes what depends on the symbols of NVIDIA's libraries, from the `entry` rows of the call tables and the toolkit.

usage: symbols.py OUTPUT_FOLDER CUDA_PATH ERRORS.txt TABLE.api… NAME.rows…

Fails where a library of the toolkit exports a symbol that no row mentions, and where a row mentions a symbol that the
library lacks. A row for NAME speaks for NAME_ptds and NAME_ptsz too: the same function with another default stream.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import elf  # noqa: E402
import entries as made_entries  # noqa: E402
import entry_points  # noqa: E402
import error_names  # noqa: E402
import library_coverage  # noqa: E402
import library_rows  # noqa: E402
import nvml  # noqa: E402
import prototypes  # noqa: E402
import rows  # noqa: E402
from generate import write  # noqa: E402

# library in a row -> (file under CUDA_PATH, what a refusing stub calls, symbols of ours beside NVIDIA's)
LIBRARIES = {
    "cuda": ("lib64/stubs/libcuda.so", "flyt_not_supported", ("flyt_client_marker",)),
    "cudart": ("lib64/libcudart.so", "flyt_cudart_not_supported", ()),
}
# Where a family of the core is declared under another name.
CORE_HEADERS = ["cpu/client/core/log.h", "cpu/client/coredump/coredump.h", "cpu/client/graph/graph.h", "cpu/client/green/green.h", "cpu/client/cuda/graph_memory.h", "cpu/client/cuda/copy.h", "cpu/client/cuda/copy_batch.h", "cpu/client/cuda/function.h", "cpu/client/cuda/host.h", "cpu/client/core/notification.h", "cpu/client/ipc/ipc.h", "cpu/client/managed/managed.h", "cpu/client/cuda/library.h", "cpu/client/cuda/jit_link.h", "cpu/client/cuda/array.h", "cpu/client/cuda/texture.h",
                "flyt_client_rows.h"]
ROOT = Path(__file__).resolve().parents[2]
TWINS = ("_ptds", "_ptsz")
TYPEDEF_HEADERS = ("cudaTypedefs.h", "cudaProfilerTypedefs.h")

CLASS_MEANINGS = {
    "local": "answered in the client",
    "cached": "asked once, then answered in the client",
    "oneway": "sent, no reply awaited",
    "sync": "sent, reply awaited",
    "bulk": "carries data",
    "manual": "by hand, for the reason in its row",
    "none": "refused by name",
}


# For one line of a library: what is sent, answered where the program is, by hand, refused.
SENT, KEPT, BY_HAND, REFUSED = {"cached", "oneway", "sync", "bulk"}, {"local"}, {"manual"}, {"none"}
NVML = "libnvidia-ml.so.1"


class SymbolError(Exception):
    """Rows and libraries do not agree."""


def match(entries, library, names):
    """{exported name: Entry} for all names of the library; raises SymbolError that lists everything that is wrong."""
    names, out, wrong = set(names), {}, []
    for entry in (e for e in entries if e.library == library):
        if entry.symbol not in names:
            wrong.append(f"{entry.place}: {library} exports no {entry.symbol}")
        for name in [entry.symbol] + [entry.symbol + twin for twin in TWINS]:
            if name not in names:
                continue
            if name in out:
                wrong.append(f"{entry.place}: {name} is in {out[name].place} already")
            out[name] = entry
    wrong += [f"{library} exports {name}, which no row of rpc/api mentions" for name in sorted(names - set(out))]
    if wrong:
        raise SymbolError("\n".join(wrong))
    return out


def check_libraries(entries):
    for entry in entries:
        if entry.library not in LIBRARIES:
            raise SymbolError(f"{entry.place}: unknown library {entry.library}")


def version_script(symbols, own, banner):
    """Exports exactly the symbols, under their versions; a library without versions gets an anonymous node."""
    out = [banner]
    for version in sorted({symbol.version for symbol in symbols}):
        names = [symbol.name for symbol in symbols if symbol.version == version] + (list(own) if not version else [])
        out += [f"{version} {{".strip(), "global:"] + [f"    {name};" for name in names] + ["local:", "    *;", "};"]
    return "\n".join(out) + "\n"


def stubs_c(matched, refuse, banner):
    """One refusing function per `none` symbol. They ignore their arguments (the caller takes its own off the stack) and
    return CUresult or cudaError_t as an int, so no header of the toolkit is needed."""
    out = [banner, f"extern int {refuse}(const char *symbol);", ""]
    for name, entry in sorted(matched.items()):
        if entry.klass == "none":
            call = f'return {refuse}("{name}");' if entry.results is rows.CUDA_RESULTS else \
                f'{refuse}("{name}"); return {entry.results.refused};'
            out.append(f'__attribute__((visibility("default"))) int {name}(void) {{ {call} }}')
    return "\n".join(out) + "\n"


def core_headers(entries, library):
    """Of the families whose entry points are made, what declares the core's functions."""
    families = sorted({entry.family for entry in entries if entry.library == library and entry.core})
    return [path for path in (f"cpu/client/cuda/{family}.h" for family in families) if (ROOT / path).exists()] + CORE_HEADERS


def summary(matched_by_library, libraries, nvml_rows):
    """One line for each library that is replaced function by function."""
    rows_of = [(f"lib{one}", [sum(entry.klass in classes for entry in matched.values()) for classes in (SENT, KEPT, BY_HAND, REFUSED)])
               for one, matched in sorted(matched_by_library.items())]
    rows_of += [(library.soname, library_coverage.counts(library)) for library in libraries]
    if nvml_rows:
        refused = sum(bool(row["none"]) for row in nvml_rows.values())
        rows_of.append((NVML, [0, len(nvml_rows) - refused, 0, refused]))
    rows_of.append((None, [sum(column) for column in zip(*(counts for _, counts in rows_of))]))
    out = ["| library | symbols | sent to the server | answered where the program is | by hand | refused by name |", "|---|" + "---:|" * 5]
    for name, counts in rows_of:
        cells = map(str, [sum(counts), *counts])
        out.append(f"| `{name}` | " + " | ".join(cells) + " |" if name else "| **all** | " + " | ".join(f"**{cell}**" for cell in cells) + " |")
    return out


def driver_tables(matched_by_library):
    """Two tables: symbols by class, and what is refused with its reason."""
    libraries = sorted(matched_by_library)
    out = ["| class | " + " | ".join(f"`lib{one}`" for one in libraries) + " | meaning |",
           "|---|" + "---:|" * len(libraries) + "---|"]
    for klass, meaning in CLASS_MEANINGS.items():
        counts = [sum(e.klass == klass for e in matched_by_library[one].values()) for one in libraries]
        out.append(f"| `{klass}` | " + " | ".join(map(str, counts)) + f" | {meaning} |")
    totals = [len(matched_by_library[one]) for one in libraries]
    out += ["| **all** | " + " | ".join(f"**{total}**" for total in totals) + " | |", "",
            "| refused, and why | " + " | ".join(f"`lib{one}`" for one in libraries) + " |",
            "|---|" + "---:|" * len(libraries)]
    notes = {}
    for index, one in enumerate(libraries):
        for entry in matched_by_library[one].values():
            if entry.klass == "none":
                notes.setdefault(entry.note, [0] * len(libraries))[index] += 1
    return out + [f"| {note} | " + " | ".join(map(str, counts)) + " |" for note, counts in sorted(notes.items())]


def coverage_md(matched_by_library, libraries, nvml_rows, banner):
    """All libraries, one line for each; then how the driver's, the runtime's and the others' symbols are answered, and why some are not."""
    out = [banner, "", *summary(matched_by_library, libraries, nvml_rows), "", *driver_tables(matched_by_library)]
    if libraries:
        out += ["", *library_coverage.table(libraries), "", *library_coverage.reasons(libraries)]
    if nvml_rows:
        out += ["", f"| `{NVML}` | functions |", "|---|---:|", *nvml.coverage(nvml_rows)]
    return "\n".join(out) + "\n"


def generate(out, toolkit, errors, tables, row_files=()):
    entries = rows.load(tables).entries
    check_libraries(entries)
    folder = Path(tables[0]).parent
    banner = f"/* Made from the tables in {folder} and the CUDA toolkit by rpc/gen/symbols.py: edit those. */"
    matched = {}
    for library, (path, refuse, own) in LIBRARIES.items():
        symbols = elf.exported(toolkit / path)
        matched[library] = match(entries, library, [symbol.name for symbol in symbols])
        write(out / f"lib{library}.map", version_script(symbols, own, banner))
        write(out / f"{library}_stubs.c", stubs_c(matched[library], refuse, banner))
        write(out / f"{library}_entries.c",
              made_entries.library_c(library, entries, prototypes.read(library, toolkit / "include"), matched[library],
                                     core_headers(entries, library), banner))
    is_nvml = {path: Path(path).name == "nvml.rows" for path in row_files}
    libraries = [library_rows.load(path) for path in row_files if not is_nvml[path]]
    nvml_rows = {name: row for path in row_files if is_nvml[path] for name, row in nvml.load(path).items()}
    write(out / "coverage.md", coverage_md(matched, libraries, nvml_rows, "<!-- Made by rpc/gen/symbols.py. -->"))

    include = toolkit / "include"
    typedefs = "\n".join((include / name).read_text() for name in TYPEDEF_HEADERS)
    points = entry_points.pair(typedefs, matched["cuda"])
    write(out / "flyt_entry_points.h", entry_points.table_h(banner))
    write(out / "flyt_entry_points.c", entry_points.table_c(points, banner))

    banner = f"/* Made from {errors} and the CUDA toolkit by rpc/gen/symbols.py: edit those. */"
    driver = error_names.driver_names((include / "cuda.h").read_text())
    runtime = error_names.runtime_names((include / "driver_types.h").read_text())
    sentences = error_names.load_sentences(Path(errors))
    write(out / "flyt_error_names.h", error_names.table_h(banner))
    write(out / "flyt_error_names.c", error_names.table_c(driver, runtime, sentences, banner))


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    row_files = [path for path in sys.argv[4:] if path.endswith(".rows")]
    try:
        generate(out, Path(sys.argv[2]), sys.argv[3], [path for path in sys.argv[4:] if path not in row_files], row_files)
    except (rows.TableError, library_rows.RowError, nvml.RowError, SymbolError, elf.ElfError, entry_points.EntryPointError, error_names.ErrorTableError,
            prototypes.PrototypeError, OSError) as error:
        sys.exit(f"symbols.py: {error}")
    (out / "symbols.stamp").touch()


if __name__ == "__main__":
    main()
