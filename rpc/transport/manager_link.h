/*
 * What a server process and whoever starts it (the node manager, or flyt-server's listener in direct mode) say to each
 * other: messages with fixed layouts and descriptors over a SOCK_SEQPACKET unix socket. A server is started with its
 * end of a socket pair; one that serves a session (or has received one: RECEIVE) and loses it because the node manager
 * was restarted connects to the path that SESSION named, and says REJOIN first. Both live on one machine: numbers are
 * in host order.
 *
 * The node manager starts a server as `flyt-server --serve FOLDER --gpu INDEX --group-size SMS [--soft COUNT]` with its
 * end at FLYT_MANAGER_LINK_FD, which it moves up, so that its end is seen when it dies (flyt_descriptor_move_up). It
 * makes its context on that GPU, splits its SMs into groups of that size, and is ready.
 *
 * A server's life: READY or FAILED; FOLDER where it needs that; SESSION; then DATA, LIMIT, SM, SHARE, KILL as they
 * come, answered by LIMIT_DONE, SM_DONE, SHARE_DONE; RECORD; EXTENT and EXTENT_GONE as memory comes and goes, NEED
 * before memory is refused, USE from time to time, RETURN at the end of the session; the process ends after that. In
 * direct mode there are READY, FAILED, SESSION (one slot for each device without limits, no ledgers, no rejoining) and
 * DATA only.
 *
 * Orders are absolute: LIMIT, SM and SHARE that come again with the same number or revision change nothing, and are
 * answered again where they had been answered. The node manager sends what is not answered again.
 *
 * Functions keep no state and may be called from any thread; who sends from several threads serialises them only where
 * the order matters, for a message is sent whole or not at all.
 */
#ifndef FLYT_TRANSPORT_MANAGER_LINK_H
#define FLYT_TRANSPORT_MANAGER_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rpc/base/ticket.h"
#include "rpc/base/time_slices.h"
#include "rpc/proto/control_limits.h"
#include "rpc/proto/limits.h"
#include "rpc/transport/greeter.h"

enum {
    FLYT_MANAGER_LINK_VERSION = 1, /* servers outlive the node manager, an updated one included: layouts only grow */
    FLYT_MANAGER_LINK_DATA_BYTES_MAX = FLYT_GREETER_RECORD_BYTES_MAX,
    FLYT_MANAGER_LINK_DESCRIPTORS_MAX = 1 + (1 + FLYT_TIME_SLICES_FDS) * FLYT_SLOTS_MAX,
    FLYT_MANAGER_LINK_SECRET_BYTES = 32,
    FLYT_MANAGER_LINK_PATH_BYTES = 108, /* sun_path, unix(7) */
    FLYT_MANAGER_LINK_FOLDER_BYTES = 256,
    FLYT_MANAGER_LINK_FD = 3, /* where a server that was started finds its end */
    FLYT_MANAGER_LINK_GROUP_BYTES = FLYT_GROUPS_MAX / 8,
    FLYT_MANAGER_LINK_EXTENTS_MAX = 65536, /* of a session, on all its devices */
};

enum flyt_manager_link_kind {
    /* To the manager. READY: `ready`; FAILED: `data` is one sentence. Then only FAILED ends the process. */
    FLYT_MANAGER_LINK_READY = 1,
    FLYT_MANAGER_LINK_FAILED = 2,
    /*
     * To the server. `session`, `data` is the record that was read of the client's connection, marks included.
     * Descriptors: the client's socket, then the ledger of each slot (ledger_count of them: none or slot_count), in
     * which the server's entry, server_id, is made already; then, of each slot that has
     * FLYT_MANAGER_LINK_HAS_TIME_SLICES, its place among those that share the slot's SMs in time (FLYT_TIME_SLICES_FDS,
     * rpc/base/time_slice_seat.h).
     */
    FLYT_MANAGER_LINK_SESSION = 3,
    /* To the server: a data stream of the session. `stream`; `data` is its record; descriptor: its socket. */
    FLYT_MANAGER_LINK_DATA = 4,
    /* To the manager: memory was made, which the manager is to hold too, and it is no more. `extent`; descriptor: the
     * memory, with EXTENT only. The server has charged its ledger entry before it made it. */
    FLYT_MANAGER_LINK_EXTENT = 5,
    FLYT_MANAGER_LINK_EXTENT_GONE = 6,
    /* To the server, for every EXTENT_GONE: the manager has let go of that extent and credited the ledger. `extent`;
     * bytes 0: it did not hold it and has credited nothing; then the server does. */
    FLYT_MANAGER_LINK_EXTENT_CREDITED = 7,
    /* To the server: a slot's memory limit is to become `limit`: give back what is cached. Answered by LIMIT_DONE with
     * the same revision and number. The manager sets the limit in the ledger. */
    FLYT_MANAGER_LINK_LIMIT = 8,
    FLYT_MANAGER_LINK_LIMIT_DONE = 9,
    /* To the server: a slot's SM groups. Answered by SM_DONE twice with the same revision: when new work goes to the
     * new groups (FLYT_MANAGER_LINK_SWITCHED), and when old work has left the others (FLYT_MANAGER_LINK_VACATED). Where
     * a later order has come meanwhile, answers to the earlier one may be missing. */
    FLYT_MANAGER_LINK_SM = 10,
    FLYT_MANAGER_LINK_SM_DONE = 11,
    /* To the manager, every FLYT_MANAGER_LINK_USE_MS where something has changed, and when the program has gone. `use`;
     * `data`: why it is not replaceable, one sentence or nothing. */
    FLYT_MANAGER_LINK_USE = 12,
    /* To the manager: the session has ended (`returned`); `data` is a sentence, empty where the program has ended as it
     * should. With has_work the process waits to be ended: its leaving would harm others. */
    FLYT_MANAGER_LINK_RETURN = 13,
    /* To the manager, first on a new connection. `rejoin`; descriptors: the ledgers of its slots. What it has of
     * shares in time ends with the node manager that gave it, and SHARE brings it anew. */
    FLYT_MANAGER_LINK_REJOIN = 14,
    /* To the server: goes on as before. `welcome`. */
    FLYT_MANAGER_LINK_WELCOME = 15,
    /* To the server: nobody knows it; it ends. `data` is a sentence for its program. */
    FLYT_MANAGER_LINK_GO = 16,
    /* To the server: the session is to end now; `data` is a sentence for its program. */
    FLYT_MANAGER_LINK_KILL = 17,
    /* To the manager: the slot's limit leaves no room for `need`; the VM's other servers are to give back what they
     * cache. Answered by NEED_DONE with the same number when they have, and when that is credited. */
    FLYT_MANAGER_LINK_NEED = 18,
    FLYT_MANAGER_LINK_NEED_DONE = 19,
    /*
     * To the server: `share`: a slot's priority, and whether it is suspended; descriptors, with has_time_slices only:
     * its place among those that share the slot's SMs in time from now on, as in SESSION. Answered by SHARE_DONE with
     * the same revision: when it holds, and where it is suspended when nothing of the session is on that GPU any more.
     * Where a later order has come meanwhile, the answer to the earlier one may be missing.
     */
    FLYT_MANAGER_LINK_SHARE = 20,
    FLYT_MANAGER_LINK_SHARE_DONE = 21,
    /* To the manager, where the GPU is shared by MPS: the context has ended. `fault`; `data`: how, a sentence. */
    FLYT_MANAGER_LINK_FAULT = 22,
    /* To the server, soon after FAULT: `data` is what its program is to be told; empty: it was its own fault. */
    FLYT_MANAGER_LINK_CAUSE = 23,
    /*
     * To the server, before SESSION: what follows is a session that goes on (`resume`), whose client comes with a
     * connection of kind FLYT_CONNECTION_RESUME; then so many times GIVE: an extent of it. `extent`, with the id that
     * it keeps; descriptor: the memory, which the manager holds too and has charged to the server's ledger entry. Where
     * it is_ahead the process that had the session may not have ended yet: extents may be imported, and nothing that is
     * in them touched. RESUME comes once more then, behind the GIVEs, with the same numbers.
     */
    FLYT_MANAGER_LINK_RESUME = 24,
    FLYT_MANAGER_LINK_GIVE = 25,
    /* To the server, right before SESSION, where it cannot open the folder of the VM's module images by its path, being
     * a user of its own: descriptor: the folder. SESSION's image_folder is empty then. */
    FLYT_MANAGER_LINK_FOLDER = 26,

