"""Declarations of metrics, and their text."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from barnabas.metrics.exposition import exposition
from barnabas.metrics.metric import Kind, Metric, counter, gauge

RECORDS = counter("barnabas_test_records_total", "Records.", "topic", "partition")
LAG = gauge("barnabas_test_lag", "Lag, with a \\ and a\nline end.", "topic")


def test_counter_name_ends_with_total() -> None:
    with pytest.raises(ValueError, match="barnabas_test_records: only the name of a counter"):
        counter("barnabas_test_records", "Records.")


def test_gauge_name_does_not_end_with_total() -> None:
    with pytest.raises(ValueError, match="barnabas_test_lag_total"):
        Metric("barnabas_test_lag_total", Kind.GAUGE, "Lag.")


def test_sample_has_a_value_for_each_label() -> None:
    with pytest.raises(ValueError, match="barnabas_test_records_total has the labels"):
        RECORDS.sample(1, "clicks")


def test_prometheus_parser_reads_the_same_samples() -> None:
    hostile = 'quote " backslash \\ line\nend ü'
    samples = [RECORDS.sample(2**40, "clicks", "0"), LAG.sample(-0.5, hostile), RECORDS.sample(0, "clicks", "1")]
    text = exposition(samples).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert [family.type for family in families.values()] == ["counter", "gauge"]
    parsed = [(each.name, each.labels, each.value) for family in families.values() for each in family.samples]
    assert parsed == [
        ("barnabas_test_records_total", {"topic": "clicks", "partition": "0"}, 2**40),
        ("barnabas_test_records_total", {"topic": "clicks", "partition": "1"}, 0),
        ("barnabas_test_lag", {"topic": hostile}, -0.5),
    ]
    assert families["barnabas_test_lag"].documentation == LAG.help


def test_no_samples_make_an_empty_text() -> None:
    assert exposition([]) == b""
