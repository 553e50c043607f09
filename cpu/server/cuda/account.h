/*
 * What device memory of a session is charged to: the ledger of the allocation's slot (rpc/base/ledger.h), which all
 * servers of the VM share. Memory is charged before it is made. The node manager holds a descriptor of each extent;
 * what was given back is credited when it has let go of it, so that an allocation may have to wait for that.
 *
 * Without a ledger (direct mode) everything is allowed and nothing is told. The submission thread.
 */
#ifndef FLYT_SERVER_ACCOUNT_H
#define FLYT_SERVER_ACCOUNT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "rpc/transport/manager_link.h"

struct flyt_device;

/* A node manager that does not answer for so long is asked once more; after as long again the charge is taken back
 * here.
 */
enum { FLYT_ACCOUNT_CREDIT_MS = 5000 };
/* Other servers of the VM that have not given back what they cache after so long are not waited for any longer. */
enum { FLYT_ACCOUNT_NEED_MS = 5000 };

/* Before anything is refused, the VM's other servers give back what they cache. */
struct flyt_account_need {
    enum { FLYT_NEED_NONE, FLYT_NEED_ASKED, FLYT_NEED_ANSWERED } state;
    uint64_t number, since_ms;
    /* Calls up to this one may use the answer: for a later one, others may have got more to give since they were asked.
     */
    uint64_t sequence;
};

/* An extent that was given back and is not credited. */
struct flyt_account_debt {
    struct flyt_account_debt *next;
    struct flyt_manager_link_extent extent;
    uint64_t since_ms;
    bool is_retold; /* it may have been credited for the first time that it was told */
};

/*
 * Charges `bytes`. CUDA_SUCCESS; CUDA_ERROR_NOT_READY: beyond the limit, but what was given back is still to be
 * credited, or others are asked for what they cache; CUDA_ERROR_OUT_OF_MEMORY: beyond the limit. is_last_try: that is
 * to be counted as a refusal.
 */
CUresult flyt_account_charge(struct flyt_device *device, uint64_t bytes, bool is_last_try);
/* The same for what the driver takes for itself (reserve.h). */
CUresult flyt_account_reserve(struct flyt_device *device, uint64_t bytes, bool is_last_try);
void flyt_account_unreserve(struct flyt_device *device, uint64_t bytes);
/* Of what is reserved, what the driver has by now, and what it is still to take: no measurement takes that back. There
 * is a ledger. Before less is reserved, and after more is. */
void flyt_account_estimate(struct flyt_device *device, uint64_t present_bytes, uint64_t ahead_bytes);
/* What was charged was not made after all. */
void flyt_account_uncharge(struct flyt_device *device, uint64_t bytes);

/* Memory was made: hands a descriptor of it to the node manager. The extent's id, or 0: it does not know it. */
uint64_t flyt_account_tell_extent(struct flyt_device *device, uint64_t extent_id, uint64_t address, uint64_t bytes,
                                  CUmemGenericAllocationHandle handle);
/* Memory was released; extent_id as above. */
void flyt_account_drop_extent(struct flyt_device *device, uint64_t extent_id, uint64_t address, uint64_t bytes);
/* The node manager has let go of an extent. bytes = 0 in the message: it did not hold it, and has credited nothing. */
void flyt_account_take_credit(struct flyt_device *device, const struct flyt_manager_link_extent *extent);
/* The VM's other servers have given back what they cached. */
void flyt_account_take_answer(struct flyt_device *device, uint64_t number);
/* The node manager is another one: it is told again what was given back, or, where it holds nothing of before, what it
 * would have credited is credited here. */
void flyt_account_retell_debts(struct flyt_device *device, bool holds_nothing);
/* Asks again for credits that are late, and takes back charges that nobody will credit. */
void flyt_account_settle(struct flyt_device *device);
void flyt_account_fini(struct flyt_device *device);

/* The limit, or the GPU's gpu_bytes without one. */
uint64_t flyt_account_total(const struct flyt_device *device, uint64_t gpu_bytes);
/* How much of what was charged is kept for later: the VM's other servers tell it as free, too. */
void flyt_account_set_cached(struct flyt_device *device, uint64_t bytes);
/* What all servers of the VM may still take together, with what they keep for later, as all of them tell it; at most
 * gpu_bytes, which are free on the GPU, and what this one keeps (cached_bytes). */
uint64_t flyt_account_left(const struct flyt_device *device, uint64_t gpu_bytes, uint64_t cached_bytes);
/* How much more is in use than the limit allows, since it was lowered. */
uint64_t flyt_account_over(const struct flyt_device *device);

#endif
