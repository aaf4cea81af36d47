"""DescribeLogDirs (key 35): return the log directories of a broker, and the sizes of their logs (KIP-113).

Version 2 is the first flexible version, version 3 adds an error code for the whole response, version 4 adds the size of
the volume (KIP-827).
"""

from __future__ import annotations

from barnabas.protocol.declare import BOOLEAN, INT16, INT32, INT64, STRING, array, field, message, nullable, struct


@struct
class DescribableLogDirTopic:
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@message(api_key=35, versions="1-4", flexible="2+")
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = field(nullable(array(DescribableLogDirTopic)))


@struct
class DescribeLogDirsPartition:
    partition_index: int = field(INT32)
    partition_size: int = field(INT64)
    offset_lag: int = field(INT64)
    is_future_key: bool = field(BOOLEAN)


@struct
class DescribeLogDirsTopic:
    name: str = field(STRING)
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition))


@struct
class DescribeLogDirsResult:
    error_code: int = field(INT16)
    log_dir: str = field(STRING)
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic))
    total_bytes: int = field(INT64, since=4, default=-1, ignorable=True)
    usable_bytes: int = field(INT64, since=4, default=-1, ignorable=True)


@message(api_key=35, versions="1-4", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, since=3, default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult))
