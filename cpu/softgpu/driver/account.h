/*
 * The software GPU's own accounting, for tests: what each context's kernels have used, whatever the clock on the wall
 * says. libflyt-softgpu.so exports flyt_soft_accounting beside the driver API. Each process accounts for itself.
 *
 * With FLYT_SOFT_ACCOUNT=FOLDER each process also keeps the file FOLDER/PID, one line per context in the order in which
 * they were made, each FLYT_SOFT_ACCOUNT_LINE_BYTES long (padded with spaces before the newline):
 *
 *   context=2 device=0 green=1 alive=1 sms=8 launches=1 blocks=8 instructions=1234567 busy_us=98765 memory=4096 works=3
 *
 * A line is brought up to date when its context begins and ends, when a launch ends before whoever waits for the launch
 * goes on, and about 20 ms apart in between. `works` is what libraries have had executed there (work.h). The file stays
 * when the process has gone.
 *
 * FLYT_SOFT_ACCOUNTS_MAX contexts have a line. Then a new context takes the line of the destroyed one that was made
 * first; if none is destroyed, it is not accounted for.
 */
#ifndef FLYT_SOFTGPU_ACCOUNT_H
#define FLYT_SOFTGPU_ACCOUNT_H

#include <stdint.h>

enum { FLYT_SOFT_ACCOUNTS_MAX = 1024, FLYT_SOFT_ACCOUNT_LINE_BYTES = 320 };

struct flyt_soft_account {
    uint64_t context_id; /* of cuCtxGetId */
    uint32_t device;
    uint32_t sm_count;
    uint32_t is_green; /* 0 or 1 */
    uint32_t is_alive; /* 0: the context has gone, with its last stream */
    uint64_t launches; /* that were begun */
    uint64_t blocks;   /* that have ended */
    uint64_t thread_instructions;
    uint64_t busy_us; /* time with at least one launch in flight */
    uint64_t
        memory_bytes; /* of its device, of all contexts of the process; of a context that has gone: as it was then */
    uint64_t works;   /* of libraries, that were begun */
};

/*
 * Fills ret_accounts with the first `room` contexts of this process, in the order in which they were made, and returns
 * their number, which may be more than `room`; 0 before cuInit. From any thread, also while kernels run.
 */
unsigned flyt_soft_accounting(struct flyt_soft_account *ret_accounts, unsigned room);

#endif
