#include "control/store/store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control/store/json.h"
#include "control/store/store_ops.h"

int flyt_store_open_schema(const char *uri, unsigned timeout_ms, const struct flyt_schema *schema,
                           struct flyt_error *err, struct flyt_store **ret_store)
{
    static const char sqlite[] = "sqlite://";
    struct flyt_error unread;

    if (!err)
        err = &unread;
    if (strncmp(uri, sqlite, sizeof sqlite - 1) == 0) {
        if (uri[sizeof sqlite - 1] != '/' || !uri[sizeof sqlite])
            return flyt_error_set(err, -EINVAL, "store \"%s\": say sqlite:///PATH, an absolute path", uri);
        return flyt_sqlite_open(uri + sizeof sqlite - 1, timeout_ms, schema, err, ret_store);
    }
    if (strncmp(uri, "mongodb://", 10) == 0 || strncmp(uri, "mongodb+srv://", 14) == 0)
        return flyt_mongodb_load(uri, timeout_ms, schema, err, ret_store);
    return flyt_error_set(err, -EINVAL, "the store's URI begins neither with sqlite:/// nor with mongodb://");
}

int flyt_store_open(const char *uri, unsigned timeout_ms, struct flyt_error *err, struct flyt_store **ret_store)
{
    return flyt_store_open_schema(uri, timeout_ms, &flyt_schema, err, ret_store);
}

struct flyt_store *flyt_store_close(struct flyt_store *store)
{
    if (store)
        store->ops->close(store);
    return NULL;
}

bool flyt_store_is_shared(const struct flyt_store *store)
{
    return store->is_shared;
}

const char *flyt_store_name(const struct flyt_store *store)
{
    return store->name;
}

static bool is_word(const char *text)
{
    return *text && strlen(text) <= FLYT_STORE_COLLECTION_BYTES_MAX &&
           !text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")];
}

/* Collections are the program's own words, ids come from outside too. OK or BROKEN. */
static enum flyt_store_result check_names(const char *collection, const char *id, struct flyt_error *err)
{
    size_t id_bytes = id ? strlen(id) : 1;

    if (!is_word(collection))
        return flyt_store_fail(err, FLYT_STORE_BROKEN, "\"%.80s\" is no name for a collection", collection);
    if (id_bytes == 0 || id_bytes > FLYT_STORE_ID_BYTES_MAX)
        return flyt_store_fail(err, FLYT_STORE_BROKEN, "%s: an _id of %zu bytes: it has 1 to %d", collection, id_bytes,
                               FLYT_STORE_ID_BYTES_MAX);
    if (id && !flyt_utf8_is_valid(id, id_bytes))
        return flyt_store_fail(err, FLYT_STORE_BROKEN, "%s: an _id that is not UTF-8", collection);
    return FLYT_STORE_OK;
}

enum flyt_store_result flyt_store_get(struct flyt_store *store, const char *collection, const char *id,
                                      struct flyt_error *err, cJSON **ret_document)
{
    struct flyt_error unread;
    enum flyt_store_result result = check_names(collection, id, err ? err : &unread);

    return result ? result : store->ops->get(store, collection, id, err ? err : &unread, ret_document);
}

enum flyt_store_result flyt_store_list(struct flyt_store *store, const char *collection, const char *after,
                                       unsigned limit, struct flyt_error *err, cJSON **ret_documents)
{
    struct flyt_error unread;
    enum flyt_store_result result = check_names(collection, after, err ? err : &unread);

    return result ? result : store->ops->list(store, collection, after, limit, err ? err : &unread, ret_documents);
}

enum flyt_store_result flyt_store_put(struct flyt_store *store, const char *collection, const char *id,
                                      uint64_t revision, const cJSON *seen, cJSON *document, struct flyt_error *err)
{
    struct flyt_error unread;
    enum flyt_store_result result;
    cJSON *members = NULL;

    err = err ? err : &unread;
    result = check_names(collection, id, err);
    if (result)
        return result;
    if (!cJSON_IsObject(document) || revision >= FLYT_JSON_INTEGER_MAX)
        return flyt_store_fail(err, FLYT_STORE_BROKEN, "%s/%s: no object, or its revision is beyond 2^53", collection,
                               id);
    /* MongoDB takes such names for operators; and what a list says in the place of a document must not replace it. */
    for (const cJSON *member = document->child; member; member = member->next)
        if (member->string[0] == '$' || strcmp(member->string, "_broken") == 0)
            return flyt_store_fail(err, FLYT_STORE_BROKEN, "%s/%s: a document has no member \"%.80s\"", collection, id,
                                   member->string);
    /* Both members are made before the write, so that nothing can fail after it. */
    members = cJSON_CreateObject();
    if (!members || !flyt_json_set_store_members(members, id, revision + 1)) {
        cJSON_Delete(members);
        return flyt_store_fail(err, FLYT_STORE_UNAVAILABLE, "%s/%s: no memory", collection, id);
    }
    result = store->ops->put(store, collection, id, revision, seen, document, err);
    if (result == FLYT_STORE_OK)
        flyt_json_move_store_members(document, members);
    cJSON_Delete(members);
    return result;
}

enum flyt_store_result flyt_store_delete(struct flyt_store *store, const char *collection, const char *id,
                                         uint64_t revision, struct flyt_error *err)
{
    struct flyt_error unread;
    enum flyt_store_result result = check_names(collection, id, err ? err : &unread);

    return result ? result : store->ops->delete (store, collection, id, revision, err ? err : &unread);
}

enum flyt_store_result flyt_store_raise(struct flyt_store *store, const char *collection, const char *name,
                                        uint64_t value, struct flyt_error *err, uint64_t *ret_count)
{
    struct flyt_error unread;
    uint64_t count = 0;
    enum flyt_store_result result;

    err = err ? err : &unread;
    result = check_names(collection, NULL, err);
    if (result)
        return result;
    if (!is_word(name) || *name == '_' || flyt_json_is_store_member(name) || !value || value >= FLYT_JSON_INTEGER_MAX)
        return flyt_store_fail(err, FLYT_STORE_BROKEN, "%s: \"%.80s\" cannot be raised to %llu", collection, name,
                               (unsigned long long)value);
    result = store->ops->raise(store, collection, name, value, err, &count);
    if (result == FLYT_STORE_OK && ret_count)
        *ret_count = count;
    return result;
}

int flyt_store_backup(struct flyt_store *store, const char *path, struct flyt_error *err)
{
    struct flyt_error unread;

    return store->ops->backup(store, path, err ? err : &unread);
}
