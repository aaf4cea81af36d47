"""Recompresses batches, for topics whose `compression.type` differs from the compression of the producers.

The body of a batch is decompressed and compressed as a whole; records are not parsed. Offsets, producer id and sequence
of the batch do not change.
"""

from __future__ import annotations

from barnabas.records.compression import DECOMPRESSED_BYTES_MAX, Compression, compress, decompressed
from barnabas.records.header import (
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    LENGTH_OVERHEAD,
    Buffer,
    check_batch,
    iter_headers,
    pack_header,
    write_crc,
)


def recompress(buffer: Buffer, kind: Compression, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Return the batches in `buffer`, each compressed with `kind`. If all batches already use `kind`, return `buffer`.

    :param max_bytes: the maximum decompressed size of all bodies together, in bytes.
    :raises CorruptBatchError: a batch is damaged, or the bodies are larger than `max_bytes`.
    """
    placed = list(iter_headers(buffer))
    if all(header.compression is kind for _, header in placed):
        return buffer
    batches = bytearray()
    for position, header in placed:
        check_batch(buffer, position, header)
        body = memoryview(buffer)[position + BATCH_HEADER_SIZE : position + header.size]
        plain = decompressed(header.compression, body, max_bytes)
        max_bytes -= len(plain)
        changed = compress(kind, plain)
        batch = bytearray(BATCH_HEADER_SIZE) + changed
        attributes = header.attributes & ~COMPRESSION_MASK | kind
        pack_header(batch, header._replace(batch_length=len(batch) - LENGTH_OVERHEAD, attributes=attributes))
        write_crc(batch, 0, len(batch))
        batches += batch
    return batches
