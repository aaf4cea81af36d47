"""`barnabas cluster log-dirs` and `barnabas topic move-log`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from barnabas.cli import log_dirs
from barnabas.client.admin.brokers import LogDir
from barnabas.errors import ErrorCode
from barnabas.model import Node, TopicPartition

FIRST, SECOND, OFFLINE = "/disk1", "/disk2", "/disk3"
CLICKS = [TopicPartition("clicks", number) for number in range(2)]
MOVE = ("topic", "move-log", "clicks", "--broker", 2, "--to", SECOND, "-y")


@pytest.fixture
def folders(cluster, monkeypatch):
    """Broker 2 with a folder that has all logs, one that has none, and one that is offline."""
    monkeypatch.setattr(log_dirs, "LOOK_S", 0)
    cluster.nodes = [Node(2, "localhost", 9092)]
    cluster.create("clicks", 2)
    cluster.create("views")
    sizes = {CLICKS[0]: 100, CLICKS[1]: 50, TopicPartition("views", 0): 7}
    cluster.folders[2] = {
        FIRST: LogDir(2, FIRST, ErrorCode.NONE, 1000, 500, sizes),
        SECOND: LogDir(2, SECOND, ErrorCode.NONE, 1000, 900, {}),
        OFFLINE: LogDir(2, OFFLINE, ErrorCode.KAFKA_STORAGE_ERROR, None, None, {}),
    }
    return cluster


def move_one(cluster) -> None:
    """Let one log that is to move be where it is to be."""
    for tp in list(cluster.asked_to_move)[:1]:
        path, there = cluster.asked_to_move.pop(tp), cluster.folders[2]
        left = dict(there[FIRST].sizes)
        size = left.pop(tp)
        there[FIRST] = replace(there[FIRST], sizes=left)
        there[path] = replace(there[path], sizes={**there[path].sizes, tp: size})


def test_folders_are_shown_with_what_is_in_them_and_what_comes(folders, run) -> None:
    there = folders.folders[2]
    there[SECOND] = replace(there[SECOND], coming={CLICKS[0]: 30})
    assert run("cluster", "log-dirs").out.splitlines() == [
        "broker  folder  logs  bytes  coming  free bytes  state",
        "     2  /disk1     3    157       0         500  online",
        "     2  /disk2     0      0       1         900  online",
        "     2  /disk3     0      0       0           -  offline",
    ]
    assert run("cluster", "log-dirs", "--logs", "--broker", 2).out.splitlines() == [
        "broker  folder  log       bytes  lag",
        "     2  /disk1  clicks-0    100    -",
        "     2  /disk1  clicks-1     50    -",
        "     2  /disk1  views-0       7    -",
        "     2  /disk2  clicks-0      -   30",
    ]
    first, second, third = json.loads(run("cluster", "log-dirs", "--json").out)
    assert first["logs"][0] == {"topic": "clicks", "partition": 0, "bytes": 100}
    assert second["coming"] == [{"topic": "clicks", "partition": 0, "lag": 30}]
    assert (third["online"], third["free_bytes"]) == (False, None)


def test_all_logs_of_a_topic_move_and_are_looked_at_until_they_have(folders, run) -> None:
    folders.on_look = lambda: move_one(folders)
    outcome = run(*MOVE)
    assert outcome.out == "moved 2 logs\n"
    assert set(folders.folders[2][SECOND].sizes) == set(CLICKS)
    assert run(*MOVE).err == "there is nothing of clicks to move\n"


def test_one_partition_moves_and_nobody_waits(folders, run) -> None:
    outcome = run(*MOVE, "-p", 1, "--no-wait")
    assert outcome.out == "started to move 1 log; see: barnabas cluster log-dirs --broker 2\n"
    assert folders.asked_to_move == {CLICKS[1]: SECOND}


def test_ctrl_c_ends_the_looking_on(folders, run) -> None:
    looks = []

    def interrupt() -> None:
        looks.append(None)
        if len(looks) > 1:
            raise KeyboardInterrupt

    folders.on_look = interrupt
    outcome = run(*MOVE)
    assert outcome.code == 130
    assert "the move continues; see: barnabas cluster log-dirs --broker 2" in outcome.err


def test_broker_that_moves_nothing_is_not_waited_for(folders, run) -> None:
    outcome = run(*MOVE)
    assert outcome.code == 1
    assert "broker 2 has stopped moving logs; its log has the reason" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--to", "/nowhere"], 2, "broker 2 has no log directory /nowhere; it has /disk1, /disk2, /disk3"),
        (["--to", OFFLINE], 1, "is offline"),
        (["-p", "7"], 2, "broker 2 has no log of clicks-7"),
    ],
)
def test_what_cannot_be_is_refused(folders, run, arguments, code, message) -> None:
    outcome = run(*MOVE, *arguments)
    assert outcome.code == code
    assert message in outcome.err
    assert not folders.asked_to_move


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, "clicks-0 of broker 2 is offline"),
        (ErrorCode.POLICY_VIOLATION, "too many pending moves"),
        (ErrorCode.LOG_DIR_NOT_FOUND, "LOG_DIR_NOT_FOUND"),
    ],
)
def test_refusal_of_the_broker_is_told(folders, run, refusal, message) -> None:
    folders.move_refusal = refusal
    outcome = run(*MOVE)
    assert outcome.code == 1
    assert message in outcome.err


def test_log_that_is_gone_meanwhile_is_told(folders, run) -> None:
    looks = []

    def lose() -> None:
        looks.append(None)
        if len(looks) == 2:
            there = folders.folders[2]
            there[FIRST] = replace(there[FIRST], sizes={CLICKS[0]: 100})

    folders.on_look = lose
    assert "broker 2 no longer has a log of clicks-1" in run(*MOVE).err
