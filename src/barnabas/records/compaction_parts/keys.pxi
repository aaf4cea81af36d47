# The check of keys before a batch is appended to a compacted log.

cdef struct Keyless:
    # The numbers of records without keys, up to the reported maximum.
    int32_t count
    int32_t numbers[KEYLESS_MAX]


def records_without_key(batch, decompressed_bytes_max):
    """Return the indexes of the records without a key; see `compaction_pure`."""
    cdef Py_buffer view
    cdef Header header
    cdef Walk walk
    cdef Keyless found
    cdef bint is_whole
    if len(batch) < HEADER_SIZE:
        read_header(batch)  # raises the error
    found.count = 0
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        walk = Walk(<const uint8_t*>view.buf, view.len, 0, 0)
        load_header(walk.data, &header)
        if header.size > view.len or header.size < HEADER_SIZE or not is_sound(&header):
            return compaction_pure.records_without_key(batch, decompressed_bytes_max)
        header.base_offset = 0
        if is_compressed(&header):
            body = decompressed_body(batch, &walk, &header, Decompressor(decompressed_bytes_max))
            is_whole = find_keyless_in(body, &header, &found)
        else:
            with nogil:
                is_whole = find_keyless(walk.data + HEADER_SIZE, header.size - HEADER_SIZE, &header, &found)
    finally:
        PyBuffer_Release(&view)
    if not is_whole:
        return compaction_pure.records_without_key(batch, decompressed_bytes_max)  # raises the error
    return [found.numbers[i] for i in range(found.count)]


cdef bint find_keyless_in(body, const Header* header, Keyless* found) except -1:
    cdef Py_buffer view
    cdef bint is_whole
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    with nogil:
        is_whole = find_keyless(<const uint8_t*>view.buf, view.len, header, found)
    PyBuffer_Release(&view)
    return is_whole


cdef bint find_keyless(const uint8_t* body, int64_t size, const Header* header, Keyless* found) noexcept nogil:
    """Collect the records without keys; return False if the body is damaged."""
    cdef const uint8_t* at = body
    cdef const uint8_t* end = body + size
    cdef int64_t previous = -1
    cdef Candidate record
    cdef int32_t i
    if not are_in_range(header, size):
        return False
    for i in range(header.record_count):
        at = parse_record(body, at, end, header, &previous, &record)
        if at == NULL:
            return False
        if record.key_size == NULL_SIZE and found.count < KEYLESS_MAX:
            found.numbers[found.count] = i
            found.count += 1
    return at == end
