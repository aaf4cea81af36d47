"""The options and columns of what a query writes: those of Spark's Kafka sink, checked. Pure."""

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
"""The columns that are written, with the types that each may have, in Spark's notation. Others are left out."""

_OPTIONS = ("topic", "includeHeaders")
_REFUSED = {
    "kafka.key.serializer": "the column key is written as it is: encode it in the query",
    "kafka.value.serializer": "the column value is written as it is: encode it in the query",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where a query writes to.

    `columns` are those of `SINK_TYPES` that the query has, as it spells them. `topic` is the one for all records, None
    where the column has it. `client_options` are settings of the producer under Kafka's names.
    """

    bootstrap: str
    topic: str | None
    columns: Mapping[str, str]
    client_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def producer_settings(self) -> dict[str, str]:
        """What the producer takes as keyword arguments."""
        return {name.replace(".", "_"): value for name, value in self.client_options.items()}


def parse_sink_options(options: Mapping[str, str], types: Mapping[str, str]) -> SinkOptions:
    """Check the options and columns of a query that writes.

    :param types: the query's columns with their types, in Spark's notation.
    :raises ConfigurationError: an option is missing or unknown, or a column is missing or has another type.

    >>> parse_sink_options({"kafka.bootstrap.servers": "a:1", "topic": "t"}, {"VALUE": "string"}).columns
    {'value': 'VALUE'}
    """
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(options)
    topic = given.get("topic", "").strip() or None
    sink = SinkOptions(parse_bootstrap(given), topic, _columns(types), parse_client_options(given))
    if "value" not in sink.columns:
        raise ConfigurationError(f"there is no column 'value' to write; there are {', '.join(types) or 'none'}")
    if topic is None and "topic" not in sink.columns:
        raise ConfigurationError("where to write to? Give the option 'topic', or a column 'topic'")
    names = {setting.name for setting in dataclasses.fields(ProducerConfig)} - {"bootstrap_servers"}
    settings = sink.producer_settings
    make_config(ProducerConfig, sink.bootstrap, settings)
    # Settings that Kafka's own clients have and that change nothing here are left out.
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
            raise ConfigurationError(f"there are two columns {columns[known]!r} and {name!r}")
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
        hint = f"did you mean {known[near[0]]!r}?" if near else f"known are {', '.join(_OPTIONS)} and kafka.*"
        raise ConfigurationError(f"unknown option {name!r} for writing: {hint}")
