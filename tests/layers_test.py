#!/usr/bin/env python3
"""Tests of layers.py, on made-up trees that are compiled here.

usage: layers_test.py
"""
import contextlib
import io
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import layers  # noqa: E402

IDLE = re.compile("scripts/layers need not let .*\n")
TWO = "rpc/base:\ncpu/client: rpc/base\n"


def ring(folder, count):
    """Sources of count modules, each of which calls the next one."""
    return {"%s/m%d.c" % (folder, n): "void m%d(void); void m%d(void) { m%d(); }" % ((n + 1) % count, n, (n + 1) % count)
            for n in range(count)}


class Layers(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.root = Path(self._folder.name)
        self.build = self.root / "build"
        self.write("rpc/base/log.c", "void log_line(void) {}")
        self.write("rpc/base/log.h", "void log_line(void);")

    def write(self, path, text, is_compiled=True):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
        if path.suffix == ".c" and is_compiled:
            compiled = self.build / path.relative_to(self.root).with_suffix(".o")
            compiled.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["gcc", "-c", "-I", self.root, "-o", compiled, path], check=True)

    def generate(self, name, text):
        """An object of the build folder that has no source in the tree."""
        self.write("elsewhere.c", text)
        (self.build / "gen").mkdir(exist_ok=True)
        (self.build / "elsewhere.o").rename(self.build / "gen" / (name + ".o"))

    def check(self, text=TWO):
        self.write("scripts/layers", text)
        with contextlib.redirect_stdout(io.StringIO()) as output:
            status = layers.main([str(self.build), str(self.root)])
        return status, output.getvalue()

    def assert_refused(self, sentence, text=TWO):
        status, output = self.check(text)
        self.assertEqual(status, 1, output)
        self.assertIn(sentence, output)

    def assert_good(self, text=TWO):
        status, output = self.check(text)
        self.assertEqual((status, IDLE.sub("", output)), (0, ""))

    def test_use_downwards(self):
        self.write("cpu/client/a.c", '#include "rpc/base/log.h"\nvoid a(void); void a(void) { log_line(); }')
        self.assert_good()

    def test_wrong_include(self):
        self.write("cpu/client/a.h", "enum { A = 1 };")
        self.write("rpc/base/up.h", '#include "cpu/client/a.h"')
        self.assert_refused("rpc/base/up includes cpu/client/a.h: rpc/base may not use cpu/client")

    def test_control(self):
        text = "rpc/base:\ncontrol/base: rpc/base\ncontrol/node: rpc/base control/base\n"
        self.write("control/base/peer.h", '#include "rpc/base/log.h"')
        self.write("control/node/a.c", '#include "control/base/peer.h"\nvoid a(void); void a(void) {}')
        self.assert_good(text)
        self.write("control/base/up.c", "void a(void); void up(void); void up(void) { a(); }")
        self.assert_refused("control/base/up uses a of control/node/a: control/base may not use control/node", text)
        self.write("control/store/s.h", "enum { S = 1 };")
        self.assert_refused("control/store does not stand in scripts/layers", text)

    def test_folder_that_is_not_listed(self):
        self.write("cpu/client/a.c", '#include "control/base/x.h"', is_compiled=False)
        self.write("cpu/other/b.h", "enum { B = 1 };")
        self.assert_refused("cpu/client/a includes control/base/x.h: cpu/client may not use control/base")
        self.assert_refused("cpu/other does not stand in scripts/layers")

    def test_wrong_symbol_without_an_include(self):
        self.write("cpu/client/a.c", "void a(void); void a(void) {}")
        self.write("rpc/base/up.c", "void a(void); void up(void); void up(void) { a(); }")
        self.assert_refused("rpc/base/up uses a of cpu/client/a: rpc/base may not use cpu/client")

    def test_weak_symbol_is_a_use(self):
        self.write("cpu/client/a.c", "void a(void); void a(void) {}")
        self.write("rpc/base/up.c", "__attribute__((weak)) void a(void); void up(void); void up(void) { if (a) a(); }")
        self.assert_refused("rpc/base/up uses a of cpu/client/a")

    def test_symbol_of_two_programs(self):
        text = "rpc/base:\ncpu/client: rpc/base\ncpu/server: rpc/base\ncpu/cuda: cpu/client\n"
        self.write("cpu/client/a.c", "void a(void); void a(void) {}")
        self.write("cpu/server/a.c", "void a(void); void a(void) {}")
        self.write("cpu/cuda/user.c", "void a(void); void user(void); void user(void) { a(); }")
        self.assert_good(text)

    def test_circles(self):
        for path, source in ring("cpu/client", 3).items():
            self.write(path, source)
        self.assert_good()
        for path, source in ring("cpu/client", 5).items():
            self.write(path, source)
        self.assert_refused("cpu/client: circle 5, and scripts/layers allows 3: cpu/client/m0 cpu/client/m1")
        self.assert_refused("cpu/client: circle 5, and scripts/layers allows 4", TWO.replace("cpu/client:", "cpu/client circle 4:"))
        self.assert_good(TWO.replace("cpu/client:", "cpu/client circle 5:"))

    def test_bound_that_can_be_lowered(self):
        for path, source in ring("cpu/client", 5).items():
            self.write(path, source)
        status, output = self.check(TWO.replace("cpu/client:", "cpu/client circle 7 modules 50:"))
        self.assertEqual(status, 0)
        self.assertEqual(IDLE.sub("", output), "scripts/layers can say of cpu/client: circle 5\n"
                                               "scripts/layers can say of cpu/client: modules 40\n")

    def test_use_that_is_not_made(self):
        self.write("cpu/client/a.h", "enum { A = 1 };")
        self.assertEqual(self.check(), (0, "scripts/layers need not let cpu/client use rpc/base\n"))
        self.write("cpu/client/a.h", '#include "rpc/base/log.h"')
        self.assertEqual(self.check(), (0, ""))

    def test_circle_through_generated_code(self):
        for n in range(4):
            self.write("cpu/client/m%d.c" % n, "void m%d(void); void g%d(void); void m%d(void) { g%d(); }" % (n, n, n, n))
        self.generate("calls", "".join("void m%d(void); void g%d(void) { m%d(); }" % ((n + 1) % 4, n, (n + 1) % 4)
                                       for n in range(4)))
        self.assert_refused("cpu/client: circle 4", TWO.replace("cpu/client:", "cpu/client:  gen"))
        self.assert_refused("cpu/client/m0 uses g0 of gen/calls: cpu/client may not use gen")

    def test_tests_are_apart(self):
        self.write("cpu/client/a.h", "enum { A = 1 };")
        for name in ("log_test", "fake_log", "test_log", "log_bench"):
            self.write("rpc/base/%s.c" % name, '#include "cpu/client/a.h"', is_compiled=False)
        self.assert_good()

    def test_object_without_source(self):
        for path, source in ring("cpu/client", 5).items():
            self.write(path, source)
            (self.root / path).unlink()
        self.write("cpu/client/a.h", "enum { A = 1 };")
        self.assert_good()

    def test_source_without_object(self):
        self.write("cpu/client/a.c", "", is_compiled=False)
        self.assert_refused("cpu/client/a.c has no object in")

    def test_modules(self):
        for n in range(41):
            self.write("cpu/client/m%d.h" % n, "")
        self.assert_refused("cpu/client: modules 41, and scripts/layers allows 40")
        self.assert_good(TWO.replace("cpu/client:", "cpu/client modules 41:"))

    def test_lines(self):
        self.assert_refused("scripts/layers:1: rpc/base may use what stands above it only, not cpu/client",
                            "rpc/base: cpu/client\n")
        self.assert_refused("scripts/layers:1: not FOLDER [circle N] [modules N]: FOLDERS", "rpc/base bound 5:\n")
        self.assert_refused("scripts/layers:2: rpc/base stands there twice", "rpc/base:\nrpc/base:\n")
        self.assert_refused("scripts/layers: no module is in cpu/gone", "rpc/base:\ncpu/gone:\n")


if __name__ == "__main__":
    unittest.main()
