"""`barnabas produce`."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition

CLICKS = TopicPartition("clicks", 0)


@pytest.fixture
def stdin(monkeypatch):
    """Sets standard input."""

    def give(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(data))))

    return give


def test_each_line_of_standard_input_is_a_message(cluster, run, stdin) -> None:
    cluster.create("clicks")
    stdin(b"one\n\ntwo")
    assert run("produce", "clicks").code == 0
    assert cluster.values("clicks") == [b"one", b"", b"two"]


def test_files_are_produced_in_order(cluster, run, tmp_path) -> None:
    cluster.create("clicks")
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}1\n{name}2\n")
    outcome = run("produce", "-t", "clicks", tmp_path / "a", tmp_path / "b")
    assert cluster.values("clicks") == [b"a1", b"a2", b"b1", b"b2"]
    assert outcome.err == "produced 4 messages to clicks\n"


def test_key_delimiter_header_and_partition_are_sent(cluster, run, stdin) -> None:
    cluster.create("clicks", 2)
    stdin(b"k1:v:1\nplain\n")
    run("produce", "clicks", "-K", ":", "-p", 1, "-H", "from=test", "-H", "flag")
    first, second = cluster.partitions[TopicPartition("clicks", 1)]
    assert (first.key, first.value) == (b"k1", b"v:1")
    assert (second.key, second.value) == (None, b"plain")
    assert first.headers == (("from", b"test"), ("flag", None))


def test_messages_may_end_with_something_else_than_a_line_feed(cluster, run, stdin) -> None:
    cluster.create("clicks")
    stdin(b"one\ntwo\0three\0")
    run("produce", "clicks", "-D", r"\0")
    assert cluster.values("clicks") == [b"one\ntwo", b"three"]


def test_empty_keys_and_values_are_null_where_that_is_asked_for(cluster, run, stdin) -> None:
    cluster.create("clicks")
    stdin(b"k:\n:v\n\n")
    run("produce", "clicks", "-K", ":", "-Z")
    assert [(record.key, record.value) for record in cluster.partitions[CLICKS]] == [
        (b"k", None),
        (None, b"v"),
        (None, None),
    ]


def test_count_ends_in_the_middle_of_the_input(cluster, run, stdin) -> None:
    cluster.create("clicks")
    stdin(b"1\n2\n3\n")
    run("produce", "clicks", "-c", 2)
    assert cluster.values("clicks") == [b"1", b"2"]


def test_files_can_be_named_with_an_option_and_quietly(cluster, run, tmp_path) -> None:
    cluster.create("clicks")
    (tmp_path / "a").write_text("1\n")
    outcome = run("produce", "-t", "clicks", "-q", "-l", tmp_path / "a")
    assert (outcome.code, outcome.err) == (0, "")
    assert cluster.values("clicks") == [b"1"]


def test_one_key_for_all(cluster, run, stdin) -> None:
    cluster.create("clicks")
    stdin(b"1\n2\n")
    run("produce", "clicks", "-k", "same")
    assert [record.key for record in cluster.partitions[CLICKS]] == [b"same", b"same"]


def test_lost_acknowledgement_is_an_error(cluster, run, stdin) -> None:
    cluster.create("clicks")
    cluster.produce_error = ApiError(ErrorCode.MESSAGE_TOO_LARGE, subject="clicks-0")
    stdin(b"big\n")
    outcome = run("produce", "clicks")
    assert outcome.code == 1
    assert outcome.err.startswith("barnabas: clicks-0: message too large; ")


@pytest.mark.parametrize(
    "arguments",
    [[], ["clicks", "-k", "a", "-K", ":"], ["clicks", "-z", "rar"], ["clicks", "-D", ""], ["clicks", "-K", "\\q"]],
)
def test_wrong_usage_is_code_2_and_one_line(cluster, run, arguments) -> None:
    outcome = run("produce", *arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("barnabas: ")
    assert outcome.err.count("\n") == 1


def test_missing_file_is_named(cluster, run) -> None:
    outcome = run("produce", "clicks", "missing.txt")
    assert (outcome.code, outcome.err) == (1, "barnabas: missing.txt: no such file or directory\n")
