#!/usr/bin/env python3
"""Makes sources from the call tables (rpc/api/*.api).

usage: generate.py OUTPUT_FOLDER FILE.x LIMITS.h TABLE.api…

Writes only files whose content changed, so that an unchanged table rebuilds nothing.
"""
import hashlib
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import test_values  # noqa: E402
import wire  # noqa: E402


def write(path, text):
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def without_handshake(text):
    """The base protocol: the handshake's own sections, and the bounds and notices of later rows, grow at their ends, which
    must not make other peers strangers."""
    return re.sub(r"/\* ---- (?:the handshake|rows that came later).*?(?=/\* ----|#endif\n\Z)", "", text, flags=re.DOTALL)


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    out, base, tables = Path(sys.argv[1]), sys.argv[2:4], sys.argv[4:]
    try:
        rows = wire.load(tables)
    except wire.TableError as error:
        sys.exit(f"generate.py: {error}")
    banner = f"/* Made from {' '.join(sorted(tables))} by rpc/gen/generate.py: edit those. */"
    base_hash = hashlib.sha256("".join(without_handshake(Path(p).read_text()) for p in base).encode()).digest()
    write(out / "flyt_api_types.x", banner + "\n" + wire.x_types(rows))
    write(out / "flyt_api_procedures.x", banner + "\n" + wire.x_procedures(rows))
    write(out / "flyt_signatures.h", wire.signatures_h(banner))
    write(out / "flyt_signatures.c", wire.signatures_c(rows, base_hash, banner))
    write(out / "flyt_procedures.h", wire.procedures_h(banner))
    write(out / "flyt_procedures.c", wire.procedures_c(rows, banner))
    write(out / "flyt_test_svc.c", wire.test_svc_c(rows, banner))
    write(out / "flyt_test_values.c", test_values.test_values_c(rows, Path(base[0]).read_text(), banner))
    write(out / "flyt_client_calls.h", wire.client_calls_h(rows, banner))
    write(out / "flyt_serve.h", wire.serve_h(rows, banner))
    write(out / "flyt_serve.c", wire.serve_c(rows, banner))
    (out / "stamp").touch()


if __name__ == "__main__":
    main()
