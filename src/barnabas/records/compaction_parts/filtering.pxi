# Filters batches; the equivalent in Python is `filter_batches` of `compaction_pure.py`.

cdef struct Scouted:
    # UNCHANGED: the batch remains unchanged, so its records were not parsed. FOUND: all records of the batch were
    # parsed. COMPRESSED and LARGE batches are parsed later, when they are filtered.
    Outcome kind
    Header header
    Candidate* records


@cython.final
cdef class Sieve:
    """One call of `filter_batches`."""

    cdef OffsetMap offset_map
    cdef int64_t now_ms
    cdef int64_t horizon_ms
    cdef int64_t round_end_offset
    cdef Walk walk
    cdef Header header
    # The batches from `walk.at` on that were parsed in advance.
    cdef Scouted scouted[GROUP]
    cdef int32_t scouted_count
    cdef int32_t scouted_next
    cdef Candidate records[GROUP]
    # The remaining records of the batch at `walk.at`: in `kept`, or in `counted` with timestamps relative to the
    # horizon.
    cdef Storage kept
    cdef Storage counted
    cdef bint has_new_horizon
    cdef bint has_tombstone
    cdef int32_t copied_end
    cdef int32_t kept_count
    cdef int64_t kept_timestamp_ms
    # Changed batches, and short runs of unchanged batches between them. The bytes from `output_start` on do not belong
    # to a piece yet.
    cdef Storage output
    cdef int64_t output_start
    cdef list pieces
    # The start of the run of unchanged batches that ends at `walk.at`.
    cdef int64_t run_start
    cdef int64_t bytes_kept
    cdef int64_t batches_read
    cdef int64_t batches_kept
    cdef int64_t records_read
    cdef int64_t records_kept

    def __cinit__(self, OffsetMap offset_map, filtering):
        self.offset_map = offset_map
        self.now_ms = filtering.now_ms
        self.horizon_ms = compaction_pure.delete_horizon(filtering)
        self.round_end_offset = filtering.round_end_offset
        self.kept = Storage()
        self.counted = Storage()
        self.output = Storage()
        self.pieces = []

    cdef Outcome sift_batches(self) noexcept nogil:
        """Process batches up to the first batch that is compressed, damaged or incomplete, or that is EMPTIED but may
        have to remain."""
        cdef Outcome outcome
        cdef Scouted* batch
        while True:
            if self.scouted_next == self.scouted_count:
                outcome = self.scout()
                if self.scouted_count == 0:
                    return outcome
            batch = &self.scouted[self.scouted_next]
            self.scouted_next += 1
            self.header = batch.header
            outcome = self.sift_scouted(batch)
            if outcome == CHANGED:
                outcome = self.write_left()
            elif outcome == EMPTIED and self.is_needless():
                outcome = self.drop_batch()
            if outcome == UNCHANGED:
                self.keep_batch()
            elif outcome != WRITTEN:
                return outcome

    cdef Outcome scout(self) noexcept nogil:
        """Parse the next few batches, and prefetch the map entries of their keys; return the reason to stop.

        Memory access is slow. With batches of one record, there would be no other work while an entry is loaded.
        """
        cdef Walk ahead = self.walk
        cdef Outcome outcome
        cdef Scouted* batch
        cdef int32_t record_count = 0
        self.scouted_count = self.scouted_next = 0
        while self.scouted_count < GROUP:
            batch = &self.scouted[self.scouted_count]
            outcome = find_batch(&ahead, &batch.header)
            if outcome != FOUND:
                return outcome
            self.scouted_count += 1
            if batch.header.attributes & CONTROL_MASK or batch.header.base_offset >= self.offset_map.end_offset:
                batch.kind = UNCHANGED
            elif is_compressed(&batch.header):
                batch.kind = COMPRESSED
                break
            elif batch.header.record_count > GROUP - record_count or not self.scout_records(
                &batch.header, ahead.data + ahead.at + HEADER_SIZE, &self.records[record_count]
            ):
                batch.kind = LARGE
                break
            else:
                batch.kind = FOUND
                batch.records = &self.records[record_count]
                record_count += batch.header.record_count
            pass_batch(&ahead, &batch.header)
        return FOUND

    cdef bint scout_records(self, const Header* header, const uint8_t* body, Candidate* records) noexcept nogil:
        """Parse all records of a small batch; return False if it is damaged."""
        cdef const uint8_t* end = body + header.size - HEADER_SIZE
        cdef int64_t previous = -1
        return are_in_range(header, end - body) and end == self.find_records(
            header, body, body, end, header.record_count, &previous, records
        )

    cdef inline const uint8_t* find_records(
        self, const Header* header, const uint8_t* body, const uint8_t* at, const uint8_t* end, int32_t count,
        int64_t* previous, Candidate* records,
    ) noexcept nogil:
        """Parse the next records of a body; return the position after them, or NULL if a record is damaged."""
        cdef int32_t i
        for i in range(count):
            at = parse_record(body, at, end, header, previous, &records[i])
            if at == NULL:
                return NULL
            self.offset_map.prepare(body, &records[i])
        return at

    cdef inline Outcome sift_scouted(self, const Scouted* batch) noexcept nogil:
        cdef const uint8_t* body = self.walk.data + self.walk.at + HEADER_SIZE
        if batch.kind == LARGE:
            return self.sift(body, self.header.size - HEADER_SIZE)
        if batch.kind != FOUND:
            return batch.kind
        self.begin_batch()
        if not self.judge(body, batch.records, self.header.record_count):
            return NO_MEMORY
        return self.end_batch(body, self.header.size - HEADER_SIZE)

    cdef Outcome sift(self, const uint8_t* body, int64_t size) noexcept nogil:
        """Filter an uncompressed body; return UNCHANGED, CHANGED, EMPTIED, DAMAGED or NO_MEMORY."""
        cdef const uint8_t* at = body
        cdef int64_t previous = -1
        cdef int32_t left = self.header.record_count
        cdef int32_t count
        if not are_in_range(&self.header, size):
            return DAMAGED
        self.begin_batch()
        while left:
            count = min(left, <int32_t>GROUP)
            left -= count
            at = self.find_records(&self.header, body, at, body + size, count, &previous, self.records)
            if at == NULL:
                return DAMAGED
            if not self.judge(body, self.records, count):
                return NO_MEMORY
        return self.end_batch(body, size) if at == body + size else DAMAGED

    cdef inline void begin_batch(self) noexcept nogil:
        self.kept.size = 0
        self.copied_end = 0
        self.kept_count = 0
        self.kept_timestamp_ms = UNKNOWN
        self.has_tombstone = self.has_new_horizon = False

    cdef inline bint judge(self, const uint8_t* body, const Candidate* records, int32_t count) noexcept nogil:
        """Copy the records that remain; return False if memory is exhausted."""
        cdef int32_t i
        for i in range(count):
            if self.stays(&records[i]):
                self.kept_count += 1
                self.has_tombstone |= records[i].is_tombstone
                self.kept_timestamp_ms = max(self.kept_timestamp_ms, records[i].timestamp_ms)
            else:
                if not append(self.kept, body + self.copied_end, records[i].start - self.copied_end):
                    return False
                self.copied_end = records[i].end
        return True

    cdef Outcome end_batch(self, const uint8_t* body, int64_t size) noexcept nogil:
        """Return the outcome of a body after all its records were filtered."""
        cdef bint is_whole = self.kept_count == self.header.record_count
        cdef bint wants_horizon = self.has_tombstone and not self.header.attributes & DELETE_HORIZON_MASK
        if self.kept_count == 0:
            return EMPTIED
        if is_whole and not wants_horizon:
            return UNCHANGED
        if not append(self.kept, body + self.copied_end, size - self.copied_end):
            return NO_MEMORY
        if wants_horizon:
            outcome = self.count_from_horizon()
            if outcome != UNCHANGED or is_whole:
                return outcome
        return CHANGED

    cdef inline bint stays(self, const Candidate* record) noexcept nogil:
        cdef const uint8_t* entry
        if record.offset >= self.offset_map.end_offset:
            return True
        if record.key_size == NULL_SIZE or (
            record.is_tombstone
            and self.header.attributes & DELETE_HORIZON_MASK
            and self.now_ms >= self.header.base_timestamp_ms
        ):
            return False
        entry = self.offset_map.find(record.hash)
        return entry == NULL or <int64_t>stored_offset(entry) - 1 <= record.offset - self.offset_map.base_offset

    cdef Outcome count_from_horizon(self) noexcept nogil:
        """Copy the remaining records with timestamps relative to the horizon; return CHANGED or NO_MEMORY. Return
        UNCHANGED if the batch would become too large; see `_parts_from` in `compaction_pure`."""
        cdef const uint8_t* at = self.kept.data
        cdef const uint8_t* kept_end = at + self.kept.size
        cdef const uint8_t* end
        cdef uint8_t* out
        cdef uint8_t attributes
        cdef int64_t length, delta, timestamp_ms
        self.counted.size = 0
        while at < kept_end:
            at = read_varint(at, kept_end, &length)
            end = at + length
            attributes = at[0]
            at = read_varint(at + 1, end, &delta)
            timestamp_ms = wrapping_sum(self.header.base_timestamp_ms, delta)
            delta = wrapping_difference(timestamp_ms, self.horizon_ms)
            length = 1 + varint_size(delta) + (end - at)
            if not self.counted.reserve(length + VARINT_BYTES_MAX):
                return NO_MEMORY
            out = write_varint(self.counted.data + self.counted.size, length)
            out[0] = attributes
            out = write_varint(out + 1, delta)
            memcpy(out, at, end - at)
            self.counted.size = out + (end - at) - self.counted.data
            at = end
            if self.counted.size > INT32_MAX - HEADER_SIZE:
                return UNCHANGED
        self.has_new_horizon = True
        return CHANGED

    cdef inline bint is_needless(self) noexcept nogil:
        """Return whether a batch can be removed after all its records were removed."""
        return self.header.producer_id == UNKNOWN and (
            self.header.base_offset + self.header.last_offset_delta + 1 != self.round_end_offset
        )

    cdef inline void keep_batch(self) noexcept nogil:
        self.batches_kept += 1
        self.records_kept += self.header.record_count
        self.bytes_kept += self.header.size
        self.pass_batch()

    cdef inline void pass_batch(self) noexcept nogil:
        self.batches_read += 1
        self.records_read += self.header.record_count
        pass_batch(&self.walk, &self.header)

    cdef Outcome drop_batch(self) noexcept nogil:
        """Continue after a batch that is removed or changed; return WRITTEN or NO_MEMORY."""
        if not self.end_run():
            return NO_MEMORY
        self.pass_batch()
        self.run_start = self.walk.at
        return WRITTEN

    cdef inline Outcome write_left(self) noexcept nogil:
        if self.has_new_horizon:
            return self.write_batch(self.counted.data, self.counted.size)
        return self.write_batch(self.kept.data, self.kept.size)

    cdef Outcome write_batch(self, const uint8_t* body, int64_t size) noexcept nogil:
        """Write the remaining records of the batch with the original compression; return WRITTEN or NO_MEMORY."""
        cdef int64_t batch_size = HEADER_SIZE + size
        cdef uint8_t* out
        if not self.end_run() or not self.output.reserve(batch_size):
            return NO_MEMORY
        out = self.output.data + self.output.size
        memcpy(out, self.walk.data + self.walk.at, HEADER_SIZE)
        memcpy(out + HEADER_SIZE, body, size)
        barnabas_put_big(out + 8, 4, batch_size - LENGTH_OVERHEAD)
        if self.has_new_horizon:
            barnabas_put_big(out + 21, 2, self.header.attributes | DELETE_HORIZON_MASK)
            barnabas_put_big(out + 27, 8, self.horizon_ms)
        if not self.header.attributes & TIMESTAMP_TYPE_MASK:
            barnabas_put_big(out + 35, 8, self.kept_timestamp_ms)
        barnabas_put_big(out + 57, 4, self.kept_count)
        barnabas_put_big(out + 17, 4, barnabas_crc(out + CRC_START, batch_size - CRC_START))
        return self.note_written(batch_size, self.kept_count)

    cdef Outcome note_written(self, int64_t batch_size, int32_t record_count) noexcept nogil:
        """Count a batch that was appended to `output`, and start a new run after it."""
        self.output.size += batch_size
        self.bytes_kept += batch_size
        self.batches_kept += 1
        self.records_kept += record_count
        return self.drop_batch()

    cdef bint end_run(self) noexcept nogil:
        """Add the run of unchanged batches before `walk.at` to the output. A long run is added as a view of the input.

        Return False if memory is exhausted.
        """
        cdef int64_t size = self.walk.at - self.run_start
        if size < VIEW_BYTES_MIN:
            if not append(self.output, self.walk.data + self.run_start, size):
                return False
        elif not (self.end_output() and self.add_piece(True, self.run_start, self.walk.at)):
            return False
        self.run_start = self.walk.at
        return True

    cdef bint end_output(self) noexcept nogil:
        cdef int64_t start = self.output_start
        self.output_start = self.output.size
        return start == self.output.size or self.add_piece(False, start, self.output.size)

    cdef bint add_piece(self, bint is_view, int64_t start, int64_t end) noexcept with gil:
        try:
            self.pieces.append((is_view, start, end))
        except MemoryError:
            return False
        return True

    cdef Outcome sift_compressed(self, body) except *:
        """Process a compressed batch after its decompression, as `sift_batches` does for uncompressed batches."""
        cdef Py_buffer view
        cdef Outcome outcome
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        with nogil:
            outcome = self.sift(<const uint8_t*>view.buf, view.len)
        PyBuffer_Release(&view)
        if outcome == UNCHANGED:
            self.keep_batch()
            return WRITTEN
        if outcome != CHANGED:
            return outcome
        with memoryview(self.counted if self.has_new_horizon else self.kept) as left:
            compressed = compress(Compression(self.header.attributes & COMPRESSION_MASK), left)
        PyObject_GetBuffer(compressed, &view, PyBUF_SIMPLE)
        outcome = self.write_batch(<const uint8_t*>view.buf, view.len)
        PyBuffer_Release(&view)
        return outcome

    cdef Outcome write_empty(self, header) except *:
        """Write the batch without its records, unless it already has none."""
        cdef bytes empty
        if header.size == HEADER_SIZE:
            self.keep_batch()
            return WRITTEN
        empty = bytes(compaction_pure.empty_batch(header))
        if not self.end_run() or not append(self.output, <const uint8_t*>PyBytes_AS_STRING(empty), HEADER_SIZE):
            return NO_MEMORY
        self.output.size -= HEADER_SIZE
        return self.note_written(HEADER_SIZE, 0)

    cdef object filtered(self, batches):
        """Return the remaining batches up to `walk.at`."""
        if not (self.end_run() and self.end_output()):
            raise MemoryError
        given, changed = memoryview(batches), memoryview(self.output)
        return Filtered(
            [(given if is_view else changed)[start:end] for is_view, start, end in self.pieces],
            self.walk.at,
            self.bytes_kept,
            self.batches_read,
            self.batches_kept,
            self.records_read,
            self.records_kept,
            self.walk.next_offset if self.batches_read else UNKNOWN,
        )


