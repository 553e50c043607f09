#include "cpu/server/test/fake_prepare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cuda.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/move/common/state.h"
#include "rpc/base/id.h"

/* look: p[0] = counter++, p[1] = big at its end, p[2] = factors[1]. */
const char fake_first_text[] =
    PTX ".visible .global .align 256 .u32 counter = 5;\n.global .align 4 .b8 big[5242880];\n"
        ".const .align 4 .u32 factors[4] = {1, 2, 3, 4};\n"
        ".visible .entry look(.param .u64 p_)\n{\n.reg .b32 r;\n.reg .b64 p, q;\nld.param.u64 p, [p_];\n"
        "ld.global.u32 r, [counter];\nst.global.u32 [p], r;\nadd.u32 r, r, 1;\nst.global.u32 [counter], r;\n"
        "mov.u64 q, big;\nadd.u64 q, q, 5242876;\nld.global.u32 r, [q];\nst.global.u32 [p + 4], r;\n"
        "ld.const.u32 r, [factors + 4];\nst.global.u32 [p + 8], r;\nret;\n}\n";
const char fake_second_text[] =
    PTX ".visible .global .align 256 .u32 counter = 100;\n"
        ".visible .entry look(.param .u64 p_)\n{\n.reg .b32 r;\n.reg .b64 p;\nld.param.u64 p, [p_];\n"
        "ld.global.u32 r, [counter];\nst.global.u32 [p], r;\nret;\n}\n";

void fake_prepare_look(struct fake_wire *wire, unsigned number, uint64_t address)
{
    fake_program_launch(wire, number, 0, address);
}

void fake_prepare_begin(struct fake_prepare *self)
{
    static const uint64_t sizes[RANGES] = {1000, 4 * MIB};
    struct fake_wire *wire = &self->node.wire;
    fake_node_begin(&self->node, fake_one_gpu, 128 * MIB);
    fake_node_connect(&self->node);
    for (unsigned i = 0; i < RANGES; i++) {
        self->ranges[i].bytes = sizes[i];
        assert_int_equal(fake_program_alloc(wire, sizes[i], &self->ranges[i].address), CUDA_SUCCESS);
        fake_program_fill(wire, self->ranges[i].address, sizes[i], 0x10 + i);
    }
    fake_program_store(wire, fake_first_text);
    fake_program_store(wire, fake_second_text);
    fake_program_load(wire, 1, fake_first_text, 1);
    fake_program_load(wire, 2, fake_second_text, 1);
    for (unsigned i = 0; i < 2; i++)
        self->variables[i] = fake_program_place_of(wire, i + 1, "counter");
    fake_prepare_look(wire, 1, self->ranges[0].address);
    assert_int_equal(fake_program_word_at(wire, self->ranges[0].address), 5);
    fake_server_wait(self->node.first, &self->node.first->extents_told, RANGES);
}

void fake_prepare_start(struct fake_prepare *self)
{
    fake_server_start(self->node.second, fake_one_gpu);
    assert_true(self->node.second->is_ready);
    fake_node_prepare(&self->node, self->node.second);
    assert_int_equal(self->node.second->prepared.outcome, 0);
    assert_true(!self->node.second->prepared.move_id && !self->node.second->prepared.sequence);
}

void fake_prepare_library(struct fake_server *server, unsigned number, const char *text)
{
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);
    assert_non_null(message);
    message->kind = FLYT_MANAGER_LINK_LIBRARY;
    message->library.library_id = fake_program_library(number);
    message->library.has_ended = !text;
    if (text) {
        flyt_library_load_args args = fake_program_arguments(number, text);
        XDR xdrs;
        xdrmem_create(&xdrs, (char *)message->data, sizeof message->data, XDR_ENCODE);
        assert_true(xdr_flyt_library_load_args(&xdrs, &args));
        message->data_bytes = xdr_getpos(&xdrs);
    }
    fake_server_post(server, message, -1);
    free(message);
}

void fake_prepare_make(struct fake_server *server, const struct flyt_manager_link_extent *extent, int want)
{
    fake_server_make(server, extent);
    assert_int_equal(server->made.outcome, want);
    assert_memory_equal(&server->made.extent, extent, sizeof *extent);
    assert_int_equal(server->made_fd >= 0, !want);
}

