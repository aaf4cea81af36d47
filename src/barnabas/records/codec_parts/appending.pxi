# Appends one record to a batch; the equivalent in Python is `codec_pure/appending.py`.

@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Delivery:
    """The outcome of one `send`, which may still be pending; see `codec_pure`."""

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
        """Return the partition and offset of the record; wait for the acknowledgement if needed."""
        return self.batch.result(self.index, self.timestamp_ms, timeout_s)

    def exception(self, timeout_s=None):
        """Return the error of a failed delivery, or None after a successful one; waits like `result`."""
        return self.batch.exception(self.index, timeout_s)

    def add_done_callback(self, function):
        """Call `function(delivery)` when the outcome is known. If it is already known, call the function
        immediately."""
        self.batch.when_done(lambda: function(self))

    def __await__(self):
        return self.batch.wait_async(self.index, self.timestamp_ms).__await__()

    def __repr__(self):
        return self.batch.describe(self.index)


cdef class OpenEncoders:
    """The encoders that currently receive the records of one topic; see `codec_pure`."""

    cdef public RecordEncoder sticky_encoder
    cdef public list encoders

    def __cinit__(self, *args, **kwargs):
        self.encoders = []


@cython.final
cdef class Appender:
    """`send` for plain records; see `codec_pure`."""

    cdef object __weakref__
    cdef dict _open_encoders
    cdef object _append
    cdef object _time_s

    def __init__(self, dict open_encoders not None, append, time_s):
        self._open_encoders = open_encoders
        self._append = append
        self._time_s = time_s

    def send(
        self, topic, value=None, key=None, *, partition=None, timestamp_ms=None, headers=(), on_delivery=None
    ):
        """Send one record; see `codec_pure`."""
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
            found = PyDict_GetItem(self._open_encoders, topic)
            if found != NULL:
                encoder = encoder_for(<OpenEncoders><object>found, key)
                if encoder is not None:
                    stamp = <int64_t>(<double>self._time_s() * 1000.0)
                    # From here on no call releases the interpreter lock, so the encoder remains open until the record
                    # is appended.
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
                            if on_delivery is not None:
                                delivery.add_done_callback(on_delivery)
                            return delivery
        appended = self._append(topic, value, key, partition, timestamp_ms, headers)
        if on_delivery is not None:
            appended.add_done_callback(on_delivery)
        return appended


cdef inline RecordEncoder encoder_for(OpenEncoders topic, object key):
    cdef Py_ssize_t count
    if key is None:
        return topic.sticky_encoder
    count = PyList_GET_SIZE(topic.encoders)
    if not count:
        return None
    return <RecordEncoder>topic.encoders[partition_of(bytes_data(key), PyBytes_GET_SIZE(key), count)]


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
    """Return the 32-bit murmur2 hash of `data`, unsigned, with Kafka's seed."""
    return murmur2_hash(bytes_data(data), PyBytes_GET_SIZE(data))


def group_rows(keys, Py_ssize_t partition_count):
    """Sort rows by the partitions of their keys; return the row numbers as int64 bytes, and the number of rows per
    partition.

    Rows without a key are counted as partition number `partition_count`.
    """
    cdef BufferReader reader = BufferReader(keys)
    cdef Py_ssize_t length = reader.length
    cdef Storage order = Storage.__new__(Storage, 8 * length + 8)
    cdef Storage partitions = Storage.__new__(Storage, 4 * length + 4)
    cdef Storage next_places = Storage.__new__(Storage, 8 * (partition_count + 2))
    cdef int64_t* places = <int64_t*>next_places.data
    cdef int32_t* partition_at = <int32_t*>partitions.data
    cdef Py_ssize_t row, partition, size
    cdef const uint8_t* key = NULL
    cdef bint sound = True
    memset(places, 0, 8 * (partition_count + 2))
    with nogil:
        for row in range(length):
            size = reader.find(row, &key)
            if size < NULL_SIZE:
                sound = False
                break
            partition = partition_count if size < 0 else partition_of(key, size, partition_count)
            partition_at[row] = <int32_t>partition
            places[partition + 1] += 1
        if sound:
            for partition in range(partition_count):
                places[partition + 1] += places[partition]
            for row in range(length):
                (<int64_t*>order.data)[places[partition_at[row]]] = row
                places[partition_at[row]] += 1
    if not sound:
        raise ValueError(codec_pure.BAD_COLUMN)
    order.size = 8 * length
    # Now each position is at the end of its partition's rows.
    ends = [places[partition] for partition in range(partition_count + 1)]
    return memoryview(order), [end - begin for begin, end in zip([0, *ends], ends)]
