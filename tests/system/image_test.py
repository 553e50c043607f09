#!/usr/bin/env python3
"""flytctl image: what it shows of checkpoint images and folders of them, and what it says of damaged ones."""
import json
import os
import shutil
import tempfile

import harness
from harness import BUILD, expect, expect_equal, helper, main, run, scenario, skip

FLYTCTL = os.path.join(BUILD, "bin", "flytctl")
FIRST, SECOND, THIRD = "11112222333344445555666677778888", "aaaabbbbccccddddeeeeffff00001111", "0123" * 8

for needed in (FLYTCTL, helper("make_image")):
    if not os.path.exists(needed):
        skip(needed + " is not built")


def folder_with(*images):
    """A new folder with these images: (id,) or (id, parent)."""
    folder = tempfile.mkdtemp(dir=harness.WORK)
    for words in images:
        result = run([helper("make_image"), folder, *words])
        expect_equal(result.status, 0, result)
    return folder


def image(*words, status=0):
    """flytctl image, without any cluster manager; with -o json what it printed, read."""
    result = run([FLYTCTL, "image", *words], env={"PATH": os.environ["PATH"], "TZ": "UTC"})
    expect_equal(result.status, status, words, result)
    if "json" in words:
        return json.loads(result.out), result.err
    return result


def path(folder, name):
    return os.path.join(folder, name + ".flyt")


def change_byte(file, at):
    with open(file, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 0x20]))


@scenario
def one_image_is_shown():
    folder = folder_with((FIRST,))
    shown, err = image("show", path(folder, FIRST), "-o", "json")
    expect_equal(err, "", "stderr")
    wanted = {
        "is_sound": True, "error": "", "id": FIRST, "parent_id": None, "parents": [], "build": "v9.9-test",
        "program": "my\033[31m_program", "pid": 4711, "session_id": "0123456789abcdef", "vm": "10.0.0.7",
        "gpu_type": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132, "page_bytes": 65536, "rounds": 1,
        "extents": 2, "extent_bytes": 6 << 20, "allocations": 3, "allocation_bytes": 3001500, "module_images": 2,
        "module_image_bytes": 28, "globals": 2, "global_bytes": 10, "constants": 1, "constant_bytes": 12,
        "pages_raw": 3, "pages_zstd": 5, "pages_zero": 88, "pages_lz4": 0, "pages_parent": 0, "pages_inherited": 0,
        "calls_received": 300, "calls_executed": 200, "calls_completed": 100, "records_skipped": 0,
        "objects": {"module": 1, "stream": 2, "event": 1, "other": 1},
        "bytes": os.path.getsize(path(folder, FIRST)),
    }
    expect_equal({field: shown.get(field) for field in wanted}, wanted, "fields")
    expect_equal([slot["memory_limit_bytes"] for slot in shown["slots"]], [8 << 30, 0], "slots")
    table = image("show", path(folder, FIRST)).out
    expect("\033" not in table and "my\\x1b[31m_program" in table, "nothing raw reaches a terminal:", table)
    for line in ("sound               yes", "  memory            6MiB", "slots               0 (8.0GiB),1 (no limit)"):
        expect(line + "\n" in table, line, "in", table)


@scenario
def a_chain_is_shown_and_verified():
    folder = folder_with((FIRST,), (SECOND, FIRST), (THIRD, SECOND))
    shown, _ = image("show", path(folder, THIRD), "-o", "json")
    expect_equal(shown["parents"], [SECOND, FIRST], "parents")
    expect_equal((shown["pages_inherited"], shown["pages_parent"], shown["pages_zstd"]), (95, 1, 1), "pages")
    rows, _ = image("show", folder, "-o", "json")
    expect_equal({row["id"]: (row["parent_id"], row["is_newest"], row["is_usable"]) for row in rows},
                 {FIRST: (None, False, True), SECOND: (FIRST, False, True), THIRD: (SECOND, True, True)}, "folder")
    verified = image("verify", folder)
    expect_equal(verified.out, path(folder, THIRD) + ": sound, and so are its parents: 2\n", "verified")
    os.remove(path(folder, FIRST))
    shown, err = image("show", path(folder, THIRD), "-o", "json", status=3)
    expect(not shown["is_sound"] and FIRST + ".flyt is not there" in err and shown["parents"] == [SECOND], shown, err)
    rows, err = image("show", folder, "-o", "json", status=1)
    expect(not any(row["is_usable"] or row["is_newest"] for row in rows), rows)
    result = image("verify", folder, status=1)
    expect(result.out == "" and result.err.count("is not there") == 2, result)


@scenario
def damage_is_told():
    folder = folder_with((FIRST,), (SECOND, FIRST))
    bytes_there = os.path.getsize(path(folder, FIRST))
    change_byte(path(folder, FIRST), bytes_there // 2)
    for file in (FIRST, SECOND):
        result = image("verify", path(folder, file), status=1)
        expect_equal(result.err.count("\n"), 1, "one line", result)
        expect("%s.flyt: damaged at byte " % FIRST in result.err and
               "the checksum of 3 pages at 0x200000000000 does not fit" in result.err, result)
    image("show", folder)  # only beginnings and ends are looked at
    image("verify", folder, status=1)
    shown = image("show", path(folder, FIRST), status=1)
    expect("sound               no\n" in shown.out and "damaged at byte" in shown.err, shown)
    change_byte(path(folder, FIRST), bytes_there // 2)
    image("verify", folder)
    os.truncate(path(folder, SECOND), os.path.getsize(path(folder, SECOND)) - 1)
    result = image("verify", path(folder, SECOND), status=1)
    expect("cut off at byte" in result.err, result)
    rows, _ = image("show", folder, "-o", "json", status=1)
    expect_equal([row["id"] for row in rows if row["is_newest"]], [FIRST], "the newest that is whole")
    rows, _ = image("verify", folder, "-o", "json", status=1)
    expect_equal({os.path.basename(row["file"])[:32]: row["is_sound"] for row in rows}, {FIRST: True, SECOND: False},
                 "verified")


@scenario
def what_is_no_image_is_told():
    folder = folder_with((FIRST,))
    expect("cannot be opened" in image("show", os.path.join(folder, "nothing"), status=3).err, "nothing there")
    other = os.path.join(folder, "text")
    with open(other, "w", encoding="utf-8") as file:
        file.write("this is no image, and long enough not to be one\n")
    expect("does not begin as an image does" in image("verify", other, status=1).err, "a text")
    newer = os.path.join(folder, "newer")
    shutil.copy(path(folder, FIRST), newer)
    with open(newer, "r+b") as file:
        head = bytearray(file.read(12))
        head[11] = 7
        checksum = 0xffffffff
        for byte in head:
            checksum ^= byte
            for _ in range(8):
                checksum = checksum >> 1 ^ (0x82f63b78 if checksum & 1 else 0)
        file.seek(0)
        file.write(bytes(head) + (checksum ^ 0xffffffff).to_bytes(4, "big"))
    expect("format 7, which is newer than format 1" in image("show", newer, status=1).err, "a newer one")
    os.remove(newer)
    empty = tempfile.mkdtemp(dir=harness.WORK)
    expect("there are no images" in image("verify", empty, status=3).err, "an empty folder")
    expect_equal(image("show", empty, "-o", "json")[0], [], "an empty folder")
    image("show", status=2)


if __name__ == "__main__":
    main()
