"""`barnabas load` reports its end to a scheduler: an exit code, and one JSON document."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import barnabas.cli.load as command
import barnabas.spark
from barnabas.cli.commands import run as run_command
from barnabas.cli.load_report import PRECEDENCE, exit_code_of_load, exit_code_of_tables, kind_of
from barnabas.cli.options import NoBrokerError
from barnabas.errors import (
    ApiError,
    AuthenticationError,
    ConfigurationError,
    DisconnectedError,
    ErrorCode,
    TimedOutError,
)
from barnabas.spark import errors
from barnabas.spark.errors import LoadsFailedError
from barnabas.spark.load_types import LoadResult, TableLoad
from barnabas.spark.offset_ranges import OffsetRange
from tests.unit.cli.test_load import Topics

LOADED = TableLoad("default.clicks", 7, 50, (OffsetRange("clicks", 0, 50, 100),), 1)
EMPTY = TableLoad("default.views", None, 0, ())
CODES: list[tuple[BaseException, int]] = [
    (errors.LoadConflictError("another load was committed"), 4),
    (errors.WarehouseLockedError("locked"), 4),
    (errors.WarehouseAccessError("denied"), 1),
    (errors.WarehouseUnavailableError("refused"), 5),
    (errors.SourceUnavailableError("no answer"), 5),
    (errors.CommitUnknownError("run it again"), 5),
    (NoBrokerError("no broker responds"), 5),
    (TimedOutError("no answer"), 5),
    (DisconnectedError("closed"), 5),
    (ApiError(ErrorCode.LEADER_NOT_AVAILABLE), 5),
    (ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 1),
    (ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 1),
    (ConnectionRefusedError(111, "refused"), 5),
    (PermissionError(13, "denied"), 1),
    (AuthenticationError("wrong password"), 1),
    (errors.TooManyBadRecordsError("2 of 5"), 6),
    (errors.DataLossError("deleted"), 1),
    (errors.RecreatedTopicError("created again"), 1),
    (errors.HistoryExpiredError("expired"), 1),
    (errors.WarehouseError("disk full"), 1),
    (errors.SparkFailedError("no memory"), 1),
    (errors.UnknownTopicError("no such topic"), 1),
    (errors.EventTimeFieldError("no record has it"), 2),
    (errors.TooManyPartitionsError("30,000 partitions"), 2),
    (errors.MissingPackageError("pip install"), 1),
    (ConfigurationError("no such format"), 2),
    (click.UsageError("no such option"), 2),
    (click.ClickException("no topic 'x'"), 1),
    (ValueError("a defect"), 1),
    (KeyboardInterrupt(), 130),
    (SystemExit(143), 143),
]
KINDS_OF_CLICK = {click.UsageError: "ConfigurationError", click.ClickException: "CommandFailedError"}


@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda each: type(each).__name__)
def test_each_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_code_of_load(error) == code


def test_all_errors_of_loads_have_a_tested_exit_code() -> None:
    tested = {type(error) for error, _code in CODES}
    own = {each for each in vars(errors).values() if isinstance(each, type) and each.__module__ == errors.__name__}
    assert own - tested == {errors.JavaNotFoundError, errors.LoadError, errors.LoadsFailedError}


@pytest.mark.parametrize("code", [4, 5])
def test_retriable_errors_and_no_others_are_worth_a_retry(code: int) -> None:
    for error, own in CODES:
        if own == code and isinstance(error, errors.LoadError):
            assert error.retriable
    assert not any(error.retriable for error, own in CODES if isinstance(error, errors.LoadError) and own not in (4, 5))


def test_failure_that_no_retry_cures_precedes_others() -> None:
    example = {1: errors.DataLossError("a"), 2: ConfigurationError("b"), 6: errors.TooManyBadRecordsError("c")}
    example |= {5: TimedOutError("d"), 4: errors.LoadConflictError("e")}
    for number, code in enumerate(PRECEDENCE):
        failures = {f"t{each}": example[each] for each in reversed(PRECEDENCE[number:])}
        assert exit_code_of_tables(failures) == code
        assert exit_code_of_load(LoadsFailedError(LoadResult(()), failures)) == code


def run(monkeypatch: pytest.MonkeyPatch, outcome: LoadResult | BaseException, *options: str) -> Result:
    def load(_topics: tuple[str, ...], **_arguments: object) -> LoadResult:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(command, "connect", lambda _bootstrap: Topics())
    monkeypatch.setattr(command, "end_on_sigterm", lambda: None)
    monkeypatch.setattr(barnabas.spark, "load", load, raising=False)
    return CliRunner().invoke(command.load, ["clicks", "--warehouse", "w", *options])


def document(done: Result) -> Any:
    (line,) = done.stdout.splitlines()
    return json.loads(line)


def test_success_is_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, LoadResult((LOADED, EMPTY)), "--json")
    told = document(done)
    assert (done.exit_code, told["exit_code"], told["retryable"], told["error"]) == (0, 0, False, None)
    assert (told["version"], told["run_id"], told["records"]) == (1, None, 50)
    assert told["started_at"] <= told["ended_at"]
    assert [(table["table"], table["outcome"], table["error"]) for table in told["tables"]] == [
        ("default.clicks", "loaded", None),
        ("default.views", "empty", None),
    ]


@pytest.mark.parametrize("as_json", [True, False])
def test_nothing_new_is_a_failure_on_request(monkeypatch: pytest.MonkeyPatch, *, as_json: bool) -> None:
    options = ["--json"] if as_json else []
    assert run(monkeypatch, LoadResult((EMPTY,)), *options).exit_code == 0
    done = run(monkeypatch, LoadResult((EMPTY,)), "--fail-when-empty", *options)
    assert done.exit_code == 3
    assert "there were no new records" in done.stderr or as_json
    assert not as_json or document(done)["exit_code"] == 3
    assert run(monkeypatch, LoadResult((EMPTY, LOADED)), "--fail-when-empty", *options).exit_code == 0


@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda each: type(each).__name__)
def test_each_failure_is_one_document(monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int) -> None:
    done = run(monkeypatch, error, "--json")
    told = document(done)
    assert (told["exit_code"], told["retryable"], told["tables"]) == (code, code in (4, 5), [])
    assert told["error"]["kind"] == KINDS_OF_CLICK.get(type(error), type(error).__name__)
    assert told["error"]["message"]
    if not isinstance(error, KeyboardInterrupt):  # click's runner makes that 1
        assert done.exit_code == code


def test_document_of_several_tables_has_the_error_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = {"a": errors.LoadConflictError("faster"), "b": errors.TooManyBadRecordsError("2 of 5")}
    done = run(monkeypatch, LoadsFailedError(LoadResult((LOADED,)), failures), "--json")
    told = document(done)
    assert (done.exit_code, told["retryable"], told["error"]["table"]) == (6, False, "b")
    assert [table["outcome"] for table in told["tables"]] == ["loaded", "failed", "failed"]
    assert [table["error"]["retryable"] for table in told["tables"][1:]] == [True, False]


WRONG_USES = [
    ["--warehous", "w"],
    [],
    ["-w", "w", "--profile", "there-is-none"],
    ["-w", "w", "--within", "5m"],
    ["-w", "w", "--starting-offsets", "page"],
    ["-w", "w", "--starting-offsets", '{"views": {"0": 5}}', "--from", "2026-01-01", "--to", "2026-01-02"],
    ["-w", "w", "--op", "__op"],
    ["-w", "w", "--order-by", "ts"],
    ["-w", "w", "--delete", "foo"],
    ["-w", "w", "--envelope", "debezium"],
    ["-w", "w", "--upsert", ""],
    ["-w", "w", "--upsert", "id"],
    ["-w", "w", "--upsert", "id", "--format", "json", "--delete", "foo"],
    ["-w", "w", "--upsert", "id", "--format", "json", "--sort-by", "id"],
    ["-w", "w", "--upsert", "id", "--format", "json", "--delete-memory", "7"],
    ["-w", "w", "--partition-by", "foo(x)"],
    ["-w", "w", "--sort-by", "x sideways"],
    ["-w", "w", "--max-bad-records", "x"],
    ["-w", "w", "--run-id", ""],
    ["-w", "w", "--from", "2026-01-01"],
    ["-w", "w", "--until", '{"views": {"0": 5}}'],
    ["-w", "w", "--format", "jsn"],
    ["-w", "w", "--format", "lines:("],
    ["-w", "w", "--format", "avro"],
    ["-w", "w", "--format", "avro", "--registry", "nowhere"],
    ["-w", "w", "--format", "json", "--fields", '{"page": "text"}'],
    ["-w", "w", "--fields", '{"page": "string"}'],
    ["-w", "w", "--nested"],
    ["-w", "w", "--keep-values", "none"],
    ["-w", "w", "--timezone", "Europe/Berln"],
    ["-w", "w", "--format", "json", "--event-time", ":s"],
    ["-w", "w", "--format", "common"],
    ["-w", "w", "--format", "lines:common", "--event-time", "at:s"],
    ["-w", "w", "--dead-letter", "clicks"],
    ["-w", "w", "--table", "web..clicks"],
    ["-w", "w", "--dead-letter-table", "a.b.c.d"],
    ["-w", "w", "--dead-letter-table", "default.clicks"],
    ["-w", "w", "-X", "linger.m=5"],
    ["-w", "w", "-X", "max.poll.records=x"],
    ["--catalog", "nope"],
    ["--catalog", "nope", "--table", "nope.web.clicks"],
    ["-w", "s3://lake"],
    ["-w", "w", "--table-format", "delta", "--catalog", "nope"],
]
"""Options that are wrong, whether or not a broker responds."""


@pytest.mark.parametrize("options", WRONG_USES, ids=" ".join)
def test_wrong_use_is_one_document_too(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    free_address: Callable[[], str],
    options: list[str],
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    topics = ["clicks"] if options else []
    assert run_command(["load", *topics, "--json", "-b", free_address(), *options]) == 2
    output = capsys.readouterr()
    told = json.loads(output.out)
    assert (told["exit_code"], told["retryable"], told["tables"]) == (2, False, [])
    assert told["error"]["kind"] == "ConfigurationError"
    assert output.err.startswith("barnabas: ")


@pytest.mark.parametrize(("error", "_code"), CODES, ids=lambda each: type(each).__name__)
def test_documents_name_no_class_of_the_command_line_library(error: BaseException, _code: int) -> None:
    assert not hasattr(click, kind_of(error))


def test_missing_topic_is_a_named_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "connect", lambda _connection: Topics())
    arguments = ["load", "clikcs", "views", "--json", "-w", str(tmp_path / "w")]
    assert run_command(arguments) == 1
    output = capsys.readouterr()
    error = {"kind": "UnknownTopicError", "message": "no topic 'clikcs'; did you mean 'clicks'?"}
    assert json.loads(output.out)["error"] == {**error, "retryable": False, "exit_code": 1}
    assert output.err == f"barnabas: {error['message']}\n"
    assert run_command([*arguments, "--op", "__op"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "ConfigurationError"


def test_broker_that_is_not_there_is_worth_a_retry(
    capsys: pytest.CaptureFixture[str], free_address: Callable[[], str], tmp_path: Path
) -> None:
    address = free_address()
    assert run_command(["load", "clicks", "--json", "-w", str(tmp_path / "w"), "-b", address]) == 5
    output = capsys.readouterr()
    told = json.loads(output.out)
    assert (told["exit_code"], told["retryable"], told["error"]["kind"]) == (5, True, "NoBrokerError")
    assert output.err.startswith(f"barnabas: no broker responds at {address}")
    assert run_command(["topic", "list", "-b", address]) == 1  # only loads have this code


@pytest.fixture
def free_address() -> Callable[[], str]:
    def address() -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{probe.getsockname()[1]}"

    return address
