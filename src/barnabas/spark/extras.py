"""Imports of what the extra `spark` brings, with one clear line where it is missing.

`import barnabas.spark` stays light: PySpark, pyiceberg and pyarrow are imported when they are first used.
"""

from __future__ import annotations

from types import ModuleType

from barnabas import extras


def require(module: str) -> ModuleType:
    """Import a module of this package that needs the extra.

    :raises MissingExtraError: a package of the extra is not installed.
    """
    return extras.require(module, "spark")
