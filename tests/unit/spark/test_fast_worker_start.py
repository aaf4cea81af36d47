"""Workers on this machine import PySpark from its folder; the script that makes them do so becomes their Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from barnabas.spark.fast_worker_start import SCRIPT, environment_set, fast_worker_python, worker_environment

FOLDER = Path(pyspark.__file__).parent
ARCHIVE = str(FOLDER / "python" / "lib" / "pyspark.zip")
TELL = "import json, sys; sys.stdout.write(json.dumps([sys.executable, sys.path, sys.argv[1:]]))"


def run_script(path: list[str], spark_home: Path) -> tuple[str, list[str], list[str]]:
    """Return the Python that it became, the path of that, and its arguments."""
    environment = {**os.environ, **worker_environment(), "SPARK_HOME": str(spark_home), "PYTHONPATH": ":".join(path)}
    done = subprocess.run([SCRIPT, "-c", TELL, "a b", "*"], capture_output=True, text=True, env=environment, check=True)
    python, found, arguments = json.loads(done.stdout)
    return python, found, arguments


def test_a_worker_has_all_of_its_path_but_what_spark_packed(tmp_path: Path) -> None:
    others = [str(tmp_path / "some modules"), str(tmp_path / "pyspark.zip"), str(tmp_path / "*")]
    python, path, arguments = run_script([ARCHIVE, *others, ARCHIVE], FOLDER)
    assert python == sys.executable
    assert arguments == ["a b", "*"]
    assert ARCHIVE not in path
    assert [entry for entry in path if entry in others] == others


def test_a_spark_from_elsewhere_keeps_its_own_pyspark(tmp_path: Path) -> None:
    packed = str(tmp_path / "python" / "lib" / "pyspark.zip")
    assert packed in run_script([packed], tmp_path)[1]


def test_where_spark_is_from_elsewhere_workers_run_this_python_itself(tmp_path: Path) -> None:
    assert fast_worker_python({"SPARK_HOME": str(tmp_path)}) == sys.executable
    assert fast_worker_python({"SPARK_HOME": str(tmp_path / "nowhere")}) == sys.executable
    assert fast_worker_python({"SPARK_HOME": str(FOLDER)}) == fast_worker_python({}) == str(SCRIPT)


def test_where_the_script_cannot_be_started_workers_run_this_python_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.spark.fast_worker_start.SCRIPT", tmp_path / "not_there.sh")
    assert fast_worker_python({}) == sys.executable


def test_variables_are_there_for_as_long_as_they_are_needed() -> None:
    environment = {"a": "1"}
    with environment_set(environment, {"a": "2", "b": "3"}):
        assert environment == {"a": "2", "b": "3"}
    assert environment == {"a": "1"}
