#!/usr/bin/env python3
"""Tests of the grammar of the rows of NVIDIA's libraries, and of what is made of them."""
import re
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))
import library_client  # noqa: E402
import library_parts  # noqa: E402
import library_parts_check  # noqa: E402
import library_rows  # noqa: E402
import library_server  # noqa: E402
import library_shared  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
ROWS = sorted((ROOT / "rpc/library").glob("*.rows"))
HEAD = ("library mill libmill.so.3 header mill.h version 3.4 property millGetProperty\n"
        "codes success 0 refused 9 failed 6 handle 1 invalid 3 memory 2\n")
OBJECTS = """object wheel
    stream millSetStream
    mode millSetMode mode
    state enum mode
    state s32 speed = 7
    state address pond
    state size pond_bytes
    apply millSetSpeed speed
    apply millSetPond pond pond_bytes streamed
object sack small apart
value grain in 64
    create millGrainCreate kind
    attribute millGrainSet
    destroy millGrainDestroy
    0 kind enum
    1 size u64 2 = 5
"""


def load(text, head=HEAD + OBJECTS):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mill.rows"
        path.write_text(head + text)
        return library_rows.load(path)


def call(text):
    return load(text).calls[0]


def function(source, name):
    """The text of a function of made code, its spaces made one."""
    found = re.search(rf"^[^\n]*\b{name}\([^)]*\)\n\{{\n(.*?)^\}}", source, re.S | re.M)
    return " ".join(found[1].split())


