#!/usr/bin/env python3
"""Makes the sources of one of NVIDIA's libraries from its rows: what client and server share, the client's entry points
with their version script, and what the server calls.

usage: library.py OUTPUT_FOLDER NAME.rows
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import library_client  # noqa: E402
import library_rows  # noqa: E402
import library_server  # noqa: E402
import library_shared  # noqa: E402
from generate import write  # noqa: E402


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    out, path = Path(sys.argv[1]), sys.argv[2]
    try:
        library = library_rows.load(path)
    except (library_rows.RowError, OSError) as error:
        sys.exit(f"library.py: {error}")
    banner = f"/* Made from {path} by rpc/gen/library.py: edit that. */"
    write(out / f"flyt_lib_{library.name}.h", library_shared.header(library, banner))
    write(out / f"flyt_lib_{library.name}_client.c", library_client.source(library, banner))
    write(out / f"{library.soname.split('.so')[0]}.map", library_client.version_script(library, banner))
    write(out / f"flyt_lib_{library.name}.options", library_client.linker_options(library))
    write(out / f"flyt_lib_{library.name}_server.c", library_server.source(library, banner))
    (out / f"library_{library.name}.stamp").touch()


if __name__ == "__main__":
    main()
