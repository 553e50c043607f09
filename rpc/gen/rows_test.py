#!/usr/bin/env python3
"""Tests of the grammar of the call tables, and of what is made of their rows."""
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import driver_rows  # noqa: E402
import entries  # noqa: E402
import prototypes  # noqa: E402
import rows  # noqa: E402
import symbols  # noqa: E402
import wire  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted((ROOT / "rpc/api").glob("*.api"))
LIMITS = (ROOT / "rpc/proto/limits.h").read_text()
PROTOCOL = (ROOT / "rpc/proto/flyt.x").read_text()
KINDS = ("object stream 0x11 kept ordered : made when named\nobject event 0x12 kept ordered\nobject library 0x13 kept\n"
         "object kernel 0x14 within library : by its place\nobject context 0x15 local\n")


def load(text):
    """The tables of one file t.api, whose first line is made here."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "t.api"
        table.write_text("family t\n" + text)
        return rows.load([table])


class Grammar(unittest.TestCase):
    def test_entries(self):
        line = "entry cuda none cuA cuB : not yet"
        good = [(one.symbol, one.klass, one.note) for one in rows.parse_entry(line.split(), line, "f", "p")]
        self.assertEqual(good, [("cuA", "none", "not yet"), ("cuB", "none", "not yet")])
        made = rows.parse_entry("entry cuda local cuA = flyt_a".split(), "entry cuda local cuA = flyt_a", "f", "p")
        self.assertEqual((made[0].core, made[0].note), ("flyt_a", ""))
        for line in ("entry cuda none cuA", "entry cuda manual cuA", "entry cuda often cuA", "entry cuda local", "entry cuda local cuA",
                     "entry cuda sync cuA :", "entry cuda manual cuA = flyt_a"):
            with self.assertRaises(rows.TableError):
                rows.parse_entry(line.split(), line, "f", "p")

    def test_by_hand_is_what_says_why(self):
        made, hand = "proc 20 a sync\narg u32 device\ndriver cuA\nagain\n", "proc 20 a sync\nagain\n"
        for good in (made, hand + "by hand: a model of its own\n"):
            rows.check_reasons(load(good))
        self.assertEqual(load(hand + "by hand: so it is\n").procedures[0].by_hand, "so it is")
        for text, sentence in ((hand, "a row without `driver` says why"), (made + "by hand: why\n", "a row with `driver` is not by hand"),
                               (hand + "by hand\n", "unknown word by"), (hand + "by hand:\n", "unknown word by")):
            with self.subTest(text=text), self.assertRaisesRegex(rows.TableError, sentence):
                rows.check_reasons(load(text))

    def test_bad_tables(self):
        head = "proc 20 copy sync\n"
        cases = {"family u\n": ":2: expected `family t`", "proc x copy sync\n": ":2: expected `proc",
                 "proc -1 copy sync\n": ":2: expected `proc", "proc 20\n": ":2: expected `proc",
                 "arg u32 a\n": ":2: arg before any proc", head + "arg\n": ":3: expected `arg TYPE NAME",
                 head + "new stream\n": ":3: expected `new HANDLE", head + "end stream\n": ":3: expected `end HANDLE",
                 head + "arg u32 a 0\n": ":3: an array of nothing",
                 head + "arg u32 a\narg s32 a\n": ":2: two fields have one name",
                 head + "ret payload p\n": ":2: bulk calls, and only they",
                 head: ":2: it does not say what `moves`", head + "moves\n": ":2: expected `moves by PROC`",
                 head + "moves by move\n": ":2: expected `moves by PROC`",
                 head + "again\nmoves as copy\n": ":2: expected `moves by PROC`",
                 head + "arg stream s\n": ":3: unknown type stream", head + "ret blob b\n": ":3: a blob has a count",
                 head + "arg string s 2\n": ":3: string takes no count",
                 head + "arg u32? a\n": ":3: u32 is no kind of object",
                 head + "arg u32 a \\\n": ":3: the last row ends in a backslash",
                 head + "sometimes\n": ":3: unknown word sometimes", head + "while asleep\n": ":3: unknown word while",
                 "object a 0x10 kept\nobject b 0x10 kept\n": ":3: 16 is taken by",
                 "object a 0x10 kept\nobject a 0x11 kept\n": ":3: a is taken by",
                 "object a 10 kept\n": ":2: expected `object NAME", "object a 0x10 lost\n": ":2: expected `object NAME",
                 "object a 0x10 local noted\n": ":2: what is noted of an object is kept with it",
                 "object a 0x10 kept of CUa noted\n": ":2: what is noted of an object is kept with it",
                 "object a 0x10 within b : why\n": ":2: what is `within`",
                 KINDS + "object a 0x20 within stream\n": ":7: what is `within`",
                 KINDS + head + "arg context c\n": ":8: unknown type context",
                 KINDS + head + "arg event e MANY\n": ":8: the count of an array of handles is a number",
                 KINDS + head + "arg stream s\nrecords s\n": ":7: `records` an event",
                 KINDS + head + "end event e\nawaits e\n": ":7: `awaits` an event",
                 KINDS + head + "ret event? e\n": ":7: a result names no object",
                 head + "data back\n": ":2: a call that is answered with data says",
                 head + "data ahead unless is_pull\n": ":2: it has no argument is_pull",
                 head + "alone\nagain\n": ":2: `alone` is asked where",
                 head + "arg u64 a\ndriver cuA a\nagain\n": ":2: a row with `driver` has",
                 head + "arg u32 device\nret log n\ndriver cuA\nagain\n": ":2: n: a row with `driver` has numbers",
                 "proc 20 a oneway\narg u32 device\ndriver cuA\nmoves as nothing\n": ":2: a row with `driver` is a sync call",
                 head + "arg u32 device\ndriver cuA\nmoves by copy\n": ":2: what a call with `driver` leaves",
                 "object a 0x10 kept of CUa : why\n": ":2: what is `of CUa` alone", "object a 0x10 local of CUa\n": ":2: what is `of CUa` alone",
                 "object a 0x10 kept of CUa\n": ":2: what is `of CUa` has one row with `new`",
                 "object a 0x10 kept of CUa\nproc 20 a_new oneway\nnew a a_id\narg u32 device\nmoves by a_new\n":
                     ":2: what is `of CUa` has one row with `new`, and with `driver`",
                 "object a 0x10 kept of CUa\nproc 20 a_new oneway\nnew a a_id\narg u32 flags\ndriver cuA\nmoves by a_new\n":
                     ":3: what makes an object with `driver`",
                 "object a 0x10 kept of CUa\nproc 20 a_end oneway\nend a a_id\narg u32 flags\ndriver cuA\nmoves as nothing\n":
                     ":3: what ends an object with `driver`",
                 "object a 0x10 kept of CUa\nproc 20 a_set sync\narg a a_id\narg u32 key\narg u32 value\ndriver cuA\nmoves by a_set\n":
                     ":3: what the client makes again of a call with `driver`",
                 head + "arg u32 device\ndriver cuA n\nagain\n": ":2: it has no argument n for cuA",
                 "struct a\nfield b x\nstruct b\nfield a x\n": ": a is a part of itself",
                 "struct a\nfield c x\n": ":3: unknown type c", "struct a\nstruct a\n": ":3: a is taken by"}
        for text, sentence in cases.items():
            with self.subTest(text=text), self.assertRaisesRegex(rows.TableError, re.escape(sentence)):
                load(text)

    def test_structs_are_in_order(self):
        tables = load("struct whole\nfield part p PARTS\nstruct part\nfield u32 n\n")
        self.assertEqual(list(tables.structs), ["part", "whole"])
        self.assertIn("flyt_part p<FLYT_PARTS_MAX>", wire.x_types(tables))

    def test_inout(self):
        proc = load("proc 20 copy sync\ninout u64 n\nagain\n").procedures[0]
        self.assertEqual(([one.name for one in proc.args], [one.name for one in proc.rets]), (["n"], ["n"]))

    def test_offsets(self):
        """Where a part of an encoded call is, that is found without decoding it."""
        text = ("struct box\nfield u64 a 6\nproc 20 copy oneway\narg event e\narg box b\narg blob v 5\narg stream s\n"
                "arg u32 is_pull\ndata ahead unless is_pull\nmoves as nothing\n")
        row = wire.procedure_row(load(KINDS + text).procedures[0])
        self.assertIn(f".stream_wire_offset = {4 + 8 + 48 + 8}", row)
        self.assertIn(f".pull_wire_offset = {4 + 8 + 48 + 8 + 8}", row)


class Handles(unittest.TestCase):
    """What a call names must find room in the server's records (FLYT_CALL_IDS_MAX)."""
    CALL = KINDS + "proc 20 call sync\narg stream s\n"

    def test_as_many_as_there_is_room_for(self):
        stubs = wire.serve_c(load(self.CALL + "arg event events_ids 7\nmoves as nothing\n"), "")
        self.assertIn("_Static_assert(8 <= FLYT_CALL_IDS_MAX", stubs)
        with self.assertRaisesRegex(rows.TableError, "9 handles among its arguments: the server keeps 8"):
            load(self.CALL + "arg event events_ids 8\nmoves as nothing\n")

    def test_bound_is_the_servers(self):
        bound = re.search(r"FLYT_CALL_IDS_MAX = (\d+)", (ROOT / "cpu/server/core/defer.h").read_text())
        self.assertEqual(int(bound[1]), rows.CALL_HANDLES_MAX)

    def test_they_are_found(self):
        """Arrays of handles and handles that may be none: what the stub makes of them, run."""
        text = self.CALL + "arg event? first_id\narg event other_ids 3\nnew library l\nmoves as nothing\n"
        stub = wire.stub(load(text).procedures[0])
        program = HANDLES_C.replace("STUB", stub)
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "stub.c"
            source.write_text(program)
            subprocess.run(["gcc", "-Wall", "-Werror", "-o", folder + "/stub", source], check=True)
            result = subprocess.run([folder + "/stub"], capture_output=True, text=True, check=True)
        self.assertEqual(result.stdout.split("\n"), [
            "handles 4: 1 2 3 4", "served 1 2 3 4", "handles 3: 1 0- 3", "served 1 0 3", "handles 4: 1 7- 3 4", "refused",
            "handles 4: 1 2 3 7-", "refused", "handles 3: 7- 2 3", "refused", ""])


