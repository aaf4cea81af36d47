"""The options of the data source, checked and typed. Pure: no Spark, no broker.

Names and meanings are those of Spark's Kafka source (its Structured Streaming + Kafka integration guide). Names
compare without regard to case, as Spark's options do. What the guide allows and what has no effect here is accepted;
a name that is unknown is an error, as it is most likely a typing mistake.
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
"""What Spark's source has where `maxTriggerDelay` is not given."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Every partition of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """Every partition of the topics whose whole name matches a regular expression."""

    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


Selection = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first record that the log still has."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of the log when the query is planned."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; -2 is the earliest, -1 the latest.

    `topics` has one of these two for all partitions of a topic, which are then not in `offsets`.
    """

    offsets: Mapping[TopicPartition, int]
    topics: Mapping[str, int] = field(default_factory=dict)

    def has(self, named: int) -> bool:
        """Whether some partition is at -2 or at -1."""
        return named in self.offsets.values() or named in self.topics.values()


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record of each partition whose timestamp is at least this one."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The same with a timestamp for each partition."""

    timestamps_ms: Mapping[TopicPartition, int]


Boundary = Earliest | Latest | AtOffsets | AtTimestamp | AtTimestamps


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query on the data source asked for.

    `client_options` are the options that began with `kafka.`, without that prefix.
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
    """What a streaming query asked for: what to read, and how much of it in one batch.

    `records_min` and `records_max` are offsets of all partitions together; None: no limit. A batch with fewer than
    `records_min` waits, but no longer than `delay_ms_max` after the one before it. `commit_group` is the group whose
    offsets tell how far the query is; None: none.
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
# Allowed by Spark's guide, and without effect on this client. No group is joined to read,
# so a prefix of its name changes nothing.
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
# Spark's source refuses these too: it sets them itself, and columns are bytes.
_CLIENT_REFUSED = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "the column key is binary: decode it with DataFrame functions",
    "kafka.value.deserializer": "the column value is binary: decode it with DataFrame functions",
    "kafka.enable.auto.commit": "a query commits no offsets; a streaming one does so with commitToGroup",
    "kafka.interceptor.classes": "there are no interceptors",
}


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Check the options of a batch query. Those that only matter to streams have no effect.

    :raises ConfigurationError: one is missing, unknown, contradictory or has a value that it cannot have.

    >>> parse_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a, b"}).selection
    Subscribe(topics=('a', 'b'))
    """
    parsed = parse_any_options(options)
    _refuse_senseless(parsed.starting, parsed.ending)
    return parsed


def parse_any_options(options: Mapping[str, str], *, starting: Boundary = Earliest()) -> SourceOptions:
    """Check what holds for queries of both kinds, before it is known which one it is.

    :param starting: where to start if no option says it.
    :raises ConfigurationError: one is missing, unknown, contradictory or has a value that it cannot have.
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
    """Check the options of a streaming query, which starts at the latest records unless it is told otherwise.

    :raises ConfigurationError: one is missing, unknown, contradictory or has a value that it cannot have.

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
    """Return whether a query may start where the log ends when it begins, which is another place a moment later."""
    if options.start_at_latest_if_no_later_record:
        return True
    if isinstance(options.starting, AtOffsets):
        return options.starting.has(LATEST_OFFSET)
    return isinstance(options.starting, Latest)


def parse_bootstrap(given: Mapping[str, str]) -> str:
    """Return the brokers' addresses.

    :param given: options under names in lower case.
    :raises ConfigurationError: there are none.
    """
    if not given.get(_BOOTSTRAP, "").strip():
        raise ConfigurationError(f"option {_BOOTSTRAP!r} is missing: give the brokers, as in 'localhost:9092'")
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
            raise ConfigurationError("load() takes no path: name the topics with option 'subscribe'")
        near = get_close_matches(lowered, [*known, _BOOTSTRAP], n=1)
        hint = f"did you mean {known.get(near[0], near[0])!r}?" if near else f"known are {', '.join(_USED)}"
        raise ConfigurationError(f"unknown option {name!r}: {hint}")


def parse_client_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that began with `kafka.`, without that prefix and without the brokers' addresses."""
    return {
        name.removeprefix(_CLIENT_PREFIX): value
        for name, value in given.items()
        if name.startswith(_CLIENT_PREFIX) and name not in (_BOOTSTRAP, "kafka.group.id")
    }


def _selection(given: Mapping[str, str]) -> Selection:
    chosen = [name for name in _SELECTIONS if name.lower() in given]
    if len(chosen) != 1:
        listed = ", ".join(map(repr, _SELECTIONS))
        raise ConfigurationError(f"give exactly one of the options {listed}; given: {len(chosen)}")
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
        raise ConfigurationError(f"option 'subscribePattern': {value!r} is no regular expression: {error}") from error


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
    """Read the options of one side; a timestamp for all comes first, then by partition, then offsets."""
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
    """Read `{"a": {"0": 23}, "b": "earliest"}`."""
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
    """Return the offsets of `{"clicks": {"0": 23}}`.

    :raises ConfigurationError: it is something else; the message has `name`.

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
        raise ConfigurationError(f"option {name!r}: {value!r} is not a JSON object; give {hint}")
    return parsed


def _once(name: str, pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse a name that is there twice: JSON's reader would take the last one without a word."""
    for key, count in Counter(key for key, _value in pairs).items():
        if count > 1:
            raise ConfigurationError(f"option {name!r}: {key!r} is there {count} times: give it once")
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
    """Read a time as Spark writes it, `15m` or `500ms`; a number alone is milliseconds."""
    value = given.get(name.lower())
    if value is None:
        return default
    found = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", value.strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        raise ConfigurationError(f"option {name!r}: {value!r} is not a time, as in '15m', '30s' or '500ms'")
    return int(found[1]) * _UNITS_MS[found[2]]


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
