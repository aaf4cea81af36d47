"""One line that says what to do."""

from __future__ import annotations

import pytest

from barnabas.cli.failures import explain, unknown_topic
from barnabas.errors import BarnabasError, ConfigurationError, DisconnectedError, ErrorCode, KafkaError, TimedOutError


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (DisconnectedError("no broker at localhost:1: refused"), ["localhost:1", "barnabas up"]),
        (TimedOutError("no answer\nfrom x:1"), ["no answer from x:1", "barnabas up"]),
        (ConfigurationError("port is 1.5"), ["port is 1.5"]),
        (KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'a'"), ["topic 'a'", "already exists", "describe"]),
        (KafkaError(ErrorCode.NOT_COORDINATOR), ["not coordinator"]),
        (FileNotFoundError(2, "No such file or directory", "x.log"), ["x.log: No such file or directory"]),
    ],
)
def test_error_becomes_one_line_with_advice(error: BarnabasError | OSError, parts: list[str]) -> None:
    line = explain(error)
    assert "\n" not in line
    assert all(part in line for part in parts), line


def test_advice_to_start_a_broker_is_given_once() -> None:
    line = explain(DisconnectedError("no broker at a:1; is it running? (barnabas up)"))
    assert line.count("barnabas up") == 1


def test_unknown_topic_names_those_spelled_alike() -> None:
    assert "'clicks'" in unknown_topic("click", ["clicks", "orders"]).message


def test_unknown_topic_without_a_like_says_how_to_create_it() -> None:
    assert "barnabas topic create zebra" in unknown_topic("zebra", ["clicks"]).message