    /* ---- a session that is moved while its program runs: to the server that it leaves ---- */

    /*
     * It is to be made ready for going on at another server; it goes on here meanwhile. `move`; descriptor: of kind
     * FLYT_MANAGER_LINK_MOVE_WRITE, where its image is written to, and, where there is a second one, an earlier image
     * of the session to build on, open for reading; where that cannot be used everything is written. Answered by
     * MOVE_STATE, first with phase BEGUN or REFUSED, then about FLYT_MANAGER_LINK_MOVE_MS apart, and whenever the phase
     * changes. LIBRARY follows for each library that is loaded, in the order of loading, then as they are loaded and
     * unloaded. When the link ends before LEAVE was sent, the move has not been.
     */
    FLYT_MANAGER_LINK_MOVE = 27,
    /* The memory of the other server for an extent of this one (`extent`, the same id, address and bytes; descriptor:
     * the memory), to which its contents are to be copied. For each extent that there is and that is made meanwhile;
     * EXTENT_GONE of this server ends it. */
    FLYT_MANAGER_LINK_MIRROR = 28,
    /* The program is to stop at a call, everything that it has begun to end, the last pages to be copied and compared.
     * `stop`. Answered by STOPPED. */
    FLYT_MANAGER_LINK_STOP = 29,
    /* The move is over, and the session goes on here. `stop` (its move_id). Possible until LEAVE; no answer. Also to
     * the server where it is to go on, which has said IS_WHOLE (flyt_manager_link_coming). */
    FLYT_MANAGER_LINK_GO_ON = 30,
    /* After STOPPED: the program is told that its session goes on elsewhere. `stop` (its move_id). Its connection ends;
     * everything is kept until the process is ended, or until TAKE_BACK. Answered by LEFT when the connection has
     * ended. timeout_us FLYT_MANAGER_LINK_FOR_EVER: the program is told to try for as long as it takes; with
     * FLYT_MANAGER_LINK_MOVE_SEND, also to ask where it goes on: else that is where it is now. */
    FLYT_MANAGER_LINK_LEAVE = 31,
    /* After LEAVE: the session goes on here after all. `stop` (its move_id), and `session.channel_key` is in
     * stop.channel_key; `data`: the record of the client's connection, of kind FLYT_CONNECTION_RESUME; descriptor: its
     * socket. Answered by MOVE_STATE with phase OVER when the client has come back. */
    FLYT_MANAGER_LINK_TAKE_BACK = 32,

    /* ---- from that server ---- */

    /* `move_state`; `data`: a sentence where outcome is not 0. */
    FLYT_MANAGER_LINK_MOVE_STATE = 33,
    /* `stopped`; `data`: a sentence where outcome is not 0: the session goes on here then, by itself. Descriptor where
     * it is 0: a memfd with an image (cpu/image) of what is not pages: libraries' variables and constants, events. With
     * FLYT_MANAGER_LINK_MOVE_WRITE it has nothing in it, all being written where it was to be. */
    FLYT_MANAGER_LINK_STOPPED = 34,
    FLYT_MANAGER_LINK_LEFT = 35,

    /* ---- both ways: from the server that is left, and as it is to the other one ---- */

    /* A library is loaded (has_ended 0), or not any more. `library`; `data`: the arguments of library_load as XDR. */
    FLYT_MANAGER_LINK_LIBRARY = 36,

    /* ---- to the server where the session is to go on, while it is warm ---- */