class Grammar(unittest.TestCase):
    def test_what_is_refused(self):
        run = "call millRun stream\n"
        cases = {
            "mill it\n": "unknown word mill",
            "    handle wheel\n": "unknown word|cannot be understood|belongs to nothing",
            "call millRun often\n": "unknown class often",
            run + "    handle\n": "expected NAME KIND: handle",
            run + "    handle wheel, x heavy\n": "unknown kind heavy",
            run + "    handle new stone\n": "new of what is declared above",
            run + "    handle end stone\n": "end of what is declared above",
            run + "    handle val stone\n": "val of what is declared above",
            run + "    handle wheel 3\n": "nothing follows wheel",
            run + "    handle wheel, n s32 4\n": "nothing follows s32",
            run + "    handle wheel, x in f32\n": "nothing follows in",
            run + "    handle wheel, room scratch\n": "expected scratch N",
            run + "    handle wheel, x hin\n": "expected hin TYPE",
            run + "    handle wheel, x hin f32 2 3\n": "expected hin TYPE",
            run + "    handle wheel, x scalar flour\n": "unknown type flour",
            run + "    x scalar f32\n": "no object with a pointer mode",
            run + "    s sack, x result f32\n": "no object with a pointer mode",
            "call millRun{Q} stream\n    handle wheel\n": "unknown set in millRun{Q}",
            "call mill{T:Q}Run stream\n    handle wheel\n": "no type of Q is known",
            run + "    handle wheel\n" + run + "    handle wheel\n": "millRun stands there twice",
            run + "    handle wheel\nrefuse it is loud: millRun\n": "millRun stands there twice",
            run + "    " + ", ".join(f"w{i} wheel" for i in range(5)) + "\n": "more than 4 objects",
            run + "    a wheel, b wheel?, c wheel?\n": "more than one object that may be missing",
            run + "    n s32\n    draws\n": "names no object from which it draws",
            "call millSet more\n    n s32\n": "the one object that it names, and names 0",
            "call millSet more\n    a wheel, b wheel\n": "the one object that it names, and names 2",
            "call millSet more twice\n    a wheel\n": r"expected more \[last\]",
            "call millSet more\n    a wheel?\n": "millSet is nothing without its object",
            "call millCreate new\n    n s32\n": "millCreate is new, and has another number",
            "call millCreate sync\n    wheel new wheel\n": "millCreate is sync, and has another number",
            "call millEnd end\n    wheel wheel\n": "millEnd is end, and has another number",
            "call millSet set speed=n\n    n s32\n": "millSet has no object",
            "call millSet set\n    wheel wheel\n": "nothing that it would set",
            "call millSet set speed=n\n    wheel wheel, m s32\n": "expected FIELD=PARAMETER, of a wheel and of millSet: speed=n",
            "call millGet get weight=m\n    wheel wheel, m inout\n": "expected FIELD=PARAMETER",
            "call millGet get stream=m\n    sack sack, m inout\n": "expected FIELD=PARAMETER, of a sack",
            "value flour in 64\n    destroy millFlourEnd\n": "flour is made by one of the library's functions or by hand",
            run + "    handle wheel, g set grain\n": "g of millRun cannot be set: a call in a stream does that to what is told",
            run + "    handle wheel, g set stone\n": "set of what is declared above",
            "call millAsk sync\n    handle wheel\n    asked\n": "millAsk is sync, and not a call in a stream",
            "call millMake make stone kind=kind\n    g inout, kind enum\n": "expected make VALUE, of what is declared above",
            "call millMake make grain weight=kind\n    g inout, kind enum\n": "expected FIELD=PARAMETER or FIELD:NUMBER, of a grain and of millMake: weight=kind",
            "call millMake make grain kind:many\n    g inout\n": "FIELD:NUMBER, of a grain and of millMake: kind:many",
            "call millMake make grain room\n    g inout\n": "FIELD:NUMBER, of a grain and of millMake: room",
            "call millFill fill grain kind=n\n    g val grain, m enum\n": "FIELD:NUMBER, of a grain and of millFill: kind=n",
            "call millAsk aside\n    n s32\n": "has no place in a stream, and so is served by hand",
            run + "    handle wheel\n    apart\n": "has words of another class: apart",
            run + "    handle wheel\n    at once\n": "has words of another class: at once",
            run + "    handle wheel\n    gathers\n": "has words of another class: gathers",
            "object stone heavy\n": r"expected object NAME \[small \| in N\]",
            "object stone small in 64\n": r"expected object NAME \[small \| in N\]",
            "object stone in\n": "cannot be understood",
            "value flour in 64\n    made\n": "flour is ended by one of the library's functions or by hand",
            "value flour in 64\n    made\n    ended\n    destroy millFlourEnd\n": "flour is ended by one of the library's functions or by hand",
            run + "    handle wheel, room scratch of millAsk\n": "has its scratch of millAsk, which is no call",
            run + "    handle wheel, room scratch in millAsk\n": "expected scratch N",
            run + "    handle wheel, x hin offsets(3) 4\n": r"unknown type offsets\(3\)",
            run + "    handle wheel, x hout order(3) 3\n": r"unknown type order\(3\)",
            run + "    handle wheel, x in\n    waits\n    staged\n": "has nothing to stage",
            run + "    handle wheel, x hin f32 3\n    staged\n": "or no thread that could wait for it",
            "call millMake more\n    handle wheel, bytes hout size\n    area\n": "says no size of an area, or its object has none",
            "object pit\n    state address hole\n    state s32 digs\n    area hole digs\ncall millDig more\n    handle pit, n s32\n    area\n":
                "says no size of an area, or its object has none",
            run + "    handle wheel, x either f32 3\n": "expected either TYPE N OBJECT",
            run + "    handle wheel, x either f32 3 stone\n": "expected either TYPE N OBJECT",
            run + "    handle wheel, x either f32 3 sack, y either f32 3 sack\n": "more than one result that is in either memory",
            "object stone unstreamed\n" + run + "    handle stone\n": "works in the default stream, for which no thread waits",
            "value flour of bakery\n": "bakery.rows has no value flour",
            "value flour of mill\n": "mill.rows has no value flour",
            "object stone\n    weight 3\n": "cannot be understood",
            "object stone small bound\n": "stone cannot be bound, for it stays or is small",
            "object stone\n    state u32 grains\n    apply millSetGrains grains sms\n": "grains of stone is no s32 of its state",
            "object stone bound\ncall millStone new\n    s new stone, n s32\n": "is made by one call without further parameters",
            "object stone bound\ncall millStone new\n    s new stone\ncall millCut more\n    s stone\n": "is made by one call without further parameters",
        }
        for text, sentence in cases.items():
            with self.subTest(text=text), self.assertRaisesRegex(library_rows.RowError, sentence):
                load(text)
        with self.assertRaisesRegex(library_rows.RowError, "no codes for memory"):
            load("", HEAD.replace(" memory 2", ""))
        with self.assertRaisesRegex(library_rows.RowError, "belongs to nothing"):
            load("    handle wheel\n", HEAD)

    def test_how_a_library_is_said(self):
        self.assertEqual((load("").is_code, load("").is_unversioned), (False, False))
        told = load("", HEAD.replace("property millGetProperty", "code millGetVersion unversioned") + OBJECTS)
        self.assertEqual((told.is_code, told.is_unversioned, told.property), (True, True, "millGetVersion"))
        self.assertEqual(load("", HEAD.replace("millGetProperty", "millGetProperty unversioned also p") + OBJECTS).also, "p")
        for text in ("codes millGetProperty", "property millGetProperty old", "property millGetProperty unversioned also"):
            with self.assertRaisesRegex(library_rows.RowError, "expected library"):
                load("", HEAD.replace("property millGetProperty", text))

    def test_a_number_that_two_rows_would_have(self):
        with mock.patch.object(library_rows, "row_id", return_value=7), self.assertRaisesRegex(library_rows.RowError, "millB has the number of millA"):
            load("call millA sync\n    handle wheel\ncall millB sync\n    handle wheel\n")

    def test_errors_say_where(self):
        with self.assertRaisesRegex(library_rows.RowError, r"mill\.rows:4: unknown class often"):
            load("\ncall millRun often\n", HEAD)

    def test_lines(self):
        library = load("# nothing\nrefuse it is loud: \\\n    millGrind \\\n    mill{T:S,D}Sift\ncall millRun hand: it is heavy # so\n")
        self.assertEqual([(one.symbol, one.kind, one.reason) for one in library.calls],
                         [("millGrind", "none", "it is loud"), ("millSSift", "none", "it is loud"), ("millDSift", "none", "it is loud"),
                          ("millRun", "hand", "it is heavy")])
        self.assertEqual((library.name, library.soname, library.version, library.property), ("mill", "libmill.so.3", 3004, "millGetProperty"))

    def test_objects(self):
        library = load("object stone small apart sequential also rock\n")
        wheel, sack, stone = library.objects.values()
        self.assertEqual((wheel.is_small, wheel.is_apart, wheel.also), (False, False, ""))
        self.assertEqual((sack.is_small, sack.is_apart, sack.number), (True, True, 1))
        self.assertEqual((stone.is_small, stone.is_apart, stone.is_sequential, stone.also), (True, True, True, "rock"))
        self.assertEqual((wheel.is_bound, wheel.sms_field), (False, ""))
        bound = load("object vane bound\n    state s32 blades\n    apply millSetBlades blades sms\ncall millVane new\n    h new vane\n").objects["vane"]
        self.assertEqual((bound.is_bound, bound.sms_field, bound.applies), (True, "blades", [("millSetBlades", ["blades"], False)]))
        self.assertEqual([(one.name, one.default) for one in wheel.fields], [("mode", "0"), ("speed", "7"), ("pond", "0"), ("pond_bytes", "0")])
        self.assertEqual(wheel.applies, [("millSetSpeed", ["speed"], False), ("millSetPond", ["pond", "pond_bytes"], True)])
        grain = library.values["grain"]
        self.assertEqual([(one.number, one.name, one.count, one.default) for one in grain.fields], [(0, "kind", 1, "0"), (1, "size", 2, "5")])


