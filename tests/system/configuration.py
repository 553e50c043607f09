"""What the tests know of the daemons' settings: their tables, as --help prints them, and the files' form."""
import os
import re
import subprocess

import harness

KINDS = ("cluster", "node", "client")


def daemon(kind):
    return os.path.join(harness.BUILD, "bin", "flyt-%s-manager" % kind)


def settings(kind):
    """{path: (kind, default)} of a daemon's table; the default of a required setting is None."""
    return {path: row[:2] for path, row in _rows(kind).items()}


def live_settings(kind):
    """The paths of those that a reload changes."""
    return {path for path, row in _rows(kind).items() if row[2]}


def _rows(kind):
    help_text = subprocess.run([daemon(kind), "--help"], check=True, capture_output=True, text=True).stdout
    table = {}
    for line in help_text.split("\nSettings:\n")[1].split("\n\n")[0].splitlines():
        match = re.fullmatch(r"  (\S+) .*\((?!live\))(\w+)(?:, (?:default (.*?)|(required)))?\)( \(live\))?", line)
        harness.expect(match, "a line of --help is not understood:", line)
        path, what, default, required, live = match.groups()
        table[path] = (what, None if required else default or "", bool(live))
    return table


def parse(text):
    """{path: value as text} of a file in libconfig's form with simple values; lists are lists of texts."""
    values, groups = {}, []
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if match := re.fullmatch(r"(\w+): \{", line):
            groups.append(match[1])
        elif line == "};":
            groups.pop()
        else:
            match = re.fullmatch(r"(\w+) = (.*);", line)
            harness.expect(match, "not understood:", line)
            path, value = ".".join(groups + [match[1]]), match[2]
            harness.expect(path not in values, path, "twice")
            values[path] = re.findall(r'"([^"]*)"', value) if value.startswith("[") else value.strip('"')
    harness.expect(not groups, "an open group:", groups)
    return values
