#include "control/flytctl/commands.h"

#include <string.h>

static const char *const outputs[] = {"table", "wide", "json", NULL};
static const char *const policies[] = {"binpack", "spread", NULL};
static const char *const isolations[] = {"shared", "strict", NULL};
static const char *const sharings[] = {"exclusive", "time", NULL};
static const char *const group_sizes[] = {"2", "8", NULL};
static const char *const packings[] = {"none", "lz4", "zstd", NULL}; /* as in cpu/image/writer.h */
static const char *const help_forms[] = {"man", "bash", NULL};

#define SM_MAX      100000
#define STREAMS_MAX 8 /* FLYT_MIGRATION_STREAMS_MAX (rpc/base/ticket.h) */
#define NUMBER_MAX  1000000000

const struct flyt_option flyt_common_options[] = {
    {"output", FLYT_OPTION_CHOICE, 'o', "FORMAT", .choices = outputs, .help = "table, wide (more columns) or json"},
    {"manager", FLYT_OPTION_TEXTS, 'm', "URL",
     .help = "cluster manager, unix:///PATH or tcp://HOST:PORT; may be repeated, they are tried in turn"},
    {"authority", FLYT_OPTION_TEXT, 0, "FILE", .help = "the CA's certificates (PEM), for tcp"},
    {"certificate", FLYT_OPTION_TEXT, 0, "FILE", .help = "own certificate (PEM), of an operator or a viewer"},
    {"key", FLYT_OPTION_TEXT, 0, "FILE", .help = "its key (PEM, mode 0600)"},
    {"deadline", FLYT_OPTION_SECONDS, 0, "S", .minimum = 100, .maximum = 3600000,
     .help = "how long an answer may take (default 10)"},
    {"help", FLYT_OPTION_FLAG, 'h', .help = "help, of the command where one is named"},
    {"version", FLYT_OPTION_FLAG, 0, .help = "flytctl's version"},
    {0},
};

#define WATCH                                                                                                          \
    {                                                                                                                  \
        "watch", FLYT_OPTION_SECONDS, 'w', "S",                                                                        \
            .fallback = "2", .minimum = 100, .maximum = 86400000,                                                      \
            .help = "show it again every S seconds (--watch alone: 2) until it is ended"                               \
    }

static const struct flyt_option view_options[] = {WATCH, {0}};

static const struct flyt_option event_options[] = {
    {"follow", FLYT_OPTION_FLAG, 'f', .help = "go on with new events as they happen"},
    {"last", FLYT_OPTION_NUMBER, 'n', "N", .maximum = NUMBER_MAX, .help = "begin with the last N events"},
    {0},
};

static const struct flyt_option top_options[] = {
    {"count", FLYT_OPTION_NUMBER, 'n', "N", .minimum = 1, .maximum = NUMBER_MAX,
     .help = "end after showing it N times"},
    {"delay", FLYT_OPTION_SECONDS, 'd', "S", .minimum = 100, .maximum = 86400000,
     .help = "seconds between (default 2)"},
    {0},
};

/* How a VM shares SMs with others. */
#define SHARE_OPTIONS                                                                                                  \
    {"minimum-share",                                                                                                  \
     FLYT_OPTION_NUMBER,                                                                                               \
     0,                                                                                                                \
     "PCT",                                                                                                            \
     .maximum = 100,                                                                                                   \
     .help = "of the time of SMs that VMs share: so much at least while it has work"},                                 \
        {"maximum-share",                                                                                              \
         FLYT_OPTION_NUMBER,                                                                                           \
         0,                                                                                                            \
         "PCT",                                                                                                        \
         .maximum = 100,                                                                                               \
         .help = "so much at most, even where nobody else has work; 0 or 100: all that others leave"},                 \
    {                                                                                                                  \
        "window", FLYT_OPTION_SECONDS, 0, "S", .minimum = 10, .maximum = 10000,                                        \
                                               .help = "in which it gets its share, 0.01 to 10 seconds"                \
    }

#define PRIORITY_OPTION                                                                                                \
    {                                                                                                                  \
        "priority", FLYT_OPTION_INTEGER, 0, "N",                                                                       \
            .maximum = 1000, .help = "of its work where SMs are shared, -1000 to 1000; the greater is sooner"          \
    }

