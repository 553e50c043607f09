/* vm device: memory that a VM shares with its host, and the words with which QEMU and libvirt give it to the VM. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/flytctl/actions.h"

enum { WORDS = 4 };

#define SHM_FOLDER "/dev/shm/"

/* QEMU's and libvirt's forms have their own ways to write other characters. */
static bool is_plain(const char *path)
{
    for (const char *c = path; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("/._:+-", *c))
            return false;
    return *path == '/';
}

/* What QEMU is started with, word by word; the texts are malloc'ed. */
static void make_words(const flyt_vm_device_res *res, char *ret_words[WORDS])
{
    ret_words[0] = flyt_text_format("-object");
    ret_words[1] = flyt_text_format("memory-backend-file,id=flyt-memory,mem-path=%s,share=on,size=%" PRIu64,
                                    res->path.path_val[0], (uint64_t)res->bytes);
    ret_words[2] = flyt_text_format("-device");
    ret_words[3] = flyt_text_format("ivshmem-plain,memdev=flyt-memory");
}

/* libvirt knows memory in /dev/shm by itself, and passes on what else QEMU is to be told. */
static char *make_xml(const flyt_vm_device_res *res, char *const words[WORDS])
{
    const char *path = res->path.path_val[0], *name = path + strlen(SHM_FOLDER);

    if (!strncmp(path, SHM_FOLDER, strlen(SHM_FOLDER)) && !strchr(name, '/'))
        return flyt_text_format("<shmem name=\"%s\"><model type=\"ivshmem-plain\"/><size unit=\"b\">%" PRIu64
                                "</size></shmem>",
                                name, (uint64_t)res->bytes);
    return flyt_text_format("<qemu:commandline><qemu:arg value=\"%s\"/><qemu:arg value=\"%s\"/><qemu:arg value=\"%s\"/>"
                            "<qemu:arg value=\"%s\"/></qemu:commandline>",
                            words[0], words[1], words[2], words[3]);
}

static void put_json(struct flyt_ctl *ctl, const flyt_vm_device_res *res, char *const words[WORDS], const char *xml)
{
    fputs("{\"status\":\"ok\",\"path\":", ctl->out);
    flyt_json_put_string(ctl->out, res->path.path_val[0]);
    fprintf(ctl->out, ",\"bytes\":%" PRIu64 ",\"qemu\":[", (uint64_t)res->bytes);
    for (unsigned i = 0; i < WORDS; i++) {
        fputs(i ? "," : "", ctl->out);
        flyt_json_put_string(ctl->out, words[i]);
    }
    fputs("],\"libvirt\":", ctl->out);
    flyt_json_put_string(ctl->out, xml);
    fputs("}\n", ctl->out);
}

static void put_text(struct flyt_ctl *ctl, char *const words[WORDS], const char *xml)
{
    bool is_passed_on = !strncmp(xml, "<qemu:", 6);

    fprintf(ctl->out, "QEMU:\n    %s %s %s %s\n", words[0], words[1], words[2], words[3]);
    fprintf(ctl->out, "libvirt, in %s:\n    %s\n",
            is_passed_on ? "<domain xmlns:qemu=\"http://libvirt.org/schemas/domain/qemu/1.0\">" : "<devices>", xml);
}

static enum flyt_exit put_device(struct flyt_ctl *ctl, const char *node, const flyt_vm_device_res *res)
{
    char *words[WORDS];

    if (res->path.path_len != 1 || !is_plain(res->path.path_val[0]))
        return flyt_complain(FLYT_EXIT_REFUSED, "node %s answers with a path that QEMU cannot be told as it is", node);
    make_words(res, words);
    char *xml = make_xml(res, words);
    if (ctl->output == FLYT_OUTPUT_JSON)
        put_json(ctl, res, words, xml);
    else
        put_text(ctl, words, xml);
    free(xml);
    for (unsigned i = 0; i < WORDS; i++)
        free(words[i]);
    return FLYT_EXIT_OK;
}

enum flyt_exit flyt_run_vm_device(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_value *node = flyt_option_get(arguments, "node");
    flyt_vm_device_args args = {.remove = flyt_option_is(arguments, "remove")};
    flyt_vm_device_res res;

    if (!node->is_set)
        return flyt_complain(FLYT_EXIT_USAGE, "vm device needs --node: the node on whose machine the VM runs");
    args.node = (char *)node->texts[0];
    enum flyt_exit status = flyt_select_vm(ctl, arguments->words[0], &args.vm);
    if (status == FLYT_EXIT_OK)
        status = flyt_link_call(ctl, FLYT_VM_DEVICE, (xdrproc_t)xdr_flyt_vm_device_args, &args,
                                (xdrproc_t)xdr_flyt_vm_device_res, &res, sizeof res, 0);
    if (status == FLYT_EXIT_OK) {
        if (args.remove || res.outcome.status != FLYT_STATUS_OK)
            status = flyt_finish(ctl, &res.outcome, "VM %s shares no memory with %s", args.vm, args.node);
        else
            status = put_device(ctl, args.node, &res);
        xdr_free((xdrproc_t)xdr_flyt_vm_device_res, &res);
    }
    free(args.vm);
    return status;
}
