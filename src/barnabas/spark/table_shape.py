"""What a table's rows look like: the format of values, their fields and columns, where the event time comes from.

The table itself remembers it, in its columns and in these properties:

    barnabas.format        raw, json, lines:PATTERN, avro, protobuf
    barnabas.fields        the fields of columns that are not named like them
    barnabas.event-time    where the column `event_time` comes from; not there where there is no such column
    barnabas.timezone      the zone of event times in texts that name none; not there for UTC
    barnabas.json          `nested` and `decimals`, where they were asked for
    barnabas.new-fields    `value` where fields that get no column stay in the values; else they become columns
    barnabas.further       further columns within structs, by their paths; those of a table are in barnabas.fields
    barnabas.aliases       names that fields had before, with those that they have in the table; also within fields
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pyarrow as pa

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
from barnabas.formats.value_format import RAW
from barnabas.serialization.value_decoders import value_decoder
from barnabas.spark.table_schema import EVENT_TIME, FIELDS_MAX, OWN_COLUMNS, WITHOUT_VALUE_FORM, renamed_fields

FORMAT = "barnabas.format"
RENAMED_FIELDS = "barnabas.fields"
EVENT_TIME_SOURCE = "barnabas.event-time"
TIMEZONE = "barnabas.timezone"
JSON_RULES = "barnabas.json"
NEW_FIELDS = "barnabas.new-fields"
ALIASES = "barnabas.aliases"
FURTHER = "barnabas.further"


@dataclass(frozen=True, slots=True)
class TableShape:
    """How records become rows.

    `fields`: the types of the fields that have a column, in the columns' order; None for raw values.
    `columns`: the name of each field's column.
    `aliases`: names that fields had before, with those that they have here.
    `taken`: columns of others, of types that no value is decoded to; no field gets their names.
    `widens_types`: whether the type of a column may become a wider one, and its name another one; formats of tables
    differ in that.
    `is_guess`: the fields are those of a sample of the records, for a table that is yet to be made.
    """

    value_format: str = RAW
    fields: Mapping[str, ColumnType] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    event_time: EventTime = field(default_factory=lambda: EventTime(RECORD))
    rules: JsonRules = field(default_factory=JsonRules)
    takes_new_fields: bool = True
    aliases: Aliases = NO_ALIASES
    widens_types: bool = True
    taken: tuple[str, ...] = ()
    is_guess: bool = False

    @classmethod
    def of(cls, value_format: str, fields: Mapping[str, ColumnType] | None) -> TableShape:
        """Return the shape of a new table."""
        return cls(value_format, fields, column_names(fields or ()))

    def decoder(self, registry: str | None = None) -> ValueDecoder | None:
        """Return what decodes values; None for raw ones.

        :param registry: the url of the schema registry.
        """
        return value_decoder(self.value_format, self.rules, registry, self.aliases, may_rename=self._may_rename)

    @property
    def _may_rename(self) -> bool:
        return self.widens_types and self.takes_new_fields

    @property
    def has_event_time(self) -> bool:
        """Whether there is a column `event_time`; else the records' timestamps are the event times."""
        return self.event_time.source != RECORD

    @property
    def has_value_form(self) -> bool:
        """Whether there is a column that says how to get values back."""
        return self.value_format not in WITHOUT_VALUE_FORM

    @property
    def time_column(self) -> str:
        """The column by whose day the table is partitioned."""
        return EVENT_TIME if self.has_event_time else "timestamp"

    def has_room_for(self, found: Fields, renames: Aliases) -> bool:
        """Whether records with other fields, or of other types, can be written as this shape has it.

        Of a guess nothing is settled yet: no type may stay that is not the one that all records would have told.

        :param renames: as `grown_by` has them.
        """
        if self.is_guess:
            fields = dict(self.fields or {})
            return not renames and merge_fields([cast("Fields", fields), found]) == fields
        return self.grown_by(found, renames) is self

    def grown_by(self, found: Fields, renames: Aliases = NO_ALIASES) -> TableShape:
        """Return the shape after records with other fields came; the same object where nothing is new.

        :param renames: fields that have another name by now, as the records' schemas say: old names and new.
        """
        if self.fields is None or not self.takes_new_fields or not found:
            return self
        told = renames if self._may_rename else NO_ALIASES
        renaming = Renaming.of(self.fields, found, told, self.aliases, FIELDS_MAX)
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
        """Return the shape with fields, and their columns, under other names."""
        columns = dict(self.columns)
        for old, new in renaming.renamed.items():
            others = [column for name, column in columns.items() if name != old]
            columns[new] = column_names([new], taken=(*others, *self.taken))[new]
            del columns[old]
        event_time = self.event_time.renamed(renaming.aliases)
        ordered = {name: columns[name] for name in renaming.fields}
        return replace(self, fields=renaming.fields, columns=ordered, event_time=event_time, aliases=renaming.aliases)

    def stored(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Return decoded columns, one for each field, with the names that fields of structs have in the table."""
        kinds = (self.fields or {}).values()
        return [
            column if stored_type(kind) == kind else renamed(column, arrow_type(stored_type(kind)))
            for column, kind in zip(columns, kinds, strict=True)
        ]

    def values_of(self, rows: pa.RecordBatch | pa.Table, registry: str | None = None) -> pa.Array:
        """Return the values that rows of the table were made of, as `value_form` says.

        :param rows: with the columns `value`, `value_form` and those of the fields.
        :param registry: the url of the schema registry.
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
        """Return the columns that have another name after this shape has grown, and fields within them.

        Each is named by its way from the column as it is called now, with `element` for what a list has and `value` for
        what a map has.
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
        """Return what the table is to remember."""
        told = {FORMAT: self.value_format, RENAMED_FIELDS: json.dumps(renamed_fields(self.columns))}
        if self.has_event_time:
            told[EVENT_TIME_SOURCE] = str(self.event_time)
        if self.event_time.zone is not None:
            told[TIMEZONE] = self.event_time.zone
        if self.rules != JsonRules():
            told[JSON_RULES] = ",".join(name for name in ("nested", "decimals") if getattr(self.rules, name))
        if not self.takes_new_fields:
            told[NEW_FIELDS] = "value"
        within: dict[str, str] = {}
        for name, column_type in (self.fields or {}).items():
            within |= stored_paths(column_type, self.columns[name])
        if within:
            told[FURTHER] = json.dumps(within)
        if self.aliases:
            told[ALIASES] = self.aliases.dump()
        return told

    @classmethod
    def parse(
        cls,
        properties: Mapping[str, str],
        decoded: Mapping[str, tuple[str, ColumnType]],
        *,
        names: Iterable[str],
        widens_types: bool = True,
    ) -> TableShape:
        """Read the shape of a table.

        :param decoded: the fields that have a column, each with the column and its type.
        :param names: of all of the table's columns.
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
            taken=tuple(name for name in names if name not in known),
        )


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