class Variants(unittest.TestCase):
    def kinds(self, text):
        return {one.symbol: [(p.name, p.kind, p.type) for p in one.parameters] for one in load(text).calls}

    def test_types_and_widths(self):
        made = self.kinds("call mill{T}run{N} stream\n    handle wheel, n N, x scalar T, r result R, i result N\n")
        self.assertEqual(sorted(made), sorted(f"mill{t}run{n}" for t in "SDCZ" for n in ("", "_64")))
        self.assertEqual(made["millCrun_64"], [("handle", "wheel", ""), ("n", "s64", ""), ("x", "scalar", "c32"), ("r", "result", "f32"), ("i", "result", "s64")])
        self.assertEqual(made["millDrun"], [("handle", "wheel", ""), ("n", "s32", ""), ("x", "scalar", "f64"), ("r", "result", "f64"), ("i", "result", "s32")])

    def test_some_letters(self):
        self.assertEqual(sorted(self.kinds("call mill{T:S,Z}run stream\n    handle wheel\n")), ["millSrun", "millZrun"])
        # Of two letters the wider type is meant; of those that name none the other one is.
        made = self.kinds("call mill{T:Cs,ZK}run stream\n    handle wheel, x scalar T\n")
        self.assertEqual((made["millCsrun"][1][2], made["millZKrun"][1][2]), ("c32", "c64"))

    def test_names_that_hold_letters_stay(self):
        made = self.kinds("call mill{T:S}run stream\n    handle wheel, TAU in, Nodes s32\n")
        self.assertEqual(made["millSrun"], [("handle", "wheel", ""), ("TAU", "in", ""), ("Nodes", "s32", "")])


class Numbers(unittest.TestCase):
    def test_they_change_with_the_row_alone(self):
        row = "call millRun stream\n    handle wheel, n s32, x in\n"
        same = call(row).id
        self.assertEqual(call("# a remark\n" + row.replace("x in", "x  in")).id, same)
        for other in (row.replace("millRun", "millRan"), row.replace("n s32", "m s32"), row.replace("s32", "s64"), row.replace("x in", "x inout"),
                      row.replace(", x in", ""), row + "    waits\n", row.replace("x in", "x hin f32 n"), row.replace("x in", "x hin f32 n+1")):
            with self.subTest(row=other):
                self.assertNotEqual(call(other).id, same)
        after = load("call millStop sync\n    handle wheel\n" + row)
        self.assertEqual(after.calls[1].id, same)

    def test_no_two_rows_of_the_libraries_have_one(self):
        seen = {}
        for path in ROWS:
            for one in library_rows.load(path).calls:
                if one.is_sent:
                    self.assertNotIn(one.id, seen, f"{one.symbol} and {seen.get(one.id)}")
                    seen[one.id] = one.symbol
        self.assertTrue(seen)


