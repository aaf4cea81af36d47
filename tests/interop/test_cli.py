"""The command as a user runs it: real processes against the real broker."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "barnabas.cli.main"]
TIMEOUT_S = 60


@pytest.fixture
def environment(broker, tmp_path: Path) -> dict[str, str]:
    state = {"BARNABAS_BOOTSTRAP": broker.bootstrap, "XDG_STATE_HOME": str(tmp_path / "state")}
    return {**os.environ, **state}


@pytest.fixture
def run(environment) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command to its end; expects the exit code 0 unless told another."""

    def run_command(*arguments: object, given: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *map(str, arguments)]
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run_command


@pytest.fixture
def start(environment) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command in the background; what still runs at the end is killed."""
    processes = []

    def start_command(*arguments: object) -> subprocess.Popen[str]:
        command = [*COMMAND, *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        processes.append(process)
        return process

    yield start_command
    for process in processes:
        process.kill()
        process.communicate()


def wait_for_line(stream, text: str) -> str:
    """Return the first line of a process's output that holds `text`."""
    watchdog = threading.Timer(TIMEOUT_S, stream.close)
    watchdog.start()
    try:
        return next(line for line in stream if text in line)
    finally:
        watchdog.cancel()


def test_lines_come_out_as_they_went_in(run) -> None:
    lines = [f"line {number}" for number in range(5_000)]
    run("topic", "create", "clicks")
    run("produce", "clicks", given="\n".join(lines))
    assert run("consume", "clicks", "-e").stdout.splitlines() == lines
    assert run("consume", "clicks", "-o", "-2", "-e").stdout.splitlines() == lines[-2:]
    assert run("consume", "clicks", "-o", "100", "-c", "2").stdout.splitlines() == lines[100:102]


def test_all_of_a_topic_with_several_partitions_is_consumed(run) -> None:
    run("topic", "create", "clicks", "--partitions", 4)
    run("produce", "clicks", "-K", ":", given="".join(f"k{number}:{number}\n" for number in range(1_000)))
    values = run("consume", "clicks", "-e").stdout.split()
    assert sorted(map(int, values)) == list(range(1_000))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_key_headers_and_compression_survive(run, codec: str) -> None:
    run("produce", f"with-{codec}", "-K", "\\t", "-H", "from=test", "-z", codec, given="k\tvalue ż\n")
    record = json.loads(run("consume", f"with-{codec}", "-e", "-J").stdout)
    assert (record["key"], record["payload"], record["headers"]) == ("k", "value ż", ["from", "test"])
    assert (record["partition"], record["offset"], record["tstype"]) == (0, 0, "create")


def test_topic_is_created_listed_described_and_deleted(run) -> None:
    run("topic", "create", "clicks", "--partitions", 3)
    assert json.loads(run("topic", "list", "--json").stdout) == [{"topic": "clicks", "partitions": 3, "records": 0}]
    described = json.loads(run("topic", "describe", "clicks", "--json").stdout)
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    again = run("topic", "create", "clicks", code=1)
    assert "already exists" in again.stderr
    run("topic", "delete", "clicks", "-y")
    assert json.loads(run("topic", "list", "--json").stdout) == []


def test_trimmed_records_are_gone_and_consumers_go_on_at_the_rest(run) -> None:
    run("topic", "create", "clicks", "--partitions", 2)
    for partition in (0, 1):
        run("produce", "clicks", "-p", partition, given="".join(f"{partition}:{each}\n" for each in range(10)))
    run("topic", "trim", "clicks", "--before", "-1h", "-y")
    assert len(run("consume", "clicks", "-e").stdout.split()) == 20
    shown = json.loads(run("topic", "trim", "clicks", "--before", 7, "-p", 1, "-y", "--json").stdout)
    assert shown["partitions"] == [{"partition": 1, "first": 0, "new_first": 7, "end": 10}]
    assert run("consume", "clicks", "-p", 1, "-e").stdout.split() == ["1:7", "1:8", "1:9"]
    assert len(run("consume", "clicks", "-p", 0, "-e").stdout.split()) == 10
    run("topic", "trim", "clicks", "--before", "end", "-y")
    assert run("consume", "clicks", "-e").stdout == ""


