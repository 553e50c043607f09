#!/usr/bin/env python3
"""Checks scripts/layers: who uses whom between the folders of cpu, rpc and control, and the circles inside them.

usage: layers.py [BUILD [ROOT]]

A module is x.c with x.h. It uses a folder by an #include, or by a symbol that its object needs and an object there
defines. Objects stand in BUILD (default: build) under the paths of their sources; those whose source is gone do not count.
Tests, fakes and benchmarks are apart. Generated code (BUILD/gen) is the folder `gen`, whose own uses are not checked, but a
circle that goes through it is one. Prints each offence, and each bound and each use that scripts/layers need not allow;
exit status 1 for offences.
"""
import collections
import os
import re
import subprocess
import sys
from pathlib import Path

TOPS = ("cpu", "rpc", "control")
CIRCLE_MAX, MODULES_MAX = 3, 40  # where scripts/layers names no bound
LINE = re.compile(r"(?P<name>[\w/]+)(?: circle (?P<circle>\d+))?(?: modules (?P<modules>\d+))?:(?P<uses>[\w/ ]*)")
INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)
APART = re.compile(r"(fake|test)_.*|(.*_)?(test|bench|harness|test_kernels)")
GENERATED_APART = re.compile(r"flyt_(test_.*|clnt)")


class Folder:
    """A line of scripts/layers."""

    def __init__(self, match):
        self.name, self.uses = match["name"], match["uses"].split()
        self.circle, self.modules = int(match["circle"] or CIRCLE_MAX), int(match["modules"] or MODULES_MAX)


class Layers:
    """What scripts/layers says."""

    def __init__(self, text):
        self.folders, self.offences = {}, []
        for number, line in enumerate(text.splitlines(), 1):
            line = line.split("#")[0].strip()
            if line:
                self._add("scripts/layers:%d: " % number, line)

    def _add(self, where, line):
        match = LINE.fullmatch(line)
        if not match:
            self.offences.append(where + "not FOLDER [circle N] [modules N]: FOLDERS")
            return
        folder = Folder(match)
        if folder.name in self.folders:
            self.offences.append("%s%s stands there twice" % (where, folder.name))
        for used in folder.uses:
            if used != "gen" and used not in self.folders:
                self.offences.append("%s%s may use what stands above it only, not %s" % (where, folder.name, used))
        self.folders[folder.name] = folder


class Tree:
    """The modules, what they include, and which symbols their objects define and need. A module is named by its path."""

    def __init__(self, root, build):
        self.includes, self.sources = {}, []
        for path in sorted(path for top in TOPS for path in root.glob(top + "/**/*.[ch]")):
            if APART.fullmatch(path.stem):
                continue
            name = str(path.relative_to(root).with_suffix(""))
            found = INCLUDE.findall(path.read_text(encoding="utf-8"))
            self.includes.setdefault(name, set()).update(found)
            if path.suffix == ".c":
                self.sources.append(name)
        self.missing = [name for name in self.sources if not (build / (name + ".o")).exists()]
        generated = ["gen/" + path.stem for path in sorted(build.glob("gen/*.o")) if not GENERATED_APART.fullmatch(path.stem)]
        self.defined, self.needed = collections.defaultdict(set), collections.defaultdict(set)
        objects = [name for name in self.sources if name not in self.missing] + generated
        self._read([name + ".o" for name in objects], build)

    def _read(self, objects, build):
        if not objects:
            return
        listed = subprocess.run(["nm", "-A", *objects], cwd=build, check=True, stdout=subprocess.PIPE, text=True).stdout
        for line in listed.splitlines():
            name, rest = line.split(".o:", 1)
            words = rest.split()
            if words[0] in ("U", "w", "v"):
                self.needed[name].add(words[1])
            elif words[1].isupper():
                self.defined[words[2]].add(name)


def folder_of(path):
    return os.path.dirname(path) or "gen"


def definers(tree, folder, may_use, symbol):
    """The modules meant by a symbol that more than one program defines: the folder's own, then those it may use."""
    found = tree.defined.get(symbol, ())
    for wanted in ([folder], may_use):
        near = [name for name in found if folder_of(name) in wanted]
        if near:
            return near
    return sorted(found)