class Made(unittest.TestCase):
    TABLE = """call millCreate new
    wheel new wheel
call millFill new
    sack new sack, n s32, sizes hin s32 n
call millEmpty end
    sack end sack
call millSetSpeed set speed=speed
    wheel wheel, speed s32
call millGetSpeed get speed=speed
    wheel wheel, speed inout
call millRun stream
    wheel wheel, n s32, x scalar f64, y in, weight result f32, sizes hin? s64 n, count hout s32 2
    waits
call millSift stream
    sack sack, wheel wheel?, room scratch bytes, bytes size, y out
    draws
call millTurn more last
    sack sack, n s64
    restarts
call millAsk cached
    n s32, y unread, answer hout size
call millGrind stream
    wheel wheel, grain val grain, y inout
refuse it is loud: millShout
"""

    @classmethod
    def setUpClass(cls):
        cls.library = load(cls.TABLE)
        cls.client = library_client.source(cls.library, "/* test */")
        cls.server = library_server.source(cls.library, "/* test */")
        cls.shared = library_shared.header(cls.library, "/* test */")

    def row(self, side, symbol):
        source = self.client if side == "client" else self.server
        return next(line for line in source.splitlines() if f'.name = "{symbol}"' in line)

    def test_what_the_client_puts(self):
        run = function(self.client, "millRun")
        for text in ("flyt_lib_object(&call, (uint64_t)(uintptr_t)wheel, &kind_wheel);", "sent.pointer_mode = flyt_lib_mode(&call, 0);", "sent.n = n;",
                     "flyt_lib_scalar(&call, &sent.x, x, sent.pointer_mode, (size_t)(1) * 8, FLYT_LIB_SCALAR);", "sent.y = (uint64_t)(uintptr_t)y;",
                     "FLYT_LIB_RESULT", "sent.sizes_bytes = flyt_lib_in(&call, sizes, flyt_lib_extent(n, 8), true);",
                     "sent.count_bytes = flyt_lib_out(&call, count, flyt_lib_extent(2, 4), false);"):
            self.assertIn(text, run)
        self.assertTrue(run.endswith("return flyt_lib_finish(&call);"))
        self.assertIn("flyt_lib_new(&call, sack, &kind_sack);", function(self.client, "millFill"))
        self.assertIn("flyt_lib_end(&call, (uint64_t)(unsigned)sack, &kind_sack);", function(self.client, "millEmpty"))
        self.assertIn("flyt_lib_object_optional(&call, (uint64_t)(uintptr_t)wheel, &kind_wheel);", function(self.client, "millSift"))
        self.assertIn("sent.room_bytes = room ? (size_t)(bytes) : 0;", function(self.client, "millSift"))
        self.assertIn("state->speed = (int32_t)speed;", function(self.client, "millSetSpeed"))
        self.assertIn("memcpy(speed, &state->speed, sizeof(int32_t));", function(self.client, "millGetSpeed"))
        self.assertIn("flyt_lib_value(&call, &sent.grain, grain, &value_grain);", function(self.client, "millGrind"))
        self.assertIn('return flyt_lib_refuse(&this_library, "millShout");', function(self.client, "millShout"))

    def test_what_the_client_knows_of_calls(self):
        for symbol, flags in (("millRun", "FLYT_LIB_IN_STREAM | FLYT_LIB_WAITS"), ("millSift", "FLYT_LIB_IN_STREAM | FLYT_LIB_DRAWS"),
                              ("millTurn", "FLYT_LIB_ASKS | FLYT_LIB_MORE | FLYT_LIB_RESTARTS | FLYT_LIB_LAST"), ("millAsk", "FLYT_LIB_CACHED"),
                              ("millFill", "FLYT_LIB_ASKS")):
            self.assertIn(f".flags = {flags},", self.row("client", symbol))
        self.assertIn(".is_small = true, .is_apart = true", self.row("client", "sack"))

    def test_what_the_server_gives_the_library(self):
        run = function(self.server, "run_millRun")
        for text in ("flyt_libcall_mode(call, 0, sent->pointer_mode);", "flyt_libcall_scalar(call, &sent->x, (size_t)(1) * 8, sent->pointer_mode, false);",
                     "flyt_libcall_scalar(call, &sent->weight, (size_t)(1) * 4, sent->pointer_mode, true);", "flyt_libcall_in(call, sent->sizes_bytes, flyt_lib_extent(sent->n, 8));",
                     "flyt_libcall_out(call, sent->count_bytes, flyt_lib_extent(2, 4));",
                     "(call->objects[0]->real, sent->n, x, (void *)(uintptr_t)sent->y, weight, sizes, count);"):
            self.assertIn(text, run)
        sift = function(self.server, "run_millSift")
        self.assertIn("flyt_libcall_scratch(call, sent->room_bytes, (size_t)(sent->bytes));", sift)
        self.assertIn("((int)(intptr_t)call->objects[0]->real, (call->objects[1] ? call->objects[1]->real : NULL), room, sent->bytes,", sift)
        self.assertIn("(&call->made, sent->n, sizes);", function(self.server, "run_millFill"))
        self.assertIn("flyt_libcall_value(call, &sent->grain, &value_grain);", function(self.server, "run_millGrind"))
        self.assertNotIn("millShout", self.server)
        self.assertNotIn("run_millSetSpeed", self.server)

    def test_what_the_server_knows_of_calls(self):
        ids = {call.symbol: call.id for call in self.library.calls}
        for symbol, text in (("millRun", ".flags = FLYT_LIBCALL_WAITS | FLYT_LIBCALL_IN_STREAM | FLYT_LIBCALL_ANSWERS}"),
                             ("millTurn", ".flags = FLYT_LIBCALL_IN_STREAM}"), ("millAsk", ".flags = 0}"), ("millFill", f".made = 1, .made_as = {ids['millFill']:#x}u, .flags = FLYT_LIBCALL_NEW}}"),
                             ("millEmpty", ".flags = FLYT_LIBCALL_END}"), ("millSift", ".object_count = 2, .kinds = {1, 0}, .optional = 2,")):
            self.assertIn(text, self.row("server", symbol))
        ids = [int(text, 16) for text in re.findall(r"\{\.id = (0x[0-9a-f]+)u", self.server)]
        self.assertEqual(ids, sorted(ids), "the server looks for a row by halves")
        apply = function(self.server, "apply_wheel")
        self.assertIn("if (want->pond && (is_streamed || want->pond != have->pond || want->pond_bytes != have->pond_bytes))", apply)
        self.assertIn(".is_reset = true, .reset_at = offsetof(struct flyt_state_wheel, pond)", self.server)

    def test_what_objects_are_compared_by(self):
        """By the row that made one; all served rows of a kind stand for each other."""
        library = load("object vane\nobject sail\n" + "".join(
            f"call millMake{name} new\n    h new {kind}{words}\n" for name, kind, words in (
                ("A", "vane", ""), ("B", "vane", ""), ("C", "vane", "\n    served"), ("D", "vane", ", n s32\n    served"), ("E", "sail", "\n    served"))))
        by = {call.symbol[-1]: library_server.made_as(library, call) for call in library.calls}
        self.assertEqual(by["C"], by["D"])
        self.assertEqual(len(set(by.values())), 4)
        self.assertNotIn(0, by.values())

    def test_what_makes_two_calls_alike(self):
        struct = re.search(r"struct flyt_args_millRun \{(.*?)\n\};", self.shared, re.S)[1]
        key, other = struct.split("uint64_t key_end[0];")
        self.assertEqual(set(re.findall(r"(\w+);", key)), {"n", "sizes_bytes", "count_bytes", "pointer_mode"})
        self.assertEqual(set(re.findall(r"(\w+);", other)), {"x", "y", "weight"})
        self.assertIn("uint64_t room_bytes;", re.search(r"struct flyt_args_millSift \{(.*?)key_end", self.shared, re.S)[1])

    def test_version_script(self):
        script = library_client.version_script(self.library, "/* test */")
        self.assertIn("libmill.so.3 {", script)
        self.assertEqual(set(re.findall(r"(mill\w+);", script)), {one.symbol for one in self.library.calls})


