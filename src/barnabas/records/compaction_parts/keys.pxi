# What a compacted log asks of a batch before it takes it.


def first_without_key(batch, decompressed_bytes_max):
    """See the twin."""
    cdef Py_buffer view
    cdef Header header
    cdef Walk walk
    cdef int64_t found
    if len(batch) < HEADER_SIZE:
        read_header(batch)  # raises
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        walk = Walk(<const uint8_t*>view.buf, view.len, 0, 0)
        load_header(walk.data, &header)
        if header.size > view.len or header.size < HEADER_SIZE or not is_sound(&header):
            return compaction_pure.first_without_key(batch, decompressed_bytes_max)
        header.base_offset = 0
        if is_compressed(&header):
            body = decompressed_body(batch, &walk, Decompressor(decompressed_bytes_max))
            found = find_keyless_in(body, &header)
        else:
            with nogil:
                found = find_keyless(walk.data + HEADER_SIZE, header.size - HEADER_SIZE, &header)
    finally:
        PyBuffer_Release(&view)
    if found == -2:
        return compaction_pure.first_without_key(batch, decompressed_bytes_max)  # raises
    return None if found == -1 else found


cdef int64_t find_keyless_in(body, const Header* header) except -3:
    cdef Py_buffer view
    cdef int64_t found
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    with nogil:
        found = find_keyless(<const uint8_t*>view.buf, view.len, header)
    PyBuffer_Release(&view)
    return found


cdef int64_t find_keyless(const uint8_t* body, int64_t size, const Header* header) noexcept nogil:
    """Return the number of the first record without a key; -1: each has one; -2: the body is damaged."""
    cdef const uint8_t* at = body
    cdef const uint8_t* end = body + size
    cdef int64_t previous = -1
    cdef int64_t found = -1
    cdef Candidate record
    cdef int32_t i
    if not are_in_range(header, size):
        return -2
    for i in range(header.record_count):
        at = parse_record(body, at, end, header, &previous, &record)
        if at == NULL:
            return -2
        if record.key_size == NULL_SIZE and found < 0:
            found = i
    return found if at == end else -2
