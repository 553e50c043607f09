#include "control/node/link/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/link/link_dispatch.h"
#include "control/node/link/server_control.h"
#include "control/node/model/allocation.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

enum { NAMED_MAX = 4, SENTENCE_BYTES = 480 };

/* Whether its driver writes a core dump, and may do so still. */
static bool is_dumping(const struct flyt_node_server *server)
{
    return server->coredumps.is_written && flyt_clock_ms() < server->coredumps.since_ms + FLYT_NODE_FAULT_DUMP_MS;
}

/* Who may have made it: those that had work when they heard of it, or leave a core dump of it. */
static bool is_suspect(const struct flyt_node_server *server, const struct flyt_node_gpu *gpu)
{
    bool had_part = (server->fault.is_reported && server->fault.had_work) || is_dumping(server);

    return had_part && flyt_node_server_allocation(server) && flyt_node_server_uses(server, gpu);
}

/* Whether a server with a session was killed so shortly before the first report that its kernels may have run on into
 * memory that went with it; its end, which takes the driver a while, may have been seen after that report. */
static bool has_killed(const struct flyt_node_fault *fault)
{
    return fault->killed_ms && fault->killed_ms + FLYT_NODE_FAULT_KILLED_MS >= fault->reported_ms;
}

/* "program a of VM 10.0.0.1", "one of: …" or "a program that is not known"; how many there are. */
static unsigned name_suspects(const struct flyt_node *node, const struct flyt_node_gpu *gpu, char *text, size_t bytes)
{
    const struct flyt_node_fault *fault = &node->faults[gpu->index];
    unsigned count = 0;
    size_t used = 0;
    char names[SENTENCE_BYTES / 2] = "";

    if (has_killed(fault)) {
        used = (size_t)snprintf(names, sizeof names, "%s", fault->killed);
        count++;
    }

    for (const struct flyt_node_server *server = node->servers; server; server = server->next) {
        if (!is_suspect(server, gpu) || count++ >= NAMED_MAX || used >= sizeof names)
            continue;
        used += (size_t)snprintf(names + used, sizeof names - used, "%sprogram %.40s of VM %.40s", used ? ", " : "",
                                 server->session->ticket.program, server->session->allocation->now.vm_ip);
    }
    if (!count)
        snprintf(text, bytes, "a program that is not known");
    else
        snprintf(text, bytes, "%s%s%s", count > 1 ? "one of: " : "", names, count > NAMED_MAX ? " and others" : "");
    return count;
}

/* The first cause that was told: all have the same. */
static const char *cause_on(const struct flyt_node *node, const struct flyt_node_gpu *gpu)
{
    for (const struct flyt_node_server *server = node->servers; server; server = server->next)
        if (server->fault.is_reported && flyt_node_server_uses(server, gpu) && *server->fault.cause)
            return server->fault.cause;
    return "a fault";
}

static void tell_cause(struct flyt_node_server *server, const char *sentence)
{
    static struct flyt_manager_link_message message; /* the loop's thread only */

    message.kind = FLYT_MANAGER_LINK_CAUSE;
    flyt_manager_link_say(&message, sentence);
    if (server->link_fd >= 0)
        flyt_node_server_send(server, &message, NULL, 0);
}

/* Whether its session may go on at another server: somebody had work, and this one has not even looked at the GPU
 * since. Who has looked did so for a call of its program, which waits for an answer and is to hear whose fault it was.
 */
static bool may_be_spared(const struct flyt_node_server *server, unsigned suspects)
{
    return suspects && !server->fault.is_reported && !is_dumping(server) && flyt_node_server_may_wait(server);
}

/* Its program hears nothing of it but that its connection ends. */
static void spare(struct flyt_node_server *server, const char *others)
{
    server->fault.is_hit = server->fault.is_spared = true;
    snprintf(server->end_reason, sizeof server->end_reason, "%s", others);
    flyt_node_server_kill(server);
}

/* Who has reported is told at once, and ended soon; the others hear of it by being ended. */
static void hit(struct flyt_node_server *server, const char *own, const char *others, bool is_culprit)
{
    bool is_told = server->fault.is_reported;

    server->fault.is_reported = false;
    if (server->state == FLYT_NODE_SERVER_ENDING)
        return;
    server->fault.is_hit = true;
    server->fault.is_late = !is_told && is_dumping(server);
    if (!is_told && !is_dumping(server)) {
        flyt_node_server_end(server, flyt_node_server_allocation(server) ? others : NULL);
        return;
    }
    if (is_told)
        tell_cause(server, is_culprit ? NULL : others);
    snprintf(server->end_reason, sizeof server->end_reason, "%s", is_culprit ? own : others);
}

static int on_time(sd_event_source *source, uint64_t usec, void *user);

static bool wait_ms(struct flyt_node_fault *fault, uint64_t ms)
{
    fault->timer = sd_event_source_disable_unref(fault->timer);
    return sd_event_add_time_relative(fault->node->event, &fault->timer, CLOCK_MONOTONIC, ms * 1000, 1000, on_time,
                                      fault) >= 0;
}

/* Whether it is still to be let: its driver writes a core dump, or it has heard only now. */
static bool may_stay(const struct flyt_node_server *server)
{
    return is_dumping(server) || flyt_clock_ms() < server->fault.leave_ms;
}

