# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The loops that run once per record, compiled. Its twin in Python is `codec_pure`: same names, same results.

Whoever changes one changes the other; the tests of `records` run on both and compare them.

Memory safety: `parse_rows` is the only reader of bytes that came from outside. It checks every length against
the end of the record, and every record against the end of the body, before anything is read; what it leaves in
its rows lies within the body. Damage is told by the twin, which reads the same body again to say what is wrong.

Threads: methods that never give up the interpreter lock are atomic. `RecordEncoder.put` is such a one, and this
is why `Appender.send` needs no lock of its own: an encoder is closed under the interpreter lock too, so a
record is either in the batch that the sender takes, or finds the encoder closed.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject, PyObject_RichCompare
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from barnabas.errors import CorruptBatchError
from barnabas.model import TimestampType
from barnabas.records import codec_pure
from barnabas.records.columns import BinaryBuffers, ColumnBuffers, HeaderBuffers

cdef extern from *:
    """
    #define BARNABAS_TIMESTAMP_LIMIT (INT64_C(1) << 62)
    #define BARNABAS_WRITTEN_TIMESTAMP_LIMIT (INT64_C(1) << 61)

    /* The bytes that a zigzag varint of a number takes. */
    static inline Py_ssize_t barnabas_zigzag_size(uint64_t zigzag) {
        return (63 - __builtin_clzll(zigzag | 1)) / 7 + 1;
    }
    """
    const int64_t TIMESTAMP_LIMIT "BARNABAS_TIMESTAMP_LIMIT"
    const int64_t WRITTEN_TIMESTAMP_LIMIT "BARNABAS_WRITTEN_TIMESTAMP_LIMIT"
    Py_ssize_t barnabas_zigzag_size(uint64_t zigzag) noexcept nogil

cdef enum:
    HEADER_SIZE = 61
    NULL_SIZE = -1
    NO_ROOM = -1
    FIRST_CAPACITY = 512
    # Work on less than this is done sooner than another thread could take the interpreter lock and give it back.
    RELEASING_BYTES_MIN = 32768

CODEC = "compiled"


# --- bytes that grow -------------------------------------------------------------------------------------------


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


# --- varints ---------------------------------------------------------------------------------------------------


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline Py_ssize_t varint_size(int64_t value) noexcept nogil:
    return barnabas_zigzag_size(zigzag(value))


cdef inline uint8_t* write_varint(uint8_t* out, int64_t value) noexcept nogil:
    cdef uint64_t left = zigzag(value)
    while left > 0x7F:
        out[0] = <uint8_t>(left & 0x7F | 0x80)
        out += 1
        left >>= 7
    out[0] = <uint8_t>left
    return out + 1


cdef inline const uint8_t* read_varint(const uint8_t* at, const uint8_t* end, int64_t* value) noexcept nogil:
    """Return what follows the varint, or NULL: it goes beyond `end`, or is more than 64 bits."""
    cdef uint64_t result
    cdef int shift
    if at == NULL or at >= end:
        return NULL
    if at[0] < 0x80:
        value[0] = <int64_t>((at[0] >> 1) ^ -<int64_t>(at[0] & 1))
        return at + 1
    result = at[0] & 0x7F
    shift = 7
    at += 1
    while True:
        if at >= end or (shift == 63 and at[0] > 1):
            return NULL
        result |= <uint64_t>(at[0] & 0x7F) << shift
        if at[0] < 0x80:
            break
        at += 1
        shift += 7
    value[0] = <int64_t>((result >> 1) ^ (~(result & 1) + 1))
    return at + 1


# --- encoding --------------------------------------------------------------------------------------------------


