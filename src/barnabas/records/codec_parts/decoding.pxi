# Decodes the body of a batch into records; the equivalent in Python is `codec_pure/decoding.py`.

cdef struct Row:
    int64_t offset
    int64_t timestamp_ms
    int32_t key_position
    int32_t key_size
    int32_t value_position
    int32_t value_size
    int32_t headers_position
    int32_t header_count


cdef inline bint parse_rows(
    const uint8_t* body,
    Py_ssize_t size,
    int64_t count,
    int64_t base_offset,
    int64_t last_offset_delta,
    int64_t base_timestamp_ms,
    int64_t append_time_ms,
    bint has_append_time,
    Row* rows,
    bint is_lenient,
) noexcept nogil:
    """Find the fields of all records; return False if the body does not consist of exactly `count` records.

    As in `codec_pure`, sums of timestamps wrap around.

    :param is_lenient: True to accept any negative length as null. It also accepts any offset deltas in a batch with as
        many records as offsets, in which the position of a record determines its offset. Nearly all batches need
        neither, and parsing is faster without this check.
    """
    cdef const uint8_t* at = body
    cdef const uint8_t* body_end = body + size
    cdef const uint8_t* end
    cdef int64_t length, delta, number, index
    cdef int64_t previous = -1
    cdef bint is_gapless = is_lenient and count == last_offset_delta + 1
    cdef Row* row
    for index in range(count):
        row = rows + index
        at = read_varint(at, body_end, &length)
        if at == NULL or length < 1 or length > body_end - at:
            return False
        end = at + length
        at = read_varint(at + 1, end, &delta)
        if at == NULL:
            return False
        row.timestamp_ms = append_time_ms if has_append_time else wrapping_sum(base_timestamp_ms, delta)
        at = read_varint(at, end, &delta)
        if at == NULL:
            return False
        if is_gapless:
            delta = index
        elif delta <= previous or delta > last_offset_delta:
            return False
        previous = delta
        row.offset = base_offset + delta
        if not is_lenient:
            at = read_blob(body, at, end, &row.key_position, &row.key_size)
            at = read_blob(body, at, end, &row.value_position, &row.value_size)
        else:
            at = read_any_blob(body, at, end, &row.key_position, &row.key_size)
            at = read_any_blob(body, at, end, &row.value_position, &row.value_size)
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
    """The bytes that contain the records of one batch, and the fields that the records share."""

    cdef bytes data
    cdef str topic
    cdef object partition
    cdef object timestamp_type
    cdef tuple headers
    """The fields of a record that was created from values, or None if the record is in `data`."""


@cython.final
@cython.no_gc
@cython.freelist(512)
@cython.collection_type("sequence")
cdef class Record:
    """One record of a partition; see `codec_pure`. Its attributes are created on access.

    A record keeps its decompressed batch in memory.
    """

    __match_args__ = FIELDS
    _fields = FIELDS
    _field_defaults = {}
    __annotations__ = dict(ANNOTATIONS)
    __dataclass_fields__ = DATA_CLASS_FIELDS

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

    @property
    def timestamp(self):
        """The timestamp in UTC; see `codec_pure`."""
        return timestamp_of(self.row.timestamp_ms)

    cdef tuple as_tuple(self):
        cdef Body body = self.body
        return (
            body.topic,
            body.partition,
            self.row.offset,
            self.row.timestamp_ms,
            body.timestamp_type,
            slice_of(body.data, self.row.key_position, self.row.key_size),
            slice_of(body.data, self.row.value_position, self.row.value_size),
            self.headers,
        )

    def __iter__(self):
        return iter(self.as_tuple())

    def __len__(self):
        return 8

    def __getitem__(self, item):
        return self.as_tuple()[item]

    def __richcmp__(self, other, int operation):
        if isinstance(other, Record):
            other = (<Record>other).as_tuple()
        elif not isinstance(other, tuple):
            return NotImplemented
        return PyObject_RichCompare(self.as_tuple(), other, operation)

    def __hash__(self):
        return hash(self.as_tuple())

    def __add__(self, other):
        return tuple(self) + other

    def __contains__(self, item):
        return item in self.as_tuple()

    def __reduce__(self):
        return record_of, self.as_tuple()

    def count(self, value):
        """Return the number of fields with a value, as a tuple does."""
        return self.as_tuple().count(value)

    def index(self, value, *limits):
        """Return the index of the first field with a value, as a tuple does."""
        return self.as_tuple().index(value, *limits)

    def _asdict(self):
        """Return the fields by their names."""
        return dict(zip(FIELDS, self.as_tuple()))

    def _replace(self, **changes):
        """Return a record with other values in some fields."""
        return Record(**{**self._asdict(), **changes})

    @classmethod
    def __class_getitem__(cls, types):
        """Return the type of records with keys and values of these types, as `Generic` does for the record in
        `codec_pure`."""
        return GenericAlias(cls, types)

    @classmethod
    def _make(cls, fields):
        """Return a record with the given fields, in order."""
        return cls(*fields)

    def __repr__(self):
        fields = ", ".join(f"{name}={field!r}" for name, field in zip(FIELDS, self.as_tuple()))
        return f"Record({fields})"


