"""The rules of a state table: its key columns, the order of changes, and the records that delete a row. Pure.

A state table has one row for each key: the last change of the key. The table property `barnabas.upsert` stores the
rules, so that each load applies the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from barnabas.errors import ConfigurationError

OFFSET, RECORD_TIME = "offset", "ts"
"""The orders that need no field: the record's offset, and the record's timestamp."""
TOMBSTONE, NEVER, OP = "tombstone", "never", "op="
NO_ENVELOPE, DEBEZIUM, MAXWELL = "none", "debezium", "maxwell"
ENVELOPES = (NO_ENVELOPE, DEBEZIUM, MAXWELL)
CHANGE_ORDER = "_change_order"
"""The column of a state table with the value of the field that orders the changes."""
KEY_OF_RECORD = "\x1fkey "
"""The prefix of a key column among inferred fields, if its type is that of the records' keys."""
POSITION = ("topic", "partition", "offset", "timestamp")
"""The columns of a state table with the position of the row's last change."""


@dataclass(frozen=True, slots=True)
class UpsertRules:
    """The rules of a state table.

    :param keys: the key columns.
    :param op: the field with the operation; None without one.
    :param order_by: `offset`, `ts`, or a field (with dots for nested fields).
    :param deletes: the records that delete: `tombstone` and `op=VALUE`, or `never` alone.
    :param envelope: the change events around the rows: `none`, `debezium`, `maxwell`.
    :param keys_of_records: the key columns that the rows lack. Each record has them in its key. A load finds them out
        when it creates the table.
    """

    keys: tuple[str, ...]
    op: str | None = None
    order_by: str = OFFSET
    deletes: tuple[str, ...] = (TOMBSTONE,)
    envelope: str = NO_ENVELOPE
    keys_of_records: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        keys: str | Sequence[str],
        op: str | None = None,
        order_by: str | None = None,
        delete: str | None = None,
        envelope: str | None = None,
    ) -> UpsertRules:
        """Return the rules from the arguments of a load.

        :raises ConfigurationError: an argument is invalid.

        >>> UpsertRules.of("id", op="__op").deletes
        ('tombstone', 'op=d')
        """
        names = tuple(name.strip() for name in (keys.split(",") if isinstance(keys, str) else keys))
        if not names or not all(names) or len(set(names)) < len(names):
            raise ConfigurationError(
                f"upsert (--upsert): {keys!r} is not a list of different key columns: give id or a,b"
            )
        chosen = envelope or NO_ENVELOPE
        if chosen not in ENVELOPES:
            raise ConfigurationError(f"envelope (--envelope): unknown envelope {chosen!r}; use {', '.join(ENVELOPES)}")
        if op is not None and chosen != NO_ENVELOPE:
            raise ConfigurationError(f"op (--op): events of {chosen} have their own operation: omit op or the envelope")
        default = f"{TOMBSTONE},{OP}d" if op is not None else TOMBSTONE
        deletes = tuple(dict.fromkeys(part.strip() for part in (delete or default).split(",")))
        for part in deletes:
            if part not in (TOMBSTONE, NEVER) and not (part.startswith(OP) and len(part) > len(OP)):
                raise ConfigurationError(
                    f"delete (--delete): unknown rule {part!r}; use {TOMBSTONE}, {OP}VALUE, or {NEVER}"
                )
            if part.startswith(OP) and op is None:
                raise ConfigurationError(f"delete (--delete): {part} needs the field of the operation: op (--op FIELD)")
        if NEVER in deletes and len(deletes) > 1:
            raise ConfigurationError(f"delete (--delete): {NEVER} cannot be combined with other rules")
        return cls(names, op, order_by or OFFSET, deletes, chosen)

    @property
    def has_order_column(self) -> bool:
        """True if the state table has the column `CHANGE_ORDER`."""
        return self.order_by not in (OFFSET, RECORD_TIME)

    @property
    def deletes_by_op(self) -> frozenset[str]:
        """The values of the operation field that delete a row."""
        return frozenset(part.removeprefix(OP) for part in self.deletes if part.startswith(OP))

    @property
    def deletes_by_tombstone(self) -> bool:
        return TOMBSTONE in self.deletes

    @property
    def deletes_at_all(self) -> bool:
        return NEVER not in self.deletes

    def has_same_options(self, other: UpsertRules) -> bool:
        """Return whether both come from the same arguments of a load."""
        return replace(self, keys_of_records=()) == replace(other, keys_of_records=())

    def dump(self) -> str:
        """Return the value of the table property."""
        return json.dumps(
            {
                "keys": self.keys,
                "op": self.op,
                "order_by": self.order_by,
                "delete": ",".join(self.deletes),
                "envelope": self.envelope,
                "keys_of_records": self.keys_of_records,
            },
            ensure_ascii=False,
        )

    @classmethod
    def parse(cls, text: str) -> UpsertRules:
        """Parse the output of `dump`."""
        stored = json.loads(text)
        return cls(
            tuple(stored["keys"]),
            stored["op"],
            stored["order_by"],
            tuple(stored["delete"].split(",")),
            stored["envelope"],
            tuple(stored.get("keys_of_records", ())),
        )

    def describe(self) -> str:
        """Return the rules as options of `barnabas load`."""
        parts = [f"--upsert {','.join(self.keys)}"]
        parts += [f"--op {self.op}"] if self.op is not None else []
        parts += [f"--order-by {self.order_by}", f"--delete {','.join(self.deletes)}"]
        parts += [f"--envelope {self.envelope}"] if self.envelope != NO_ENVELOPE else []
        return " ".join(parts)
