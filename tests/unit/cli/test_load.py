"""`barnabas load` without Spark: what it asks the library for, and what it tells of the outcome."""

from __future__ import annotations

import json
import math
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import barnabas.cli.load as command
import barnabas.spark
from barnabas.cli.error_messages import exit_code_of
from barnabas.cli.load_rounds import LoadRounds
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.spark.errors import DataLossError, EventTimeFieldError, LoadsFailedError, TooManyBadRecordsError
from barnabas.spark.load_types import LoadResult, TableLoad
from barnabas.spark.offset_ranges import OffsetRange

GAP = OffsetRange("clicks", 0, 0, 50)
LOADED = TableLoad("default.clicks", 7, 50, (OffsetRange("clicks", 0, 50, 100),), 1, missing=(GAP,))


class Topics:
    """A cluster with one topic."""

    def __enter__(self) -> Topics:
        return self

    def __exit__(self, *_error: object) -> None:
        return None

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        return ["clicks"]

    def describe_topics(self, names: list[str]) -> list[object]:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, subject=f"topic {names[0]!r}")


def run(
    monkeypatch: pytest.MonkeyPatch, outcome: LoadResult | Exception, *options: str
) -> tuple[Result, dict[str, Any]]:
    asked: dict[str, Any] = {}

    def load(topics: tuple[str, ...], **arguments: object) -> LoadResult:
        asked.update(arguments)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(command, "connect", lambda _bootstrap: Topics())
    monkeypatch.setattr(barnabas.spark, "load", load, raising=False)
    return CliRunner().invoke(command.load, ["clicks", "views", "--warehouse", "w", *options]), asked


