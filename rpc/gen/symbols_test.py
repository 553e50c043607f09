#!/usr/bin/env python3
"""Tests of what rpc/gen makes from the toolkit: matching of symbols, version scripts, stubs, entry points, error names.

usage: symbols_test.py CUDA_PATH
"""
import ctypes
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import elf  # noqa: E402
import entry_points  # noqa: E402
import error_names  # noqa: E402
import rows  # noqa: E402
import symbols  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TOOLKIT = Path("/usr/local/cuda")


def entry(symbol, klass="local", library="cuda", note=""):
    return rows.Entry(library, symbol, klass, "test", "test.api:1", note)


class Elf(unittest.TestCase):
    def test_versions(self):
        found = elf.exported(TOOLKIT / "lib64/libcudart.so")
        by_name = {symbol.name: symbol for symbol in found}
        self.assertEqual(by_name["cudaMalloc"].version[:len("libcudart.so.")], "libcudart.so.")
        self.assertTrue(by_name["cudaMalloc"].is_default)
        self.assertNotIn(by_name["cudaMalloc"].version, by_name, "names of versions are no symbols")
        self.assertNotIn("malloc", by_name, "what a library needs it does not export")

    def test_no_versions(self):
        found = elf.exported(TOOLKIT / "lib64/stubs/libcuda.so")
        self.assertIn("cuInit", [symbol.name for symbol in found])
        self.assertEqual({symbol.version for symbol in found}, {""})

    def test_as_nm_sees_it(self):
        path = TOOLKIT / "lib64/libcudart.so"
        lines = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", path], capture_output=True,
                               text=True, check=True).stdout.splitlines()
        seen = sorted(line.split()[2] for line in lines if line.split()[1] != "A")
        self.assertEqual(seen, sorted(f"{one.name}@@{one.version}" for one in elf.exported(path)))

    def test_no_library(self):
        with tempfile.NamedTemporaryFile() as file:
            for content in (b"", b"text", b"\x7fELF\x01\x01" + bytes(58), b"\x7fELF\x02\x01" + bytes(58)):
                file.seek(0)
                file.truncate()
                file.write(content)
                file.flush()
                with self.assertRaises(elf.ElfError):
                    elf.exported(Path(file.name))


class Rows(unittest.TestCase):
    def test_twins_follow(self):
        matched = symbols.match([entry("cuA")], "cuda", ["cuA", "cuA_ptsz", "cuA_ptds"])
        self.assertEqual(sorted(matched), ["cuA", "cuA_ptds", "cuA_ptsz"])

    def test_versions_do_not_follow(self):
        with self.assertRaisesRegex(symbols.SymbolError, "cuA_v2, which no row"):
            symbols.match([entry("cuA")], "cuda", ["cuA", "cuA_v2"])

    def test_forgotten_symbol(self):
        with self.assertRaisesRegex(symbols.SymbolError, "exports cuB, which no row"):
            symbols.match([entry("cuA")], "cuda", ["cuA", "cuB"])

    def test_invented_symbol(self):
        with self.assertRaisesRegex(symbols.SymbolError, "test.api:1: cuda exports no cuB"):
            symbols.match([entry("cuA"), entry("cuB")], "cuda", ["cuA"])

    def test_twice(self):
        with self.assertRaisesRegex(symbols.SymbolError, "cuA is in test.api:1 already"):
            symbols.match([entry("cuA"), entry("cuA")], "cuda", ["cuA"])

    def test_all_errors_at_once(self):
        with self.assertRaises(symbols.SymbolError) as caught:
            symbols.match([], "cuda", ["cuA", "cuB"])
        self.assertEqual(len(str(caught.exception).splitlines()), 2)

    def test_unknown_library(self):
        with self.assertRaisesRegex(symbols.SymbolError, "unknown library cudnn"):
            symbols.check_libraries([entry("cudnnCreate", library="cudnn")])


