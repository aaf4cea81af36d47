"""The first load guesses its columns from a sample, and yet has those that all records tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.formats.json_fields import JsonRules
from barnabas.serialization import value_decoders
from barnabas.spark import load_plan, load_tasks, table_load
from barnabas.spark.data_files import TARGET_BYTES, DataFile
from barnabas.spark.ledger import Ledger
from barnabas.spark.load_plan import TopicState
from barnabas.spark.load_types import LoadProgress, LoadSettings, TableLoad
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.table_load import TableLoader
from barnabas.spark.table_shape import TableShape
from barnabas.spark.table_store import Location
from tests.support.fake_registry import avro_record, registry_of
from tests.support.searches import examples
from tests.unit.spark.test_load_tasks import fake_log

SAMPLE = 2
PLAIN, NESTED = JsonRules(), JsonRules(nested=True)
EVERYTHING = 1_000_000


class NoAdmin:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_error: object) -> None:
        return None


class NewTable:
    """A table that does not exist yet, and the store where it is to be; what is committed is kept."""

    name, format, exists, widens_types, target_file_bytes = "t", None, False, True, TARGET_BYTES
    last_load: Mapping[str, str] = {}

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: Sequence[DataFile] = ()

    def begin(self, _name: str) -> NewTable:
        return self

    def check_accepts_loads(self) -> None:
        """A new table takes whatever it is made for."""

    def shape(self, _value_format: str) -> None:
        return None

    def ledger(self) -> Ledger:
        return Ledger()

    def committed_loads(self, *_arguments: object) -> set[str]:
        return set()

    def location(self) -> Location:
        return Location(str(self.folder), {})

    def commit(
        self, files: Sequence[DataFile], _properties: Mapping[str, str], _shape: TableShape, replaced: Sequence[object]
    ) -> int:
        assert not replaced, "only state tables replace files"
        self.files = files
        return 1


class Loads:
    """Loads values, those of a topic with one partition, into new tables: all but Spark, brokers and tables is real."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = NewTable(folder)
        self.steps: list[str] = []
        self.jobs: list[str] = []
        self.tables = 0

    def load(
        self,
        values: Sequence[bytes],
        rules: JsonRules = PLAIN,
        sample: int = SAMPLE,
        registry: Any = None,
        *,
        is_local: bool = False,
    ) -> TableLoad:
        """Load them; how they are read is in `steps` and `jobs`, and the table in `rows`."""
        (log,) = fake_log(*values)

        def read(wanted: OffsetRange, *_rest: object, **_options: object) -> Sequence[pa.RecordBatch]:
            return [log.slice(wanted.start_offset, wanted.count)]

        now = TopicState("t", "one", {0: 0}, {0: len(values)})
        value_format, url = ("json", None) if registry is None else ("avro", "http://registry")
        asked = LoadSettings("nowhere:1", value_format, None, {}, True, None, 100, {}, rules, audit=False, registry=url)
        session: Any = object
        self.tables += 1
        self.table = NewTable(self.folder / str(self.tables))
        self.steps, self.jobs = [], []
        store: Any = self.table
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(load_plan, "SAMPLE_RECORDS", sample)
            patched.setattr(table_load, "open_admin", lambda *_arguments: NoAdmin())
            patched.setattr(table_load, "_describe", lambda _admin, _topics: [now])
            patched.setattr(table_load, "parallelism", lambda _spark: 1)
            patched.setattr(table_load, "is_local", lambda _spark: is_local)
            patched.setattr(table_load, "run_tasks", self._run_tasks)
            patched.setattr(load_tasks, "read_range", read)
            patched.setattr(value_decoders, "registry_at", lambda _url: registry)
            return TableLoader(session, store, "t", asked, self._note).run(["t"])

    def _run_tasks(
        self, _spark: object, items: Sequence[Any], work: Callable[[Any, int], Any], **_options: object
    ) -> list[Any]:
        self.jobs.append(self.steps[-1])
        return [work(item, number) for number, item in enumerate(items)]

    def _note(self, progress: LoadProgress) -> None:
        if not self.steps or self.steps[-1] != progress.step:
            self.steps.append(progress.step)

    def rows(self) -> pa.Table:
        """Return the decoded columns of the last load, ordered by name."""
        files = [pq.read_table(file.path) for file in self.table.files]
        rows = pa.concat_tables(files).sort_by("offset")
        return rows.select(sorted(name for name in rows.column_names if name.startswith("value_") or name in "abc"))

    def types(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in self.rows().schema}


