"""Fingerprints: sums over any range, and what they tell apart."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from barnabas.audit.identities import FIELD, Producer, fingerprint
from barnabas.audit.windows import tally
from barnabas.records.header import SEQUENCE_MAX
from barnabas.records.mirror_identity import producer_id_of

producers = st.builds(Producer, st.integers(0, 2**62 - 1), st.integers(0, 2**15 - 1), st.integers(0, 10_000))


@given(producers, st.integers(0, 2**31), st.lists(st.integers(0, 1_000_000), min_size=1))
def test_fingerprint_of_a_stretch_is_the_sum_of_its_parts_however_it_is_cut(
    producer: Producer, first: int, sizes: list[int]
) -> None:
    total, begin = 0, first
    for size in sizes:
        total += fingerprint(producer, begin, size)
        begin += size
    assert total % FIELD == fingerprint(producer, first, sum(sizes))


@given(producers, st.integers(0, 10**8), st.integers(0, 10**8))
def test_one_lost_and_one_doubled_record_do_not_cancel_out(producer: Producer, lost: int, doubled: int) -> None:
    assume(lost != doubled)
    whole = fingerprint(producer, 0, 10**8)
    assert (whole - fingerprint(producer, lost, 1) + fingerprint(producer, doubled, 1)) % FIELD != whole


@given(producers, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 1_000))
def test_a_lost_and_a_doubled_batch_of_one_size_do_not_cancel_out(
    producer: Producer, lost: int, doubled: int, size: int
) -> None:
    assume(lost != doubled)
    assert fingerprint(producer, lost, size) != fingerprint(producer, doubled, size)


def test_sums_and_sums_of_squares_that_are_the_same_do_not_hide_a_loss() -> None:
    producer = Producer(7, 0, 0)
    # 0 + 4 + 5 = 1 + 2 + 6, and so for their squares (Prouhet, Tarry, Escott).
    assert (
        sum(fingerprint(producer, each, 1) for each in (0, 4, 5)) % FIELD
        != sum(fingerprint(producer, each, 1) for each in (1, 2, 6)) % FIELD
    )


@given(producers, producers, st.integers(0, 2**31 - 1))
def test_records_of_two_producers_are_different_ones(one: Producer, other: Producer, sequence: int) -> None:
    assume(one != other)
    assert fingerprint(one, sequence, 1) != fingerprint(other, sequence, 1)


@given(producers, st.integers(1, 100), st.integers(1, 100))
def test_sequence_numbers_begin_again_with_0(producer: Producer, before: int, after: int) -> None:
    whole = tally(producer, SEQUENCE_MAX + 1 - before, before + after, 0)
    assert whole == tally(producer, SEQUENCE_MAX + 1 - before, before, 0).plus(tally(producer, 0, after, 0))


def test_source_offsets_of_mirrored_records_go_on() -> None:
    producer = Producer(producer_id_of(5), 0, 0)
    assert producer.is_mirror
    whole = tally(producer, SEQUENCE_MAX, 3, 0)
    assert whole == tally(producer, SEQUENCE_MAX, 1, 0).plus(tally(producer, SEQUENCE_MAX + 1, 2, 0))
    assert whole != tally(producer, SEQUENCE_MAX, 1, 0).plus(tally(producer, 0, 2, 0))
