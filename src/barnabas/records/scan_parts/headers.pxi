# The header of a batch, 61 bytes; the equivalent in Python is `header.py`.

cdef enum:
    HEADER_SIZE = 61
    LENGTH_OVERHEAD = 12
    CRC_START = 21
    MAGIC = 2
    COMPRESSION_MASK = 0x07
    CONTROL_MASK = 0x20

cdef int COMPRESSION_LAST = max(Compression)


cdef struct Header:
    int64_t base_offset
    int64_t size
    int32_t leader_epoch
    int8_t magic
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp_ms
    int64_t max_timestamp_ms
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t record_count


cdef inline void load_header(const uint8_t* at, Header* header) noexcept nogil:
    """Load the header from the 61 bytes at `at`. The caller must check that these bytes exist."""
    header.base_offset = <int64_t>barnabas_big(at, 8)
    header.size = <int64_t><int32_t>barnabas_big(at + 8, 4) + LENGTH_OVERHEAD
    header.leader_epoch = <int32_t>barnabas_big(at + 12, 4)
    header.magic = <int8_t>at[16]
    header.crc = <uint32_t>barnabas_big(at + 17, 4)
    header.attributes = <int16_t>barnabas_big(at + 21, 2)
    header.last_offset_delta = <int32_t>barnabas_big(at + 23, 4)
    header.base_timestamp_ms = <int64_t>barnabas_big(at + 27, 8)
    header.max_timestamp_ms = <int64_t>barnabas_big(at + 35, 8)
    header.producer_id = <int64_t>barnabas_big(at + 43, 8)
    header.producer_epoch = <int16_t>barnabas_big(at + 51, 2)
    header.base_sequence = <int32_t>barnabas_big(at + 53, 4)
    header.record_count = <int32_t>barnabas_big(at + 57, 4)


cdef inline bint is_sound(const Header* header) noexcept nogil:
    """Do the same checks as `check_structure` in the module `header`."""
    return (
        header.magic == MAGIC
        and header.size >= HEADER_SIZE
        and header.base_offset >= 0
        and header.last_offset_delta >= 0
        and header.record_count >= 0
        and header.record_count <= <int64_t>header.last_offset_delta + 1
        and (header.attributes & COMPRESSION_MASK) <= COMPRESSION_LAST
    )
