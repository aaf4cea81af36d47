"""The conversion of errors of table libraries to errors of Barnabas, with a one-line message.

pyiceberg, deltalake and their dependencies (Arrow, pydantic, SQLAlchemy, requests, boto, thrift, delta-rs) have
hundreds of error classes without a common base. They do not document the errors of each call. A damaged metadata
file alone raises ValidationError, EOFError, OSError or ArrowInvalid. So `library_errors` surrounds each call of such a
library and catches all errors.

`BARNABAS_DEBUG=1` shows the traceback of the library. A failed assertion is a defect of Barnabas and passes unchanged.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.exceptions import NotInstalledError

from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.spark.errors import (
    MissingPackageError,
    WarehouseError,
    WarehouseLockedError,
    WarehouseUnavailableError,
)

REASON_LENGTH_MAX = 500
_OF_SETTINGS = (ValueError, TypeError, LookupError, AttributeError, NotImplementedError)
"""The errors that a library raises for invalid settings."""
_OF_PACKAGES = (ImportError, NotInstalledError)
_SAY_NOTHING_ALONE = (LookupError, EOFError, AttributeError, TypeError, NotImplementedError)
_IS_VALIDATED = re.compile(r"\d+ validation errors? for ")
"""A pattern for the first line of a pydantic error. The reason is in the second line."""
_NO_ANSWER = (ConnectionError, TimeoutError, socket.gaierror)
_NO_ANSWER_BY_NAME = frozenset(
    {
        *("requests.ConnectionError", "requests.Timeout", "urllib3.TimeoutError", "urllib3.ProtocolError"),
        *("botocore.ConnectionError", "botocore.HTTPClientError", "pyiceberg.ServerError"),
        "pyiceberg.ServiceUnavailableError",
    }
)
"""The package and the class of further errors for a server that does not answer. The packages are imported only if they
are needed, so the classes are compared by name."""
_NO_ANSWER_IN_WORDS = re.compile(
    "NETWORK_CONNECTION|REQUEST_TIMEOUT|SLOW_DOWN|SERVICE_UNAVAILABLE|error sending request|connection refused"
    "|could not connect|connection (?:timed out|reset|closed)|operation timed out|503 Service Unavailable",
    re.IGNORECASE,
)
"""Parts of the messages of Arrow, delta-rs and database drivers, whose errors have no class of their own for this."""
_LOCKED = "database is locked"
_CAUSES_MAX = 10
_PANIC = "PanicException"
"""The class name of a Rust panic. The class is not an `Exception`, and no module exports it."""


@contextmanager
def library_errors(what: str, *, is_set_up: bool = False) -> Iterator[None]:
    """Convert each error of a library to an error of Barnabas. Errors of Barnabas pass unchanged.

    :param what: The beginning of the message, for example "table clicks: its rows cannot be read".
    :param is_set_up: True if the library receives its settings in this call.
    :raises ConfigurationError: `is_set_up` is True, and a setting is invalid.
    :raises MissingPackageError: The library needs a package that is not installed.
    :raises WarehouseUnavailableError: The catalog or the storage does not answer.
    :raises WarehouseLockedError: Another process has locked the catalog.
    :raises WarehouseError: The library failed for another reason.
    """
    try:
        yield
    except (BarnabasError, AssertionError):
        raise
    except Exception as error:
        message = f"{what}: {reason_of(error)}"
        if isinstance(error, _OF_PACKAGES):
            raise MissingPackageError(message) from error
        if is_set_up and isinstance(error, _OF_SETTINGS):
            raise ConfigurationError(message) from error
        raise warehouse_error(error)(message) from error
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise WarehouseError(f"{what}: {reason_of(error)}") from error


def warehouse_error(error: BaseException) -> type[WarehouseError]:
    """Return the class of Barnabas's error for an error of a library."""
    for cause in _causes(error):
        if type(cause).__name__ == "OperationalError" and _LOCKED in str(cause):
            return WarehouseLockedError
    return WarehouseUnavailableError if is_without_answer(error) else WarehouseError


def is_without_answer(error: BaseException) -> bool:
    """Return whether an error of a library means that a server did not answer, or could not answer now.

    >>> is_without_answer(ConnectionRefusedError()), is_without_answer(PermissionError())
    (True, False)
    """
    return any(map(_has_no_answer, _causes(error)))


def _has_no_answer(error: BaseException) -> bool:
    if isinstance(error, _NO_ANSWER):
        return True
    names = {f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in type(error).__mro__}
    is_vague = isinstance(error, OSError) or "sqlalchemy.OperationalError" in names
    return bool(names & _NO_ANSWER_BY_NAME) or (is_vague and _NO_ANSWER_IN_WORDS.search(str(error)) is not None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors that led to it."""
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__


def reason_of(error: BaseException) -> str:
    """Return the reason of an error in one line.

    The text of an error may contain a server's stack trace, or a table that pyiceberg has drawn.

    >>> reason_of(KeyError("uri")), reason_of(ValueError("no such column\\n┏━━┓"))
    ("KeyError: 'uri'", 'no such column')
    """
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"the package {error.name} is not installed"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = ": ".join(lines[: 2 if lines and _IS_VALIDATED.match(lines[0]) else 1])
    if not said or isinstance(error, _SAY_NOTHING_ALONE):
        said = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return said[:REASON_LENGTH_MAX]