HANDLES_C = """
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
typedef int CUresult, bool_t;
typedef unsigned u_int;
#define FALSE 0
enum { FLYT_CALL_IDS_MAX = 8, CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_HANDLE = 400 };
struct svc_req { void *rq_xprt; };
struct flyt_session { int unused; };
struct flyt_object { uint64_t id; };
struct flyt_handle { uint64_t id; struct flyt_object *object; };
#define flyt_stream flyt_object
#define flyt_event flyt_object
typedef struct { unsigned thread; uint64_t s, first_id; struct { u_int other_ids_len; uint64_t *other_ids_val; } other_ids;
                 uint64_t l; } flyt_call_args;
typedef struct { int result, progress; } flyt_call_res;
struct flyt_call { struct flyt_session *session; unsigned thread, procedure, handle_count; const struct flyt_handle *handles;
                   struct flyt_object *stream; };
#define flyt_connection_user(xprt) NULL
static struct flyt_object *find(uint64_t id)
{
    static struct flyt_object objects[5] = {{0}, {1}, {2}, {3}, {4}};
    return id && id < 5 ? &objects[id] : NULL;
}
#define flyt_session_find_stream(session, id) find(id)
#define flyt_session_find_event(session, id) find(id)
static bool flyt_call_begin(struct flyt_call *call)
{
    printf("handles %u:", call->handle_count);
    for (unsigned i = 0; i < call->handle_count; i++)
        printf(" %d%s", (int)call->handles[i].id, call->handles[i].object ? "" : "-");
    printf("\\n");
    return true;
}
static CUresult flyt_call_result(struct flyt_call *call) { return 0; }
static bool_t flyt_call_end(struct flyt_call *call, CUresult result, int *ret_result, int *ret_progress)
{
    if (result)
        printf("refused\\n");
    return 1;
}
static CUresult flyt_serve_call(struct flyt_call *call, const flyt_call_args *args, struct flyt_object *s,
                                struct flyt_object *first, struct flyt_object *const *others, unsigned other_count,
                                flyt_call_res *res)
{
    printf("served %d %d", (int)s->id, first ? (int)first->id : 0);
    for (unsigned i = 0; i < other_count; i++)
        printf(" %d", (int)others[i]->id);
    printf("\\n");
    return 0;
}
STUB
int main(void)
{
    static const uint64_t cases[][5] = {{1, 2, 2, 3, 4}, {1, 0, 1, 3}, {1, 7, 2, 3, 4}, {1, 2, 2, 3, 7}, {7, 2, 1, 3}};
    for (unsigned i = 0; i < 5; i++) {
        flyt_call_res res;
        flyt_call_args args = {.s = cases[i][0], .first_id = cases[i][1], .l = 9,
                               .other_ids = {(u_int)cases[i][2], (uint64_t *)&cases[i][3]}};
        struct svc_req req = {0};
        flyt_call_1_svc(&args, &res, &req);
    }
    return 0;
}
"""


