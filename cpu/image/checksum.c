#include "cpu/image/checksum.h"

#include <string.h>

/* Of half a byte, by the reflected polynomial 0x82f63b78. Small rather than fast: every x86-64 processor with a GPU
 * beside it has the instruction. */
static const uint32_t halves[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                    0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                    0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

uint32_t flyt_checkpoint_checksum_plain(uint32_t checksum, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    checksum = ~checksum;
    for (; bytes; bytes--) {
        checksum ^= *at++;
        checksum = checksum >> 4 ^ halves[checksum & 15];
        checksum = checksum >> 4 ^ halves[checksum & 15];
    }
    return ~checksum;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t checksum, const unsigned char *at,
                                                                 size_t bytes)
{
    uint64_t sum = ~checksum;

    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        sum = __builtin_ia32_crc32di(sum, word);
    }
    for (; bytes; bytes--)
        sum = __builtin_ia32_crc32qi((uint32_t)sum, *at++);
    return ~(uint32_t)sum;
}
#endif

uint32_t flyt_checkpoint_checksum(uint32_t checksum, const void *data, size_t bytes)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return by_instruction(checksum, data, bytes);
#endif
    return flyt_checkpoint_checksum_plain(checksum, data, bytes);
}