class InHostMemory(unittest.TestCase):
    """Arrays that the library follows, and that do not fit into a call; results in either memory; another library's descriptors."""

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("mill", HEAD + OBJECTS), ("bakery", (HEAD + """object oven unstreamed
object handmill waits also wheel
value grain of mill
call bakerAsk sync
    handle oven, n s32, rows hin offsets(k,base) n+1, k s32, base s32, bytes hout size
    waits
call bakerSift sync
    handle oven, n s32, rows hinout offsets(k,base) n+1, k s32, base s32, turn hin order(n) n, g val grain, room scratch of bakerAsk
    waits
    staged
call bakerBake stream
    handle oven, n s32, where hin? indices(n+1,0) n
    waits
call bakerDraw stream
    handle oven, n size, out either f64 n handmill
    waits
""").replace("mill.h", "baker.h").replace("library mill", "library bakery"))):
                (Path(folder) / f"{name}.rows").write_text(text)
            library = library_rows.load(Path(folder) / "bakery.rows")
        cls.client, cls.server = library_client.source(library, ""), library_server.source(library, "")
        cls.shared = library_shared.header(library, "")

    def test_what_is_followed_is_looked_at(self):
        sift = function(self.server, "run_bakerSift")
        for text in ("flyt_libcall_require(call, sent->rows_bytes, flyt_lib_extent(sent->n+1, 4));",
                     "flyt_libcall_check_offsets(call, rows, sent->rows_bytes / 4, sent->k, sent->base);",
                     "flyt_libcall_check_order(call, turn, sent->turn_bytes / 4, sent->n);"):
            self.assertIn(text, sift)
        self.assertLess(sift.index("check_order"), sift.index("if (call->status) return call->status;"))
        bake = function(self.server, "run_bakerBake")
        self.assertIn("flyt_libcall_check_indices(call, where, sent->where_bytes / 4, sent->n+1, 0);", bake)
        self.assertNotIn("require", bake, "it may be missing")

    def test_scratch_of_another_function(self):
        sift = function(self.server, "run_bakerSift")
        self.assertIn('flyt_server_library_function(call->library, "bakerAsk");', sift)
        self.assertIn("tell(call->objects[0]->real, sent->n, rows, sent->k, sent->base, &room_wanted)", sift)
        self.assertIn("flyt_libcall_scratch(call, room_wanted, room_wanted)", sift)
        self.assertIn("sent.room_bytes = room != NULL;", function(self.client, "bakerSift"))

    def test_staged(self):
        self.assertIn(".stage_at = offsetof(struct flyt_args_bakerSift, stage)", self.client)
        self.assertIn("FLYT_LIB_ASKS | FLYT_LIB_WAITS | FLYT_LIB_STAGED", self.client)
        sift = function(self.server, "run_bakerSift")
        self.assertLess(sift.index("flyt_libcall_stage(call, &sent->stage);"), sift.index("flyt_libcall_inout"))
        self.assertNotIn("stage", function(self.server, "run_bakerBake"))

    def test_areas(self):
        pit = ("object pit\n    state s32 digs = 1\n    state s32 own = 1 first 0\n    state address hole\n    area hole digs\n    apply millOwn own\n"
               "call millDig more\n    handle pit, n s32, bytes hout size\n    area\n")
        client, server = library_client.source(load(pit), ""), library_server.source(load(pit), "")
        self.assertIn("return flyt_lib_finish_with_area(&call, bytes, offsetof(struct flyt_state_pit, hole), "
                      "offsetof(struct flyt_state_pit, digs));", function(client, "millDig"))
        self.assertIn("defaults_pit = {.digs = 1};", client)
        self.assertIn("defaults_pit = {.digs = 1, .own = 1}", server)
        # What travels of an object is part of its rows' numbers.
        numbers = [load(text).calls[0].id for text in (pit, pit.replace("s32 own", "s64 own"), pit.replace(" first 0", ""))]
        self.assertNotEqual(numbers[0], numbers[1])
        self.assertEqual(numbers[0], numbers[2])

    def test_workspaces(self):
        client = library_client.source(load("call millRun stream\n    wheel wheel, n s32\n",
                                            HEAD + OBJECTS.replace("object sack", "    workspace pond pond_bytes\nobject sack")), "")
        self.assertRegex(client, r'"wheel",.*\.workspace_at = offsetof\(struct flyt_state_wheel, pond\), '
                                 r'\.workspace_bytes_at = offsetof\(struct flyt_state_wheel, pond_bytes\)')
        self.assertNotRegex(client, r'"sack",.*workspace')

    def test_either_memory(self):
        self.assertIn("sent.out = flyt_lib_either(&call, out, n, 8, &kind_handmill);", function(self.client, "bakerDraw"))
        self.assertIn("flyt_libcall_either(call, sent->out, flyt_lib_extent(sent->n, 8), 1);", function(self.server, "run_bakerDraw"))
        self.assertIn('.name = "handmill", .also = "wheel"', self.server)
        self.assertEqual([re.search(rf'"{name}".*?is_unstreamed = (\w+), .is_waiting = (\w+)', self.server).groups() for name in ("oven", "handmill")],
                         [("true", "false"), ("false", "true")])
        self.assertEqual([re.search(rf'"{name}".*?is_waiting = (\w+)', self.client)[1] for name in ("oven", "handmill")], ["false", "true"])

    def test_what_gathers_waits(self):
        for word in ("waits", "gathers"):
            call = load(f"call millRun stream\n    wheel wheel\n    served\n    {word}\n", HEAD + OBJECTS).calls[0]
            self.assertEqual(library_client.flags(call), "FLYT_LIB_IN_STREAM | FLYT_LIB_WAITS")

    def test_another_librarys_descriptor(self):
        self.assertIn('#include "flyt_lib_mill.h"', self.shared)
        self.assertNotIn("struct flyt_value_grain {", self.shared)
        self.assertIn("#define value_grain flyt_server_value_mill_grain", self.server)
        self.assertNotIn("create_grain", self.server)
        self.assertIn("const struct flyt_lib_value_kind value_grain = ", self.client)


