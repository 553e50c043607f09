/* Device printf and assert. Text is formatted here, per lane, from the format and the buffer that device code fills. */
#include "cpu/softgpu/ptx/exec.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 8192, STRING_BYTES_MAX = 4096, WIDTH_MAX = 1024 };

struct text {
    char bytes[TEXT_BYTES_MAX];
    size_t used;
};

/* The rest of what does not fit is lost, as it is in a GPU's buffer. */
__attribute__((format(printf, 2, 3))) static void append(struct text *text, const char *format, ...)
{
    va_list args;
    int bytes;

    va_start(args, format);
    bytes = vsnprintf(text->bytes + text->used, sizeof text->bytes - text->used, format, args);
    va_end(args);
    if (bytes > 0)
        text->used +=
            (size_t)bytes < sizeof text->bytes - text->used ? (size_t)bytes : sizeof text->bytes - text->used - 1;
}

static uint64_t argument(const struct ptx_warp *w, const struct ptx_insn *in, unsigned lane, unsigned index)
{
    const struct ptx_call *call = in->call;
    uint64_t value = 0;

    memcpy(&value, w->local + (size_t)lane * w->run->stack_bytes + w->frame->local_base + call->arg_offset[index],
           call->arg_bytes[index] < 8 ? call->arg_bytes[index] : 8);
    return value;
}

/* Copies a string of device memory, cut at the room there is. False after a fault. */
static bool read_string(struct ptx_warp *w, unsigned lane, uint64_t address, char *string, size_t room)
{
    size_t used = 0;

    while (used + 1 < room) {
        const char *at = flyt_ptx_address(w, lane, PTX_SPACE_GENERIC, address + used, 1, false);

        if (!at)
            return false;
        if (!*at)
            break;
        string[used++] = *at;
    }
    string[used] = 0;
    return true;
}

/* The arguments in the caller's buffer: 4 or 8 bytes each, aligned to their size. */
struct arguments {
    struct ptx_warp *w;
    unsigned lane;
    uint64_t next; /* generic address; 0: there is no buffer */
    uint32_t taken_count;
};

static bool take_argument(struct arguments *arguments, unsigned bytes, uint64_t *ret_value)
{
    const char *at;

    arguments->next = (arguments->next + bytes - 1) & ~(uint64_t)(bytes - 1);
    at = flyt_ptx_address(arguments->w, arguments->lane, PTX_SPACE_GENERIC, arguments->next, bytes, false);
    if (!at)
        return false;
    *ret_value = 0;
    memcpy(ret_value, at, bytes);
    arguments->next += bytes;
    arguments->taken_count++;
    return true;
}

/* One conversion as parsed: flags, width and precision in `spec`, as "%-08.3", without length and letter. */
struct conversion {
    char spec[64];
    size_t used;
    bool is_long;
    unsigned short_count; /* h: as a short; hh: as a char */
};

/* `*` takes a number from the arguments; anything absurd is bounded, so that a kernel cannot ask for gigabytes. */
static bool parse_number(const char **format, struct arguments *arguments, struct conversion *conversion)
{
    uint64_t value = 0;
    bool has_digits = false;

    if (**format == '*') {
        if (!take_argument(arguments, 4, &value))
            return false;
        (*format)++;
        has_digits = true;
        if ((int32_t)value < 0) {
            value = 0 - value;
            conversion->spec[conversion->used++] = '-';
        }
        value &= UINT32_MAX;
    }
    for (; **format >= '0' && **format <= '9'; (*format)++) {
        value = value < WIDTH_MAX ? value * 10 + (uint64_t)(**format - '0') : value;
        has_digits = true;
    }
    if (has_digits)
        conversion->used += (size_t)snprintf(conversion->spec + conversion->used, 12, "%u",
                                             (unsigned)(value < WIDTH_MAX ? value : WIDTH_MAX));
    return true;
}

static bool parse_conversion(const char **format, struct arguments *arguments, struct conversion *conversion)
{
    *conversion = (struct conversion){.spec = "%", .used = 1};
    for (; **format && strchr("-+ #0", **format); (*format)++)
        if (!memchr(conversion->spec, **format, conversion->used))
            conversion->spec[conversion->used++] = **format;
    if (!parse_number(format, arguments, conversion))
        return false;
    if (**format == '.') {
        size_t before = conversion->used;

        (*format)++;
        conversion->spec[conversion->used++] = '.';
        if (!parse_number(format, arguments, conversion))
            return false;
        if (conversion->spec[before + 1] == '-') { /* a negative precision is as none */
            memset(conversion->spec + before, 0, conversion->used - before);
            conversion->used = before;
        }
    }
    for (; **format && strchr("hlLqjzt", **format); (*format)++) {
        conversion->is_long |= **format != 'h';
        conversion->short_count += **format == 'h';
    }
    return true;
}

