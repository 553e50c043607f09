/*
 * For tests: a program with memory and two libraries at a first server (fake_node.h, fake_program.h), a second one that
 * is prepared for its session, and images of the session's state. Functions fail the running test where something is
 * not as it should be.
 */
#ifndef FLYT_SERVER_FAKE_PREPARE_H
#define FLYT_SERVER_FAKE_PREPARE_H

#include "cpu/image/writer.h"
#include "cpu/server/test/fake_node.h"
#include "rpc/base/page_hash.h"

enum { KIB = 1 << 10, MIB = 1 << 20, RANGES = 2, SEQUENCE = 70000, MOVE_ID = 9 };

/* The program's libraries, of which each has a variable "counter", and a kernel that looks at it. */
extern const char fake_first_text[], fake_second_text[];

/* What the image has of a variable. */
struct fake_variable {
    unsigned library;
    const char *symbol;
    uint64_t address, bytes;
    const void *contents;
};

struct fake_prepare {
    struct fake_node node;
    struct fake_range ranges[RANGES];
    uint64_t variables[2]; /* where the first one of each library is, in the first server */
};

/* Has the library's kernel write what it sees to the address. */
void fake_prepare_look(struct fake_wire *wire, unsigned number, uint64_t address);

/* The program, at the first server. */
void fake_prepare_begin(struct fake_prepare *self);
/* Starts the second server, and prepares it. */
void fake_prepare_start(struct fake_prepare *self);
/* A library has come, or gone (text: NULL). */
void fake_prepare_library(struct fake_server *server, unsigned number, const char *text);
/* Memory is made, or not: the outcome is `want`; its descriptor is in made_fd. */
void fake_prepare_make(struct fake_server *server, const struct flyt_manager_link_extent *extent, int want);
void fake_prepare_copy(int from_fd, int to_fd, uint64_t bytes);
/* Memory for all extents, with what is in them; the second server's from then on. */
void fake_prepare_make_all(struct fake_prepare *self);

/* An image's beginning, into a new file. key: of hashes; NULL: there are none. */
struct flyt_checkpoint_writer *fake_prepare_image_with(const struct flyt_page_key *key, int *ret_fd);
struct flyt_checkpoint_writer *fake_prepare_image(int *ret_fd);
void fake_prepare_put(struct flyt_checkpoint_writer *writer, const struct fake_variable *variable);
/* Frees the writer. */
void fake_prepare_end_image(struct flyt_checkpoint_writer *writer);

/* Sends the state, and closes fd: the outcome is `want`, and its sentence has the words (NULL: any). */
void fake_prepare_expect(struct fake_server *server, int fd, int want, const char *words);
/* The second server is of no use, and says why to the program, too. */
void fake_prepare_refuse(struct fake_prepare *self, const char *words);

#endif
