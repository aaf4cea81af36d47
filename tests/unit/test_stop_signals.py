"""Signals that stop a process cleanly."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from barnabas.cli.signals import end_on_sigterm
from barnabas.stop_signals import stop_signals


@pytest.fixture(autouse=True)
def _handlers_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_hangup_stops_unless_the_parent_ignores_it() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert signal.SIGHUP in stop_signals()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert stop_signals() == (signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGTERM, 143)])
def test_signal_leaves_a_command_through_its_finally_blocks(number: signal.Signals, code: int) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    end_on_sigterm()
    with pytest.raises(SystemExit) as ended:
        signal.raise_signal(number)
    assert ended.value.code == code


def test_command_under_nohup_survives_a_hangup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    end_on_sigterm()
    signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