cdef class RecordEncoder:
    """Encodes the records of one batch, in order; see the twin."""

    cdef Storage _out
    cdef readonly Py_ssize_t count
    cdef readonly int64_t base_timestamp_ms
    cdef readonly int64_t max_timestamp_ms
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
        self.limit_bytes = INT32_MAX

    @property
    def size_bytes(self):
        return self._out.size

    cdef int check_free(self) except -1:
        """Refuse to touch what another thread fills without the interpreter lock."""
        if self._busy:
            raise BufferError("this encoder is in use by another thread")
        return 0

    cdef int make_room(self, Py_ssize_t more) except -1:
        cdef Storage fresh
        if self._out.exports:
            # A batch that was built from these bytes may be on its way still.
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
        """Append one record; return its index, or NO_ROOM. Never gives up the interpreter lock."""
        cdef Storage out = self._out
        cdef int64_t delta = timestamp_ms - self.base_timestamp_ms if self.count else 0
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
        elif timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        self.count += 1
        return self.count - 1

    def append(self, timestamp_ms, key, value, headers=(), bint limited=False):
        """Add one record; return its index, or NO_ROOM."""
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
        """Add `values[start:]`, with `limited` only as many as fit; return how many were added."""
        cdef int64_t stamp = checked_timestamp(timestamp_ms)
        # What fits is asked for again and again with the same lists: they are looked at as far as it gets.
        cdef list value_list = values if limited and type(values) is list else exact_bytes(values)
        cdef list key_list = None
        cdef Py_ssize_t limit_bytes = self.limit_bytes if limited else INT32_MAX
        cdef Py_ssize_t place = start
        cdef object key, value
        if keys is not None:
            key_list = keys if limited and type(keys) is list else exact_bytes(keys)
            if len(key_list) != len(value_list):
                raise ValueError(f"{len(key_list)} keys for {len(value_list)} values; they must be as many")
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
        """Refuse all, before any is added, where together they cannot be one batch."""
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
        """Add rows of Arrow columns, as many as fit; return how many were added. Releases the interpreter lock."""
        cdef BufferReader value_reader = BufferReader(values)
        cdef BufferReader key_reader = None if keys is None else BufferReader(keys)
        cdef View order = View(rows, 8 * stop) if rows is not None else None
        cdef View stamps = None if isinstance(timestamps_ms, int) else View(timestamps_ms, 8 * value_reader.length)
        cdef int64_t stamp = checked_timestamp(timestamps_ms) if stamps is None else 0
        if not 0 <= start <= stop or (order is None and stop > value_reader.length):
            raise IndexError(f"rows {start} to {stop} of {value_reader.length}")
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
            raise ValueError(codec_pure.BAD_COLUMN if added == -2 else codec_pure.BAD_TIMESTAMP)
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
                if not -WRITTEN_TIMESTAMP_LIMIT < stamp < WRITTEN_TIMESTAMP_LIMIT:
                    return -3
            delta = stamp - self.base_timestamp_ms if self.count else 0
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
            elif stamp > self.max_timestamp_ms:
                self.max_timestamp_ms = stamp
            self.count += 1
        return stop - start

    def body(self):
        """Return the records encoded one after the other."""
        self.check_free()
        return PyBytes_FromStringAndSize(<char*>self._out.data + HEADER_SIZE, self._out.size - HEADER_SIZE)

    def whole(self):
        """Return room for the header of a batch and behind it the body, without a copy unless one is being read."""
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
    """Return a list of nothing but bytes and None; see the twin.

    Converting may run anybody's code, and appending must not.
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
    if not -WRITTEN_TIMESTAMP_LIMIT < timestamp_ms < WRITTEN_TIMESTAMP_LIMIT:
        raise ValueError(codec_pure.BAD_TIMESTAMP)
    stamp = timestamp_ms
    return stamp


@cython.final
cdef class View:
    """Somebody's bytes, held for as long as they are read."""

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
    """Reads an Arrow column of binary values; its offsets are checked, for nobody else has."""

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
        """Return the size of a value, NULL_SIZE for null, less for offsets that are wrong."""
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


# --- the way of one record into a batch ------------------------------------------------------------------------


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Delivery:
    """The outcome of one `send`, now or later; see the twin."""

    cdef readonly object batch
    cdef readonly Py_ssize_t index
    cdef readonly int64_t timestamp_ms

    def __init__(self, batch, Py_ssize_t index, int64_t timestamp_ms):
        self.batch = batch
        self.index = index
        self.timestamp_ms = timestamp_ms

    def done(self):
        """Return whether the outcome is known."""
        return self.batch.done

    def result(self, timeout_s=None):
        """Return the record's place, waiting for it if need be."""
        return self.batch.result(self.index, self.timestamp_ms, timeout_s)

    def exception(self, timeout_s=None):
        """Return why the record was not delivered, or None if it was; waits like `result`."""
        return self.batch.exception(self.index, timeout_s)

    def add_done_callback(self, function):
        """Call `function(delivery)` when the outcome is known, at once if it is already."""
        self.batch.when_done(lambda: function(self))

    def __await__(self):
        return self.batch.wait_async(self.index, self.timestamp_ms).__await__()

    def __repr__(self):
        return self.batch.describe(self.index)


