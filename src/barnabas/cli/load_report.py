"""The report of `barnabas load` to a scheduler: the exit code, and one JSON document (docs/reference/command.md).

A scheduler repeats a load whose exit code is 4 or 5. Of several tables, the failure that no repetition cures decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.error_messages import exit_code_of, explain
from barnabas.cli.options import NoBrokerError
from barnabas.cli.signals import EXIT_INTERRUPTED
from barnabas.cli.table_output import show_json
from barnabas.cli.times import show_time_ms
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.exit_codes import (
    EXIT_CONFLICT,
    EXIT_FAILED,
    EXIT_NOTHING_NEW,
    EXIT_TOO_MANY_BAD_RECORDS,
    EXIT_UNREACHABLE,
    EXIT_WRONG_SETTINGS,
)

if TYPE_CHECKING:
    from barnabas.spark.load_types import TableLoad
    from barnabas.spark.offset_ranges import OffsetRange

VERSION = 1
"""The version of the document. A new field does not change it."""
PRECEDENCE = (EXIT_FAILED, EXIT_WRONG_SETTINGS, EXIT_TOO_MANY_BAD_RECORDS, EXIT_UNREACHABLE, EXIT_CONFLICT)
"""The exit codes of failed tables: the first one that a table has is the exit code of the command."""
RETRYABLE = frozenset({EXIT_UNREACHABLE, EXIT_CONFLICT})

LOADED, EMPTY, REPEATED, FAILED = "loaded", "empty", "repeated", "failed"
"""The outcomes of a table: a commit, no new records, an earlier commit with the same run id, a failure."""


class CommandFailedError(click.ClickException):
    """A failure of the command, with its message and exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance


def exit_code_of_load(error: BaseException) -> int:
    """Return the exit code of a load that ends with an error.

    >>> exit_code_of_load(click.UsageError("no such option")), exit_code_of_load(ConnectionRefusedError())
    (2, 5)
    """
    from barnabas.spark.errors import LoadsFailedError, is_source_unavailable
    from barnabas.spark.unavailable_servers import is_without_answer

    if isinstance(error, LoadsFailedError):
        return exit_code_of_tables(error.failures)
    is_of_system = isinstance(error, OSError) and not isinstance(error, BarnabasError)
    if isinstance(error, NoBrokerError) or is_source_unavailable(error) or (is_of_system and is_without_answer(error)):
        return EXIT_UNREACHABLE
    if isinstance(error, click.ClickException):
        return error.exit_code
    return exit_code_of(error) if isinstance(error, BarnabasError) else _exit_code_of_signal(error)


def _exit_code_of_signal(error: BaseException) -> int:
    """Return the exit code of a signal's exception; that of a failure for any other exception."""
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code
    return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt | click.Abort) else EXIT_FAILED


def exit_code_of_tables(failures: Mapping[str, Exception]) -> int:
    """Return the exit code of a command with failed tables, by `PRECEDENCE`."""
    codes = {exit_code_of_load(error) for error in failures.values()}
    return next((code for code in PRECEDENCE if code in codes), EXIT_FAILED)


