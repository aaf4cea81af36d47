"""`barnabas.testing`: the broker, its faults, and the end of everything with the process of the test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import barnabas
from barnabas import ErrorCode
from barnabas.net.free_port import lasting_ports
from barnabas.testing import BarnabasContainer, BrokerProcess, BrokerProcessError
from tests.support.reading import TIMEOUT_S, wait_until


@pytest.fixture(scope="module")
def tested() -> Iterator[BrokerProcess]:
    with BrokerProcess() as made:
        yield made


@pytest.fixture
def own(tested: BrokerProcess) -> Iterator[BrokerProcess]:
    yield tested
    tested.heal()


@pytest.fixture
def topic_here(own: BrokerProcess) -> str:
    return own.create_topic()


def values(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    with barnabas.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        found: list[bytes] = []
        wait_until(lambda: len(found) >= count or found.extend(each.value for each in consumer.poll()), "records")
        return found


def is_alive(pid: int) -> bool:
    """Return whether a process runs. A killed process whose parent is gone may stay a zombie."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_stop_leaves_no_process_and_no_file() -> None:
    broker = BrokerProcess().start()
    pid, folder = broker.pid, broker.data.parent
    assert folder.is_dir()
    broker.stop()
    assert not is_alive(pid)
    assert not folder.exists()
    assert not broker.is_running
    broker.stop()


