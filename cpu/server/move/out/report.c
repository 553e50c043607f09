#include "cpu/server/move/out/report.h"

#include <string.h>

#include "cpu/server/move/out/move.h"
#include "cpu/server/move/out/replaceable.h"
#include "cpu/server/core/session.h"

static struct flyt_manager_link_use look(struct flyt_session *session)
{
    const struct flyt_manager *manager = session->manager;
    struct flyt_manager_link_use use = {
        .call_count = atomic_load_explicit(&session->call_count, memory_order_relaxed),
        .in_bytes = atomic_load_explicit(&session->in_bytes, memory_order_relaxed),
        .out_bytes = atomic_load_explicit(&session->out_bytes, memory_order_relaxed),
        .gpu_time_us = atomic_load_explicit(&session->gpu_time_ns, memory_order_relaxed) / 1000,
    };
    use.is_ending = atomic_load(&session->has_lost_client);
    use.shares_vm_memory = atomic_load(&session->shares_vm_memory);
    use.can_move =
        atomic_load(&session->move->is_known) ? FLYT_MANAGER_LINK_CAN_MOVE_SEND : FLYT_MANAGER_LINK_CAN_MOVE_NOT;
    for (unsigned i = 0; i < session->device_count; i++)
        use.needed_sms[session->devices[i].slot] =
            atomic_load_explicit(&session->devices[i].needed_sms, memory_order_relaxed);
    /* Acquire: what is counted is written (cpu/server/library/calls.c). */
    uint32_t opened_count = atomic_load_explicit(&session->opened_count, memory_order_acquire);
    memcpy(use.opened, session->opened, opened_count * sizeof *use.opened);
    for (unsigned i = 0; i < FLYT_SLOTS_MAX; i++)
        if (manager->ledgers[i])
            use.memory_bytes += flyt_ledger_used(manager->ledgers[i], manager->granted.server_id);
    return use;
}

void flyt_report_send(struct flyt_session *session)
{
    if (!session->manager)
        return;
    struct flyt_report *report = &session->manager->report;
    pthread_mutex_lock(&report->mutex);
    struct flyt_manager_link_use use = look(session);
    const char *why = flyt_replaceable_why(session);
    use.is_replaceable = why == NULL;
    use.is_coming = !flyt_replaceable_is_coming(session)     ? 0
                    : atomic_load(&session->resume.is_whole) ? FLYT_MANAGER_LINK_IS_WHOLE
                                                             : FLYT_MANAGER_LINK_IS_COMING;
    if ((memcmp(&use, &report->told, sizeof use) != 0 || why != report->told_why) &&
        flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_USE, &use, sizeof use, why, NULL, 0)) {
        report->told = use;
        report->told_why = why;
    }
    pthread_mutex_unlock(&report->mutex);
}

void flyt_report_forget(struct flyt_session *session)
{
    struct flyt_report *report = &session->manager->report;
    pthread_mutex_lock(&report->mutex);
    report->told = (struct flyt_manager_link_use){0};
    report->told_why = NULL;
    pthread_mutex_unlock(&report->mutex);
}
