#include "control/node/state/checkpointed.h"

#include <stdlib.h>
#include <string.h>

#include "rpc/base/clock.h"

static int begin_waiting(void *item, struct flyt_error *err)
{
    ((struct flyt_node_checkpointed *)item)->asked_ms = flyt_clock_ms();
    return 0;
}

#define OF(kind, member) FLYT_##kind(struct flyt_node_checkpointed, member)

static const struct flyt_field fields[] = {
    {"session_id", OF(NUMBER, session_id), .rules = FLYT_NEEDED | FLYT_DIGITS},
    {"allocation_id", OF(NUMBER, allocation_id), .rules = FLYT_NEEDED | FLYT_DIGITS},
    {"token", OF(BYTES, token), .rules = FLYT_NEEDED},
    {"image", OF(CHARS, image), .rules = FLYT_NEEDED},
    {"folder", OF(CHARS, folder), .rules = FLYT_NEEDED},
    {"program", OF(CHARS, program), .rules = FLYT_NEEDED},
    {"client_address", OF(CHARS, client_address), .rules = FLYT_NEEDED},
    {"client_pid", OF(NUMBER, client_pid), .rules = FLYT_NEEDED | FLYT_DIGITS},
    {"encrypted", OF(NUMBER, is_encrypted), .max = 1, .rules = FLYT_NEEDED | FLYT_DIGITS},
    {"coredumps", OF(NUMBER, leaves_coredumps), .max = 1, .rules = FLYT_DIGITS},
    {"started_ms", OF(NUMBER, started_ms), .rules = FLYT_NEEDED | FLYT_DIGITS},
    {"sequence", OF(NUMBER, sequence), .rules = FLYT_NEEDED | FLYT_DIGITS},
    {0},
};
const struct flyt_item flyt_node_checkpointed_item = {
    .fields = fields, .bytes = sizeof(struct flyt_node_checkpointed), .check = begin_waiting};

void flyt_node_checkpointed_free(struct flyt_node_checkpointed *first)
{
    struct flyt_node_checkpointed *checkpointed;

    while ((checkpointed = first)) {
        first = checkpointed->next;
        explicit_bzero(checkpointed->token, sizeof checkpointed->token);
        free(checkpointed);
    }
}