@pytest.fixture
def loads(tmp_path: Path) -> Loads:
    return Loads(tmp_path)


ONCE = ["planning", "inferring", "writing", "committing", "done"]
TWICE = ["planning", "inferring", "writing", "inferring", "writing", "committing", "done"]


def test_what_the_sample_tells_is_enough_where_the_others_are_like_it(loads: Loads) -> None:
    result = loads.load([b'{"a": %d, "b": "x"}' % number for number in range(9)])
    assert (result.records, result.kept_values, loads.steps) == (9, 0, ONCE)
    assert loads.types() == {"a": "int64", "b": "string", "value_form": "string"}


@pytest.mark.parametrize(
    ("is_local", "worth_a_task", "jobs"),
    [(True, 100, ["writing"]), (True, 1, ["inferring", "writing"]), (False, 100, ["inferring", "writing"])],
)
def test_a_sample_that_is_worth_no_task_is_read_here_where_executors_are_here_too(
    loads: Loads, monkeypatch: pytest.MonkeyPatch, is_local: bool, worth_a_task: int, jobs: list[str]
) -> None:
    monkeypatch.setattr(table_load, "RECORDS_WORTH_A_TASK", worth_a_task)
    result = loads.load([b'{"a": %d}' % number for number in range(9)], is_local=is_local)
    assert (result.records, loads.steps, loads.jobs) == (9, ONCE, jobs)


@pytest.mark.parametrize(
    ("odd", "types"),
    [
        (b'{"a": 1.5}', {"a": "double"}),
        (b'{"a": 5.0}', {"a": "double"}),
        (b'{"a": "x"}', {"a": "string"}),
        (b'{"a": 1, "c": true}', {"a": "int64", "c": "bool"}),
        (b'{"a": 1, "c": null}', {"a": "int64", "c": "string"}),
        (b'{"a": 18446744073709551616}', {"a": "double"}),
    ],
)
def test_one_record_that_is_different_makes_the_load_look_at_all(
    loads: Loads, odd: bytes, types: dict[str, str]
) -> None:
    values = [b'{"a": 1}'] * 9
    values[4] = odd
    result = loads.load(values)
    assert (result.records, loads.steps) == (9, TWICE)
    assert loads.types() == {**types, "value_form": "string"}
    assert len(list(loads.folder.rglob("*.parquet"))) == result.files == 1, "of what was written first nothing is left"


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, **told} for name, told in fields.items()]}


OLD = record(a={"type": "int"})


@pytest.mark.parametrize(
    ("odd", "value", "steps", "types"),
    [
        (OLD, {"a": 5}, ONCE, {"a": "int32"}),
        (record(a={"type": "long"}), {"a": 5}, TWICE, {"a": "int64"}),
        (record(a={"type": "int"}, b={"type": "string"}), {"a": 5, "b": "x"}, TWICE, {"a": "int32", "b": "string"}),
        (record(b={"type": "int", "aliases": ["a"]}), {"b": 5}, TWICE, {"b": "int32"}),
    ],
    ids=["the same", "wider", "new", "renamed"],
)
def test_a_schema_that_the_sample_has_not_makes_the_load_look_at_all(
    loads: Loads, odd: dict[str, Any], value: Any, steps: list[str], types: dict[str, str]
) -> None:
    values = [avro_record(1, OLD, {"a": 7}) for _ in range(9)]
    values[4] = avro_record(2, odd, value)
    result = loads.load(values, registry=registry_of(OLD, odd))
    assert (result.records, result.kept_values, loads.steps) == (9, 0, steps)
    assert loads.types() == {**types, "value_form": "string"}
    assert [next(iter(row.values())) for row in loads.rows().to_pylist()] == [7, 7, 7, 7, 5, 7, 7, 7, 7]


