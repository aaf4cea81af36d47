"""The Python of Spark's workers: this one where nobody chose, else one that must have the package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark.fast_worker_start import fast_worker_python
from barnabas.spark.worker_python import choose_python, cores_of, worker_python


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A Python that cannot import anything."""
    program = tmp_path / "python3"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    return str(program)


def test_where_nobody_chose_the_workers_of_this_machine_run_this_python(bare_python: str) -> None:
    assert choose_python(bare_python, "local[*]", None) == fast_worker_python()


@pytest.mark.parametrize(("master", "is_chosen"), [("local[2]", True), ("spark://there:7077", False)])
def test_a_python_without_the_package_is_refused_with_what_to_set(
    bare_python: str, master: str, is_chosen: bool
) -> None:
    with pytest.raises(ConfigurationError, match=f"{bare_python}.*PYSPARK_PYTHON.*{sys.executable}"):
        choose_python(bare_python, master, bare_python if is_chosen else None)


def test_a_python_that_has_the_package_or_is_elsewhere_is_left_as_it_is() -> None:
    assert choose_python(sys.executable, "spark://there:7077", sys.executable) == sys.executable
    shipped = "./environment/bin/python"
    assert choose_python(shipped, "yarn", shipped) == shipped


class Context:
    """A local session's context, as far as it is asked."""

    master = "local[2]"
    pythonExec = "python3"  # noqa: N815  # PySpark's name
    defaultParallelism = 2  # noqa: N815

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return {}


class Session:
    """A session of the user's own."""

    def __init__(self) -> None:
        self.sparkContext = Context()


def test_what_else_the_session_runs_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    session: Any = Session()
    with worker_python(session):
        assert session.sparkContext.pythonExec == fast_worker_python()
    assert session.sparkContext.pythonExec == "python3"
    assert session.sparkContext.environment == {}


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 2), ("local[2]", 2), ("local[*]", 2), ("local-cluster[2,1,1024]", None), ("spark://there:7077", None)],
)
def test_how_many_tasks_run_at_a_time_is_known_where_spark_is_one_process(master: str, cores: int | None) -> None:
    session: Any = Session()
    session.sparkContext.master = master
    assert cores_of(session) == cores
