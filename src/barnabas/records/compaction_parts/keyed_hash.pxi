# SipHash-2-4 with 128 bits (Aumasson, Bernstein: "SipHash: a fast short-input PRF", 2012, and its 128-bit variant).

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    typedef struct { uint64_t first, second; } barnabas_hash;

    static inline uint64_t barnabas_little(const uint8_t* at) {
        uint64_t word;
        memcpy(&word, at, 8);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        return word;
    }

    #define BARNABAS_ROTATED(word, bits) ((word) << (bits) | (word) >> (64 - (bits)))
    #define BARNABAS_SIP_ROUND \
        a += b; b = BARNABAS_ROTATED(b, 13) ^ a; a = BARNABAS_ROTATED(a, 32); \
        c += d; d = BARNABAS_ROTATED(d, 16) ^ c; \
        a += d; d = BARNABAS_ROTATED(d, 21) ^ a; \
        c += b; b = BARNABAS_ROTATED(b, 17) ^ c; c = BARNABAS_ROTATED(c, 32);
    #define BARNABAS_SIP_WORD(word) \
        d ^= (word); BARNABAS_SIP_ROUND BARNABAS_SIP_ROUND a ^= (word);

    static inline barnabas_hash barnabas_keyed_hash(
        uint64_t secret_first, uint64_t secret_second, const uint8_t* at, size_t size
    ) {
        uint64_t a = secret_first ^ 0x736f6d6570736575u;
        uint64_t b = secret_second ^ 0x646f72616e646f6du ^ 0xee;
        uint64_t c = secret_first ^ 0x6c7967656e657261u;
        uint64_t d = secret_second ^ 0x7465646279746573u;
        uint64_t last = (uint64_t)size << 56;
        const uint8_t* end = at + (size & ~(size_t)7);
        barnabas_hash hash;
        for (; at < end; at += 8) {
            uint64_t word = barnabas_little(at);
            BARNABAS_SIP_WORD(word)
        }
        for (size_t i = size & 7; i--;)
            last |= (uint64_t)at[i] << 8 * i;
        BARNABAS_SIP_WORD(last)
        c ^= 0xee;
        BARNABAS_SIP_ROUND BARNABAS_SIP_ROUND BARNABAS_SIP_ROUND BARNABAS_SIP_ROUND
        hash.first = a ^ b ^ c ^ d;
        b ^= 0xdd;
        BARNABAS_SIP_ROUND BARNABAS_SIP_ROUND BARNABAS_SIP_ROUND BARNABAS_SIP_ROUND
        hash.second = a ^ b ^ c ^ d;
        return hash;
    }
    """
    ctypedef struct Hash "barnabas_hash":
        uint64_t first
        uint64_t second
    uint64_t barnabas_little(const uint8_t* at) noexcept nogil
    Hash barnabas_keyed_hash(
        uint64_t secret_first, uint64_t secret_second, const uint8_t* at, size_t size
    ) noexcept nogil
