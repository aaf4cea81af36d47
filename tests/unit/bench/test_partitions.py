"""Figures of starts and stops: how they are told, and what can be asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.clock import SYSTEM_CLOCK
from barnabas.model import TopicPartition
from barnabas.storage import LogConfig, LogManager, OsFileSystem
from barnabas.storage.checkpoints import decode_offsets
from bench.partitions import Figure, fill, lines, parse
from bench.stalls.stage import TOPIC


def test_figures_stand_beside_what_is_to_be_reached() -> None:
    figures = [Figure("start", 4.126, "s", 4), Figure("memory", 81.7, "MiB")]
    assert list(lines(figures))[2:] == ["| start | 4.13 s | 4.00 s |", "| memory | 82 MiB |  |"]


def test_what_is_not_known_is_refused() -> None:
    assert parse(["many", "unwritten"]).measures == ["many", "unwritten"]
    with pytest.raises(SystemExit):
        parse(["few"])


@pytest.mark.parametrize("flush", [True, False])
def test_a_filled_log_is_left_as_a_killed_broker_leaves_it(tmp_path: Path, flush: bool) -> None:
    stopped = LogManager(tmp_path, LogConfig(), SYSTEM_CLOCK, OsFileSystem())
    stopped.create(TopicPartition(TOPIC, 0))
    stopped.close()
    fill(tmp_path, 200_000, 1, flush=flush)
    assert (tmp_path / f"{TOPIC}-0" / "00000000000000000000.log").stat().st_size > 100_000
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    points = decode_offsets(checkpoint.read_bytes()) if checkpoint.exists() else {}
    assert (points.get(TopicPartition(TOPIC, 0), 0) > 0) == flush
