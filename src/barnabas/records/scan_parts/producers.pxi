# The states of idempotent producers; the equivalent in Python is `SegmentScan.producers`.

cdef uint64_t HASH_SEED = int.from_bytes(os.urandom(8), "little")
"""A random factor for the hash of producer ids. It prevents clients from choosing producer ids that share a slot of the
table."""


cdef struct Producer:
    int64_t producer_id
    int64_t base_offsets[BATCHES_KEPT]
    int32_t deltas[BATCHES_KEPT]
    int32_t sequences[BATCHES_KEPT]
    int16_t epoch
    uint8_t count
    uint8_t oldest


cdef struct Producers:
    # The producers in the order of their first batches, and a hash table from producer id to index plus one.
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
    """Return the slot of a producer, or the free slot for a new producer. A free slot always exists."""
    cdef uint32_t place = place_of(producer_id, producers.mask)
    while producers.places[place] and producers.items[producers.places[place] - 1].producer_id != producer_id:
        place = (place + 1) & producers.mask
    return place


cdef bint grow_producers(Producers* producers) noexcept nogil:
    """Double the table; return False if memory is exhausted."""
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
    """Return the producer. If it is new, it has no batches yet. Return NULL if memory is exhausted."""
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
    """Add a batch. A batch with another epoch replaces all earlier batches."""
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
    """Return the epoch and the batches, oldest first, as tuples of first sequence, last sequence, base offset and last
    offset."""
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