static const char *with(struct conversion *conversion, const char *ending)
{
    snprintf(conversion->spec + conversion->used, sizeof conversion->spec - conversion->used, "%s", ending);
    return conversion->spec;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"

/* The argument as the type that the conversion's length says. */
static uint64_t fit_integer(uint64_t value, bool is_signed, const struct conversion *conversion)
{
    unsigned spare_bits = conversion->is_long            ? 0
                          : conversion->short_count == 0 ? 32
                          : conversion->short_count == 1 ? 48
                                                         : 56;

    return is_signed ? (uint64_t)((int64_t)(value << spare_bits) >> spare_bits) : value << spare_bits >> spare_bits;
}

/* Formats one argument with the conversion letter. False after a fault. */
static bool convert(struct text *text, char letter, struct conversion *conversion, struct arguments *arguments)
{
    char string[STRING_BYTES_MAX], ending[4] = {0};
    uint64_t value;
    double number;

    switch (letter) {
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        if (!take_argument(arguments, conversion->is_long ? 8 : 4, &value))
            return false;
        value = fit_integer(value, letter == 'd' || letter == 'i', conversion);
        snprintf(ending, sizeof ending, "ll%c", letter);
        append(text, with(conversion, ending), (long long)value);
        return true;
    case 'c':
        if (!take_argument(arguments, 4, &value))
            return false;
        append(text, with(conversion, "c"), (int)value);
        return true;
    case 'p':
        if (!take_argument(arguments, 8, &value))
            return false;
        append(text, with(conversion, "p"), (void *)(uintptr_t)value);
        return true;
    case 's':
        if (!take_argument(arguments, 8, &value))
            return false;
        if (!value)
            snprintf(string, sizeof string, "(null)");
        else if (!read_string(arguments->w, arguments->lane, value, string, sizeof string))
            return false;
        append(text, with(conversion, "s"), string);
        return true;
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
    case 'a':
    case 'A':
        if (!take_argument(arguments, 8, &value))
            return false;
        memcpy(&number, &value, sizeof number);
        ending[0] = letter;
        append(text, with(conversion, ending), number);
        return true;
    default:
        ending[0] = letter;
        append(text, "%s", ending); /* what is no conversion stands for itself */
        return true;
    }
}

#pragma GCC diagnostic pop

static bool format_text(struct text *text, const char *format, struct arguments *arguments)
{
    while (*format) {
        size_t plain = strcspn(format, "%");
        struct conversion conversion;

        if (plain) {
            append(text, "%.*s", (int)plain, format);
            format += plain;
            continue;
        }
        format++;
        if (*format == '%') {
            append(text, "%%");
            format++;
            continue;
        }
        if (!parse_conversion(&format, arguments, &conversion))
            return false;
        if (!*format)
            break;
        if (!convert(text, *format++, &conversion, arguments))
            return false;
    }
    return true;
}

/* vprintf(format, arguments): the result is the number of arguments. */
const struct ptx_insn *flyt_ptx_builtin_print(struct ptx_warp *w, const struct ptx_insn *in)
{
    const struct flyt_ptx_launch *launch = w->run->launch;

    PTX_EACH_LANE(lane, w->mask)
    {
        char format[STRING_BYTES_MAX];
        struct text text = {.used = 0};
        struct arguments arguments = {w, lane, argument(w, in, lane, 1), 0};

        if (!read_string(w, lane, argument(w, in, lane, 0), format, sizeof format) ||
            !format_text(&text, format, &arguments))
            return NULL;
        if (launch->print && text.used)
            launch->print(launch->user, false, text.bytes, text.used);
        if (in->call->result_bytes)
            memcpy(w->local + (size_t)lane * w->run->stack_bytes + w->frame->local_base + in->call->result_offset,
                   &arguments.taken_count, sizeof arguments.taken_count);
    }
    return in + 1;
}

/* __assertfail(condition, file, line, function, character size): every lane that fails says so, then the launch ends.
 */
const struct ptx_insn *flyt_ptx_builtin_assert(struct ptx_warp *w, const struct ptx_insn *in)
{
    const struct flyt_ptx_launch *launch = w->run->launch;

    PTX_EACH_LANE(lane, w->mask)
    {
        char condition[1024], file[1024], function[1024];
        struct text text = {.used = 0};

        if (!read_string(w, lane, argument(w, in, lane, 0), condition, sizeof condition) ||
            !read_string(w, lane, argument(w, in, lane, 1), file, sizeof file) ||
            !read_string(w, lane, argument(w, in, lane, 3), function, sizeof function))
            return NULL;
        append(&text, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n", file,
               (unsigned)argument(w, in, lane, 2), function, w->block->id[0], w->block->id[1], w->block->id[2],
               w->tid[0][lane], w->tid[1][lane], w->tid[2][lane], condition);
        if (launch->print)
            launch->print(launch->user, true, text.bytes, text.used);
    }
    return flyt_ptx_warp_fault(w, CUDA_ERROR_ASSERT);
}
