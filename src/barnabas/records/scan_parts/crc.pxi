# Big-endian numbers, and CRC-32C with the processor's instruction if it has one.

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static inline uint64_t barnabas_big(const uint8_t* at, int bytes) {
        uint64_t number = 0;
        for (int i = 0; i < bytes; i++)
            number = number << 8 | at[i];
        return number;
    }

    static inline void barnabas_put_big(uint8_t* at, int bytes, uint64_t number) {
        for (int i = bytes; i--; number >>= 8)
            at[i] = (uint8_t)number;
    }

    /* CRC-32C (polynomial 0x1EDC6F41, reflected), eight bytes per step: table k contains the effect of a byte on the
       CRC when k more bytes follow. */
    static uint32_t barnabas_crc_tables[8][256];

    static void barnabas_crc_make_tables(void) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = byte;
            for (int bit = 0; bit < 8; bit++)
                crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
            barnabas_crc_tables[0][byte] = crc;
        }
        for (int k = 1; k < 8; k++)
            for (int byte = 0; byte < 256; byte++) {
                uint32_t crc = barnabas_crc_tables[k - 1][byte];
                barnabas_crc_tables[k][byte] = crc >> 8 ^ barnabas_crc_tables[0][crc & 0xFF];
            }
    }

    static uint32_t barnabas_crc_portable(const uint8_t* at, size_t size) {
        uint32_t crc = 0xFFFFFFFFu;
        for (; size >= 8; size -= 8, at += 8) {
            uint32_t low = crc ^ (at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
            crc = barnabas_crc_tables[7][low & 0xFF] ^ barnabas_crc_tables[6][low >> 8 & 0xFF]
                ^ barnabas_crc_tables[5][low >> 16 & 0xFF] ^ barnabas_crc_tables[4][low >> 24]
                ^ barnabas_crc_tables[3][at[4]] ^ barnabas_crc_tables[2][at[5]]
                ^ barnabas_crc_tables[1][at[6]] ^ barnabas_crc_tables[0][at[7]];
        }
        for (; size; size--, at++)
            crc = crc >> 8 ^ barnabas_crc_tables[0][(crc ^ *at) & 0xFF];
        return ~crc;
    }

    static uint32_t (*barnabas_crc)(const uint8_t*, size_t) = barnabas_crc_portable;

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <cpuid.h>
    /* The instruction depends on its last result, so three lanes of bytes are computed in parallel. Table k contains
       the effect of byte k of a CRC when a lane of zeros follows. */
    #define BARNABAS_LANE 1024
    static uint32_t barnabas_crc_lane_tables[4][256];

    static void barnabas_crc_make_lane_tables(void) {
        for (int bit = 0; bit < 32; bit++) {
            uint32_t crc = (uint32_t)1 << bit;
            for (int i = 0; i < BARNABAS_LANE; i++)
                crc = crc >> 8 ^ barnabas_crc_tables[0][crc & 0xFF];
            for (int byte = 0; byte < 256; byte++)
                if (byte >> bit % 8 & 1)
                    barnabas_crc_lane_tables[bit / 8][byte] ^= crc;
        }
    }

    static inline uint32_t barnabas_crc_over_lane(uint32_t crc) {
        return barnabas_crc_lane_tables[0][crc & 0xFF] ^ barnabas_crc_lane_tables[1][crc >> 8 & 0xFF]
            ^ barnabas_crc_lane_tables[2][crc >> 16 & 0xFF] ^ barnabas_crc_lane_tables[3][crc >> 24];
    }

    static inline uint64_t barnabas_word(const uint8_t* at) {
        uint64_t word;
        memcpy(&word, at, 8);
        return word;
    }

    __attribute__((target("sse4.2")))
    static uint32_t barnabas_crc_sse42(const uint8_t* at, size_t size) {
        uint64_t crc = 0xFFFFFFFFu;
        for (; size >= 3 * BARNABAS_LANE; size -= 3 * BARNABAS_LANE, at += 3 * BARNABAS_LANE) {
            uint64_t second = 0, third = 0;
            for (int i = 0; i < BARNABAS_LANE; i += 8) {
                crc = __builtin_ia32_crc32di(crc, barnabas_word(at + i));
                second = __builtin_ia32_crc32di(second, barnabas_word(at + BARNABAS_LANE + i));
                third = __builtin_ia32_crc32di(third, barnabas_word(at + 2 * BARNABAS_LANE + i));
            }
            crc = barnabas_crc_over_lane((uint32_t)crc) ^ (uint32_t)second;
            crc = barnabas_crc_over_lane((uint32_t)crc) ^ (uint32_t)third;
        }
        for (; size >= 8; size -= 8, at += 8)
            crc = __builtin_ia32_crc32di(crc, barnabas_word(at));
        uint32_t rest = (uint32_t)crc;
        for (; size; size--, at++)
            rest = __builtin_ia32_crc32qi(rest, *at);
        return ~rest;
    }

    static void barnabas_crc_choose(void) {
        /* Not __builtin_cpu_supports: it needs a symbol of the compiler's library that zig does not have. */
        unsigned int eax, ebx, ecx, edx;
        if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_SSE4_2)) {
            barnabas_crc_make_lane_tables();
            barnabas_crc = barnabas_crc_sse42;
        }
    }
    #else
    static void barnabas_crc_choose(void) {}
    #endif
    """
    uint64_t barnabas_big(const uint8_t* at, int bytes) noexcept nogil
    void barnabas_put_big(uint8_t* at, int bytes, uint64_t number) noexcept nogil
    void barnabas_crc_make_tables() noexcept nogil
    void barnabas_crc_choose() noexcept nogil
    uint32_t barnabas_crc(const uint8_t* at, size_t size) noexcept nogil
    uint32_t barnabas_crc_portable(const uint8_t* at, size_t size) noexcept nogil

barnabas_crc_make_tables()
barnabas_crc_choose()
