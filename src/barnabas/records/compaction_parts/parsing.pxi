# Finds untrusted batches and records, and checks them before their fields are used.

cdef struct Walk:
    # An iteration over complete batches. `at` is the position of the next batch, and `next_offset` its lowest valid
    # base offset.
    const uint8_t* data
    int64_t size
    int64_t at
    int64_t next_offset


cdef Outcome find_batch(const Walk* walk, Header* header) noexcept nogil:
    """Load and check the batch at `walk.at`; return FOUND, DAMAGED, or STOPPED if the batch is incomplete."""
    cdef const uint8_t* at = walk.data + walk.at
    cdef int64_t left = walk.size - walk.at
    if left < HEADER_SIZE:
        return STOPPED
    load_header(at, header)
    if (
        not is_sound(header)
        or header.base_offset < walk.next_offset
        or header.base_offset >= INT64_MAX - header.last_offset_delta
    ):
        return DAMAGED
    if header.size > left:
        return STOPPED
    if barnabas_crc(at + CRC_START, header.size - CRC_START) != header.crc:
        return DAMAGED
    return FOUND


cdef inline void pass_batch(Walk* walk, const Header* header) noexcept nogil:
    walk.at += header.size
    walk.next_offset = header.base_offset + header.last_offset_delta + 1


cdef inline bint is_compressed(const Header* header) noexcept nogil:
    """Return whether the body must be decompressed. The body of a batch without records is empty and never
    compressed."""
    return header.attributes & COMPRESSION_MASK and not (header.size == HEADER_SIZE and header.record_count == 0)


cdef inline bint are_in_range(const Header* header, int64_t size) noexcept nogil:
    """Do the same checks as `check_ranges` in `codec_pure`, for an uncompressed body of `size` bytes."""
    return (
        header.record_count <= size // RECORD_SIZE_MIN
        and size <= INT32_MAX
    )


cdef struct Candidate:
    # The fields of a record that compaction uses. Positions are relative to the beginning of the body.
    int64_t offset
    int64_t timestamp_ms
    int32_t start
    int32_t end
    int32_t key_position
    int32_t key_size
    bint is_tombstone
    Hash hash


cdef const uint8_t* parse_record(
    const uint8_t* body, const uint8_t* at, const uint8_t* body_end, const Header* header, int64_t* previous,
    Candidate* record,
) noexcept nogil:
    """Return the position after the record at `at`, or NULL if the record is damaged. `previous` is the offset delta of
    the previous record.

    The checks are the same as in `parse_rows` in `codec_parts/decoding.pxi`. In addition, offset deltas must always
    ascend, because the remaining records keep their offset deltas.
    """
    cdef const uint8_t* end
    cdef int64_t length, number
    cdef int64_t delta = 0
    cdef int32_t value_position, value_size
    record.start = <int32_t>(at - body)
    at = read_varint(at, body_end, &length)
    if at == NULL or length < 1 or length > body_end - at:
        return NULL
    end = at + length
    at = read_varint(at + 1, end, &delta)
    if at == NULL:
        return NULL
    record.timestamp_ms = wrapping_sum(header.base_timestamp_ms, delta)
    at = read_varint(at, end, &delta)
    if at == NULL or delta <= previous[0] or delta > header.last_offset_delta:
        return NULL
    previous[0] = delta
    record.offset = header.base_offset + delta
    at = read_any_blob(body, at, end, &record.key_position, &record.key_size)
    at = read_any_blob(body, at, end, &value_position, &value_size)
    at = read_varint(at, end, &number)
    if at == NULL:
        return NULL
    if number:
        at = skip_headers(at, end, number)
    if at != end:
        return NULL
    record.is_tombstone = value_size == NULL_SIZE
    record.end = <int32_t>(end - body)
    return end


cdef object header_at(batches, const Walk* walk):
    """Return the header of the batch at `walk.at`, as an object."""
    return read_header(batches, walk.at)


cdef tuple KINDS = tuple(Compression)


cdef object decompressed_body(batches, const Walk* walk, const Header* header, decompressor):
    """Return the body of the batch at `walk.at`, decompressed."""
    with memoryview(batches) as view:
        try:
            return decompressor.decompress(
                KINDS[header.attributes & COMPRESSION_MASK], view[walk.at + HEADER_SIZE : walk.at + header.size]
            )
        except CorruptBatchError:
            # `compaction_pure` raises the error with the position of the batch.
            return compaction_pure.body_of(view, walk.at, header_at(view, walk), decompressor)


cdef int complain(batches, const Walk* walk, decompressor) except -1:
    """Raise the error for the batch at `walk.at`, as `compaction_pure` does."""
    with memoryview(batches) as view:
        header = compaction_pure.sound_header(view, walk.at, walk.next_offset)
        if header is not None:
            compaction_pure.records_of(view, walk.at, header, decompressor)
    raise AssertionError("the two implementations disagree, or the batches changed during the call")
