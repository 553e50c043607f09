"""What this build's call tables say of the wire."""
import glob
import os
import sys
from pathlib import Path

import harness

sys.path.insert(0, os.path.join(harness.ROOT, "rpc", "gen"))
import rows  # noqa: E402

PROTO = Path(harness.ROOT) / "rpc" / "proto"
TABLES = rows.load(glob.glob(os.path.join(harness.ROOT, "rpc", "api", "*.api")))
PROCEDURES = {one.name: one for one in TABLES.procedures}
BASE_HASH = rows.base_hash((PROTO / "flyt.x").read_text(), (PROTO / "limits.h").read_text())


def listed():
    """[(number, signature)], as a handshake has them."""
    signer = rows.Signer(TABLES, (PROTO / "limits.h").read_text())
    return [(one.number, signer.signature(one)) for one in TABLES.procedures]
