"""The record codec: the compiled module if it was built, otherwise the Python module with the same results.

`CODEC` is "compiled" or "pure". The environment variable BARNABAS_CODEC selects one of them, for tests and comparisons.
The scan over batch headers and log compaction are selected in the same way.

Free-threaded builds of Python are refused, even with the global interpreter lock (docs/decisions/042). Their
`sys.version` contains "free-threading" (Python's how-to on free threading, "Identifying free-threaded Python").
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from barnabas.errors import ConfigurationError

WANTED = os.environ.get("BARNABAS_CODEC", "")
"""The value of BARNABAS_CODEC. An empty value selects the compiled codec if it was built."""
if WANTED not in ("", "compiled", "pure"):
    raise ConfigurationError(f"BARNABAS_CODEC={WANTED!r} must be 'compiled', 'pure' or empty")
if "free-threading" in sys.version:
    raise ConfigurationError(
        "Barnabas does not run on free-threaded Python: concurrent sends could corrupt memory there, and its LZ4 "
        "library does not work; use a usual build of Python, for example python3.14 instead of python3.14t"
    )


def load_implementation(name: str) -> ModuleType:
    """Return the implementation in use: the module `<name>_compiled` or `<name>_pure` of `barnabas.records`.

    :raises ConfigurationError: the compiled module was requested, but was not built.
    """
    if WANTED != "pure":
        try:
            return importlib.import_module(f"barnabas.records.{name}_compiled")
        except ImportError as error:
            if WANTED:
                raise ConfigurationError(
                    f"BARNABAS_CODEC={WANTED}, but the compiled module was not built: {error}"
                ) from error
    return importlib.import_module(f"barnabas.records.{name}_pure")


if TYPE_CHECKING:
    import barnabas.records.codec_pure as codec
    from barnabas.records.codec_pure import Record
else:
    codec = load_implementation("codec")
    Record = codec.Record

__all__ = [
    "CODEC",
    "Appender",
    "ColumnDecoder",
    "Delivery",
    "OpenEncoders",
    "Record",
    "RecordEncoder",
    "decode_records",
    "exact_bytes",
    "group_rows",
    "load_implementation",
    "murmur2",
    "twin",
]

twin = codec
CODEC = codec.CODEC
Appender = codec.Appender
ColumnDecoder = codec.ColumnDecoder
Delivery = codec.Delivery
OpenEncoders = codec.OpenEncoders
RecordEncoder = codec.RecordEncoder
decode_records = codec.decode_records
exact_bytes = codec.exact_bytes
group_rows = codec.group_rows
murmur2 = codec.murmur2
