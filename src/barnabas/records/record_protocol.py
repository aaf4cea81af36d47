"""The parts that both implementations of `Record` share: fields, timestamps and pickling.

The compiled record computes its fields on access, so it is not a tuple. It implements the protocols of named tuples and
data classes, because pandas reads a list of records by `_fields`, and polars by the fields of a data class.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Optional

ANNOTATIONS: Mapping[str, Any] = {
    "topic": str,
    "partition": int,
    "offset": int,
    "timestamp_ms": int,
    "timestamp_type": int,
    "key": Optional[bytes],  # noqa: UP045  polars accepts only this form
    "value": Optional[bytes],  # noqa: UP045
    "headers": tuple,
}
FIELDS = tuple(ANNOTATIONS)
DATA_CLASS_FIELDS: dict[str, Any] = vars(dataclasses.make_dataclass("Record", list(ANNOTATIONS.items())))[
    "__dataclass_fields__"
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp_of(timestamp_ms: int) -> datetime | None:
    """Return a timestamp in UTC, or None if it is negative or beyond the year 9999.

    >>> timestamp_of(1_700_000_000_123).isoformat(), timestamp_of(-1), timestamp_of(2**62)
    ('2023-11-14T22:13:20.123000+00:00', None, None)
    """
    try:
        return None if timestamp_ms < 0 else _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None


def record_of(*fields: Any) -> Any:
    """Return a record of the codec in use. So a pickled record does not depend on the codec that created it."""
    codec = importlib.import_module("barnabas.records.codec")  # imported here, because `codec` imports this module
    return codec.Record(*fields)
