"""Errors of this package lose their traceback in Spark's workers; defects keep theirs."""

from __future__ import annotations

import os

import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark.error_summaries import hide_traceback

HIDE = "SPARK_HIDE_TRACEBACK"


@pytest.mark.parametrize(
    ("runtime", "error", "hides"),
    [
        ("PYTHON_WORKER", ConfigurationError("no"), True),
        ("PYTHON_WORKER", KeyError("a defect"), False),
        ("", ConfigurationError("no"), False),
    ],
)
def test_only_what_a_user_can_mend_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, runtime: str, error: Exception, hides: bool
) -> None:
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", runtime)
    monkeypatch.setenv(HIDE, "")
    with pytest.raises(type(error)), hide_traceback():
        raise error
    assert bool(os.environ[HIDE]) is hides