class ByHand(unittest.TestCase):
    """What rows leave to be written by hand, and what is kept for it."""

    @classmethod
    def setUpClass(cls):
        library = load("""object plough
    stays a plough of the mill's
value seed in 96
    create millSeedCreate
    destroy millSeedDestroy
    filled
    list
    0 kind s32
    1 rows s32 8
    2 list_bytes u32
call millSeedSet fill seed kind=kind rows=rows
    seed val seed, kind enum, n s32, rows hin s32 n
call millSeedGet tell seed kind=kind
    seed val seed, kind inout
call millSow stream
    handle wheel, seed val seed, land hin bytes(1)
    served
    finds
value flour in 64
    destroy millFlourDestroy
    made
    told
    3 colour s32 = -1
    - kind s32
    - bags s64
    - barn address
call millFlourCreate make flour kind:4 bags=bags barn=barn
    flour inout, bags s64, barn inout
call millFlourMove fill flour kind:4 barn=barn
    flour val flour, barn inout
call millFlourGet attributes get flour
    flour in, number enum, to inout, bytes size
call millBake stream
    handle wheel, a val flour, b set flour, x scalar wide(a.kind)
call millCount stream
    handle wheel, count result s32
    asked
    waits
object bin in 512
value husk in 64
    made
    ended
    0 weight s32
call millBinCreate new
    bin new bin
call millBinDestroy end
    bin end bin
call millBinSweep stream
    bin bin, husk val husk
call millHuskSet attributes set husk
    bin bin, husk inout, number enum, from in, bytes size
call millHuskDestroy unmake husk
    husk in
""", (HEAD + OBJECTS).replace("memory 2", "memory 2 told 8"))
        cls.client, cls.server = library_client.source(library, ""), library_server.source(library, "")

    def test_descriptors(self):
        fill = function(self.client, "millSeedSet")
        self.assertIn("if (!value || !rows || n < 0 || n > 8) return 3;", fill)
        self.assertIn("memcpy(value->rows, rows, (size_t)n * 4);", fill)
        tell = function(self.client, "millSeedGet")
        self.assertIn("if (!value || !kind) return 3; memcpy(kind, &value->kind, sizeof value->kind);", tell)
        self.assertIn(".has_list = true", self.client)
        self.assertIn(".fill = flyt_server_fill_mill_seed, .list_at = offsetof(struct flyt_value_seed, list_bytes)", self.server)

    def test_descriptors_of_fields(self):
        make = function(self.client, "millFlourCreate")
        for text in ("if (!flour || bags < 0) return 3;", "value->kind = 4;", "value->bags = (int64_t)bags;",
                     "value->barn = (uint64_t)(uintptr_t)barn;", "*(void **)flour = value;"):
            self.assertIn(text, make)
        self.assertIn("if (!value || value->kind != 4) return 3;", function(self.client, "millFlourMove"))
        self.assertIn("(&this_library, &value_flour, flour, number, to, bytes, NULL);", function(self.client, "millFlourGet"))
        table = re.search(r"attributes_flour\[\] = \{(.*?)\};", self.client, re.S)[1]
        self.assertEqual(re.findall(r"\{(-?\d+),", table), ["3"], "what has no number is no attribute")

    def test_descriptors_made_and_told_by_hand(self):
        self.assertIn(".make = flyt_server_make_mill_flour, .tell = flyt_server_tell_mill_flour", self.server)
        self.assertNotIn("create_flour", self.server)
        self.assertIn("flyt_lib_value_set(&call, &sent.b, b, &value_flour);", function(self.client, "millBake"))
        bake = function(self.server, "run_millBake")
        self.assertIn("flyt_libcall_value(call, &sent->a, &value_flour);", bake)
        self.assertIn("flyt_libcall_value_set(call, &sent->b, &value_flour);", bake)
        self.assertIn("flyt_lib_wide_bytes(sent->a.kind)", bake)
        self.assertIn("FLYT_LIBCALL_ANSWERS", next(line for line in self.server.splitlines() if '.name = "millBake"' in line))

    def test_handles_in_the_programs_memory(self):
        self.assertIn("flyt_lib_new(&call, bin, &kind_bin);", function(self.client, "millBinCreate"))
        self.assertIn("flyt_lib_end(&call, flyt_lib_in_room(bin, &kind_bin), &kind_bin);", function(self.client, "millBinDestroy"))
        self.assertIn("flyt_lib_object(&call, flyt_lib_in_room(bin, &kind_bin), &kind_bin);", function(self.client, "millBinSweep"))
        self.assertIn("if (!flyt_lib_find(flyt_lib_in_room(bin, &kind_bin), &kind_bin)) return 1; "
                      "return flyt_lib_attribute_set(&this_library, &value_husk, husk, number, from, bytes);", function(self.client, "millHuskSet"))
        self.assertIn("flyt_lib_unmake(&this_library, &value_husk, (void *)(uintptr_t)husk);", function(self.client, "millHuskDestroy"))
        self.assertRegex(self.client, r'\.name = "bin",.*\.room = 512,')
        self.assertRegex(self.server, r'\.name = "bin",.*\.has_room = true,')
        create = function(self.server, "run_millBinCreate")
        self.assertIn("call->made = calloc(1, 512); if (!call->made) return 2;", create)
        self.assertIn("(call->made); if (status != 0) { free(call->made); call->made = NULL; } return status;", create)
        self.assertIn("free(call->objects[0]->real); return status;", function(self.server, "run_millBinDestroy"))
        self.assertNotIn("free(", function(self.server, "run_millBinSweep"))
        self.assertIn(".make = flyt_server_make_mill_husk, .end = flyt_server_end_mill_husk", self.server)
        self.assertRegex(self.server, r"flyt_server_value_mill_husk = \{.*\.destroy_name = NULL,")

    def test_statuses_with_results(self):
        self.assertIn(".told = 8", self.client)
        self.assertIn(".told = 8", self.server)
        self.assertIn(".told = 0", library_client.source(load(""), ""))
        self.assertIn(".flags = FLYT_LIB_ASKS | FLYT_LIB_WAITS,", next(line for line in self.client.splitlines() if '.name = "millCount"' in line))
        self.assertIn("FLYT_LIBCALL_WAITS | FLYT_LIBCALL_IN_STREAM | FLYT_LIBCALL_ANSWERS",
                      next(line for line in self.server.splitlines() if '.name = "millCount"' in line))

    def test_a_served_call(self):
        self.assertIn("const struct flyt_lib_row flyt_lib_row_millSow", self.client)
        self.assertNotIn("millSow(", self.client)
        self.assertIn(".run = flyt_server_run_millSow, .resolve = flyt_server_resolve_millSow", self.server)
        self.assertNotIn("run_millSow(struct flyt_libcall *call)\n{", self.server)

    def test_what_stays(self):
        self.assertIn('.stays = "a plough of the mill\'s"', self.client)
        self.assertRegex(self.server, r'"plough", \.also = NULL, \.stays = "a plough of the mill\'s"')


