# Decodes bodies into columns; the equivalent in Python is `codec_pure/column_decoding.py`.

@cython.final
cdef class BinaryColumn:
    """A growing Arrow column of binary values."""

    cdef Storage offsets
    cdef Storage data
    cdef Storage validity
    cdef Py_ssize_t length
    cdef Py_ssize_t null_count

    def __cinit__(self):
        self.offsets = Storage.__new__(Storage, FIRST_CAPACITY)
        self.data = Storage.__new__(Storage, FIRST_CAPACITY)
        self.validity = Storage.__new__(Storage, FIRST_CAPACITY)
        (<int32_t*>self.offsets.data)[0] = 0
        self.offsets.size = 4

    cdef bint reserve(self, Py_ssize_t rows, Py_ssize_t data_bytes) noexcept nogil:
        """Reserve memory, so that `put` needs no check; return False if memory is exhausted."""
        cdef Py_ssize_t more = (self.length + rows + 7) // 8 - self.validity.size
        if not (self.offsets.reserve(4 * rows) and self.data.reserve(data_bytes) and self.validity.reserve(more)):
            return False
        if more > 0:
            memset(self.validity.data + self.validity.size, 0, more)
            self.validity.size += more
        return True

    cdef inline void put(self, const uint8_t* value, int32_t size) noexcept nogil:
        cdef uint8_t* bits = self.validity.data + (self.length >> 3)
        if size < 0:
            self.null_count += 1
        else:
            memcpy(self.data.data + self.data.size, value, size)
            self.data.size += size
            bits[0] = bits[0] | <uint8_t>(1 << (self.length & 7))
        self.length += 1
        (<int32_t*>self.offsets.data)[self.length] = <int32_t>self.data.size
        self.offsets.size += 4

    cdef object buffers(self):
        validity = memoryview(self.validity)[: (self.length + 7) // 8] if self.null_count else None
        return BinaryBuffers(self.length, memoryview(self.offsets), memoryview(self.data), validity, self.null_count)


@cython.final
cdef class ColumnDecoder:
    """Collects the records of many batches as columns; see `codec_pure`."""

    cdef Storage offsets
    cdef Storage timestamps_ms
    cdef Storage timestamp_types
    cdef BinaryColumn keys
    cdef BinaryColumn values
    cdef bint include_headers
    cdef Storage header_offsets
    cdef BinaryColumn header_names
    cdef BinaryColumn header_values
    cdef bint names_are_ascii
    cdef RowTable table
    cdef Py_ssize_t length
    cdef bint _busy

    def __init__(self, bint include_headers=True):
        self.include_headers = include_headers
        self.table = RowTable()
        self.start()

    cdef void start(self):
        self.length = 0
        self.offsets = Storage.__new__(Storage, FIRST_CAPACITY)
        self.timestamps_ms = Storage.__new__(Storage, FIRST_CAPACITY)
        self.timestamp_types = Storage.__new__(Storage, FIRST_CAPACITY)
        self.keys = BinaryColumn()
        self.values = BinaryColumn()
        self.header_offsets = Storage.__new__(Storage, FIRST_CAPACITY)
        (<int32_t*>self.header_offsets.data)[0] = 0
        self.header_offsets.size = 4
        self.header_names = BinaryColumn()
        self.header_values = BinaryColumn()
        self.names_are_ascii = True

    def __len__(self):
        return self.length

    @property
    def size_bytes(self):
        """The size of the collected keys, values and headers, in bytes."""
        return (
            self.keys.data.size + self.values.data.size + self.header_names.data.size + self.header_values.data.size
        )

    @property
    def last_offset(self):
        """The offset of the last collected record. At least one record must have been collected."""
        assert self.length
        return (<int64_t*>self.offsets.data)[self.length - 1]

    def stretches(self, Py_ssize_t row, int64_t width_ms):
        """Group the records in the rows from `row` on by timestamp windows; see `codec_pure`."""
        cdef StretchList stretches = StretchList(width_ms)
        cdef const int64_t* offsets = <const int64_t*>self.offsets.data
        cdef const int64_t* timestamps_ms = <const int64_t*>self.timestamps_ms.data
        cdef Py_ssize_t place
        self.check_free()
        for place in range(max(0, row), self.length):
            stretches.add(offsets[place], timestamps_ms[place])
        stretches.end()
        return stretches.found

    def decode(
        self,
        body,
        header,
        int64_t min_offset=0,
        int64_t max_offset=codec_pure.OFFSET_MAX,
        Py_ssize_t max_records=codec_pure.OFFSET_MAX,
    ):
        """Add the records of a body; return their number; see `codec_pure`."""
        cdef View view = View(body, 0)
        cdef int timestamp_type = header.timestamp_type
        cdef bint sound = False
        cdef Py_ssize_t added = 0
        codec_pure.check_column_room(self.size_bytes, view.size)
        self.check_free()
        self._busy = True
        try:
            self.table.prepare(view.size, header)
            # The interpreter lock is released at most once, because acquiring it again may take longer than the
            # decoding.
            if view.size < RELEASING_BYTES_MIN:
                sound = self.table.fill(view.at, view.size)
                if sound:
                    added = self.take(view.at, view.size, timestamp_type, min_offset, max_offset, max_records)
            else:
                with nogil:
                    sound = self.table.fill(view.at, view.size)
                    if sound:
                        added = self.take(view.at, view.size, timestamp_type, min_offset, max_offset, max_records)
            if not sound:
                self.table.complain(view.at, view.size, header)
            if added == NO_ROOM:
                raise MemoryError
            return added
        finally:
            self._busy = False

    cdef int check_free(self) except -1:
        """Raise an error if another thread is adding records to this decoder without the interpreter lock."""
        if self._busy:
            raise BufferError("this decoder is in use by another thread")
        return 0

    cdef Py_ssize_t take(
        self,
        const uint8_t* body,
        Py_ssize_t size,
        int timestamp_type,
        int64_t min_offset,
        int64_t max_offset,
        Py_ssize_t max_records,
    ) noexcept nogil:
        """Add the requested rows of the table; return their number, or NO_ROOM."""
        cdef Py_ssize_t first = self.table.lower_bound(self.table.count, min_offset)
        cdef Py_ssize_t last = self.table.lower_bound(self.table.count, max_offset)
        if last < first:
            last = first
        if max_records < last - first:
            last = first + (max_records if max_records > 0 else 0)
        if not self.take_rows(body, size, first, last, timestamp_type):
            return NO_ROOM
        return last - first

    cdef bint take_rows(
        self, const uint8_t* body, Py_ssize_t size, Py_ssize_t first, Py_ssize_t last, int timestamp_type
    ) noexcept nogil:
        cdef Py_ssize_t more = last - first
        cdef Py_ssize_t place
        cdef Py_ssize_t key_bytes = 0
        cdef Py_ssize_t value_bytes = 0
        cdef Row* row
        if more <= 0:
            return True
        for place in range(first, last):
            row = self.table.rows + place
            if row.key_size > 0:
                key_bytes += row.key_size
            if row.value_size > 0:
                value_bytes += row.value_size
        if not (
            self.offsets.reserve(8 * more)
            and self.timestamps_ms.reserve(8 * more)
            and self.timestamp_types.reserve(more)
            and self.keys.reserve(more, key_bytes)
            and self.values.reserve(more, value_bytes)
        ):
            return False
        memset(self.timestamp_types.data + self.length, timestamp_type, more)
        for place in range(first, last):
            row = self.table.rows + place
            (<int64_t*>self.offsets.data)[self.length] = row.offset
            (<int64_t*>self.timestamps_ms.data)[self.length] = row.timestamp_ms
            self.keys.put(body + row.key_position, row.key_size)
            self.values.put(body + row.value_position, row.value_size)
            self.length += 1
        self.offsets.size += 8 * more
        self.timestamps_ms.size += 8 * more
        self.timestamp_types.size += more
        return not self.include_headers or self.take_headers(body, size, first, last)

    cdef bint take_headers(self, const uint8_t* body, Py_ssize_t size, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
        cdef const uint8_t* at
        cdef const uint8_t* end = body + size
        cdef Py_ssize_t place, position
        cdef int64_t length
        cdef int32_t index
        cdef Row* row
        if not self.header_offsets.reserve(4 * (last - first)):
            return False
        for place in range(first, last):
            row = self.table.rows + place
            at = body + row.headers_position
            for index in range(row.header_count):
                at = read_varint(at, end, &length)
                if not self.header_names.reserve(1, length):
                    return False
                for position in range(length):
                    if at[position] >= 0x80:
                        self.names_are_ascii = False
                self.header_names.put(at, <int32_t>length)
                at = read_varint(at + length, end, &length)
                if not self.header_values.reserve(1, max(0, length)):
                    return False
                self.header_values.put(at, <int32_t>length if length >= 0 else NULL_SIZE)
                if length > 0:
                    at += length
            (<int32_t*>(self.header_offsets.data + self.header_offsets.size))[0] = <int32_t>self.header_names.length
            self.header_offsets.size += 4
        return True

    def finish(self):
        """Return the collected records as the buffers of Arrow columns, and reset the decoder."""
        self.check_free()
        headers = None
        if self.include_headers:
            names = self.header_names.buffers()
            if not self.names_are_ascii:
                names = codec_pure.with_valid_names(names)
            headers = HeaderBuffers(memoryview(self.header_offsets), names, self.header_values.buffers())
        buffers = ColumnBuffers(
            self.length,
            memoryview(self.offsets),
            memoryview(self.timestamps_ms),
            memoryview(self.timestamp_types),
            self.keys.buffers(),
            self.values.buffers(),
            headers,
        )
        self.start()
        return buffers
