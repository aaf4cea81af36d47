"""Figures of three brokers: how rounds are told, what counts as led and in sync, and what can be asked for."""

from __future__ import annotations

import pytest

from barnabas.client.admin.topics import PartitionDescription
from bench.cluster.__main__ import MEASURES, parse
from bench.cluster.going import led_by_survivors
from bench.cluster.pulse import longest_gap_s
from bench.cluster.report import Figure, lines
from bench.cluster.stage import in_sync_as, led_by_first, spread


def partition(leader: int, *isr: int) -> PartitionDescription:
    return PartitionDescription(0, leader, (1, 2, 3), isr)


def test_rounds_of_a_figure_share_a_row() -> None:
    figures = [Figure("pause", 0.25, "s", "0.3 s"), Figure("errors", 0, "", "0")]
    figures += [Figure("pause", 0.125, "s", "0.3 s"), Figure("pause", 0.5, "s", "0.3 s")]
    assert list(lines(figures))[2:] == ["| pause | 0.250 s (0.125 to 0.500) | 0.3 s |", "| errors | 0 | 0 |"]


def test_what_is_not_known_is_refused() -> None:
    assert parse(["leader", "cost"]).measures == ["leader", "cost"]
    with pytest.raises(SystemExit):
        parse([next(iter(MEASURES)), "weather"])


def test_partitions_are_led_again_when_all_have_a_leader_that_lives() -> None:
    assert led_by_survivors([partition(2), partition(3)])
    assert not led_by_survivors([partition(2), partition(1)])
    assert not led_by_survivors([partition(2), partition(-1)])
    assert not led_by_survivors([]), "a topic that is not known yet is led by nobody"


def test_replicas_are_in_sync_in_whatever_order() -> None:
    is_so = in_sync_as([*spread(2)])
    assert is_so([partition(1, 3, 1, 2), partition(2, 1, 2, 3)])
    assert not is_so([partition(1, 3, 1, 2), partition(2, 1, 2)])
    assert not is_so([partition(1, 3, 1, 2)])


def test_one_broker_leads_all_and_both_others_follow_in_turn() -> None:
    assert {replicas[0] for replicas in led_by_first(10)} == {1}
    assert [replicas[1] for replicas in led_by_first(4)] == [2, 3, 2, 3]


def test_a_pause_that_lasts_until_the_end_counts() -> None:
    assert longest_gap_s([1.0, 2.0], 0.5, 10.0) == 8.0
    assert longest_gap_s([], 1.0, 3.0) == 2.0
