# Checks and stamps batches from producers, and checks batches from leaders. The equivalents in Python are in
# `scan_pure.py`.

def count_records(body, int64_t count):
    """See `scan_pure`."""
    cdef Py_buffer view
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    fits = are_records(<const uint8_t*>view.buf, <const uint8_t*>view.buf + view.len, count)
    PyBuffer_Release(&view)
    return fits


cdef bint are_records(const uint8_t* at, const uint8_t* end, int64_t count) noexcept nogil:
    cdef uint64_t zigzag
    cdef uint8_t byte
    cdef int shift
    if count < 0 or count > (end - at) // RECORD_SIZE_MIN:
        return False
    while count:
        count -= 1
        if at >= end:
            return False
        zigzag = at[0]
        at += 1
        if zigzag >= 0x80:
            zigzag &= 0x7F
            shift = 7
            while True:
                if at >= end or (shift == 63 and at[0] > 1):
                    return False
                byte = at[0]
                at += 1
                zigzag |= <uint64_t>(byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
        # An odd zigzag number means a negative length.
        if zigzag & 1 or (zigzag >> 1) < RECORD_SIZE_MIN - 1 or (zigzag >> 1) > <uint64_t>(end - at):
            return False
        at += zigzag >> 1
    return at == end


def usual_header(records, int64_t bytes_max):
    """See `scan_pure`."""
    cdef Header header
    cdef Py_buffer view
    cdef const uint8_t* at
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t*>view.buf
        if view.len > bytes_max or not load_usual_header(at, view.len, &header):
            return None
        return (
            header.base_offset,
            header.size - LENGTH_OVERHEAD,
            header.leader_epoch,
            header.magic,
            header.crc,
            header.attributes,
            header.last_offset_delta,
            header.base_timestamp_ms,
            header.max_timestamp_ms,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
        )
    finally:
        PyBuffer_Release(&view)


def stamp_plain_batches(
    requests,
    Py_ssize_t start,
    int64_t base_offset,
    int32_t leader_epoch,
    *,
    int64_t batch_bytes_max,
    int64_t bytes_max,
    int64_t offset_max,
    int64_t timestamp_ms_max,
):
    """See `scan_pure`."""
    cdef list stamped = []
    cdef Py_ssize_t number
    cdef Header header
    cdef Py_buffer view
    cdef uint8_t* at
    cdef int64_t producer_id = UNKNOWN, sequence = UNKNOWN
    cdef int16_t producer_epoch = UNKNOWN
    for number in range(start, len(requests)):
        try:
            PyObject_GetBuffer(requests[number], &view, PyBUF_WRITABLE)
        except BufferError:  # the buffer is read-only
            break
        try:
            at = <uint8_t*>view.buf
            if view.len > min(batch_bytes_max, bytes_max) or not load_usual_header(at, view.len, &header):
                break
            if header.last_offset_delta > offset_max - base_offset or header.max_timestamp_ms > timestamp_ms_max:
                break
            if number == start:
                producer_id, producer_epoch = header.producer_id, header.producer_epoch
            elif header.producer_id != producer_id:
                break
            elif producer_id != UNKNOWN and (
                header.producer_epoch != producer_epoch or header.base_sequence != sequence
            ):
                break
            barnabas_put_big(at, 8, <uint64_t>base_offset)
            barnabas_put_big(at + 12, 4, <uint64_t>leader_epoch)
        finally:
            PyBuffer_Release(&view)
        sequence = <int64_t>header.base_sequence + header.record_count
        base_offset += header.last_offset_delta
        stamped.append((header.size, base_offset, header.max_timestamp_ms))
        base_offset += 1
        bytes_max -= header.size
    return stamped


def plain_replicas(
    records, int64_t next_offset, int32_t leader_epoch, *, int64_t offset_max, int64_t timestamp_ms_max
):
    """See `scan_pure`."""
    cdef list found = []
    cdef Header header
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef int64_t left
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        at, left = <const uint8_t*>view.buf, view.len
        while left >= HEADER_SIZE:
            load_header(at, &header)
            if (
                not is_sound(&header)
                or header.size > left
                or header.base_offset != next_offset
                or header.last_offset_delta > offset_max - next_offset
                or header.leader_epoch != leader_epoch
                or header.producer_id != UNKNOWN
                or header.attributes & ~PRODUCERS_ATTRIBUTES
                or header.max_timestamp_ms > timestamp_ms_max
                or not has_its_crc(at, &header)
            ):
                break
            next_offset += header.last_offset_delta
            found.append((header.size, next_offset, header.max_timestamp_ms))
            next_offset += 1
            at += header.size
            left -= header.size
        return found
    finally:
        PyBuffer_Release(&view)


cdef bint has_its_crc(const uint8_t* at, const Header* header) noexcept:
    cdef uint32_t crc
    if header.size < RELEASING_BYTES_MIN:
        return barnabas_crc(at + CRC_START, header.size - CRC_START) == header.crc
    with nogil:
        crc = barnabas_crc(at + CRC_START, header.size - CRC_START)
    return crc == header.crc


cdef bint load_usual_header(const uint8_t* at, int64_t size, Header* header) except -1:
    """Load the header of a batch of `size` bytes; return whether the batch is usual. `usual_header` in `scan_pure`
    defines this."""
    cdef bint is_usual
    if size < RELEASING_BYTES_MIN:
        is_usual = size >= HEADER_SIZE and is_as_announced(at, size, header)
    else:
        with nogil:
            is_usual = is_as_announced(at, size, header)
    if is_usual and header.attributes & COMPRESSION_MASK:
        return header.record_count <= scan_pure.max_record_count(
            size - HEADER_SIZE, header.attributes & COMPRESSION_MASK
        )
    return is_usual


cdef bint is_as_announced(const uint8_t* at, int64_t size, Header* header) noexcept nogil:
    """Load the header; return whether the batch is usual, except for the count of compressed records."""
    load_header(at, header)
    return (
        is_sound(header)
        and header.size == size
        and (header.producer_id == UNKNOWN or has_sequence(header))
        and header.record_count >= 1
        and header.record_count == <int64_t>header.last_offset_delta + 1
        and not header.attributes & ~PRODUCERS_ATTRIBUTES
        and barnabas_crc(at + CRC_START, size - CRC_START) == header.crc
        and (
            header.attributes & COMPRESSION_MASK
            or are_records(at + HEADER_SIZE, at + size, header.record_count)
        )
    )


cdef inline bint has_sequence(const Header* header) noexcept nogil:
    return header.producer_id >= 0 and header.producer_epoch >= 0 and header.base_sequence >= 0
