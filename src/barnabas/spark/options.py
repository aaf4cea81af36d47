"""Parsing and checks of the data source's options. Pure: no Spark, no broker.

Names and meanings are those of Spark's Kafka source (Structured Streaming + Kafka Integration Guide). As in Spark, the
case of names does not matter. Options of the guide that have no effect here are accepted. An unknown name is an error,
because it is probably a typing mistake.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial

from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition

EARLIEST_OFFSET = -2
LATEST_OFFSET = -1
_NAMED = {"earliest": EARLIEST_OFFSET, "latest": LATEST_OFFSET}
DELAY_MS_MAX = 15 * 60 * 1000
"""The default of `maxTriggerDelay`, as in Spark's Kafka source."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of the named topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics whose full name matches a regular expression."""

    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Assign:
    """The named partitions."""

    partitions: tuple[TopicPartition, ...]


Selection = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True)
class Earliest:
    """The log start offset."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The log end offset at the time when the query is planned."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset per partition; -2 is the earliest, -1 the latest offset.

    `topics` has -2 or -1 for all partitions of a topic. `offsets` has no partitions of these topics.
    """

    offsets: Mapping[TopicPartition, int]
    topics: Mapping[str, int] = field(default_factory=dict)

    def has(self, named: int) -> bool:
        """Return whether a partition has the special offset `named`, -2 or -1."""
        return named in self.offsets.values() or named in self.topics.values()


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record of each partition with this timestamp or a later one."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The first record of each partition with a given timestamp or a later one; one timestamp per partition."""

    timestamps_ms: Mapping[TopicPartition, int]


Boundary = Earliest | Latest | AtOffsets | AtTimestamp | AtTimestamps


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of a query on the data source.

    `client_options` are the options with the prefix `kafka.`, without this prefix.
    """

    bootstrap: str
    selection: Selection
    starting: Boundary = Earliest()
    ending: Boundary = Latest()
    start_at_latest_if_no_later_record: bool = False
    fail_on_data_loss: bool = True
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    include_headers: bool = False
    include_raw_timestamp: bool = False
    client_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The parsed options of a streaming query.

    `records_min` and `records_max` count the offsets of all partitions in a batch; None is no limit. A batch with fewer
    than `records_min` waits until `delay_ms_max` after the last batch. The query commits its offsets to `commit_group`,
    so that its lag is visible; None commits nothing.
    """

    source: SourceOptions
    records_max: int | None = None
    records_min: int | None = None
    delay_ms_max: int = DELAY_MS_MAX
    commit_group: str | None = None