def test_topic_is_analyzed(run) -> None:
    run("topic", "create", "clicks", "--partitions", 2)
    lines = "".join(f"k{each % 7}:{'x' * 100}\n" for each in range(1_000))
    run("produce", "clicks", "-p", 0, "-K", ":", "-z", "zstd", given=lines)
    run("produce", "clicks", "-p", 1, given="1\n22\n")
    found = json.loads(run("topic", "analyze", "clicks", "--json").stdout)
    assert (found["records"], found["distinct_keys"], found["null_keys"], found["missing_offsets"]) == (1_002, 7, 2, 0)
    assert found["compression_ratio"] > 5
    assert found["record_bytes"] == {"p50": 102, "p90": 102, "p99": 102, "max": 102}
    assert found["batches_by_codec"].keys() == {"none", "zstd"}
    assert [(each["start"], each["end"], each["records"]) for each in found["partitions"]] == [
        (0, 1_000, 1_000),
        (0, 2, 2),
    ]
    newest = run("topic", "analyze", "clicks", "-p", 0, "--records", 10, "--json")
    assert [(each["start"], each["records"]) for each in json.loads(newest.stdout)["partitions"]] == [(990, 10)]
    assert newest.stderr == "990 further offsets not read; raise the limit with --records\n"
    oldest = run("topic", "analyze", "clicks", "--from", "-1h", "--records", 20)
    assert "keys: 7 distinct; 2 records without a key, 0 records with a null value" in oldest.stdout
    run("topic", "create", "empty")
    assert json.loads(run("topic", "analyze", "empty", "--json").stdout)["records"] == 0
    assert run("topic", "analyze", "empty").stdout.splitlines()[1].split()[:4] == ["0", "0", "0", "0"]


def test_group_goes_on_where_it_stopped_and_its_lag_is_shown(run) -> None:
    run("topic", "create", "clicks")
    run("produce", "clicks", given="1\n2\n3\n4\n5\n")
    assert run("consume", "clicks", "-g", "ctr", "-c", 2).stdout.split() == ["1", "2"]
    assert json.loads(run("group", "describe", "ctr", "--json").stdout)["lag"] == 3
    assert run("consume", "clicks", "-g", "ctr", "-e").stdout.split() == ["3", "4", "5"]
    assert json.loads(run("group", "describe", "ctr", "--json").stdout)["lag"] == 0


def test_consume_follows_until_it_is_interrupted(run, start) -> None:
    run("topic", "create", "clicks")
    run("produce", "clicks", given="old\n")
    consumer = start("consume", "clicks")
    assert wait_for_line(consumer.stdout, "") == "old\n"
    run("produce", "clicks", given="new\n")
    assert wait_for_line(consumer.stdout, "") == "new\n"
    consumer.send_signal(signal.SIGINT)
    assert consumer.wait(TIMEOUT_S) == 130


@pytest.mark.parametrize("options", [["-o", "-1"], ["-o", "@-1h"], ["-g", "regions"]])
def test_topics_that_appear_later_are_read_if_they_match(run, start, options) -> None:
    for name in ("region.eu", "old-region"):
        run("topic", "create", name, "-p", 2)
        run("produce", name, "-p", 1, given=f"{name} 1\n")
    consumer = start("consume", r"^region\..*", "-f", r"%t %p %s\n", "-X", "metadata.max.age.ms=200", *options)
    assert wait_for_line(consumer.stdout, "") == "region.eu 1 region.eu 1\n"
    run("topic", "create", "regional", "-p", 1)
    run("produce", "regional", given="no\n")
    run("topic", "create", "region.us", "-p", 2)
    run("produce", "region.us", "-p", 0, given="new\n")
    assert wait_for_line(consumer.stdout, "") == "region.us 0 new\n"
    consumer.send_signal(signal.SIGINT)
    assert consumer.wait(TIMEOUT_S) == 130


def test_regular_expression_waits_for_its_first_topic(run, start) -> None:
    consumer = start("consume", "^first", "-p", 1, "-c", 1, "-X", "metadata.max.age.ms=200")
    assert "no topic matches ^first yet" in wait_for_line(consumer.stderr, "")
    run("topic", "create", "first-one", "-p", 2)
    run("produce", "first-one", "-p", 0, given="not this\n")
    run("produce", "first-one", "-p", 1, given="this\n")
    assert consumer.communicate(timeout=TIMEOUT_S)[0] == "this\n"
    assert consumer.returncode == 0


