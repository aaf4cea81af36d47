"""What a table's rows look like: the format of values, their fields and columns, where the event time comes from.

The table itself remembers it, in its columns and in these properties:

    barnabas.format        raw, json, lines:PATTERN
    barnabas.fields        the fields of columns that are not named like them
    barnabas.event-time    where the column `event_time` comes from; not there where there is no such column
    barnabas.json          `nested` and `decimals`, where they were asked for
    barnabas.new-fields    `value` where fields that get no column stay in the values; else they become columns
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from barnabas.formats.column_names import column_names
from barnabas.formats.column_types import ColumnType, Fields, grown
from barnabas.formats.decoding import ValueDecoder
from barnabas.formats.event_time import RECORD, EventTime
from barnabas.formats.json_fields import JsonRules
from barnabas.formats.value_format import RAW, decoder_of
from barnabas.spark.table_schema import EVENT_TIME, FIELDS_MAX, renamed_fields

FORMAT = "barnabas.format"
RENAMED_FIELDS = "barnabas.fields"
EVENT_TIME_SOURCE = "barnabas.event-time"
JSON_RULES = "barnabas.json"
NEW_FIELDS = "barnabas.new-fields"


@dataclass(frozen=True, slots=True)
class TableShape:
    """How records become rows.

    `fields`: the types of the fields that have a column, in the columns' order; None for raw values.
    `columns`: the name of each field's column.
    """

    value_format: str = RAW
    fields: Mapping[str, ColumnType] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    event_time: EventTime = field(default_factory=lambda: EventTime(RECORD))
    rules: JsonRules = field(default_factory=JsonRules)
    takes_new_fields: bool = True

    @classmethod
    def of(cls, value_format: str, fields: Mapping[str, ColumnType] | None) -> TableShape:
        """Return the shape of a new table."""
        return cls(value_format, fields, column_names(fields or ()))

    @property
    def decoder(self) -> ValueDecoder | None:
        """What decodes values; None for raw ones."""
        return decoder_of(self.value_format, self.rules)

    @property
    def has_event_time(self) -> bool:
        """Whether there is a column `event_time`; else the records' timestamps are the event times."""
        return self.event_time.source != RECORD

    @property
    def time_column(self) -> str:
        """The column by whose day the table is partitioned."""
        return EVENT_TIME if self.has_event_time else "timestamp"

    def grown_by(self, found: Fields) -> TableShape:
        """Return the shape after records with other fields came; the same object where nothing is new."""
        if self.fields is None or not self.takes_new_fields or not found:
            return self
        after = grown(self.fields, found, FIELDS_MAX)
        if after == dict(self.fields):
            return self
        new = column_names([name for name in after if name not in self.fields], taken=self.columns.values())
        return replace(self, fields=after, columns={**self.columns, **new})

    def properties(self) -> dict[str, str]:
        """Return what the table is to remember."""
        told = {FORMAT: self.value_format, RENAMED_FIELDS: json.dumps(renamed_fields(self.columns))}
        if self.has_event_time:
            told[EVENT_TIME_SOURCE] = str(self.event_time)
        if self.rules != JsonRules():
            told[JSON_RULES] = ",".join(name for name in ("nested", "decimals") if getattr(self.rules, name))
        if not self.takes_new_fields:
            told[NEW_FIELDS] = "value"
        return told

    @classmethod
    def parse(cls, properties: Mapping[str, str], decoded: Mapping[str, tuple[str, ColumnType]]) -> TableShape:
        """Read the shape of a table.

        :param decoded: the fields that have a column, each with the column and its type.
        """
        value_format = properties.get(FORMAT, RAW)
        rules = properties.get(JSON_RULES, "").split(",")
        return cls(
            value_format,
            None if value_format == RAW else {name: column_type for name, (_, column_type) in decoded.items()},
            {name: column for name, (column, _) in decoded.items()},
            EventTime.parse(properties.get(EVENT_TIME_SOURCE, RECORD)),
            JsonRules(nested="nested" in rules, decimals="decimals" in rules),
            takes_new_fields=properties.get(NEW_FIELDS) != "value",
        )
