"""Topics whose retention deletes records by the timestamps of their producers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from barnabas.cli.retention_check import RetentionCheck
from barnabas.errors import ApiError, ErrorCode


@dataclass
class Setting:
    value: str | None


class Brokers:
    def __init__(self, **settings: str) -> None:
        self._settings = {name.replace("_", "."): Setting(value) for name, value in settings.items()}

    def describe_config(self, _topic: str) -> dict[str, Setting]:
        if not self._settings:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "logs")
        return self._settings


def check(**settings: str) -> RetentionCheck | None:
    admin: Any = Brokers(**settings)
    return RetentionCheck.of_topic(admin, "logs")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"retention_ms": "-1"},
        {"retention_ms": "1000", "cleanup_policy": "compact"},
        {"retention_ms": "1000", "message_timestamp_type": "LogAppendTime"},
    ],
)
def test_topic_that_deletes_nothing_by_these_times_needs_no_check(settings: dict[str, str]) -> None:
    assert check(**settings) is None


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_records_are_counted_once(policy: str) -> None:
    retention = check(retention_ms="1000", cleanup_policy=policy)
    assert retention is not None
    retention.count([8_999, 9_000, 10_000], 10_000)
    report = retention.take_report()
    assert report is not None
    assert report.startswith("warning: 1 of 3 records are older than the retention of logs")
    assert retention.take_report() is None