def uses(tree, layers):
    """(module, used module, symbol) for every symbol that a module needs and another one defines."""
    for name, symbols in sorted(tree.needed.items()):
        folder = folder_of(name)
        may_use = layers.folders[folder].uses if folder in layers.folders else ()
        for symbol in sorted(symbols):
            for definer in definers(tree, folder, may_use, symbol):
                if definer != name:
                    yield name, definer, symbol


def wrong_uses(tree, layers, found):
    def is_wrong(folder, used):
        return folder in layers.folders and used != folder and used not in layers.folders[folder].uses

    for name, included in tree.includes.items():
        for path in sorted(included):
            if is_wrong(folder_of(name), folder_of(path)):
                yield "%s includes %s: %s may not use %s" % (name, path, folder_of(name), folder_of(path))
    for name, definer, symbol in found:
        if is_wrong(folder_of(name), folder_of(definer)):
            yield "%s uses %s of %s: %s may not use %s" % (name, symbol, definer, folder_of(name), folder_of(definer))


def idle_words(tree, layers, found):
    """What a folder may use and does not."""
    used = {(folder_of(name), folder_of(path)) for name, paths in tree.includes.items() for path in paths}
    used |= {(folder_of(name), folder_of(definer)) for name, definer, _ in found}
    for folder in layers.folders.values():
        for word in folder.uses:
            if (folder.name, word) not in used:
                yield "scripts/layers need not let %s use %s" % (folder.name, word)


def circles(graph):
    """The strongly connected components of more than one module (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(name):
        index[name] = low[name] = len(index)
        stack.append(name)
        for used in graph[name]:
            if used not in index:
                visit(used)
            if used in stack:
                low[name] = min(low[name], low[used])
        if low[name] == index[name]:
            circle = stack[stack.index(name):]
            del stack[stack.index(name):]
            if len(circle) > 1:
                found.append(circle)

    for name in list(graph):
        if name not in index:
            visit(name)
    return found


def largest_circles(found):
    """The largest circle of each folder; a circle that goes through several counts for each of them."""
    graph = collections.defaultdict(set)
    for name, definer, _ in found:
        graph[name].add(definer)
    largest = collections.defaultdict(list)
    for circle in circles(graph):
        written = sorted(name for name in circle if not name.startswith("gen/"))
        for folder in {folder_of(name) for name in written}:
            largest[folder] = max(largest[folder], written, key=len)
    return largest


def check(root, build):
    """What is wrong, and what could be said better."""
    layers, tree = Layers((root / "scripts/layers").read_text(encoding="utf-8")), Tree(root, build)
    offences, hints = list(layers.offences), []
    offences += ["%s.c has no object in %s: `make all` first" % (name, build) for name in tree.missing]
    modules = collections.Counter(folder_of(name) for name in tree.includes)
    offences += ["%s does not stand in scripts/layers" % name for name in sorted(modules) if name not in layers.folders]
    offences += ["scripts/layers: no module is in %s" % name for name in layers.folders if not modules[name]]
    found = list(uses(tree, layers))
    offences += wrong_uses(tree, layers, found)
    largest = largest_circles(found)
    for folder in layers.folders.values():
        circle = largest[folder.name]
        for word, number, bound, default in (("circle", len(circle), folder.circle, CIRCLE_MAX),
                                             ("modules", modules[folder.name], folder.modules, MODULES_MAX)):
            if number > bound:
                names = ": " + " ".join(circle) if word == "circle" else ""
                offences.append("%s: %s %d, and scripts/layers allows %d%s" % (folder.name, word, number, bound, names))
            elif bound > max(number, default):
                hints.append("scripts/layers can say of %s: %s %d" % (folder.name, word, max(number, default)))
    return offences, hints + list(idle_words(tree, layers, found))


def main(arguments):
    sys.setrecursionlimit(10000)
    build = Path(arguments[0] if arguments else "build").resolve()
    root = Path(arguments[1] if len(arguments) > 1 else Path(__file__).resolve().parent.parent)
    offences, hints = check(root, build)
    print("".join(line + "\n" for line in offences + hints), end="")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
