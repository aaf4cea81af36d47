# Encodes records into a batch; the equivalent in Python is `codec_pure/encoding.py`.

cdef class RecordEncoder:
    """Encodes the records of one batch, in order; see `codec_pure`."""

    cdef Storage _out
    cdef readonly Py_ssize_t count
    cdef readonly int64_t base_timestamp_ms
    cdef readonly int64_t max_timestamp_ms
    cdef readonly int64_t min_timestamp_ms
    cdef public Py_ssize_t limit_bytes
    cdef public bint closed
    cdef public object owner
    cdef bint _busy

    def __cinit__(self, *args, **kwargs):
        self._out = Storage.__new__(Storage, FIRST_CAPACITY)
        self._out.size = HEADER_SIZE
        memset(self._out.data, 0, HEADER_SIZE)
        self.base_timestamp_ms = -1
        self.max_timestamp_ms = -1
        self.min_timestamp_ms = -1
        self.limit_bytes = INT32_MAX

    @property
    def size_bytes(self):
        return self._out.size

    cdef int check_free(self) except -1:
        """Raise an error if another thread fills this encoder without the interpreter lock."""
        if self._busy:
            raise BufferError("this encoder is in use by another thread")
        return 0

    cdef int make_room(self, Py_ssize_t more) except -1:
        cdef Storage fresh
        if self._out.exports:
            # The old buffer is not reused, because a batch that was built from it may still be in use.
            fresh = Storage.__new__(Storage, 2 * self._out.size + more)
            memcpy(fresh.data, self._out.data, self._out.size)
            fresh.size = self._out.size
            self._out = fresh
        elif not self._out.reserve(more):
            raise MemoryError
        return 0

    cdef Py_ssize_t put(
        self,
        int64_t timestamp_ms,
        const uint8_t* key,
        Py_ssize_t key_size,
        const uint8_t* value,
        Py_ssize_t value_size,
        const uint8_t* headers,
        Py_ssize_t headers_size,
        Py_ssize_t limit_bytes,
    ) except -2:
        """Append one record; return its index, or NO_ROOM. Never releases the interpreter lock."""
        cdef Storage out = self._out
        cdef int64_t delta = wrapping_difference(timestamp_ms, self.base_timestamp_ms) if self.count else 0
        cdef Py_ssize_t size = 1 + varint_size(delta) + varint_size(self.count)
        cdef uint8_t* at
        size += 1 if key_size < 0 else varint_size(key_size) + key_size
        size += 1 if value_size < 0 else varint_size(value_size) + value_size
        size += headers_size if headers_size else 1
        cdef Py_ssize_t whole = varint_size(size) + size
        if whole > limit_bytes - out.size:
            return NO_ROOM
        if whole > out.capacity - out.size or out.exports:
            self.make_room(whole)
            out = self._out
        at = write_record(
            out.data + out.size, size, delta, self.count, key, key_size, value, value_size, headers, headers_size
        )
        out.size += whole
        if not self.count:
            self.base_timestamp_ms = timestamp_ms
            self.max_timestamp_ms = timestamp_ms
            self.min_timestamp_ms = timestamp_ms
        elif timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        elif timestamp_ms < self.min_timestamp_ms:
            self.min_timestamp_ms = timestamp_ms
        self.count += 1
        return self.count - 1

    def append(self, timestamp_ms, key, value, headers=(), bint limited=False):
        """Append one record; return its index, or NO_ROOM."""
        cdef bytes key_bytes = None if key is None else as_bytes(key)
        cdef bytes value_bytes = None if value is None else as_bytes(value)
        cdef bytes encoded = codec_pure.encode_headers(headers) if headers else b""
        self.check_free()
        cdef Py_ssize_t index = self.put(
            checked_timestamp(timestamp_ms),
            bytes_data(key_bytes),
            bytes_size(key_bytes),
            bytes_data(value_bytes),
            bytes_size(value_bytes),
            bytes_data(encoded),
            PyBytes_GET_SIZE(encoded),
            self.limit_bytes if limited else INT32_MAX,
        )
        if index == NO_ROOM and not limited:
            raise ValueError(codec_pure.BATCH_TOO_LARGE)
        return index

    def append_many(self, timestamp_ms, values, keys=None, Py_ssize_t start=0, bint limited=False):
        """Append `values[start:]`; return the number of appended records. With `limited`, append only as many as
        fit."""
        cdef int64_t stamp = checked_timestamp(timestamp_ms)
        # Callers repeat this call with the same lists until all records are appended. So each call reads only the
        # records that fit.
        cdef list value_list = values if limited and type(values) is list else exact_bytes(values)
        cdef list key_list = None
        cdef Py_ssize_t limit_bytes = self.limit_bytes if limited else INT32_MAX
        cdef Py_ssize_t place = start
        cdef object key, value
        if keys is not None:
            key_list = keys if limited and type(keys) is list else exact_bytes(keys)
            if len(key_list) != len(value_list):
                raise ValueError(f"{len(key_list)} keys for {len(value_list)} values; the numbers must be equal")
        if not limited:
            self.check_total(value_list, key_list, start)
        self.check_free()
        while place < PyList_GET_SIZE(value_list):
            key = None if key_list is None else key_list[place]
            value = value_list[place]
            if not (is_exact(key) and is_exact(value)):
                if place == start:
                    raise TypeError("values and keys are bytes or None here; see exact_bytes")
                break
            if self.put(
                stamp, bytes_data(key), bytes_size(key), bytes_data(value), bytes_size(value), NULL, 0, limit_bytes
            ) == NO_ROOM:
                break
            place += 1
        return place - start

    cdef int check_total(self, list values, list keys, Py_ssize_t start) except -1:
        """Raise an error before the first append if all records together exceed the size of a batch."""
        cdef Py_ssize_t total = self._out.size
        cdef Py_ssize_t place
        for place in range(start, PyList_GET_SIZE(values)):
            total += codec_pure.RECORD_OVERHEAD_MAX + max(0, bytes_size(values[place]))
            if keys is not None:
                total += max(0, bytes_size(keys[place]))
        if total > INT32_MAX:
            raise ValueError(codec_pure.BATCH_TOO_LARGE)
        return 0

    def append_columns(self, timestamps_ms, values, keys, rows, Py_ssize_t start, Py_ssize_t stop):
        """Append as many rows of Arrow columns as fit; return their number. Releases the interpreter lock."""
        cdef BufferReader value_reader = BufferReader(values)
        cdef BufferReader key_reader = None if keys is None else BufferReader(keys)
        cdef View order = View(rows, 8 * stop) if rows is not None else None
        cdef View stamps = None if isinstance(timestamps_ms, int) else View(timestamps_ms, 8 * value_reader.length)
        cdef int64_t stamp = checked_timestamp(timestamps_ms) if stamps is None else 0
        if not 0 <= start <= stop or (order is None and stop > value_reader.length):
            raise IndexError(f"rows {start} to {stop} are not in a column of {value_reader.length} rows")
        self.check_free()
        if self._out.exports:
            self.make_room(0)
        cdef Py_ssize_t added
        self._busy = True
        try:
            with nogil:
                added = self.put_rows(self._out, value_reader, key_reader, order, stamps, stamp, start, stop)
        finally:
            self._busy = False
        if added < 0:
            if added == -4:
                raise MemoryError
            raise ValueError(codec_pure.BAD_COLUMN)
        return added

    cdef Py_ssize_t put_rows(
        self,
        Storage out,
        BufferReader values,
        BufferReader keys,
        View order,
        View stamps,
        int64_t stamp,
        Py_ssize_t start,
        Py_ssize_t stop,
    ) noexcept nogil:
        cdef const int64_t* rows = <const int64_t*>order.at if order is not None else NULL
        cdef const int64_t* times = <const int64_t*>stamps.at if stamps is not None else NULL
        cdef const uint8_t* key = NULL
        cdef const uint8_t* value = NULL
        cdef Py_ssize_t key_size = NULL_SIZE
        cdef Py_ssize_t value_size, size, whole, place, row
        cdef int64_t delta
        for place in range(start, stop):
            row = rows[place] if rows != NULL else place
            value_size = values.find(row, &value)
            if keys is not None:
                key_size = keys.find(row, &key)
            if value_size < NULL_SIZE or key_size < NULL_SIZE:
                return -2
            if times != NULL:
                stamp = times[row]
            delta = wrapping_difference(stamp, self.base_timestamp_ms) if self.count else 0
            size = 2 + varint_size(delta) + varint_size(self.count)
            size += 1 if key_size < 0 else varint_size(key_size) + key_size
            size += 1 if value_size < 0 else varint_size(value_size) + value_size
            whole = varint_size(size) + size
            if whole > self.limit_bytes - out.size:
                return place - start
            if whole > out.capacity - out.size and not out.reserve(whole):
                return -4
            write_record(out.data + out.size, size, delta, self.count, key, key_size, value, value_size, NULL, 0)
            out.size += whole
            if not self.count:
                self.base_timestamp_ms = stamp
                self.max_timestamp_ms = stamp
                self.min_timestamp_ms = stamp
            elif stamp > self.max_timestamp_ms:
                self.max_timestamp_ms = stamp
            elif stamp < self.min_timestamp_ms:
                self.min_timestamp_ms = stamp
            self.count += 1
        return stop - start

    def body(self):
        """Return the encoded records."""
        self.check_free()
        return PyBytes_FromStringAndSize(<char*>self._out.data + HEADER_SIZE, self._out.size - HEADER_SIZE)

    def whole(self):
        """Return a buffer with space for the header, followed by the body. The body is copied only if the buffer is
        being read."""
        cdef Storage copy
        self.check_free()
        if self._out.exports:
            copy = Storage.__new__(Storage, self._out.size)
            memcpy(copy.data, self._out.data, self._out.size)
            copy.size = self._out.size
            return memoryview(copy)
        return memoryview(self._out)


cdef inline uint8_t* write_record(
    uint8_t* at,
    Py_ssize_t size,
    int64_t delta,
    int64_t index,
    const uint8_t* key,
    Py_ssize_t key_size,
    const uint8_t* value,
    Py_ssize_t value_size,
    const uint8_t* headers,
    Py_ssize_t headers_size,
) noexcept nogil:
    at = write_varint(at, size)
    at[0] = 0
    at = write_varint(at + 1, delta)
    at = write_varint(at, index)
    at = write_blob(at, key, key_size)
    at = write_blob(at, value, value_size)
    if headers_size:
        memcpy(at, headers, headers_size)
        return at + headers_size
    at[0] = 0
    return at + 1


cdef inline uint8_t* write_blob(uint8_t* at, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    if size < 0:
        at[0] = 1
        return at + 1
    at = write_varint(at, size)
    memcpy(at, data, size)
    return at + size