class EntryPoints(unittest.TestCase):
    """Entry points that their rows make."""
    HEADER = """# 1 "cuda.h"
        CUresult cuAsk(CUstream hStream, int *value); CUresult cuAsk_v2(CUstream hStream, int *value);
        extern __attribute__((host)) cudaError_t cudaAsk(cudaStream_t stream, int device[2]);
        CUresult cuNone(void); CUresult cuUnnamed(int, float); CUresult cuEnd(CUevent hEvent);"""

    def made(self, line, exported=()):
        entry = load(line + "\n").entries[0]
        return entries.one_c(entries.parse(entry), prototypes.parse(self.HEADER), exported)

    def test_declarations(self):
        found = prototypes.parse(self.HEADER)
        self.assertEqual(sorted(found), ["cuAsk", "cuAsk_v2", "cuEnd", "cuNone", "cudaAsk"])
        self.assertEqual([(one.name, one.type) for one in found["cudaAsk"]], [("stream", "cudaStream_t"), ("device", "int*")])
        self.assertEqual(found["cuNone"], [])

    def test_driver(self):
        text = self.made("entry cuda sync cuAsk_v2 cuAsk = flyt_ask need value after context, released",
                         ["cuAsk_v2_ptsz", "cuAsk_ptsz"])
        self.assertEqual(text.split("\n")[1:], [
            "CUresult CUDAAPI cuAsk_v2(CUstream hStream, int *value)", "{", "    FLYT_CUDA_ENTER();", "    if (!value)",
            "        return flyt_cuda_invalid_value();", "    return flyt_cuda_unless_released(flyt_ask(hStream, value));", "}",
            "FLYT_CUDA_PTSZ(cuAsk_v2, (CUstream hStream, int *value), (flyt_stream_per_thread(hStream), value))",
            "FLYT_CUDA_SAME(cuAsk, cuAsk_v2);", "FLYT_CUDA_SAME(cuAsk_ptsz, cuAsk_v2_ptsz);", ""])
        text = self.made("entry cuda sync cuNone = flyt_none(DEFAULT_STREAM) in context", ["cuNone_ptds"])
        self.assertIn("cuNone(void)\n{\n    FLYT_CUDA_ENTER();\n    CUresult context = flyt_cuda_need_context();\n    if (context != "
                      "CUDA_SUCCESS)\n        return context;\n    return flyt_none(NULL);\n}", text)
        self.assertIn("CUresult CUDAAPI cuNone_ptds(void)\n", text)
        self.assertIn("    return flyt_none(CU_STREAM_PER_THREAD);\n", text)
        text = self.made("entry cuda oneway cuEnd = flyt_end((uint64_t)hEvent, f(1, 2)) handle hEvent")
        self.assertIn("    if (!hEvent)\n        return CUDA_ERROR_INVALID_HANDLE;", text)
        self.assertIn("    return flyt_end((uint64_t)hEvent, f(1, 2));\n", text)
        self.assertIn("cuNone(void)\n", self.made("entry cuda sync cuNone = flyt_none"))

    def test_runtime(self):
        text = self.made("entry cudart sync cudaAsk = flyt_ask(stream) need device", ["cudaAsk_ptsz"])
        self.assertIn("    if (!device)\n        return flyt_cudart_fail(cudaErrorInvalidValue);\n", text)
        self.assertIn("    CUresult result = flyt_cudart_enter();\n    return flyt_cudart_result(result != CUDA_SUCCESS ? result : "
                      "flyt_ask(stream));\n", text)
        self.assertIn("FLYT_CUDART_PTSZ(cudaAsk, (cudaStream_t stream, int device[2]), (flyt_stream_per_thread(stream), device))",
                      text)
        self.assertNotIn("flyt_cudart_enter", self.made("entry cudart sync cudaAsk = flyt_ask unentered"))
        text = self.made("entry cudart sync cudaAsk = flyt_ask(KERNEL, DEFAULT_STREAM) kernel stream, need device", ["cudaAsk_ptds"])
        self.assertIn("(!device)\n        return flyt_cudart_fail(cudaErrorInvalidValue);\n    CUfunction KERNEL;\n    cudaError_t error = "
                      "flyt_cudart_enter_kernel(stream, &KERNEL);\n    if (error != cudaSuccess)\n        return flyt_cudart_fail(error);\n"
                      "    return flyt_cudart_result(flyt_ask(KERNEL, NULL));\n", text)
        self.assertIn('__attribute__((visibility("default"))) cudaError_t cudaAsk_ptds(cudaStream_t stream, int device[2]);', text)
        self.assertIn("flyt_ask(KERNEL, CU_STREAM_PER_THREAD)", text)

    def test_bad_rows(self):
        for line, sentence in (("cuAsk = flyt_ask sometimes", "unknown word sometimes"), ("cuAsk = 7(", "a parenthesis"),
                               ("cuAsk = (x)", "expected `= FUNCTION"), ("cuAsk = flyt_ask need nothing", "no parameter nothing"),
                               ("cuUnnamed = flyt_ask", "do not declare cuUnnamed"),
                               ("cuAsk = flyt_ask(DEFAULT_STREAM)", "cuAsk says DEFAULT_STREAM where"),
                               ("cuAsk = flyt_ask kernel value", "unknown word kernel")):
            with self.subTest(line=line), self.assertRaisesRegex(rows.TableError, re.escape(sentence)):
                self.made("entry cuda sync " + line)


