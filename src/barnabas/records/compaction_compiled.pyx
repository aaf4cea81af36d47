# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""What log compaction does for each record, compiled. Its twin in Python is `compaction_pure`: same names, same results.
Only the keyed hash is another, for each twin has the fastest of its own; no result depends on it.

Whoever changes one changes the other; the tests of `records` run on both and compare them.

Memory safety: `find_batch` compares the size of a batch with what is there before it is believed, and `parse_record`
checks every length against the end of the record, and every record against the end of the body. What was read from a
header is not read a second time: the bytes could change. Damage is told by the twin, which looks at the same batch
again to say what is wrong.

Threads: the interpreter lock is given up. A map to which another thread adds refuses to be used; several threads may
filter by one map at a time.
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
    # An offset, timestamp or producer id that is none; each of them is -1 (`barnabas.model`).
    UNKNOWN = -1
    RECORD_SIZE_MIN = 7
    VARINT_BYTES_MAX = 10
    FIRST_CAPACITY = 512
    TIMESTAMP_TYPE_MASK = 0x08
    DELETE_HORIZON_MASK = 0x40
    DIGEST_BYTES = 16
    ENTRY_BYTES = 21
    # Records whose entries are asked for before the first of them is looked at.
    GROUP = 32
    # So many records without keys are told of a batch (`compaction_pure`).
    KEYLESS_MAX = 1000
    # In less memory than this, small pages do not slow down the search for keys.
    HUGE_PAGES_BYTES_MIN = 4194304
    # A shorter run of unchanged batches is copied: that takes less time than a piece of its own in every later step.
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
