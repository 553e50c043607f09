/*
 * For tests: what a program does that speaks the wire by itself (fake_wire.h): memory, libraries, kernels, events, and
 * what its client does when it goes on at another server. Functions fail the running test where something is not as it
 * should be; those that return a result leave it to the test.
 */
#ifndef FLYT_SERVER_FAKE_PROGRAM_H
#define FLYT_SERVER_FAKE_PROGRAM_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/test/fake_wire.h"
#include "rpc/base/id.h"

enum { FAKE_RANGES_MAX = 8, FAKE_WORK_RANGES = 3, FAKE_LIBRARIES_MAX = 3 };

/* What PTX begins with. */
#define PTX ".version 8.0\n.target sm_75\n.address_size 64\n"

static const uint64_t legacy = (uint64_t)FLYT_ID_STREAM << 56 | 1;

/* An allocation; bytes 0: freed, or not made yet. */
struct fake_range {
    uint64_t address, bytes;
};

/* Ids. */
uint64_t fake_program_library(unsigned number);
uint64_t fake_program_event(unsigned number);

/* ---- memory ---- */

flyt_box fake_program_line(uint64_t address, uint64_t bytes);
int fake_program_alloc(struct fake_wire *wire, uint64_t bytes, uint64_t *ret_address);
/* Sets bytes, in the legacy stream's order or another one's; does not wait. */
void fake_program_fill(struct fake_wire *wire, uint64_t address, uint64_t bytes, unsigned value);
void fake_program_fill_on(struct fake_wire *wire, uint64_t stream_id, uint64_t address, uint64_t bytes, unsigned value);
uint32_t fake_program_word_at(struct fake_wire *wire, uint64_t address);
unsigned fake_program_byte_at(struct fake_wire *wire, uint64_t address);
int fake_program_synchronize(struct fake_wire *wire, uint64_t stream_id);
int fake_program_barrier(struct fake_wire *wire);

/* ---- libraries ---- */

/* Has the server keep an image of PTX, from which libraries can be loaded. Every second one has an option. */
void fake_program_store(struct fake_wire *wire, const char *text);
flyt_library_load_args fake_program_arguments(unsigned number, const char *text);
void fake_program_load(struct fake_wire *wire, unsigned number, const char *text, unsigned kernel_count);
/* And waits until it is. */
void fake_program_unload(struct fake_wire *wire, unsigned number);
/* Where a variable is: the program has asked then. */
uint64_t fake_program_place_of(struct fake_wire *wire, unsigned number, const char *name);
/* Launches one thread of a kernel of the library, by its place among them, with one number of 8 bytes; waits for it. */
void fake_program_launch(struct fake_wire *wire, unsigned number, unsigned kernel, uint64_t argument);

/* ---- events ---- */

/* Records it in the legacy stream, and waits until that has reached it. */
void fake_program_record(struct fake_wire *wire, unsigned number);
/* `want`: the result; milliseconds where it is success. */
float fake_program_elapsed(struct fake_wire *wire, unsigned start, unsigned end, int want);

/* ---- going on ---- */

int fake_program_resume_begin(struct fake_wire *wire);
/* Names those of at most FAKE_RANGES_MAX allocations that are there. */
int fake_program_restore(struct fake_wire *wire, const struct fake_range *ranges, unsigned count);
/* Makes events 1 to `count` again; the first `recorded` of them had been recorded. */
void fake_program_restore_events(struct fake_wire *wire, unsigned count, unsigned recorded);
int fake_program_resume_end(struct fake_wire *wire, uint64_t sequence);

/* ---- a program in the midst of its work ---- */

/* What it has, and makes again where it goes on. Library 1 has 3 kernels, of which the first adds its argument to a
 * counter; all others are of fake_step_text: `counter`, 100 at first, is increased and stored at the argument. */
struct fake_work {
    struct fake_wire *wire;
    const char *first_text;
    struct fake_range ranges[FAKE_WORK_RANGES];
    bool is_loaded[FAKE_LIBRARIES_MAX + 1];
};

extern const char fake_step_text[];

/* Two libraries (the other way round where is_reversed), 1000 bytes and so many more, four events, of which the first
 * two are recorded around a launch that adds 10. */
void fake_work_begin(struct fake_work *work, uint64_t bytes, bool is_reversed);
void fake_work_load(struct fake_work *work, unsigned number);
void fake_work_unload(struct fake_work *work, unsigned number);
/* ranges[i], filled with 0x21 + i. */
void fake_work_allocate(struct fake_work *work, unsigned i, uint64_t bytes);
/* All of them end as they were filled. */
void fake_work_check_ends(const struct fake_work *work);
/* Makes all of it again over a connection that goes on, behind this call. */
void fake_work_go_on(struct fake_work *work, unsigned recorded, uint64_t sequence);

#endif