class Names(unittest.TestCase):
    """What the server's code by hand calls by its name is in the table of what is found when the library is loaded."""
    MARK = re.compile(r'"((?:cublas|cudnn|cufft|curand|cusolver|cusparse|nccl)[A-Z]\w*)"')

    def test_of_the_rows(self):
        made = library_server.symbols(load("call millRun stream\n    wheel wheel, n s32\ncall millOld none: it is old\n"))
        self.assertEqual(made, ["millGrainCreate", "millGrainDestroy", "millGrainSet", "millRun", "millSetMode", "millSetPond",
                                "millSetSpeed", "millSetStream"])

    def test_by_hand(self):
        known = {one.name: set(library_server.symbols(one)) for one in map(library_rows.load, ROWS)}
        sources = [path for path in (ROOT / "cpu/server/library").glob("*.c") if not path.name.endswith("_test.c")]
        named = {name for path in sources for name in self.MARK.findall(path.read_text())}
        self.assertGreater(len(named), 60)
        self.assertEqual(sorted(named - set().union(*known.values())), [])
        of_cusolver = {name for name in named if name.startswith("cusparseSetMat")} # a descriptor of cuSPARSE's
        self.assertEqual(len(of_cusolver), 4)
        self.assertLessEqual(of_cusolver, known["cusolver"])