cdef class Lanes:
    """The encoders that records of one topic go to just now; see the twin."""

    cdef public RecordEncoder sticky_encoder
    cdef public list encoders

    def __cinit__(self, *args, **kwargs):
        self.encoders = []


cdef class Appender:
    """`send`, for the usual record; see the twin."""

    cdef readonly dict open_lanes
    cdef object _time_s

    def __init__(self, time_s):
        self.open_lanes = {}
        self._time_s = time_s

    def send(self, topic, value=None, key=None, *, partition=None, timestamp_ms=None, headers=()):
        """Send one record; see the twin."""
        cdef RecordEncoder encoder
        cdef Delivery delivery
        cdef PyObject* found
        cdef Py_ssize_t index
        cdef int64_t stamp
        if (
            partition is None
            and timestamp_ms is None
            and PyBytes_CheckExact(value)
            and (key is None or PyBytes_CheckExact(key))
            and type(topic) is str
            and not headers
        ):
            found = PyDict_GetItem(self.open_lanes, topic)
            if found != NULL:
                encoder = encoder_for(<Lanes><object>found, key)
                if encoder is not None:
                    stamp = <int64_t>(<double>self._time_s() * 1000.0)
                    # From here on nothing gives up the interpreter lock: open means open until the record is in.
                    if not (encoder.closed or encoder._busy):
                        index = encoder.put(
                            stamp,
                            bytes_data(key),
                            bytes_size(key),
                            bytes_data(value),
                            PyBytes_GET_SIZE(value),
                            NULL,
                            0,
                            encoder.limit_bytes,
                        )
                        if index != NO_ROOM:
                            delivery = Delivery.__new__(Delivery)
                            delivery.batch = encoder.owner
                            delivery.index = index
                            delivery.timestamp_ms = stamp
                            return delivery
        return self._send(topic, value, key, partition, timestamp_ms, headers)


cdef inline RecordEncoder encoder_for(Lanes lanes, object key):
    cdef Py_ssize_t count
    if key is None:
        return lanes.sticky_encoder
    count = PyList_GET_SIZE(lanes.encoders)
    if not count:
        return None
    return <RecordEncoder>lanes.encoders[partition_of(bytes_data(key), PyBytes_GET_SIZE(key), count)]


cdef inline Py_ssize_t partition_of(const uint8_t* key, Py_ssize_t size, Py_ssize_t partition_count) noexcept nogil:
    return <Py_ssize_t>((murmur2_hash(key, size) & 0x7FFFFFFF) % <uint32_t>partition_count)


