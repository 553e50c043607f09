/* The documents of the load's VMs, as an operator would write them. */
#include <errno.h>
#include <string.h>

#include "control/store/store.h"
#include "tests/bench/load/load.h"

static cJSON *make(unsigned index, const char *ip)
{
    cJSON *document = cJSON_CreateObject();

    cJSON_AddStringToObject(document, "vm_ip", ip);
    cJSON_AddNumberToObject(document, "compute_units", load_vm_sms(index));
    cJSON_AddNumberToObject(document, "memory", (double)load_vm_memory_bytes(index) / 1073741824.0);
    if (!cJSON_AddNumberToObject(document, "sessions", LOAD_SESSIONS)) {
        cJSON_Delete(document);
        return NULL;
    }
    return document;
}

int load_documents_write(const char *uri, unsigned count, struct flyt_error *err)
{
    struct flyt_store *store;
    char ip[LOAD_NAME_BYTES];
    int status = flyt_store_open(uri, 10000, err, &store);

    for (unsigned i = 0; i < count && !status; i++) {
        load_vm_ip(i, ip);
        cJSON *document = make(i, ip);
        if (!document)
            status = flyt_error_set(err, -ENOMEM, "no memory");
        else if (flyt_store_put(store, "vm_required_resources", ip, 0, NULL, document, err) != FLYT_STORE_OK)
            status = -EIO;
        cJSON_Delete(document);
        if (i + 1 == count || status)
            flyt_store_close(store);
    }
    return status;
}
