/*
 * The progress page: one page of memory in which a server publishes how far a session has come, where client and
 * server are on one host. The client looks there instead of asking.
 *
 * The server makes it in a memfd, announces FLYT_FEATURE_PROGRESS_PAGE in its answer to a session's handshake, and
 * sends the descriptor with the first byte of that record (SCM_RIGHTS, unix(7)). The client maps it for reading. The
 * page is an extra: a client without it asks, and hears notices, as over any other transport. A client that does not
 * know of it receives without asking for descriptors, and the kernel drops it.
 *
 * Nobody trusts it with more than its contents: the client maps nothing but a memfd of exactly this length that is
 * sealed against getting shorter, so that reading it never faults; the server never reads it back.
 *
 * What a sequence number N in it says: all calls up to N are at that point. It never falls, but once: a
 * session that goes on at this server counts the calls that make its objects again apart, and all places have the
 * number with which it goes on before session_resume_end is answered. A stream's place (by the number in its id) speaks
 * of the calls that name the stream: those up to N are complete. Who reads looks at a sequence number first (acquire)
 * and then at error_count: where that is more than the errors that it has heard of, an error is on its way that came
 * before, and the number is not to be believed yet. A server whose context is lost publishes nothing any more.
 */
#ifndef FLYT_TRANSPORT_PROGRESS_PAGE_H
#define FLYT_TRANSPORT_PROGRESS_PAGE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* A bit of flyt_handshake_res.features. */
enum { FLYT_FEATURE_PROGRESS_PAGE = 1 };

#define FLYT_PROGRESS_PAGE_MAGIC 0x6567617074796c66ull /* "flytpage" in memory */

enum {
    FLYT_PROGRESS_PAGE_BYTES = 4096,
    FLYT_PROGRESS_DEVICES_MAX = 16,
    FLYT_PROGRESS_STREAMS_MAX = 488 /* streams with higher numbers have no place: the client asks */
};

struct flyt_progress_page {
    uint64_t magic;
    _Atomic(uint64_t) error_count; /* FLYT_BACK_CALL_ERROR and _FATAL handed to the connection so far */
    _Atomic(uint64_t) received;    /* as in flyt_progress */
    _Atomic(uint64_t) executed;
    _Atomic(uint64_t) completed;
    uint64_t reserved[3];
    _Atomic(uint64_t) blocking[FLYT_PROGRESS_DEVICES_MAX]; /* of all calls that name a blocking stream of the device */
    _Atomic(uint64_t) streams[FLYT_PROGRESS_STREAMS_MAX];
};

_Static_assert(sizeof(struct flyt_progress_page) == FLYT_PROGRESS_PAGE_BYTES, "layout of the progress page");
_Static_assert(offsetof(struct flyt_progress_page, error_count) == 8, "layout of the progress page");
_Static_assert(offsetof(struct flyt_progress_page, received) == 16, "layout of the progress page");
_Static_assert(offsetof(struct flyt_progress_page, executed) == 24, "layout of the progress page");
_Static_assert(offsetof(struct flyt_progress_page, completed) == 32, "layout of the progress page");
_Static_assert(offsetof(struct flyt_progress_page, blocking) == 64, "layout of the progress page");
_Static_assert(offsetof(struct flyt_progress_page, streams) == 192, "layout of the progress page");
_Static_assert(sizeof(_Atomic(uint64_t)) == 8 && ATOMIC_LLONG_LOCK_FREE == 2, "shared between processes: no lock");

/*
 * The server's side: a new page of zeros with its magic, mapped for writing until flyt_progress_page_unmap, and a
 * descriptor of it to be sent, which the caller closes. From then on nobody can make it shorter or longer, nor (where
 * the kernel has that seal, Linux 5.1) map it for writing. 0, or a negative errno of memfd_create(2), ftruncate(2),
 * fcntl(2) or mmap(2).
 */
int flyt_progress_page_new(struct flyt_progress_page **ret_page, int *ret_fd);

/*
 * The client's side: maps the page that came as fd, which stays the caller's, for reading. 0; -EINVAL: no memfd, of
 * another length or without the seals; -EPROTO: it has another magic; or a negative errno of fstat(2) or mmap(2).
 */
int flyt_progress_page_map(int fd, const struct flyt_progress_page **ret_page);

/*
 * The client's side, where another server goes on: what is mapped at `page` is mapped at `place` afterwards, in the
 * place of the page there, and no longer at `page`; both are of flyt_progress_page_map. One step for other threads that
 * read at `place` meanwhile: they find the one or the other (mremap(2) changes both mappings under the lock that their
 * page faults take). 0; or a negative errno of mremap(2), -ENOMEM where the process has its bound of mappings, and
 * nothing has changed.
 */
int flyt_progress_page_replace(const struct flyt_progress_page *place, const struct flyt_progress_page *page);

/* NULL is allowed. */
void flyt_progress_page_unmap(const struct flyt_progress_page *page);

#endif