cdef uint32_t murmur2_hash(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t k
    cdef Py_ssize_t whole = size & ~3
    cdef Py_ssize_t place = 0
    cdef Py_ssize_t left = size - whole
    while place < whole:
        memcpy(&k, data + place, 4)
        k *= m
        k ^= k >> 24
        h = h * m ^ k * m
        place += 4
    if left:
        if left > 2:
            h ^= <uint32_t>data[whole + 2] << 16
        if left > 1:
            h ^= <uint32_t>data[whole + 1] << 8
        h = (h ^ data[whole]) * m
    h ^= h >> 13
    h *= m
    return h ^ (h >> 15)


def murmur2(bytes data):
    """Return the 32-bit murmur2 hash of `data`, unsigned, with the seed that Kafka uses."""
    return murmur2_hash(bytes_data(data), PyBytes_GET_SIZE(data))


def group_rows(keys, Py_ssize_t partition_count):
    """Return the rows in the order of their keys' partitions, as int64 bytes, and how many each partition has.

    Rows without a key are counted for partition `partition_count`.
    """
    cdef BufferReader reader = BufferReader(keys)
    cdef Py_ssize_t length = reader.length
    cdef Storage order = Storage.__new__(Storage, 8 * length + 8)
    cdef Storage lanes = Storage.__new__(Storage, 4 * length + 4)
    cdef Storage next_places = Storage.__new__(Storage, 8 * (partition_count + 2))
    cdef int64_t* places = <int64_t*>next_places.data
    cdef int32_t* lane_of = <int32_t*>lanes.data
    cdef Py_ssize_t row, lane, size
    cdef const uint8_t* key = NULL
    cdef bint sound = True
    memset(places, 0, 8 * (partition_count + 2))
    with nogil:
        for row in range(length):
            size = reader.find(row, &key)
            if size < NULL_SIZE:
                sound = False
                break
            lane = partition_count if size < 0 else partition_of(key, size, partition_count)
            lane_of[row] = <int32_t>lane
            places[lane + 1] += 1
        if sound:
            for lane in range(partition_count):
                places[lane + 1] += places[lane]
            for row in range(length):
                (<int64_t*>order.data)[places[lane_of[row]]] = row
                places[lane_of[row]] += 1
    if not sound:
        raise ValueError(codec_pure.BAD_COLUMN)
    order.size = 8 * length
    # Each place has moved to the end of its partition by now.
    ends = [places[lane] for lane in range(partition_count + 1)]
    return memoryview(order), [end - begin for begin, end in zip([0, *ends], ends)]


# --- decoding --------------------------------------------------------------------------------------------------


cdef struct Row:
    int64_t offset
    int64_t timestamp_ms
    int32_t key_position
    int32_t key_size
    int32_t value_position
    int32_t value_size
    int32_t headers_position
    int32_t header_count


cdef inline const uint8_t* read_blob(
    const uint8_t* body, const uint8_t* at, const uint8_t* end, int32_t* position, int32_t* size
) noexcept nogil:
    """Read a length and skip what it counts; NULL is the one byte 1 and nothing else."""
    cdef int64_t length
    if at == NULL or at >= end:
        return NULL
    if at[0] == 1:
        position[0] = 0
        size[0] = NULL_SIZE
        return at + 1
    at = read_varint(at, end, &length)
    if at == NULL or length < 0 or length > end - at:
        return NULL
    position[0] = <int32_t>(at - body)
    size[0] = <int32_t>length
    return at + length


cdef const uint8_t* skip_headers(const uint8_t* at, const uint8_t* end, int64_t count) noexcept nogil:
    """Return what follows `count` headers, or NULL if they do not lie before `end`."""
    cdef int64_t length
    cdef int64_t index
    if count < 0 or count > (end - at) // 2:
        return NULL
    for index in range(count):
        at = read_varint(at, end, &length)
        if at == NULL or length < 0 or length > end - at:
            return NULL
        at = read_varint(at + length, end, &length)
        if at == NULL or length < NULL_SIZE or length > end - at:
            return NULL
        if length > 0:
            at += length
    return at


cdef bint parse_rows(
    const uint8_t* body,
    Py_ssize_t size,
    int64_t count,
    int64_t base_offset,
    int64_t last_offset_delta,
    int64_t base_timestamp_ms,
    int64_t append_time_ms,
    bint has_append_time,
    Row* rows,
) noexcept nogil:
    """Find the fields of all records; False if the body is not `count` records and nothing else."""
    cdef const uint8_t* at = body
    cdef const uint8_t* body_end = body + size
    cdef const uint8_t* end
    cdef int64_t length, delta, number, index
    cdef int64_t previous = -1
    cdef Row* row
    for index in range(count):
        row = rows + index
        at = read_varint(at, body_end, &length)
        if at == NULL or length < 1 or length > body_end - at:
            return False
        end = at + length
        at = read_varint(at + 1, end, &delta)
        if at == NULL or not -TIMESTAMP_LIMIT < delta < TIMESTAMP_LIMIT:
            return False
        row.timestamp_ms = append_time_ms if has_append_time else base_timestamp_ms + delta
        at = read_varint(at, end, &delta)
        if at == NULL or delta <= previous or delta > last_offset_delta:
            return False
        previous = delta
        row.offset = base_offset + delta
        at = read_blob(body, at, end, &row.key_position, &row.key_size)
        at = read_blob(body, at, end, &row.value_position, &row.value_size)
        at = read_varint(at, end, &number)
        if at == NULL:
            return False
        row.headers_position = <int32_t>(at - body)
        if number:
            at = skip_headers(at, end, number)
        row.header_count = <int32_t>number
        if at != end:
            return False
    return at == body_end


@cython.final
@cython.no_gc
cdef class Body:
    """The bytes that the records of one batch lie in, and what these have in common."""

    cdef bytes data
    cdef str topic
    cdef object partition
    cdef object timestamp_type
    cdef tuple headers
    """Given where a record was made by hand; None where they lie in `data`."""


@cython.final
@cython.no_gc
@cython.freelist(512)
cdef class Record:
    """One record of a partition; see the twin. Its attributes are made when they are asked for.

    It keeps the batch that it came in (decompressed) in memory.
    """

    __match_args__ = ("topic", "partition", "offset", "timestamp_ms", "timestamp_type", "key", "value", "headers")

    cdef Body body
    cdef Row row

    def __init__(
        self, str topic not None, partition, int64_t offset, int64_t timestamp_ms, timestamp_type, key, value, headers
    ):
        cdef Body body = Body.__new__(Body)
        cdef bytes key_bytes = b"" if key is None else as_bytes(key)
        cdef bytes value_bytes = b"" if value is None else as_bytes(value)
        body.data = key_bytes + value_bytes
        body.topic = topic
        body.partition = partition
        body.timestamp_type = timestamp_type
        body.headers = tuple(headers)
        self.body = body
        self.row.offset = offset
        self.row.timestamp_ms = timestamp_ms
        self.row.key_position = 0
        self.row.key_size = NULL_SIZE if key is None else <int32_t>len(key_bytes)
        self.row.value_position = <int32_t>len(key_bytes)
        self.row.value_size = NULL_SIZE if value is None else <int32_t>len(value_bytes)

    @property
    def topic(self):
        return self.body.topic

    @property
    def partition(self):
        return self.body.partition

    @property
    def offset(self):
        return self.row.offset

    @property
    def timestamp_ms(self):
        return self.row.timestamp_ms

    @property
    def timestamp_type(self):
        return self.body.timestamp_type

    @property
    def key(self):
        return slice_of(self.body.data, self.row.key_position, self.row.key_size)

    @property
    def value(self):
        return slice_of(self.body.data, self.row.value_position, self.row.value_size)

    @property
    def headers(self):
        if self.body.headers is not None:
            return self.body.headers
        return read_headers(self.body.data, self.row.headers_position, self.row.header_count)

    def _fields(self):
        return (
            self.body.topic,
            self.body.partition,
            self.row.offset,
            self.row.timestamp_ms,
            self.body.timestamp_type,
            self.key,
            self.value,
            self.headers,
        )

    def __iter__(self):
        return iter(self._fields())

    def __len__(self):
        return 8

    def __getitem__(self, item):
        return self._fields()[item]

    def __richcmp__(self, other, int operation):
        if isinstance(other, Record):
            other = (<Record>other)._fields()
        elif not isinstance(other, tuple):
            return NotImplemented
        return PyObject_RichCompare(self._fields(), other, operation)

    def __hash__(self):
        return hash(self._fields())

    def __reduce__(self):
        return Record, self._fields()

    def __repr__(self):
        fields = ", ".join(f"{name}={field!r}" for name, field in zip(self.__match_args__, self._fields()))
        return f"Record({fields})"


cdef inline object slice_of(bytes data, int32_t position, int32_t size):
    if size < 0:
        return None
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + position, size)


