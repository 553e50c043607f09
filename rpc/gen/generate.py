#!/usr/bin/env python3
"""Makes sources from the call tables (rpc/api/*.api).

usage: generate.py OUTPUT_FOLDER FILE.x LIMITS.h TABLE.api…

Writes only files whose content changed, so that an unchanged table rebuilds nothing.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import driver_rows  # noqa: E402
import kinds  # noqa: E402
import rows as row_files  # noqa: E402
import test_values  # noqa: E402
import wire  # noqa: E402


def write(path, text):
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    out, base, tables = Path(sys.argv[1]), sys.argv[2:4], sys.argv[4:]
    try:
        rows = row_files.load(tables)
        row_files.check_reasons(rows)
    except row_files.TableError as error:
        sys.exit(f"generate.py: {error}")
    banner = f"/* Made from {' '.join(sorted(tables))} by rpc/gen/generate.py: edit those. */"
    protocol, limits = (Path(p).read_text() for p in base)
    signer, base_hash = row_files.Signer(rows, limits), row_files.base_hash(protocol, limits)
    write(out / "flyt_api_types.x", banner + "\n" + wire.x_types(rows))
    write(out / "flyt_api_procedures.x", banner + "\n" + wire.x_procedures(rows))
    write(out / "flyt_ids.h", kinds.ids_h(rows, banner))
    write(out / "flyt_objects.h", kinds.objects_h(rows, banner))
    write(out / "flyt_objects.c", kinds.objects_c(rows, banner))
    write(out / "flyt_objects_all.c", kinds.objects_all_c(rows, banner))
    write(out / "flyt_signatures.h", wire.signatures_h(banner))
    write(out / "flyt_signatures.c", wire.signatures_c(rows, signer, base_hash, banner))
    write(out / "flyt_procedures.h", wire.procedures_h(banner))
    write(out / "flyt_procedures.c", wire.procedures_c(rows, banner))
    write(out / "flyt_test_svc.c", wire.test_svc_c(rows, banner))
    write(out / "flyt_test_values.c", test_values.test_values_c(rows, protocol, banner))
    write(out / "flyt_layouts.h", wire.layouts_h(rows, banner))
    write(out / "flyt_encoders.h", wire.encoders_h(rows, banner))
    write(out / "flyt_client_calls.h", wire.client_calls_h(rows, banner))
    write(out / "flyt_client_records.h", wire.client_records_h(rows, banner))
    write(out / "flyt_client_asks.h", wire.client_asks_h(rows, banner))
    write(out / "flyt_client_rows.h", driver_rows.client_rows_h(rows, banner))
    write(out / "flyt_client_rows.c", driver_rows.client_rows_c(rows, banner))
    write(out / "flyt_driver_rows.h", driver_rows.driver_rows_h(rows, banner))
    write(out / "flyt_driver_rows.c", driver_rows.server_c(rows, banner))
    write(out / "flyt_serve.h", wire.serve_h(rows, banner))
    write(out / "flyt_serve.c", wire.serve_c(rows, banner))
    (out / "stamp").touch()


if __name__ == "__main__":
    main()
