"""Aliases of schemas as names of a table's fields: what is renamed, what is remembered, and what comes too late."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from barnabas.formats.event_time import EventTime
from barnabas.serialization.avro_values import AvroKind
from barnabas.serialization.record_values import RecordDecoder
from barnabas.spark.field_names import Renaming
from barnabas.spark.table_schema import FIELDS_MAX
from barnabas.spark.table_shape import TableShape
from tests.known_schemas import avro_record, registry_of


def shape(**fields: str) -> TableShape:
    return TableShape.of("avro", fields)


def test_a_column_gets_the_new_name_and_keeps_its_place() -> None:
    before = shape(id="int", page="string", user="string")
    after = before.grown_by({"url": "string", "id": "long"}, {"page": "url"})
    assert after.fields == {"id": "long", "url": "string", "user": "string"}
    assert list(after.columns.values()) == ["id", "url", "user"]
    assert before.columns_renamed_in(after) == {"page": "url"}
    assert after.aliases == {"page": "url"}


def test_names_follow_one_another() -> None:
    first = shape(a="long").grown_by({"b": "long"}, {"a": "b"})
    second = first.grown_by({"c": "long"}, {"b": "c"})
    assert (second.fields, second.aliases) == ({"c": "long"}, {"a": "c", "b": "c"})
    at_once = shape(a="long").grown_by({"b": "long", "c": "long"}, {"a": "b", "b": "c"})
    assert (at_once.fields, at_once.aliases) == ({"c": "long"}, {"a": "c", "b": "c"})


def test_an_alias_that_comes_too_late_changes_nothing() -> None:
    before = shape(page="string", url="string")
    after = before.grown_by({"user": "string"}, {"page": "url"})
    assert (after.fields, after.aliases) == ({"page": "string", "url": "string", "user": "string"}, {})


def test_records_of_before_find_a_table_that_only_knew_the_new_name() -> None:
    table = replace(shape(url="string"), aliases={"page": "url"})
    assert table.grown_by({"page": "string"}, {}) is table


def test_aliases_in_a_circle_are_none() -> None:
    assert Renaming.of({"a": "long"}, {"b": "long"}, {"a": "b", "b": "a"}, {}).renamed == {}


def test_event_times_follow_their_field() -> None:
    before = replace(shape(at="timestamp"), event_time=EventTime("at"))
    assert before.grown_by({"happened": "timestamp"}, {"at": "happened"}).event_time == EventTime("happened")


def test_a_new_name_that_is_taken_by_another_column_is_told_apart() -> None:
    before = shape(page="string", URL="string")
    after = before.grown_by({"url": "string"}, {"page": "url"})
    assert before.columns_renamed_in(after) == {"page": "value_url"}


def test_a_field_gets_no_name_of_a_column_that_others_have_added() -> None:
    before = replace(shape(page="string"), taken=("Note", "URL"))
    assert before.grown_by({"note": "string"}).columns == {"page": "page", "note": "value_note"}
    assert before.columns_renamed_in(before.grown_by({"url": "string"}, {"page": "url"})) == {"page": "value_url"}


def test_a_table_remembers_its_aliases() -> None:
    after = shape(page="string").grown_by({"url": "string"}, {"page": "url"})
    known = {name: (after.columns[name], kind) for name, kind in (after.fields or {}).items()}
    assert TableShape.parse(after.properties(), known, names=[column for column, _ in known.values()]) == after


def test_a_table_that_takes_no_new_fields_renames_none() -> None:
    fixed = replace(shape(page="string"), takes_new_fields=False)
    assert fixed.grown_by({"url": "string"}, {"page": "url"}) is fixed


def test_a_full_table_renames_nothing_so_that_values_come_back_whose_new_name_had_no_column() -> None:
    page, url = ({"name": name, "type": "string"} for name in ("page", "url"))
    both = {"type": "record", "name": "Click", "fields": [page, url]}
    renamed = {"type": "record", "name": "Click", "fields": [{**url, "aliases": ["page"]}]}
    registry = registry_of(both, renamed)
    before = shape(page="string", **{f"f{number}": "long" for number in range(FIELDS_MAX - 1)})
    assert before.fields is not None
    sent = pa.array([avro_record(1, both, {"page": "/a", "url": ""})], pa.binary())
    loaded = RecordDecoder(AvroKind(), registry).decode(sent, before.fields)
    assert loaded.forms.to_pylist() == ["avro:1"], "no column is needed for a text without letters"
    later = pa.array([avro_record(2, renamed, {"url": "/b"})], pa.binary())
    decoder = RecordDecoder(AvroKind(), registry)
    after = before.grown_by(decoder.decode(later, before.fields).found, decoder.renames(later))
    decoder = RecordDecoder(AvroKind(), registry, after.aliases)
    columns = dict(zip(after.fields or {}, loaded.columns, strict=True))
    assert decoder.restore(pa.nulls(1, pa.binary()), loaded.forms, columns).to_pylist() == sent.to_pylist()
    assert after is before