static const char *const shown_sms[] = {"present", "minimum", NULL};

#define VM_OPTIONS                                                                                                       \
    {"sm", FLYT_OPTION_NUMBER, 0, "N", .minimum = 1, .maximum = SM_MAX, .help = "SMs, rounded up to whole groups"},      \
        {"memory", FLYT_OPTION_SIZE, 0, "SIZE", .help = "device memory; a bare number is GiB"},                          \
        {"name", FLYT_OPTION_TEXT, 0, "NAME", .help = "a name, to be used in place of the address"},                     \
        {"tenant", FLYT_OPTION_TEXT, 0, "TENANT", .help = "whose quota it counts for"},                                  \
        {"host-ip", FLYT_OPTION_TEXT, 0, "ADDRESS", .help = "the hypervisor's, for placement near it"},                  \
        {"devices",                                                                                                      \
         FLYT_OPTION_NUMBER,                                                                                             \
         0,                                                                                                              \
         "N",                                                                                                            \
         .minimum = 1,                                                                                                   \
         .maximum = FLYT_SLOTS_MAX,                                                                                      \
         .help = "how many GPUs the VM sees"},                                                                           \
        {"sessions", FLYT_OPTION_NUMBER, 0, "N", .minimum = 1, .maximum = 4096, .help = "programs at once on each GPU"}, \
        PRIORITY_OPTION, SHARE_OPTIONS,                                                                                  \
        {"minimum-sms",                                                                                                  \
         FLYT_OPTION_NUMBER,                                                                                             \
         0,                                                                                                              \
         "N",                                                                                                            \
         .maximum = SM_MAX,                                                                                              \
         .help = "SMs that it keeps: no resize goes below, not with --force either; 0: none"},                           \
        {"shown-sms",                                                                                                    \
         FLYT_OPTION_CHOICE,                                                                                             \
         0,                                                                                                              \
         "WHICH",                                                                                                        \
         .choices = shown_sms,                                                                                           \
         .help =                                                                                                         \
             "what programs that begin from now on are told that their GPU has: present (the default), the SMs that "    \
             "it has when they ask; minimum, those of --minimum-sms, whatever a resize changes"},                        \
        {"sharing",                                                                                                      \
         FLYT_OPTION_CHOICE,                                                                                             \
         0,                                                                                                              \
         "WAY",                                                                                                          \
         .choices = sharings,                                                                                            \
         .help = "exclusive: its SMs are its own; time: it shares them with others that do, in turns. With its next "    \
                 "allocation"},                                                                                          \
        {"policy", FLYT_OPTION_CHOICE, 0, "POLICY", .choices = policies, .help = "binpack or spread"},                   \
        {"isolation", FLYT_OPTION_CHOICE, 0, "CLASS", .choices = isolations, .help = "shared or strict"},                \
        {"include-type", FLYT_OPTION_TEXTS, 0, "TYPE",                                                                   \
         .help = "only GPUs of this type; may be repeated; '' takes the list away"},                                     \
        {"exclude-type", FLYT_OPTION_TEXTS, 0, "TYPE", .help = "no GPU of this type; likewise"},                         \
        {"include-gpu", FLYT_OPTION_TEXTS, 0, "GPU", .help = "only this GPU; likewise"},                                 \
        {"exclude-gpu", FLYT_OPTION_TEXTS, 0, "GPU", .help = "not this GPU; likewise"},                                  \
        {"library", FLYT_OPTION_TEXTS, 0, "LIBRARY",                                                                     \
         .help = "only nodes that have it: cudnn, or 'cudnn 9.10' and newer minor versions; likewise"},                  \
        {"reserved", FLYT_OPTION_FLAG, 0, .help = "the allocation stays without programs"},                              \
        {"no-reserved", FLYT_OPTION_FLAG, 0, .help = "it does not"},                                                     \
    {                                                                                                                    \
        0                                                                                                                \
    }

static const struct flyt_option vm_options[] = {VM_OPTIONS};

