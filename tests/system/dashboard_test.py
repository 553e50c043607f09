#!/usr/bin/env python3
"""Dashboard and alerts ask for what the daemons measure: every metric and label in their queries is in the /metrics text
of a running system that has executed a program."""
import json
import os
import re

import harness
from cluster import System
from harness import ROOT, expect, expect_equal, main, scenario, within

DASHBOARD = os.path.join(ROOT, "config", "grafana", "flyt.json")
ALERTS = os.path.join(ROOT, "config", "prometheus", "flyt-alerts.yml")
ADDED_BY_PROMETHEUS = {"instance", "job"}


def panels():
    with open(DASHBOARD) as f:
        return json.load(f)["panels"]


def queries():
    """(where, expression, template of the text that shows it)"""
    for panel in panels():
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], target["legendFormat"]
    with open(ALERTS) as f:
        for rule in re.split(r"^ *- alert: ", f.read(), flags=re.M)[1:]:
            yield rule.split("\n")[0], re.search(r"^ *expr: (.*)$", rule, re.M)[1], rule


def defined(text):
    """{metric: (kind, names of labels, where there is a value)} of a /metrics text."""
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    found = {name: (kind, set()) for name, kind in kinds.items()}
    for line in text.splitlines():
        if match := re.match(r"(\w+)\{(.*)\} ", line):
            base = match[1] if match[1] in kinds else re.sub(r"_(bucket|sum|count)$", "", match[1])
            found[base][1].update(re.findall(r'(\w+)="', match[2]))
    return found


def check(known, where, expression, shown):
    expect_equal(expression.count("("), expression.count(")"), where, "parentheses in", expression)
    names = re.findall(r"\bflyt_\w+", expression)
    expect(names, where, "asks for nothing:", expression)
    labels = set()
    for name in names:
        base = re.sub(r"_(bucket|sum|count)$", "", name) if name not in known else name
        expect(base in known, where, "asks for", name, "which no daemon has")
        kind, of_it = known[base]
        expect((kind == "histogram") == (name != base), where, "asks for", name, "of a", kind)
        labels |= of_it
        if kind == "counter":
            expect(re.search(r"(rate|increase)\(%s\b" % name, expression), where, "shows a counter:", expression)
    grouped = [word for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for word in group.split(", ")]
    if grouped and " on (" not in expression:
        labels = set(grouped)
    for label in grouped + re.findall(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}", shown):
        expect(label in labels | ADDED_BY_PROMETHEUS, where, "wants the label", label, "of", names, "with", labels)


@scenario
def queries_match_the_daemons():
    with System(nodes=1, vms=1) as system:
        system.flytctl("vm", "add", system.vm_ip(0), "--sm", "8", "--memory", "256M")
        program = system.start_in_vm(0, harness.helper("echo"), "wait")
        expect_equal([program.stdout.readline(), program.stdout.readline()], [b"[wait]\n", b"waiting\n"], "the program")
        within(20, lambda: "flyt_session_calls_total{" in system.metrics("node-0"), "the session in the node's metrics")
        known = {}
        for daemon in system.daemons():
            for name, (kind, labels) in defined(system.metrics(daemon)).items():
                expect(name not in known, "two daemons have", name, "which would be counted twice")
                known[name] = (kind, labels)
        harness.kill_group(program)
        # Metrics with labels that appear only when something fails.
        for name, labels in (("flyt_store_errors_total", {"operation"}),
                             ("flyt_call_errors_total", {"procedure", "direction"})):
            known[name][1].update(labels)
        count = 0
        for where, expression, shown in queries():
            check(known, where, expression, shown)
            count += 1
        expect(count > 50, "only %d queries were found" % count)


@scenario
def panels_are_laid_out():
    used = set()
    for panel in panels():
        expect(panel["id"] not in used, "the id of", panel["title"], "is used twice")
        used.add(panel["id"])
    cells = {}
    for panel in panels():
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                expect(x < 24 and (x, y) not in cells, panel["title"], "covers", cells.get((x, y)))
                cells[x, y] = panel["title"]


main()
