"""A broker whose files and clock fail as they are told, and no others, from the next operation on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.broker.environment import Environment
from barnabas.cli.commands import run
from barnabas.testing.file_faults import FaultyFileSystem
from tests.faults.control import Faults
from tests.faults.faulty_broker import Told, ToldClock
from tests.faults.faulty_cluster import FaultyBroker
from tests.support.reading import wait_until

STORAGE_ERROR = 56
DAY_MS = 86_400_000


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path / "faults")


@pytest.fixture
def files(faults: Faults) -> FaultyFileSystem:
    return Told(faults.path).files


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., FaultyBroker]]:
    made: list[FaultyBroker] = []

    def start(**settings: str) -> FaultyBroker:
        broker = FaultyBroker(tmp_path / "broker", settings)
        made.append(broker)
        broker.start()
        return broker

    yield start
    for each in made:
        each.close()


def error_of(call: Callable[[], object]) -> int | None:
    """Return the errno of what a call raises; None: it raises nothing."""
    try:
        call()
    except OSError as error:
        return error.errno
    return None


def test_each_operation_fails_as_it_is_told_until_all_is_well_again(
    faults: Faults, files: FaultyFileSystem, tmp_path: Path
) -> None:
    file = files.open(tmp_path / "log", create=True)
    calls: dict[str, Callable[[], object]] = {
        "writev": lambda: files.writev(file, [b"0123"]),
        "allocate": lambda: files.allocate(file, 10),
        "fsync": lambda: files.fsync(file),
        "truncate": lambda: files.truncate(file, 0),
        "create": lambda: files.open(tmp_path / "new", create=True),
        "replace": lambda: files.replace(tmp_path / "new", tmp_path / "newer"),
        "fsync_folder": lambda: files.fsync_folder(tmp_path),
        "make_folder": lambda: files.make_folder(tmp_path / "folder"),
        "read": lambda: files.read_all(file),
        "unlink": lambda: files.unlink(tmp_path / "newer"),
        "remove_folder": lambda: files.remove_folder(tmp_path / "folder"),
    }
    for operation, call in calls.items():
        faults.write_errors("EIO", operations=[operation])
        assert error_of(call) == 5, operation
        faults.clear()
        assert error_of(call) is None, operation
    assert [operation for _, operation, _ in faults.struck()] == list(calls)


def test_write_that_fails_has_written_one_half(faults: Faults, files: FaultyFileSystem, tmp_path: Path) -> None:
    file = files.open(tmp_path / "log", create=True)
    faults.write_errors("ENOSPC")
    assert error_of(lambda: files.writev(file, [b"01", b"23"])) == 28
    assert files.free_bytes(tmp_path) == 0
    assert files.read_all(file) == b"01"
    faults.clear_disk()
    assert files.free_bytes(tmp_path) > 0


def test_nth_operation_a_share_and_some_paths_fail(faults: Faults, files: FaultyFileSystem, tmp_path: Path) -> None:
    one, other = (files.open(tmp_path / name, create=True) for name in ("one", "other"))
    faults.write_errors("EIO", operations=["fsync"], paths="*/one", nth=3)
    assert [error_of(lambda: files.fsync(one)) for _ in range(4)] == [None, None, 5, None]
    faults.clear()
    faults.write_errors("EIO", share=0.5, operations=["fsync"], paths="*/one")
    found = [error_of(lambda: files.fsync(one)) for _ in range(100)]
    assert {None, 5} == set(found)
    assert {error_of(lambda: files.fsync(other)) for _ in range(100)} == {None}


def test_slow_operations_take_longer(faults: Faults, tmp_path: Path) -> None:
    slept: list[float] = []
    files = Told(faults.path, slept.append).files
    file = files.open(tmp_path / "log", create=True)
    faults.slow(50, ["fsync"])
    files.fsync(file)
    files.truncate(file, 0)
    assert slept == [0.05]


def test_wall_clock_jumps_both_ways_and_monotonic_time_goes_on(faults: Faults) -> None:
    clock = ToldClock(Told(faults.path))
    before, monotonic = clock.time_ms(), clock.monotonic()
    faults.jump_clock(DAY_MS)
    assert before + DAY_MS <= clock.time_ms() < before + 1.1 * DAY_MS
    assert clock.time_s() * 1000 == pytest.approx(clock.time_ms(), abs=DAY_MS / 100)
    faults.jump_clock(-2 * DAY_MS)
    assert before - 1.1 * DAY_MS < clock.time_ms() < before
    assert 0 <= clock.monotonic() - monotonic < DAY_MS / 1000


def test_command_passes_on_its_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = Environment()
    seen: list[object] = []
    monkeypatch.setattr("barnabas.broker.main.run", lambda _config, environment, *_: seen.append(environment))
    assert run(["up", "--data", str(tmp_path)], given) == 0
    assert run(["up", "--data", str(tmp_path)]) == 0
    assert seen == [given, None]


def test_broker_refuses_what_it_cannot_write_and_serves_the_rest(start: Callable[..., FaultyBroker]) -> None:
    broker = start()
    with barnabas.Admin(broker.bootstrap) as admin:
        for topic in ("one", "other"):
            admin.create_topic(topic)
    with barnabas.Producer(broker.bootstrap, acks="all", retries=0) as producer:
        assert producer.send("one", b"1").result().offset == 0
        broker.faults.write_errors("EIO", operations=["writev"], paths="*/one-0/*")
        assert getattr(producer.send("one", b"2").exception(), "code", None) == STORAGE_ERROR
        assert producer.send("other", b"3").result().offset == 0
    assert [operation for _, operation, _ in broker.faults.struck()] == ["writev"]
    broker.faults.clear()
    broker.kill()
    broker.restart()
    with barnabas.Consumer(broker.bootstrap) as consumer, barnabas.Producer(broker.bootstrap, acks="all") as producer:
        assert producer.send("one", b"4").result().offset == 1
        consumer.assign([("one", 0)])
        consumer.seek(("one", 0), 0)
        values: list[bytes | None] = []
        wait_until(lambda: values.extend(each.value for each in consumer.poll()) or len(values) == 2, "both are read")
    assert values == [b"1", b"4"]


def test_broker_takes_the_time_from_the_clock_that_jumps(start: Callable[..., FaultyBroker]) -> None:
    broker = start(log_message_timestamp_type="LogAppendTime")
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("one")
    times = []
    with barnabas.Producer(broker.bootstrap) as producer:
        for jump_ms in (0, DAY_MS, -2 * DAY_MS):
            broker.faults.jump_clock(jump_ms)
            times.append(producer.send("one", b"1").result().timestamp_ms)
    first, ahead, behind = times
    assert first + DAY_MS <= ahead < first + 1.1 * DAY_MS
    assert first - DAY_MS <= behind < first - 0.9 * DAY_MS
    assert broker.stop() == 0