    /* What follows, up to SESSION, is to be a session that goes on. `session` as SESSION will have it, without
     * descriptors, client, token and secrets. Answered by PREPARED. */
    FLYT_MANAGER_LINK_PREPARE = 37,
    /* Memory is to be made for an extent, or is not needed any more. `extent`. MAKE is answered by MADE. */
    FLYT_MANAGER_LINK_MAKE = 38,
    FLYT_MANAGER_LINK_UNMAKE = 39,
    /* The descriptor of STOPPED, or a stream with an image: everything in it is made. `stop` (its move_id). Answered by
     * PREPARED: what is there is what was there, addresses of variables included, and what was copied to memory that
     * MAKE has made is compared with the image's hashes of it. Then comes SESSION. */
    FLYT_MANAGER_LINK_STATE = 40,

    /* ---- from that server ---- */

    /* `made`; descriptor, where outcome is 0: the memory. Also unasked, for what an image has. */
    FLYT_MANAGER_LINK_MADE = 41,
    /* `prepared`; `data`: a sentence where outcome is not 0, after which the server is of no use. Behind SESSION also
     * unasked: why the program cannot go on there. */
    FLYT_MANAGER_LINK_PREPARED = 42,

    /* ---- to it ---- */

    /*
     * In place of STATE: the image comes from another server (FLYT_MANAGER_LINK_MOVE_SEND), from now on and
     * while the program runs there. `receive`; descriptors: the connections, 1 + stream_count, each at the byte after
     * its handshake's record, whose answer has been sent. MADE follows for each extent as it is made, EXTENT_GONE for
     * one that is gone again. Answered by PREPARED, when all is there or cannot be; the other server has been told
     * then. From then on it outlives this link, where `receive` and PREPARE say how: REJOIN, with its move, which is
     * answered by WELCOME when it is to go on; then come MADE for each extent, where these are wanted, and PREPARED
     * once more, and everything is as it was. What came behind PREPARED counts no more.
     */
    FLYT_MANAGER_LINK_RECEIVE = 43,

    /* ---- to the manager ---- */

    /* After SESSION, and after WELCOME: where the server writes what it executes (call_record.h); what it says when the
     * process has ended comes with RESUME. Descriptor: that memory. */
    FLYT_MANAGER_LINK_RECORD = 44,

    /* ---- to a warm server ---- */

    /* After PREPARE, in place of STATE: whether an image could be restored is tried. `stop` (its move_id); descriptor:
     * the image, a file. Its libraries are loaded, in their order, and addresses of variables compared, as STATE does
     * it; no memory is made, nothing is told by MADE, and what an image has that it builds on is not needed. Answered
     * by PREPARED, after which the server is of no use. */
    FLYT_MANAGER_LINK_TRY = 45,

    /* ---- both ways ---- */

    /* To the server, before SESSION, RESUME or PREPARE: the memory that the session's VM shares with this machine, for
     * a client that has it, too. To the manager, after WELCOME: the same. Descriptors: the file, in whose first open
     * description the session's servers claim (rpc/base/claims.h) what they have page-locked, each of them and the
     * manager together; and in the second each what its rings have, until its process ends. */
    FLYT_MANAGER_LINK_VM_MEMORY = 46,

    /* ---- what sessions of one VM on this node share (`shared`), to the manager ---- */

    /* A token names, from now on, an extent of the session that EXTENT has told of. Answered by BROKERED, also where
     * the session has told of it before. */
    FLYT_MANAGER_LINK_EXPORT = 47,
    /* The token names nothing any more. `shared`: its token. What an extent that is gone was named by goes with it. */
    FLYT_MANAGER_LINK_EXPORT_GONE = 48,
    /* What the token names is wanted. Answered by BROKERED, which may take as long as a session of the VM that is
     * between two servers takes. */
    FLYT_MANAGER_LINK_IMPORT = 49,
    /* The server has an extent of another session's (`shared`: session_id, extent_id, bytes, slot), as a node manager
     * that was restarted does not know; and has it no more. */
    FLYT_MANAGER_LINK_IMPORT_HELD = 50,
    FLYT_MANAGER_LINK_IMPORT_GONE = 51,

    /* ---- to the server ---- */

    /* Answers EXPORT, IMPORT, EVENT_EXPORT and EVENT_IMPORT of that number: outcome; of an IMPORT with outcome 0 also
     * whose extent it is, and descriptor: the memory. The server has it from now on. Of events: the page. */
    FLYT_MANAGER_LINK_BROKERED = 52,

    /* ---- events that sessions of one VM share, to the manager (`shared`: token) ---- */

    /* A token names, from now on, an event of the session. Descriptor: its page (rpc/base/shared_event.h). Answered by
     * BROKERED with the page that counts: where the session has told of the token before, the one of then. EXPORT_GONE
     * ends it. is_restored: it is another session's event, which this one has, as a node manager that was restarted
     * does not know. */
    FLYT_MANAGER_LINK_EVENT_EXPORT = 53,
    /* The event that the token names is wanted. Answered by BROKERED with its page, as IMPORT is. EXPORT_GONE ends it.
     * is_restored: where it is no more, a page is made for all that had it. */
    FLYT_MANAGER_LINK_EVENT_IMPORT = 54,

    /* ---- to a server whose session is moved ---- */

    /* In phase DRAINED: nothing of the VM's sessions is under way any more, so that the last pages may be copied.
     * `stop` (its move_id). */
    FLYT_MANAGER_LINK_LAST = 55,

    /* ---- core dumps of the GPU ---- */

    /* To a server that takes it, before SESSION: the folder of the VM's core dumps (`coredumps`). Descriptor: the
     * folder. */
    FLYT_MANAGER_LINK_COREDUMPS = 56,
    /* To the manager: what becomes of a core dump (`coredump`); `data`: its file's name in that folder. */
    FLYT_MANAGER_LINK_COREDUMP = 57,

    /* ---- page-locked memory of a session that is moved within the node, between servers that take it ---- */