class DriverCalls(unittest.TestCase):
    """Functions that a row alone makes, on both sides."""

    def test_both_sides(self):
        tables = load("proc 20 reset sync\narg u32 device\narg s32 how\ndriver cuReset how\nalone\nagain\n")
        self.assertEqual(driver_rows.driver_rows_h(tables, "").strip(), "#define FLYT_DRIVER_ROWS(X) X(cuReset)")
        self.assertIn("FLYT_API CUresult flyt_reset(int how);", driver_rows.client_rows_h(tables, ""))
        self.assertIn(".device = (unsigned)device, .how = how}", driver_rows.client_rows_c(tables, ""))
        handler = driver_rows.handler(tables.procedures[0])
        self.assertIn("driver->cuReset(args->how)", handler)
        self.assertLess(handler.index("is_mps"), handler.index("flyt_session_use_device"))


def run_c(program):
    """What a program of C prints that gcc takes without a word."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "program.c"
        source.write_text(program)
        subprocess.run(["gcc", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-type-limits", "-Werror", f"-I{ROOT}", "-o",
                        folder + "/program", source], check=True)
        return subprocess.run([folder + "/program"], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


class Scalars(unittest.TestCase):
    """Numbers that lie on the host or on the device."""
    ROW = ("proc 20 scale sync\narg u32 device\narg u32 where\nscalar f64 factor by where\ndriver cuScale factor\n"
           "moves as nothing\n")

    def test_eight_bytes_travel(self):
        one = load(self.ROW).procedures[0].args[2]
        self.assertEqual((one.declaration(), one.wire_bytes(), one.place_by), ("unsigned hyper factor", 8, "where"))

    def test_type_and_place_are_in_the_hash(self):
        hashes = {rows.Signer(made, "").signature(made.procedures[0]) for made in
                  (load(self.ROW), load(self.ROW.replace("f64", "f32")), load(self.ROW.replace("scalar f64 factor by where", "arg u64 factor")))}
        self.assertEqual(len(hashes), 3)

    def test_bad_rows(self):
        for old, new, message in (("by where", "", "expected `scalar TYPE NAME by ARGUMENT`"),
                                  ("by where", "by device2", "no u32 device2 that says where"),
                                  ("arg u32 where", "arg u64 where", "no u32 where that says where"),
                                  ("scalar f64", "scalar string", "a scalar is a number"),
                                  ("scalar f64", "scalar device", "a scalar is a number"),
                                  ("driver cuScale factor", "by hand: a test", "a scalar is a number")):
            with self.assertRaisesRegex(rows.TableError, message):
                load(self.ROW.replace(old, new))


class HostMemory(unittest.TestCase):
    """Memory of the program's, as large as a formula of the other arguments says: both sides of a row, run."""
    ROW = ("proc 20 scale sync\narg u32 device\narg s32 rows\narg u64 pitch\nin u32 data[max(rows, 1) * (pitch + 2) / 2] WORDS\n"
           "out f32 sums[rows] ROWS\ndriver cuScale data rows sums\nagain\n")

    def test_both_sides(self):
        proc = load(self.ROW).procedures[0]
        self.assertEqual(driver_rows.client_prototype(proc), "CUresult flyt_scale(int rows, uint64_t pitch, const unsigned *data, "
                                                      "float *ret_sums)")
        self.assertIn("unsigned data<FLYT_WORDS_MAX>", wire.x_types(load(self.ROW)))
        self.assertEqual(run_c(SCALE_C.replace("HANDLER", driver_rows.handler(proc)).replace("CLIENT", driver_rows.client_row(proc))), [
            "4 words: 1 2 3 4", "0: 1.0 2.0", "2 words: 1 2", "0: -1.0 -1.0", "NULL: 1", "too many: 1", "negative: 1", "overflow: 1",
            "short: 1", "freed 3"])

    def test_bad_rows(self):
        for old, new, sentence in (("[rows]", "[columns]", "sums: the call has no whole number columns"),
                                   ("[rows]", "[rows +]", "sums: rows + is no formula"),
                                   ("[rows]", "[rows ** 2]", "sums: rows ** 2 has more than"),
                                   ("[rows]", "[sum(rows)]", "sums: sum(rows) has more than"),
                                   ("[rows] ROWS", "[rows]", "expected `out TYPE NAME[FORMULA] COUNT`"),
                                   ("out f32", "out blob", "sums: `in` and `out` are arrays of numbers"),
                                   ("driver cuScale data rows sums", "", "data: `in` and `out` are arrays of numbers of a row with")):
            with self.subTest(new=new), self.assertRaisesRegex(rows.TableError, re.escape(sentence)):
                load(self.ROW.replace(old, new))

    def test_both_must_mean_the_same(self):
        one, other = (rows.Signer(tables, "").signature(tables.procedures[0])
                      for tables in (load(self.ROW), load(self.ROW.replace("[rows]", "[rows + 1]"))))
        self.assertNotEqual(one, other)