static const struct flyt_option remove_options[] = {
    {"kill", FLYT_OPTION_FLAG, 0, .help = "end its running programs too"},
    {0},
};

static const struct flyt_option device_options[] = {
    {"node", FLYT_OPTION_TEXT, 0, "NODE", .help = "the node on whose machine the VM runs"},
    {"remove", FLYT_OPTION_FLAG, 0, .help = "take the memory away; a VM that runs keeps it until it ends"},
    {0},
};

static const struct flyt_option tenant_options[] = {
    {"sm", FLYT_OPTION_NUMBER, 0, "N", .maximum = NUMBER_MAX, .help = "SMs of all its VMs; 0: no limit"},
    {"memory", FLYT_OPTION_TEXT, 0, "SIZE", .help = "device memory of all its VMs; 0: no limit"},
    {"sessions", FLYT_OPTION_NUMBER, 0, "N", .maximum = NUMBER_MAX, .help = "programs at once; 0: no limit"},
    {"vms", FLYT_OPTION_NUMBER, 0, "N", .maximum = NUMBER_MAX, .help = "VMs with an allocation; 0: no limit"},
    {"remove", FLYT_OPTION_FLAG, 0, .help = "take the tenant's quotas away"},
    {0},
};

/* How a migration is made. */
#define MIGRATION_OPTIONS                                                                                              \
    {"rounds",                                                                                                         \
     FLYT_OPTION_NUMBER,                                                                                               \
     0,                                                                                                                \
     "N",                                                                                                              \
     .minimum = 1,                                                                                                     \
     .maximum = 1000,                                                                                                  \
     .help = "how often what has changed is copied while the programs run, before they are stopped (default 10)"},     \
        {"stop-timeout",                                                                                               \
         FLYT_OPTION_NUMBER,                                                                                           \
         0,                                                                                                            \
         "MS",                                                                                                         \
         .minimum = 1,                                                                                                 \
         .maximum = 3600000,                                                                                           \
         .help = "milliseconds within which a program's work must end when it is stopped, else it goes on where it "   \
                 "is (default 2000)"},                                                                                 \
        {"rest", FLYT_OPTION_SIZE, 0, "SIZE",                                                                          \
         .help = "programs are stopped when no more than this has changed in a round (default 64M)"},                  \
        {"streams",                                                                                                    \
         FLYT_OPTION_NUMBER,                                                                                           \
         0,                                                                                                            \
         "N",                                                                                                          \
         .minimum = 1,                                                                                                 \
         .maximum = STREAMS_MAX,                                                                                       \
         .help = "to another node: connections over which a program's memory is copied at the same time (default 4)"}, \
    {                                                                                                                  \
        "pack", FLYT_OPTION_CHOICE, 0, "HOW",                                                                          \
            .choices = packings, .help = "to another node: of memory on its way: none (the default), lz4 or zstd"      \
    }

static const struct flyt_option migrate_options[] = {
    {"to", FLYT_OPTION_TEXT, 0, "GPU|NODE",
     .help = "where to: NODE:INDEX, a UUID or the beginning of one, or a node, of which placement chooses; without it "
             "any GPU of its node, and where that has none, of another one"},
    MIGRATION_OPTIONS,
    {"timeout", FLYT_OPTION_SECONDS, 0, "S", .minimum = 1000, .maximum = 86400000,
     .help = "it fails where all of it takes longer (default 3600)"},
    {"force", FLYT_OPTION_FLAG, 0, .help = "also to the GPU where the VM is: its programs get new server processes"},
    {"detach", FLYT_OPTION_FLAG, 0, .help = "end when it has begun"},
    {"cancel", FLYT_OPTION_FLAG, 0, .help = "end the VM's migration: its programs stay where they are"},
    {0},
};

