"""Permanent failures of repeated loads (`--every`, `--until-complete`), which end the command. The module does no I/O.

An unavailable broker or catalog is a temporary failure: the next round may succeed, and a failed load leaves its table
unchanged. Wrong settings and missing software fail in every round, so they are permanent. But after a round has written
records to a table, its settings are valid, and a later failure may be temporary. A round without new records proves
less, because some settings are checked with the first record. It only proves that the topics exist, so a topic that is
missing later may come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.errors import ConfigurationError
from barnabas.spark import JavaNotFoundError, MissingExtraError
from barnabas.spark.errors import MissingPackageError, UnknownTopicError, WarehouseAccessError

if TYPE_CHECKING:
    from barnabas.spark.load_types import LoadResult

_SETUP_ERRORS = (
    ConfigurationError,
    MissingExtraError,
    MissingPackageError,
    JavaNotFoundError,
    WarehouseAccessError,
)


class PermanentFailures:
    """Decides which failures are permanent, given the results of the rounds so far."""

    def __init__(self) -> None:
        self._loaded: set[str] = set()
        self._has_succeeded = False

    def note(self, result: LoadResult, failures: Mapping[str, Exception]) -> None:
        """Record the results of a round: the loaded tables, and the failure of each other table."""
        self._loaded |= {load.table for load in result.tables if load.snapshot_id is not None}
        self._has_succeeded |= not failures

    def is_permanent(self, error: Exception) -> bool:
        """Return whether the error of a whole round is permanent."""
        return self._is_permanent(error, bool(self._loaded))

    def first_permanent(self, result: LoadResult, failures: Mapping[str, Exception]) -> Exception | None:
        """Return the first permanent failure of a table, or None. A missing topic is a permanent failure only if all
        topics are missing."""
        unknown = [failure for failure in failures.values() if isinstance(failure, UnknownTopicError)]
        for table, failure in failures.items():
            if failure not in unknown and self._is_permanent(failure, table in self._loaded):
                return failure
        if unknown and len(unknown) == len(failures) and not result.tables and self._is_permanent(unknown[0], False):
            return unknown[0]
        return None

    def _is_permanent(self, error: Exception, has_loaded: bool) -> bool:
        """Return whether an error is permanent.

        :param has_loaded: whether an earlier round loaded records with the same settings.
        """
        if isinstance(error, UnknownTopicError):
            return not self._has_succeeded
        return isinstance(error, _SETUP_ERRORS) and not has_loaded
