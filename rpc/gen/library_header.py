"""What a header of one of NVIDIA's libraries declares: functions with their parameters, as the C++ compiler sees them."""
import re
import subprocess
from dataclasses import dataclass

DECLARATION = re.compile(r"(?<![\w#])((?:const )?\w[\w ]*?[\w*])\s*\**\s*(?:CUFFTAPI|CURANDAPI|CUSOLVERAPI|CUSPARSEAPI|CUBLASWINAPI|NCCL_API)?\s*"
                         r"\b({prefix}\w+)\s*\(([^;{{}}]*?)\)\s*;")


@dataclass
class Declared:
    """One parameter: its name, its type without its name, spaces made one."""
    name: str
    type: str


def parameter(text, place):
    text = " ".join(text.split())
    found = re.fullmatch(r"(.*?)(\w+)\s*((?:\[\w*\])*)", text)
    if not found or not found[1].strip():
        return Declared(f"p{place}", text)
    return Declared(found[2], (found[1].strip() + ("*" if found[3] else "")).replace(" *", "*"))


def includes(headers):
    """Lines that include headers, whose names commas separate."""
    return "".join(f"#include <{one}>\n" for one in headers.split(","))


def read(headers, include, prefix):
    """{name: [Declared]} of the functions of some headers whose names begin with prefix."""
    command = ["g++", "-E", "-P", f"-I{include}", "-xc++", "-"]
    result = subprocess.run(command, input=includes(headers), capture_output=True, text=True, check=True)
    text = re.sub(r"__attribute__\s*\(\([^()]*(?:\([^()]*\))?[^()]*\)\)", " ", result.stdout)
    text = re.sub(r"\bCUDARTAPI\b|\bextern \"C\"", " ", text)
    out = {}
    for found in re.finditer(DECLARATION.pattern.format(prefix=prefix).replace("{{}}", "{}"), text):
        inside = " ".join(found[3].split())
        if found[1].split()[0] in ("return", "typedef", "inline", "static"):
            continue
        parts = [] if inside in ("", "void") else inside.split(",")
        out[found[2]] = [parameter(one, place) for place, one in enumerate(parts)]
    return out
