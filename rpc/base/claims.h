/*
 * Which process has which part of a file that several of them map: byte-range locks of the file's open descriptions
 * (fcntl(2), F_OFD_SETLK). A part is its claimant's until he gives it back, or until the last descriptor of his open
 * description is closed, whatever has become of him: nobody keeps a list, and none has to be put in order behind a
 * process that was killed. What is in the file does not matter to it, so that nobody's scribbling moves a claim.
 *
 * Who may claim together shares one open description (dup(2), SCM_RIGHTS); everybody else opens the file anew. A VM's
 * memory is claimed twice: by programs among those of its guest (struct flyt_claims), and by their servers among those
 * of the host (flyt_claim). Neither sees the other's, also where one kernel has both.
 *
 * flyt_claim and flyt_unclaim keep no state. Any thread.
 */
#ifndef FLYT_BASE_CLAIMS_H
#define FLYT_BASE_CLAIMS_H

#include <stdint.h>

/* Claims a part of the file for fd's open description, which may write. 0, also where it has it already; -EBUSY:
 * another one has some of it; or what fcntl(2) says. */
int flyt_claim(int fd, uint64_t offset_bytes, uint64_t bytes);
/* Gives back whatever of it fd's open description has. */
void flyt_unclaim(int fd, uint64_t offset_bytes, uint64_t bytes);

/* One process's claims in a file, where it looks for places itself. */
struct flyt_claims;

/* Over the bytes of a file from begin_bytes to end_bytes; fd is taken over where this succeeds. 0 or -ENOMEM. */
int flyt_claims_new(int fd, uint64_t begin_bytes, uint64_t end_bytes, struct flyt_claims **ret_claims);
/* Gives everything back. NULL is allowed. Returns NULL. */
struct flyt_claims *flyt_claims_free(struct flyt_claims *claims);
/* The file, for more mappings of it; borrowed. */
int flyt_claims_fd(const struct flyt_claims *claims);
/* In a forked child, whose parent's claims they stay: lets go of the descriptor. The memory stays. NULL is allowed. */
void flyt_claims_abandon(struct flyt_claims *claims);

/* Claims `bytes`, not 0, that lie together somewhere: behind what was claimed last, where that can be, so that one who
 * was refused what he had is given other ones. Where all claims are of whole pages, so are their places, if begin_bytes
 * is. 0 and *ret_offset_bytes; -ENOSPC; -ENOMEM; or what fcntl(2) says. */
int flyt_claims_take(struct flyt_claims *claims, uint64_t bytes, uint64_t *ret_offset_bytes);
/* Gives back what was claimed at once; nothing where nothing was claimed there. */
void flyt_claims_give(struct flyt_claims *claims, uint64_t offset_bytes);

#endif
