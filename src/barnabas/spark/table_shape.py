"""The shape of a table's rows: the format of values, their fields and columns, and the source of event times.

The table stores its shape in its columns and in these properties:

    barnabas.format        raw, json, lines:PATTERN, avro, protobuf
    barnabas.fields        the field of each column whose name differs from the field
    barnabas.event-time    the source of the column `event_time`; absent without this column
    barnabas.timezone      the time zone of event times in texts without a zone; absent for UTC
    barnabas.json          `nested` and `decimals`, if they were set
    barnabas.new-fields    `value` if new fields get no column and stay in the values; absent if they get columns
    barnabas.further       further columns within structs, by path; those at the top level are in barnabas.fields
    barnabas.aliases       earlier names of fields, with the names in the table; also for nested fields
    barnabas.upsert        the rules of a state table (upsert_rules.py); absent in other tables
    barnabas.table-id      the id under which a state table's deleted keys are remembered: its first load
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pyarrow as pa

from barnabas.formats.change_events import ChangeDecoder, change_decoder
from barnabas.formats.column_names import column_names
from barnabas.formats.column_types import (
    ColumnType,
    Fields,
    arrow_type,
    grown,
    merge_fields,
    renamed,
    stored_paths,
    stored_type,
    type_of_stored,
    without_large_types,
)
from barnabas.formats.decoding import ValueDecoder
from barnabas.formats.event_time import RECORD, EventTime
from barnabas.formats.field_aliases import NO_ALIASES, Aliases, Path, Renaming, renamed_within
from barnabas.formats.json_fields import JsonRules
from barnabas.formats.upsert_rules import POSITION, UpsertRules
from barnabas.formats.value_format import JSON, RAW
from barnabas.serialization.framed_json import without_schema_ids
from barnabas.serialization.registry_settings import RegistryTarget
from barnabas.serialization.value_decoders import value_decoder
from barnabas.spark.table_layout import TableLayout
from barnabas.spark.table_schema import (
    EVENT_TIME,
    FIELDS_MAX,
    KAFKA_TYPES,
    OWN_COLUMNS,
    WITHOUT_VALUE_FORM,
    renamed_fields,
)

FORMAT = "barnabas.format"
RENAMED_FIELDS = "barnabas.fields"
EVENT_TIME_SOURCE = "barnabas.event-time"
TIMEZONE = "barnabas.timezone"
JSON_RULES = "barnabas.json"
NEW_FIELDS = "barnabas.new-fields"
ALIASES = "barnabas.aliases"
FURTHER = "barnabas.further"
UPSERT = "barnabas.upsert"
TABLE_ID = "barnabas.table-id"
_POSITION_TYPES: Mapping[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True, slots=True)
class TableShape:
    """The mapping from records to rows."""

    value_format: str = RAW
    fields: Mapping[str, ColumnType] | None = None
    """The types of the fields that have a column, in column order; None for raw values."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The column name of each field."""
    event_time: EventTime = field(default_factory=lambda: EventTime(RECORD))
    rules: JsonRules = field(default_factory=JsonRules)
    takes_new_fields: bool = True
    aliases: Aliases = NO_ALIASES
    """Earlier names of fields, with the names in the table."""
    widens_types: bool = True
    """True if the table format can change a column to a wider type, and rename it."""
    taken: tuple[str, ...] = ()
    """Columns of other tools, with types that no value is decoded to. New fields get other column names."""
    is_guess: bool = False
    """True if the fields were inferred from a sample of the records, for a table that does not exist yet."""
    upsert: UpsertRules | None = None
    """The rules of a state table; None for a table with a row for each record."""
    layout: TableLayout | None = None
    """The partition fields and the sort order; None for the default layout."""
    table_id: str = ""
    """The id under which the memory of deleted keys has the deletions of a state table."""

    @classmethod
    def of(cls, value_format: str, fields: Mapping[str, ColumnType] | None) -> TableShape:
        """Return the shape of a new table."""
        return cls(value_format, fields, column_names(fields or ()))

    def decoder(self, registry: RegistryTarget | None = None) -> ValueDecoder | None:
        """Return the decoder of values; None for raw values.

        :param registry: The URL of the schema registry, or its settings.
        """
        return value_decoder(
            self.value_format,
            self.rules,
            registry,
            self.aliases,
            may_rename=self._may_rename,
            is_guess=self.is_guess,
        )

    def change_decoder(self, registry: RegistryTarget | None = None) -> ChangeDecoder:
        """Return the decoder of changes, for a state table.

        :param registry: The URL of the schema registry, or its settings.
        """
        assert self.upsert is not None, "the table is a state table"
        if self.value_format == JSON:
            strip = None if registry is None else without_schema_ids
            return change_decoder(self.upsert, self.rules, None, None, strip)
        values, keys = (
            value_decoder(self.value_format, self.rules, registry, may_rename=False, with_forms=False) for _ in range(2)
        )
        return change_decoder(self.upsert, self.rules, values, keys)

    @property
    def _may_rename(self) -> bool:
        return self.widens_types and self.takes_new_fields and self.upsert is None

    @property
    def has_event_time(self) -> bool:
        """True if the table has a column `event_time`; otherwise the record timestamps are the event times."""
        return self.event_time.source != RECORD

    @property
    def has_value_form(self) -> bool:
        """True if the table has a column that says how to restore the original value."""
        return self.upsert is None and self.value_format not in WITHOUT_VALUE_FORM

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key columns of a state table; empty for other tables."""
        return () if self.upsert is None else tuple(self.columns[name] for name in self.upsert.keys)

    def state_schema(self) -> pa.Schema:
        """Return the columns of a state table: the position of the last change, and the fields."""
        own = [(name, _POSITION_TYPES[name]) for name in POSITION]
        fields = [(self.columns[name], arrow_type(stored_type(kind))) for name, kind in (self.fields or {}).items()]
        return pa.schema([*own, *fields])

    @property
    def time_column(self) -> str:
        """The column with the event time; by default, the table is partitioned by its day."""
        return EVENT_TIME if self.has_event_time else "timestamp"

    @property
    def table_layout(self) -> TableLayout:
        """The partition fields and the sort order of the table."""
        if self.layout is not None:
            return self.layout
        # A state table has no partitions by default, because the event time of a key changes.
        return TableLayout() if self.upsert is not None else TableLayout.by_day(self.time_column)

    def column_types(self) -> dict[str, ColumnType]:
        """Return the type of each column that may be part of a layout, also of Kafka's columns."""
        own = KAFKA_TYPES if self.upsert is None else POSITION
        types: dict[str, ColumnType] = {name: KAFKA_TYPES[name] for name in own if name in KAFKA_TYPES}
        if self.has_event_time:
            types[EVENT_TIME] = "timestamp"
        return types | {self.columns[name]: stored_type(kind) for name, kind in (self.fields or {}).items()}

    def has_room_for(self, found: Fields, renames: Aliases) -> bool:
        """Return whether records with these fields can be written without a change of the shape.

        A shape that was inferred from a sample must be exactly the shape that all records together would have, except
        for the order of the fields.

        :param found: The fields of the records that need other columns than the shape has.
        :param renames: As for `grown_by`.
        """
        if self.is_guess:
            fields = dict(self.fields or {})
            return not renames and merge_fields([cast("Fields", fields), found]) == fields
        return self.grown_by(found, renames) is self

    def grown_by(self, found: Fields, renames: Aliases = NO_ALIASES) -> TableShape:
        """Return the shape with the new fields of records; the same object if nothing changes.

        :param renames: Renamed fields in the schemas of the records: new name by old name.
        """
        if self.fields is None or not self.takes_new_fields or not found:
            return self
        allowed = renames if self._may_rename else NO_ALIASES
        renaming = Renaming.of(self.fields, found, allowed, self.aliases, FIELDS_MAX)
        before = self.renamed(renaming)
        assert before.fields is not None, "values are decoded"
        after = grown(before.fields, renaming.found, FIELDS_MAX, widens=self.widens_types)
        if after == dict(self.fields):
            return self
        new = column_names(
            [name for name in after if name not in before.fields], taken=(*before.columns.values(), *self.taken)
        )
        columns = {**before.columns, **new}
        return replace(before, fields=after, columns={name: columns[name] for name in after})

    def renamed(self, renaming: Renaming) -> TableShape:
        """Return the shape with renamed fields and columns."""
        columns = dict(self.columns)
        for old, new in renaming.renamed.items():
            others = [column for name, column in columns.items() if name != old]
            columns[new] = column_names([new], taken=(*others, *self.taken))[new]
            del columns[old]
        event_time = self.event_time.renamed(renaming.aliases)
        ordered = {name: columns[name] for name in renaming.fields}
        after = replace(self, fields=renaming.fields, columns=ordered, event_time=event_time, aliases=renaming.aliases)
        if self.layout is None:
            return after
        return replace(after, layout=self.layout.renamed(self.columns_renamed_in(after)))

    def stored(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Return decoded columns, one per field, with struct fields renamed to their names in the table."""
        kinds = (self.fields or {}).values()
        return [
            column if stored_type(kind) == kind else renamed(column, arrow_type(stored_type(kind)))
            for column, kind in zip(columns, kinds, strict=True)
        ]

    def values_of(self, rows: pa.RecordBatch | pa.Table, registry: RegistryTarget | None = None) -> pa.Array:
        """Restore the original values of rows, as the column `value_form` describes.

        :param rows: Rows with the columns `value`, `value_form` and those of the fields.
        :param registry: The URL of the schema registry, or its settings.
        """
        decoder = self.decoder(registry)
        columns = {name: _one_chunk(rows.column(name)) for name in rows.schema.names}
        if decoder is None:
            return columns["value"]
        fields = {}
        for name, kind in (self.fields or {}).items():
            own = without_large_types(columns[self.columns[name]])
            fields[name] = own if stored_type(kind) == kind else renamed(own, arrow_type(kind))
        return decoder.restore(columns["value"], columns["value_form"], fields)

    def columns_renamed_in(self, after: TableShape) -> dict[Path, str]:
        """Return the new names of columns, and of fields within columns, that `after` renames.

        The key is the path from the current column name. In a path, `element` is the element of a list and `value` the
        value of a map.
        """
        renamed: dict[Path, str] = {}
        after_fields = after.fields or {}
        for name, kind in (self.fields or {}).items():
            now = name if name in after_fields else after.aliases.now(name)
            if now not in after_fields:
                continue
            column, new_column = self.columns[name], after.columns[now]
            if now != name:
                renamed[(column,)] = new_column
            for path, inner in renamed_within(kind, after_fields[now], after.aliases.of(now)):
                renamed[(column, *path)] = inner
        return renamed

    def properties(self) -> dict[str, str]:
        """Return the table properties that store the shape."""
        stored = {FORMAT: self.value_format, RENAMED_FIELDS: json.dumps(renamed_fields(self.columns))}
        if self.has_event_time:
            stored[EVENT_TIME_SOURCE] = str(self.event_time)
        if self.event_time.zone is not None:
            stored[TIMEZONE] = self.event_time.zone
        if self.rules != JsonRules():
            stored[JSON_RULES] = ",".join(name for name in ("nested", "decimals") if getattr(self.rules, name))
        if not self.takes_new_fields:
            stored[NEW_FIELDS] = "value"
        within: dict[str, str] = {}
        for name, column_type in (self.fields or {}).items():
            within |= stored_paths(column_type, self.columns[name])
        if within:
            stored[FURTHER] = json.dumps(within)
        if self.upsert is not None:
            stored[UPSERT] = self.upsert.dump()
        if self.table_id:
            stored[TABLE_ID] = self.table_id
        if self.aliases:
            stored[ALIASES] = self.aliases.dump()
        return stored

    @classmethod
    def parse(
        cls,
        properties: Mapping[str, str],
        decoded: Mapping[str, tuple[str, ColumnType]],
        *,
        names: Iterable[str],
        widens_types: bool = True,
        layout: TableLayout | None = None,
    ) -> TableShape:
        """Return the shape of an existing table.

        :param properties: The table properties.
        :param decoded: The column and its type of each field.
        :param names: The names of all columns of the table, and other names that no new column may have.
        """
        known = {column for column, _ in decoded.values()} | OWN_COLUMNS
        value_format = properties.get(FORMAT, RAW)
        within: dict[str, str] = json.loads(properties.get(FURTHER, "{}"))
        if within:
            decoded = {
                name: (column, type_of_stored(column_type, column, within))
                for name, (column, column_type) in decoded.items()
            }
        rules = properties.get(JSON_RULES, "").split(",")
        aliases = Aliases.parse(properties.get(ALIASES, "{}"))
        return cls(
            value_format,
            None if value_format == RAW else {name: column_type for name, (_, column_type) in decoded.items()},
            {name: column for name, (column, _) in decoded.items()},
            replace(
                EventTime.parse(properties.get(EVENT_TIME_SOURCE, RECORD)).renamed(aliases),
                zone=properties.get(TIMEZONE),
            ),
            JsonRules(nested="nested" in rules, decimals="decimals" in rules),
            takes_new_fields=properties.get(NEW_FIELDS) != "value",
            aliases=aliases,
            widens_types=widens_types,
            taken=tuple(sorted({name for name in names if name not in known})),
            layout=layout,
            upsert=UpsertRules.parse(properties[UPSERT]) if UPSERT in properties else None,
            table_id=properties.get(TABLE_ID, ""),
        )


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