    /* To the server that it leaves: its next server can be told what is page-locked. `stop` (its move_id). Answered by
     * LOCKS; then LOCKS with is_gone comes for each of these pieces that is unlocked, before STOPPED. */
    FLYT_MANAGER_LINK_LOCKS_WANTED = 58,
    /* From that server, and as it is to the other one, which locks the pieces ahead, or unlocks them. `locks`; `data`:
     * piece_count of struct flyt_manager_link_piece; descriptor, where has_memory: the session's region, a memfd of
     * its program; otherwise they are of the VM's memory. */
    FLYT_MANAGER_LINK_LOCKS = 59,
    /* From the other one, for each LOCKS without is_gone: `locks_done`. What it has not locked it will be asked for. */
    FLYT_MANAGER_LINK_LOCKS_DONE = 60,

    /* ---- both ways ---- */

    /* To a server that takes it, before SESSION or PREPARE: what all sessions of the VM may have page-locked together
     * on this node (rpc/base/ledger.h); the session's entry, session_id, is made already. To the manager, after
     * WELCOME: the same. Descriptor: the ledger. */
    FLYT_MANAGER_LINK_LOCKED_LEDGER = 61,
    FLYT_MANAGER_LINK_KINDS
};

enum { FLYT_MANAGER_LINK_VM_MEMORY_FDS = 2 };
enum { FLYT_MANAGER_LINK_PIECES_MAX = 4096 }; /* of LOCKS */

enum { FLYT_MANAGER_LINK_USE_MS = 1000 };

/* What a server takes that older ones do not, as bits: their link would end with a message that is none to them. */
enum flyt_manager_link_takes {
    FLYT_MANAGER_LINK_TAKES_COREDUMPS = 1, /* COREDUMPS */
    FLYT_MANAGER_LINK_TAKES_LOCKS = 2,     /* LOCKS_WANTED and LOCKS */
    FLYT_MANAGER_LINK_TAKES_LOCKED_LEDGER = 4,
    FLYT_MANAGER_LINK_TAKES_ALL = 7, /* this build */
};

/* What a server found. SM groups are those into which the driver splits the GPU for a group size of group_size. */
struct flyt_manager_link_ready {
    uint32_t version;      /* FLYT_MANAGER_LINK_VERSION */
    uint32_t device_count; /* that it can use */
    uint32_t sm_count;     /* these of the GPU that it was started for (the first) */
    uint32_t group_size, group_count;
    uint32_t compute_major, compute_minor;
    uint32_t driver_version;
    uint64_t memory_bytes;
    uint64_t reserve_bytes; /* what the context takes of the GPU */
    unsigned char gpu_uuid[FLYT_UUID_BYTES];
    char name[96];
    uint16_t group_sms[FLYT_GROUPS_MAX];
    uint32_t is_mps; /* 0 or 1: its contexts share the GPU with others', and their faults, by MPS */
    uint32_t
        copying_kib; /* most that it takes of a GPU besides while its session is copied; 0: nothing, or not known */
    uint32_t takes;  /* enum flyt_manager_link_takes; 0: of an older build */
    uint32_t reserved;
};

struct flyt_manager_link_fault {
    int32_t result;    /* CUDA's */
    uint32_t had_work; /* 0 or 1: there was work of it on the GPU */
};

struct flyt_manager_link_returned {
    uint32_t has_work; /* 0 or 1: the GPU works for it, and MPS is to stop that before the process goes */
    uint32_t reserved;
};

enum {
    FLYT_MANAGER_LINK_MOVE_MS = 100, /* between two MOVE_STATE of one phase, at least */
    FLYT_MANAGER_LINK_ROUNDS_MAX = 1000,
};

/* How the other server comes to the memory. Numbers are never used again. */
enum flyt_manager_link_move_kind {
    FLYT_MANAGER_LINK_MOVE_GIVE = 1, /* it is given the extents themselves: the same GPU. Nothing is copied */
    /* It has made its own (MIRROR), which this server can write. Where it cannot, because its GPU does not reach the
     * other one's memory, the move is over with outcome -ENOLINK, which nothing else gives: then SEND can do it. */
    FLYT_MANAGER_LINK_MOVE_MIRROR = 2,
    FLYT_MANAGER_LINK_MOVE_WRITE = 3, /* by an image: a file, or a socket at whose other end somebody reads it */
    /*
     * By an image to a server of another node, or of this one, which reads it as it comes (RECEIVE) and says when all
     * of it is in its place: only then is it STOPPED. Descriptors: the connections, 1 + stream_count, each at the byte
     * after the answer to its handshake; within a node these are pairs of sockets, without one.
     */
    FLYT_MANAGER_LINK_MOVE_SEND = 4,
};

/* Connections between two servers: one for the image, stream_count for contents of pages. */
struct flyt_manager_link_streams {
    uint32_t stream_count; /* at most FLYT_MIGRATION_STREAMS_MAX; 0: the contents go with the image */
    uint32_t is_encrypted; /* 0 or 1: each begins TLS with its key: the sending side as the client */
    unsigned char keys[1 + FLYT_MIGRATION_STREAMS_MAX][FLYT_KEY_BYTES];
};

struct flyt_manager_link_move {
    uint64_t move_id; /* not 0; of the node manager, never used again */
    uint32_t kind;
    uint32_t rounds_max;   /* of copying while the program runs, 1 to FLYT_MANAGER_LINK_ROUNDS_MAX; then it is READY */
    uint64_t rest_bytes;   /* it is READY when a round has found no more than this changed */
    uint32_t slowdown_pct; /* of the GPU's memory bandwidth that looking and copying may take; 0: 8 */
    uint32_t packing;      /* of MOVE_WRITE and MOVE_SEND: enum flyt_checkpoint_packing (cpu/image/writer.h) */
    struct flyt_manager_link_streams streams; /* of MOVE_SEND */
    uint32_t has_parent;                      /* of MOVE_WRITE, 0 or 1: an earlier image's descriptor comes second */
    uint32_t is_far;                          /* 0 or 1: to another node, where the program's host memory is not */
    /* 0 or 1: all sessions of its VM that share memory or events with it move, too: then it waits, in phase DRAINED,
     * for LAST. 0: one that shares any cannot be moved. */
    uint32_t with_sharers;
    uint32_t reserved;
};