cdef tuple read_headers(bytes data, int32_t position, int32_t count):
    """Return headers that `parse_rows` has checked."""
    if not count:
        return ()
    cdef const uint8_t* at = bytes_data(data) + position
    cdef const uint8_t* end = bytes_data(data) + PyBytes_GET_SIZE(data)
    cdef int64_t length
    cdef list headers = []
    cdef int32_t index
    for index in range(count):
        at = read_varint(at, end, &length)
        name = at[:length].decode("utf-8", "replace")
        at = read_varint(at + length, end, &length)
        if length < 0:
            headers.append((name, None))
        else:
            headers.append((name, PyBytes_FromStringAndSize(<const char*>at, length)))
            at += length
    return tuple(headers)


@cython.final
cdef class RowTable:
    """The rows of one batch: found without the interpreter lock, memory that is used again."""

    cdef Row* rows
    cdef Py_ssize_t capacity
    cdef int64_t count
    cdef int64_t base_offset
    cdef int64_t last_offset_delta
    cdef int64_t base_timestamp_ms
    cdef int64_t append_time_ms
    cdef bint has_append_time

    def __dealloc__(self):
        free(self.rows)

    cdef int parse(self, const uint8_t* body, Py_ssize_t size, header) except -1:
        """Fill the table from a body.

        :raises CorruptBatchError: as the twin would.
        """
        cdef bint sound
        self.prepare(size, header)
        if size < RELEASING_BYTES_MIN:
            sound = self.fill(body, size)
        else:
            with nogil:
                sound = self.fill(body, size)
        if not sound:
            self.complain(body, size, header)
        return 0

    cdef int prepare(self, Py_ssize_t size, header) except -1:
        """Make room for the rows that a header tells of.

        :raises CorruptBatchError: the header does not agree with the size of the body.
        """
        self.count = header.record_count
        self.base_offset = header.base_offset
        self.last_offset_delta = header.last_offset_delta
        self.base_timestamp_ms = header.base_timestamp_ms
        self.has_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        self.append_time_ms = header.max_timestamp_ms if self.has_append_time else 0
        codec_pure.check_ranges(size, header)
        if self.count > self.capacity:
            free(self.rows)
            self.capacity = 0
            self.rows = <Row*>malloc(self.count * sizeof(Row))
            if self.rows == NULL:
                raise MemoryError
            self.capacity = self.count
        return 0

    cdef bint fill(self, const uint8_t* body, Py_ssize_t size) noexcept nogil:
        """Find the rows of the body that was prepared for; return whether it is sound."""
        return parse_rows(
            body, size, self.count, self.base_offset, self.last_offset_delta, self.base_timestamp_ms,
            self.append_time_ms, self.has_append_time, self.rows,
        )

    cdef int complain(self, const uint8_t* body, Py_ssize_t size, header) except -1:
        """Raise what the twin raises about a body that is not sound."""
        codec_pure.decode_records(PyBytes_FromStringAndSize(<const char*>body, size), header, "", 0)
        raise AssertionError("the two codecs do not agree on what is damage")

    cdef Py_ssize_t lower_bound(self, Py_ssize_t count, int64_t offset) noexcept nogil:
        """Return the first row whose offset is at least `offset`."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = count
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) // 2
            if self.rows[middle].offset < offset:
                low = middle + 1
            else:
                high = middle
        return low


def decode_records(body, header, str topic, partition, int64_t min_offset=0, int64_t max_offset=codec_pure.OFFSET_MAX):
    """Return the records of a body with `min_offset <= offset < max_offset`; see the twin."""
    cdef RowTable table = RowTable()
    cdef Body shared = Body.__new__(Body)
    # A copy, unless it is one already: a record that is kept would else keep a whole response.
    shared.data = body if PyBytes_CheckExact(body) else bytes(body)
    shared.topic = topic
    shared.partition = partition
    shared.timestamp_type = header.timestamp_type
    table.parse(bytes_data(shared.data), PyBytes_GET_SIZE(shared.data), header)
    cdef Py_ssize_t count = header.record_count
    cdef Py_ssize_t first = table.lower_bound(count, min_offset)
    cdef Py_ssize_t last = table.lower_bound(count, max_offset)
    cdef Py_ssize_t place
    cdef Record record
    cdef list records = []
    for place in range(first, last):
        record = Record.__new__(Record)
        record.body = shared
        record.row = table.rows[place]
        records.append(record)
    return records


# --- columns ---------------------------------------------------------------------------------------------------


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
        """Make room, so that `put` need not look; False where there is no memory."""
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
    """Gathers the records of many batches as columns; see the twin."""

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
        """The bytes of keys, values and headers gathered so far."""
        return (
            self.keys.data.size + self.values.data.size + self.header_names.data.size + self.header_values.data.size
        )

    @property
    def last_offset(self):
        """The offset of the last record gathered; there must be one."""
        assert self.length
        return (<int64_t*>self.offsets.data)[self.length - 1]

    def decode(
        self,
        body,
        header,
        int64_t min_offset=0,
        int64_t max_offset=codec_pure.OFFSET_MAX,
        Py_ssize_t max_records=codec_pure.OFFSET_MAX,
    ):
        """Add the records of a body; return how many; see the twin."""
        cdef View view = View(body, 0)
        cdef int timestamp_type = header.timestamp_type
        cdef bint sound = False
        cdef Py_ssize_t added = 0
        codec_pure.check_column_room(self.size_bytes, view.size)
        self.check_free()
        self._busy = True
        try:
            self.table.prepare(view.size, header)
            # The lock is given away once, if at all: to get it back may take longer than all of this.
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
        """Refuse to touch what another thread fills without the interpreter lock."""
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
        """Add the rows of the table that are asked for; return how many, or NO_ROOM."""
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
                self.header_values.put(at, <int32_t>length)
                if length > 0:
                    at += length
            (<int32_t*>(self.header_offsets.data + self.header_offsets.size))[0] = <int32_t>self.header_names.length
            self.header_offsets.size += 4
        return True

    def finish(self):
        """Return what was gathered as the buffers of Arrow columns, and start anew."""
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
