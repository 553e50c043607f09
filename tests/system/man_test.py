#!/usr/bin/env python3
"""Manual pages and completion agree with the programs; bash completes with them."""
import os
import re
import shutil
import subprocess

import harness
from harness import BUILD, ROOT, expect, expect_equal, main, run, scenario, skip

TOOL = os.path.join(ROOT, "scripts", "man-pages")
COMPLETION = os.path.join(ROOT, "config", "completion", "flytctl.bash")
PAGES = ["flytctl.1", "flyt-cluster-manager.8", "flyt-node-manager.8", "flyt-client-manager.8"]

if not os.path.exists(os.path.join(BUILD, "bin", "flytctl")):
    skip("the control plane is not built")


def completed(*words):
    """What bash offers for the last word."""
    script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _flytctl; printf "%s\\n" "${COMPREPLY[@]}"'
    result = run(["bash", "-c", script, "bash", COMPLETION, "flytctl", *words])
    expect_equal(result.status, 0, words, result)
    return result.out.split()


@scenario
def pages_say_what_programs_say():
    result = run([TOOL, "--check", BUILD])
    expect_equal(result.status, 0, result)


@scenario
def pages_by_hand_have_the_same_options():
    """Those of programs that do not write their pages."""
    for program, path in (("flyt-server", os.path.join(BUILD, "bin", "flyt-server")),
                          ("flyt-run", os.path.join(ROOT, "scripts", "flyt-run")),
                          ("flyt-client-lib", os.path.join(ROOT, "scripts", "flyt-client-lib")),
                          ("flyt-smi", os.path.join(BUILD, "bin", "flyt-smi")),
                          ("flyt-pki", os.path.join(ROOT, "scripts", "flyt-pki"))):
        with open(os.path.join(ROOT, "config", "man", program + ".1"), encoding="utf-8") as file:
            page = file.read().replace("\\", "")
        said = run([path, "--help"])
        expect_equal(said.status, 0, program, "--help", said)
        options = [set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", text)) for text in (said.out, page)]
        expect(options[0], program, "names no option")
        expect_equal(options[0], options[1], program, "options of --help, and of the page")


@scenario
def a_difference_is_found():
    copy = os.path.join(harness.WORK, "tree")
    for folder in ("scripts", "config"):
        shutil.copytree(os.path.join(ROOT, folder), os.path.join(copy, folder))
    page = os.path.join(copy, "config", "man", "flyt-client-manager.8")
    text = open(page, encoding="utf-8").read()
    expect(text.count("programs at once") + text.count("Programs at once") == 1, "the page names programs_max once")
    with open(page, "w", encoding="utf-8") as file:
        file.write(text.replace("default 4096", "default 4097"))
    tool = os.path.join(copy, "scripts", "man-pages")
    result = run([tool, "--check", BUILD])
    expect(result.status == 1 and "flyt-client-manager.8" in result.out, result)
    expect_equal(run([tool, BUILD]).status, 0, "it is written again")
    expect_equal(open(page, encoding="utf-8").read(), text, "the page")
    expect_equal(run([tool, "--check", harness.WORK]).status, 77, "without programs")


@scenario
def troff_takes_the_pages():
    if not shutil.which("groff"):
        print("groff is not there: not looked at")
        return
    for page in PAGES:
        result = subprocess.run(["groff", "-man", "-ww", "-b", "-z", "-Kutf8", os.path.join(ROOT, "config", "man", page)],
                                capture_output=True, text=True, timeout=60)
        expect(result.returncode == 0 and not result.stderr, page, result.stderr)


@scenario
def bash_completes():
    expect_equal(completed("res"), ["resume", "resize", "restore"])
    expect_equal(completed("vm", "re"), ["remove", "revoke"])
    expect_equal(completed("-o", "json", "vm", "j"), ["join-token"])
    expect_equal(completed("-o", ""), ["table", "wide", "json"])
    expect_equal(completed("vm", "add", "10.0.0.1", "--pol"), ["--policy"])
    expect_equal(completed("vm", "add", "10.0.0.1", "--policy", "s"), ["spread"])
    expect_equal(completed("resize", "web", "--when"), ["--when-free"])
    expect_equal(completed("resize", "--sm", "4", "web", "--man"), ["--manager"])
    expect_equal(completed("image", "v"), ["verify"])
    expect_equal(completed("image", "show", COMPLETION[:-2]), [COMPLETION])
    expect("nodes" in completed("") and "doctor" in completed(""), completed(""))


if __name__ == "__main__":
    main()
