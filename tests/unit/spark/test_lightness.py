"""`import barnabas.spark` costs nothing and needs nothing; what is missing is named in one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

import barnabas.spark
from barnabas.errors import MissingExtraError
from barnabas.spark.extras import require


def test_importing_the_package_imports_nothing_of_the_extra() -> None:
    script = (
        "import sys, barnabas.spark\n"
        "heavy = {'pyspark', 'pyiceberg', 'pyarrow', 'sqlalchemy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_workers_that_plan_import_neither_a_producer_nor_what_makes_columns() -> None:
    """Each stream has a process of its own that plans it, and waits for what that imports."""
    script = (
        "import sys, pyspark.sql.streaming.python_streaming_source_runner, barnabas.spark.source\n"
        "heavy = {'pyarrow.compute', 'barnabas.spark.sink', 'barnabas.client.producer'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_missing_extra_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delitem(sys.modules, "barnabas.spark.session", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'barnabas\[spark\]'"):
        require("barnabas.spark.session")


def test_other_missing_modules_are_not_blamed_on_the_extra() -> None:
    with pytest.raises(ModuleNotFoundError):
        require("barnabas.spark.nowhere")


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = barnabas.spark.nothing
