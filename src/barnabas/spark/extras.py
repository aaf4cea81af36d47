"""Imports of the modules that need the extra `spark`, with a one-line error if the extra is not installed.

`import barnabas.spark` imports PySpark, pyiceberg and pyarrow on first use.
"""

from __future__ import annotations

from types import ModuleType

from barnabas import extras


def require(module: str) -> ModuleType:
    """Import a module of this package that needs the extra.

    :raises MissingExtraError: A package of the extra is not installed.
    """
    return extras.require(module, "spark")
