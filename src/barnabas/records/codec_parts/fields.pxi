# Keys, values and headers of untrusted records: every length is checked before its bytes are skipped.

cdef inline const uint8_t* read_blob(
    const uint8_t* body, const uint8_t* at, const uint8_t* end, int32_t* position, int32_t* size
) noexcept nogil:
    """Read a length and skip its bytes; null is only the single byte 1."""
    cdef int64_t length
    if at == NULL or at >= end:
        return NULL
    if at[0] == 1:
        position[0] = 0
        size[0] = NULL_SIZE
        return at + 1
    at = read_varint(at, end, &length)
    if at == NULL or length < 0 or length > end - at:
        return NULL
    position[0] = <int32_t>(at - body)
    size[0] = <int32_t>length
    return at + length


cdef inline const uint8_t* read_any_blob(
    const uint8_t* body, const uint8_t* at, const uint8_t* end, int32_t* position, int32_t* size
) noexcept nogil:
    """Read a length and skip its bytes; any negative length means null, as in Kafka's clients."""
    cdef int64_t length
    at = read_varint(at, end, &length)
    if at == NULL or length > end - at:
        return NULL
    if length < 0:
        position[0] = 0
        size[0] = NULL_SIZE
        return at
    position[0] = <int32_t>(at - body)
    size[0] = <int32_t>length
    return at + length


cdef const uint8_t* skip_headers(const uint8_t* at, const uint8_t* end, int64_t count) noexcept nogil:
    """Return the position after `count` headers, or NULL if they extend beyond `end`."""
    cdef int64_t length
    cdef int64_t index
    if count < 0 or count > (end - at) // 2 or count > 1000000:  # `HEADERS_MAX` of `codec_pure`
        return NULL
    for index in range(count):
        at = read_varint(at, end, &length)
        if at == NULL or length < 0 or length > end - at:
            return NULL
        at = read_varint(at + length, end, &length)
        if at == NULL or length > end - at:
            return NULL
        if length > 0:
            at += length
    return at