def test_closed_pipe_ends_the_command_quietly_with_the_code_of_sigpipe(run, environment) -> None:
    run("topic", "create", "clicks")
    run("produce", "clicks", given="a line that is long enough to fill a pipe\n" * 20_000)
    consumer = subprocess.Popen(
        [*COMMAND, "consume", "clicks", "-e"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert consumer.stdout is not None
    assert consumer.stderr is not None
    consumer.stdout.readline()
    consumer.stdout.close()
    assert consumer.stderr.read() == b""
    assert consumer.wait(TIMEOUT_S) == 141


@pytest.mark.parametrize("options", [[], ["-g", "ctr"]])
def test_consume_ends_when_its_reader_is_gone_and_no_record_comes(run, environment, options) -> None:
    run("topic", "create", "clicks")
    run("produce", "clicks", given="only\n")
    command = [*COMMAND, "consume", "clicks", *options]
    consumer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == b"only\n"
    consumer.stdout.close()
    assert consumer.wait(TIMEOUT_S) == 141
    assert consumer.stderr is not None
    assert consumer.stderr.read() == b""
    if options:
        group = json.loads(run("group", "describe", "ctr", "--json").stdout)
        assert (group["members"], group["lag"]) == ([], 0)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["topic", "list"], ["consume", "clicks", "-e"]])
def test_full_disk_on_standard_output_is_said_in_words(run, environment, arguments) -> None:
    run("produce", "clicks", given="a\n")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    assert (done.returncode, done.stderr) == (1, "barnabas: standard output: no space left on device\n")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["topic", "list"], ["group", "describe", "ctr"]])
def test_command_whose_reader_is_gone_says_nothing(run, environment, arguments) -> None:
    run("produce", "clicks", given="a\n")
    run("consume", "clicks", "-e", "-g", "ctr")
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [*COMMAND, *arguments]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, env=environment, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


