"""Numbers of partitions as short JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from barnabas.model import TopicPartition
from barnabas.spark.compact_json import dump_compact, pack, unpack
from barnabas.spark.completeness import Completeness
from barnabas.spark.ledger import Ledger, LoadedTopic

NUMBERS = st.dictionaries(st.integers(0, 300), st.integers(-(2**63), 2**63 - 1))


@given(NUMBERS)
def test_packed_numbers_come_back_from_json(numbers: dict[int, int]) -> None:
    text = dump_compact(pack(numbers))
    assert unpack(json.loads(text)) == numbers
    assert len(text) <= len(json.dumps({str(partition): number for partition, number in numbers.items()})) * 2


def test_ledgers_and_completeness_of_older_releases_are_read() -> None:
    ledger = Ledger.parse('{"clicks": {"id": "one", "next": {"0": 250, "1": 99}}}')
    assert ledger == Ledger({"clicks": LoadedTopic("one", {0: 250, 1: 99})})
    assert ledger.dump() == '{"clicks":{"id":"one","next":[250,99]}}'
    complete = Completeness.parse('{"at_ms": 5000, "latest_ms": {"clicks": {"0": 4000, "3": 6000}}}')
    assert complete == Completeness(5000, {TopicPartition("clicks", 0): 4000, TopicPartition("clicks", 3): 6000})
    assert complete.dump() == '{"at_ms":5000,"before_ms":{"clicks":[1000,null,null,-1000]}}'
    assert Completeness.parse(complete.dump()) == complete
