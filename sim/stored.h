// SPDX-License-Identifier: BSD-2-Clause
// The four functions of LZ4 and zlib that Verilator's waveform writer calls, without compression, so
// that waveforms need no library on the machine. Written to disk as both lz4.h and zlib.h.
// Ref: LZ4 block format (one sequence of literals).
#ifndef GOSSAMER_STORED_H
#define GOSSAMER_STORED_H
#include <cstring>

typedef unsigned char Bytef;
typedef unsigned long uLong;
typedef unsigned long uLongf;
enum { Z_OK = 0 };

static inline int LZ4_compressBound(int size) { return size + size / 255 + 16; }

static inline int LZ4_compress_default(const char* from, char* to, int size, int room) {
    if (room < LZ4_compressBound(size)) return 0;
    char* at = to;
    *at++ = static_cast<char>((size < 15 ? size : 15) << 4);
    if (size >= 15) {
        int left = size - 15;
        for (; left >= 255; left -= 255) *at++ = static_cast<char>(255);
        *at++ = static_cast<char>(left);
    }
    std::memcpy(at, from, static_cast<size_t>(size));
    return static_cast<int>(at - to) + size;
}

static inline uLong compressBound(uLong size) { return size; }

// Declines: the result is as long as the input, and the writer then takes the input.
static inline int compress2(Bytef*, uLongf*, const Bytef*, uLong, int) { return Z_OK; }
#endif