def test_a_sample_with_aliases_is_not_enough(loads: Loads) -> None:
    renamed = record(b={"type": "int", "aliases": ["a"]})
    values = [avro_record(1, OLD, {"a": 7}), *[avro_record(2, renamed, {"b": 7})] * 8]
    loads.load(values, registry=registry_of(OLD, renamed))
    assert loads.steps == ONCE, "it has looked at all before it wrote"
    assert loads.types() == {"b": "int32", "value_form": "string"}


def test_an_alias_that_only_others_have_counts_though_both_names_are_known(loads: Loads) -> None:
    both, renamed = record(a={"type": "int"}, b={"type": "int"}), record(b={"type": "int", "aliases": ["a"]})
    ends = [avro_record(1, both, {"a": 7, "b": 8})] * 3
    values = [*ends, *[avro_record(2, renamed, {"b": 9})] * 3, *ends]
    registry = registry_of(both, renamed)
    guessed = loads.load(values, registry=registry)
    types, steps = loads.types(), loads.steps
    sure = loads.load(values, sample=EVERYTHING, registry=registry)
    assert (types, guessed.kept_values, steps) == (loads.types(), sure.kept_values, TWICE)


def test_a_field_that_is_null_in_the_sample_gets_the_type_that_the_others_tell(loads: Loads) -> None:
    values = [b'{"a": null}'] * 9
    values[4] = b'{"a": 7}'
    loads.load(values)
    assert loads.steps == ONCE, "it has looked at all before it wrote"
    assert loads.types() == {"a": "int64", "value_form": "string"}


def test_nothing_that_is_no_json_makes_it_look_at_all(loads: Loads) -> None:
    values = [b'{"a": 1}'] * 9
    values[4] = b"?"
    result = loads.load(values)
    assert (result.bad.count, loads.steps) == (1, ONCE)


ITEMS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "x", "2026-01-01T00:00:00Z"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner, min_size=1, max_size=2),
    max_leaves=4,
)  # fmt: skip
"""No objects without fields in others, and no decimals: a column of structs or decimals takes some values that by
themselves would have made it text, or a digit longer, so that it depends on their neighbours, guessed or not."""
VALUES = st.dictionaries(st.sampled_from("abc"), ITEMS, max_size=3).map(lambda value: json.dumps(value).encode())


def ordered(rows: pa.Table) -> pa.Table:
    """Order the fields of structs by name: fields come in the order in which the sample has them."""
    return rows.cast(pa.schema([(field.name, ordered_type(field.type)) for field in rows.schema]))


def ordered_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        inner = sorted(kind, key=lambda field: field.name)
        return pa.struct([field.with_type(ordered_type(field.type)) for field in inner])
    return pa.list_(kind.value_field.with_type(ordered_type(kind.value_type))) if pa.types.is_list(kind) else kind


@settings(max_examples=examples(40))
@given(st.lists(VALUES | st.just(b'{"a": 1, "b": "x"}'), min_size=6, max_size=12), st.sampled_from([PLAIN, NESTED]))
@example([b"{}", b"{}", b'{"a": 0.0}', b'{"a": 1}', b"{}", b"{}"], PLAIN)
@example([b'{"a": 1}', b'{"a": 1}', b'{"a": 5.0}', b'{"a": 1}', b'{"a": 1}'], JsonRules(decimals=True))
@example([b'{"a": [1]}', b'{"a": [1]}', b'{"a": [5.0]}', b'{"a": [1]}', b'{"a": [1]}'], NESTED)
@example([b"{}", b"{}", b"{}", b'{"c": {"y": null}}', b"{}", b'{"c": {"x": false, "y": false}}'], NESTED)
def test_the_table_is_the_one_that_all_records_would_have_told(
    tmp_path_factory: pytest.TempPathFactory, values: list[bytes], rules: JsonRules
) -> None:
    loads = Loads(tmp_path_factory.mktemp("warehouse"))
    guessed = loads.load(values, rules)
    rows = ordered(loads.rows())
    sure = loads.load(values, rules, EVERYTHING)
    assert rows.drop_columns("value_form") == ordered(loads.rows()).drop_columns("value_form")
    assert guessed.records == sure.records == len(values)
