"""Keys go where Kafka's Java client puts them."""

from __future__ import annotations

import pytest

from barnabas.client.producer.accumulator import next_sticky
from barnabas.client.producer.record_appender import partition_for_key
from barnabas.records import murmur2


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_agrees_with_the_vectors_of_kafkas_own_tests(data, signed):
    assert murmur2(data) == signed & 0xFFFFFFFF


def test_partitions_of_keys_are_not_negative():
    assert partition_for_key(b"21", 2**31) == -973932308 & 0x7FFFFFFF
    assert 0 <= partition_for_key(b"21", 7) < 7


def test_a_key_is_what_its_bytes_are():
    assert partition_for_key(bytearray(b"21"), 7) == partition_for_key(b"21", 7)
    with pytest.raises(TypeError, match="key must be bytes or None, not str"):
        partition_for_key("21", 7)


def test_the_empty_key_is_a_key():
    assert partition_for_key(b"", 1000) == partition_for_key(b"", 1000)


def test_the_sticky_partition_moves_on_where_it_can():
    assert next_sticky([0, 1, 2], 0, lambda: 0.0) == 1
    assert next_sticky([0, 1, 2], 1, lambda: 0.999) == 2
    assert next_sticky([4], 4, lambda: 0.5) == 4
    assert next_sticky([0, 1], -1, lambda: 0.0) == 0
