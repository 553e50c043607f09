#!/usr/bin/env python3
"""Makes a program in C that calls each function of the CUDA toolkit's headers with arguments that are wrong in some way.

usage: make.py OUTPUT.c CUDA_PATH
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "rpc" / "gen"))
import prototypes  # noqa: E402

INCLUDES = '#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <cudaProfiler.h>\n#include <cuda_runtime_api.h>\n#include <cuda_profiler_api.h>\n'
# They act on another process, or on the machine.
LEFT_OUT = re.compile(r"cuCheckpoint")


def call_c(name, parameters):
    lines = []
    for place, one in enumerate(parameters):
        text = re.sub(r"\bconst\b", "", one.type).strip()
        is_data = one.type.rstrip().endswith("*")
        lines += [f"    __typeof__({'void *' if is_data else text}) a{place};",
                  f"    fill(&a{place}, sizeof a{place}, {'DATA' if is_data else f'kind_of(a{place}, ' + chr(34) + text + chr(34) + ')'}, how, {place});"]
    arguments = ", ".join(f"a{place}" for place in range(len(parameters)))
    return f"static long long call_{name}(enum how how)\n{{\n" + "\n".join(lines) + f"\n    return (long long){name}({arguments});\n}}"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    out, include = Path(sys.argv[1]), Path(sys.argv[2]) / "include"
    text = []
    names = []
    for library in ("cuda", "cudart"):
        for name, parameters in sorted(prototypes.read(library, include).items()):
            if not LEFT_OUT.match(name):
                names.append((name, library))
                text.append(call_c(name, parameters))
    table = ",\n".join(f'    {{"{name}", {"true" if library == "cudart" else "false"}, call_{name}}}' for name, library in names)
    out.write_text(f"/* Made by tests/conformance/make.py: edit that. */\n{INCLUDES}" '#include "tests/conformance/calls.h"\n\n' +
                   "\n\n".join(text) + f"\n\nconst struct function functions[] = {{\n{table}\n}};\n"
                   "const unsigned function_count = sizeof functions / sizeof functions[0];\n", encoding="utf-8")


if __name__ == "__main__":
    main()
