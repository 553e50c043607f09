"""The table behind cuGetProcAddress: function name, CUDA version, per-thread or not -> exported symbol.

cudaTypedefs.h names, for every function, the CUDA versions in which its binary interface was introduced
(PFN_cuMemAlloc_v2000, PFN_cuMemAlloc_v3020, PFN_cuMemcpy_v7000_ptds). The library exports as many variants under
rising suffixes (cuMemAlloc, cuMemAlloc_v2): the nth version is the nth variant. The generator fails where the numbers
differ, so that a new toolkit cannot change the pairing unseen.
"""
import re

TYPEDEF = re.compile(r"\*PFN_(cu\w+?)_v(\d+)(?:_(ptds|ptsz))?\)")
EXPORTED = re.compile(r"(cu\w+?)(?:_v(\d+))?(?:_(ptds|ptsz))?$")


class EntryPointError(Exception):
    """Headers and library do not agree; the text names the function."""


def pair(typedefs, names):
    """[(function, version, is_per_thread, symbol)], sorted for a binary search, from the text of the typedef headers
    and the names that the library exports."""
    versions, variants = {}, {}
    for function, version, suffix in TYPEDEF.findall(typedefs):
        versions.setdefault((function, suffix), set()).add(int(version))
    for name in names:
        function, number, suffix = EXPORTED.match(name).groups()
        variants.setdefault((function, suffix or ""), []).append((int(number or 1), name))
    rows = []
    for key in sorted(set(versions) | set(variants)):
        known, symbols = sorted(versions.get(key, ())), [name for _, name in sorted(variants.get(key, ()))]
        if len(known) != len(symbols):
            raise EntryPointError(f"{key[0]}: the headers know versions {known}, the library exports {symbols}")
        rows += [(key[0], version, key[1] != "", symbol) for version, symbol in zip(known, symbols)]
    return sorted(rows)


def table_h(banner):
    return f"""{banner}
#ifndef FLYT_GEN_ENTRY_POINTS_H
#define FLYT_GEN_ENTRY_POINTS_H
#include <stdbool.h>
#include <stddef.h>

/* One binary interface of a driver function. */
struct flyt_entry_point {{
    const char *name;     /* without suffixes: "cuMemAlloc" */
    int cuda_version;     /* that introduced it, e.g. 3020 */
    bool is_per_thread;   /* stream 0 means the calling thread's default stream */
    void *address;        /* of this library's own symbol, also where that refuses */
}};

/* Sorted by name, then by version, the legacy one first. */
extern const struct flyt_entry_point flyt_entry_points[];
extern const size_t flyt_entry_point_count;

#endif
"""


def table_c(rows, banner):
    symbols = sorted({symbol for _, _, _, symbol in rows})
    declarations = "".join(f"extern int {symbol}(void);\n" for symbol in symbols)
    body = "".join(f'    {{"{name}", {version}, {str(is_per_thread).lower()}, (void *){symbol}}},\n'
                   for name, version, is_per_thread, symbol in rows)
    return f"""{banner}
#include "flyt_entry_points.h"

/* Only the addresses matter here, so cuda.h with its renaming macros stays out. */
{declarations}
const struct flyt_entry_point flyt_entry_points[] = {{
{body}}};
const size_t flyt_entry_point_count = sizeof flyt_entry_points / sizeof flyt_entry_points[0];
"""