_SELECTIONS = ("subscribe", "subscribePattern", "assign")
_USED = (
    *_SELECTIONS,
    "startingOffsets",
    "endingOffsets",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "includeRawTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "commitToGroup",
)
# Spark's guide allows these options; they have no effect in this client. A query joins no group, so a prefix of the
# group id changes nothing.
_WITHOUT_EFFECT = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_ONLY_BATCH = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_UNITS_MS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_CLIENT_PREFIX = "kafka."
_BOOTSTRAP = "kafka.bootstrap.servers"
# Spark's Kafka source rejects these options, too: it sets them itself, and its columns are binary.
_CLIENT_REFUSED = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "the column key is binary: decode it with DataFrame functions",
    "kafka.value.deserializer": "the column value is binary: decode it with DataFrame functions",
    "kafka.enable.auto.commit": "a query commits no offsets; a streaming one does so with commitToGroup",
    "kafka.interceptor.classes": "there are no interceptors",
}


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse and check the options of a batch query. Options for streams have no effect.

    :raises ConfigurationError: An option is missing, unknown, contradictory or invalid.

    >>> parse_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a, b"}).selection
    Subscribe(topics=('a', 'b'))
    """
    parsed = parse_any_options(options)
    _refuse_senseless(parsed.starting, parsed.ending)
    return parsed


def parse_any_options(options: Mapping[str, str], *, starting: Boundary = Earliest()) -> SourceOptions:
    """Parse and check the options that batch and streaming queries share.

    :param starting: The default start of the query.
    :raises ConfigurationError: An option is missing, unknown, contradictory or invalid.
    """
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(options)
    return SourceOptions(
        bootstrap=parse_bootstrap(given),
        selection=_selection(given),
        starting=_boundary(given, "starting", starting),
        ending=_boundary(given, "ending", Latest()),
        start_at_latest_if_no_later_record=_strategy(given) == "latest",
        fail_on_data_loss=_boolean(given, "failOnDataLoss", True),
        partitions_min=_positive(given, "minPartitions"),
        records_per_partition_max=_positive(given, "maxRecordsPerPartition"),
        include_headers=_boolean(given, "includeHeaders", False),
        include_raw_timestamp=_boolean(given, "includeRawTimestamp", False),
        client_options=parse_client_options(given),
    )


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Parse and check the options of a streaming query, which starts at the latest offsets by default.

    :raises ConfigurationError: An option is missing, unknown, contradictory or invalid.

    >>> base = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "clicks"}
    >>> parse_stream_options(base | {"maxOffsetsPerTrigger": "1000"}).records_max
    1000
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in _ONLY_BATCH:
        if name.lower() in given:
            raise ConfigurationError(f"option {name!r} is for batch queries: a stream has no end")
    parsed = StreamOptions(
        source=parse_any_options(options, starting=Latest()),
        records_max=_positive(given, "maxOffsetsPerTrigger"),
        records_min=_positive(given, "minOffsetsPerTrigger"),
        delay_ms_max=_duration_ms(given, "maxTriggerDelay", DELAY_MS_MAX),
        commit_group=_text(given, "commitToGroup"),
    )
    if parsed.records_max is not None and parsed.records_min is not None and parsed.records_min > parsed.records_max:
        raise ConfigurationError(
            f"minOffsetsPerTrigger={parsed.records_min} is more than maxOffsetsPerTrigger={parsed.records_max}"
        )
    return parsed


def starts_at_end(options: SourceOptions) -> bool:
    """Return whether a query may start at a log end offset, which differs each time that the start is resolved."""
    if options.start_at_latest_if_no_later_record:
        return True
    if isinstance(options.starting, AtOffsets):
        return options.starting.has(LATEST_OFFSET)
    return isinstance(options.starting, Latest)


def parse_bootstrap(given: Mapping[str, str]) -> str:
    """Return the brokers' addresses.

    :param given: The options, with names in lower case.
    :raises ConfigurationError: The option is missing.
    """
    if not given.get(_BOOTSTRAP, "").strip():
        raise ConfigurationError(f"option {_BOOTSTRAP!r} is missing: set the brokers, as in 'localhost:9092'")
    return given[_BOOTSTRAP].strip()


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in (*_USED, *_WITHOUT_EFFECT)}
    for name in options:
        lowered = name.lower()
        if lowered in _CLIENT_REFUSED:
            raise ConfigurationError(f"option {name!r} cannot be set: {_CLIENT_REFUSED[lowered]}")
        if lowered in known or lowered.startswith(_CLIENT_PREFIX):
            continue
        if lowered == "path":
            raise ConfigurationError("load() takes no path: set the topics with option 'subscribe'")
        near = get_close_matches(lowered, [*known, _BOOTSTRAP], n=1)
        hint = f"did you mean {known.get(near[0], near[0])!r}?" if near else f"the options are {', '.join(_USED)}"
        raise ConfigurationError(f"unknown option {name!r}: {hint}")


def parse_client_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the prefix `kafka.`, without this prefix and without the brokers' addresses."""
    return {
        name.removeprefix(_CLIENT_PREFIX): value
        for name, value in given.items()
        if name.startswith(_CLIENT_PREFIX) and name not in (_BOOTSTRAP, "kafka.group.id")
    }


def _selection(given: Mapping[str, str]) -> Selection:
    chosen = [name for name in _SELECTIONS if name.lower() in given]
    if len(chosen) != 1:
        listed = ", ".join(map(repr, _SELECTIONS))
        raise ConfigurationError(f"set exactly one of the options {listed}; {len(chosen)} are set")
    value = given[chosen[0].lower()].strip()
    if not value:
        raise ConfigurationError(f"option {chosen[0]!r} is empty")
    if chosen[0] == "subscribe":
        return Subscribe(tuple(topic.strip() for topic in value.split(",") if topic.strip()))
    if chosen[0] == "assign":
        return Assign(_assigned(value))
    try:
        return SubscribePattern(re.compile(value))
    except re.error as error:
        raise ConfigurationError(f"option 'subscribePattern': invalid regular expression {value!r}: {error}") from error


def _assigned(value: str) -> tuple[TopicPartition, ...]:
    example = """as in '{"clicks": [0, 1]}'"""
    topics = _json_object("assign", value, example)
    partitions = []
    for topic, numbers in topics.items():
        if not isinstance(numbers, list) or not all(_is_int(number) and number >= 0 for number in numbers):
            raise ConfigurationError(f"option 'assign': {topic!r} needs a list of partition numbers, {example}")
        partitions += [TopicPartition(topic, number) for number in numbers]
    if not partitions:
        raise ConfigurationError(f"option 'assign' names no partition: {example}")
    return tuple(sorted(set(partitions)))


def _boundary(given: Mapping[str, str], side: str, default: Boundary) -> Boundary:
    """Parse the start or the end. A timestamp for all partitions precedes timestamps per partition, then offsets."""
    overall = given.get(f"{side}timestamp")
    if overall is not None:
        return AtTimestamp(_timestamp(f"{side}Timestamp", overall))
    by_timestamp = given.get(f"{side}offsetsbytimestamp")
    if by_timestamp is not None:
        return AtTimestamps(_per_partition(f"{side}OffsetsByTimestamp", by_timestamp, least=0))
    offsets = given.get(f"{side}offsets")
    if offsets is None:
        return default
    word = offsets.strip().lower()
    if word in _NAMED:
        return Earliest() if word == "earliest" else Latest()
    return _at_offsets(f"{side}Offsets", offsets)


