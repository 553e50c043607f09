/*
 * For tests: a node manager that starts real servers on the software GPU, hands them programs, and does with their
 * memory what a node manager does. Functions fail the running test where something is not as it should be.
 */
#ifndef FLYT_SERVER_FAKE_MANAGER_H
#define FLYT_SERVER_FAKE_MANAGER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "rpc/base/ledger.h"
#include "rpc/base/url.h"
#include "rpc/transport/call_record.h"
#include "rpc/transport/greeter.h"
#include "rpc/transport/manager_link.h"
#include "rpc/transport/test_client.h"

enum { FAKE_EXTENTS_MAX = 256 };

struct fake_extent {
    uint64_t extent_id, bytes, address;
    unsigned slot;
    int fd;
};

/* One server process and the thread that listens to it. */
struct fake_server {
    pid_t pid;
    int link_fd;
    pthread_t thread;
    bool has_thread, is_given_ahead;
    struct flyt_ledger *ledgers[FLYT_SLOTS_MAX];
    uint64_t server_id;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Under the mutex. */
    bool is_ready, is_failed, is_returned, is_hung_up;
    bool holds_credits;    /* says nothing to EXTENT_GONE */
    bool swallows_credits; /* credits the next one, and the answer is lost */
    struct flyt_manager_link_ready ready;
    char sentence[1024]; /* of FAILED or RETURN */
    struct fake_extent extents[FAKE_EXTENTS_MAX];
    unsigned extent_count, extents_told, gone_count;
    const struct flyt_call_record *record; /* NULL: it has handed over none */
    struct flyt_manager_link_use use;
    char why_not_replaceable[256];
    unsigned whole_count; /* how often USE has said that it waits for others */
    unsigned use_count, limit_done_count, sm_done_count;
    struct flyt_manager_link_limit_done limit_done;
    struct flyt_manager_link_sm_done sm_done;
    /* Of a server that is prepared; the descriptor of `made` is for the test to take (-1: none came, or it was). */
    unsigned made_count, prepared_count;
    struct flyt_manager_link_made made;
    int made_fd;
    bool keeps_made; /* as extents of it */
    struct flyt_manager_link_prepared prepared;
    char prepared_sentence[512];
    /* Of a move. */
    unsigned library_count, move_state_count, stopped_count, left_count;
    struct flyt_manager_link_move_state move_state;
    char move_sentence[1024]; /* of that */
    struct flyt_manager_link_stopped stopped;
    int state_fd;                /* of STOPPED; the server's; -1: none came */
    struct fake_server *forward; /* hears of its libraries; NULL: nobody */
};

/* Where programs come: hands each to the server that is next, with what `session` says. */
struct fake_listener {
    struct flyt_greeter *greeter;
    int listen_fd;
    char url[FLYT_URL_TEXT_BYTES];
    pthread_t thread;
    atomic_bool is_ending;
    struct fake_server *server; /* set while no program comes */
    struct flyt_manager_link_session session;
    uint64_t take_back_id; /* programs are handed over by TAKE_BACK of this move; 0: by SESSION */
    bool is_challenging;
    unsigned char secret[FLYT_TICKET_KEY_BYTES];
    _Atomic(unsigned) stream_count; /* data streams that came */
};

/* Starts one with these further arguments (NULL at their end) and waits until it has said READY or FAILED. */
void fake_server_start(struct fake_server *server, const char *const *arguments);
/* Listens to it at another descriptor, which is taken over. */
void fake_server_listen(struct fake_server *server, int link_fd);
/* Kills it, waits for its end and closes the link: what it had is kept (fake_server_give), and it is ended. */
void fake_server_kill(struct fake_server *server);
/* Ends what a test that failed has left running. */
void fake_server_abandon(struct fake_server *server);
/* A warm server is given all extents of one that has not ended yet, and with whose session it is to go on. */
void fake_server_give_ahead(struct fake_server *server, struct fake_server *before);
/* A warm server is to go on with the session of one that was killed: says so, and gives it all extents that it has not
 * been given ahead. */
void fake_server_give(struct fake_server *server, struct fake_server *before);
void fake_server_give_one(struct fake_server *server, const struct flyt_manager_link_extent *extent, int fd);
/* Closes the link as the end of a node manager does; what it held of memory is kept. */
void fake_server_leave(struct fake_server *server);
/* Waits until the process has ended, and closes everything. Its wait status. */
int fake_server_end(struct fake_server *server);
/* Waits until it has returned its session without a word, and has ended as it should. */
void fake_server_finish(struct fake_server *server);
/* Lets go of the memory that a server that was ended had. */
void fake_server_forget(struct fake_server *server);
/* What RESUME says of its extents to a server that has made them. */
struct flyt_manager_link_resume fake_server_resume(const struct fake_server *server);
struct flyt_manager_link_extent fake_extent_told(const struct fake_extent *extent);
/* Has one that is prepared make memory; server->made is what it says. */
void fake_server_make(struct fake_server *server, const struct flyt_manager_link_extent *extent);
/* STATE of this move, in a descriptor, which stays open here; and waits until it has said for the count-th time what it
 * has prepared: the outcome. */
void fake_server_post_state(struct fake_server *server, uint64_t move_id, int fd);
int32_t fake_server_await_state(struct fake_server *server, uint64_t move_id, unsigned count);
/* Says so of the move, with this time where it is STOP. */
void fake_server_send_move(struct fake_server *server, enum flyt_manager_link_kind kind, uint64_t move_id,
                           uint64_t timeout_us);
/* Waits until the server has told this phase last, of a move that it was told with this id. */
void fake_server_wait_phase(struct fake_server *server, uint64_t move_id, uint32_t phase);
void fake_server_send(struct fake_server *server, enum flyt_manager_link_kind kind, const void *part, size_t part_bytes,
                      const char *sentence);
/* The same with a message as it is, and a descriptor (-1: none), which stays open here. */
void fake_server_post(struct fake_server *server, const struct flyt_manager_link_message *message, int fd);
/* The same with several. */
void fake_server_post_all(struct fake_server *server, const struct flyt_manager_link_message *message, const int *fds,
                          unsigned fd_count);
/* Waits until `*number`, a member, is at least `expected`. */
void fake_server_wait(struct fake_server *server, const unsigned *number, unsigned expected);
void fake_server_wait_true(struct fake_server *server, const bool *what);

/* A session of one slot on software GPU 0 with this limit, in `ledger`. */
void fake_listener_grant(struct fake_listener *listener, struct fake_server *server, struct flyt_ledger *ledger,
                         uint64_t limit_bytes);
/* The same session, in its ledger, for the server that goes on with it (fake_server_give): in the place of the one
 * before. */
void fake_listener_grant_again(struct fake_listener *listener, struct fake_server *server, struct fake_server *before);
void fake_listener_open(struct fake_listener *listener);
void fake_listener_close(struct fake_listener *listener);

#endif
