# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The loops of log compaction over single records, compiled. The equivalent in Python is `compaction_pure`.

Both have the same names and results. Only the keyed hash differs, but no result depends on it. A change of one module
must also change the other; the tests of `records` compare both.

Memory safety: `find_batch` compares the size of a batch with the remaining bytes before using it. `parse_record` checks
every length against the end of the record, and every record against the end of the body. Header fields are read only
once, because the bytes could change. For damaged batches, the Python module reads the same batch again and raises the
error.

Threads: the functions release the interpreter lock. While a thread adds keys to a map, the map rejects calls from other
threads. Several threads may filter with the same map.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport INT32_MAX, INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove

from barnabas.errors import CorruptBatchError
from barnabas.records import compaction_pure
from barnabas.records.compaction_pure import Added, Filtered
from barnabas.records.compression import DECOMPRESSED_BYTES_MAX, Compression, Decompressor, compress
from barnabas.records.header import read_header

cdef extern from *:
    """
    #define BARNABAS_RELATIVE_OFFSET_MAX ((INT64_C(1) << 40) - 2)
    """
    const int64_t RELATIVE_OFFSET_MAX "BARNABAS_RELATIVE_OFFSET_MAX"
    void prefetch "__builtin_prefetch"(const void* address) noexcept nogil

cdef enum:
    NULL_SIZE = -1
    # The value of an unknown offset, timestamp or producer id; each of them is -1 (`barnabas.model`).
    UNKNOWN = -1
    RECORD_SIZE_MIN = 7
    VARINT_BYTES_MAX = 10
    FIRST_CAPACITY = 512
    TIMESTAMP_TYPE_MASK = 0x08
    DELETE_HORIZON_MASK = 0x40
    DIGEST_BYTES = 16
    ENTRY_BYTES = 21
    # The number of records whose map entries are prefetched before the first entry is read.
    GROUP = 32
    # The maximum number of records without keys that are reported for a batch, as in `compaction_pure`.
    KEYLESS_MAX = 1000
    # Huge pages are requested only for maps of at least this size. In smaller maps, they do not make searches faster.
    HUGE_PAGES_BYTES_MIN = 4194304
    # Shorter runs of unchanged batches are copied, because a copy costs less than the handling of a separate piece in
    # all later steps.
    VIEW_BYTES_MIN = 16384

cdef enum Outcome:
    FOUND
    STOPPED
    DAMAGED
    COMPRESSED
    LARGE
    FULL
    UNCHANGED
    CHANGED
    EMPTIED
    WRITTEN
    NO_MEMORY

CODEC = "compiled"

include "codec_parts/limited_api.pxi"
include "codec_parts/storage.pxi"
include "codec_parts/varints.pxi"
include "codec_parts/fields.pxi"
include "scan_parts/crc.pxi"
include "scan_parts/headers.pxi"
include "compaction_parts/keyed_hash.pxi"
include "compaction_parts/parsing.pxi"
include "compaction_parts/offset_map.pxi"
include "compaction_parts/filtering.pxi"
include "compaction_parts/keys.pxi"
