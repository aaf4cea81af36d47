"""A file system that fails where a test wants it to, and forgets what was not fsynced."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder, Record, read_records
from barnabas.storage import Log, OsFileSystem
from barnabas.storage.filesystem import Chunk, DataFile
from tests.support.process_cluster import brokers, cluster  # noqa: F401 - fixtures

MEMORY = Path(os.environ.get("TESTS_MEMORY", "/dev/shm"))
"""A file system in memory, on Linux. `.ci/run` gives it a folder there that it removes itself."""
START_MS = 1_700_000_000_000


class FaultyFileSystem(OsFileSystem):
    """Counts the operations that change something, and lets one of them fail.

    :param fail_at: the number, from 0, of the operation that fails; -1: none.
    :param error: the errno that it fails with.
    :param stays_broken: all later operations fail too, as if the process were dead.
    """

    def __init__(self, fail_at: int = -1, error: int = errno.EIO, *, stays_broken: bool = True) -> None:
        self.fail_at = fail_at
        self.error = error
        self.stays_broken = stays_broken
        self.operations: list[str] = []
        self.failed = False
        self.failed_path: Path | None = None
        """What the operation was about that failed first."""
        self._durable_sizes: dict[Path, int] = {}

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> DataFile:
        if create and not path.exists():
            self._step("create", path)
            self._durable_sizes[path] = 0
        return super().open(path, create=create, writable=writable)

    def writev(self, file: DataFile, chunks: Sequence[Chunk]) -> int:
        self._durable_sizes.setdefault(file.path, self.size(file.path))
        try:
            self._step("write", file.path)
        except OSError:
            data = b"".join(chunks)
            super().writev(file, [data[: len(data) // 2]])
            raise
        return super().writev(file, chunks)

    def fsync(self, file: DataFile) -> None:
        self._step("fsync", file.path)
        self._durable_sizes[file.path] = self.size(file.path)

    def truncate(self, file: DataFile, size: int) -> None:
        self._step("truncate", file.path)
        super().truncate(file, size)
        durable = self._durable_sizes.get(file.path)
        if durable is not None:
            self._durable_sizes[file.path] = min(size, durable)

    def allocate(self, file: DataFile, size: int) -> None:
        self._durable_sizes.setdefault(file.path, self.size(file.path))
        self._step("allocate", file.path)
        super().allocate(file, size)

    def replace(self, source: Path, target: Path) -> None:
        self._step("rename", source)
        super().replace(source, target)
        if source in self._durable_sizes:
            self._durable_sizes[target] = self._durable_sizes.pop(source)
        for path in [path for path in self._durable_sizes if source in path.parents]:
            self._durable_sizes[target / path.relative_to(source)] = self._durable_sizes.pop(path)

    def unlink(self, path: Path) -> None:
        self._step("unlink", path)
        super().unlink(path)
        self._durable_sizes.pop(path, None)

    def make_folder(self, path: Path) -> None:
        self._step("mkdir", path)
        super().make_folder(path)

    def remove_folder(self, path: Path) -> None:
        self._step("rmtree", path)
        super().remove_folder(path)

    def fsync_folder(self, path: Path) -> None:
        self._step("fsync folder", path)

    def lose_power(self, kept: Callable[[int, int], int] = lambda durable, size: durable) -> None:
        """Cut every file to what was fsynced.

        :param kept: the size that remains, given the durable size and the size.
        """
        for path, durable in self._durable_sizes.items():
            if path.exists():
                os.truncate(path, kept(durable, path.stat().st_size))

    def _step(self, kind: str, path: Path) -> None:
        number = len(self.operations)
        operation = f"{kind} {path.name}"
        self.operations.append(operation)
        if number == self.fail_at or (self.failed and self.stays_broken):
            self.failed = True
            self.failed_path = self.failed_path or path
            raise OSError(self.error, os.strerror(self.error), operation)


def _make_batch(values: Sequence[bytes], timestamp_ms: int = START_MS, **producer: int) -> bytearray:
    builder = BatchBuilder()
    builder.append_many(timestamp_ms, values)
    return bytearray(builder.build(**producer))


def _read_all(log: Log) -> list[Record]:
    offset = log.log_start_offset
    records: list[Record] = []
    while region := log.read(offset, 100_000, log.high_watermark).batches:
        data = os.pread(region.file.fileno(), region.length, region.position)
        records += read_records(data, *log.partition, min_offset=offset)
        offset = records[-1].offset + 1
    assert offset == log.log_end_offset
    assert [record.offset for record in records] == list(range(log.log_start_offset, offset))
    return records


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, if the machine has such; for those who make a log anew for each of its operations. A file
    system on a disk keeps numbers of files that were removed from being used again for some seconds, and looks through
    them for each new file: that took a third of the time."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="barnabas-", dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def partition() -> TopicPartition:
    return TopicPartition("clicks", 0)


@pytest.fixture
def faulty_filesystem() -> type[FaultyFileSystem]:
    return FaultyFileSystem


@pytest.fixture
def make_batch() -> Callable[..., bytearray]:
    """Build a batch of values."""
    return _make_batch


@pytest.fixture
def read_all() -> Callable[[Log], list[Record]]:
    """Read a log as a consumer does, and check that its offsets have no gap."""
    return _read_all
