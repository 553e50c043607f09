/* vm add, vm set, vm remove. */
#include <stdlib.h>
#include <string.h>

#include "control/flytctl/actions.h"

#include "control/base/name.h"

/* '' alone makes the list empty. */
static flyt_set_names names_of(const struct flyt_arguments *arguments, const char *name, flyt_name *room)
{
    const struct flyt_value *value = flyt_option_get(arguments, name);
    flyt_set_names names = {.is_set = value->is_set, .names = {.names_val = room}};

    for (unsigned i = 0; i < value->text_count; i++)
        if (*value->texts[i])
            room[names.names.names_len++] = (char *)value->texts[i];
    return names;
}

static bool is_any_set(const struct flyt_arguments *arguments)
{
    const struct flyt_option *own = flyt_command_options(arguments->command);

    for (; own->name; own++)
        if (flyt_option_is(arguments, own->name))
            return true;
    return false;
}

enum flyt_exit flyt_run_vm_set(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    _Static_assert((int)FLYT_OPTION_TEXTS_MAX <= FLYT_NAMES_MAX, "as many as may be typed");
    flyt_name room[5][FLYT_OPTION_TEXTS_MAX];
    bool is_add = !strcmp(arguments->command->name, "vm add");
    bool is_reserved = flyt_option_is(arguments, "reserved"), is_not = flyt_option_is(arguments, "no-reserved");
    flyt_vm_set_args args = {
        .must_exist = !is_add,
        .name = flyt_set_text_of(arguments, "name"),
        .tenant = flyt_set_text_of(arguments, "tenant"),
        .host_ip = flyt_set_text_of(arguments, "host-ip"),
        .compute_units = flyt_set_number_of(arguments, "sm"),
        .memory_bytes = flyt_set_number_of(arguments, "memory"),
        .device_count = flyt_set_number_of(arguments, "devices"),
        .sessions_max = flyt_set_number_of(arguments, "sessions"),
        .priority = flyt_set_number_of(arguments, "priority"),
        .minimum_share_pct = flyt_set_number_of(arguments, "minimum-share"),
        .maximum_share_pct = flyt_set_number_of(arguments, "maximum-share"),
        .window_ms = flyt_set_number_of(arguments, "window"),
        .sharing = flyt_set_text_of(arguments, "sharing"),
        .minimum_sms = flyt_set_number_of(arguments, "minimum-sms"),
        .shown_sms = flyt_set_text_of(arguments, "shown-sms"),
        .policy = flyt_set_text_of(arguments, "policy"),
        .isolation = flyt_set_text_of(arguments, "isolation"),
        .include_types = names_of(arguments, "include-type", room[0]),
        .exclude_types = names_of(arguments, "exclude-type", room[1]),
        .include_gpus = names_of(arguments, "include-gpu", room[2]),
        .exclude_gpus = names_of(arguments, "exclude-gpu", room[3]),
        .libraries = names_of(arguments, "library", room[4]),
        .is_reserved = {.is_set = is_reserved || is_not, .value = is_reserved},
    };
    enum flyt_exit status = FLYT_EXIT_OK;

    if (is_reserved && is_not)
        return flyt_complain(FLYT_EXIT_USAGE, "--reserved and --no-reserved exclude each other");
    if (is_add && !flyt_is_address(arguments->words[0]))
        return flyt_complain(FLYT_EXIT_USAGE,
                             "'%s' is no IP address: a VM is added by its vm_ip (--name gives it a name)",
                             arguments->words[0]);
    if (is_add && (!args.compute_units.is_set || !args.memory_bytes.is_set))
        return flyt_complain(FLYT_EXIT_USAGE, "vm add needs --sm and --memory");
    if (!is_any_set(arguments))
        return flyt_complain(FLYT_EXIT_USAGE, "vm set needs something to set (vm set --help)");
    if (is_add)
        args.vm = flyt_must(strdup(arguments->words[0]));
    else
        status = flyt_select_vm(ctl, arguments->words[0], &args.vm);
    if (status == FLYT_EXIT_OK)
        status = flyt_act(ctl, FLYT_VM_SET, (xdrproc_t)xdr_flyt_vm_set_args, &args, "VM %s is %s", args.vm,
                          is_add ? "added" : "set");
    free(args.vm);
    return status;
}

enum flyt_exit flyt_run_vm_remove(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    flyt_vm_remove_args args = {.kill = flyt_option_is(arguments, "kill")};
    enum flyt_exit status = flyt_select_vm(ctl, arguments->words[0], &args.vm);

    if (status == FLYT_EXIT_OK)
        status = flyt_act(ctl, FLYT_VM_REMOVE, (xdrproc_t)xdr_flyt_vm_remove_args, &args, "VM %s is removed%s", args.vm,
                          args.kill ? " and its programs are ended" : "");
    free(args.vm);
    return status;
}