def test_given_log_directory_stays(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data") as broker:
        topic = broker.create_topic()
        with barnabas.Producer(broker.bootstrap) as producer:
            producer.send(topic, b"kept").result()
    with BrokerProcess(data=tmp_path / "data") as broker:
        assert values(broker, topic, 1) == [b"kept"]


def test_kill_and_restart_keep_address_and_records(own: BrokerProcess, topic_here: str) -> None:
    address = own.bootstrap
    with barnabas.Producer(own.bootstrap) as producer:
        producer.send(topic_here, b"before").result()
        own.kill()
        assert not own.is_running
        own.restart()
        producer.send(topic_here, b"after").result()
    assert own.bootstrap == address
    assert values(own, topic_here, 2) == [b"before", b"after"]


def test_client_retries_failed_requests_and_stores_each_record_once(own: BrokerProcess, topic_here: str) -> None:
    own.fail_next("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, 3)
    own.fail_next("Metadata", "LEADER_NOT_AVAILABLE")
    with barnabas.Producer(own.bootstrap, enable_idempotence=False) as producer:
        sent = [producer.send(topic_here, str(number).encode()) for number in range(20)]
        assert [each.result().offset for each in sent] == list(range(20))
    assert own.pending_failures("Produce") == own.pending_failures("Metadata") == 0
    own.fail_next("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    assert len(values(own, topic_here, 20)) == 20
    assert own.pending_failures("Fetch") == 0


def test_fatal_error_reaches_the_application(own: BrokerProcess, topic_here: str) -> None:
    own.fail_next("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with barnabas.Producer(own.bootstrap) as producer, pytest.raises(barnabas.ApiError) as caught:
        producer.send(topic_here, b"x").result()
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_wrong_orders_are_refused(own: BrokerProcess) -> None:
    with pytest.raises(ValueError, match=r"no API 'Produced'.*Produce"):
        own.fail_next("Produced", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for error in ("NO_LEADER", 4711, "NONE"):
        with pytest.raises(ValueError, match="error"):
            own.fail_next("Produce", error)
    with pytest.raises(ValueError, match="at least 1"):
        own.fail_next("Produce", 6, 0)
    with pytest.raises(ValueError, match="operations are writev"):
        own.slow_disk(operations=["write"])
    with pytest.raises(ValueError, match="negative"):
        own.slow_disk(-1)
    with pytest.raises(BrokerProcessError, match="no session with ZooKeeper"):
        own.expire_session()


def test_cut_ends_connections_until_mend(own: BrokerProcess, topic_here: str) -> None:
    with barnabas.Producer(own.bootstrap) as producer:
        producer.send(topic_here, b"1").result()
        own.cut()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", own.port))
        delivery = producer.send(topic_here, b"2")
        own.restart()  # the cut outlives a restart
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", own.port))
        own.mend()
        assert delivery.result().offset == 1


def test_paused_broker_accepts_no_order_until_resume(own: BrokerProcess, topic_here: str) -> None:
    own.pause()
    with pytest.raises(BrokerProcessError, match="paused"):
        own.fail_next("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(BrokerProcessError, match="paused"):
        own.create_topic()
    own.resume()
    with barnabas.Producer(own.bootstrap) as producer:
        assert producer.send(topic_here, b"x").result().offset == 0


def test_disk_fails_until_heal(own: BrokerProcess, topic_here: str) -> None:
    own.fail_disk("ENOSPC")
    short = {"delivery_timeout_ms": 1_000, "request_timeout_ms": 500}
    with barnabas.Producer(own.bootstrap, **short) as producer, pytest.raises(barnabas.BarnabasError):
        producer.send(topic_here, b"x").result()
    own.heal()
    own.restart()  # a log that is offline stays so until a restart
    with barnabas.Producer(own.bootstrap) as producer:
        producer.send(topic_here, b"y").result()


def test_slow_disk_delays_each_append(own: BrokerProcess, topic_here: str) -> None:
    own.slow_disk(1)
    own.slow_disk(20, ["writev"])  # replaces the first delay
    with barnabas.Producer(own.bootstrap) as producer:
        assert producer.send(topic_here, b"x").result().offset == 0
    assert [each.slow_ms for each in own._files] == [20]
    own.slow_disk(0)
    assert own._files == ()


def test_error_of_a_start_shows_the_log() -> None:
    broker = BrokerProcess({"num.partition": 1})
    with pytest.raises(BrokerProcessError, match=r"(?s)exit code is 2.*num\.partitions"):
        broker.start()
    assert broker.log == ""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(BrokerProcessError, match="in use"):
        BrokerProcess(port=taken.getsockname()[1]).start()


def test_broker_that_is_late_names_the_limit() -> None:
    limit = r"the broker was not ready within 0\.001 s \(start_timeout_s\); a busy machine may be the cause\. Its log"
    with pytest.raises(BrokerProcessError, match=limit):
        BrokerProcess(start_timeout_s=0.001).start()


def test_port_that_another_process_has_taken_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([[taken.getsockname()[1]]])
        original = lasting_ports
        monkeypatch.setattr(
            "barnabas.testing.broker_process.lasting_ports", lambda host, count: next(ports, original(host, count))
        )
        with BrokerProcess() as broker:
            assert broker.port != taken.getsockname()[1]
            assert broker.create_topic()


def test_listeners_define_the_address() -> None:
    with BrokerProcess({"listeners": "PLAINTEXT://127.0.0.1:0"}) as broker:
        topic = broker.create_topic()
        with barnabas.Producer(broker.bootstrap) as producer:
            assert producer.send(topic, b"x").result().offset == 0
    for name in ("port", "log.dirs"):
        with pytest.raises(ValueError, match="use the arguments"):
            BrokerProcess({name: "1"})


def test_broker_that_ended_unexpectedly_is_reported_with_its_log(own: BrokerProcess, topic_here: str) -> None:
    size = own.log_size
    os.kill(own.pid, signal.SIGKILL)
    wait_until(lambda: not own.is_running, "the broker ends")
    with pytest.raises(BrokerProcessError, match=f"(?s)ended with exit code -9.*created topic {topic_here}"):
        own.create_topic()
    own.start()
    assert own.create_topic() in own.log_since(size)
    assert topic_here not in own.log_since(size).partition("open file limit")[2]


def test_container_has_the_interface_of_testcontainers() -> None:
    with BarnabasContainer("confluentinc/cp-kafka:7.6.0").with_kraft().with_env("KAFKA_NUM_PARTITIONS", "3") as kafka:
        host, port = kafka.get_container_host_ip(), kafka.get_exposed_port(9093)
        assert kafka.get_bootstrap_server() == f"{host}:{port}"
        with barnabas.Admin(kafka.get_bootstrap_server()) as admin:
            assert admin.describe_config(broker=0)["num.partitions"].value == "3"
        assert b"INFO" in kafka.get_logs()[1]
        with pytest.raises(RuntimeError, match="before start"):
            kafka.with_env("KAFKA_NUM_PARTITIONS", "4")
        with pytest.raises(ValueError, match="no port 1"):
            kafka.get_exposed_port(1)
        kafka.get_broker().kill()
    with pytest.raises(RuntimeError, match="start"):
        kafka.get_bootstrap_server()


PROGRAM = """
import os, sys, time
from barnabas.testing import BrokerProcess

brokers = [BrokerProcess().start() for _ in range(2)]
brokers[1].pause()
print(*(each.pid for each in brokers), *(each.data.parent for each in brokers), flush=True)
sys.stdin.read()
"""


def test_brokers_end_with_a_killed_process(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout
        first, second, *folders = process.stdout.readline().split()
        assert all(Path(each).is_dir() for each in folders)
        assert is_alive(int(first))
        process.kill()
        process.wait(TIMEOUT_S)
    wait_until(lambda: not is_alive(int(first)) and not is_alive(int(second)), "the brokers end")
    wait_until(lambda: not any(Path(each).exists() for each in folders), "the folders are removed")


def test_smoke_test_passes_in_a_base_install(tmp_path: Path) -> None:
    program = """
        import runpy
        from tests.programs.base_install import hide_extras
        hide_extras()
        runpy.run_module("barnabas.testing.smoke", run_name="__main__")
    """
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok  ") == 8
    assert list(tmp_path.iterdir()) == []


def test_smoke_test_reports_a_failure() -> None:
    program = """
        import runpy, tempfile
        tempfile.tempdir = "/nonexistent"
        runpy.run_module("barnabas.testing.smoke", run_name="__main__")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED" in done.stdout
