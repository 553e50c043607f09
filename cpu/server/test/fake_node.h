/*
 * For tests: a node manager (fake_manager.h) with one session and one program that speaks the wire by itself
 * (fake_wire.h), and servers where it goes on, one after the other. Functions fail the running test where something is
 * not as it should be.
 */
#ifndef FLYT_SERVER_FAKE_NODE_H
#define FLYT_SERVER_FAKE_NODE_H

#include "cpu/server/test/fake_manager.h"
#include "cpu/server/test/fake_program.h"

enum { FAKE_NODE_SERVERS = 4 };

#define FAKE_NODE_LONG_US 600000000ull /* for a loaded machine: STOP never takes so long here */

extern const char *const fake_one_gpu[], *const fake_two_gpus[]; /* arguments of a server: GPUs of 256 MiB */

struct fake_node {
    struct fake_listener listener;
    /* Where the session is, and where it goes next. */
    struct fake_server servers[FAKE_NODE_SERVERS], *first, *second;
    struct fake_wire wire;
    struct flyt_ledger *ledger;
    uint64_t stop_number;      /* of the last FLYT_BACK_STOP */
    uint64_t sequence;         /* of the last call before the program stopped */
    uint64_t leave_timeout_us; /* of LEAVE */
    uint32_t moved_flags;      /* that it was told when it last left */
};

/* A group's set-up and tear-down: a folder for everything that its tests put into files (the variable FAKE_FOLDER), in
 * which servers find modules' images (FAKE_IMAGES). */
int fake_node_begin_all(void **state);
int fake_node_end_all(void **state);

/* *node is zeroed before; its listener is open then. Of fini: servers that were started have ended. */
void fake_node_init(struct fake_node *node);
void fake_node_fini(struct fake_node *node);
/* A test's fixture of so many bytes, zeroed but for its struct fake_node, with which it begins and which is
 * initialized; *state is the fixture. And its end, for cmocka. */
void *fake_node_fixture_new(void **state, size_t bytes);
int fake_node_tear_down(void **state);
/* Starts the first server, and grants it a session with this limit. */
void fake_node_begin(struct fake_node *node, const char *const *arguments, uint64_t limit_bytes);
/* The session's server could find a node manager that was restarted. */
void fake_node_let_rejoin(struct fake_node *node);
/* The program comes; it comes back to the session, whose status is the handshake's. */
void fake_node_connect(struct fake_node *node);
flyt_handshake_status fake_node_come_back(struct fake_node *node);
/* It ends as it should, and its server; nothing is charged any more. */
void fake_node_finish(struct fake_node *node, struct fake_server *server);
/* What the ledger has. */
uint64_t fake_node_used(const struct fake_node *node);
/* The second server is the first one from now on. */
void fake_node_next(struct fake_node *node);
/* The next program is handed to the second server, as it is. */
void fake_node_hand_to_second(struct fake_node *node);
/* A connection of this kind is refused with the status; the program hears these words, and so does the node manager.
 * The server ends. */
void fake_node_expect_refusal(struct fake_node *node, struct fake_server *server, flyt_connection_kind kind,
                              const void *token, flyt_handshake_status status, const char *words);

/* ---- moves ---- */

/* Has the server prepare the session, but for what is secret; server->prepared is what it says. */
void fake_node_prepare(struct fake_node *node, struct fake_server *server);
/* Has the first server stop the program, which does. The outcome; the other stop takes none but success. */
int fake_node_try_stop(struct fake_node *node, uint64_t move_id, uint64_t timeout_us);
void fake_node_stop(struct fake_node *node, uint64_t move_id);
/* The program hears that it goes on where it is, after all; the number of the stop. */
uint64_t fake_node_await_go_on(struct fake_node *node);
/* Says so, and it does. */
void fake_node_go_on(struct fake_node *node, uint64_t move_id);
/* The program leaves the first server, which says that it has. */
void fake_node_leave(struct fake_node *node, uint64_t move_id);

#endif
