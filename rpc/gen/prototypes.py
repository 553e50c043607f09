"""What the toolkit's headers declare: entry points with their parameters, as the C preprocessor sees them."""
import re
import subprocess
from dataclasses import dataclass

# library of a row -> the headers that declare its entry points, and what they are to be read with.
HEADERS = {"cuda": ("-D__CUDA_API_VERSION_INTERNAL", ("cuda.h", "cudaProfiler.h")),
           "cudart": ("-D__CUDART__", ("cuda_runtime_api.h", "cuda_profiler_api.h"))}
DECLARATION = re.compile(r"\b(?:CUresult|cudaError_t)\s+(cu\w+)\s*\(([^;{}]*?)\)\s*;")


class PrototypeError(Exception):
    """A declaration that is missing, or cannot be understood."""


@dataclass
class Parameter:
    """One parameter: its declaration as the header has it, its name and its type."""
    declaration: str
    name: str
    type: str


def parameter(text):
    text = " ".join(text.split())
    found = re.fullmatch(r"(.*?)(\w+)((?:\[\w*\])*)", text)
    if not found or not found[1]:
        raise PrototypeError(f"a parameter without a name: {text}")
    return Parameter(text, found[2], found[1].strip() + ("*" if found[3] else ""))


def parse(text):
    """{name: [Parameter]} of all declarations in preprocessed C."""
    out = {}
    text = re.sub(r"^#.*$", "", text, flags=re.M)
    text = re.sub(r"__attribute__\s*\(\([^()]*(?:\([^()]*\))?[^()]*\)\)", " ", text)
    for name, inside in DECLARATION.findall(text):
        inside = " ".join(inside.split())
        # An unnamed parameter or a function pointer is no affair of generated entry points: asking for one fails.
        try:
            out[name] = [] if inside in ("", "void") else [parameter(one) for one in inside.split(",")]
        except PrototypeError:
            continue
    return out


def read(library, include):
    define, headers = HEADERS[library]
    source = "".join(f"#include <{header}>\n" for header in headers)
    command = ["gcc", "-E", "-P", define, f"-I{include}", "-xc", "-"]
    result = subprocess.run(command, input=source, capture_output=True, text=True)
    if result.returncode:
        raise PrototypeError(f"the toolkit's headers cannot be read: {result.stderr.strip()[:300]}")
    return parse(result.stdout)
