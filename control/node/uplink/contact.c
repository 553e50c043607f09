#include "control/node/uplink/contact.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "control/node/model/writer.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

struct flyt_node_contact {
    struct flyt_node *node; /* NULL: who keeps it has gone, and only the thread has it */
    uint64_t ms, given_ms;  /* given_ms: to the thread, the last time */
    int fd;                 /* -1: nothing is kept */
    bool is_busy;           /* the thread has what is below */
    char text[128];
    int status;
};

uint64_t flyt_node_contact_clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

uint64_t flyt_node_contact_get_ms(const struct flyt_node_contact *contact)
{
    return contact->ms;
}

static struct flyt_node_contact *destroy(struct flyt_node_contact *contact)
{
    flyt_close(contact->fd);
    free(contact);
    return NULL;
}

/* The thread's: a disk that is written back holds it up. */
static void write_text(void *user)
{
    struct flyt_node_contact *contact = user;
    size_t bytes = strlen(contact->text);

    ssize_t written = pwrite(contact->fd, contact->text, bytes, 0);
    contact->status = written == (ssize_t)bytes ? 0 : written < 0 ? -errno : -EIO;
}

static void keep(struct flyt_node_contact *contact);

static void on_written(void *user, int is_cancelled)
{
    struct flyt_node_contact *contact = user;

    contact->is_busy = false;
    if (!contact->node) {
        destroy(contact);
        return;
    }
    if (is_cancelled)
        return;
    if (contact->status)
        flyt_warn("%s/contact cannot be written: %s", contact->node->settings->state_dir, strerror(-contact->status));
    if (contact->given_ms != contact->ms)
        keep(contact);
}

/* What changes while it is written is written behind it. */
static void keep(struct flyt_node_contact *contact)
{
    if (contact->fd < 0 || contact->is_busy || !contact->node->writer)
        return;
    snprintf(contact->text, sizeof contact->text, "%.63s %020" PRIu64 "\n", contact->node->state.boot_id, contact->ms);
    contact->given_ms = contact->ms;
    contact->is_busy = !flyt_node_writer_do(contact->node->writer, write_text, on_written, contact);
}

void flyt_node_contact_set(struct flyt_node_contact *contact, uint64_t contact_ms)
{
    contact->ms = contact_ms;
    keep(contact);
}

static void read_text(struct flyt_node_contact *contact)
{
    char path[512], text[128] = "", boot_id[64];
    uint64_t contact_ms;

    snprintf(path, sizeof path, "%s/contact", contact->node->settings->state_dir);
    contact->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (contact->fd < 0) {
        flyt_warn("%s cannot be opened: %m", path);
        return;
    }
    if (pread(contact->fd, text, sizeof text - 1, 0) > 0 && sscanf(text, "%63s %" SCNu64, boot_id, &contact_ms) == 2 &&
        !strcmp(boot_id, contact->node->state.boot_id) && contact_ms < contact->ms)
        contact->ms = contact_ms;
}

int flyt_node_contact_new(struct flyt_node *node, struct flyt_node_contact **ret_contact)
{
    struct flyt_node_contact *contact = calloc(1, sizeof *contact);

    if (!contact)
        return -ENOMEM;
    *contact = (struct flyt_node_contact){.node = node, .ms = flyt_node_contact_clock_ms()};
    read_text(contact);
    *ret_contact = contact;
    return 0;
}

struct flyt_node_contact *flyt_node_contact_free(struct flyt_node_contact *contact)
{
    if (!contact)
        return NULL;
    contact->node = NULL;
    return contact->is_busy ? NULL : destroy(contact);
}