static const struct flyt_option checkpoint_options[] = {
    {"to", FLYT_OPTION_TEXT, 0, "DIR",
     .help = "the folder for the images, by its whole path: on the node, there already, where the unit of the node "
             "manager may write (ReadWritePaths=)"},
    {"leave-running", FLYT_OPTION_FLAG, 0,
     .help = "the programs go on as soon as they are written, and do not wait until that is on the disk; without it "
             "they wait for a restore, and have nothing on the GPU meanwhile"},
    {"full", FLYT_OPTION_FLAG, 0,
     .help = "writes all memory; without it what has not changed since the session's last image in the folder is not "
             "written again, and the new image builds on that one, which must stay there"},
    {"pack", FLYT_OPTION_CHOICE, 0, "HOW", .choices = packings, .help = "of memory: none, lz4 (the default) or zstd"},
    {"stop-timeout", FLYT_OPTION_NUMBER, 0, "MS", .minimum = 1, .maximum = 3600000,
     .help = "milliseconds within which a program that is stopped must have ended its work and be written, else all go "
             "on and there are no images (default 30000)"},
    {"timeout", FLYT_OPTION_SECONDS, 0, "S", .minimum = 1000, .maximum = 86400000,
     .help = "it fails where all of it takes longer (default 3600)"},
    {"detach", FLYT_OPTION_FLAG, 0, .help = "end when it has begun"},
    {0},
};

static const struct flyt_option restore_options[] = {
    {"node", FLYT_OPTION_TEXT, 0, "NODE", .help = "where the programs wait; needed where they do on several nodes"},
    {"timeout", FLYT_OPTION_SECONDS, 0, "S", .minimum = 1000, .maximum = 86400000,
     .help = "a program stays in its image where loading that takes longer (default 3600)"},
    {"detach", FLYT_OPTION_FLAG, 0, .help = "end when it has begun"},
    {0},
};

static const struct flyt_option drain_options[] = {
    {"migrate", FLYT_OPTION_FLAG, 0,
     .help = "moves what is there to other GPUs of the node or to other nodes, one VM after the other"},
    MIGRATION_OPTIONS,
    {"timeout", FLYT_OPTION_SECONDS, 0, "S", .minimum = 1000, .maximum = 86400000,
     .help = "a VM stays where moving it takes longer (default 3600)"},
    {0},
};

static const char *const switch_states[] = {"switched", "vacated", NULL};

static const struct flyt_option resize_options[] = {
    {"sm", FLYT_OPTION_NUMBER, 0, "N", .minimum = 1, .maximum = SM_MAX, .help = "SMs, rounded up to whole groups"},
    {"memory", FLYT_OPTION_SIZE, 0, "SIZE", .help = "device memory; a bare number is GiB"},
    SHARE_OPTIONS,
    PRIORITY_OPTION,
    {"when-free", FLYT_OPTION_FLAG, 0, .help = "less memory than is in use: takes hold as programs release it"},
    {"force", FLYT_OPTION_FLAG, 0,
     .help = "over quota, below what cooperative launches of running programs have needed, or against what else would "
             "refuse it"},
    {"timeout", FLYT_OPTION_SECONDS, 0, "S", .maximum = 600000,
     .help = "how long to wait until running programs have it (default 30)"},
    {"wait", FLYT_OPTION_CHOICE, 0, "STATE", .choices = switch_states,
     .help = "switched (the default): until new work of all programs has the new SMs; vacated: until nothing runs on "
             "those that were taken away, for --deadline (default 60)"},
    {"kill", FLYT_OPTION_FLAG, 0,
     .help = "with --wait vacated: ends programs that still run there when --deadline is over"},
    {"migrate", FLYT_OPTION_FLAG, 0,
     .help = "where its GPU has no room for --sm and --memory: moves the VM to one that has"},
    {0},
};

static const struct flyt_option suspend_options[] = {
    {"timeout", FLYT_OPTION_SECONDS, 0, "S", .maximum = 600000,
     .help = "how long to wait until all running programs have said so (default 30)"},
    {0},
};

static const struct flyt_option gpu_options[] = {
    {"group-size", FLYT_OPTION_CHOICE, 0, "N", .choices = group_sizes,
     .help = "SMs of a group: 8, or 2 (then no thread-block clusters of more than 2 blocks)"},
    {0},
};

static const struct flyt_option fence_options[] = {
    {"confirmed-dead", FLYT_OPTION_FLAG, 0, .help = "the machine is off, or will never come back with this name"},
    {0},
};

