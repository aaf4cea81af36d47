# Bytes from an application: `bytes`, bytes-like objects, or an Arrow column.

cdef inline const uint8_t* bytes_data(object given) noexcept:
    if given is None:
        return NULL
    return <const uint8_t*>PyBytes_AS_STRING(given)


cdef inline Py_ssize_t bytes_size(object given) noexcept:
    return NULL_SIZE if given is None else PyBytes_GET_SIZE(given)


cdef inline bytes as_bytes(object given):
    return <bytes>given if PyBytes_CheckExact(given) else bytes(memoryview(given))


cdef inline bint is_exact(object given) noexcept:
    return given is None or PyBytes_CheckExact(given)


cpdef list exact_bytes(object given):
    """Return a list that contains only bytes and None; see `codec_pure`.

    The conversion may run arbitrary code of other types, so it must happen before appending.
    """
    cdef list items = given if type(given) is list else list(given)
    cdef Py_ssize_t place
    for place in range(PyList_GET_SIZE(items)):
        if not is_exact(<object>PyList_GET_ITEM(items, place)):
            return [None if each is None else as_bytes(each) for each in items]
    return items


cdef inline int64_t checked_timestamp(object timestamp_ms) except? -1:
    cdef int64_t stamp
    if not isinstance(timestamp_ms, int):
        raise TypeError(f"a timestamp is an int (ms since the epoch), not {type(timestamp_ms).__name__}")
    if not INT64_MIN <= timestamp_ms <= INT64_MAX:
        raise ValueError(codec_pure.BAD_TIMESTAMP)
    stamp = timestamp_ms
    return stamp


@cython.final
cdef class View:
    """A buffer of another object, held while its bytes are read."""

    cdef Py_buffer buffer
    cdef const uint8_t* at
    cdef Py_ssize_t size

    def __cinit__(self, source, Py_ssize_t size_min):
        PyObject_GetBuffer(source, &self.buffer, PyBUF_SIMPLE)
        self.at = <const uint8_t*>self.buffer.buf
        self.size = self.buffer.len
        if self.size < size_min:
            raise ValueError(codec_pure.BAD_COLUMN)

    def __dealloc__(self):
        PyBuffer_Release(&self.buffer)


@cython.final
cdef class BufferReader:
    """Reads an Arrow column of binary values. It checks the offsets, because no other code does."""

    cdef View offsets
    cdef View data
    cdef View validity
    cdef Py_ssize_t start
    cdef Py_ssize_t length
    cdef bint is_wide

    def __cinit__(self, column):
        self.start = column.start
        self.length = column.length
        self.is_wide = column.is_wide
        if self.start < 0 or self.length < 0:
            raise ValueError(codec_pure.BAD_COLUMN)
        end = self.start + self.length
        self.offsets = View(column.offsets, (end + 1) * (8 if self.is_wide else 4) if self.length else 0)
        self.data = View(column.data, 0)
        self.validity = None if column.validity is None else View(column.validity, (end + 7) // 8)

    cdef inline Py_ssize_t find(self, Py_ssize_t row, const uint8_t** value) noexcept nogil:
        """Return the size of a value, NULL_SIZE for null, or a lower number for invalid offsets."""
        cdef int64_t begin, end
        if not 0 <= row < self.length:
            return NULL_SIZE - 1
        row += self.start
        if self.validity is not None and not self.validity.at[row >> 3] >> (row & 7) & 1:
            return NULL_SIZE
        if self.is_wide:
            begin = (<const int64_t*>self.offsets.at)[row]
            end = (<const int64_t*>self.offsets.at)[row + 1]
        else:
            begin = (<const int32_t*>self.offsets.at)[row]
            end = (<const int32_t*>self.offsets.at)[row + 1]
        if not 0 <= begin <= end <= self.data.size:
            return NULL_SIZE - 1
        value[0] = self.data.at + begin
        return end - begin