void fake_prepare_copy(int from_fd, int to_fd, uint64_t bytes)
{
    void *from = mmap(NULL, bytes, PROT_READ, MAP_SHARED, from_fd, 0);
    void *to = mmap(NULL, bytes, PROT_WRITE, MAP_SHARED, to_fd, 0);
    assert_true(from != MAP_FAILED && to != MAP_FAILED);
    memcpy(to, from, bytes);
    munmap(from, bytes);
    munmap(to, bytes);
}

void fake_prepare_make_all(struct fake_prepare *self)
{
    for (unsigned i = 0; i < self->node.first->extent_count; i++) {
        const struct fake_extent *held = &self->node.first->extents[i];
        const struct flyt_manager_link_extent extent = fake_extent_told(held);
        fake_prepare_make(self->node.second, &extent, 0);
        fake_prepare_copy(held->fd, self->node.second->made_fd, held->bytes);
        self->node.second->extents[i] = *held;
        self->node.second->extents[i].fd = self->node.second->made_fd;
        self->node.second->made_fd = -1;
    }
    self->node.second->extent_count = self->node.first->extent_count;
}

struct flyt_checkpoint_writer *fake_prepare_image_with(const struct flyt_page_key *key, int *ret_fd)
{
    struct flyt_checkpoint_writer *writer;
    struct flyt_error err;
    flyt_checkpoint_head head = {.build = (char *)"test",
                                 .program_name = (char *)"",
                                 .vm = (char *)"",
                                 .gpu_type = (char *)"",
                                 .page_hash = key ? FLYT_PAGE_HASH_VERSION : 0,
                                 .id = "0123456789abcde"};
    *ret_fd = memfd_create("prepare_test", MFD_CLOEXEC);
    assert_true(*ret_fd >= 0);
    assert_int_equal(flyt_checkpoint_writer_new(*ret_fd, "image", &head, FLYT_CHECKPOINT_PACK_NOT, &writer, &err), 0);
    assert_int_equal(flyt_checkpoint_put_slot(writer, 0, 0, &err), 0);
    if (key)
        assert_int_equal(flyt_checkpoint_put_hash_key(writer, key, &err), 0);
    assert_int_equal(flyt_checkpoint_put_round(writer, &err), 0);
    return writer;
}

struct flyt_checkpoint_writer *fake_prepare_image(int *ret_fd)
{
    return fake_prepare_image_with(NULL, ret_fd);
}

void fake_prepare_put(struct flyt_checkpoint_writer *writer, const struct fake_variable *variable)
{
    struct flyt_error err;
    uint64_t done = 0;
    while (done < variable->bytes) {
        uint64_t bytes = variable->bytes - done < 4 * MIB ? variable->bytes - done : 4 * MIB;
        flyt_checkpoint_global global = {.symbol = (char *)variable->symbol,
                                         .address = variable->address,
                                         .total_bytes = variable->bytes,
                                         .offset_bytes = done};
        assert_true(flyt_state_module_id(fake_program_library(variable->library), 0, (uint64_t *)&global.module_id));
        assert_int_equal(
            flyt_checkpoint_put_global(writer, &global, (const char *)variable->contents + done, bytes, &err), 0);
        done += bytes;
    }
}

void fake_prepare_end_image(struct flyt_checkpoint_writer *writer)
{
    const flyt_checkpoint_sequence sequence = {SEQUENCE, SEQUENCE, SEQUENCE};
    struct flyt_error err;
    assert_int_equal(flyt_checkpoint_put_sequence(writer, &sequence, &err), 0);
    assert_int_equal(flyt_checkpoint_put_end(writer, &err), 0);
    flyt_checkpoint_writer_free(writer);
}

/* Closes fd. */
static void send_state(struct fake_server *server, int fd)
{
    unsigned before = server->prepared_count;
    fake_server_post_state(server, MOVE_ID, fd);
    close(fd);
    fake_server_await_state(server, MOVE_ID, before + 1);
}

void fake_prepare_expect(struct fake_server *server, int fd, int want, const char *words)
{
    send_state(server, fd);
    if (server->prepared.outcome != want || (words && !strstr(server->prepared_sentence, words)))
        fail_msg("%d '%s', not %d '%s'", server->prepared.outcome, server->prepared_sentence, want, words);
    assert_true(server->prepared.sequence == (want ? 0 : SEQUENCE));
}

void fake_prepare_refuse(struct fake_prepare *self, const char *words)
{
    fake_node_hand_to_second(&self->node);
    fake_node_expect_refusal(&self->node, self->node.second, FLYT_CONNECTION_RESUME, self->node.listener.session.token,
                             FLYT_HANDSHAKE_NO_DEVICE, words);
}
