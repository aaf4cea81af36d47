"""Aliases of schemas as names of a table's fields: what is renamed, what is remembered, and what comes too late."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from barnabas.formats.column_types import STRUCT_FIELDS_MAX, ColumnType, Fields
from barnabas.formats.event_time import EventTime
from barnabas.formats.field_aliases import Aliases, Renaming, kept_beside
from barnabas.serialization.avro_values import AvroFormat
from barnabas.serialization.record_values import RecordDecoder
from barnabas.spark.table_schema import FIELDS_MAX
from barnabas.spark.table_shape import TableShape
from tests.support.fake_registry import avro_record, registry_of


def shape(**fields: ColumnType) -> TableShape:
    return TableShape.of("avro", fields)


def test_a_column_gets_the_new_name_and_keeps_its_place() -> None:
    before = shape(id="int", page="string", user="string")
    after = before.grown_by({"url": "string", "id": "long"}, Aliases({"page": "url"}))
    assert after.fields == {"id": "long", "url": "string", "user": "string"}
    assert list(after.columns.values()) == ["id", "url", "user"]
    assert before.columns_renamed_in(after) == {("page",): "url"}
    assert after.aliases == Aliases({"page": "url"})


def test_names_follow_one_another() -> None:
    first = shape(a="long").grown_by({"b": "long"}, Aliases({"a": "b"}))
    second = first.grown_by({"c": "long"}, Aliases({"b": "c"}))
    assert (second.fields, second.aliases) == ({"c": "long"}, Aliases({"a": "c", "b": "c"}))
    at_once = shape(a="long").grown_by({"b": "long", "c": "long"}, Aliases({"a": "b", "b": "c"}))
    assert (at_once.fields, at_once.aliases) == ({"c": "long"}, Aliases({"a": "c", "b": "c"}))


def test_an_alias_that_comes_too_late_changes_nothing() -> None:
    before = shape(page="string", url="string")
    after = before.grown_by({"user": "string"}, Aliases({"page": "url"}))
    assert (after.fields, after.aliases) == (
        {"page": "string", "url": "string", "user": "string"},
        Aliases(),
    )


def test_records_of_before_find_a_table_that_only_knew_the_new_name() -> None:
    table = replace(shape(url="string"), aliases=Aliases({"page": "url"}))
    assert table.grown_by({"page": "string"}, Aliases()) is table


def test_aliases_in_a_circle_are_none() -> None:
    assert Renaming.of({"a": "long"}, {"b": "long"}, Aliases({"a": "b", "b": "a"}), Aliases(), 10).renamed == {}


def test_no_field_gets_the_old_name_of_another_one() -> None:
    before = replace(shape(c={"x": "long"}), aliases=Aliases({"a": "c"}))
    after = before.grown_by({"a": "long", "d": {"x": "long"}}, Aliases({"d": "a"}))
    assert after.fields == {"c": {"x": "long"}, "d": {"x": "long"}}
    assert after.aliases == Aliases({"a": "c"})


def test_old_names_of_a_field_without_a_column_follow_it() -> None:
    nothing_yet = shape(id="int").grown_by({"b": None, "user": "string"}, Aliases({"a": "b"}))
    assert nothing_yet.aliases == Aliases({"a": "b"})
    after = nothing_yet.grown_by({"c": "long"}, Aliases({"b": "c"}))
    assert (list(after.fields or ()), after.aliases) == (["id", "user", "c"], Aliases({"a": "c", "b": "c"}))
    back = nothing_yet.grown_by({"a": "long"}, Aliases({"b": "a"}))
    assert (list(back.fields or ()), back.aliases) == (["id", "user", "b"], Aliases({"a": "b"}))


def test_names_within_a_field_without_a_column_are_those_of_no_other_field() -> None:
    before = replace(shape(a={"x": "long"}), aliases=Aliases(within={"b": Aliases({"x": "y"})}))
    after = before.grown_by({"b": {"x": "long"}}, Aliases({"a": "b"}))
    assert (after.fields, after.aliases) == ({"b": {"x": "long"}}, Aliases({"a": "b"}))


def test_event_times_follow_their_field() -> None:
    before = replace(shape(at="timestamp"), event_time=EventTime("at"))
    assert before.grown_by({"happened": "timestamp"}, Aliases({"at": "happened"})).event_time == EventTime("happened")


def test_a_new_name_that_is_taken_by_another_column_is_told_apart() -> None:
    before = shape(page="string", URL="string")
    after = before.grown_by({"url": "string"}, Aliases({"page": "url"}))
    assert before.columns_renamed_in(after) == {("page",): "value_url"}


def test_a_field_gets_no_name_of_a_column_that_others_have_added() -> None:
    before = replace(shape(page="string"), taken=("Note", "URL"))
    assert before.grown_by({"note": "string"}).columns == {"page": "page", "note": "value_note"}
    assert before.columns_renamed_in(before.grown_by({"url": "string"}, Aliases({"page": "url"}))) == {
        ("page",): "value_url"
    }


PLACE: ColumnType = {"x": "float", "tags": [{"k": "string"}]}
WITHIN = Aliases(within={"place": Aliases({"x": "longitude"}, {"tags": Aliases({"k": "key"})})})


def test_fields_within_structs_and_lists_get_new_names() -> None:
    before = shape(id="int", place=PLACE)
    after = before.grown_by({"place": {"longitude": "float", "tags": [{"key": "string"}]}}, WITHIN)
    assert after.fields == {"id": "int", "place": {"longitude": "float", "tags": [{"key": "string"}]}}
    assert before.columns_renamed_in(after) == {
        ("place", "x"): "longitude",
        ("place", "tags", "element", "k"): "key",
    }
    assert after.aliases == WITHIN


def test_a_field_and_what_is_within_it_are_renamed_at_once() -> None:
    told = Aliases({"place": "spot"}, {"spot": Aliases({"x": "longitude"})})
    before = shape(place=["string", {"x": "float"}])
    after = before.grown_by({"spot": ["string", {"longitude": "float", "y": "float"}]}, told)
    assert after.fields == {"spot": ["string", {"longitude": "float", "y": "float"}]}
    assert before.columns_renamed_in(after) == {("place",): "spot", ("place", "value", "x"): "longitude"}
    again = after.grown_by(
        {"spot": ["string", {"lon": "float"}]}, Aliases(within={"spot": Aliases({"longitude": "lon"})})
    )
    assert after.columns_renamed_in(again) == {("spot", "value", "longitude"): "lon"}
    assert again.aliases == Aliases({"place": "spot"}, {"spot": Aliases({"x": "lon", "longitude": "lon"})})


def test_the_first_load_finds_fields_within_under_their_newest_names() -> None:
    found: Fields = {"place": {"x": "float", "longitude": "double", "tags": [{"k": "string", "key": "string"}]}}
    renaming = Renaming.of({}, found, WITHIN, Aliases(), FIELDS_MAX)
    assert renaming.found == {"place": {"longitude": "double", "tags": [{"key": "string"}]}}
    assert renaming.aliases == WITHIN


def test_an_alias_within_that_comes_too_late_changes_nothing_and_is_told() -> None:
    before = shape(place={"x": "float", "longitude": "float"})
    after = before.grown_by({"place": {"y": "float"}}, WITHIN)
    assert (after.fields, after.aliases) == ({"place": {"x": "float", "longitude": "float", "y": "float"}}, Aliases())
    assert kept_beside(after.fields or {}, WITHIN) == {"place.x": "place.longitude"}


def test_nothing_is_renamed_within_a_full_struct() -> None:
    full: dict[str, ColumnType] = {"x": "float", **{f"f{number}": "long" for number in range(STRUCT_FIELDS_MAX - 1)}}
    before = shape(place=full)
    assert before.grown_by({"place": {"longitude": "float"}}, WITHIN) is before


def test_no_field_within_gets_a_name_that_sql_cannot_tell_from_another_one() -> None:
    before = shape(place={"x": "float", "LONGITUDE": "float"})
    assert before.grown_by({"place": {"longitude": "float"}}, WITHIN) is before
    told = Aliases(within={"place": Aliases({"x": "X"})})
    assert shape(place={"x": "float"}).grown_by({"place": {"X": "float"}}, told).fields == {"place": {"X": "float"}}


def test_delta_renames_nothing_within_either() -> None:
    before = replace(shape(place={"x": "float"}), widens_types=False)
    after = before.grown_by({"place": {"longitude": "float"}}, WITHIN)
    assert (after.fields, after.aliases) == ({"place": {"x": "float", "longitude": "float"}}, Aliases())


def test_a_table_remembers_aliases_within() -> None:
    after = replace(shape(place={"longitude": "float"}), aliases=WITHIN)
    known = {name: (after.columns[name], kind) for name, kind in (after.fields or {}).items()}
    assert TableShape.parse(after.properties(), known, names=list(known)) == after


def test_a_table_remembers_its_aliases() -> None:
    after = shape(page="string").grown_by({"url": "string"}, Aliases({"page": "url"}))
    known = {name: (after.columns[name], kind) for name, kind in (after.fields or {}).items()}
    assert TableShape.parse(after.properties(), known, names=[column for column, _ in known.values()]) == after


def test_a_table_that_takes_no_new_fields_renames_none() -> None:
    fixed = replace(shape(page="string"), takes_new_fields=False)
    assert fixed.grown_by({"url": "string"}, Aliases({"page": "url"})) is fixed


def test_a_full_table_renames_nothing_so_that_values_come_back_whose_new_name_had_no_column() -> None:
    page, url = ({"name": name, "type": "string"} for name in ("page", "url"))
    both = {"type": "record", "name": "Click", "fields": [page, url]}
    renamed = {"type": "record", "name": "Click", "fields": [{**url, "aliases": ["page"]}]}
    registry = registry_of(both, renamed)
    before = shape(page="string", **{f"f{number}": "long" for number in range(FIELDS_MAX - 1)})
    assert before.fields is not None
    sent = pa.array([avro_record(1, both, {"page": "/a", "url": ""})], pa.binary())
    loaded = RecordDecoder(AvroFormat(), registry).decode(sent, before.fields)
    assert loaded.forms.to_pylist() == ["avro:1"], "no column is needed for a text without letters"
    later = pa.array([avro_record(2, renamed, {"url": "/b"})], pa.binary())
    decoder = RecordDecoder(AvroFormat(), registry)
    after = before.grown_by(decoder.decode(later, before.fields).found, decoder.renames(later))
    decoder = RecordDecoder(AvroFormat(), registry, after.aliases)
    columns = dict(zip(after.fields or {}, loaded.columns, strict=True))
    assert decoder.restore(pa.nulls(1, pa.binary()), loaded.forms, columns).to_pylist() == sent.to_pylist()
    assert after is before
