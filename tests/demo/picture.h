/* A PNG file from 8-bit grey pixels (RFC 2083), uncompressed, and a small view of it in characters. */
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

static inline uint32_t png_crc(const std::string &bytes)
{
    uint32_t crc = ~0u;
    for (unsigned char byte : bytes) {
        crc ^= byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xedb88320u & -(crc & 1));
    }
    return ~crc;
}

static inline std::string big_endian(uint32_t value)
{
    return {(char)(value >> 24), (char)(value >> 16), (char)(value >> 8), (char)value};
}

static inline std::string png_chunk(const std::string &type, const std::string &data)
{
    return big_endian((uint32_t)data.size()) + type + data + big_endian(png_crc(type + data));
}

/* Writes height × width pixels (0 black, 255 white); false with the reason on stderr where the file cannot be written.
 */
static inline bool picture_write(const char *path, const std::vector<unsigned char> &pixels, unsigned width,
                                 unsigned height)
{
    std::string rows;
    for (unsigned y = 0; y < height; y++) {
        rows += '\0';
        rows.append((const char *)&pixels[(size_t)y * width], width);
    }
    std::string zlib = {0x78, 0x01};
    uint32_t a = 1, b = 0;
    for (unsigned char byte : rows) {
        a = (a + byte) % 65521;
        b = (b + a) % 65521;
    }
    for (size_t at = 0; at < rows.size(); at += 65535) {
        size_t part = rows.size() - at < 65535 ? rows.size() - at : 65535;
        zlib += (char)(at + part == rows.size());
        zlib += {(char)part, (char)(part >> 8), (char)~part, (char)(~part >> 8)};
        zlib.append(rows, at, part);
    }
    zlib += big_endian(b << 16 | a);
    std::string file = "\x89PNG\r\n\x1a\n";
    file += png_chunk("IHDR", big_endian(width) + big_endian(height) + std::string{8, 0, 0, 0, 0});
    file += png_chunk("IDAT", zlib) + png_chunk("IEND", "");
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(file.data(), 1, file.size(), out) != file.size() || fclose(out)) {
        perror(path);
        return false;
    }
    return true;
}

/* Prints the picture in `columns` characters a line. */
static inline void picture_show(const std::vector<unsigned char> &pixels, unsigned width, unsigned height,
                                unsigned columns)
{
    static const char shades[] = " .:-=+*#%@";
    const unsigned step = width / columns;
    for (unsigned y = 0; y + 2 * step <= height; y += 2 * step) {
        std::string line = "    ";
        for (unsigned x = 0; x + step <= width; x += step) {
            unsigned sum = 0;
            for (unsigned dy = 0; dy < 2 * step; dy++)
                for (unsigned dx = 0; dx < step; dx++)
                    sum += pixels[(size_t)(y + dy) * width + x + dx];
            line += shades[sum / (2 * step * step) * 9 / 255];
        }
        puts(line.c_str());
    }
}
