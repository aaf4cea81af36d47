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
include "scan_parts/columns.pxi"
include "scan_parts/producers.pxi"
include "scan_parts/segment_scan.pxi"
include "scan_parts/sent_batches.pxi"


def crc32c(data, *, portable=False):
    """Return the CRC-32C of `data`; `portable`: as where there is no instruction for it."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    crc = (barnabas_crc_portable if portable else barnabas_crc)(<const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return crc
