"""Values to send: as large, as many and as different as was asked for."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from barnabas.errors import ConfigurationError
from barnabas.laboratory.perf.payloads import (
    POOL_BYTES_MAX,
    POOL_VALUES_MAX,
    PayloadKind,
    PayloadSpec,
    list_length,
    lists_of,
)


@pytest.mark.parametrize("kind", list(PayloadKind))
@pytest.mark.parametrize("size", [0, 1, 100, 5_000])
def test_values_have_the_size_and_are_the_same_in_each_run(kind: PayloadKind, size: int) -> None:
    values = PayloadSpec(kind, size).values()
    assert {len(value) for value in values} == {size}
    assert PayloadSpec(kind, size).values() == values


def test_random_values_differ_and_do_not_compress_while_text_does() -> None:
    chance = PayloadSpec(PayloadKind.RANDOM, 100).values()
    text = PayloadSpec(PayloadKind.TEXT, 100).values()
    assert len(set(chance)) == POOL_VALUES_MAX
    assert len(set(text)) > POOL_VALUES_MAX // 2
    sizes = {name: len(zlib.compress(b"".join(values))) for name, values in (("chance", chance), ("text", text))}
    assert sizes["text"] < len(text) * 100 / 2 < sizes["chance"]


def test_pool_of_large_values_is_bounded() -> None:
    values = PayloadSpec(PayloadKind.RANDOM, 4 * 1024 * 1024).values()
    assert 1 < sum(map(len, values)) <= POOL_BYTES_MAX
    assert len(PayloadSpec(PayloadKind.RANDOM, 2 * POOL_BYTES_MAX).values()) == 1


def test_lines_of_a_file_are_values(tmp_path: Path) -> None:
    file = tmp_path / "values"
    file.write_bytes(b"one\n\ntwo\n")
    assert PayloadSpec(value_file=str(file)).values() == [b"one", b"", b"two"]
    file.write_bytes(b"")
    with pytest.raises(ConfigurationError, match="no lines"):
        PayloadSpec(value_file=str(file)).values()


@pytest.mark.parametrize(("pool", "count"), [(1, 3), (7, 3), (10, 10), (3, 50)])
def test_lists_have_exactly_so_many_values_and_go_through_all(pool: int, count: int) -> None:
    values = [bytes([number]) for number in range(pool)]
    lists = lists_of(values, count)
    assert {len(each) for each in lists} == {count}
    assert {value for each in lists for value in each} == set(values)


def test_one_call_gets_fewer_values_if_they_are_large() -> None:
    assert list_length([bytes(100)], 10_000) == 10_000
    assert list_length([bytes(100_000)], 10_000) == 41
    assert list_length([bytes(100_000_000)], 10_000) == 1
    assert list_length([b""], 10_000) == 10_000
