# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The loops that run once per batch, of a file or of what producers send, compiled. Its twin in Python is `scan_pure`:
same names, same results.

Whoever changes one changes the other; the tests of `records` run on both and compare them.

Memory safety: `load_header` reads 61 bytes, and who calls it has seen that they are there. A batch's size is believed
after it was compared with the end of the chunk, and what was loaded is not read a second time: the bytes could change.
Damage is told by the twin, which looks at the same batch again to say what is wrong.

Threads: `feed` gives up the interpreter lock for chunks worth it. A scan that another thread feeds at that time refuses
to be fed, and to hand out what it has gathered.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

import os
from array import array

from barnabas.records import scan_pure
from barnabas.records.compression import Compression

cdef enum:
    PRODUCERS_ATTRIBUTES = 0x0F
    # An offset, timestamp, epoch or producer id that is none; each of them is -1 (`barnabas.model`).
    UNKNOWN = -1
    RECORD_SIZE_MIN = 7
    BATCHES_KEPT = 5
    FIRST_CAPACITY = 64
    # Work on less than this is done sooner than another thread could take the interpreter lock and give it back.
    RELEASING_BYTES_MIN = 32768

cdef enum Outcome:
    STOPPED
    DAMAGED
    NO_MEMORY

CODEC = "compiled"

include "scan_parts/crc.pxi"
include "scan_parts/headers.pxi"

cdef uint64_t HASH_SEED = int.from_bytes(os.urandom(8), "little")
"""So that nobody can choose producer ids that all lie in the same place of the table."""


