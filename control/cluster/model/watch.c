/* What has changed between two readings of a collection (desired.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/model/desired.h"

struct seen {
    char *id;
    uint64_t hash;
    uint64_t reading; /* the last one that had it */
};

struct flyt_watch {
    struct seen *table; /* open addressing, a power of two, at most half full; id NULL: empty */
    size_t room, count;
    uint64_t reading;
};

/* FNV-1a, 64 bits. Two bodies of one document with the same hash are one in 2^64. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *byte = data;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return hash_bytes(hash, text, strlen(text) + 1);
}

/* A whole tree, nested no deeper than cJSON reads (CJSON_NESTING_LIMIT). The store's own revision is left out: a
 * rewrite with the same content is no change. */
static uint64_t hash_item(uint64_t hash, const cJSON *item, bool is_top)
{
    hash = hash_bytes(hash, &item->type, sizeof item->type);
    if (cJSON_IsNumber(item))
        hash = hash_bytes(hash, &item->valuedouble, sizeof item->valuedouble);
    if (item->valuestring)
        hash = hash_text(hash, item->valuestring);
    for (const cJSON *child = item->child; child; child = child->next) {
        if (is_top && child->string && !strcmp(child->string, "revision"))
            continue;
        if (child->string)
            hash = hash_text(hash, child->string);
        hash = hash_item(hash, child, false);
    }
    return hash;
}

enum { FLYT_WATCH_ROOM_MIN = 64 };
#define FNV_BASIS 0xcbf29ce484222325u

static struct seen *find(struct seen *table, size_t room, const char *id)
{
    size_t place = hash_text(FNV_BASIS, id) & (room - 1);

    while (table[place].id && strcmp(table[place].id, id))
        place = (place + 1) & (room - 1);
    return &table[place];
}

struct flyt_watch *flyt_watch_new(void)
{
    struct flyt_watch *watch = calloc(1, sizeof *watch);

    if (!watch)
        return NULL;
    watch->room = FLYT_WATCH_ROOM_MIN;
    watch->table = calloc(watch->room, sizeof *watch->table);
    if (!watch->table) {
        free(watch);
        return NULL;
    }
    return watch;
}

struct flyt_watch *flyt_watch_free(struct flyt_watch *watch)
{
    if (!watch)
        return NULL;
    for (size_t i = 0; i < watch->room; i++)
        free(watch->table[i].id);
    free(watch->table);
    free(watch);
    return NULL;
}

/* Makes room for more ids and leaves out those that the last reading did not have. */
static int rebuild(struct flyt_watch *watch, size_t wanted, bool drops_gone)
{
    size_t room = FLYT_WATCH_ROOM_MIN;

    while (room < 2 * (wanted + 1))
        room *= 2;
    struct seen *table = calloc(room, sizeof *table);
    if (!table)
        return -ENOMEM;
    size_t count = 0;
    for (size_t i = 0; i < watch->room; i++) {
        struct seen *seen = &watch->table[i];
        if (!seen->id)
            continue;
        if (drops_gone && seen->reading != watch->reading) {
            free(seen->id);
            continue;
        }
        *find(table, room, seen->id) = *seen;
        count++;
    }
    free(watch->table);
    watch->table = table;
    watch->room = room;
    watch->count = count;
    return 0;
}

/* Takes the document over, on failure too. */
static int note(struct flyt_changes *changes, size_t *room, const char *id, cJSON *document)
{
    if (changes->count == *room) {
        size_t more = *room ? 2 * *room : 16;
        struct flyt_change *items = realloc(changes->items, more * sizeof *items);
        if (!items) {
            cJSON_Delete(document);
            return -ENOMEM;
        }
        changes->items = items;
        *room = more;
    }
    char *copy = strdup(id);
    if (!copy) {
        cJSON_Delete(document);
        return -ENOMEM;
    }
    changes->items[changes->count++] = (struct flyt_change){copy, document};
    return 0;
}

/* One document: 1 where it is new or differs (it is entered then), 0, or -ENOMEM. */
static int look(struct flyt_watch *watch, const char *id, const cJSON *document)
{
    struct seen *seen = find(watch->table, watch->room, id);
    uint64_t hash = hash_item(FNV_BASIS, document, true);

    if (seen->id && seen->hash == hash) {
        seen->reading = watch->reading;
        return 0;
    }
    if (!seen->id) {
        if (2 * (watch->count + 1) > watch->room) {
            if (rebuild(watch, 2 * watch->count, false))
                return -ENOMEM;
            seen = find(watch->table, watch->room, id);
        }
        seen->id = strdup(id);
        if (!seen->id)
            return -ENOMEM;
        watch->count++;
    }
    seen->hash = hash;
    seen->reading = watch->reading;
    return 1;
}

static int compare(struct flyt_watch *watch, cJSON *documents, struct flyt_changes *changes)
{
    size_t room = 0, present = 0;
    int status = 0;

    watch->reading++;
    for (cJSON *document = documents->child, *next; document && !status; document = next) {
        char *id = flyt_desired_id(document);
        next = document->next;
        if (!id)
            continue;
        present++;
        status = look(watch, id, document);
        if (status > 0)
            status = note(changes, &room, id, cJSON_DetachItemViaPointer(documents, document));
        free(id);
    }
    for (size_t i = 0; i < watch->room && !status && present != watch->count; i++)
        if (watch->table[i].id && watch->table[i].reading != watch->reading)
            status = note(changes, &room, watch->table[i].id, NULL);
    if (!status && present != watch->count)
        status = rebuild(watch, present, true);
    return status;
}

int flyt_watch_compare(struct flyt_watch *watch, cJSON *documents, struct flyt_changes *ret_changes)
{
    struct flyt_changes changes = {0};
    int status = compare(watch, documents, &changes);

    if (status) {
        /* What was found is lost: forget the hashes, so that the next reading finds everything again. */
        for (size_t i = 0; i < watch->room; i++)
            watch->table[i].hash = 0;
        flyt_changes_free(&changes);
        return status;
    }
    *ret_changes = changes;
    return 0;
}

void flyt_changes_free(struct flyt_changes *changes)
{
    for (size_t i = 0; i < changes->count; i++) {
        free(changes->items[i].id);
        cJSON_Delete(changes->items[i].document);
    }
    free(changes->items);
    *changes = (struct flyt_changes){0};
}
