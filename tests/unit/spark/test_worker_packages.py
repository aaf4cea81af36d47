"""What a cluster's workers lack is found out by a task that needs none of it, and told in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from barnabas.errors import ConfigurationError
from barnabas.spark import worker_packages
from barnabas.spark.worker_packages import check_workers, explain_workers


class Context:
    """A context whose one worker is this process."""

    def __init__(self, master: str, application: str, error: Exception | None = None) -> None:
        self.master = master
        self.applicationId = application
        self.jobs = 0
        self.error = error

    def setJobGroup(self, *_group: str, interruptOnCancel: bool) -> None:  # noqa: N802, N803
        assert interruptOnCancel

    def setLocalProperty(self, name: str, value: None) -> None:  # noqa: N802
        pass

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        raise AssertionError(group)

    def parallelize(self, items: list[int], _count: int) -> Any:
        self.jobs += 1
        if self.error is not None:
            raise self.error
        return Rows(items)


class Rows:
    """What a job is about."""

    def __init__(self, items: list[int]) -> None:
        self.items = items

    def mapPartitions(self, work: Any) -> Rows:  # noqa: N802
        return Rows(list(work(iter(self.items))))

    def collect(self) -> list[Any]:
        return self.items


class Session:
    """A session on a cluster."""

    def __init__(self, master: str, application: str, error: Exception | None = None) -> None:
        self.sparkContext = Context(master, application, error)


def test_packages_that_a_worker_lacks_are_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_packages, "NEEDED", ("json", "lacking_one", "lacking_two.part"))
    session: Any = Session("spark://there:7077", "app-1")
    with pytest.raises(ConfigurationError, match="lack the packages lacking_one, lacking_two: every") as caught:
        check_workers(session)
    assert "\n" not in str(caught.value)


def test_a_cluster_is_asked_once_and_this_machine_never() -> None:
    session: Any = Session("spark://there:7077", "app-2")
    check_workers(session)
    check_workers(session)
    assert session.sparkContext.jobs == 1
    local: Any = Session("local[2]", "app-3")
    check_workers(local)
    assert local.sparkContext.jobs == 0


def test_workers_with_another_release_are_told_of_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_packages, "__version__", "99.0.0")
    session: Any = Session("spark://there:7077", "app-4")
    with pytest.raises(ConfigurationError, match=r"workers have Barnabas .*, and the driver 99\.0\.0: every") as caught:
        check_workers(session)
    assert "\n" not in str(caught.value)


def test_a_worker_that_runs_no_python_is_told_and_what_is_unclear_is_left_to_the_query() -> None:
    lost = PySparkException(
        'Task 0 failed\njava.io.IOException: Cannot run program "./environment/bin/python": error=2'
    )
    session: Any = Session("spark://there:7077", "app-5", lost)
    with pytest.raises(ConfigurationError, match=r"cannot run the Python '\./environment/bin/python'"):
        check_workers(session)
    unclear: Any = Session("spark://there:7077", "app-6", PySparkException("cancelled"))
    check_workers(unclear)
    check_workers(unclear)
    assert unclear.sparkContext.jobs == 2


def test_ctrl_c_while_a_worker_is_asked_is_no_answer() -> None:
    lost = PySparkException("what PySpark does on its way out fails, as the connection was given up")
    lost.__context__ = KeyboardInterrupt()
    session: Any = Session("spark://there:7077", "app-7", lost)
    with pytest.raises(KeyboardInterrupt):
        check_workers(session)


def test_the_task_needs_nothing_of_this_package(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    sent.write_bytes(cloudpickle.dumps(worker_packages._finder(("json", "lacking_one"))))
    code = f"import pickle, sys; print(list(pickle.load(open({str(sent)!r}, 'rb'))(None)), 'barnabas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[('lacks', 'lacking_one')] False"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Caused by: x\nModuleNotFoundError: No module named 'barnabas'\n\n\tat org.apache...", "package barnabas"),
        ("ModuleNotFoundError: No module named 'cramjam.zstd'", "package cramjam"),
        ("[PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed; however, it was not found.", "package pyarrow"),
    ],
)
def test_an_error_of_spark_about_a_package_is_told_in_a_line(text: str, told: str) -> None:
    explained = explain_workers(text)
    assert explained is not None
    assert explained.startswith(f"Spark's workers lack the {told}: every worker needs")
    assert "\n" not in explained


def test_a_python_of_another_version_is_told_with_both() -> None:
    text = (
        "...[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark"
    )
    explained = explain_workers(f"pages\n{text} cannot run\n\tat org.apache...")
    assert explained is not None
    assert explained.startswith(
        "Spark's workers run Python 3.12, and the driver 3.11; the versions must be equal: every"
    )


def test_other_errors_of_spark_are_not_explained_so() -> None:
    assert explain_workers("Job aborted due to stage failure: Task 0 failed 4 times") is None