SCALE_C = """
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rpc/base/extent.h"
typedef int CUresult;
typedef void *xdrproc_t;
typedef unsigned u_int;
enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NOT_SUPPORTED = 801, CUDA_ERROR_UNKNOWN = 999,
       FLYT_WORDS_MAX = 64,
       FLYT_ROWS_MAX = 8 };
typedef struct { unsigned thread, device; int rows; uint64_t pitch; struct { u_int data_len; unsigned *data_val; } data;
               } flyt_scale_args;
typedef struct { int result; struct { u_int sums_len; float *sums_val; } sums; } flyt_scale_res;
static unsigned freed, is_short;
static void xdr_free(xdrproc_t any, char *data) { free(((flyt_scale_res *)data)->sums.sums_val); freed++; }
static void *xdr_flyt_scale_res;
struct flyt_device { int unused; };
static CUresult scale(const unsigned *data, int rows, float *sums)
{
    for (int i = 0; i < rows; i++)
        sums[i] = (float)data[i];
    return CUDA_SUCCESS;
}
static struct flyt_driver { CUresult (*cuScale)(const unsigned *data, int rows, float *sums); } driver = {scale};
static struct flyt_session { struct flyt_driver *driver; } session = {&driver};
struct flyt_call { struct flyt_session *session; };
static CUresult flyt_session_use_device(struct flyt_session *one, unsigned device, struct flyt_device **ret_device) { return 0; }
HANDLER
static struct { int *channel; } flyt_client;
static CUresult flyt_client_enter(void) { return 0; }
static CUresult flyt_context_device(void *any, int *ret_device) { *ret_device = 0; return 0; }
static unsigned flyt_thread_number(void) { return 1; }
static CUresult flyt_client_reply(int status, int result, const char *what) { return status ? status : result; }
static int flyt_call_scale(int *channel, flyt_scale_args *args, flyt_scale_res *res)
{
    struct flyt_call call = {&session};
    args->data.data_len -= is_short;
    res->result = flyt_serve_scale(&call, args, res);
    if (is_short || res->result)
        return 0;
    printf("%u words:", args->data.data_len);
    for (unsigned i = 0; i < args->data.data_len; i++)
        printf(" %u", args->data.data_val[i]);
    printf("\\n");
    return 0;
}
CLIENT
int main(void)
{
    const unsigned words[] = {1, 2, 3, 4};
    float sums[] = {-1, -1, -1};
    CUresult result = flyt_scale(2, 2, words, sums);
    printf("%d: %.1f %.1f\\n", result, sums[0], sums[1]);
    sums[0] = sums[1] = -1;
    result = flyt_scale(0, 2, words, NULL);
    printf("%d: %.1f %.1f\\n", result, sums[0], sums[1]);
    printf("NULL: %d\\n", flyt_scale(2, 2, NULL, sums));
    printf("too many: %d\\n", flyt_scale(9, 2, words, sums));
    printf("negative: %d\\n", flyt_scale(-1, 2, words, sums));
    printf("overflow: %d\\n", flyt_scale(2, UINT64_MAX - 1, words, sums));
    is_short = 1;
    printf("short: %d\\n", flyt_scale(2, 2, words, sums));
    printf("freed %u\\n", freed);
    return 0;
}
"""


