# Scans the batches of a segment; the equivalent in Python is `SegmentScan` of `scan_pure.py`.

@cython.final
@cython.no_gc
cdef class SegmentScan:
    """A scan of a segment; `scan_pure` describes its parameters and attributes."""

    cdef readonly int64_t base_offset
    cdef readonly int64_t next_offset
    cdef readonly int64_t size
    cdef readonly int64_t wanted_bytes
    cdef readonly str damage
    cdef readonly int64_t batch_count
    cdef readonly int64_t bytes_since_entry
    cdef readonly int64_t epoch
    cdef readonly int64_t first_last_offset
    cdef readonly int64_t max_timestamp_ms
    cdef readonly int64_t max_timestamp_offset
    cdef int64_t first_batch_timestamp_ms
    cdef int64_t last_time_entry_ms
    cdef bint has_time_entry
    cdef int64_t end
    cdef int64_t index_interval_bytes
    cdef int64_t gaps_up_to
    cdef bint check_crc
    cdef bint busy
    cdef Column offset_offsets
    cdef Column offset_positions
    cdef Column time_timestamps
    cdef Column time_offsets
    cdef Column epoch_numbers
    cdef Column epoch_starts
    cdef Producers kept_producers

    def __cinit__(
        self,
        int64_t base_offset,
        *,
        next_offset=None,
        int64_t index_interval_bytes=4096,
        bint check_crc,
        int32_t epoch=UNKNOWN,
        int64_t position=0,
        end=None,
        int64_t bytes_since_entry=0,
        int64_t max_timestamp_ms=UNKNOWN,
        int64_t max_timestamp_offset=UNKNOWN,
        int64_t gaps_up_to=0,
    ):
        if next_offset is None:
            next_offset = UNKNOWN if position else base_offset
        scan_pure.check_scan_range(base_offset, next_offset, position, end, max_timestamp_offset)
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.size = position
        self.wanted_bytes = HEADER_SIZE
        self.bytes_since_entry = bytes_since_entry
        self.epoch = epoch
        self.first_last_offset = UNKNOWN
        self.max_timestamp_ms = max_timestamp_ms
        self.max_timestamp_offset = max_timestamp_offset
        self.last_time_entry_ms = max_timestamp_ms
        self.has_time_entry = max_timestamp_offset != UNKNOWN
        self.end = UNKNOWN if end is None else end
        self.index_interval_bytes = index_interval_bytes
        self.check_crc = check_crc
        self.gaps_up_to = gaps_up_to

    def __dealloc__(self):
        free(self.offset_offsets.data)
        free(self.offset_positions.data)
        free(self.time_timestamps.data)
        free(self.time_offsets.data)
        free(self.epoch_numbers.data)
        free(self.epoch_starts.data)
        free(self.kept_producers.items)
        free(self.kept_producers.places)

    @property
    def first_timestamp_ms(self):
        return self.first_batch_timestamp_ms if self.batch_count else None

    @property
    def epochs(self):
        self.check_idle()
        return list(zip(column_array("i", &self.epoch_numbers), column_array("q", &self.epoch_starts), strict=True))

    @property
    def offset_entries(self):
        self.check_idle()
        return column_array("I", &self.offset_offsets), column_array("I", &self.offset_positions)

    @property
    def time_entries(self):
        self.check_idle()
        return column_array("q", &self.time_timestamps), column_array("I", &self.time_offsets)

    @property
    def producers(self):
        self.check_idle()
        return {
            self.kept_producers.items[i].producer_id: producer_tuple(&self.kept_producers.items[i])
            for i in range(self.kept_producers.count)
        }

    def feed(self, chunk, int64_t position):
        cdef Py_buffer view
        cdef Outcome outcome
        self.check_idle()
        if position != self.size:
            raise ValueError(f"the chunk begins at position {position}, but the scan continues at {self.size}")
        PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE)
        try:
            if self.damage is not None:
                return self.size
            self.busy = True
            if view.len >= RELEASING_BYTES_MIN:
                with nogil:
                    outcome = self.take_batches(<const uint8_t*>view.buf, view.len)
            else:
                outcome = self.take_batches(<const uint8_t*>view.buf, view.len)
            self.busy = False
            if outcome == NO_MEMORY:
                raise MemoryError
            if outcome == DAMAGED:
                self.damage = self.describe_damage(chunk, self.size - position)
        finally:
            PyBuffer_Release(&view)
        return self.size

    cdef int check_idle(self) except -1:
        if self.busy:
            raise RuntimeError("another thread is feeding this scan")
        return 0

    cdef str describe_damage(self, chunk, int64_t at):
        expected = scan_pure.Expected(self.base_offset, self.next_offset, self.epoch, self.end, self.gaps_up_to)
        with memoryview(chunk) as whole:
            damage = scan_pure.damage_at(whole, at, self.size, expected, check_crc=self.check_crc)
        assert damage is not None, "the two implementations disagree, or the chunk changed while it was read"
        return damage

    cdef Outcome take_batches(self, const uint8_t* chunk, int64_t length) noexcept nogil:
        """Process the complete batches in a chunk that begins at `size`, up to the first damaged batch."""
        cdef int64_t start = self.size
        cdef int64_t at
        cdef Header header
        while True:
            at = self.size - start
            if self.end != UNKNOWN and self.size >= self.end:
                return STOPPED
            if self.end != UNKNOWN and self.end - self.size < HEADER_SIZE:
                return DAMAGED
            if length - at < HEADER_SIZE:
                return STOPPED
            load_header(chunk + at, &header)
            if not is_sound(&header) or not self.is_in_place(&header):
                return DAMAGED
            if self.check_crc:
                if header.size > length - at:
                    self.wanted_bytes = header.size
                    return STOPPED
                if barnabas_crc(chunk + at + CRC_START, header.size - CRC_START) != header.crc:
                    return DAMAGED
            if not self.note(&header):
                return NO_MEMORY
            self.wanted_bytes = HEADER_SIZE

    cdef inline bint is_in_place(self, const Header* header) noexcept nogil:
        """Return whether a valid header is the expected next header."""
        cdef int64_t delta = header.last_offset_delta
        return (
            (self.end == UNKNOWN or header.size <= self.end - self.size)
            and header.size <= INT32_MAX - self.size
            and (
                self.next_offset == UNKNOWN
                or header.base_offset == self.next_offset
                or self.next_offset < header.base_offset <= self.gaps_up_to
            )
            and header.base_offset >= self.base_offset
            and header.base_offset < INT64_MAX - delta
            and header.base_offset - self.base_offset <= INT32_MAX - delta
            and header.leader_epoch >= self.epoch
        )

    cdef inline bint note(self, const Header* header) noexcept nogil:
        """Count a batch. Return False if memory is exhausted; the scan is unchanged then."""
        cdef int64_t last_offset = header.base_offset + header.last_offset_delta
        cdef Producer* producer = NULL
        if not self.reserve_all():
            return False
        if header.producer_id != UNKNOWN and not header.attributes & CONTROL_MASK:
            producer = find_producer(&self.kept_producers, header.producer_id)
            if producer == NULL:
                return False
            add_batch(producer, header)
        if self.batch_count == 0:
            self.first_last_offset = last_offset
            self.first_batch_timestamp_ms = header.max_timestamp_ms
        self.batch_count += 1
        if header.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if self.bytes_since_entry > self.index_interval_bytes:
            self.add_entries(last_offset)
            self.bytes_since_entry = 0
        self.bytes_since_entry += header.size
        self.size += header.size
        self.next_offset = last_offset + 1
        if header.leader_epoch != self.epoch:
            self.epoch = header.leader_epoch
            push_uint32(&self.epoch_numbers, <uint32_t>header.leader_epoch)
            push_int64(&self.epoch_starts, header.base_offset)
        return True

    cdef inline bint reserve_all(self) noexcept nogil:
        return (
            reserve(&self.offset_offsets, sizeof(uint32_t))
            and reserve(&self.offset_positions, sizeof(uint32_t))
            and reserve(&self.time_timestamps, sizeof(int64_t))
            and reserve(&self.time_offsets, sizeof(uint32_t))
            and reserve(&self.epoch_numbers, sizeof(uint32_t))
            and reserve(&self.epoch_starts, sizeof(int64_t))
        )

    cdef void add_entries(self, int64_t last_offset) noexcept nogil:
        push_uint32(&self.offset_offsets, <uint32_t>(last_offset - self.base_offset))
        push_uint32(&self.offset_positions, <uint32_t>self.size)
        if self.max_timestamp_offset != UNKNOWN and not (
            self.has_time_entry and self.max_timestamp_ms <= self.last_time_entry_ms
        ):
            push_int64(&self.time_timestamps, self.max_timestamp_ms)
            push_uint32(&self.time_offsets, <uint32_t>(self.max_timestamp_offset - self.base_offset))
            self.has_time_entry = True
            self.last_time_entry_ms = self.max_timestamp_ms
