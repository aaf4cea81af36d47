"""Recognises errors of libraries that mean: a server does not answer, or cannot answer now. Pure.

Catalogs and storage are reached with pyiceberg, deltalake, Arrow, requests, botocore and database drivers. The module
imports none of them, because most loads use few of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_NO_ANSWER = (ConnectionError, TimeoutError)
_NO_ANSWER_BY_NAME = frozenset(
    {
        *("requests.ConnectionError", "requests.Timeout", "urllib3.TimeoutError", "urllib3.ProtocolError"),
        *("botocore.ConnectionError", "botocore.HTTPClientError", "pyiceberg.ServerError"),
        *("pyiceberg.ServiceUnavailableError", "socket.gaierror", "thrift.TTransportException"),
    }
)
"""The package and the class of further errors for a server that does not answer. The packages are imported only if they
are needed, so the classes are compared by name."""
_NO_ANSWER_IN_WORDS = re.compile(
    "NETWORK_CONNECTION|REQUEST_TIMEOUT|SLOW_DOWN|SERVICE_UNAVAILABLE|error sending request|connection refused"
    "|could not connect|connection (?:timed out|reset|closed)|operation timed out|timeout expired"
    "|503 Service Unavailable",
    re.IGNORECASE,
)
"""Parts of the messages of Arrow, delta-rs and database drivers, whose errors have no class of their own for this."""
_CAUSES_MAX = 10


def is_without_answer(error: BaseException) -> bool:
    """Return whether an error of a library means that a server did not answer, or could not answer now.

    >>> is_without_answer(ConnectionRefusedError()), is_without_answer(PermissionError())
    (True, False)
    """
    return any(map(_has_no_answer, causes_of(error)))


def _has_no_answer(error: BaseException) -> bool:
    if isinstance(error, _NO_ANSWER):
        return True
    names = {f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in type(error).__mro__}
    is_vague = isinstance(error, OSError) or "sqlalchemy.OperationalError" in names
    return bool(names & _NO_ANSWER_BY_NAME) or (is_vague and _NO_ANSWER_IN_WORDS.search(str(error)) is not None)


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors that led to it."""
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__