class Output(unittest.TestCase):
    def test_version_script(self):
        script = symbols.version_script([elf.Symbol("a", "lib.so.1"), elf.Symbol("b", "lib.so.1")], (), "/* x */")
        self.assertEqual(script.split(), "/* x */ lib.so.1 { global: a; b; local: *; };".split())
        script = symbols.version_script([elf.Symbol("a")], ("marker",), "/* x */")
        self.assertEqual(script.split(), "/* x */ { global: a; marker; local: *; };".split())

    def test_stubs_are_for_none_only(self):
        text = symbols.stubs_c({"cuA": entry("cuA"), "cuB": entry("cuB", "none"), "cuB_ptsz": entry("cuB", "none")},
                               "refuse", "/* x */")
        self.assertNotIn("cuA", text)
        self.assertIn('int cuB(void) { return refuse("cuB"); }', text)
        self.assertIn('int cuB_ptsz(void) { return refuse("cuB_ptsz"); }', text)

    def test_coverage_counts_everything(self):
        text = symbols.coverage_md({"cuda": {"cuA": entry("cuA"), "cuB": entry("cuB", "none", note="not yet")}}, [], {}, "x")
        self.assertIn("| `local` | 1 |", text)
        self.assertIn("| **all** | **2** |", text)
        self.assertIn("| not yet | 1 |", text)
        self.assertIn("| `libcuda` | 2 | 0 | 1 | 0 | 1 |\n| **all** | **2** |", text)

    def test_coverage_has_all_libraries(self):
        """What a line says is counted here again, by words of the rows alone."""
        paths = [str(path) for path in sorted((ROOT / "rpc/library").glob("*.rows"))] + [str(ROOT / "cpu/nvml/nvml.rows")]
        tables = [str(path) for path in sorted((ROOT / "rpc/api").glob("*.api"))]
        with tempfile.TemporaryDirectory() as folder:
            symbols.generate(Path(folder), TOOLKIT, str(ROOT / "rpc/api/errors.txt"), tables, paths)
            text = (Path(folder) / "coverage.md").read_text()
        lines = {line.split(" | ")[0].strip("|` "): [int(cell) for cell in re.findall(r"\d+", line.split(" | ", 1)[1])]
                 for line in text.split("\n\n")[1].splitlines()[2:]}
        self.assertEqual(len(lines), len(paths) + 3) # with libcuda, libcudart, and the sum
        for name, (count, *parts) in lines.items():
            self.assertEqual(sum(parts), count, name)
        total = lines.pop("**all**")
        self.assertEqual([sum(column) for column in zip(*lines.values())], total)
        with open(paths[-1], encoding="utf-8") as file:
            words = [line.split()[0] for line in file if line.strip() and line[0] != "#"]
        self.assertEqual(lines["libnvidia-ml.so.1"],
                         [396, 0, words.count("own") + words.count("value"), 0, words.count("none")])
        for _, (path, _, own) in symbols.LIBRARIES.items():
            name = Path(path).name.split(".so")[0]
            self.assertEqual(lines[name][0], len(elf.exported(TOOLKIT / path)), name)
        self.assertIn("| refused: virtual GPUs: the VM has none |", text)

    def test_tables_and_toolkit_agree(self):
        tables = [str(path) for path in sorted((ROOT / "rpc/api").glob("*.api"))]
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            symbols.generate(out, TOOLKIT, str(ROOT / "rpc/api/errors.txt"), tables)
            for library, (path, _, own) in symbols.LIBRARIES.items():
                names = {one.name for one in elf.exported(TOOLKIT / path)} | set(own)
                exported = {line.strip(" ;") for line in (out / f"lib{library}.map").read_text().splitlines()
                            if line.startswith("    ") and line != "    *;"}
                self.assertEqual(exported, names)


class EntryPoints(unittest.TestCase):
    TYPEDEFS = """typedef int (CUDAAPI *PFN_cuCopy_v2000)(int);
        typedef int (CUDAAPI *PFN_cuCopy_v3020)(int);
        typedef int (CUDAAPI *PFN_cuCopy_v7000_ptds)(int);"""

    def test_pairing(self):
        points = entry_points.pair(self.TYPEDEFS, ["cuCopy_v2_ptds", "cuCopy_v2", "cuCopy"])
        self.assertEqual(points, [("cuCopy", 2000, False, "cuCopy"), ("cuCopy", 3020, False, "cuCopy_v2"),
                                ("cuCopy", 7000, True, "cuCopy_v2_ptds")])

    def test_headers_and_library_differ(self):
        for names in (["cuCopy", "cuCopy_v2_ptds"], ["cuCopy", "cuCopy_v2", "cuCopy_v3", "cuCopy_v2_ptds"],
                      ["cuCopy", "cuCopy_v2"], ["cuCopy", "cuCopy_v2", "cuCopy_v2_ptds", "cuNew"]):
            with self.assertRaises(entry_points.EntryPointError):
                entry_points.pair(self.TYPEDEFS, names)

    def test_sorted_as_c_compares(self):
        typedefs = "*PFN_cuB_v1000) *PFN_cuA_v2000) *PFN_cuAb_v2000) *PFN_cuA2_v1000)"
        names = [row[0] for row in entry_points.pair(typedefs, ["cuB", "cuA", "cuAb", "cuA2"])]
        self.assertEqual(names, sorted(names, key=str.encode))


class ErrorNames(unittest.TestCase):
    def test_as_nvidia_says(self):
        """Every code of the runtime: name and sentence are those of NVIDIA's library, which needs no GPU for that."""
        include = TOOLKIT / "include"
        names = error_names.runtime_names((include / "driver_types.h").read_text())
        sentences = error_names.load_sentences(ROOT / "rpc/api/errors.txt")
        runtime = ctypes.CDLL(str(TOOLKIT / "lib64/libcudart.so"))
        runtime.cudaGetErrorName.restype = runtime.cudaGetErrorString.restype = ctypes.c_char_p
        unknown = "unrecognized error code"
        for code in range(-1, 10100):
            name = names.get(code, unknown)
            self.assertEqual(runtime.cudaGetErrorName(code).decode(), name, code)
            said = sentences.get(code) or error_names.in_words(name) if code in names else unknown
            self.assertEqual(runtime.cudaGetErrorString(code).decode(), said, code)

    def test_driver_names(self):
        names = error_names.driver_names((TOOLKIT / "include/cuda.h").read_text())
        self.assertEqual((names[0], names[1], names[999]),
                         ("CUDA_SUCCESS", "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_UNKNOWN"))
        self.assertGreaterEqual(len(names), 100)

    def test_words(self):
        self.assertEqual(error_names.in_words("CUDA_ERROR_KEY_ROTATION"), "key rotation")
        self.assertEqual(error_names.in_words("cudaErrorTooManyPeers"), "too many peers")

    def test_bad_sentences(self):
        for text in ("one two\n", "1\n", "1 a\n1 b\n"):
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(text)
                file.flush()
                with self.assertRaises(error_names.ErrorTableError):
                    error_names.load_sentences(Path(file.name))


if __name__ == "__main__":
    TOOLKIT = Path(sys.argv.pop(1))
    unittest.main()
