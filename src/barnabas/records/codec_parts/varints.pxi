# Zigzag varints of records: seven bits per byte, the lowest bits first.

cdef extern from *:
    """
    #include <stdint.h>

    /* The bytes that a zigzag varint of a number takes. */
    static inline Py_ssize_t barnabas_zigzag_size(uint64_t zigzag) {
        return (63 - __builtin_clzll(zigzag | 1)) / 7 + 1;
    }
    """
    Py_ssize_t barnabas_zigzag_size(uint64_t zigzag) noexcept nogil


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int64_t wrapping_sum(int64_t one, int64_t other) noexcept nogil:
    """Return a sum that wraps around at 64 bits, as timestamps do in Kafka's clients."""
    return <int64_t>(<uint64_t>one + <uint64_t>other)


cdef inline int64_t wrapping_difference(int64_t one, int64_t other) noexcept nogil:
    return <int64_t>(<uint64_t>one - <uint64_t>other)


cdef inline Py_ssize_t varint_size(int64_t value) noexcept nogil:
    return barnabas_zigzag_size(zigzag(value))


cdef inline uint8_t* write_varint(uint8_t* out, int64_t value) noexcept nogil:
    cdef uint64_t left = zigzag(value)
    while left > 0x7F:
        out[0] = <uint8_t>(left & 0x7F | 0x80)
        out += 1
        left >>= 7
    out[0] = <uint8_t>left
    return out + 1


cdef inline const uint8_t* read_varint(const uint8_t* at, const uint8_t* end, int64_t* value) noexcept nogil:
    """Return the position after the varint, or NULL if it extends beyond `end` or has more than 64 bits."""
    cdef uint64_t result
    cdef int shift
    if at == NULL or at >= end:
        return NULL
    if at[0] < 0x80:
        value[0] = <int64_t>((at[0] >> 1) ^ -<int64_t>(at[0] & 1))
        return at + 1
    result = at[0] & 0x7F
    shift = 7
    at += 1
    while True:
        if at >= end or (shift == 63 and at[0] > 1):
            return NULL
        result |= <uint64_t>(at[0] & 0x7F) << shift
        if at[0] < 0x80:
            break
        at += 1
        shift += 7
    value[0] = <int64_t>((result >> 1) ^ (~(result & 1) + 1))
    return at + 1