cdef bint append(Storage storage, const uint8_t* data, int64_t size) noexcept nogil:
    """Append bytes; return False if memory is exhausted."""
    if not storage.reserve(size):
        return False
    memcpy(storage.data + storage.size, data, size)
    storage.size += size
    return True


def filter_batches(batches, OffsetMap offset_map not None, filtering):
    """Remove superseded records from batches; see `compaction_pure`."""
    cdef Sieve sieve = Sieve(offset_map, filtering)
    cdef Py_buffer view
    PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
    try:
        offset_map.check_idle()
        offset_map.readers += 1
        try:
            sieve.walk = Walk(<const uint8_t*>view.buf, view.len, 0, 0)
            return filtered_by(sieve, batches, filtering)
        finally:
            offset_map.readers -= 1
    finally:
        PyBuffer_Release(&view)


cdef object filtered_by(Sieve sieve, batches, filtering):
    cdef Outcome outcome
    decompressor = Decompressor(filtering.decompressed_bytes_max)
    while True:
        with nogil:
            outcome = sieve.sift_batches()
        if outcome == COMPRESSED:
            outcome = sieve.sift_compressed(decompressed_body(batches, &sieve.walk, &sieve.header, decompressor))
        if outcome == EMPTIED:
            header = header_at(batches, &sieve.walk)
            outcome = sieve.write_empty(header) if compaction_pure.must_stay(header, filtering) else sieve.drop_batch()
        if outcome == DAMAGED:
            complain(batches, &sieve.walk, decompressor)
        if outcome == NO_MEMORY:
            raise MemoryError
        if outcome == STOPPED:
            return sieve.filtered(batches)
