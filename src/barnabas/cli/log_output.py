"""Writes log lines, and messages about brokers, as plain text or as JSON."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from barnabas.cli.error_messages import exit_code_of, explain
from barnabas.errors import BarnabasError
from barnabas.log_lines import LOG_FORMATS, Lines, LogFormat, log_to_standard_error

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

log = logging.getLogger(__name__)


def log_format_option(function: Decorated) -> Decorated:
    """Add `--log-format`."""
    return click.option(
        "--log-format",
        type=click.Choice(LOG_FORMATS),
        default="plain",
        show_default=True,
        help="Format of log lines on standard error: plain text, or one JSON object per line.",
    )(function)


@contextlib.contextmanager
def log_to_stderr(log_format: LogFormat, level: int = logging.INFO) -> Iterator[Lines]:
    """Log to standard error in the given format. In JSON format, an error that ends the command is also written as a
    log line.

    :param level: the lowest level to log.
    :raises SystemExit: the command failed and the error was logged.
    """
    lines = log_to_standard_error(log_format, level)
    try:
        yield lines
    except (BarnabasError, OSError) as error:
        if log_format == "plain":
            raise
        log.critical("%s", explain(error), exc_info=bool(os.environ.get("BARNABAS_DEBUG")))
        sys.exit(exit_code_of(error))


class ClusterLog:
    """The log of a cluster on this machine: the log lines of its processes, and messages about them.

    :param log_format: the format of all lines.
    """

    def __init__(self, log_format: LogFormat) -> None:
        self._is_json = log_format == "json"
        log.setLevel(logging.INFO)

    def say(self, text: str) -> None:
        """Log a message."""
        if self._is_json:
            log.warning("%s", text)
        else:
            _write(f"barnabas: {text}")

    def pass_on(self, broker: int, line: str) -> None:
        """Write a log line of a broker. Called on threads."""
        if not self._is_json:
            _write(f"broker {broker}: {line}")
        elif line.startswith("{"):
            _write(line)
        else:  # not JSON: the Python interpreter or a C library wrote this line
            log.error("%s", line, extra={"broker": broker})


def _write(line: str) -> None:
    """Write a line to standard error. Ignore write errors, so that the brokers keep running even if nobody reads
    standard error."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
