#include "cpu/server/code/image_refusal.h"

#include <stdio.h>
#include <string.h>

#include "cpu/server/code/image_code.h"

static bool begins_with(const char *name, size_t bytes, const char *prefix)
{
    return bytes >= strlen(prefix) && !memcmp(name, prefix, strlen(prefix));
}

static bool has(const char *name, size_t bytes, const char *part)
{
    return memmem(name, bytes, part, strlen(part));
}

/* The functions of libcudadevrt, and those of the driver that these call: cudaLaunchDeviceV2, __cudaCDP2LaunchDevice,
 * cudaGetParameterBuffer, __cuda_syscall_cnpv2LaunchDeviceV2, cnpLaunchDevice, … */
static bool is_launch(const char *name, size_t bytes)
{
    bool is_runtime = begins_with(name, bytes, "cuda") || begins_with(name, bytes, "__cudaCDP");
    bool is_driver = begins_with(name, bytes, "__cuda_syscall_cnp") || begins_with(name, bytes, "cnp");
    return ((is_runtime || is_driver) &&
            (has(name, bytes, "LaunchDevice") || has(name, bytes, "GetParameterBuffer"))) ||
           (is_driver && has(name, bytes, "Launch"));
}

static bool refuse_launch(const char *name, size_t bytes, char *ret_why, size_t room)
{
    snprintf(ret_why, room, "device-side launch is not supported: the module uses %.*s",
             (int)(bytes < 200 ? bytes : 200), name);
    return true;
}

/* ---- machine code ---- */

static bool look_at_table(const struct flyt_code *code, const Elf64_Shdr *table, char *ret_why, size_t room)
{
    Elf64_Shdr names;
    Elf64_Sym symbol;
    if (table->sh_entsize != sizeof symbol || !flyt_code_section(code, table->sh_link, &names))
        return false;
    for (uint64_t at = 0; at + sizeof symbol <= table->sh_size; at += sizeof symbol) {
        memcpy(&symbol, code->image + table->sh_offset + at, sizeof symbol);
        const char *name = flyt_code_text(code, &names, symbol.st_name);
        if (!name)
            continue;
        if (is_launch(name, strlen(name)))
            return refuse_launch(name, strlen(name), ret_why, room);
    }
    return false;
}

bool flyt_image_refusal_of_code(const char *image, uint64_t bytes, char *ret_why, size_t room)
{
    struct flyt_code code;
    Elf64_Shdr section;
    if (!flyt_code_open(&code, image, bytes))
        return false;
    for (unsigned i = 0; i < code.header.e_shnum; i++)
        if (flyt_code_section(&code, i, &section) && section.sh_type == SHT_SYMTAB &&
            look_at_table(&code, &section, ret_why, room))
            return true;
    return false;
}

/* ---- PTX ---- */

bool flyt_image_refusal_of_ptx(const char *text, char *ret_why, size_t room)
{
    size_t bytes;
    for (const char *at = text; (at = flyt_ptx_token(at, &bytes)); at += bytes)
        if (is_launch(at, bytes))
            return refuse_launch(at, bytes, ret_why, room);
    return false;
}