@pytest.mark.parametrize("options", [(), ("--every", "1s")])
def test_loads_are_traced_where_the_process_has_an_sdk(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    class Rounds(LoadRounds):
        def run(self, rounds_max: int | None = None) -> None:
            super().run(2)

    provider = TracerProvider()
    monkeypatch.setattr("barnabas.cli.load_rounds.LoadRounds", Rounds)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(threading.Event, "wait", lambda _event, _timeout_s=None: True)
    done, asked = run(monkeypatch, LoadResult((LOADED,)), *options)
    assert done.exit_code == 0, done.output
    assert asked["tracer_provider"] is provider
    monkeypatch.delitem(sys.modules, "opentelemetry.sdk.trace")
    done, asked = run(monkeypatch, LoadResult((LOADED,)), *options)
    assert done.exit_code == 0, done.output
    assert asked["tracer_provider"] is None


def test_what_errors_advise_exists_as_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets, fields = '{"clicks": {"0": 23}}', '{"page": "string"}'
    options = ["--format", "json", "--no-fail-on-data-loss", "--starting-offsets", offsets, "--fields", fields]
    done, asked = run(monkeypatch, LoadResult((LOADED,)), *options)
    assert done.exit_code == 0, done.output
    assert asked["fail_on_data_loss"] is False
    assert asked["starting_offsets"] == {TopicPartition("clicks", 0): 23}
    assert asked["fields"] == {"page": "string"}


def test_what_is_missing_is_told_to_people_and_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = run(monkeypatch, LoadResult((LOADED,)))
    assert "default.clicks: missing: clicks-0 [0, 50) (50 offsets)" in done.stderr
    done, _ = run(monkeypatch, LoadResult((LOADED,)), "--json")
    (told,) = json.loads(done.stdout)["tables"]
    assert told["missing"] == [{"topic": "clicks", "partition": 0, "start_offset": 0, "end_offset": 50}]
    assert told["ranges"] == [{"topic": "clicks", "partition": 0, "start_offset": 50, "end_offset": 100}]


def test_a_table_that_failed_is_told_beside_the_others_and_in_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = LoadsFailedError(LoadResult((LOADED,)), {"views": DataLossError("gone"), "odd": ValueError("7")})
    done, _ = run(monkeypatch, failed)
    assert done.exit_code == 1
    assert "default.clicks" in done.stdout
    assert "views was not loaded: gone" in done.stderr
    assert "odd was not loaded: ValueError: 7" in done.stderr
    done, _ = run(monkeypatch, failed, "--json")
    told = json.loads(done.stdout)
    error = {"kind": "DataLossError", "message": "gone", "retryable": False, "exit_code": 1}
    assert told["tables"][1] == {"table": "views", "outcome": "failed", "error": error}
    assert told["error"] == {"table": "views", **error}
    assert done.exit_code == 1


@pytest.mark.parametrize("option", ["--fields", "--starting-offsets"])
def test_options_that_are_no_json_are_refused_by_name(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    done, asked = run(monkeypatch, LoadResult(()), option, "page=string")
    assert done.exit_code != 0
    assert option in f"{done.output}{done.exception}"
    assert not asked


def test_exit_code_of_a_load_with_too_many_bad_records_is_6(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = TooManyBadRecordsError("2 of 5 records are bad")
    assert exit_code_of(failure) == 6
    done, asked = run(monkeypatch, LoadsFailedError(LoadResult(()), {"a": failure, "b": failure}), "--strict")
    assert done.exit_code == 6
    assert (asked["strict"], asked["max_bad_records"]) == (True, None)
    several = LoadsFailedError(LoadResult(()), {"a": failure, "b": DataLossError("gone")})
    done, asked = run(monkeypatch, several, "--max-bad-records", "0.5%")
    assert done.exit_code == 1
    assert asked["max_bad_records"] == "0.5%"


def test_further_columns_are_in_the_summary_with_all_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"amount": {"amount": 1, "amount_double": 1_000}}
    done, _ = run(monkeypatch, LoadResult((replace(LOADED, further_columns=counts),)))
    told = "field 'amount' has additional columns for values of other types: 1 value in amount, 1,000 values"
    assert f"{told} in amount_double" in done.stderr
    done, _ = run(monkeypatch, LoadResult((replace(LOADED, further_columns=counts),)), "--json")
    assert json.loads(done.stdout)["tables"][0]["further_columns"] == counts


def test_kept_and_lost_values_are_in_the_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = LoadResult((replace(LOADED, kept_values=12, lost_values=1),))
    done, asked = run(monkeypatch, outcome)
    assert asked["keep_values"] == "bad"
    assert "default.clicks: kept whole in `value`: 12 values of 50 (--keep-values)" in done.stderr
    assert "default.clicks: not kept, and not restorable from the columns: 1 value (--keep-values none)" in done.stderr
    done, asked = run(monkeypatch, outcome, "--json", "--keep-values", "none")
    (told,) = json.loads(done.stdout)["tables"]
    assert (told["kept_values"], told["lost_values"], asked["keep_values"]) == (12, 1, "none")
    assert run(monkeypatch, outcome, "--keep-values", "some")[0].exit_code == 2


def test_field_of_the_event_time_that_no_record_has_is_in_the_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_code_of(EventTimeFieldError("no record has it")) == 2
    done, _ = run(monkeypatch, LoadResult((replace(LOADED, missing_event_field="tiem"),)))
    assert done.exit_code == 0
    assert "default.clicks: warning: no record of this load has the event-time field 'tiem'" in done.stderr
    done, _ = run(monkeypatch, LoadResult((replace(LOADED, missing_event_field="tiem"),)), "--json")
    assert json.loads(done.stdout)["tables"][0]["missing_event_field"] == "tiem"


def test_a_field_that_stays_beside_its_new_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = LoadResult((replace(LOADED, not_renamed={"place.x": "place.longitude"}),))
    told, _ = run(monkeypatch, loaded)
    assert (
        "default.clicks: not renamed: place.x is kept in addition to place.longitude, its new name in the schema"
        in told.stderr
    )
    as_json, _ = run(monkeypatch, loaded, "--json")
    assert json.loads(as_json.stdout)["tables"][0]["not_renamed"] == {"place.x": "place.longitude"}


def test_registry_and_its_credentials_come_from_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [
        word
        for each in ("url=https://registry:8081", "username=alice", "password=${env:PASSWORD}")
        for word in ("-X", f"schema.registry.{each}")
    ]
    options = {"username": "alice", "password": "${env:PASSWORD}"}
    done, asked = run(monkeypatch, LoadResult((LOADED,)), "--format", "avro", *given)
    assert done.exit_code == 0, done.output
    assert (asked["registry"], asked["registry_options"]) == ("https://registry:8081", options)
    assert asked["client_options"] == {}
    _, asked = run(monkeypatch, LoadResult((LOADED,)), "--format", "json", *given)
    assert (asked["registry"], "registry_options" in asked) == (None, False)
    _, asked = run(monkeypatch, LoadResult((LOADED,)), "--format", "json", "--registry", "http://other:8081", *given)
    assert (asked["registry"], asked["registry_options"]) == ("http://other:8081", options)


def test_password_of_the_registry_on_the_command_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = run(monkeypatch, LoadResult((LOADED,)), "--format", "avro", "--registry", "http://alice:planted@host")
    assert done.exit_code == 2
    assert "schema.registry.password=${file:PATH}" in done.output
    assert "planted" not in done.output


@pytest.mark.parametrize(
    ("options", "interval_s"),
    [
        ((), 3600.0),
        (("--maintain-every", "10m"), 600.0),
        (("--maintain-every", "never"), math.inf),
        (("--no-maintain",), math.inf),
    ],
)
def test_repeated_load_maintains_tables_each_hour_by_default(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], interval_s: float
) -> None:
    seen = []

    def run_nothing(rounds: LoadRounds, _rounds_max: int | None = None) -> None:
        assert rounds._maintenance is not None
        seen.append(rounds._maintenance._interval_s)

    monkeypatch.setattr(LoadRounds, "run", run_nothing)
    done, _ = run(monkeypatch, LoadResult(()), "--every", "10s", *options)
    assert done.exit_code == 0, done.output
    assert seen == [interval_s]


def test_options_of_maintenance_need_a_repeated_load_and_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = run(monkeypatch, LoadResult(()), "--no-maintain")
    assert "--no-maintain requires a repeated load" in done.output
    done, _ = run(monkeypatch, LoadResult(()), "--every", "10s", "--no-maintain", "--maintain-every", "1h")
    assert "--no-maintain contradicts --maintain-every" in done.output


def test_maintenance_covers_the_memory_of_deleted_keys_and_the_dead_letter_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("barnabas.cli.maintenance_rounds.maintained", lambda _place, names: asked.extend(names) or [])

    def maintain(rounds: LoadRounds, _rounds_max: int | None = None) -> None:
        assert rounds._maintenance is not None
        assert list(rounds._maintenance._maintain()) == []

    monkeypatch.setattr(LoadRounds, "run", maintain)
    done, _ = run(monkeypatch, LoadResult(()), "--every", "10s", "--upsert", "id", "--dead-letter-table", "bad")
    assert done.exit_code == 0, done.output
    assert asked == ["clicks", "views", "clicks__deleted", "views__deleted", "bad"]


def test_rules_of_state_tables_reach_the_load_and_their_counts_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    done = replace(LOADED, missing=(), upserts=5, deletes=2, outdated=1, rewritten_files=3, keys_of_records=("id",))
    options = ("--upsert", "id,shop", "--op", "__op", "--order-by", "ts", "--delete", "op=x", "--delete-memory", "12h")
    result, asked = run(monkeypatch, LoadResult((done,)), *options)
    wanted = {"upsert": "id,shop", "op": "__op", "order_by": "ts", "delete": "op=x", "envelope": None}
    assert {name: asked[name] for name in wanted} == wanted
    assert asked["delete_memory"] == timedelta(hours=12)
    assert "keys of the load: 5 upserted, 2 deleted, 1 unchanged; 3 files rewritten" in result.stderr
    assert "no row has id: the load takes it from the records' keys" in result.stderr


def test_keys_in_several_partitions_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    done = replace(LOADED, upserts=5, lost_values=2, keys_in_several_partitions=3)
    result, _ = run(monkeypatch, LoadResult((done,)), "--upsert", "id")
    assert "warning: 3 keys with changes in several partitions" in result.stderr
    assert "2 values (state tables keep no values)" in result.stderr
    result, _ = run(monkeypatch, LoadResult((done,)), "--upsert", "id", "--json")
    assert json.loads(result.stdout)["tables"][0]["keys_in_several_partitions"] == 3


@pytest.mark.parametrize(
    ("given", "memory"), [("7d", timedelta(days=7)), ("0", timedelta(0)), ("90m", timedelta(minutes=90)), ("7", None)]
)
def test_delete_memory_is_a_time(monkeypatch: pytest.MonkeyPatch, given: str, memory: timedelta | None) -> None:
    result, asked = run(monkeypatch, LoadResult((LOADED,)), "--upsert", "id", "--delete-memory", given)
    assert asked.get("delete_memory") == memory
    assert (result.exit_code == 0) is (memory is not None)