enum flyt_manager_link_move_phase {
    FLYT_MANAGER_LINK_MOVE_REFUSED = 1,  /* it cannot be moved, or not now: outcome and sentence say why. Over */
    FLYT_MANAGER_LINK_MOVE_BEGUN = 2,    /* it can; what is there is told */
    FLYT_MANAGER_LINK_MOVE_COPYING = 3,  /* rounds */
    FLYT_MANAGER_LINK_MOVE_READY = 4,    /* STOP may come; rounds go on, seldom */
    FLYT_MANAGER_LINK_MOVE_STOPPING = 5, /* the program is to stop, its work to end */
    FLYT_MANAGER_LINK_MOVE_LAST = 6,     /* nothing changes any more: the last pages */
    FLYT_MANAGER_LINK_MOVE_STOPPED = 7,
    FLYT_MANAGER_LINK_MOVE_OVER = 8,    /* the session goes on here, as if nothing had been (outcome: why) */
    FLYT_MANAGER_LINK_MOVE_DRAINED = 9, /* between STOPPING and LAST, of one that shares: it waits for the others */
};

struct flyt_manager_link_move_state {
    uint64_t move_id;
    uint32_t phase;
    int32_t outcome; /* 0 or a negative errno: -ENOTSUP: it cannot be moved; -EBUSY, -ETIMEDOUT: not now */
    uint32_t round;  /* from 1 */
    uint32_t library_count;
    uint64_t page_bytes;              /* of a page */
    uint64_t pages_count, pages_left; /* that there are, and that are to be copied in this round still */
    uint64_t pages_dirty;             /* that were found changed when this round began */
    uint64_t copied_bytes;            /* in all */
    uint64_t elapsed_us;              /* since MOVE came */
};

/* What a server has of SESSION and of its client, before these come, for REJOIN. */
struct flyt_manager_link_awaited {
    uint64_t started_ms; /* of the session, wall */
    uint32_t client_pid;
    uint32_t reserved;
    unsigned char token[FLYT_TOKEN_BYTES];
    unsigned char rejoin_secret[FLYT_MANAGER_LINK_SECRET_BYTES]; /* all zero: the server does not outlive its link */
    char program[FLYT_NAME_BYTES_MAX + 1];
    char client_address[FLYT_NAME_BYTES_MAX + 1];
};

struct flyt_manager_link_receive {
    uint64_t move_id;
    struct flyt_manager_link_streams streams;
    struct flyt_manager_link_awaited awaited;
};

/* timeout_us of LEAVE: nobody knows when the session goes on. */
#define FLYT_MANAGER_LINK_FOR_EVER UINT64_MAX

struct flyt_manager_link_stop {
    uint64_t move_id;
    uint64_t timeout_us; /* of STOP: the program goes on here when it has not stopped by then, last pages included */
    unsigned char channel_key[FLYT_KEY_BYTES]; /* of TAKE_BACK, where the session is encrypted; else 0 */
};

struct flyt_manager_link_stopped {
    uint64_t move_id;
    int32_t outcome;    /* 0; -ETIMEDOUT: something did not end; -EIO: what was copied is not what is there; … */
    uint32_t has_state; /* 0 or 1: a descriptor comes */
    uint64_t sequence;  /* the session goes on behind this call */
    uint64_t extent_count, last_extent_id; /* as RESUME has them */
    uint64_t pages_last;                   /* that were copied after the program had stopped */
    uint64_t pages_kept;                   /* that were not written, as the earlier image has them */
    /* Until it had stopped; from then until its work had ended; from then until the last page and the state were there.
     */
    uint64_t stop_us, drain_us, copy_us;
    uint64_t save_us; /* of copy_us, for the state: behind the last page */
};

struct flyt_manager_link_library {
    uint64_t library_id;
    uint32_t has_ended; /* 0 or 1 */
    uint32_t reserved;
};

struct flyt_manager_link_prepared {
    uint64_t move_id; /* 0: PREPARE's */
    int32_t outcome;  /* 0 or a negative errno; -EXDEV: a variable has come to be elsewhere */
    uint32_t
        has_stopped;   /* 0 or 1: the image says that the program had stopped there, all calls being complete, and: */
    uint64_t sequence; /* STATE's: what the image says; else 0 */
    uint64_t error_count; /* that its client had been told until then */
};

struct flyt_manager_link_resume {
    uint64_t extent_count;   /* GIVEs that follow, or MAKEs that came; at most FLYT_MANAGER_LINK_EXTENTS_MAX */
    uint64_t last_extent_id; /* the highest id that any of the session's extents ever had: new ones go on behind it */
    uint32_t is_made;        /* 0 or 1: they were made by MAKE, or by an image; no GIVE follows */
    /* 0 or 1: it is known how far the server that died had come with its calls: as its RECORD says. */
    uint32_t has_record;
    uint64_t begun, executed, completed, error_count;
    uint32_t is_ahead; /* 0 or 1: RESUME comes once more, which says how far that server had come */
    /* 0 or 1: when the client's objects are compared, and nothing stands against it, USE says IS_WHOLE, and the session
     * goes on only when GO_ON has come, or the link has ended: the VM's other sessions are to be as far. */
    uint32_t is_held;
};

/* Of a slot; what one that does not know them makes of them: nothing. */
enum flyt_manager_link_slot_flag {
    FLYT_MANAGER_LINK_HAS_TIME_SLICES = 1,  /* it works in turns with others: its place comes with the message */
    FLYT_MANAGER_LINK_IS_SUSPENDED = 2,     /* it gives nothing to the GPU until SHARE says otherwise */
    FLYT_MANAGER_LINK_LEAVES_COREDUMPS = 4, /* its contexts are to begin so (COREDUMPS): the session's elsewhere have */
};

