"""How a large produce request is cut into pieces, and the answers to them joined."""

from __future__ import annotations

import sys

import pytest

from barnabas.broker.handlers.produce import Piece, join, must_be_in_pieces, pieces
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)


def request(*topics: tuple[str, list[int]]) -> ProduceRequest:
    """A request with so many bytes for each partition of each topic."""
    data = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=index, records=bytes(size)) for index, size in enumerate(sizes)],
        )
        for name, sizes in topics
    ]
    return ProduceRequest(acks=1, timeout_ms=1_000, transactional_id=None, topic_data=data)


def names(piece: Piece) -> list[tuple[str, int]]:
    return [(topic.name, data.index) for topic in piece.request.topic_data for data in topic.partition_data]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[must_be_in_pieces.__module__]  # the package has the handler under the module's name
    monkeypatch.setattr(module, "PIECE_BYTES_MAX", 100)
    monkeypatch.setattr(module, "PIECE_ENTRIES_MAX", 5)


def test_a_piece_ends_where_it_has_enough_bytes() -> None:
    found = list(pieces(request(("a", [60, 60, 10]), ("b", [10, 90, 1]))))
    assert [names(piece) for piece in found] == [
        [("a", 0), ("a", 1)],
        [("a", 2), ("b", 0), ("b", 1)],
        [("b", 2)],
    ]
    assert [piece.continues for piece in found] == [False, True, True]


def test_a_piece_ends_where_it_has_enough_partitions() -> None:
    found = list(pieces(request(("a", [1] * 9), ("b", []), ("c", [1]))))
    assert [each for piece in found for each in names(piece)] == [*(("a", index) for index in range(9)), ("c", 0)]
    assert max(len(names(piece)) for piece in found) <= 5
    assert [topic.name for piece in found for topic in piece.request.topic_data] == ["a", "a", "b", "c"]


@pytest.mark.parametrize(
    ("sizes", "size", "expected"),
    [([500], 500, False), ([50, 50], 99, False), ([50, 80], 130, True), ([1] * 6, 6, True)],
)
def test_what_is_small_or_for_one_partition_is_carried_out_at_once(sizes: list[int], size: int, expected: bool) -> None:
    assert must_be_in_pieces(request(("a", sizes)), size) is expected


def test_the_answers_of_pieces_are_joined_to_that_of_the_request() -> None:
    whole = request(("a", [60] * 5), ("b", [60] * 3))
    answers = [
        (
            ProduceResponse(
                responses=[
                    TopicProduceResponse(
                        name=topic.name,
                        partition_responses=[
                            PartitionProduceResponse(index=data.index, error_code=0, base_offset=data.index)
                            for data in topic.partition_data
                        ],
                    )
                    for topic in piece.request.topic_data
                ]
            ),
            piece.continues,
        )
        for piece in pieces(whole)
    ]
    joined = join(answers)
    assert [topic.name for topic in joined.responses] == ["a", "b"]
    assert [[each.index for each in topic.partition_responses] for topic in joined.responses] == [
        list(range(5)),
        list(range(3)),
    ]
