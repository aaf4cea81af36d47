# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The loops that run once per batch, over a file or over produce requests, compiled. The equivalent in Python is
`scan_pure`.

Both have the same names and results. A change of one module must also change the other; the tests of `records` compare
both.

Memory safety: `load_header` reads 61 bytes; its callers check that these bytes exist. The size of a batch is compared
with the end of the chunk before it is used. Loaded fields are not read a second time, because the bytes could change.
For damaged batches, the Python module reads the same batch again and describes the damage.

Threads: `feed` releases the interpreter lock for large chunks. While a thread feeds a scan, the scan rejects chunks
from other threads and access to its results.
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
    # The value of an unknown offset, timestamp, epoch or producer id; each of them is -1 (`barnabas.model`).
    UNKNOWN = -1
    RECORD_SIZE_MIN = 7
    BATCHES_KEPT = 5
    FIRST_CAPACITY = 64
    # Below this size, the interpreter lock is not released, because the work takes less time than releasing and
    # acquiring the lock.
    RELEASING_BYTES_MIN = 32768

cdef enum Outcome:
    STOPPED
    DAMAGED
    NO_MEMORY

CODEC = "compiled"

include "scan_parts/crc.pxi"
include "scan_parts/headers.pxi"
include "scan_parts/columns.pxi"
include "scan_parts/producers.pxi"
include "scan_parts/segment_scan.pxi"
include "scan_parts/sent_batches.pxi"


def crc32c(data, *, portable=False):
    """Return the CRC-32C of `data`. `portable` selects the code without the processor's CRC instruction."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    crc = (barnabas_crc_portable if portable else barnabas_crc)(<const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return crc