/* The flags' upper bits: SMs of a group of this GPU (0: the session's), and SMs that the program is told (0: those that
 * it has). Both were not there always. */
enum {
    FLYT_MANAGER_LINK_GROUP_SIZE_SHIFT = 8,
    FLYT_MANAGER_LINK_GROUP_SIZE_MAX = 255,
    FLYT_MANAGER_LINK_SHOWN_SHIFT = 16,
    FLYT_MANAGER_LINK_SHOWN_MAX = 65535,
};

/* A device of the session. */
struct flyt_manager_link_slot {
    unsigned char gpu_uuid[FLYT_UUID_BYTES]; /* as the node tells it of its GPU; a software GPU has another itself */
    uint32_t gpu_index;                      /* of the node, which is the driver's with CUDA_DEVICE_ORDER=PCI_BUS_ID */
    uint32_t flags;                          /* of enum flyt_manager_link_slot_flag, and numbers above them */
    uint32_t device_index;                   /* as the program numbers it */
    uint32_t sm_count;                       /* of its groups, as the node knows them; 0: all (direct mode) */
    uint64_t memory_bytes;                   /* limit; 0: none (direct mode) */
    uint64_t revision;
    uint32_t minimum_share_pct, maximum_share_pct; /* of time; 0: not limited */
    uint32_t window_ms;
    int32_t priority;
    unsigned char groups[FLYT_MANAGER_LINK_GROUP_BYTES]; /* bit i % 8 of byte i / 8: group i */
};

/* Who a slot is for its token, which is shared by slots of many allocations. */
static inline uint64_t flyt_manager_link_tenant(uint64_t allocation_id, unsigned slot)
{
    uint64_t tenant_id = allocation_id ^ (uint64_t)slot << 60;
    return tenant_id ? tenant_id : 1;
}

struct flyt_manager_link_session {
    uint64_t session_id;
    uint64_t server_id; /* its entry in the ledgers, and who it is for REJOIN; 0 in direct mode */
    uint64_t allocation_id;
    unsigned char token[FLYT_TOKEN_BYTES];
    unsigned char rejoin_secret[FLYT_MANAGER_LINK_SECRET_BYTES];
    unsigned char channel_key[FLYT_KEY_BYTES];
    uint32_t is_encrypted; /* 0 or 1: the channel begins TLS with channel_key before it answers the handshake */
    uint32_t slot_count, ledger_count;
    uint32_t group_size;
    char rejoin_path[FLYT_MANAGER_LINK_PATH_BYTES];    /* empty: the server does not outlive this socket */
    uint32_t client_lost_s;                            /* a silent client has gone after this; 0: never */
    uint64_t image_bytes_max;                          /* of image_folder; 0: the server's own bound */
    char image_folder[FLYT_MANAGER_LINK_FOLDER_BYTES]; /* of this VM; empty: FOLDER's, or the one of the start */
    struct flyt_manager_link_slot slots[FLYT_SLOTS_MAX];
};

/* Of an encrypted session; else zero. Every connection has made its own challenge, so that it has a key of its own. */
struct flyt_manager_link_stream {
    unsigned char channel_key[FLYT_KEY_BYTES];
};

struct flyt_manager_link_extent {
    uint64_t extent_id; /* of this server, never used again */
    uint64_t bytes;
    uint64_t address; /* where it is mapped, the same everywhere; 0: in several places or nowhere */
    uint32_t slot;
    uint32_t reserved;
};

enum { FLYT_MANAGER_LINK_TOKEN_BYTES = 32 };

/* An extent that sessions share. */
struct flyt_manager_link_shared {
    uint64_t number;     /* of this server's questions, rising; it comes back with the answer */
    uint64_t session_id; /* whose extent it is, */
    uint64_t extent_id;  /* and which: it keeps both numbers where it goes on at another server */
    uint64_t bytes;
    uint32_t slot;
    int32_t outcome;      /* 0; -ENOENT: the token names nothing; -EEXIST: it names something else; -ENOSPC */
    uint32_t has_memory;  /* 0 or 1: a descriptor of it, or of an event's page, comes with BROKERED */
    uint32_t is_restored; /* 0 or 1: of IMPORT: by a session that goes on here, and had it elsewhere */
    unsigned char token[FLYT_MANAGER_LINK_TOKEN_BYTES];
};

struct flyt_manager_link_made {
    struct flyt_manager_link_extent extent;
    int32_t outcome; /* 0 or a negative errno: -ENOMEM: the GPU has no more */
    uint32_t reserved;
};

struct flyt_manager_link_limit {
    uint64_t memory_bytes;
    uint64_t revision;
    uint32_t slot;
    uint32_t when_free; /* 0 or 1 */
    uint64_t number;    /* rising; the same: it was sent again. 0: of an older node manager */
};

struct flyt_manager_link_limit_done {
    uint64_t revision;
    uint64_t used_bytes; /* of this server, after what it has given back */
    uint32_t slot;
    int32_t outcome; /* 0 or a negative errno */
    uint64_t
        number; /* the last LIMIT of the slot, and all before it, are answered. 0: of an older server: just one is */
};

struct flyt_manager_link_need {
    uint64_t number; /* of this server, rising */
    uint64_t bytes;
    uint32_t slot;
    uint32_t reserved;
};

struct flyt_manager_link_sm {
    uint64_t revision;
    uint32_t slot;
    uint32_t sm_count;
    unsigned char groups[FLYT_MANAGER_LINK_GROUP_BYTES];
};

enum { FLYT_MANAGER_LINK_SWITCHED = 1, FLYT_MANAGER_LINK_VACATED = 2 };

struct flyt_manager_link_share {
    uint64_t revision;
    uint32_t slot;
    int32_t priority;
    uint32_t is_suspended;    /* 0 or 1 */
    uint32_t has_time_slices; /* 0 or 1 */
};

