/* The names of the control plane's procedures, for logs and metrics of those who call them. */
#include "control/base/peer.h"

struct name {
    uint32_t program, procedure;
    const char *name;
};

static const struct name names[] = {
    {FLYT_CONTROL_PROGRAM, FLYT_HELLO, "hello"},
    {FLYT_CONTROL_PROGRAM, FLYT_ENROL, "enrol"},
    {FLYT_CONTROL_PROGRAM, FLYT_NODE_REGISTER, "node_register"},
    {FLYT_CONTROL_PROGRAM, FLYT_NODE_HEARTBEAT, "node_heartbeat"},
    {FLYT_CONTROL_PROGRAM, FLYT_NODE_EVENT, "node_event"},
    {FLYT_CONTROL_PROGRAM, FLYT_NODE_NEEDS, "node_needs"},
    {FLYT_CONTROL_PROGRAM, FLYT_NODE_MIGRATION, "node_migration"},
    {FLYT_CONTROL_PROGRAM, FLYT_NODE_DRIVER, "node_driver"},
    {FLYT_CONTROL_PROGRAM, FLYT_NODE_LIBRARIES, "node_libraries"},
    {FLYT_CONTROL_PROGRAM, FLYT_VM_ATTACH, "vm_attach"},
    {FLYT_CONTROL_PROGRAM, FLYT_VM_REPORT, "vm_report"},
    {FLYT_CONTROL_PROGRAM, FLYT_VM_USAGE, "vm_usage"},
    {FLYT_CONTROL_PROGRAM, FLYT_VM_MEMORY, "vm_memory"},
    {FLYT_CONTROL_PROGRAM, FLYT_VIEW, "view"},
    {FLYT_CONTROL_PROGRAM, FLYT_VM_SET, "vm_set"},
    {FLYT_CONTROL_PROGRAM, FLYT_VM_REMOVE, "vm_remove"},
    {FLYT_CONTROL_PROGRAM, FLYT_TENANT_SET, "tenant_set"},
    {FLYT_CONTROL_PROGRAM, FLYT_RESIZE, "resize"},
    {FLYT_CONTROL_PROGRAM, FLYT_SCHEDULE, "schedule"},
    {FLYT_CONTROL_PROGRAM, FLYT_GPU_SET, "gpu_set"},
    {FLYT_CONTROL_PROGRAM, FLYT_ALLOCATION, "allocation"},
    {FLYT_CONTROL_PROGRAM, FLYT_NODE_FENCE, "node_fence"},
    {FLYT_CONTROL_PROGRAM, FLYT_JOIN_TOKEN, "join_token"},
    {FLYT_CONTROL_PROGRAM, FLYT_SESSION_KILL, "session_kill"},
    {FLYT_CONTROL_PROGRAM, FLYT_BACKUP, "backup"},
    {FLYT_CONTROL_PROGRAM, FLYT_REVOKE, "revoke"},
    {FLYT_CONTROL_PROGRAM, FLYT_ADMIT, "admit"},
    {FLYT_CONTROL_PROGRAM, FLYT_DRAIN, "drain"},
    {FLYT_CONTROL_PROGRAM, FLYT_MIGRATE, "migrate"},
    {FLYT_CONTROL_PROGRAM, FLYT_MIGRATE_CANCEL, "migrate_cancel"},
    {FLYT_CONTROL_PROGRAM, FLYT_CHECKPOINT, "checkpoint"},
    {FLYT_CONTROL_PROGRAM, FLYT_RESTORE, "restore"},
    {FLYT_CONTROL_PROGRAM, FLYT_NODE_ADOPT, "node_adopt"},
    {FLYT_CONTROL_PROGRAM, FLYT_VM_DEVICE, "vm_device"},
    {FLYT_ORDER_PROGRAM, FLYT_ORDER_APPLY, "order_apply"},
    {FLYT_ORDER_PROGRAM, FLYT_ORDER_SESSION_KILL, "order_session_kill"},
    {FLYT_ORDER_PROGRAM, FLYT_ORDER_GPU_SET, "order_gpu_set"},
    {FLYT_ORDER_PROGRAM, FLYT_ORDER_DRAIN, "order_drain"},
    {FLYT_ORDER_PROGRAM, FLYT_ORDER_MIGRATE, "order_migrate"},
    {FLYT_ORDER_PROGRAM, FLYT_ORDER_MIGRATION, "order_migration"},
    {FLYT_ORDER_PROGRAM, FLYT_ORDER_CHECKPOINT, "order_checkpoint"},
    {FLYT_ORDER_PROGRAM, FLYT_ORDER_RESTORE, "order_restore"},
    {FLYT_ORDER_PROGRAM, FLYT_ORDER_CHANGED, "order_changed"},
    {FLYT_ORDER_PROGRAM, FLYT_ORDER_LEADER, "order_leader"},
    {FLYT_ORDER_PROGRAM, FLYT_ORDER_VM_DEVICE, "order_vm_device"},
    {FLYT_LOCAL_PROGRAM, FLYT_LOCAL_ATTACH, "local_attach"},
    {FLYT_LOCAL_PROGRAM, FLYT_LOCAL_STATUS, "local_status"},
    {FLYT_LOCAL_PROGRAM, FLYT_LOCAL_CHANGED, "local_changed"},
    {FLYT_LOCAL_PROGRAM, FLYT_LOCAL_DEVICES, "local_devices"},
    {FLYT_LOCAL_PROGRAM, FLYT_LOCAL_MEMORY, "local_memory"},
    {FLYT_LOCAL_PROGRAM, FLYT_LOCAL_SETTINGS, "local_settings"},
};

const char *flyt_control_procedure_name(uint32_t program, uint32_t procedure)
{
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].program == program && names[i].procedure == procedure)
            return names[i].name;
    }
    return procedure ? "other" : "null";
}
