"""What PySpark does to the handlers of pytest, and that it does not reach the tests that run after its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from pyspark.logger import PySparkLogger


@pytest.fixture
def logger_of_pyspark() -> Iterator[logging.Logger]:
    """A logger as PySpark makes some of its own: in its class, and kept to itself."""
    logger = PySparkLogger.getLogger(__name__)
    logger.propagate = False
    yield logger
    logger.propagate = True  # it stays in the table of loggers


def test_a_traceback_is_found_in_what_was_logged(
    logger_of_pyspark: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    assert caplog.handler in logger_of_pyspark.handlers  # where its form would have been taken from it
    logging.getLogger("barnabas.test").error("it failed", exc_info=ValueError("bug"))
    assert "ValueError: bug" in caplog.text