Sequence.register(Record)


cdef inline object slice_of(bytes data, int32_t position, int32_t size):
    if size < 0:
        return None
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + position, size)


cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030E0000 && !defined(Py_LIMITED_API)
    #define forget_hash(header) (((PyTupleObject *)(header))->ob_hash = -1)
    #else
    #define forget_hash(header)
    #endif
    #ifdef Py_LIMITED_API
    #define KNOWS_TUPLE_FIELDS 0
    #else
    #define KNOWS_TUPLE_FIELDS 1
    #endif
    """
    # Since Python 3.14, a tuple stores its hash, and -1 until it is computed.
    void forget_hash(object header)
    # False if the module may run with a later Python, whose tuples may have other fields.
    bint KNOWS_TUPLE_FIELDS


cdef object new_tuple = tuple.__new__
cdef bint knows_tuple_fields = KNOWS_TUPLE_FIELDS or version_info < (3, 14)


cdef inline object new_header(object name, object value):
    """Return a `RecordHeader`; its constructor would create a plain tuple first."""
    if not knows_tuple_fields:
        return new_tuple(RecordHeader, (name, value))
    header = PyType_GenericAlloc(<PyTypeObject*> RecordHeader, 2)
    forget_hash(header)
    Py_INCREF(name)
    PyTuple_SET_ITEM(header, 0, name)
    Py_INCREF(value)
    PyTuple_SET_ITEM(header, 1, value)
    return header


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
            headers.append(new_header(name, None))
        else:
            headers.append(new_header(name, PyBytes_FromStringAndSize(<const char*>at, length)))
            at += length
    return tuple(headers)


@cython.final
cdef class RowTable:
    """The rows of one batch. They are found without the interpreter lock. The memory is reused for the next batch."""

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

        :raises CorruptBatchError: as in `codec_pure`.
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
        """Allocate memory for the number of records in a header.

        :raises CorruptBatchError: the header contradicts the size of the body.
        """
        self.count = header.record_count
        self.base_offset = header.base_offset
        self.last_offset_delta = header.last_offset_delta
        self.base_timestamp_ms = header.base_timestamp_ms
        self.has_append_time = (<int64_t>header.attributes & TIMESTAMP_TYPE_MASK) != 0
        self.append_time_ms = header.max_timestamp_ms if self.has_append_time else 0
        if not self.is_in_range(size):
            codec_pure.check_ranges(size, header)
            raise AssertionError("the two codecs disagree on the validity of a header")
        if self.count > self.capacity:
            free(self.rows)
            self.capacity = 0
            self.rows = <Row*>malloc(self.count * sizeof(Row))
            if self.rows == NULL:
                raise MemoryError
            self.capacity = self.count
        return 0

    cdef bint is_in_range(self, Py_ssize_t size) noexcept nogil:
        """Return whether `check_ranges` in `codec_pure` would accept the header."""
        return (
            0 <= self.count <= size // RECORD_SIZE_MIN
            and size <= INT32_MAX
            and self.base_offset >= 0
            and self.last_offset_delta >= 0
            and self.last_offset_delta < INT64_MAX - self.base_offset
        )

    cdef bint fill(self, const uint8_t* body, Py_ssize_t size) noexcept nogil:
        """Find the rows of the prepared body; return whether the body is valid."""
        return self.parse_body(body, size, False) or self.parse_body(body, size, True)

    cdef bint parse_body(self, const uint8_t* body, Py_ssize_t size, bint is_lenient) noexcept nogil:
        return parse_rows(
            body, size, self.count, self.base_offset, self.last_offset_delta, self.base_timestamp_ms,
            self.append_time_ms, self.has_append_time, self.rows, is_lenient,
        )

    cdef int complain(self, const uint8_t* body, Py_ssize_t size, header) except -1:
        """Raise the error of `codec_pure` for an invalid body."""
        codec_pure.decode_records(PyBytes_FromStringAndSize(<const char*>body, size), header, "", 0)
        raise AssertionError("the two codecs disagree on the damage of a body")

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
    """Return the records of a body with `min_offset <= offset < max_offset`; see `codec_pure`."""
    cdef RowTable table = RowTable()
    cdef Body shared = Body.__new__(Body)
    # Copy the body unless it is a bytes object. Otherwise, a record that the application keeps would keep a whole
    # response in memory.
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
