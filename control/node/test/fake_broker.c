/* What the server without CUDA shares with others (fake_server.c), by tokens that are numbers. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "control/node/test/fake_server.h"

static void put(struct fake *fake, uint32_t kind, const struct flyt_manager_link_shared *shared, const int *fd)
{
    fake->message.kind = kind;
    fake->message.data_bytes = 0;
    fake->message.shared = *shared;
    if (flyt_manager_link_send(fake->link_fd, &fake->message, fd, fd != NULL))
        fprintf(stderr, "fake server: nothing can be sent\n");
}

static void export_event(struct fake *fake, const struct flyt_manager_link_shared *shared, uint64_t word)
{
    int fd = memfd_create("event", MFD_CLOEXEC);

    fake_write_word(fd, word);
    put(fake, FLYT_MANAGER_LINK_EVENT_EXPORT, shared, &fd);
    close(fd);
}

void fake_broker_hear(struct fake *fake, int fd)
{
    char text[120];

    if (fd < 0) {
        fake_answer_number(fake, fake->message.shared.outcome);
        return;
    }
    fake->imported = fake->message.shared;
    snprintf(text, sizeof text, "%d %llu %llu", (int)fake->imported.outcome, (unsigned long long)fake->imported.bytes,
             (unsigned long long)fake_read_word(fd));
    close(fd);
    fake_answer(fake, text);
}

bool fake_broker_obey(struct fake *fake, const char *word, uint64_t token, uint64_t number)
{
    static const struct {
        const char *word;
        uint32_t kind;
    } verbs[] = {{"export", FLYT_MANAGER_LINK_EXPORT},
                 {"unexport", FLYT_MANAGER_LINK_EXPORT_GONE},
                 {"import", FLYT_MANAGER_LINK_IMPORT},
                 {"unimport", FLYT_MANAGER_LINK_IMPORT_GONE},
                 {"imported", FLYT_MANAGER_LINK_IMPORT_HELD},
                 {"export_event", FLYT_MANAGER_LINK_EVENT_EXPORT},
                 {"import_event", FLYT_MANAGER_LINK_EVENT_IMPORT},
                 {"import_again", FLYT_MANAGER_LINK_IMPORT},
                 {"import_event_again", FLYT_MANAGER_LINK_EVENT_IMPORT}};
    struct flyt_manager_link_shared shared = {.number = fake->sequence, .extent_id = number};
    uint32_t kind = 0;

    for (unsigned i = 0; i < sizeof verbs / sizeof verbs[0] && !kind; i++)
        kind = strcmp(verbs[i].word, word) ? 0 : verbs[i].kind;
    if (!kind)
        return false;
    shared.is_restored = strstr(word, "_again") != NULL;
    memset(shared.token, 0x5a, sizeof shared.token);
    memcpy(shared.token + 9, &token, sizeof token);
    bool is_of_import = kind == FLYT_MANAGER_LINK_IMPORT_GONE || kind == FLYT_MANAGER_LINK_IMPORT_HELD;
    if (kind == FLYT_MANAGER_LINK_EVENT_EXPORT)
        export_event(fake, &shared, number);
    else
        put(fake, kind, is_of_import ? &fake->imported : &shared, NULL);
    if (is_of_import || kind == FLYT_MANAGER_LINK_EXPORT_GONE)
        fake_answer(fake, "0");
    return true;
}