class Results(unittest.TestCase):
    """Tables whose calls return another type than CUDA's."""
    TABLE = "result cublasStatus_t 0 15 cublas_v2.h\n" + KINDS

    def test_both_are_in_the_reply(self):
        tables = load(self.TABLE + "proc 20 ask sync\narg stream s\nret u32 n\nagain\nproc 21 tell oneway\nmoves as nothing\n")
        ask, tell = tables.procedures
        self.assertIn("    flyt_progress progress;\n    int status;\n    unsigned n;", wire.x_types(tables))
        self.assertIn("cublasStatus_t flyt_serve_ask(", wire.serve_h(tables, ""))
        self.assertIn("#include <cublas_v2.h>", wire.serve_h(tables, ""))
        self.assertIn("s ? flyt_call_status((int)flyt_serve_ask(&call, args, s, res), 0, &res->status) : CUDA_ERROR_INVALID_HANDLE",
                      wire.stub(ask))
        self.assertIn("flyt_call_status((int)flyt_serve_tell(&call, args), 0, NULL)", wire.stub(tell))

    def test_another_reply_is_another_row(self):
        signatures = []
        for head in ("", "result cublasStatus_t 0 15 cublas_v2.h\n"):
            tables = load(head + "proc 20 ask sync\nagain\n")
            signatures.append(rows.Signer(tables, "").signature(tables.procedures[0]))
        self.assertNotEqual(*signatures)

    def test_status(self):
        """What the stub makes of a status: it is the reply's, and only what no reply carries is an error of CUDA."""
        header = (ROOT / "cpu/server/core/call.h").read_text()
        function = re.search(r"static inline CUresult flyt_call_status.*?\n}\n", header, re.S)[0]
        codes = "".join(re.findall(r"#define FLYT_CALL_(?:STARTED|RETRY).*\n", header))
        self.assertEqual(run_c(STATUS_C.replace("FUNCTION", codes + function)), ["0 13", "0 0", "-1 7", "-2 7", "999", "0", "-2"])

    def test_refused(self):
        entry = load("result cublasStatus_t 0 15 cublas_v2.h\nentry cublas none cublasA : not yet\n").entries[0]
        self.assertIn('{ refuse("cublasA"); return 15; }', symbols.stubs_c({"cublasA": entry}, "refuse", ""))

    def test_bad_rows(self):
        good = "result cublasStatus_t 0 15 cublas_v2.h\n"
        for text, sentence in (("result cublasStatus_t 0\n", ":2: expected `result TYPE"),
                               ("result cublasStatus_t OK 15 x.h\n", ":2: expected `result TYPE"),
                               ("result cublasStatus_t 0 0 x.h\n", ":2: a function that is refused returns no success"),
                               (good + good, ":3: a table says once what"),
                               ("proc 20 a sync\nagain\n" + good, ":4: a table says once what"),
                               ("entry cublas local b : why\n" + good, ":3: a table says once what"),
                               (good + "proc 20 a sync\nret u32 status\nagain\n", ":3: two fields have one name"),
                               (good + "entry cuda local cuA : why\n", ":3: what cuda returns is CUDA's")):
            with self.subTest(text=text), self.assertRaisesRegex(rows.TableError, re.escape(sentence)):
                load(text)


STATUS_C = """
#include <stdio.h>
typedef int CUresult;
enum { CUDA_SUCCESS = 0, CUDA_ERROR_UNKNOWN = 999 };
FUNCTION
int main(void)
{
    static const int cases[] = {13, 0, -1, -2};
    for (unsigned i = 0; i < 4; i++) {
        int status = 7, result = flyt_call_status(cases[i], 0, &status);
        printf("%d %d\\n", result, status);
    }
    printf("%d\\n%d\\n%d\\n", flyt_call_status(13, 0, NULL), flyt_call_status(0, 0, NULL), flyt_call_status(-2, 0, NULL));
    return 0;
}
"""


class Executors(unittest.TestCase):
    def test_it_is_known_of_the_procedure(self):
        for word, name in (("worker", "WORKER"), ("threads", "THREADS"), ("caller", "CALLER")):
            row = wire.procedure_row(load(f"proc 20 link sync\nexecutor {word}\nagain\n").procedures[0])
            self.assertIn(f".executor = FLYT_EXECUTOR_{name}", row)
        self.assertNotIn("executor", wire.procedure_row(load("proc 20 ask sync\nagain\n").procedures[0]))

    def test_bad_rows(self):
        head = "proc 20 link sync\n"
        for text, sentence in ((head + "executor\n", ":3: unknown word executor"), (head + "executor gpu\n", ":3: unknown word executor"),
                               (head + "executor worker\nat once\nagain\n", ":2: what never waits has no executor"),
                               (head + "arg u32 device\ndriver cuA\nexecutor worker\nagain\n", ":2: a row with `driver` is executed")):
            with self.subTest(text=text), self.assertRaisesRegex(rows.TableError, re.escape(sentence)):
                load(text)


