"""Kafka's command line tools, many in one Java process: see `ToolRunner.java`."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.interop.java import maven

TOOL_TIMEOUT_S = 120
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
"""For a process that lives for seconds."""
END = b"\n\x01"


class Said(NamedTuple):
    """What a tool printed, on either stream, and how it ended."""

    code: int
    text: str

    def words_after(self, word: str, per_row: int) -> list[tuple[str, ...]]:
        """Return the words behind a title, in rows. Kafka 3.9 prints some tables without ends of lines."""
        _, found, rest = self.text.partition(word)
        assert found, self.text
        words = rest.split()
        assert len(words) % per_row == 0, self.text
        return [tuple(words[at : at + per_row]) for at in range(0, len(words), per_row)]

    def tables(self) -> list[dict[str, str]]:
        """Return the rows of all tables, by the titles of their columns; values have no blanks in them."""
        rows: list[dict[str, str]] = []
        titles: list[str] = []
        for line in self.text.replace("COORDINATOR (ID)", "COORDINATOR ID").splitlines():
            words = line.split()
            if words[:1] == ["GROUP"]:
                titles = words
            elif titles and len(words) == len(titles):
                rows.append(dict(zip(titles, words, strict=True)))
            elif words:
                titles = []
        return rows


class Tools:
    """The tools of one version of Kafka."""

    def __init__(self, version: str, process: subprocess.Popen[bytes]) -> None:
        self.version = version
        self._process = process

    def run(self, tool: str, *arguments: object) -> Said:
        """Run the main class of a tool."""
        assert self._process.stdin
        line = "\t".join([tool, *map(str, arguments)])
        assert "\n" not in line
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Said:
        assert self._process.stdout
        said = b""
        deadline = time.monotonic() + TOOL_TIMEOUT_S
        while not (END in said and said.endswith(b"\n")):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"nothing more within {TOOL_TIMEOUT_S} s after {said!r}"
            piece = os.read(self._process.stdout.fileno(), 65536)
            assert piece, f"Java ended after {said!r}"
            said += piece
        text, _, code = said.rpartition(END)
        return Said(int(code), text.decode())


def tools_jars(version: str) -> Path:
    """Return the folder with the jars of the tools of a version."""
    artifacts = [f"org.apache.kafka:{name}:{version}" for name in ("kafka-tools", "kafka_2.13")]
    return maven.jars(f"kafka-tools-{version}-jars", *artifacts)


@contextmanager
def kafka_tools(version: str, log: Path) -> Iterator[Tools]:
    """Start the tools of a version; what Java itself has to complain of goes to a file."""
    jars = tools_jars(version)
    classes = maven.classes(Path(__file__).with_name("ToolRunner.java"), jars)
    command = [maven.java(), *OPTIONS, "-cp", f"{classes}:{jars}/*", "ToolRunner"]
    with (
        log.open("ab") as complaints,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints) as process,
    ):
        try:
            yield Tools(version, process)
        finally:
            process.kill()