struct flyt_manager_link_share_done {
    uint64_t revision;
    uint32_t slot;
    int32_t outcome; /* 0 or a negative errno */
};

struct flyt_manager_link_sm_done {
    uint64_t revision;
    uint32_t slot;
    int32_t state; /* FLYT_MANAGER_LINK_SWITCHED, _VACATED, or a negative errno: nothing has changed */
};

/* Which MOVE a server understands, and its client with it: each what the ones below do. Servers outlive an update of
 * the node manager: what they may not know is not sent to them, for a message that is none to them ends their link. */
enum flyt_manager_link_can_move {
    FLYT_MANAGER_LINK_CAN_MOVE_NOT = 0,
    FLYT_MANAGER_LINK_CAN_MOVE_NEAR = 1, /* GIVE, MIRROR, and WRITE of all that there is */
    FLYT_MANAGER_LINK_CAN_MOVE_SEND = 2, /* SEND, and has_parent */
};

/* One of NVIDIA's libraries that a session has opened. */
struct flyt_manager_link_opened {
    char name[FLYT_LIBRARY_NAME_BYTES];
    uint32_t version; /* of the node's file: major * 1000 + minor */
};

struct flyt_manager_link_use {
    uint64_t call_count;
    uint64_t memory_bytes;
    uint64_t gpu_time_us;
    uint64_t in_bytes, out_bytes;
    uint32_t is_replaceable; /* 0 or 1 */
    uint32_t is_ending;      /* 0 or 1: its program has gone, RETURN follows (older servers: 0) */
    /* By slot: the most SMs that a cooperative launch, or one in clusters, has needed to start; 0: there was none. */
    uint32_t needed_sms[FLYT_SLOTS_MAX];
    uint32_t can_move;  /* enum flyt_manager_link_can_move, or above: what a newer server can */
    uint32_t is_coming; /* not 0: it does not go on yet; enum flyt_manager_link_coming */
    struct flyt_manager_link_opened opened[FLYT_LIBRARIES_MAX]; /* a name that is empty: no more */
    uint32_t shares_vm_memory;                                  /* 0 or 1: its client's bytes go through VM_MEMORY */
    uint32_t reserved;
};

enum flyt_manager_link_coming {
    FLYT_MANAGER_LINK_IS_COMING = 1, /* its client is not there yet, or makes its objects again */
    FLYT_MANAGER_LINK_IS_WHOLE = 2,  /* these are what they were, and it waits for GO_ON, as RESUME has said */
};

struct flyt_manager_link_rejoin {
    uint32_t version;
    uint32_t client_pid;
    uint64_t started_ms; /* of the session, wall */
    uint64_t extent_count;
    struct flyt_manager_link_session session; /* as it is now */
    char program[FLYT_NAME_BYTES_MAX + 1];
    char client_address[FLYT_NAME_BYTES_MAX + 1];
    /* By slot: the groups on which work of it may still run, its own included; all zero: these alone. */
    unsigned char holding[FLYT_SLOTS_MAX][FLYT_MANAGER_LINK_GROUP_BYTES];
    uint64_t left_move_id; /* LEAVE was carried out, of this move: its client is on its way elsewhere; else 0 */
    /* RECEIVE was answered by PREPARED, of this move, and SESSION has not come; else 0. It has no ledgers then. */
    uint64_t received_move_id;
    uint32_t takes; /* as READY has said */
    uint32_t reserved;
};

struct flyt_manager_link_welcome {
    uint32_t send_extents; /* 1: the manager does not hold them any more: EXTENT for each */
    uint32_t reserved;
};

struct flyt_manager_link_coredumps {
    uint64_t bytes_max; /* that all files in the folder may have together; not 0 */
};

/* Numbers are never used again. */
enum flyt_manager_link_coredump_state {
    FLYT_MANAGER_LINK_COREDUMP_BEGUN = 1, /* the driver writes it: the process is to be let */
    FLYT_MANAGER_LINK_COREDUMP_DONE = 2,
    FLYT_MANAGER_LINK_COREDUMP_CUT = 3, /* it was removed: there would have been more than bytes_max */
    /* No file: the session's contexts leave dumps from now on. So do those that it gets elsewhere. */
    FLYT_MANAGER_LINK_COREDUMP_ENABLED = 4,
};

struct flyt_manager_link_coredump {
    uint64_t bytes; /* of the file, then */
    uint32_t state; /* enum flyt_manager_link_coredump_state */
    uint32_t reserved;
};

/* Pages of a region that the driver locks with one call. */
struct flyt_manager_link_piece {
    uint64_t offset_bytes, bytes;
};

struct flyt_manager_link_locks {
    uint64_t move_id;
    uint32_t piece_count; /* at most FLYT_MANAGER_LINK_PIECES_MAX */
    uint32_t has_memory;  /* 0 or 1: a descriptor comes */
    uint32_t is_gone;     /* 0 or 1: they are not locked any more */
    uint32_t reserved;
};

struct flyt_manager_link_locks_done {
    uint64_t move_id;
    uint64_t locked_bytes;
    uint32_t locked_count, missed_count; /* pieces that were locked, and that were not */
};

struct flyt_manager_link_message {
    uint32_t kind;
    uint32_t data_bytes;
    union {
        struct flyt_manager_link_ready ready;
        struct flyt_manager_link_session session;
        struct flyt_manager_link_stream stream;
        struct flyt_manager_link_extent extent;
        struct flyt_manager_link_limit limit;
        struct flyt_manager_link_limit_done limit_done;
        struct flyt_manager_link_need need;
        struct flyt_manager_link_sm sm;
        struct flyt_manager_link_sm_done sm_done;
        struct flyt_manager_link_share share;
        struct flyt_manager_link_share_done share_done;
        struct flyt_manager_link_fault fault;
        struct flyt_manager_link_use use;
        struct flyt_manager_link_rejoin rejoin;
        struct flyt_manager_link_welcome welcome;
        struct flyt_manager_link_resume resume;
        struct flyt_manager_link_returned returned;
        struct flyt_manager_link_move move;
        struct flyt_manager_link_move_state move_state;
        struct flyt_manager_link_stop stop;
        struct flyt_manager_link_stopped stopped;
        struct flyt_manager_link_library library;
        struct flyt_manager_link_made made;
        struct flyt_manager_link_prepared prepared;
        struct flyt_manager_link_receive receive;
        struct flyt_manager_link_shared shared;
        struct flyt_manager_link_coredumps coredumps;
        struct flyt_manager_link_coredump coredump;
        struct flyt_manager_link_locks locks;
        struct flyt_manager_link_locks_done locks_done;
    };
    unsigned char data[FLYT_MANAGER_LINK_DATA_BYTES_MAX + 1]; /* a NUL follows what was received */
};

