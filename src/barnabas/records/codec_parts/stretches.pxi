# Groups records by windows of their timestamps; the equivalent in Python is `codec_pure/stretches.py`.

@cython.final
cdef class StretchList:
    """Collects groups of records; see `codec_pure`."""

    cdef list found
    cdef int64_t width_ms
    cdef int64_t first
    cdef int64_t following
    cdef int64_t window_ms
    cdef int64_t low_ms
    cdef int64_t last_ms

    def __cinit__(self, int64_t width_ms):
        if width_ms <= 0:
            raise ValueError(f"the window has {width_ms} ms")
        self.found = []
        self.width_ms = width_ms
        self.first = self.following = self.last_ms = -1

    cdef inline int add(self, int64_t offset, int64_t timestamp_ms) except -1:
        """Add a record to the last group, or to a new group."""
        if offset == self.following and self.low_ms <= timestamp_ms <= self.last_ms:
            self.following += 1
            return 0
        return self.begin(offset, timestamp_ms)

    cdef int begin(self, int64_t offset, int64_t timestamp_ms) except -1:
        self.end()
        self.first = offset
        self.following = offset + 1
        if timestamp_ms < 0:
            self.window_ms = -1
            self.low_ms = INT64_MIN
            self.last_ms = -1
        else:
            self.window_ms = self.low_ms = timestamp_ms - timestamp_ms % self.width_ms
            self.last_ms = self.low_ms + min(self.width_ms - 1, INT64_MAX - self.low_ms)
        return 0

    cdef int end(self) except -1:
        if self.following != self.first:
            self.found.append((self.first, self.following - self.first, self.window_ms))
        return 0


def record_stretches(list records, int64_t width_ms):
    """Group records by windows of their timestamps; see `codec_pure`."""
    cdef StretchList stretches = StretchList(width_ms)
    cdef Record record
    for record in records:
        stretches.add(record.row.offset, record.row.timestamp_ms)
    stretches.end()
    return stretches.found
