#include "cpu/server/test/fake_image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

enum { MIB = 1 << 20, RANGES = FAKE_WORK_RANGES };

static const char *const large_gpu[] = {"--soft", "1", "--soft-memory", "512M", NULL};

/* add: counter += the argument; keep: *p = &target; use: *(*p) += 1, p[2] = that, p[3] = counter. */
static const char first_text[] =
    PTX ".visible .global .align 4 .u32 counter = 5;\n.global .align 8 .u32 target = 77;\n"
        ".visible .entry add(.param .u64 by_)\n{\n.reg .b32 r, s;\n.reg .b64 p;\nld.param.u64 p, [by_];\n"
        "cvt.u32.u64 s, p;\nld.global.u32 r, [counter];\nadd.u32 r, r, s;\nst.global.u32 [counter], r;\nret;\n}\n"
        ".visible .entry keep(.param .u64 p_)\n{\n.reg .b64 p, q;\nld.param.u64 p, [p_];\nmov.u64 q, target;\n"
        "st.global.u64 [p], q;\nret;\n}\n"
        ".visible .entry use(.param .u64 p_)\n{\n.reg .b32 r;\n.reg .b64 p, q;\nld.param.u64 p, [p_];\n"
        "ld.global.u64 q, [p];\nld.global.u32 r, [q];\nadd.u32 r, r, 1;\nst.global.u32 [q], r;\n"
        "st.global.u32 [p + 8], r;\nld.global.u32 r, [counter];\nst.global.u32 [p + 12], r;\nret;\n}\n";

int fake_image_set_up(void **state)
{
    struct fake_image *self = calloc(1, sizeof *self);
    assert_non_null(self);
    fake_node_init(&self->node);
    self->work = (struct fake_work){.wire = &self->node.wire, .first_text = first_text};
    snprintf(self->path, sizeof self->path, "%s/image", getenv("FAKE_FOLDER"));
    *state = self;
    return 0;
}

int fake_image_tear_down(void **state)
{
    struct fake_image *self = *state;
    fake_node_fini(&self->node);
    free(self);
    return 0;
}

/* ---- the program ---- */

void fake_image_begin(struct fake_image *self)
{
    fake_node_begin(&self->node, large_gpu, 256 * MIB);
    fake_node_connect(&self->node);
    fake_work_begin(&self->work, 24 * MIB, false);
}

uint64_t fake_image_words(const struct fake_image *self)
{
    return self->work.ranges[1].address + 4096;
}

/* It works as ever. */
void fake_image_work(struct fake_image *self)
{
    fake_program_fill(&self->node.wire, self->work.ranges[1].address + 8 * MIB, 1000, 0x66);
    assert_int_equal(fake_program_word_at(&self->node.wire, self->work.ranges[1].address + 8 * MIB), 0x66666666);
}

void fake_image_stop(struct fake_image *self, uint64_t move_id)
{
    fake_node_stop(&self->node, move_id);
    assert_true(self->node.first->stopped.has_state);
    assert_true(self->node.first->state_fd >= 0);
    assert_int_equal(lseek(self->node.first->state_fd, 0, SEEK_END), 0); /* everything is in the image */
}

/* ---- the second server ---- */

void fake_image_prepare(struct fake_image *self)
{
    fake_image_prepare_with(self, large_gpu);
}

void fake_image_prepare_with(struct fake_image *self, const char *const *arguments)
{
    fake_server_start(self->node.second, arguments);
    assert_true(self->node.second->is_ready);
    self->node.second->keeps_made = true;
    fake_node_prepare(&self->node, self->node.second);
    assert_int_equal(self->node.second->prepared.outcome, 0);
}

/* What the second server has made is what the first one had, byte by byte. */
void fake_image_compare(const struct fake_image *self)
{
    assert_int_equal(self->node.second->extent_count, self->node.first->extent_count);
    assert_int_equal(self->node.second->made_count, self->node.first->extent_count);
    for (unsigned i = 0; i < self->node.first->extent_count; i++) {
        const struct fake_extent *had = &self->node.first->extents[i], *has = NULL;
        for (unsigned k = 0; k < self->node.second->extent_count && !has; k++)
            has = self->node.second->extents[k].address == had->address ? &self->node.second->extents[k] : NULL;
        assert_non_null(has);
        assert_int_equal(has->bytes, had->bytes);
        void *before = mmap(NULL, had->bytes, PROT_READ, MAP_SHARED, had->fd, 0);
        void *after = mmap(NULL, has->bytes, PROT_READ, MAP_SHARED, has->fd, 0);
        assert_true(before != MAP_FAILED && after != MAP_FAILED);
        assert_int_equal(memcmp(before, after, had->bytes), 0);
        munmap(before, had->bytes);
        munmap(after, has->bytes);
    }
}

/* The program leaves the first server, which ends; the second one waits for it. */
void fake_image_leave(struct fake_image *self)
{
    const struct flyt_manager_link_resume resume = fake_server_resume(self->node.second);
    fake_node_leave(&self->node, FAKE_IMAGE_MOVE_ID);
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
    fake_server_send(self->node.second, FLYT_MANAGER_LINK_RESUME, &resume, sizeof resume, NULL);
    fake_listener_grant_again(&self->node.listener, self->node.second, self->node.first);
}

void fake_image_come_back(struct fake_image *self)
{
    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    fake_work_go_on(&self->work, 2, self->node.sequence); /* the others were never recorded */
}

/* The program works while it is written, and stops with everything in the image. */
void fake_image_work_and_stop(struct fake_image *self)
{
    struct fake_wire *wire = &self->node.wire;
    fake_work_allocate(&self->work, 2, 8 * MIB);
    fake_work_load(&self->work, 3);
    fake_program_launch(wire, 3, 0, fake_image_words(self) + 256);
    fake_work_unload(&self->work, 3);
    fake_work_load(&self->work, 3);
    fake_program_launch(wire, 3, 0, fake_image_words(self) + 256);
    fake_program_launch(wire, 1, 0, 1000);
    fake_program_launch(wire, 2, 0, fake_image_words(self) + 300);
    fake_server_wait(self->node.first, &self->node.first->extents_told, RANGES);
    fake_image_stop(self, FAKE_IMAGE_MOVE_ID);
}

void fake_image_check(struct fake_image *self, float before_ms)
{
    struct fake_wire *wire = &self->node.wire;
    fake_program_launch(wire, 1, 2, fake_image_words(self));
    assert_int_equal(fake_program_word_at(wire, fake_image_words(self) + 8), 78);
    assert_int_equal(fake_program_word_at(wire, fake_image_words(self) + 12), 5 + 10 + 1000);
    fake_program_launch(wire, 2, 0, fake_image_words(self) + 300);
    assert_int_equal(fake_program_word_at(wire, fake_image_words(self) + 300), 102);
    fake_program_launch(wire, 3, 0, fake_image_words(self) + 256);
    assert_int_equal(fake_program_word_at(wire, fake_image_words(self) + 256), 102);
    fake_work_check_ends(&self->work);
    assert_float_equal(fake_program_elapsed(wire, 1, 2, CUDA_SUCCESS), before_ms, 0.001 + (double)before_ms * 1e-6);
    fake_image_work(self);
}
