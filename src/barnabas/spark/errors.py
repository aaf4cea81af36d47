"""The errors of the Spark pipeline. Each message contains the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.errors import ApiError, BarnabasError, ConfigurationError, ErrorCode, RetriableError
from barnabas.exit_codes import EXIT_CONFLICT, EXIT_TOO_MANY_BAD_RECORDS, EXIT_UNREACHABLE, EXIT_WRONG_SETTINGS

if TYPE_CHECKING:
    from barnabas.spark.load_types import LoadResult


class JavaNotFoundError(BarnabasError):
    """This machine has no Java runtime of a version that Spark supports."""


class SparkFailedError(BarnabasError):
    """Spark did not start, or a Spark job failed."""


class UnknownTopicError(ConfigurationError):
    """A topic to load does not exist. The error is retriable because the topic may be created later."""

    @property
    def retriable(self) -> bool:
        return True


class LoadError(BarnabasError):
    """A load failed. The table is unchanged, unless the message says that this is not known."""


class LoadConflictError(LoadError):
    """Another writer committed to the table during this load; this load committed nothing."""

    exit_code = EXIT_CONFLICT

    @property
    def retriable(self) -> bool:
        return True


class SourceUnavailableError(LoadError):
    """The brokers or the schema registry did not answer while a load read records; the table is unchanged."""

    exit_code = EXIT_UNREACHABLE

    @property
    def retriable(self) -> bool:
        return True


class DataLossError(LoadError):
    """The log has lost records after the last loaded offset, so the table would miss them."""


class TooManyBadRecordsError(LoadError):
    """A load has more bad records than the limit allows; the table is unchanged."""

    exit_code = EXIT_TOO_MANY_BAD_RECORDS


class TooManyPartitionsError(LoadError):
    """A load into a new table would write an excessive number of partitions, each with its own files."""

    exit_code = EXIT_WRONG_SETTINGS


class EventTimeFieldError(LoadError):
    """No record of a load has the event-time field; the table is unchanged."""

    exit_code = EXIT_WRONG_SETTINGS


class RecreatedTopicError(LoadError):
    """The topic was deleted and created again since the last load, so the recorded offsets are invalid."""


class WarehouseError(LoadError):
    """The warehouse cannot be used: it is unreachable, not writable or full, or the table is not a loaded table."""


class WarehouseUnavailableError(WarehouseError):
    """The catalog or the storage did not answer; the table is unchanged."""

    exit_code = EXIT_UNREACHABLE

    @property
    def retriable(self) -> bool:
        return True


class WarehouseAccessError(WarehouseError):
    """The catalog or the storage rejects the credentials, or they permit too little; the table is unchanged."""


class WarehouseLockedError(WarehouseError):
    """Another process has locked the catalog of the embedded warehouse; the table is unchanged."""

    exit_code = EXIT_CONFLICT

    @property
    def retriable(self) -> bool:
        return True


class MissingPackageError(WarehouseError):
    """A catalog or storage needs a package that is not installed; the message names the package."""


class CommitUnknownError(LoadError):
    """The result of a commit is unknown. The next load finds out, and continues from there."""

    exit_code = EXIT_UNREACHABLE

    @property
    def retriable(self) -> bool:
        return True


_OF_MISSING_TOPICS = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


def is_source_unavailable(error: BaseException) -> bool:
    """Return whether an error of a client means that the brokers or the registry do not answer now.

    >>> is_source_unavailable(RetriableError()), is_source_unavailable(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    (True, False)
    """
    if isinstance(error, ApiError):
        return error.retriable and error.code not in _OF_MISSING_TOPICS
    return isinstance(error, RetriableError | SourceUnavailableError)


def is_as_before(error: BaseException) -> bool:
    """Return whether an error of a commit proves that the table is unchanged. An interrupt, for example, does not."""
    return isinstance(error, LoadError) and not isinstance(error, CommitUnknownError)


class HistoryExpiredError(LoadError):
    """The snapshot that recorded the end of the last load has expired."""


class LoadsFailedError(LoadError):
    """Some of several tables could not be loaded; the others were loaded.

    `result` describes the loaded tables; `failures` has the exception of each other table.
    """

    def __init__(self, result: LoadResult, failures: Mapping[str, Exception]) -> None:
        reasons = "; ".join(f"{table}: {error}" for table, error in failures.items())
        super().__init__(f"{len(failures)} of {len(failures) + len(result.tables)} tables were not loaded: {reasons}")
        self.result = result
        self.failures = dict(failures)

    @property
    def retriable(self) -> bool:
        return all(isinstance(error, BarnabasError) and error.retriable for error in self.failures.values())
