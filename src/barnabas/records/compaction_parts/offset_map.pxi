# The latest offset of each key; the equivalent in Python is `OffsetMap` of `compaction_pure.py`.

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <sys/mman.h>
    #include <unistd.h>

    /* Each search reads a different address, so with small pages nearly each search misses the TLB, too; in 128 MiB
       it takes more than twice as long. */
    static void barnabas_ask_for_huge_pages(void* at, size_t size) {
    #ifdef MADV_HUGEPAGE
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        uintptr_t start = ((uintptr_t)at + page - 1) / page * page, end = ((uintptr_t)at + size) / page * page;
        if (end > start)
            (void)madvise((void*)start, end - start, MADV_HUGEPAGE);
    #endif
    }
    """
    void barnabas_ask_for_huge_pages(void* at, size_t size) noexcept nogil


cdef struct Pending:
    Hash hash
    int64_t relative_offset


cdef inline uint64_t stored_offset(const uint8_t* entry) noexcept nogil:
    """Return the offset of an entry relative to the map's base offset, plus one; 0 if the slot is free."""
    cdef uint32_t low
    memcpy(&low, entry + DIGEST_BYTES, sizeof(low))
    return low | <uint64_t>entry[DIGEST_BYTES + 4] << 32


cdef inline void store_offset(uint8_t* entry, uint64_t stored) noexcept nogil:
    cdef uint32_t low = <uint32_t>stored
    memcpy(entry + DIGEST_BYTES, &low, sizeof(low))
    entry[DIGEST_BYTES + 4] = <uint8_t>(stored >> 32)


cdef inline Hash stored_hash(const uint8_t* entry) noexcept nogil:
    cdef Hash found
    memcpy(&found, entry, sizeof(found))
    return found