def _at_offsets(name: str, value: str) -> AtOffsets:
    """Parse offsets such as `{"a": {"0": 23}, "b": "earliest"}`."""
    partitions: dict[str, object] = {}
    topics: dict[str, int] = {}
    for topic, at in _json_object(name, value, _hint(name, EARLIEST_OFFSET)).items():
        if isinstance(at, str) and at.lower() in _NAMED:
            topics[topic] = _NAMED[at.lower()]
        else:
            partitions[topic] = at
    return AtOffsets(_numbers(name, partitions, least=EARLIEST_OFFSET), topics)


def _refuse_senseless(starting: Boundary, ending: Boundary) -> None:
    if starting == Latest() or (isinstance(starting, AtOffsets) and starting.has(LATEST_OFFSET)):
        raise ConfigurationError("startingOffsets: a batch query cannot start at latest (-1): it would read nothing")
    if ending == Earliest() or (isinstance(ending, AtOffsets) and ending.has(EARLIEST_OFFSET)):
        raise ConfigurationError("endingOffsets: a batch query cannot end at earliest (-2): it would read nothing")


def _per_partition(name: str, value: str, least: int) -> dict[TopicPartition, int]:
    return _numbers(name, _json_object(name, value, _hint(name, least)), least)


def _hint(name: str, least: int) -> str:
    numbers_of_one = '"0": 1700000000000' if "Timestamp" in name else '"0": 23, "1": 7'
    hint = f"""a number for each partition, as in '{{"clicks": {{{numbers_of_one}}}}}'"""
    return hint + """, or earliest, latest, or one of these for a topic, as in '{"clicks": "earliest"}'""" * (least < 0)


def _numbers(name: str, topics: Mapping[str, object], least: int) -> dict[TopicPartition, int]:
    hint = _hint(name, least)
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            raise ConfigurationError(f"option {name!r}: {topic!r} needs {hint}")
        for partition, number in partitions.items():
            if not partition.isdecimal() or not _is_int(number) or number < least:
                raise ConfigurationError(f"option {name!r}: {topic}-{partition}: {number!r} is not {hint}")
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers


def parse_offsets(name: str, value: str) -> dict[TopicPartition, int]:
    """Parse offsets such as `{"clicks": {"0": 23}}`.

    :param name: The name of the option, for the error.
    :raises ConfigurationError: The value is not such a JSON object.

    >>> parse_offsets("--starting-offsets", '{"clicks": {"0": 23}}')
    {TopicPartition(topic='clicks', partition=0): 23}
    """
    return _per_partition(name, value, least=0)


def _json_object(name: str, value: str, hint: str) -> dict[str, object]:
    try:
        parsed = json.loads(value, object_pairs_hook=partial(_once, name))
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ConfigurationError(f"option {name!r}: {value!r} is not a JSON object; use {hint}")
    return parsed


def _once(name: str, pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Reject a duplicate name in a JSON object. Python's parser would silently use the last one."""
    for key, count in Counter(key for key, _value in pairs).items():
        if count > 1:
            raise ConfigurationError(f"option {name!r}: {key!r} occurs {count} times; use it once")
    return dict(pairs)


def _strategy(given: Mapping[str, str]) -> str:
    value = given.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if value not in ("error", "latest"):
        raise ConfigurationError(f"option 'startingOffsetsByTimestampStrategy': {value!r} is neither error nor latest")
    return value


def _timestamp(name: str, value: str) -> int:
    if not value.strip().isdecimal():
        raise ConfigurationError(f"option {name!r}: {value!r} is not a time in milliseconds since 1970 (UTC)")
    return int(value)


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    value = given.get(name.lower())
    if value is None:
        return default
    if value.strip().lower() not in ("true", "false"):
        raise ConfigurationError(f"option {name!r}: {value!r} is neither true nor false")
    return value.strip().lower() == "true"


def _positive(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name.lower())
    if value is None:
        return None
    if not value.strip().isdecimal() or int(value) == 0:
        raise ConfigurationError(f"option {name!r}: {value!r} is not a number above 0")
    return int(value)


def _text(given: Mapping[str, str], name: str) -> str | None:
    value = given.get(name.lower())
    if value is not None and not value.strip():
        raise ConfigurationError(f"option {name!r} is empty")
    return value if value is None else value.strip()


def _duration_ms(given: Mapping[str, str], name: str, default: int) -> int:
    """Parse a duration in Spark's format, `15m` or `500ms`; a number without a unit is milliseconds."""
    value = given.get(name.lower())
    if value is None:
        return default
    found = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", value.strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        raise ConfigurationError(f"option {name!r}: {value!r} is not a time, as in '15m', '30s' or '500ms'")
    return int(found[1]) * _UNITS_MS[found[2]]


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