static const struct flyt_option token_options[] = {
    {"valid", FLYT_OPTION_SECONDS, 0, "S", .minimum = 1000, .maximum = 31536000000ull,
     .help = "how long it can be used (default 3600)"},
    {0},
};

static const struct flyt_option join_options[] = {
    {"folder", FLYT_OPTION_TEXT, 0, "FOLDER", .help = "where the files go (default $XDG_CONFIG_HOME/flyt)"},
    {0},
};

static const struct flyt_option doctor_options[] = {
    {"config", FLYT_OPTION_TEXT, 0, "FILE", .help = "a node's node.conf, or a VM's client.conf"},
    {"node", FLYT_OPTION_FLAG, 0, .help = "look at this machine as a node"},
    {"vm", FLYT_OPTION_FLAG, 0, .help = "look at it as a VM"},
    {"cluster", FLYT_OPTION_FLAG, 0, .help = "ask the cluster manager what differs between its nodes"},
    {0},
};

static const struct flyt_option help_options[] = {
    {"form", FLYT_OPTION_CHOICE, 0, "FORM", .choices = help_forms,
     .help = "all commands for the manual page (man), or the completion for bash (bash)"},
    {0},
};

#define VIEW(view, of, what, text)                                                                                     \
    {                                                                                                                  \
        view, of, 0, 1, view_options, flyt_run_view, true, what, text                                                  \
    }

