#!/usr/bin/env python3
"""Compares what PyTorch's libraries import of NVIDIA's with what Flyt's libraries export, and with how their rows answer: each
symbol must be exported in the version that is asked for, and one that is refused must stand in refused.txt, with a reason.
Names that PyTorch looks up while it runs (dlsym, cudaGetDriverEntryPoint) are no imports. It needs no GPU.

usage: imports.py LIBRARIES TORCH…     folders: Flyt's libraries (build/lib); PyTorch's (site-packages/torch/lib)
Exit status 1 where a symbol is missing, refused for no reason, or a line of refused.txt no longer true.
"""
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "rpc" / "gen"))
import elf  # noqa: E402
import library_rows  # noqa: E402
import nvml  # noqa: E402
import rows  # noqa: E402

# What has no versions (NCCL, the driver, NVML, cuFile) is known by its names.
UNVERSIONED = re.compile(r"(p?nccl|cu|nvml)[A-Z]")
# NVIDIA's libraries that stay the program's own: they compile, or look on, and unforwarded.py tries what cannot work.
OWN = re.compile(r"lib(nvrtc|nvJitLink|cupti|nvshmem_host)\.so")


def refused_symbols(libraries):
    """The functions that Flyt's libraries export and refuse. libcufile refuses each."""
    out = {entry.symbol for entry in rows.load(sorted((ROOT / "rpc" / "api").glob("*.api"))).entries if entry.klass == "none"}
    for path in sorted((ROOT / "rpc" / "library").glob("*.rows")):
        out |= {call.symbol for call in library_rows.load(path).calls if call.kind == "none"}
    out |= {name for name, row in nvml.load(ROOT / "cpu" / "nvml" / "nvml.rows").items() if row["none"]}
    return out | {symbol.name for symbol in elf.exported(libraries / "libcufile.so.0")}


def reasons():
    """{symbol: why PyTorch may have it refused}: a line `reason: TEXT`, then symbols."""
    out, reason = {}, None
    for number, line in enumerate((HERE / "refused.txt").read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("reason: "):
            reason = line.partition(" ")[2]
        elif line and not line.startswith("#"):
            for symbol in line.split():
                if reason is None or symbol in out:
                    sys.exit(f"refused.txt:{number}: {symbol} {'has no reason' if reason is None else 'stands there twice'}")
                out[symbol] = reason
    return out


def exports(folder):
    """{symbol: [(file, version)]} of Flyt's libraries."""
    out = {}
    for path in sorted(folder.glob("lib*.so.*")):
        for symbol in elf.exported(path):
            out.setdefault(symbol.name, []).append((path.name, symbol.version))
    return out


def imports(folder, files):
    """{elf.Import of one of Flyt's libraries: the file that has it}"""
    out, defined = {}, set()
    for path in sorted(folder.glob("*.so*")):
        defined |= {symbol.name for symbol in elf.exported(path)}
        for one in elf.imported(path):
            if one.library in files or not one.library and UNVERSIONED.match(one.name):
                out.setdefault(one, path.name)
            elif one.library.startswith(("libcu", "libnv", "libnccl")) and not OWN.match(one.library):
                sys.exit(f"{path}: imports {one.name} of {one.library}, which is neither Flyt's nor known to be the program's own")
    return {one: name for one, name in out.items() if one.library or one.name not in defined}


def compare(folder, ours, refused, allowed):
    """The number of offences."""
    wanted = imports(folder, {file for places in ours.values() for file, _ in places})
    if not wanted:
        sys.exit(f"{folder}: imports nothing of NVIDIA's: is it torch/lib of a build for CUDA 13?")
    faults = []
    for one, importer in wanted.items():
        places = ours.get(one.name, [])
        if not (places if not one.library else (one.library, one.version) in places):
            faults.append(f"{one.name} of {one.library or 'a library without versions'} is not exported (for {importer})")
        elif one.name in refused and one.name not in allowed:
            faults.append(f"{one.name} is refused, and not in refused.txt (for {importer})")
    names = {one.name for one in wanted}
    for text in sorted(faults):
        print(f"FAIL {text}")
    print(f"{folder}: imports {len(names)} of NVIDIA's functions; {len(names & refused)} are refused, {len(faults)} faults")
    return len(faults)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    ours, refused, allowed = exports(Path(sys.argv[1])), refused_symbols(Path(sys.argv[1])), reasons()
    stale = sorted(set(allowed) - refused)
    for symbol in stale:
        print(f"FAIL refused.txt: {symbol} is not refused")
    sys.exit(sum(compare(Path(folder), ours, refused, allowed) for folder in sys.argv[2:]) + len(stale) != 0)


if __name__ == "__main__":
    main()