def message_of(error: BaseException) -> str:
    """Return the error in one line."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, BarnabasError | OSError):
        return explain(error)
    if isinstance(error, KeyboardInterrupt | SystemExit | click.Abort):
        return "a signal ended the command; each table is either loaded or unchanged"
    return f"{type(error).__name__}: {error}"


class LoadReport:
    """The document about one run of the command, from its start to its end.

    :param run_id: the id that the user gave the run.
    """

    def __init__(self, run_id: str | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._run_id = run_id
        self._clock = clock
        self._started_ms = clock.time_ms()

    def succeeded(self, tables: Sequence[TableLoad], exit_code: int = 0) -> dict[str, object]:
        """Return the document of a run without failures.

        :param exit_code: 3 if there were no new records and `--fail-when-empty` is set.
        """
        return self._document(tables, exit_code, error=None)

    def failed(self, error: BaseException, tables: Sequence[TableLoad] = ()) -> dict[str, object]:
        """Return the document of a run that an error ended."""
        return self._document(tables, exit_code_of_load(error), error=_error_as_json(error))

    def partly_failed(self, tables: Sequence[TableLoad], failures: Mapping[str, Exception]) -> dict[str, object]:
        """Return the document of a run with failed tables. Its error is the one that determines the exit code."""
        code = exit_code_of_tables(failures)
        name = next((table for table, error in failures.items() if exit_code_of_load(error) == code), "")
        of_tables = [
            {"table": table, "outcome": FAILED, "error": _error_as_json(error)} for table, error in failures.items()
        ]
        error = {"table": name, **_error_as_json(failures[name])} if name else None
        return self._document(tables, code, error=error, further=of_tables)

    def _document(
        self,
        tables: Sequence[TableLoad],
        exit_code: int,
        *,
        error: Mapping[str, object] | None,
        further: Sequence[Mapping[str, object]] = (),
    ) -> dict[str, object]:
        return {
            "version": VERSION,
            "run_id": self._run_id,
            "started_at": show_time_ms(self._started_ms),
            "ended_at": show_time_ms(self._clock.time_ms()),
            "exit_code": exit_code,
            "retryable": exit_code in RETRYABLE,
            "records": sum(table.records for table in tables),
            "error": error,
            "tables": [*map(_table_as_json, tables), *further],
        }


class LoadCommand(click.Command):
    """The click command `load`, which adds the exit codes of loads and the JSON documents of failures.

    A run with `--every` has no document: it prints an object for each event.
    """

    def make_context(self, info_name: str | None, args: list[str], *arguments: Any, **extra: Any) -> click.Context:
        wants_document = "--json" in args and "--every" not in args
        with _reported_failures(LoadReport() if wants_document else None):
            return super().make_context(info_name, args, *arguments, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        report = LoadReport(ctx.params.get("run_id"))
        ctx.meta[__name__] = report
        wants_document = ctx.params["as_json"] and ctx.params["every"] is None
        with _reported_failures(report if wants_document else None):
            return super().invoke(ctx)


def current_report() -> LoadReport:
    """Return the report of the running command."""
    report = click.get_current_context().meta[__name__]
    assert isinstance(report, LoadReport)
    return report


@contextmanager
def _reported_failures(report: LoadReport | None) -> Iterator[None]:
    """Print the document of an error, and give the error the exit code of a load.

    :param report: None prints no document.
    :raises CommandFailedError: the error is one that the command reports in a line.
    """
    try:
        yield
    except click.exceptions.Exit:
        raise
    except BaseException as error:
        if report is not None and not isinstance(error, BrokenPipeError):
            show_json(report.failed(error))
        if isinstance(error, click.UsageError | BrokenPipeError):
            raise
        if isinstance(error, click.ClickException | BarnabasError | OSError):
            raise CommandFailedError(message_of(error), exit_code_of_load(error)) from error
        raise


def nothing_new(tables: Sequence[TableLoad]) -> bool:
    """Return whether no table has new records."""
    return not any(table.records for table in tables)


def exit_code_without_failures(tables: Sequence[TableLoad], *, fail_when_empty: bool) -> int:
    """Return the exit code of a run without failures."""
    return EXIT_NOTHING_NEW if fail_when_empty and nothing_new(tables) else 0


def kind_of(error: BaseException) -> str:
    """Return the name of an error in the document. The classes of click are no part of the contract with schedulers.

    >>> kind_of(click.NoSuchOption("--warehous")), kind_of(NoBrokerError("no broker responds"))
    ('ConfigurationError', 'NoBrokerError')
    """
    if isinstance(error, click.UsageError):
        return ConfigurationError.__name__
    if type(error) in (click.ClickException, click.FileError):
        return CommandFailedError.__name__
    return KeyboardInterrupt.__name__ if isinstance(error, click.Abort) else type(error).__name__


def _error_as_json(error: BaseException) -> dict[str, object]:
    code = exit_code_of_load(error)
    return {
        "kind": kind_of(error),
        "message": message_of(error),
        "retryable": code in RETRYABLE,
        "exit_code": code,
    }


def _table_as_json(table: TableLoad) -> dict[str, object]:
    return {
        "table": table.table,
        "outcome": REPEATED if table.is_repeated else EMPTY if table.snapshot_id is None else LOADED,
        "records": table.records,
        "files": table.files,
        "partitions": table.partitions,
        "snapshot_id": table.snapshot_id,
        "kept_values": table.kept_values,
        "upserts": table.upserts,
        "deletes": table.deletes,
        "outdated": table.outdated,
        "rewritten_files": table.rewritten_files,
        "keys_in_several_partitions": table.keys_in_several_partitions,
        "lost_values": table.lost_values,
        "further_columns": {name: dict(counts) for name, counts in table.further_columns.items()},
        "bad_records": dict(table.bad.reasons),
        "dead_letters": table.dead_letters,
        "dead_letter_rows": table.dead_letter_rows,
        "without_event_time": table.without_time,
        "missing_event_field": table.missing_event_field,
        "new_fields": dict(table.new_fields),
        "not_renamed": dict(table.not_renamed),
        "complete_until_ms": table.complete_until_ms,
        "ranges": [_range_as_json(loaded) for loaded in table.ranges],
        "missing": [_range_as_json(gap) for gap in table.missing],
        "error": None,
    }


def _range_as_json(offsets: OffsetRange) -> dict[str, object]:
    return {
        "topic": offsets.topic,
        "partition": offsets.partition,
        "start_offset": offsets.start_offset,
        "end_offset": offsets.end_offset,
    }
