"""The process that parses and compares schemas: `python -m barnabas.registry.schema_worker CPU_S PRIORITY`.

Jobs arrive as frames on standard input, and results leave as frames on standard output. A frame is a length of eight
bytes and a pickle. A parent process imports the libraries once and forks the process that works. The kernel ends that
process when a job has used CPU_S seconds of CPU time, or ten times as much wall-clock time. The parent then responds
with `ENDED` and forks a new process.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import signal
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.portable import limit_memory, lower_priority
from barnabas.registry import compatibility
from barnabas.registry.schema_types import parsing
from barnabas.registry.schema_types.schema import Schema, SchemaSyntaxError
from barnabas.registry.state import Content, Version
from barnabas.registry.subject_config import Level

LENGTH = struct.Struct(">Q")
ENDED, VALUE, INVALID = "ended", "value", "invalid"
CLOCK_FACTOR = 10
MEMORY_BYTES_MAX = 2 * 1024**3
PARSED_CHARACTERS_MAX = 4_000_000
"""The maximum total length in characters of the parsed schemas that a worker caches."""

Dependencies = Sequence[tuple[str, str]]


class _ParsedSchemas:
    """The cache of recently parsed schemas."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[Content, tuple[tuple[str, str], ...]], Schema] = OrderedDict()
        self._characters = 0

    def parse(self, content: Content, dependencies: Dependencies) -> Schema:
        """Return a parsed schema.

        :raises SchemaSyntaxError: the text is not a valid schema of its type.
        """
        key = (content, tuple(dependencies))
        if key in self._found:
            self._found.move_to_end(key)
            return self._found[key]
        schema = self._found[key] = parsing.parse(content, dependencies)
        self._characters += _length(key)
        while self._characters > PARSED_CHARACTERS_MAX and len(self._found) > 1:
            self._characters -= _length(self._found.popitem(last=False)[0])
        return schema


def _length(key: tuple[Content, tuple[tuple[str, str], ...]]) -> int:
    return len(key[0].text) + sum(len(text) for _, text in key[1])


_schemas = _ParsedSchemas()


def write(content: Content, dependencies: Dependencies, form: str) -> str | None:
    """Return a schema as `text`, `normalized` or another text attribute of its type; None if the attribute is unknown.

    :raises SchemaSyntaxError: the text is not a valid schema of its type.
    """
    written = getattr(_schemas.parse(content, dependencies), form, None)
    return written if isinstance(written, str) else None


def compare(
    level: Level, content: Content, dependencies: Dependencies, version: Version, its_dependencies: Dependencies
) -> list[str]:
    """Return the reasons why a schema is incompatible with a version.

    :raises SchemaSyntaxError: the text is not a valid schema of its type.
    """
    new = _schemas.parse(content, dependencies)
    return compatibility.incompatibilities_with(
        level, new, content.schema_type, version, lambda: _schemas.parse(version.content, its_dependencies)
    )


JOBS: dict[str, Callable[..., Any]] = {"write": write, "compare": compare}


def _read(count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        read = os.read(0, count - len(data))
        if not read:
            os._exit(0)
        data += read
    return bytes(data)


def _answer(kind: str, value: Any) -> None:
    data = memoryview(framed((kind, value)))
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:  # the registry has ended
        os._exit(0)


def framed(message: object) -> bytes:
    """Return a message as a frame: its length and its pickle."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


def _work(cpu_s: float) -> None:
    """Run jobs until standard input ends."""
    while True:
        (length,) = LENGTH.unpack(_read(LENGTH.size))
        name, arguments = pickle.loads(_read(length))
        _end_after(cpu_s)
        try:
            answer = (VALUE, JOBS[name](*arguments))
        except SchemaSyntaxError as error:
            answer = (INVALID, str(error))
        except Exception as error:  # noqa: BLE001 - no input may end the worker process
            answer = (INVALID, f"{type(error).__name__}: {error}")
        _end_after(0)
        _answer(*answer)


def _end_after(cpu_s: float) -> None:
    """Let the kernel end this process after a time; 0 means never. On Windows, the registry ends it."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        signal.setitimer(signal.ITIMER_REAL, cpu_s * CLOCK_FACTOR)


def main(cpu_s: float, priority: int) -> None:
    """Fork processes that run jobs, one after the other. On Windows, this process runs them itself."""
    lower_priority(priority)
    limit_memory(MEMORY_BYTES_MAX)
    for kind in ("avro", "json_schema", "protobuf"):
        importlib.import_module(f"barnabas.registry.schema_types.{kind}")
    gc.freeze()
    if not hasattr(os, "fork"):
        _work(cpu_s)
        return
    while True:
        child = os.fork()
        if child == 0:
            _work(cpu_s)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return
        _answer(ENDED, None)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
