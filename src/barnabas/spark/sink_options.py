"""Parsing and checks of a write query's options and columns, which are those of Spark's Kafka sink. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from barnabas.client.config import ProducerConfig, make_config
from barnabas.errors import ConfigurationError
from barnabas.spark.options import parse_bootstrap, parse_client_options

SINK_TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}
"""The columns that the sink writes, with their allowed Spark types. Other columns are ignored."""

_OPTIONS = ("topic", "includeHeaders")
_REFUSED = {
    "kafka.key.serializer": "the column key is written as it is: encode it in the query",
    "kafka.value.serializer": "the column value is written as it is: encode it in the query",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options of a write query.

    `columns` maps the names of `SINK_TYPES` to the query's spelling. `topic` is the topic of all records; None if the
    column `topic` has it. `client_options` are producer settings under Kafka's names.
    """

    bootstrap: str
    topic: str | None
    columns: Mapping[str, str]
    client_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def producer_settings(self) -> dict[str, str]:
        """The settings as keyword arguments of the producer."""
        return {name.replace(".", "_"): value for name, value in self.client_options.items()}


def parse_sink_options(options: Mapping[str, str], types: Mapping[str, str]) -> SinkOptions:
    """Parse and check the options and columns of a write query.

    :param types: The Spark type of each column of the query.
    :raises ConfigurationError: An option is missing or unknown, or a column is missing or has another type.

    >>> parse_sink_options({"kafka.bootstrap.servers": "a:1", "topic": "t"}, {"VALUE": "string"}).columns
    {'value': 'VALUE'}
    """
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(options)
    topic = given.get("topic", "").strip() or None
    sink = SinkOptions(parse_bootstrap(given), topic, _columns(types), parse_client_options(given))
    if "value" not in sink.columns:
        raise ConfigurationError(f"there is no column 'value' to write; the columns are {', '.join(types) or 'none'}")
    if topic is None and "topic" not in sink.columns:
        raise ConfigurationError("the destination is missing: set the option 'topic', or add a column 'topic'")
    names = {setting.name for setting in dataclasses.fields(ProducerConfig)} - {"bootstrap_servers"}
    settings = sink.producer_settings
    make_config(ProducerConfig, sink.bootstrap, settings)
    # Settings of Kafka's clients that have no effect here are dropped.
    return dataclasses.replace(
        sink,
        client_options={name: value for name, value in sink.client_options.items() if name.replace(".", "_") in names},
    )


def _columns(types: Mapping[str, str]) -> dict[str, str]:
    columns: dict[str, str] = {}
    for name, given in types.items():
        known = name.lower()
        if known not in SINK_TYPES:
            continue
        if given not in SINK_TYPES[known]:
            raise ConfigurationError(
                f"column {name!r} must be of type {' or '.join(SINK_TYPES[known])}, not {given}: cast it in the query"
            )
        if known in columns:
            raise ConfigurationError(
                f"the columns {columns[known]!r} and {name!r} differ only in case; drop one of them"
            )
        columns[known] = name
    return columns


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _OPTIONS}
    for name in options:
        lowered = name.lower()
        if lowered in _REFUSED:
            raise ConfigurationError(f"option {name!r} cannot be set: {_REFUSED[lowered]}")
        if lowered in known or lowered.startswith("kafka."):
            continue
        if lowered == "path":
            raise ConfigurationError("save() and start() take no path: name the topic with option 'topic'")
        if lowered == "checkpointlocation":
            continue
        near = get_close_matches(lowered, known, n=1)
        hint = f"did you mean {known[near[0]]!r}?" if near else f"the options are {', '.join(_OPTIONS)} and kafka.*"
        raise ConfigurationError(f"unknown option {name!r} for writing: {hint}")