def crc32c(data, *, portable=False):
    """Return the CRC-32C of `data`; `portable`: as where there is no instruction for it."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    crc = (barnabas_crc_portable if portable else barnabas_crc)(<const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return crc


# --- columns that grow -----------------------------------------------------------------------------------------


cdef struct Column:
    uint8_t* data
    size_t size
    size_t capacity


cdef inline bint reserve(Column* column, size_t more) noexcept nogil:
    """Make room for a few bytes more; False where there is no memory."""
    cdef size_t capacity
    cdef uint8_t* data
    if column.size + more <= column.capacity:
        return True
    capacity = max(column.capacity * 2, <size_t>FIRST_CAPACITY)
    data = <uint8_t*>realloc(column.data, capacity)
    if data == NULL:
        return False
    column.data = data
    column.capacity = capacity
    return True


cdef inline void push_int64(Column* column, int64_t value) noexcept nogil:
    """Room has been reserved."""
    memcpy(column.data + column.size, &value, sizeof(value))
    column.size += sizeof(value)


cdef inline void push_uint32(Column* column, uint32_t value) noexcept nogil:
    """Room has been reserved."""
    memcpy(column.data + column.size, &value, sizeof(value))
    column.size += sizeof(value)


cdef object column_array(str typecode, const Column* column):
    return array(typecode, PyBytes_FromStringAndSize(<char*>column.data, column.size))


# --- producers -------------------------------------------------------------------------------------------------


cdef struct Producer:
    int64_t producer_id
    int64_t base_offsets[BATCHES_KEPT]
    int32_t deltas[BATCHES_KEPT]
    int32_t sequences[BATCHES_KEPT]
    int16_t epoch
    uint8_t count
    uint8_t oldest


cdef struct Producers:
    # In the order in which they came; and where in this order, plus one, the producer of a hash is.
    Producer* items
    uint32_t count
    uint32_t capacity
    uint32_t* places
    uint32_t mask
    uint32_t latest


cdef inline uint32_t place_of(int64_t producer_id, uint32_t mask) noexcept nogil:
    cdef uint64_t mixed = (<uint64_t>producer_id ^ HASH_SEED) * <uint64_t>0x9E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 32)) * <uint64_t>0xD6E8FEB86659FD93
    return <uint32_t>(mixed >> 32) & mask


cdef inline uint32_t find_place(const Producers* producers, int64_t producer_id) noexcept nogil:
    """Return the place of a producer, or the free one where it belongs. There is always a free one."""
    cdef uint32_t place = place_of(producer_id, producers.mask)
    while producers.places[place] and producers.items[producers.places[place] - 1].producer_id != producer_id:
        place = (place + 1) & producers.mask
    return place


cdef bint grow_producers(Producers* producers) noexcept nogil:
    """Make room for twice as many; False where there is no memory."""
    cdef uint32_t capacity = max(producers.capacity * 2, <uint32_t>8)
    cdef uint32_t* places
    cdef Producer* items
    cdef uint32_t i
    if capacity > <uint32_t>1 << 30:
        return False
    items = <Producer*>realloc(producers.items, capacity * sizeof(Producer))
    if items == NULL:
        return False
    producers.items = items
    places = <uint32_t*>calloc(2 * capacity, sizeof(uint32_t))
    if places == NULL:
        return False
    free(producers.places)
    producers.places = places
    producers.mask = 2 * capacity - 1
    producers.capacity = capacity
    for i in range(producers.count):
        producers.places[find_place(producers, producers.items[i].producer_id)] = i + 1
    return True


cdef Producer* find_producer(Producers* producers, int64_t producer_id) noexcept nogil:
    """Return the producer, perhaps a new one without batches; NULL where there is no memory."""
    cdef uint32_t place
    cdef Producer* producer
    if producers.count and producers.items[producers.latest].producer_id == producer_id:
        return &producers.items[producers.latest]
    if producers.count == producers.capacity and not grow_producers(producers):
        return NULL
    place = find_place(producers, producer_id)
    if producers.places[place] == 0:
        producer = &producers.items[producers.count]
        memset(producer, 0, sizeof(Producer))
        producer.producer_id = producer_id
        producers.count += 1
        producers.places[place] = producers.count
    producers.latest = producers.places[place] - 1
    return &producers.items[producers.latest]


cdef inline void add_batch(Producer* producer, const Header* header) noexcept nogil:
    """Remember a batch; of another epoch than the ones before: it alone."""
    cdef uint32_t slot
    if producer.epoch != header.producer_epoch:
        producer.epoch = header.producer_epoch
        producer.count = producer.oldest = 0
    slot = (producer.oldest + producer.count) % BATCHES_KEPT
    if producer.count < BATCHES_KEPT:
        producer.count += 1
    else:
        producer.oldest = (producer.oldest + 1) % BATCHES_KEPT
    producer.base_offsets[slot] = header.base_offset
    producer.deltas[slot] = header.last_offset_delta
    producer.sequences[slot] = header.base_sequence


cdef tuple producer_tuple(const Producer* producer):
    """The epoch, and first sequence, last sequence, base offset and last offset of the batches, oldest first."""
    cdef list batches = []
    cdef int64_t last_sequence
    cdef uint32_t i, slot
    for i in range(producer.count):
        slot = (producer.oldest + i) % BATCHES_KEPT
        last_sequence = producer.sequences[slot]
        if last_sequence >= 0:
            last_sequence += producer.deltas[slot]
            if last_sequence > INT32_MAX:
                last_sequence -= <int64_t>INT32_MAX + 1
        batches.append((
            producer.sequences[slot],
            last_sequence,
            producer.base_offsets[slot],
            producer.base_offsets[slot] + producer.deltas[slot],
        ))
    return producer.epoch, tuple(batches)


# --- the scan --------------------------------------------------------------------------------------------------


@cython.final
@cython.no_gc
cdef class SegmentScan:
    """See the twin, which tells what each of the parameters and attributes is."""

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
            raise ValueError(f"a chunk from position {position}, the scan goes on at {self.size}")
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
                self.damage = self.tell_damage(chunk, self.size - position)
        finally:
            PyBuffer_Release(&view)
        return self.size

    cdef int check_idle(self) except -1:
        if self.busy:
            raise RuntimeError("another thread feeds this scan")
        return 0

    cdef str tell_damage(self, chunk, int64_t at):
        expected = scan_pure.Expected(self.base_offset, self.next_offset, self.epoch, self.end, self.gaps_up_to)
        with memoryview(chunk) as whole:
            damage = scan_pure.damage_at(whole, at, self.size, expected, check_crc=self.check_crc)
        assert damage is not None, "the twins disagree, or the chunk was changed while it was read"
        return damage

    cdef Outcome take_batches(self, const uint8_t* chunk, int64_t length) noexcept nogil:
        """Take in the whole sound batches of a chunk that begins at `size`."""
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
        """Whether a header, sound by itself, is what must come next."""
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
        """Account for a batch; False where there is no memory, and nothing was changed but for the room reserved."""
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


# --- records ---------------------------------------------------------------------------------------------------


def count_records(body, int64_t count):
    """See the twin."""
    cdef Py_buffer view
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    fits = are_records(<const uint8_t*>view.buf, <const uint8_t*>view.buf + view.len, count)
    PyBuffer_Release(&view)
    return fits


cdef bint are_records(const uint8_t* at, const uint8_t* end, int64_t count) noexcept nogil:
    cdef uint64_t zigzag
    cdef uint8_t byte
    cdef int shift
    if count < 0 or count > (end - at) // RECORD_SIZE_MIN:
        return False
    while count:
        count -= 1
        if at >= end:
            return False
        zigzag = at[0]
        at += 1
        if zigzag >= 0x80:
            zigzag &= 0x7F
            shift = 7
            while True:
                if at >= end or (shift == 63 and at[0] > 1):
                    return False
                byte = at[0]
                at += 1
                zigzag |= <uint64_t>(byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
        # An odd zigzag number stands for a negative one.
        if zigzag & 1 or (zigzag >> 1) < RECORD_SIZE_MIN - 1 or (zigzag >> 1) > <uint64_t>(end - at):
            return False
        at += zigzag >> 1
    return at == end


# --- what producers send ---------------------------------------------------------------------------------------


def usual_header(records, int64_t bytes_max):
    """See the twin."""
    cdef Header header
    cdef Py_buffer view
    cdef const uint8_t* at
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t*>view.buf
        if view.len > bytes_max or not load_usual_header(at, view.len, True, &header):
            return None
        return (
            header.base_offset,
            header.size - LENGTH_OVERHEAD,
            header.leader_epoch,
            header.magic,
            header.crc,
            header.attributes,
            header.last_offset_delta,
            header.base_timestamp_ms,
            header.max_timestamp_ms,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
        )
    finally:
        PyBuffer_Release(&view)


def stamp_plain_batches(
    requests,
    Py_ssize_t start,
    int64_t base_offset,
    int32_t leader_epoch,
    *,
    int64_t batch_bytes_max,
    int64_t bytes_max,
    int64_t offset_max,
    int64_t timestamp_ms_max,
):
    """See the twin."""
    cdef list stamped = []
    cdef Py_ssize_t number
    cdef Header header
    cdef Py_buffer view
    cdef uint8_t* at
    for number in range(start, len(requests)):
        try:
            PyObject_GetBuffer(requests[number], &view, PyBUF_WRITABLE)
        except BufferError:  # it is not writable
            break
        try:
            at = <uint8_t*>view.buf
            if view.len > min(batch_bytes_max, bytes_max) or not load_usual_header(at, view.len, False, &header):
                break
            if header.last_offset_delta > offset_max - base_offset or header.max_timestamp_ms > timestamp_ms_max:
                break
            barnabas_put_big(at, 8, <uint64_t>base_offset)
            barnabas_put_big(at + 12, 4, <uint64_t>leader_epoch)
        finally:
            PyBuffer_Release(&view)
        base_offset += header.last_offset_delta
        stamped.append((header.size, base_offset, header.max_timestamp_ms))
        base_offset += 1
        bytes_max -= header.size
    return stamped


cdef bint load_usual_header(const uint8_t* at, int64_t size, bint any_producer, Header* header) except -1:
    """Load the header of the batch that is all of the `size` bytes; return whether it is usual, as the twin says."""
    cdef bint is_usual
    if size < RELEASING_BYTES_MIN:
        is_usual = size >= HEADER_SIZE and is_as_announced(at, size, any_producer, header)
    else:
        with nogil:
            is_usual = is_as_announced(at, size, any_producer, header)
    if is_usual and header.attributes & COMPRESSION_MASK:
        return header.record_count <= scan_pure.max_record_count(
            size - HEADER_SIZE, header.attributes & COMPRESSION_MASK
        )
    return is_usual


cdef bint is_as_announced(const uint8_t* at, int64_t size, bint any_producer, Header* header) noexcept nogil:
    """Load the header; return whether all is usual but for the count of records that are compressed."""
    load_header(at, header)
    return (
        is_sound(header)
        and header.size == size
        and (header.producer_id == UNKNOWN or (any_producer and has_sequence(header)))
        and header.record_count >= 1
        and header.record_count == <int64_t>header.last_offset_delta + 1
        and not header.attributes & ~PRODUCERS_ATTRIBUTES
        and barnabas_crc(at + CRC_START, size - CRC_START) == header.crc
        and (
            header.attributes & COMPRESSION_MASK
            or are_records(at + HEADER_SIZE, at + size, header.record_count)
        )
    )


cdef inline bint has_sequence(const Header* header) noexcept nogil:
    return header.producer_id >= 0 and header.producer_epoch >= 0 and header.base_sequence >= 0