class Parts(unittest.TestCase):
    """NAME.parts: each function of a library is in one of its parts."""
    EXPORTED = {"millRun", "millStop", "millSow"}

    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "mill.parts"
            path.write_text(text)
            parts = library_parts.read(path)
            library_parts.check(parts, self.EXPORTED, path)
            return parts

    def test_what_is_read(self):
        text = ("# The mill's.\nlibmill_run.so.3\n    millRun # it runs\n    absent nobody looks at it: \n        mill_version _Z*\n        millOld\n"
                "    millStop\n\nlibmill_sow.so.3\n    millSow\n")
        run = library_parts.Part(["millRun", "millStop"], dict.fromkeys(("mill_version", "_Z*", "millOld"), "nobody looks at it"))
        self.assertEqual(self.check(text), {"libmill_run.so.3": run, "libmill_sow.so.3": library_parts.Part(["millSow"])})

    def test_what_is_compared_with_nvidias(self):
        def symbols(*names, version="libmill_run.so.3"):
            return {library_parts_check.elf.Symbol(name, version) for name in names}

        part = library_parts.Part(["millRun"], {"mill_version": "a text", "_Z*": "C++"})
        right = symbols("millRun", "mill_version", "_ZN4mill3runEv")
        self.assertEqual(library_parts_check.differences(part, symbols("millRun"), right), [])
        for ours, theirs, said in (
                (symbols(), right, ["lacks millRun@@libmill_run.so.3"]),
                (symbols("millRun"), right | symbols("millStop"), ["lacks millStop@@libmill_run.so.3"]),
                (symbols("millRun", "millSow"), right, ["exports beyond NVIDIA's millSow@@libmill_run.so.3"]),
                (symbols("millRun", "mill_version"), right, ["exports mill_version, which stands as absent"]),
                (symbols("millRun"), symbols("millRun", "_Zx"), ["says that mill_version is absent, which NVIDIA's has not either"]),
                (symbols("millRun", version="libmill_run.so.2"), right,
                 ["lacks millRun@@libmill_run.so.3", "exports beyond NVIDIA's millRun@@libmill_run.so.2"])):
            self.assertEqual(library_parts_check.differences(part, ours, theirs), said)

    def test_what_is_refused(self):
        cases = {
            "    millRun\n": "before the name of a file",
            "libmill_run.so.3\n    millRun millStop\n": "is in no part: millSow",
            "libmill_run.so.3\n    millRun millStop millSow millMow\n": "no function of the library: millMow",
            "libmill_run.so.3\n    millRun millStop\nlibmill_sow.so.3\n    millSow millRun\n": "in two parts: millRun",
            "libmill_run.so.3\n    millRun\nlibmill_run.so.3\n    millSow\n": "stands there twice",
            "libmill_run.so.3\n    millRun millStop millSow\n    absent it is old:\n        millStop\n": "a function of the library and absent: millStop",
            "libmill_run.so.3\n    absent it is old\n        millOld\n": "expected absent REASON:",
            "libmill_run.so.3\n    absent it is old: millOld\n": "expected absent REASON:",
        }
        for text, reason in cases.items():
            with self.assertRaisesRegex(library_rows.RowError, reason):
                self.check(text)


if __name__ == "__main__":
    unittest.main()
