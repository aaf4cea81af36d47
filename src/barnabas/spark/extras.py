"""Imports of what the extra `spark` brings, with one clear line where it is missing.

`import barnabas.spark` stays light: PySpark, pyiceberg and pyarrow are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from barnabas.spark.errors import MissingExtraError

EXTRA_OF_PACKAGE = {
    **dict.fromkeys(("numpy", "pyspark", "pyiceberg", "pyarrow", "sqlalchemy"), "spark"),
    "deltalake": "delta",
}


def require(module: str) -> ModuleType:
    """Import a module of this package that needs the extra.

    :raises MissingExtraError: a package of the extra is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF_PACKAGE:
            raise
        raise MissingExtraError(
            f"the package {package} is missing, which the pipeline on Spark needs: "
            f"pip install 'barnabas[{EXTRA_OF_PACKAGE[package]}]'"
        ) from error
