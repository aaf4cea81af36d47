"""Records as columns: what Arrow wants, and what decoding in bulk gives."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.model import Header, TimestampType


@dataclass(slots=True)
class Columns:
    """Records as parallel lists, all of the same length, in the order of the log."""

    offsets: list[int] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    timestamp_types: list[TimestampType] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[tuple[Header, ...]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)
