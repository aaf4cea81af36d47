"""Which failures end loads that go on round by round (`--every`, `--until-complete`), and which may pass. Pure.

A broker or a catalog that is away stops nothing, and a load that was not committed has left the table as it was.
Settings that are wrong, and software that is missing, would be wrong in the next round too. Once records have been
loaded into a table its settings are right, and what refuses them is something that changed around them, which may
change back. A round with nothing new proves less: some settings are looked at where there are records. What it does
prove is that there are the topics, so that one that is missing later may come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.errors import ConfigurationError
from barnabas.spark import JavaNotFoundError, MissingExtraError
from barnabas.spark.errors import MissingPackageError, UnknownTopicError

if TYPE_CHECKING:
    from barnabas.spark.load_types import LoadResult

_AS_IT_IS_SET_UP = (ConfigurationError, MissingExtraError, MissingPackageError, JavaNotFoundError)


class HopelessLoads:
    """Knows what rounds have proved so far, and by that which failures all further ones would have."""

    def __init__(self) -> None:
        self._loaded: set[str] = set()
        self._has_succeeded = False

    def note(self, result: LoadResult, failures: Mapping[str, Exception]) -> None:
        """Learn from a round: what was loaded, and the tables that were not."""
        self._loaded |= {load.table for load in result.tables if load.snapshot_id is not None}
        self._has_succeeded |= not failures

    def is_hopeless(self, error: Exception) -> bool:
        """Whether a whole round that failed says that all further ones will."""
        return self._is_hopeless(error, bool(self._loaded))

    def hopeless_of(self, result: LoadResult, failures: Mapping[str, Exception]) -> Exception | None:
        """Return the failure of a table whose settings can never work; of topics only where none of them is there."""
        unknown = [failure for failure in failures.values() if isinstance(failure, UnknownTopicError)]
        for table, failure in failures.items():
            if failure not in unknown and self._is_hopeless(failure, table in self._loaded):
                return failure
        if unknown and len(unknown) == len(failures) and not result.tables and self._is_hopeless(unknown[0], False):
            return unknown[0]
        return None

    def _is_hopeless(self, error: Exception, has_loaded: bool) -> bool:
        """Whether all further rounds would end like this.

        :param has_loaded: whether records were loaded with the same settings.
        """
        if isinstance(error, UnknownTopicError):
            return not self._has_succeeded
        return isinstance(error, _AS_IT_IS_SET_UP) and not has_loaded