def test_ship_follows_through_rotation_and_goes_on_in_the_next_run(run, start, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("1\n2\n")
    shipper = start("ship", log, "--topic", "app")
    wait_for_line(shipper.stderr, "following")
    follower = start("consume", "app")
    wait_for_line(follower.stdout, "2")
    with log.open("a") as file:
        file.write("3\n")
    log.rename(tmp_path / "app.log.1")
    log.write_text("4\n")
    wait_for_line(follower.stdout, "4")
    shipper.send_signal(signal.SIGTERM)
    assert shipper.wait(TIMEOUT_S) == 143
    with log.open("a") as file:
        file.write("5\n")
    run("ship", "--exit", log, "--topic", "app")
    assert run("consume", "app", "-e").stdout.split() == ["1", "2", "3", "4", "5"]


def test_ship_that_is_killed_loses_no_line(run, start, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    lines = [f"{number} {'x' * 100}" for number in range(50_000)]
    log.write_text("\n".join(lines) + "\n")
    run("topic", "create", "app")
    consumer = start("consume", "app", "-c", 1)
    shipper = start("ship", "--exit", log, "--topic", "app", "-X", "linger.ms=0")
    wait_for_line(consumer.stdout, "0 x")
    shipper.kill()
    shipper.wait(TIMEOUT_S)
    run("ship", "--exit", log, "--topic", "app")
    shipped = run("consume", "app", "-e").stdout.splitlines()
    assert set(shipped) == set(lines)


def test_member_without_partitions_ends_at_the_end(run, start) -> None:
    run("topic", "create", "clicks")
    run("produce", "clicks", given="1\n")
    other = start("consume", "clicks", "-g", "ctr")
    wait_for_line(other.stdout, "1")
    second = start("consume", "clicks", "-g", "ctr", "-e")
    third = start("consume", "clicks", "-g", "ctr", "-e")
    assert second.wait(TIMEOUT_S) == 0
    assert third.wait(TIMEOUT_S) == 0


def test_group_is_described_reset_and_deleted(run, start, tmp_path: Path) -> None:
    run("topic", "create", "clicks")
    run("produce", "clicks", given="1\n2\n3\n")
    reader = start("consume", "clicks", "-g", "ctr", "-X", "client.id=reader")
    wait_for_line(reader.stdout, "3")
    (member,) = json.loads(run("group", "describe", "ctr", "--json").stdout)["members"]
    assert (member["client_id"], member["partitions"]) == ("reader", [["clicks", 0]])
    refused = run("group", "reset", "ctr", "--all-topics", "--to-earliest", "--execute", code=1)
    assert "stop them first" in refused.stderr
    assert run("group", "delete", "ctr", "-y", code=1).stderr.count("\n") == 1
    reader.send_signal(signal.SIGTERM)
    assert reader.wait(TIMEOUT_S) == 143
    kept = tmp_path / "offsets.csv"
    kept.write_text(run("group", "describe", "ctr", "--csv").stdout)
    run("group", "reset", "ctr", "--topic", "clicks:0", "--to-offset", 1, "--execute")
    assert run("consume", "clicks", "-g", "ctr", "-e").stdout.split() == ["2", "3"]
    run("group", "reset", "ctr", "--from-file", kept, "--execute")
    assert json.loads(run("group", "describe", "ctr", "--json").stdout)["lag"] == 0
    run("group", "reset", "new", "--topic", "clicks", "--to-latest", "--execute")
    listed = json.loads(run("group", "list", "--state", "empty", "--type", "classic", "--json").stdout)
    assert [each["group"] for each in listed] == ["ctr", "new"]
    moved = json.loads(run("group", "reset", "--all-groups", "-t", "clicks", "--by-duration", "P1D", "--json").stdout)
    assert [(each["group"], each["partitions"][0]["after"]) for each in moved] == [("ctr", 0), ("new", 0)]
    assert run("group", "describe", "--all-groups", "--state").stdout.count("Empty") == 2
    run("group", "delete-offsets", "new", "-t", "clicks:0", "-y")
    assert run("group", "describe", "ctr", "--csv").stdout == "topic,partition,offset\nclicks,0,3\n"
    run("group", "delete", "--all-groups", "-y")
    assert json.loads(run("group", "list", "--json").stdout) == []


def test_topic_and_its_settings_are_altered(run) -> None:
    run("topic", "create", "clicks", "-c", "retention.ms=5000")
    run("topic", "alter", "clicks", "--partitions", 3, "-c", "max.message.bytes=1000", "--unset", "retention.ms")
    described = json.loads(run("topic", "describe", "clicks", "--json").stdout)
    assert (len(described["partitions"]), described["config"]) == (3, {"max.message.bytes": "1000"})
    assert "the new number must be higher, not 2" in run("topic", "alter", "clicks", "--partitions", 2, code=1).stderr
    too_large = run("produce", "clicks", given="x" * 2_000, code=1)
    assert "send less at once or raise the topic's max.message.bytes" in too_large.stderr
    run("config", "set", "topic", "clicks", "max.message.bytes=100000")
    run("produce", "clicks", given="x" * 2_000)
    refused = run("config", "set", "topic", "clicks", "cleanup.policy=keep", code=1)
    assert "it must be one of delete, compact" in refused.stderr
    run("config", "unset", "topic", "clicks", "max.message.bytes")
    assert json.loads(run("config", "show", "topic", "clicks", "--changed", "--json").stdout) == []
    (port,) = json.loads(run("config", "show", "broker", 0, "port", "--json").stdout)
    assert (port["source"], port["read_only"]) == ("static broker", True)


def test_nulls_keys_and_delimiters_survive(run) -> None:
    run("topic", "create", "clicks")
    run("produce", "clicks", "-K", ":", "-D", "\\0", "-Z", given="k:\0:two\nlines\0")
    shown = run("consume", "clicks", "-e", "-K", "=", "-D", ";", "-Z")
    assert shown.stdout == "k=NULL;NULL=two\nlines;"


def test_log_is_dumped_while_it_is_written_and_after(run, broker) -> None:
    run("topic", "create", "clicks", "-c", "segment.bytes=1000", "-c", "index.interval.bytes=1")
    for number in range(5):
        run("produce", "clicks", given=f"{number} {'x' * 400}\n")
    folder = broker.data / "clicks-0"
    batches = [json.loads(line) for line in run("log", "dump", folder, "--json", "--records").stdout.splitlines()]
    assert [batch["base_offset"] for batch in batches] == list(range(5))
    assert [batch["records"][0]["value"][0] for batch in batches] == list("01234")
    broker.stop()
    files = sorted(path for path in folder.iterdir() if path.suffix in {".log", ".index", ".timeindex"})
    assert {path.suffix for path in files} == {".log", ".index", ".timeindex"}
    run("log", "dump", *files)
    damaged = bytearray(files[1].read_bytes())
    damaged[-1] ^= 1
    files[1].write_bytes(damaged)
    assert f"{files[1]} is damaged at position" in run("log", "dump", folder, code=1).stderr


def test_ship_follows_a_file_that_is_cut(run, start, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("1\n2\n")
    shipper = start("ship", log, "--topic", "app")
    wait_for_line(shipper.stderr, "following")
    follower = start("consume", "app")
    wait_for_line(follower.stdout, "2")
    log.write_text("")
    with log.open("a") as file:
        file.write("3\n")
    wait_for_line(follower.stdout, "3")
    shipper.send_signal(signal.SIGINT)
    assert shipper.wait(TIMEOUT_S) == 130
    assert run("consume", "app", "-e").stdout.split() == ["1", "2", "3"]


def test_ship_that_is_paused_reads_the_copy_of_a_file_that_is_cut_and_grows_again(run, start, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("1\n2\n")
    shipper = start("ship", log, "--topic", "app")
    wait_for_line(shipper.stderr, "following")
    follower = start("consume", "app")
    wait_for_line(follower.stdout, "2")
    shipper.send_signal(signal.SIGSTOP)
    os.waitpid(shipper.pid, os.WUNTRACED)
    with log.open("a") as file:
        file.write("3\n")
    shutil.copy(log, tmp_path / "app.log.1")
    log.write_text("4\n5\n6\n")
    shipper.send_signal(signal.SIGCONT)
    wait_for_line(follower.stdout, "6")
    shipper.send_signal(signal.SIGINT)
    assert shipper.wait(TIMEOUT_S) == 130
    run("ship", "--exit", log, "--topic", "app")
    assert run("consume", "app", "-e").stdout.split() == ["1", "2", "3", "4", "5", "6"]


def test_topics_are_completed_from_the_broker(run, environment) -> None:
    run("topic", "create", "clicks")
    asked = {"_BARNABAS_COMPLETE": "bash_complete", "COMP_WORDS": "barnabas consume cl", "COMP_CWORD": "2"}
    done = subprocess.run(
        COMMAND, capture_output=True, text=True, env={**environment, **asked}, timeout=TIMEOUT_S, check=False
    )
    assert (done.stdout, done.stderr) == ("plain,clicks\n", "")


def test_error_is_one_line_that_says_what_to_do(run) -> None:
    run("topic", "create", "clicks")
    unknown = run("consume", "clikcs", "-e", code=1)
    assert unknown.stderr == "barnabas: no topic 'clikcs'; did you mean 'clicks'?\n"
    down = run("topic", "list", "--bootstrap", "127.0.0.1:1", code=1)
    assert down.stderr.startswith("barnabas: ")
    assert "127.0.0.1:1" in down.stderr
    assert "barnabas up" in down.stderr
    assert down.stderr.count("\n") == 1


@pytest.mark.parametrize(("mode", "values"), [("skip", ["first", "last"]), ("split", ["first", "rest", "last"])])
def test_ship_goes_on_after_a_line_that_compression_does_not_make_small_enough(
    run, tmp_path: Path, mode: str, values: list[str]
) -> None:
    long = os.urandom(10_000).hex()
    (tmp_path / "app.log").write_text(f"first\n{long}\nlast\n")
    run("topic", "create", "app", "-c", "max.message.bytes=5000")
    done = run("ship", "--exit", tmp_path / "app.log", "--topic", "app", "-z", "gzip", "--oversized", mode)
    assert "app.log: line 2 at byte 6 has 20,000 bytes" in done.stderr.replace("\n", "")
    lines = run("consume", "app", "-e").stdout.split()
    assert sorted(line for line in lines if not set(line) <= set(long)) == sorted({*values} - {"rest"})
    assert "".join(line for line in lines if set(line) <= set(long)) == (long if mode == "split" else "")


def test_ship_skips_a_file_whose_only_line_is_too_large(run, tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("x" * 2_000_000 + "\n")
    done = run("ship", "--exit", tmp_path / "app.log", "--topic", "app")
    assert "shipped 0 lines" in done.stderr
    assert "line 1 at byte 0" in done.stderr