static void end_hit(struct flyt_node_fault *fault)
{
    bool has_some_left = false;

    fault->timer = sd_event_source_disable_unref(fault->timer);
    for (struct flyt_node_server *server = fault->node->servers; server; server = server->next) {
        if (!server->fault.is_hit || server->fault.is_spared || !flyt_node_server_uses(server, fault->gpu))
            continue;
        if (may_stay(server))
            has_some_left = true;
        else
            flyt_node_server_end(server, NULL);
    }
    if (has_some_left && !wait_ms(fault, FLYT_NODE_FAULT_LEAVE_MS))
        flyt_warn("gpu %u: servers that were to end soon stay until their programs go", fault->gpu->index);
}

static void judge(struct flyt_node_fault *fault)
{
    struct flyt_node *node = fault->node;
    struct flyt_node_gpu *gpu = fault->gpu;
    char who[SENTENCE_BYTES / 2 + 32], own[128], others[SENTENCE_BYTES];
    const struct flyt_node_server *culprit = NULL;
    unsigned programs = 0, spared = 0;
    char how_many[64];

    fault->is_judged = true;
    unsigned suspects = name_suspects(node, gpu, who, sizeof who);
    snprintf(own, sizeof own, "%.127s", cause_on(node, gpu));
    snprintf(others, sizeof others, "%s program on this GPU faulted, which ends all that share it: %s: %s",
             suspects == 1 ? "another" : "a", who, own);
    for (const struct flyt_node_server *server = node->servers; server; server = server->next) {
        programs += flyt_node_server_allocation(server) && flyt_node_server_uses(server, gpu);
        culprit = suspects == 1 && is_suspect(server, gpu) ? server : culprit;
        spared += flyt_node_server_uses(server, gpu) && may_be_spared(server, suspects);
    }
    flyt_warn("gpu %u: %s: %s: programs that end with it: %u", gpu->index, who, own, programs - spared);
    if (spared)
        snprintf(how_many, sizeof how_many, "%u of %u programs", programs - spared, programs);
    else
        snprintf(how_many, sizeof how_many, "all %u programs", programs);
    flyt_node_tell(node, "gpu.fault", gpu->uuid, "%s%s: %s; %s on GPU %s are ended", suspects == 1 ? "" : "unknown, ",
                   who, own, how_many, gpu->uuid);
    gpu->fault_count++;
    for (struct flyt_node_server *server = node->servers; server; server = server->next)
        if (flyt_node_server_uses(server, gpu) && may_be_spared(server, suspects))
            spare(server, others);
        else if (flyt_node_server_uses(server, gpu))
            hit(server, own, others, server == culprit);
    if (!wait_ms(fault, FLYT_NODE_FAULT_LEAVE_MS))
        end_hit(fault);
}

static int on_time(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_fault *fault = user;

    if (fault->is_judged)
        end_hit(fault);
    else
        judge(fault);
    return 0;
}

void flyt_node_fault_report(struct flyt_node_server *server, const char *cause, bool had_work)
{
    struct flyt_node_fault *fault = &server->node->faults[server->gpu->index];

    if (server->fault.is_hit && server->fault.is_late && !server->fault.leave_ms) {
        /* It was judged while the driver wrote its core dump. */
        server->fault.leave_ms = flyt_clock_ms() + FLYT_NODE_FAULT_LEAVE_MS;
        tell_cause(server, NULL);
    }
    if (server->fault.is_hit || server->fault.is_reported)
        return; /* of a fault that was judged already */
    server->fault.is_reported = true;
    server->fault.had_work = had_work;
    snprintf(server->fault.cause, sizeof server->fault.cause, "%s", cause);
    if (fault->timer && !fault->is_judged)
        return;
    fault->node = server->node;
    fault->gpu = server->gpu;
    fault->is_judged = false;
    fault->reported_ms = flyt_clock_ms();
    if (!wait_ms(fault, FLYT_NODE_FAULT_GATHER_MS))
        judge(fault);
}

void flyt_node_fault_killed(struct flyt_node_server *server, int signal_number)
{
    struct flyt_node_fault *fault = &server->node->faults[server->gpu->index];

    if (!flyt_node_server_allocation(server))
        return;
    fault->killed_ms = flyt_clock_ms();
    snprintf(fault->killed, sizeof fault->killed, "program %.40s of VM %.40s, whose server process ended by signal %d",
             server->session->ticket.program, server->session->allocation->now.vm_ip, signal_number);
}

void flyt_node_fault_dumps(struct flyt_node_server *server, bool is_written)
{
    server->coredumps.is_written = is_written;
    if (is_written && !server->coredumps.since_ms)
        server->coredumps.since_ms = flyt_clock_ms();
}

void flyt_node_fault_leave(struct flyt_node_server *server)
{
    if (server->fault.is_reported)
        judge(&server->node->faults[server->gpu->index]);
}

bool flyt_node_fault_is_clearing(const struct flyt_node *node, const struct flyt_node_gpu *gpu)
{
    for (const struct flyt_node_server *server = node->servers; server; server = server->next)
        if (server->fault.is_hit && flyt_node_server_uses(server, gpu))
            return true;
    return false;
}

void flyt_node_faults_fini(struct flyt_node *node)
{
    for (unsigned i = 0; i < FLYT_GPUS_MAX; i++)
        node->faults[i].timer = sd_event_source_disable_unref(node->faults[i].timer);
}
