"""Secrets that a setting names instead of containing them, with the syntax of Kafka's configuration providers.

- `${file:PATH}`: the content of a file, without the line break at its end;
- `${env:NAME}`: an environment variable;
- `${command:PROGRAM ARGUMENTS}`: the output of a command, without the line break at its end; no shell runs it.

A client reads them for each authentication, so a changed password needs no restart. No error contains a secret.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from barnabas.errors import ConfigurationError
from barnabas.security.secrets import Secret

SECRET_BYTES_MAX = 64 * 1024
COMMAND_TIMEOUT_S = 10.0
_SOURCE = re.compile(r"\$\{(?P<kind>file|env|command):(?P<what>[^}]+)\}")


def names_source(text: str) -> bool:
    """Return whether a text names the source of a secret.

    >>> names_source("${env:PASSWORD}"), names_source("s3cret")
    (True, False)
    """
    return _SOURCE.fullmatch(text) is not None


def read_secret(setting: str, secret: Secret) -> str:
    """Return a secret, or the content of the source that it names.

    :param setting: the name of the setting, for errors.
    :raises ConfigurationError: the source does not exist, is empty or too large, or a command has failed.
    """
    text = secret.reveal()
    match = _SOURCE.fullmatch(text)
    if match is None:
        return text
    read = {"file": _of_file, "env": _of_environment, "command": _of_command}[match["kind"]]
    found = read(setting, match["what"])
    if not found:
        raise ConfigurationError(f"{setting}: {match['kind']} {match['what'].split()[0]} contains nothing")
    return found


def _of_file(setting: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return _text(setting, file.read(SECRET_BYTES_MAX + 1))
    except OSError as error:
        raise ConfigurationError(f"{setting}: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"{setting}: cannot read {path!r}: {error}") from None


def _of_environment(setting: str, name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ConfigurationError(f"{setting}: the environment variable {name} is not set")
    return value


def _of_command(setting: str, command: str) -> str:
    if not command.strip():
        raise ConfigurationError(f"{setting}: the command is empty")
    try:
        words = shlex.split(command)
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        reason = f"took longer than {COMMAND_TIMEOUT_S:g} s" if isinstance(error, subprocess.TimeoutExpired) else error
        raise ConfigurationError(f"{setting}: the command {command.split(maxsplit=1)[0]} failed: {reason}") from None
    if done.returncode:
        raise ConfigurationError(f"{setting}: the command {words[0]} ended with exit code {done.returncode}")
    return _text(setting, done.stdout)


def _text(setting: str, data: bytes) -> str:
    if len(data) > SECRET_BYTES_MAX:
        raise ConfigurationError(f"{setting}: the secret has more than {SECRET_BYTES_MAX} bytes")
    try:
        return data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{setting}: the secret is not UTF-8") from None
