"""The conversion of errors of table libraries to errors of Barnabas, with a one-line message.

pyiceberg, deltalake and their dependencies (Arrow, pydantic, SQLAlchemy, requests, boto, thrift, delta-rs) have
hundreds of error classes without a common base. They do not document the errors of each call. A damaged metadata
file alone raises ValidationError, EOFError, OSError or ArrowInvalid. So `library_errors` surrounds each call of such a
library and catches all errors.

`BARNABAS_DEBUG=1` shows the traceback of the library. A failed assertion is a defect of Barnabas and passes unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.exceptions import NotInstalledError

from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.spark.errors import (
    MissingPackageError,
    WarehouseAccessError,
    WarehouseError,
    WarehouseLockedError,
    WarehouseUnavailableError,
)
from barnabas.spark.unavailable_servers import causes_of, is_without_answer

REASON_LENGTH_MAX = 500
_OF_SETTINGS = (ValueError, TypeError, LookupError, AttributeError, NotImplementedError)
"""The errors that a library raises for invalid settings."""
_OF_PACKAGES = (ImportError, NotInstalledError)
_SAY_NOTHING_ALONE = (LookupError, EOFError, AttributeError, TypeError, NotImplementedError)
_IS_VALIDATED = re.compile(r"\d+ validation errors? for ")
"""A pattern for the first line of a pydantic error. The next line has the reason, or a field before the reason."""
_LOCKED = "database is locked"
_INPUT = re.compile(r" \[type=[^\n]*")
"""The end of a line of a pydantic error, with the rejected input. The answer of a token server contains a token."""
_DENIED_BY_NAME = frozenset(
    {
        *("pyiceberg.OAuthError", "pyiceberg.UnauthorizedError", "pyiceberg.AuthorizationExpiredError"),
        *("pyiceberg.ForbiddenError", "botocore.NoCredentialsError", "botocore.PartialCredentialsError"),
    }
)
_DENIED_BY_CODE = frozenset({400, 401, 403})
"""The status codes with which a token server rejects credentials."""
_DENIED_IN_WORDS = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN_ID|UNRECOGNIZED_CLIENT"
    r"|\b(?:AccessDenied|AccessDeniedException|ExpiredToken|ExpiredTokenException|InvalidAccessKeyId"
    r"|InvalidClientTokenId|InvalidSignatureException|SignatureDoesNotMatch|UnrecognizedClientException)\b"
)
"""Parts of the messages of Arrow, delta-rs and botocore."""
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
    :raises WarehouseAccessError: The catalog or the storage rejects the credentials.
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
    for cause in causes_of(error):
        if type(cause).__name__ == "OperationalError" and _LOCKED in str(cause):
            return WarehouseLockedError
    if is_denied(error):
        return WarehouseAccessError
    return WarehouseUnavailableError if is_without_answer(error) else WarehouseError


def is_denied(error: BaseException) -> bool:
    """Return whether an error of a library means that a server rejects the credentials, or grants no permission.

    >>> is_denied(OSError("AWS Error ACCESS_DENIED during PutObject operation")), is_denied(PermissionError())
    (True, False)
    """
    return any(map(_is_denied, causes_of(error)))


def _is_denied(error: BaseException) -> bool:
    names = {f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in type(error).__mro__}
    if names & _DENIED_BY_NAME:
        return True
    if "requests.HTTPError" in names:
        return getattr(getattr(error, "response", None), "status_code", None) in _DENIED_BY_CODE
    is_of_storage = isinstance(error, OSError) or bool(names & {"botocore.ClientError", "_internal.DeltaError"})
    return is_of_storage and _DENIED_IN_WORDS.search(str(error)) is not None


def reason_of(error: BaseException) -> str:
    """Return the reason of an error in one line.

    The text of an error may contain a server's stack trace, or a table that pyiceberg has drawn.

    >>> reason_of(KeyError("uri")), reason_of(ValueError("no such column\\n┏━━┓"))
    ("KeyError: 'uri'", 'no such column')
    """
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"the package {error.name} is not installed"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else ""
    if _IS_VALIDATED.match(said):
        has_field = len(lines) > 2 and _INPUT.search(lines[1]) is None and _INPUT.search(lines[2]) is not None
        said = _INPUT.sub("", ": ".join(lines[: 3 if has_field else 2]))
    if not said or isinstance(error, _SAY_NOTHING_ALONE):
        said = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return said[:REASON_LENGTH_MAX]
