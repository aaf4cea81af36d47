"""One line that says what to do."""

from __future__ import annotations

import pytest

from barnabas.cli.error_messages import _ADVICE, explain, unknown_setting, unknown_topic
from barnabas.errors import ApiError, BarnabasError, ConfigurationError, DisconnectedError, ErrorCode, TimedOutError


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (DisconnectedError("no broker at localhost:1: refused"), ["localhost:1", "barnabas up"]),
        (TimedOutError("no answer\nfrom x:1"), ["no answer from x:1", "barnabas up"]),
        (ConfigurationError("port is 1.5"), ["port is 1.5"]),
        (ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, subject="topic 'a'"), ["topic 'a'", "already exists"]),
        (ApiError(ErrorCode.NOT_COORDINATOR), ["not coordinator"]),
        (FileNotFoundError(2, "No such file or directory", "x.log"), ["x.log: no such file or directory"]),
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


@pytest.mark.parametrize(
    ("code", "reason", "subject", "line"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, "topic clicks already exists", "", "topic clicks already exists"),
        (ErrorCode.INVALID_CONFIG, "retention.ms is 'x'", "topic 'a'", "topic 'a': retention.ms is 'x'"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'a' does not exist", "", "topic 'a' does not exist"),
        (ErrorCode.NON_EMPTY_GROUP, "", "group 'a'", "group 'a': non empty group"),
        (ErrorCode.UNKNOWN_MEMBER_ID, "", "commit of clicks-0 in 'g'", "commit of clicks-0 in 'g': unknown member id"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "", "records of clicks-0", "records of clicks-0: not leader or follower"),
        (ErrorCode.KAFKA_STORAGE_ERROR, "", "log folders of broker 3", "log folders of broker 3: kafka storage error"),
        (ErrorCode.OFFSET_NOT_AVAILABLE, "", "clicks-0 at offset 7", "clicks-0 at offset 7: offset not available"),
    ],
)
def test_what_is_wrong_is_said_once(code: ErrorCode, reason: str, subject: str, line: str) -> None:
    assert explain(ApiError(code, reason, subject)).removesuffix("; " + _ADVICE.get(code, "")) == line


def test_error_of_the_system_is_in_words() -> None:
    assert explain(OSError(28, "No space left on device")) == "no space left on device"


def test_far_fetched_names_are_not_offered() -> None:
    known = ["local.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms", "segment.ms"]
    line = unknown_setting("retention", known, "topic", "clicks").message
    assert line == "no setting 'retention'; see: barnabas config show topic clicks"


def test_control_characters_in_what_a_broker_says_do_not_reach_a_terminal() -> None:
    assert explain(ApiError(ErrorCode.INVALID_CONFIG, "no\x1b[2J\nsetting")).endswith(r"no\x1b[2J\nsetting")
