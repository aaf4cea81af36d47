"""Options of a table travel in the metadata of its first column."""

from __future__ import annotations

import re

import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark.range_partition import make_schema
from barnabas.spark.source import BarnabasDataSource
from barnabas.spark.table_options import options_of_insert, options_of_query

GIVEN = {"kafka.bootstrap.servers": "a:1", "subscribe": "clicks", "startingOffsets": "earliest"}
OF_SPARK = {"provider": "barnabas", "owner": "me", "option.subscribe": "clicks"}


def test_a_query_on_a_table_has_its_options_and_may_add_to_them() -> None:
    schema = BarnabasDataSource(GIVEN | OF_SPARK).schema()
    assert options_of_query({}, schema) == GIVEN
    assert options_of_query({"minPartitions": "3"}, schema) == GIVEN | {"minPartitions": "3"}


def test_what_is_inserted_goes_to_the_tables_topic() -> None:
    schema = BarnabasDataSource(GIVEN | OF_SPARK).schema()
    assert options_of_insert({}, schema) == {"kafka.bootstrap.servers": "a:1", "topic": "clicks"}


def test_a_frame_of_a_table_is_written_where_its_own_options_say() -> None:
    schema = BarnabasDataSource(GIVEN | OF_SPARK).schema()
    own = {"kafka.bootstrap.servers": "b:2", "topic": "copy"}
    assert options_of_insert(own, schema) == own


def test_without_a_table_columns_carry_nothing() -> None:
    assert all(not field.metadata for field in BarnabasDataSource(GIVEN).schema().fields)


def test_a_table_that_carries_no_options_is_told() -> None:
    with pytest.raises(ConfigurationError, match="CREATE TABLE"):
        options_of_query({}, make_schema(["value"]))


@pytest.mark.parametrize(
    "option", ["kafka.sasl.password", "kafka.ssl.key.password", "kafka.sasl.jaas.config", "kafka.sasl_plain_password"]
)
def test_table_options_with_a_secret_are_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(option)) as refused:
        BarnabasDataSource(GIVEN | OF_SPARK | {option: "planted"}).schema()
    assert "planted" not in str(refused.value)


def test_table_options_may_name_the_source_of_a_secret() -> None:
    security = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": "${env:PASSWORD}",
    }
    schema = BarnabasDataSource(GIVEN | OF_SPARK | security).schema()
    assert options_of_query({}, schema) == GIVEN | security


def test_a_stream_that_cannot_be_says_why_when_it_is_asked() -> None:
    refused = BarnabasDataSource(GIVEN | {"endingOffsets": "latest"}).streamReader(make_schema(["value"]))
    for ask in (refused.initialOffset, refused.getDefaultReadLimit, refused.prepareForTriggerAvailableNow):
        with pytest.raises(ConfigurationError, match="a stream has no end"):
            ask()
    refused.stop()
