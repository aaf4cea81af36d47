"""Several tables in one call: what one of them ends with is told, and the others are loaded."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark.errors import DataLossError, LoadConflictError, LoadError, LoadsFailedError
from barnabas.spark.load_topics import load, load_each
from barnabas.spark.load_types import TableLoad

LOADED = TableLoad("b", 1, 5, ())


def load_with(failures: dict[str, Exception]) -> Any:
    def load_table(name: str, _topics: list[str]) -> TableLoad:
        if name in failures:
            raise failures[name]
        return LOADED

    return load_each({name: [name] for name in "abc"}, load_table)


def test_a_failure_does_not_stop_the_other_tables_and_each_is_told() -> None:
    failures = {"a": DataLossError("gone"), "c": ValueError("odd")}
    with pytest.raises(LoadsFailedError, match="2 of 3 tables were not loaded: a: gone; c: odd") as caught:
        load_with(failures)
    assert caught.value.result.tables == (LOADED,)
    assert caught.value.failures == failures
    assert isinstance(caught.value, LoadError)
    assert not caught.value.retriable


def test_it_may_be_tried_again_where_all_failures_may() -> None:
    with pytest.raises(LoadsFailedError) as caught:
        load_with({"a": LoadConflictError("somebody was faster")})
    assert caught.value.retriable


def test_the_failure_of_a_single_table_is_raised_as_it_is() -> None:
    def load_table(_name: str, _topics: list[str]) -> TableLoad:
        raise DataLossError("gone")

    with pytest.raises(DataLossError, match="gone"):
        load_each({"a": ["a"]}, load_table)


def test_an_interrupt_ends_the_whole() -> None:
    def load_table(_name: str, _topics: list[str]) -> TableLoad:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_each({"a": ["a"], "b": ["b"]}, load_table)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "jsno"}, "unknown format 'jsno': use raw, json, avro, protobuf, or lines:PATTERN"),
        (
            {"format": "json", "fields": {"t": "datetime"}},
            "'t' has the invalid type 'datetime'; valid are boolean, int, long",
        ),
        ({"format": "lines:apache"}, "use common, combined"),
        ({"format": "raw", "nested": True}, "--format json"),
        ({"event_time": ":ms"}, "use record, line"),
        ({"dead_letter": "t"}, "use another topic"),
        ({"fields": {"t": "long"}}, "--format json"),
        ({"starting_offsets": {("t", 0): -2}}, "invalid offset -2 of"),
    ],
)
def test_arguments_that_cannot_be_are_refused_before_spark_starts(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load("t", bootstrap="nowhere:1", warehouse="unused", **arguments)
