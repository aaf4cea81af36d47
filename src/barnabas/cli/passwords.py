"""Reads passwords without showing them: from a file, an environment variable, standard input or a prompt."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from barnabas.security.scram import PASSWORD_BYTES_MAX

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def password_options(function: Decorated) -> Decorated:
    """Add `--password-file` and `--password-env`. No option contains a password, because other users see options."""
    for option in (
        click.option("--password-env", metavar="NAME", help="Read the password from this environment variable."),
        click.option(
            "--password-file",
            metavar="FILE",
            help="Read the password from this file; - for standard input.  [default: a prompt, or standard input]",
        ),
    ):
        function = option(function)
    return function


def read_password(user: str, file: str | None, variable: str | None) -> str:
    """Return the new password of a user, without the line break at its end.

    :raises click.UsageError: both sources are given, or the source contains no password.
    :raises OSError: the file cannot be read.
    """
    if file is not None and variable is not None:
        raise click.UsageError("give only one of --password-file and --password-env")
    if variable is not None:
        password = os.environ.get(variable)
        if password is None:
            raise click.UsageError(f"the environment variable {variable} is not set")
    elif file is not None and file != "-":
        with Path(file).open("rb") as opened:
            password = _text(opened.read(PASSWORD_BYTES_MAX + 3))
    elif file is None and sys.stdin.isatty():
        password = click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = _text(sys.stdin.buffer.readline(PASSWORD_BYTES_MAX + 3))
    if not password:
        raise click.UsageError("the password is empty")
    if len(password.encode("utf-8", "surrogateescape")) > PASSWORD_BYTES_MAX:
        raise click.UsageError(f"the password has more than {PASSWORD_BYTES_MAX} bytes")
    return str(password)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise click.UsageError("the password is not UTF-8") from None