def keyed_hash(secret, data):
    """Return the hash of 16 bytes that represents the key `data` in a map; the secret has 16 bytes."""
    cdef OffsetMap a_map = OffsetMap(2 * ENTRY_BYTES, 0, secret)
    cdef Py_buffer view
    cdef Hash result
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    result = a_map.hash_of(<const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return b"".join([(<uint64_t>word).to_bytes(8, "little") for word in (result.first, result.second)])


@cython.final
cdef class OffsetMap:
    """The latest offset of each key in a range of the log, in memory of a fixed size; see `compaction_pure`."""

    cdef readonly int64_t base_offset
    cdef readonly int64_t end_offset
    cdef readonly uint64_t capacity
    cdef uint64_t secret_first
    cdef uint64_t secret_second
    cdef uint64_t slots
    cdef uint64_t count
    cdef uint8_t* table
    cdef int readers
    cdef bint busy
    cdef int pending_count
    cdef Pending pending[GROUP]

    def __cinit__(self, memory_bytes, base_offset, secret):
        self.slots = compaction_pure.check_map_parameters(memory_bytes, base_offset, secret)
        self.base_offset = self.end_offset = base_offset
        self.capacity = compaction_pure.capacity_of(self.slots)
        self.secret_first, self.secret_second = (int.from_bytes(secret[at : at + 8], "little") for at in (0, 8))
        # calloc provides zeroed memory without writing all of it.
        self.table = <uint8_t*>calloc(self.slots, ENTRY_BYTES)
        if self.table == NULL:
            raise MemoryError
        if self.slots * ENTRY_BYTES >= HUGE_PAGES_BYTES_MIN:
            barnabas_ask_for_huge_pages(self.table, self.slots * ENTRY_BYTES)

    def __dealloc__(self):
        free(self.table)

    def __len__(self):
        return self.count

    def latest(self, key):
        cdef Py_buffer view
        cdef const uint8_t* entry
        self.check_idle()
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        entry = self.find(self.hash_of(<const uint8_t*>view.buf, view.len))
        PyBuffer_Release(&view)
        return None if entry == NULL else self.base_offset + <int64_t>stored_offset(entry) - 1

    cdef int check_idle(self) except -1:
        if self.busy:
            raise RuntimeError("another thread is adding keys to this map")
        return 0

    def add(self, batches, int64_t first_offset, *, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
        cdef Py_buffer view
        cdef Walk walk
        compaction_pure.check_first_offset(first_offset, self.base_offset)
        PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
        try:
            self.check_idle()
            if self.readers:
                raise RuntimeError("another thread is using this map to filter batches")
            self.busy = True
            try:
                walk = Walk(<const uint8_t*>view.buf, view.len, 0, 0)
                return self.take(batches, &walk, first_offset, Decompressor(decompressed_bytes_max))
            finally:
                self.busy = False
        finally:
            PyBuffer_Release(&view)

    cdef object take(self, batches, Walk* walk, int64_t first_offset, decompressor):
        """Add the batches of `walk`, whose bytes are `batches`."""
        cdef Header header
        cdef Outcome outcome
        while True:
            with nogil:
                outcome = self.take_batches(walk, &header, first_offset)
            if outcome == COMPRESSED:
                body = decompressed_body(batches, walk, &header, decompressor)
                outcome = self.take_decompressed(body, &header, first_offset)
                if outcome == FOUND:
                    self.take_note(walk, &header)
                    continue
            if outcome == DAMAGED:
                complain(batches, walk, decompressor)
            if outcome == FULL:
                self.end_offset = max(self.end_offset, header.base_offset)
            return Added(walk.at, self.end_offset, outcome == FULL)

    cdef Outcome take_decompressed(self, body, const Header* header, int64_t first_offset) except *:
        cdef Py_buffer view
        cdef Outcome outcome
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        with nogil:
            outcome = self.take_body(<const uint8_t*>view.buf, view.len, header, first_offset)
            self.flush()
        PyBuffer_Release(&view)
        return outcome

    cdef Outcome take_batches(self, Walk* walk, Header* header, int64_t first_offset) noexcept nogil:
        """Add batches up to the first batch that is compressed, damaged or incomplete, or does not fit."""
        cdef Outcome outcome
        while True:
            outcome = find_batch(walk, header)
            if outcome == FOUND and not (
                header.attributes & CONTROL_MASK or header.base_offset + header.last_offset_delta < first_offset
            ):
                if header.base_offset + header.last_offset_delta - self.base_offset > RELATIVE_OFFSET_MAX:
                    outcome = FULL
                elif is_compressed(header):
                    outcome = COMPRESSED
                else:
                    outcome = self.take_body(
                        walk.data + walk.at + HEADER_SIZE, header.size - HEADER_SIZE, header, first_offset
                    )
            if outcome != FOUND:
                self.flush()
                return outcome
            self.take_note(walk, header)

    cdef inline void take_note(self, Walk* walk, const Header* header) noexcept nogil:
        pass_batch(walk, header)
        self.end_offset = max(self.end_offset, walk.next_offset)

    cdef Outcome take_body(
        self, const uint8_t* body, int64_t size, const Header* header, int64_t first_offset
    ) noexcept nogil:
        """Add the records of an uncompressed body; return FOUND, FULL or DAMAGED."""
        cdef const uint8_t* at = body
        cdef const uint8_t* end = body + size
        cdef int64_t previous = -1
        cdef Candidate record
        cdef int32_t i
        cdef bint fits = True
        if not are_in_range(header, size):
            return DAMAGED
        for i in range(header.record_count):
            at = parse_record(body, at, end, header, &previous, &record)
            if at == NULL:
                return DAMAGED
            if fits and record.key_size != NULL_SIZE and record.offset >= first_offset:
                record.hash = self.hash_of(body + record.key_position, record.key_size)
                fits = self.remember(record.hash, record.offset - self.base_offset)
        if at != end:
            return DAMAGED
        return FOUND if fits else FULL

    cdef inline bint remember(self, Hash key, int64_t relative_offset) noexcept nogil:
        """Store the offset of a key, now or later together with others; return False if there is no space.

        Memory access is slow, so the entries of several keys are prefetched before the first of them is read.
        """
        if self.pending_count == GROUP or self.count + <uint64_t>self.pending_count >= self.capacity:
            self.flush()
            if self.count == self.capacity:
                return self.put(key, relative_offset)
        prefetch(self.entry_at(self.home(key)))
        self.pending[self.pending_count] = Pending(key, relative_offset)
        self.pending_count += 1
        return True

    cdef void flush(self) noexcept nogil:
        """Store the pending offsets. The map has space for them."""
        cdef int i
        for i in range(self.pending_count):
            self.put(self.pending[i].hash, self.pending[i].relative_offset)
        self.pending_count = 0

    cdef inline void prepare(self, const uint8_t* body, Candidate* record) noexcept nogil:
        """Prefetch the map entry for the key of a record in `body`, because memory access is slow."""
        if record.key_size != NULL_SIZE:
            record.hash = self.hash_of(body + record.key_position, record.key_size)
            prefetch(self.entry_at(self.home(record.hash)))

    cdef inline Hash hash_of(self, const uint8_t* key, int64_t size) noexcept nogil:
        return barnabas_keyed_hash(self.secret_first, self.secret_second, key, size)

    cdef inline uint64_t home(self, Hash key) noexcept nogil:
        """Return the home slot of a key: the hash, scaled to the number of slots."""
        return ((key.first >> 32) * self.slots + (<uint64_t><uint32_t>key.first * self.slots >> 32)) >> 32

    cdef inline uint8_t* entry_at(self, uint64_t slot) noexcept nogil:
        return self.table + slot * ENTRY_BYTES

    cdef inline uint8_t* find(self, Hash key) noexcept nogil:
        """Return the entry of a key, or NULL."""
        cdef uint64_t slot
        return self.search(key, &slot)

    cdef inline uint8_t* search(self, Hash key, uint64_t* place) noexcept nogil:
        """Return the entry of a key, or NULL. `place` becomes the slot of the key, or its insertion slot; see
        `compaction_pure`."""
        cdef uint64_t home = self.home(key)
        cdef uint64_t slot = home
        cdef uint64_t distance = 0
        cdef uint64_t other_home
        cdef uint8_t* entry
        cdef Hash found
        while True:
            entry = self.entry_at(slot)
            place[0] = slot
            if stored_offset(entry) == 0:
                return NULL
            found = stored_hash(entry)
            if found.first == key.first and found.second == key.second:
                return entry
            other_home = self.home(found)
            if (slot - other_home if slot >= other_home else slot + self.slots - other_home) < distance:
                return NULL
            slot += 1
            if slot == self.slots:
                slot = 0
            distance += 1

    cdef bint put(self, Hash key, int64_t relative_offset) noexcept nogil:
        """Store the offset of a key, unless a later offset is stored. Return False if there is no space for another
        key."""
        cdef uint64_t slot
        cdef uint64_t stored = <uint64_t>relative_offset + 1
        cdef uint8_t* entry = self.search(key, &slot)
        if entry != NULL:
            if stored > stored_offset(entry):
                store_offset(entry, stored)
            return True
        if self.count == self.capacity:
            return False
        self.make_room(slot)
        entry = self.entry_at(slot)
        memcpy(entry, &key, sizeof(key))
        store_offset(entry, stored)
        self.count += 1
        return True

    cdef void make_room(self, uint64_t slot) noexcept nogil:
        """Move the entries from `slot` to the next free slot by one slot. A free slot always exists."""
        cdef uint64_t free_slot = slot
        while stored_offset(self.entry_at(free_slot)):
            free_slot += 1
            if free_slot == self.slots:
                free_slot = 0
        if free_slot < slot:
            memmove(self.table + ENTRY_BYTES, self.table, free_slot * ENTRY_BYTES)
            free_slot = self.slots - 1
            memcpy(self.table, self.entry_at(free_slot), ENTRY_BYTES)
        memmove(self.entry_at(slot + 1), self.entry_at(slot), (free_slot - slot) * ENTRY_BYTES)
