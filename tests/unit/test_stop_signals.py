"""Signals that stop a process cleanly."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from barnabas.cli.signals import EXIT_INTERRUPTED, end_on_sigterm
from barnabas.stop_signals import signals_held, stop_signals
from tests.tidy.test_tidy import ROOT


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


def test_held_signals_arrive_after_the_context_and_ignored_ones_never() -> None:
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: received.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before = signal.getsignal(signal.SIGTERM)
    with signals_held([signal.SIGTERM, signal.SIGHUP]):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):
            signal.raise_signal(number)
        assert received == []
    assert received == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_held_signals_restore_all_handlers_even_if_one_raises_an_error() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    end_on_sigterm()
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    with pytest.raises(SystemExit), signals_held([signal.SIGTERM, signal.SIGHUP]):
        signal.raise_signal(signal.SIGTERM)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


# --- signals during code whose errors Python ignores ---------------------------------------------------------

WHERE = {
    "destructor": """
class Dying:
    def __del__(self):
        receive()

def receive_there():
    Dying()
""",
    "callback of a weak reference": """
import weakref

class Dying:
    pass

def receive_there():
    dying = Dying()
    reference = weakref.ref(dying, lambda _: receive())
    del dying
""",
    "abandoned generator": """
def abandoned():
    try:
        yield
    finally:
        receive()

def receive_there():
    next(abandoned())
""",
    "garbage collection": """
import gc

def note(phase, _info):
    gc.callbacks.remove(note)
    receive()

def receive_there():
    gc.callbacks.append(note)
    gc.collect()
""",
    "twice": """
class Dying:
    def __del__(self):
        receive()

def receive_there():
    Dying()
    Dying()
""",
    "report of an ignored error": """
class Dying:
    def __del__(self):
        raise ValueError("to report")

def receive_there():
    sys.__unraisablehook__ = lambda _: receive()
    Dying()
""",
}

COMMAND = """
import signal, sys, time

from barnabas.cli import commands, main
from barnabas.cli.signals import end_on_sigterm

def receive():
    signal.raise_signal(int(sys.argv[1]))

{where}

def run():
    end_on_sigterm()
    try:
        receive_there()
        time.sleep(300)
    except KeyboardInterrupt:
        return commands.EXIT_INTERRUPTED

commands.run = run
sys.exit(main.main())
"""

DEMO = """
import signal, sys, time

from demo import __main__ as demo

signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for background jobs

class Dying:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

def run(*_):
    Dying()
    time.sleep(300)

demo._run = run
sys.exit(demo.main([]))
"""


def ended(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, EXIT_INTERRUPTED), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize("where", WHERE)
def test_signal_ends_a_command_even_if_python_ignored_it_at_first(
    where: str, number: signal.Signals, code: int
) -> None:
    command = ended(COMMAND.format(where=WHERE[where]), int(number))
    assert (command.returncode, command.stderr) == (code, "")


def test_two_signals_at_once_end_a_command() -> None:
    where = """
class Dying:
    def __del__(self):
        signals = {signal.SIGTERM, signal.SIGHUP}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        for number in signals:
            signal.raise_signal(number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)

def receive_there():
    Dying()
"""
    command = ended(COMMAND.format(where=where))
    assert command.returncode in (143, 129)
    assert command.stderr == ""


def test_signal_during_the_exit_interrupts_one_callback_at_most() -> None:
    where = """
import atexit

def end(number):
    if number == 5:
        receive()
    time.sleep(0.02)
    print(number)

def receive_there():
    for number in range(6):
        atexit.register(end, number)
    sys.exit(0)
"""
    command = ended(COMMAND.format(where=where), int(signal.SIGTERM))
    assert command.stdout.split() == ["4", "3", "2", "1", "0"]


def test_signal_ends_the_demo_even_if_python_ignored_it_at_first() -> None:
    demo = ended(DEMO)
    assert demo.returncode == EXIT_INTERRUPTED
    assert demo.stderr.startswith("demo: stopped; no process is left running.")


def test_command_reports_other_ignored_errors_as_python_does() -> None:
    program = """
import sys
from barnabas.cli import commands, main

class Dying:
    def __del__(self):
        raise ValueError("no signal")

commands.run = Dying
main.main()
"""
    command = ended(program)
    assert command.stderr.startswith("Exception ignored in: <function Dying.__del__")
    assert command.stderr.endswith("ValueError: no signal\n")