class Hashes(unittest.TestCase):
    """What older clients are told by: the base hash, and a hash for each row."""
    ROW = "struct part\nfield u32 n COUNT\nproc 20 copy sync\narg part p\nagain\n"

    def signature(self, text, limits="#define FLYT_COUNT_MAX 4\n"):
        tables = load(text)
        return rows.Signer(tables, limits).signature(tables.procedures[0])

    def test_a_row_covers_its_structures_and_bounds(self):
        same = self.signature(self.ROW)
        self.assertEqual(same, self.signature(self.ROW + "by hand: for a reason\n"))
        self.assertEqual(same, self.signature("# a comment\n" + self.ROW, "/* so many */\n#define FLYT_COUNT_MAX 4 /* x */\n"))
        self.assertNotEqual(same, self.signature(self.ROW.replace("u32 n", "u64 n")))
        self.assertNotEqual(same, self.signature(self.ROW, "#define FLYT_COUNT_MAX 5\n"))

    def test_what_is_added_changes_no_other(self):
        """A structure, a row, a bound, a notice, a field at the handshake's end, a word of explanation."""
        more = self.ROW + "struct new\nfield u32 a\nproc 21 more sync\narg new n\nagain\n"
        self.assertEqual(self.signature(self.ROW), self.signature(more, "#define FLYT_COUNT_MAX 4\n#define FLYT_NEW_MAX 1\n"))
        base = rows.base_hash(PROTOCOL, LIMITS)
        for old, new in (("/* ---- the handshake", "/* ---- the handshake, "), ("struct flyt_handshake_res {", "struct flyt_x {"),
                         ("struct flyt_back_moved {", "struct flyt_y {"), ("/* What the server has done", "/* What it has done")):
            self.assertIn(old, PROTOCOL)
            self.assertEqual(base, rows.base_hash(PROTOCOL.replace(old, new), LIMITS), old)
        for old in ("#define FLYT_RANGES_MAX ", "#define FLYT_KEPT_CALLS_MAX ", "#define FLYT_PROOF_BYTES "):
            self.assertIn(old, LIMITS)
            self.assertEqual(base, rows.base_hash(PROTOCOL, LIMITS.replace(old, "#define FLYT_NEW_MAX 7\n" + old + "9")), old)

    def test_what_both_must_mean_alike_changes_the_base(self):
        base = rows.base_hash(PROTOCOL, LIMITS)
        self.assertNotEqual(base, rows.base_hash(PROTOCOL.replace("unsigned hyper received", "unsigned received"), LIMITS))
        for name in ("FLYT_CHUNK_BYTES_MAX", "FLYT_OUTPUT_BYTES_MAX", "FLYT_STREAM_CREDIT_CALLS"):
            changed = re.sub(rf"(#define {name}\s+)\d+", r"\g<1>77", LIMITS)
            self.assertNotEqual(changed, LIMITS, name)
            self.assertNotEqual(base, rows.base_hash(PROTOCOL, changed), name)


class Records(unittest.TestCase):
    """Objects of which the client has records: making them, ending them, making them again."""

    def test_the_calls_are_made_of_the_record(self):
        tables = load(KINDS + "proc 20 event_create oneway\nnew event event_id\narg u32 device\narg s32 kind\nmoves by event_create\n"
                      "proc 21 load oneway\nnew library l\narg symbol name\nmoves by load\n"
                      "proc 22 ask sync\nnew library l\nmoves by ask\n"
                      "proc 23 event_destroy oneway\nend event event_id\nmoves as nothing\n"
                      "proc 24 end_how oneway\nend event event_id\narg u32 how\nmoves as nothing\n")
        self.assertEqual([p.name for p in wire.makers(tables)], ["event_create"])
        self.assertEqual([p.name for p in wire.enders(tables)], ["event_destroy"])
        text = wire.client_records_h(tables, "").split("#include \"flyt_client_calls.h\"")[1].rsplit("#endif", 1)[0]
        self.assertEqual(run_c(RECORD_C.replace("RECORDS", text)), [
            "3: event 5 on 1, kind -3", "found: 0, created 8", "3: event 5 on 1, kind -3", "free: 9", "3: destroy 5", "destroyed 11",
            "7: event 5 on 1, kind -3", "again event 5 as 8: 0", "created 0"])


class Asks(unittest.TestCase):
    """Calls that are one question."""

    def test_questions(self):
        tables = load(KINDS + "proc 20 ask sync\narg event event_id\narg s32 what\nret u64 value\nret f32 time\nagain\n"
                      "proc 21 wait sync\narg event event_id\nagain\nproc 22 text sync\nret log words\nagain\n"
                      "proc 23 many sync\narg event some_ids 3\nagain\nproc 24 tell oneway\nmoves as nothing\n"
                      "proc 25 make sync\nnew library l\nmoves by make\n")
        self.assertEqual([p.name for p in wire.asks(tables)], ["ask", "wait"])
        text = "".join(wire.ask_c(p) for p in wire.asks(tables))
        self.assertEqual(run_c(ASK_C.replace("ASKS", text)), [
            "3: 9 of 5", "0: 7 0.5", "3: 9 of 6", "1: 7 0.5", "3: wait 5", "0"])


