/* VMs in the registry, and what placement is asked for one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/model/cluster.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/placement.h"
#include "control/cluster/model/settings.h"
#include "control/cluster/model/share.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/text.h"
#include "control/cluster/model/vm.h"
#include "rpc/base/error.h"

struct flyt_vm *flyt_vm_get(struct flyt_cluster *cluster, const char *vm_ip)
{
    struct flyt_vm *vm = flyt_table_find(&cluster->vms, vm_ip);

    if (vm)
        return vm;
    vm = calloc(1, sizeof *vm);
    if (!vm)
        return NULL;
    vm->key = strdup(vm_ip);
    vm->cluster = cluster;
    flyt_desired_init(&vm->desired);
    LIST_INIT(&vm->desired_documents);
    STAILQ_INIT(&vm->attaching);
    TAILQ_INIT(&vm->resizes);
    if (!vm->key || flyt_table_add(&cluster->vms, vm)) {
        free((char *)vm->key);
        free(vm);
        return NULL;
    }
    return vm;
}

struct flyt_vm *flyt_vm_find(struct flyt_cluster *cluster, const char *name, struct flyt_error *err)
{
    struct flyt_vm *found = flyt_table_find(&cluster->vms, name);

    for (size_t i = 0; i < cluster->vms.count && !(found && !strcmp(found->key, name)); i++) {
        struct flyt_vm *vm = cluster->vms.items[i];
        if (!vm->desired.name || strcmp(vm->desired.name, name))
            continue;
        if (found) {
            flyt_error_set(err, -EINVAL, "%s is the name of several VMs, %s and %s among them", name, found->key,
                           vm->key);
            return NULL;
        }
        found = vm;
    }
    if (!found)
        flyt_error_set(err, -ENOENT, "there is no VM %s", name);
    return found;
}

struct flyt_desired_document *flyt_desired_store_of(struct flyt_cluster *cluster, const char *vm_ip)
{
    struct flyt_vm *vm = flyt_table_find(&cluster->vms, vm_ip);

    return vm && vm->desired_count == 1 ? LIST_FIRST(&vm->desired_documents) : NULL;
}

void flyt_vm_set_reason(struct flyt_vm *vm, const char *reason)
{
    flyt_text_set(&vm->reason, reason);
}

void flyt_vm_free(struct flyt_vm *vm)
{
    flyt_desired_free(&vm->desired);
    free((char *)vm->key);
    free(vm->reason);
    free(vm);
}

void flyt_vm_request(const struct flyt_vm *vm, struct flyt_place_request *ret_request)
{
    const struct flyt_desired *desired = &vm->desired;
    const struct flyt_cluster_settings *settings = vm->cluster->settings;
    const struct flyt_share share = flyt_vm_share(vm);

    *ret_request = (struct flyt_place_request){
        .device_count = desired->device_count,
        .sm_count = desired->sm_count,
        .memory_bytes = desired->memory_bytes,
        .session_count = desired->session_count ? desired->session_count : (unsigned)settings->sessions,
        .isolation = (enum flyt_isolation)(desired->isolation >= 0 ? desired->isolation : settings->isolation),
        .is_timed = share.is_timed,
        .minimum_share_pct = share.minimum_pct,
        .policy = (enum flyt_policy)(desired->policy >= 0 ? desired->policy : settings->policy),
        .host_ip = desired->host_ip,
        .include_types = desired->include_types,
        .exclude_types = desired->exclude_types,
        .include_gpus = desired->include_gpus,
        .exclude_gpus = desired->exclude_gpus,
    };
    for (unsigned i = 0; i < desired->libraries.count; i++)
        flyt_place_libraries_read(&ret_request->libraries, desired->libraries.names[i]);
}