const struct flyt_command flyt_commands[] = {
    {"status", "", 0, 0, view_options, flyt_run_view, true, "shows the cluster in a few lines", NULL},
    VIEW("nodes", "[NODE]", "lists GPU nodes", NULL),
    VIEW("gpus", "[GPU|NODE]", "lists GPUs with what is allocated of them",
         "A GPU is NODE:INDEX, its UUID, or the beginning of that as long as it is unique."),
    VIEW("vms", "[VM]", "lists VMs: what they are to have, and whether they have it",
         "A VM is its vm_ip, or its name where that is unique."),
    VIEW("allocations", "[ID|VM_IP|NODE]", "lists allocations, one line for each of their GPUs",
         "Ids are 16 hexadecimal digits, or the beginning of them as long as it is unique."),
    VIEW("sessions", "[ID|VM|NODE]", "lists running programs", NULL),
    VIEW("migrations", "[ID|VM|NODE|GPU]", "lists VMs whose programs move to another GPU, and the last that did",
         "Those that are over are the last 100."),
    VIEW("checkpoints", "[ID|VM|NODE]", "lists checkpoints and restores, those under way and the last that are over",
         "Those that are over are the last 100. The images themselves: flytctl image show DIR, on the node."),
    VIEW("tenants", "[TENANT]", "lists tenants: quotas and what is allocated", NULL),
    VIEW("members", "[MEMBER]", "lists whose certificates are let in",
         "A member is ROLE:NAME, such as operator:alice."),
    {"events", "[OBJECT]", 0, 1, event_options, flyt_run_events, false, "lists what has happened",
     "With --follow and -o json each event is one line."},
    {"top", "", 0, 0, top_options, flyt_run_top, false, "shows GPUs and VMs at work, again and again",
     "On a terminal, q ends it. Where the output goes elsewhere it is shown once, or as often as --count says."},
    {"vm add", "VM_IP", 1, 1, vm_options, flyt_run_vm_set, false, "says what a new VM is to have",
     "--sm and --memory are needed. The VM gets it when its first program starts, or at once with --reserved."},
    {"vm set", "VM", 1, 1, vm_options, flyt_run_vm_set, false, "changes what a VM is to have",
     "What is not named stays. What of it is a size, a share of the time or a priority is carried out as by resize, a "
     "few "
     "seconds later; the rest takes hold with the next allocation."},
    {"vm remove", "VM", 1, 1, remove_options, flyt_run_vm_remove, false, "takes a VM out",
     "New programs are refused from then on. Running ones go on, unless --kill is given."},
    {"vm device", "VM", 1, 1, device_options, flyt_run_vm_device, false,
     "makes memory that a VM shares with its host, and prints what QEMU and libvirt need",
     "The VM must run on the machine of a GPU node, whose node.conf says where (vm_device). Asked again it prints the "
     "same. The memory goes with the VM (vm remove). QEMU does not migrate a running VM that has such a device."},
    {"vm join-token", "VM_IP", 1, 1, token_options, flyt_run_join_token, false,
     "prints a one-time token that enrols a VM", "In the VM: flyt-client-manager --join TOKEN."},
    {"vm revoke", "VM", 1, 1, NULL, flyt_run_revoke, false, "makes a VM's certificate worthless", NULL},
    {"tenant set", "TENANT", 1, 1, tenant_options, flyt_run_tenant_set, false, "sets a tenant's quotas",
     "What is not named stays."},
    {"suspend", "VM", 1, 1, suspend_options, flyt_run_suspend, false, "stops a VM's work on its GPUs",
     "Its programs go on but give nothing to the GPU: launches and copies wait, in their order; memory, queries and "
     "new "
     "programs are served. Ends with 0 when nothing of it is on a GPU any more: what was given to the GPU before is "
     "waited for, at most 20 ms of work for each stream and the kernels that run. Ends with 6 where that takes longer "
     "than --timeout: it goes on by itself. A suspended VM stays so over restarts of everything."},
    {"resume", "VM", 1, 1, suspend_options, flyt_run_suspend, false, "lets a suspended VM work again",
     "What has waited goes on in its order."},
    {"resize", "VM", 1, 1, resize_options, flyt_run_resize, false,
     "changes SMs, memory, share of the time or priority while programs run",
     "Ends with 0 when every running program has the new size, with 6 when it is recorded but not all of them have "
     "said so within --timeout: it goes on by itself. --timeout 0 does not wait. Work that was given to the GPU before "
     "stays on the SMs that it had, until it is done: these are shown as draining, and are given to nobody before. "
     "--wait vacated waits for that, too, and ends with 6 where some are still draining after --deadline; with --kill, "
     "programs whose work this is are ended then, and each is named in an event. With --migrate, a VM whose GPU has no "
     "room for "
     "the new size moves to another GPU of its node, or to another node, where it has it (see migrate, with its "
     "defaults): "
     "all or nothing. --timeout, --wait and --kill say nothing of that move."},
    {"migrate", "VM", 1, 1, migrate_options, flyt_run_migrate, false,
     "moves a VM's programs to another GPU, of their node or of another one, while they run",
     "Their memory is copied while they compute, what has changed meanwhile again, until little is left; then they are "
     "stopped between two calls, the rest is copied, what has arrived is compared with what was sent (hashes of all "
     "memory that was copied, variables and constants; then the number of their objects), and they go on. "
     "Until then anything that fails leaves them where they are, as if nothing had happened. Both GPUs are charged "
     "until it is over. Shows how far it is; "
     "Ctrl-C ends the showing, not the migration. Ends with 0 when they run on the other GPU, with 1 and the reason "
     "where it was refused or has failed, with 6 where it goes on in the background. A VM with several GPUs moves "
     "with all of them. To another node, the two nodes' servers pass what the programs have over connections of their "
     "own (encrypted: see migration_encrypted, flyt-cluster-manager(8)); the VM's programs then connect to the other "
     "node. GPUs of the same compute capability are "
     "preferred. Others can be targets, too: a server there that has no code of a module for its GPU says so, with the "
     "name of the module's first kernel, and the programs go on where they were."},
    {"checkpoint", "VM|SESSION", 1, 1, checkpoint_options, flyt_run_checkpoint, false,
     "writes a VM's programs, or one, to images in a folder of their node while they run",
     "Memory is written while they compute; then they are stopped between two calls and the rest is written. Without "
     "--leave-running they wait from then on, without a server process and without memory on the GPU, until flytctl "
     "restore: sessions shows them as checkpointed. What the VM was granted stays its own. They must not be ended, and "
     "they outlive restarts of the node manager and of the cluster manager. Programs that share memory or events are "
     "written with all of their VM, or not at all. Each of their images is tried before, at a "
     "server process that loads its libraries: where that finds a variable elsewhere whose address the program may "
     "have, the checkpoint is refused with the variable's name. Where no server process can be had for that in 30 s it "
     "is written all the same, and an event (checkpoint.untried) says so. Anything that fails leaves all running, and "
     "no image. Shows how far it is; Ctrl-C ends the showing, not the checkpoint. Ends with 0 when the images are on "
     "the "
     "disk, with 1 and the reason where it was refused or has failed, with 6 where it goes on in the background."},
    {"restore", "DIR", 1, 1, restore_options, flyt_run_restore, false,
     "has programs that wait in images go on from those in a folder of the node",
     "All that wait on the node and whose image is in the folder, by the file's name. All of these images are read and "
     "checked first: where one is damaged nothing is changed. Each program goes on at a new server process, behind the "
     "call that it was stopped at; one whose process has ended meanwhile is given up, and named. What fails stays in "
     "its "
     "image and can be restored again. Images are not deleted. Ends with 0 when all go on, with 1 and the reason where "
     "it was refused or not all do, with 6 where it goes on in the background."},
    {"cordon", "NODE|GPU", 1, 1, NULL, flyt_run_schedule, false, "places nothing new there", NULL},
    {"uncordon", "NODE|GPU", 1, 1, NULL, flyt_run_schedule, false, "ends cordon and drain", NULL},
    {"drain", "NODE|GPU", 1, 1, drain_options, flyt_run_schedule, false,
     "places nothing new there and lists or moves what is there",
     "With --migrate, VMs on it move to other GPUs of their node, or, where these have no room, to other nodes (see "
     "migrate), one after the other; what cannot is named with the reason, and the command ends with 1."},
    {"gpu set", "GPU", 1, 1, gpu_options, flyt_run_gpu_set, false, "sets the size of a GPU's SM groups",
     "The GPU must be empty. In groups of 8 SMs (the default; what is left over makes one more group) thread-block "
     "clusters of up to 8 blocks run. Groups of 2 divide a GPU more finely, but clusters of more than 2 blocks cannot "
     "run in them: CUDA tells programs so (cudaOccupancyMaxPotentialClusterSize), and launches of larger ones fail "
     "with "
     "CUDA's own error."},
    {"allocation adopt", "ID", 1, 1, NULL, flyt_run_allocation, false, "takes an orphan into the store", NULL},
    {"allocation kill", "ID", 1, 1, NULL, flyt_run_allocation, false, "ends an allocation and its programs", NULL},
    {"node fence", "NODE", 1, 1, fence_options, flyt_run_fence, false, "gives up a lost node and frees what it had",
     "Only with --confirmed-dead: were its programs still running, two could hold what one was promised."},
    {"node adopt", "NODE GPU...", 2, FLYT_WORDS_MAX, NULL, flyt_run_adopt, false,
     "says that GPUs which a node reports are that node's now",
     "A GPU stays its node's, with its allocations, when another node reports it (event gpu.claimed): a node that was "
     "renamed or set up anew, a GPU that was put into another machine, or a node that lies. The GPUs' allocations go "
     "with them; one that has several GPUs needs all of them to be named. Refused while the other node is up and "
     "reports the GPU, too."},
    {"node join-token", "NAME", 1, 1, token_options, flyt_run_join_token, false,
     "prints a one-time token that enrols a node",
     "On the node: flyt-node-manager --join-file FILE, or --join - and the token on standard input: arguments can be "
     "read by "
     "everybody on a machine."},
    {"node revoke", "NODE", 1, 1, NULL, flyt_run_revoke, false, "makes a node's certificate worthless", NULL},
    {"operator join-token", "NAME", 1, 1, token_options, flyt_run_join_token, false,
     "prints a one-time token that enrols an operator", "Where the operator works: flytctl --manager URL join TOKEN."},
    {"operator revoke", "NAME", 1, 1, NULL, flyt_run_revoke, false, "makes an operator's certificate worthless", NULL},
    {"viewer join-token", "NAME", 1, 1, token_options, flyt_run_join_token, false,
     "prints a one-time token that enrols a viewer, who may look at everything and change nothing", NULL},
    {"viewer revoke", "NAME", 1, 1, NULL, flyt_run_revoke, false, "makes a viewer's certificate worthless", NULL},
    {"join", "TOKEN", 1, 1, join_options, flyt_run_join, false, "enrols this user as an operator or a viewer",
     "With - as the token it is read from standard input. "
     "Makes a key, has it certified, and keeps both where flytctl finds them. Needs --manager, or managers in the "
     "configuration, with an address of the form tcp://HOST:PORT."},
    {"member admit", "FILE", 1, 1, NULL, flyt_run_admit, false, "lets in a certificate that flyt-pki has made",
     "In place of the one that its owner had before. Nodes and VMs that join with a token need no such."},
    {"session show", "ID", 1, 1, NULL, flyt_run_session_show, false, "shows all that is known of a program", NULL},
    {"session kill", "ID", 1, 1, NULL, flyt_run_session_kill, false, "ends a program's session", NULL},
    {"explain", "VM", 1, 1, NULL, flyt_run_explain, false, "says why a VM has what it has, or has nothing", NULL},
    {"doctor", "", 0, 0, doctor_options, flyt_run_doctor, false,
     "looks for what is wrong on this node, in this VM or between nodes",
     "Which of the first two is told by the configuration file that is there. Looks only, changes nothing, and needs "
     "no "
     "root, "
     "but says what it could not look at without. Ends with 0, or with 1 where something fails."},
    {"backup", "FILE", 1, 1, NULL, flyt_run_backup, false, "copies the store into a new file",
     "The file has mode 0600 and is there only when it is complete and on disk."},
    {"image show", "FILE|FOLDER", 1, 1, NULL, flyt_run_image_show, false,
     "shows a checkpoint image, or which ones are in a folder",
     "Needs no cluster manager. Of a file all is read and checked, and so are the images that it builds on, beside it. "
     "Of a folder only beginnings and ends are read. Ends with 1 where something is damaged or cut off, with 3 where a "
     "file is missing, and says which."},
    {"image verify", "FILE|FOLDER", 1, 1, NULL, flyt_run_image_verify, false,
     "reads checkpoint images to the end and says whether they are sound",
     "Needs no cluster manager. A file with all that it builds on, or all images in a folder. Ends as image show does; "
     "with 1 where any image of a folder is not sound."},
    {"coredump list", "[FOLDER]", 0, 1, NULL, flyt_run_coredump_list, false,
     "shows the core dumps of the GPU that programs have left on this node",
     "Needs no cluster manager. FOLDER is coredumps in the node manager's state_dir (default "
     "/var/lib/flyt/node/coredumps). The files can be copied from there; cuda-gdb reads those of a GPU. Each dump also "
     "is "
     "an event (session.coredump) with its node's path."},
    {"coredump remove", "FILE", 1, 1, NULL, flyt_run_coredump_remove, false,
     "removes a core dump, as coredump list names it",
     "What a VM's dumps may take together is vm.coredumps in node.conf. Its folder is its address's: remove what is "
     "there before another tenant gets that."},
    {"version", "", 0, 0, NULL, flyt_run_version, false, "shows the versions of flytctl and the cluster manager", NULL},
    {"help", "[COMMAND]", 0, 2, help_options, flyt_run_help, false, "explains a command, or lists all", NULL},
    {0},
};

const struct flyt_command *flyt_command_find(const char *name, bool *ret_is_begun)
{
    size_t bytes = strlen(name);

    *ret_is_begun = false;
    for (const struct flyt_command *command = flyt_commands; command->name; command++) {
        if (!strcmp(command->name, name))
            return command;
        *ret_is_begun |= !strncmp(command->name, name, bytes) && command->name[bytes] == ' ';
    }
    return NULL;
}

const struct flyt_option *flyt_command_options(const struct flyt_command *command)
{
    return command->options;
}

const char *flyt_command_guess(const char *name)
{
    const char *near = NULL;
    unsigned best = 3;

    for (const struct flyt_command *command = flyt_commands; command->name; command++) {
        unsigned distance = flyt_word_distance(name, command->name);
        if (distance < best && distance < strlen(name)) {
            best = distance;
            near = command->name;
        }
    }
    return near;
}
