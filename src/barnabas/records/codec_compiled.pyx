# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The loops that run once per record, compiled. The equivalent in Python is `codec_pure`, with the same names and
results.

A change of one module must also change the other; the tests of `records` compare both.

Memory safety: `parse_rows` is the only function that parses untrusted bytes. It checks every length against the end of
the record, and every record against the end of the body, before it reads them. All rows in its result lie within the
body. For damaged bodies, the Python module decodes the same body again and raises the error.

Threads: methods that never release the interpreter lock are atomic. `RecordEncoder.put` is atomic, so `Appender.send`
needs no other lock. The sender closes an encoder under the interpreter lock. So a record is either in the batch that
the sender takes, or `send` finds that the encoder is closed.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject, PyObject_RichCompare, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from collections.abc import Sequence
from sys import version_info
from types import GenericAlias

from barnabas.errors import CorruptBatchError
from barnabas.model import RecordHeader, TimestampType
from barnabas.records import codec_pure
from barnabas.records.columns import BinaryBuffers, ColumnBuffers, HeaderBuffers
from barnabas.records.record_protocol import ANNOTATIONS, DATA_CLASS_FIELDS, FIELDS, record_of, timestamp_of


cdef extern from "Python.h":
    # Cython's declaration has another type for the first argument, which gcc 14 and clang 16 reject.
    object PyType_GenericAlloc(PyTypeObject* type, Py_ssize_t item_count)


cdef enum:
    HEADER_SIZE = 61
    NULL_SIZE = -1
    NO_ROOM = -1
    FIRST_CAPACITY = 512
    RECORD_SIZE_MIN = 7
    TIMESTAMP_TYPE_MASK = 0x08
    # Below this size, the interpreter lock is not released, because the work takes less time than releasing and
    # acquiring the lock.
    RELEASING_BYTES_MIN = 32768

CODEC = "compiled"

include "codec_parts/limited_api.pxi"
include "codec_parts/storage.pxi"
include "codec_parts/varints.pxi"
include "codec_parts/fields.pxi"
include "codec_parts/given_bytes.pxi"
include "codec_parts/encoding.pxi"
include "codec_parts/appending.pxi"
include "codec_parts/decoding.pxi"
include "codec_parts/stretches.pxi"
include "codec_parts/column_decoding.pxi"
