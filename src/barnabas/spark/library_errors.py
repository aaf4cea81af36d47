"""What the libraries of tables end with, in one line: the only place where their errors become Barnabas' own.

pyiceberg, deltalake and what they stand on (Arrow, pydantic, SQLAlchemy, requests, boto, thrift, delta-rs) have some
hundred classes of errors without a common base, and none of them says which may come out of a call. A damaged file of
metadata alone is a ValidationError, an EOFError, an OSError or an ArrowInvalid. So each call of a library at the edge
of Barnabas stands in `library_errors`, which takes all of them.

`BARNABAS_DEBUG=1` shows the library's own traceback. A failed assertion is a defect of Barnabas and keeps it anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.exceptions import NotInstalledError

from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.spark.errors import MissingPackageError, WarehouseError

REASON_LENGTH_MAX = 500
_OF_SETTINGS = (ValueError, TypeError, LookupError, AttributeError, NotImplementedError)
"""What a library ends with where it was given what it cannot use."""
_OF_PACKAGES = (ImportError, NotInstalledError)
_SAY_NOTHING_ALONE = (LookupError, EOFError, AttributeError, TypeError, NotImplementedError)
_IS_VALIDATED = re.compile(r"\d+ validation errors? for ")
"""How pydantic begins; its second line says what is wrong."""
_PANIC = "PanicException"
"""The class of a panic of compiled Rust: no `Exception`, and of no module that can be imported."""


@contextmanager
def library_errors(what: str, *, is_set_up: bool = False) -> Iterator[None]:
    """Raise whatever a library ends with as one error of Barnabas; its own errors pass.

    :param what: what fails then, as in "table clicks: its rows cannot be read".
    :param is_set_up: whether the library is given its settings here.
    :raises ConfigurationError: a setting is wrong that it is given here.
    :raises MissingPackageError: it needs a package that is not installed.
    :raises WarehouseError: it has failed in any other way.
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
        raise WarehouseError(message) from error
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise WarehouseError(f"{what}: {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """Return what is wrong, in one line: an answer of a server may have a stack trace in it, and pyiceberg's a table.

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
