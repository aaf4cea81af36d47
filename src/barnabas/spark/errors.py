"""What can go wrong between the log and the table, each error with what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.exit_codes import EXIT_TOO_MANY_BAD_RECORDS, EXIT_WRONG_SETTINGS

if TYPE_CHECKING:
    from barnabas.spark.load_types import LoadResult


class JavaNotFoundError(BarnabasError):
    """Spark runs on Java, and none of a version that it can use was found on this machine."""


class SparkFailedError(BarnabasError):
    """Spark did not start, or failed at work."""


class UnknownTopicError(ConfigurationError):
    """A topic that is to be loaded does not exist, which somebody else may change yet."""

    @property
    def retriable(self) -> bool:
        return True


class LoadError(BarnabasError):
    """A load stopped. The table is as it was before, unless the message says that this is not known."""


class LoadConflictError(LoadError):
    """Somebody else committed to the table while this load was running; nothing of this load was kept."""

    @property
    def retriable(self) -> bool:
        return True


class DataLossError(LoadError):
    """Records between the last commit and now are gone from the log, so the table would miss them."""


class TooManyBadRecordsError(LoadError):
    """More records of a load are bad than the limit allows; the table is as before."""

    exit_code = EXIT_TOO_MANY_BAD_RECORDS


class EventTimeFieldError(LoadError):
    """No record of a load has the field of the event time; the table is as before."""

    exit_code = EXIT_WRONG_SETTINGS


class RecreatedTopicError(LoadError):
    """The topic is not the one that the table was loaded from: offsets of the two do not compare."""


class WarehouseError(LoadError):
    """The warehouse cannot be used: not reachable, not writable, full, or a table of another kind."""


class MissingPackageError(WarehouseError):
    """A catalog or a storage needs a package that is not installed; the message names it."""


class CommitUnknownError(LoadError):
    """It could not be found out whether the commit was carried out. The next load finds out, and goes on."""


def is_as_before(error: BaseException) -> bool:
    """Whether what a commit ended with says that the table is as before. An interrupt, for one, says nothing."""
    return isinstance(error, LoadError) and not isinstance(error, CommitUnknownError)


class HistoryExpiredError(LoadError):
    """The snapshot that says where the last load ended has expired."""


class LoadsFailedError(LoadError):
    """Of several tables, some could not be loaded; the others were.

    `result` says what was loaded, `failures` has the exception of each other table.
    """

    def __init__(self, result: LoadResult, failures: Mapping[str, Exception]) -> None:
        told = "; ".join(f"{table}: {error}" for table, error in failures.items())
        super().__init__(f"{len(failures)} of {len(failures) + len(result.tables)} tables were not loaded: {told}")
        self.result = result
        self.failures = dict(failures)

    @property
    def retriable(self) -> bool:
        return all(isinstance(error, BarnabasError) and error.retriable for error in self.failures.values())