ASK_C = """
#include <stdint.h>
#include <stdio.h>
typedef int CUresult;
enum { CUDA_SUCCESS = 0 };
typedef struct { unsigned thread; uint64_t event_id; int what; } flyt_ask_args;
typedef struct { int result; uint64_t value; float time; } flyt_ask_res;
typedef struct { unsigned thread; uint64_t event_id; } flyt_wait_args;
typedef struct { int result; } flyt_wait_res;
static struct { int *channel; } flyt_client;
static unsigned flyt_thread_number(void) { return 3; }
static CUresult flyt_client_reply(int status, int result, const char *what) { return status ? status : result; }
static int flyt_call_ask(int *channel, flyt_ask_args *args, flyt_ask_res *res)
{
    printf("%u: %d of %d\\n", args->thread, args->what, (int)args->event_id);
    *res = (flyt_ask_res){args->event_id == 6, args->event_id == 6 ? 0 : 7, 0.5f};
    return 0;
}
static int flyt_call_wait(int *channel, flyt_wait_args *args, flyt_wait_res *res)
{
    printf("%u: wait %d\\n", args->thread, (int)args->event_id);
    return 0;
}
ASKS
int main(void)
{
    uint64_t value = 1;
    float time = 1;
    for (unsigned id = 5; id < 7; id++) {
        CUresult result = flyt_ask_ask(id, 9, &value, &time);
        printf("%d: %d %.1f\\n", result, (int)value, (double)time);
    }
    printf("%d\\n", flyt_ask_wait(5));
    return 0;
}
"""

RECORD_C = """
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
typedef int CUresult;
enum { CUDA_SUCCESS = 0, FLYT_RESTORE_THREAD = 7 };
struct flyt_record { uint64_t minted_id, created, destroyed; };
struct flyt_table { int unused; };
struct flyt_restore { void *fresh; };
typedef struct { unsigned thread; uint64_t event_id; unsigned device; int kind; } flyt_event_create_args;
typedef struct { unsigned thread; uint64_t event_id; } flyt_event_destroy_args;
static struct { int *channel; } flyt_client;
static int status;
static unsigned flyt_thread_number(void) { return 3; }
static bool flyt_client_is_usable(void) { return true; }
static CUresult flyt_client_status(int one, const char *what) { return one; }
static void flyt_table_publish(struct flyt_record *record) { printf("found: "); }
static void flyt_table_free(struct flyt_table *table, struct flyt_record *record) { printf("free: "); }
static int flyt_send_event_create(void *channel, flyt_event_create_args *args, uint64_t *ret_sequence)
{
    printf("%u: event %d on %u, kind %d\\n", args->thread, (int)args->event_id, args->device, args->kind);
    *ret_sequence = 8;
    return status;
}
static int flyt_send_event_destroy(void *channel, flyt_event_destroy_args *args, uint64_t *ret_sequence)
{
    printf("%u: destroy %d\\n", args->thread, (int)args->event_id);
    *ret_sequence = 11;
    return 0;
}
static int flyt_restore_sent(struct flyt_restore *restore, int one, uint64_t sequence, const char *kind, uint64_t id)
{
    printf("again %s %d as %d: ", kind, (int)id, (int)sequence);
    return one;
}
RECORDS
int main(void)
{
    struct flyt_table table = {0};
    struct flyt_restore restore = {0};
    struct { struct flyt_record record; int device, kind; } one = {{5, 0, 0}, 1, -3};
    CUresult result = flyt_new_event_create(&table, &one);
    printf("%d, created %d\\n", result, (int)one.record.created);
    status = 9;
    result = flyt_new_event_create(&table, &one);
    printf("%d\\n", result);
    flyt_end_event_destroy(&one.record, true);
    printf("destroyed %d\\n", (int)one.record.destroyed);
    status = 0;
    result = flyt_again_event_create(&restore, &one);
    printf("%d\\n", result);
    flyt_end_event_destroy(&one.record, false);
    printf("created %d\\n", (int)one.record.created);
    return 0;
}
"""


class Reasons(unittest.TestCase):
    def test_of_these_tables(self):
        rows.check_reasons(rows.load(TABLES))


class Moves(unittest.TestCase):
    """What the tables say of moves, the client does."""

    def test_made_again(self):
        tables = rows.load(TABLES)
        client = "".join(path.read_text() for path in (ROOT / "cpu/client").rglob("*.c"))
        # A row with `driver` makes that, too: rpc/gen/test sees to it.
        made = {row.moves[3:] for row in tables.procedures if row.moves.startswith("by ") and not row.driver}
        self.assertIn("memory_restore", made)
        for name in sorted(made):
            with self.subTest(name=name):
                self.assertRegex(client, rf"flyt_(call|send)_{name}\((restore->fresh|batch->restore->fresh|channel),|flyt_again_{name}\(restore,")

    def test_new_objects(self):
        """A call that makes an object has it made again."""
        for row in rows.load(TABLES).procedures:
            if any(one.is_new for one in row.args):
                self.assertTrue(row.moves.startswith("by "), row.name)


if __name__ == "__main__":
    unittest.main()