_Static_assert(sizeof(struct flyt_manager_link_ready) == 688, "link layout");
_Static_assert(offsetof(struct flyt_manager_link_ready, group_sms) == 160, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_slot) == 96, "link layout");
_Static_assert(offsetof(struct flyt_manager_link_slot, groups) == 64, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_session) == 1952, "link layout");
_Static_assert(offsetof(struct flyt_manager_link_session, slots) == 512, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_stream) == 32, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_extent) == 32, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_limit) == 32, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_limit_done) == 32, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_need) == 24, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_sm) == 48, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_sm_done) == 16, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_share) == 24, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_share_done) == 16, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_use) == 448, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_rejoin) == 2992, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_fault) == 8, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_coredumps) == 8, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_coredump) == 16, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_piece) == 16, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_locks) == 24, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_locks_done) == 24, "link layout");
_Static_assert(FLYT_MANAGER_LINK_PIECES_MAX * sizeof(struct flyt_manager_link_piece) <=
                   FLYT_MANAGER_LINK_DATA_BYTES_MAX,
               "all pieces go into one message");
_Static_assert(sizeof(struct flyt_manager_link_welcome) == 8, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_resume) == 64, "link layout");
_Static_assert(offsetof(struct flyt_manager_link_resume, is_ahead) == 56, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_streams) == 296, "link layout");
_Static_assert(offsetof(struct flyt_manager_link_move, streams) == 32, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_move) == 344, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_awaited) == 592, "link layout");
_Static_assert(offsetof(struct flyt_manager_link_receive, awaited) == 304, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_receive) == 896, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_move_state) == 72, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_stop) == 48, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_stopped) == 88, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_library) == 16, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_made) == 40, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_prepared) == 32, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_returned) == 8, "link layout");
_Static_assert(sizeof(struct flyt_manager_link_shared) == 80, "link layout");
_Static_assert(offsetof(struct flyt_manager_link_message, session) == 8, "link layout");

static inline bool flyt_manager_link_leaves_coredumps(const struct flyt_manager_link_session *session)
{
    return session->slot_count && session->slots[0].flags & FLYT_MANAGER_LINK_LEAVES_COREDUMPS;
}

static inline unsigned flyt_manager_link_group_size(const struct flyt_manager_link_session *session, unsigned slot)
{
    unsigned group_size =
        session->slots[slot].flags >> FLYT_MANAGER_LINK_GROUP_SIZE_SHIFT & FLYT_MANAGER_LINK_GROUP_SIZE_MAX;
    return group_size ? group_size : session->group_size;
}

static inline unsigned flyt_manager_link_shown(const struct flyt_manager_link_slot *slot)
{
    return slot->flags >> FLYT_MANAGER_LINK_SHOWN_SHIFT;
}

static inline int flyt_manager_link_has_group(const unsigned char *groups, unsigned group)
{
    return groups[group / 8] >> (group % 8) & 1;
}

static inline void flyt_manager_link_add_group(unsigned char *groups, unsigned group)
{
    groups[group / 8] |= (unsigned char)(1u << (group % 8));
}

/* How many of the session's slots are shared in time. */
static inline unsigned flyt_manager_link_time_slice_count(const struct flyt_manager_link_session *session)
{
    unsigned count = 0;
    for (unsigned i = 0; i < session->slot_count && i < FLYT_SLOTS_MAX; i++)
        count += session->slots[i].flags & FLYT_MANAGER_LINK_HAS_TIME_SLICES;
    return count;
}

/* Whether messages of the kind are orders for a session that is served, whose descriptors go with them to the thread
 * that carries them out. */
bool flyt_manager_link_is_order_with_descriptors(uint32_t kind);

/* Puts a sentence (or nothing: NULL) into `data`, cut where it is too long. */
void flyt_manager_link_say(struct flyt_manager_link_message *message, const char *sentence);

/*
 * Sends the message's part for its kind and its data, with fd_count descriptors, which stay open here. Waits as the
 * socket does. 0; -EPIPE: the other side is gone; -EAGAIN; -EINVAL: no such message; another negative errno.
 */
int flyt_manager_link_send(int socket_fd, const struct flyt_manager_link_message *message, const int *fds,
                           unsigned fd_count);

/*
 * Receives one; waits as the socket does. Everything that could make its reader go astray has been checked: the kind,
 * lengths, counts, slots, strings' ends, and that exactly the descriptors of its kind came. ret_fds has
 * FLYT_MANAGER_LINK_DESCRIPTORS_MAX of room; they belong to the caller. What a newer sender added to a part is left
 * out, what an older one lacks is zero. 0; -EPIPE: the other side is gone; -EAGAIN; -EBADMSG: it does not speak this;
 * another negative errno.
 */
int flyt_manager_link_receive(int socket_fd, struct flyt_manager_link_message *ret_message, int *ret_fds,
                              unsigned *ret_fd_count);

/* Listens at a path (replacing what nobody listens at) with mode 0600, and connects to one. A descriptor, close-on-exec
 * and, of the listener, non-blocking; or a negative errno. */
int flyt_manager_link_listen(const char *path);
int flyt_manager_link_connect(const char *path);

#endif
