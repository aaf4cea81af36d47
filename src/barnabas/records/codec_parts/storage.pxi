# Bytes that grow at their end.

@cython.final
@cython.no_gc
cdef class Storage:
    """Bytes that grow at their end. Readable through the buffer protocol; they do not move while somebody reads."""

    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Py_ssize_t exports

    def __cinit__(self, Py_ssize_t capacity=FIRST_CAPACITY):
        self.data = <uint8_t*>malloc(capacity)
        if self.data == NULL:
            raise MemoryError
        self.capacity = capacity

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 0, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.exports -= 1

    cdef bint reserve(self, Py_ssize_t more) noexcept nogil:
        """Make room for `more` bytes; False where there is no memory. Nobody may be reading."""
        cdef Py_ssize_t wanted = self.size + more
        cdef Py_ssize_t capacity = self.capacity
        cdef uint8_t* data
        if wanted <= capacity:
            return True
        while capacity < wanted:
            capacity *= 2
        data = <uint8_t*>realloc(self.data, capacity)
        if data == NULL:
            return False
        self.data = data
        self.capacity = capacity
        return True
