"""A PostgreSQL server of one's own, and its changes by logical decoding (`pgoutput`) as events of Debezium's form.

The server listens on a Unix socket only. It does not run as root, so root runs it as `postgres` or `nobody`.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMAND_TIMEOUT_S = 120
SINCE_2000_MS = 946_684_800_000
SLOT = "barnabas"
_BOOL, _INTEGERS, _FLOATS = 16, (20, 21, 23), (700, 701)
"""Object ids of PostgreSQL's types. Values of other types stay text."""
Row = dict[str, Any]


def find_binaries() -> Path | None:
    """Return the folder of the newest server that is installed; None if there is none."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))
    on_path = shutil.which("initdb")
    return folders[-1] if folders else None if on_path is None else Path(on_path).resolve().parent


class PostgresServer:
    """A server with an empty database, from `with` to its end."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._user = _user()
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PostgresServer:
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        try:
            self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync")
            settings = (
                "wal_level=logical",
                "listen_addresses=",
                "fsync=off",
                f"unix_socket_directories={self._folder}",
            )
            options = [part for setting in settings for part in ("-c", setting)]
            self._run(
                "pg_ctl", "start", "-w", "-D", str(self._data), "-l", str(self._folder / "log"), "-o", " ".join(options)
            )
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._run("pg_ctl", "stop", "-m", "immediate", "-D", str(self._data))
        shutil.rmtree(self._folder)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _run(self, program: str, *arguments: str) -> None:
        output = self._folder / f"{program}.out"  # not a pipe: the server keeps it open
        with output.open("wb") as file:
            done = subprocess.run(
                [str(self._binaries / program), *arguments],
                user=self._user,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )
        assert done.returncode == 0, output.read_text(encoding="utf-8", errors="replace")

    def start_script(self, sql: str, *, stops_at_errors: bool = True) -> subprocess.Popen[str]:
        """Start a session that executes a script. The caller waits for its end."""
        command = [str(self._binaries / "psql"), "-h", str(self._folder), "-U", "postgres", "-qAtX"]
        if stops_at_errors:
            command += ["-v", "ON_ERROR_STOP=1"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        assert process.stdin is not None
        process.stdin.write(sql)
        process.stdin.close()
        process.stdin = None
        return process

    def execute(self, sql: str) -> list[str]:
        """Execute a script, and return the lines that it prints."""
        printed, errors = (process := self.start_script(sql)).communicate(timeout=COMMAND_TIMEOUT_S)
        assert process.returncode == 0, errors
        return printed.splitlines()

    def rows(self, table: str) -> list[Row]:
        """Return the rows of a table."""
        return [json.loads(line) for line in self.execute(f"SELECT row_to_json(t) FROM {table} t;")]


def _user() -> str | None:
    """Return the user that the server runs as; None for the current one."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


@dataclass(slots=True)
class _Relation:
    name: str
    columns: list[tuple[str, int]]


@dataclass(slots=True)
class ChangeReader:
    """Reads the changes of a server's tables from a replication slot, once each."""

    server: PostgresServer
    _relations: dict[int, _Relation] = field(default_factory=dict)
    _transaction: tuple[int, int] = (0, 0)
    """The time of the commit in milliseconds, and the id."""

    def create_slot(self) -> None:
        """Create the slot: the changes after this call are read."""
        self.server.execute(f"CREATE PUBLICATION {SLOT} FOR ALL TABLES;")
        self.server.execute(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput');")

    def read(self) -> Iterator[tuple[str, Row]]:
        """Yield the table and the event of each new change, in the order of the commits."""
        lines = self.server.execute(
            "SELECT lsn - '0/0', encode(data, 'hex') FROM pg_logical_slot_get_binary_changes("
            f"'{SLOT}', NULL, NULL, 'proto_version', '1', 'publication_names', '{SLOT}');"
        )
        for line in lines:
            lsn, _, data = line.partition("|")
            yield from self._events(int(lsn), _Message(bytes.fromhex(data)))

    def _events(self, lsn: int, message: _Message) -> Iterator[tuple[str, Row]]:
        kind = message.character()
        if kind == "B":
            _, commit_us, transaction_id = message.unpack(">qqi")
            self._transaction = SINCE_2000_MS + commit_us // 1000, transaction_id
        elif kind == "R":
            number, _, name = message.unpack(">i")[0], message.text(), message.text()
            _, count = message.unpack(">bh")
            self._relations[number] = _Relation(name, [self._column(message) for _ in range(count)])
        elif kind in "IUD":
            relation = self._relations[message.unpack(">i")[0]]
            rows = dict(message.rows(relation.columns))
            before = rows.get("O", rows.get("K"))
            after = rows.get("N")
            if before is not None and after is not None:  # large values that an update leaves alone are not repeated
                after = {name: before.get(name) if value is ... else value for name, value in after.items()}
            yield relation.name, self._event({"I": "c", "U": "u", "D": "d"}[kind], lsn, relation.name, before, after)

    @staticmethod
    def _column(message: _Message) -> tuple[str, int]:
        message.unpack(">b")
        name = message.text()
        type_id, _ = message.unpack(">ii")
        return name, type_id

    def _event(self, op: str, lsn: int, table: str, before: Row | None, after: Row | None) -> Row:
        time_ms, transaction_id = self._transaction
        source = {"connector": "postgresql", "table": table, "ts_ms": time_ms, "txId": transaction_id, "lsn": lsn}
        return {"before": before, "after": after, "source": source, "op": op, "ts_ms": time_ms}


class _Message:
    """A message of the replication protocol, read from its start."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def unpack(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return values

    def character(self) -> str:
        return chr(self.unpack(">B")[0])

    def text(self) -> str:
        end = self._data.index(0, self._position)
        found = self._data[self._position : end].decode()
        self._position = end + 1
        return found

    def rows(self, columns: list[tuple[str, int]]) -> Iterator[tuple[str, Row]]:
        """Yield each row with its letter: `N` is the new one, `O` the old one, `K` the old one's key."""
        while self._position < len(self._data):
            part = self.character()
            (count,) = self.unpack(">h")
            assert count == len(columns)
            yield part, {name: self._value(type_id) for name, type_id in columns}

    def _value(self, type_id: int) -> Any:
        """Return a value; `...` for one that the update did not change and that the message leaves out."""
        form = self.character()
        if form != "t":
            return None if form == "n" else ...
        (length,) = self.unpack(">i")
        text = self._data[self._position : self._position + length].decode()
        self._position += length
        return _CONVERTERS.get(type_id, str)(text)


_CONVERTERS: dict[int, Callable[[str], Any]] = {
    _BOOL: lambda text: text == "t",
    **dict.fromkeys(_INTEGERS, int),
    **dict.fromkeys(_FLOATS, float),
}
