# A buffer of bytes that grows at its end.

@cython.final
@cython.no_gc
cdef class Storage:
    """A byte buffer that grows at its end. Readable through the buffer protocol; it does not move while a reader
    exists."""

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
        """Reserve `more` bytes; return False if memory is exhausted. There must be no reader."""
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
