"""The consumer that programs use: iterate, poll or take streams; a background thread fetches ahead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from barnabas.client.config import ConsumerConfig, make_config
from barnabas.client.consumer.application import ApplicationSide, Committable
from barnabas.client.consumer.cursor import Cursor
from barnabas.client.consumer.engine import ConsumerEngine
from barnabas.client.consumer.frames import import_for_frames, to_pandas, to_polars
from barnabas.client.consumer.shells import BlockingShell, Listener, run_to_its_end
from barnabas.client.loop_thread import at_exit
from barnabas.client.streams import MessageStream
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ClosedError
from barnabas.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from barnabas.records import Record

if TYPE_CHECKING:
    import pandas
    import polars  # type: ignore[import-not-found, unused-ignore]
    import pyarrow

COLUMNS_MAX = 100_000
"""Records that one poll for columns returns at most, if not told otherwise."""


class Consumer:
    """Reads records of topics, alone or as a member of a group.

    :param bootstrap: `"host:port,..."`, or a dict of settings under Kafka's names.
    :param group: the group's name; its members share the partitions and the committed offsets. None: the
        consumer reads alone, all partitions of what it subscribes to, and commits nothing.
    :param settings: see `barnabas.client.config.ConsumerConfig`; keyword arguments win over the dict.
    :raises ConfigurationError: a setting that does not exist or cannot be.

    One thread at a time may poll or iterate; message streams have a thread each. The ways of reading may be mixed.

        with barnabas.Consumer("localhost:9092", group="ctr") as consumer:
            consumer.subscribe("clicks")
            for record in consumer:
                ...
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str] | Mapping[str, Any] | None = None,
        *,
        group: str | None = None,
        **settings: Any,
    ) -> None:
        if group is not None:
            settings["group"] = group
        config = make_config(ConsumerConfig, bootstrap, settings)
        self._clock = SYSTEM_CLOCK
        self._shell = BlockingShell("barnabas-consumer", self._after_fork)
        self._application = ApplicationSide(config, self._shell, self._clock)
        self._slices = Slices(self._application, self._application.cursor)
        run_to_its_end(self._shell.run(self._application.start()))
        at_exit(self)

    def _after_fork(self, error: ClosedError) -> None:
        self._application.stop_with(error)

    @property
    def _engine(self) -> ConsumerEngine:
        return self._application.engine

    @property
    def _waiting(self) -> int:
        return self._application.reading.waiting

    # --- what to read -----------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Read these topics from now on, instead of those before; with a group, share them with its members.

        :param pattern: a regular expression; all topics whose whole name matches, those created later too.
        :param on_assign: called with the partitions that this consumer gets; it may seek in them.
        :param on_revoke: called with those that it gives up; it may commit for them.
        :param on_lost: called instead of `on_revoke` with those that others have already, because the group has
            gone on without this consumer; nothing can be committed for them. All are called by the thread that
            polls.
        :raises ConfigurationError: neither topics nor pattern, or partitions were assigned by hand.
        """
        self._application.subscribe(topics, pattern, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions, whatever a group may say.

        :raises ConfigurationError: topics were subscribed to.
        """
        self._application.assign(partitions)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this consumer reads now."""
        return self._application.assignment()

    def unsubscribe(self) -> None:
        """Read nothing any more; leave the group, if in one."""
        run_to_its_end(self._application.unsubscribe())

    def create_message_streams(self, counts: Mapping[str, int]) -> dict[str, list[MessageStream]]:
        """Subscribe to topics and return as many streams of each as `counts` says (paper, section 3).

        Each stream is an iterator for a thread of its own; the partitions that this consumer has are divided
        among the streams of their topic. `close()` ends them.
        """
        streams: dict[str, list[MessageStream]] = {}
        for topic, number, cursor in self._application.divide(counts):
            slices = Slices(self._application, cursor)
            streams.setdefault(topic, []).append(MessageStream(topic, number, slices))
        self.subscribe(counts)
        return streams

    # --- reading ----------------------------------------------------------------------------------------

    def poll(self, max_records: int = 500, timeout_s: float = 1.0) -> list[Record]:
        """Return the next records, at most `max_records`, or none if none came within `timeout_s`.

        Asking for more says that the records before have been dealt with: auto-commit commits them.

        :raises KafkaError: no valid offset to start from, a group that does not want this member ...
        :raises CorruptBatchError: a damaged batch; the position stays before it.
        :raises DisconnectedError: no broker could be reached for `default_api_timeout_ms`.
        """
        self._application.check_undivided()
        return run_to_its_end(self._application.reading.take_list(max_records, timeout_s))

    def poll_arrow(self, max_records: int = COLUMNS_MAX, timeout_s: float = 1.0) -> pyarrow.RecordBatch:
        """Return the next records as columns, none if none came within `timeout_s`; else like `poll`.

        The columns are topic, partition, offset, timestamp, timestamp_type, key, value and headers. No object is
        made for a record, and other threads run while batches are decoded.

        :raises ConfigurationError: pyarrow is not installed.
        """
        self._application.check_undivided()
        return run_to_its_end(self._application.reading.take_columns(max_records, timeout_s))

    def poll_polars(self, max_records: int = COLUMNS_MAX, timeout_s: float = 1.0) -> polars.DataFrame:
        """Return what `poll_arrow` would as a data frame of polars.

        :raises ConfigurationError: polars or pyarrow is not installed.
        """
        import_for_frames("polars")
        return to_polars(self.poll_arrow(max_records, timeout_s))

    def poll_pandas(self, max_records: int = COLUMNS_MAX, timeout_s: float = 1.0) -> pandas.DataFrame:
        """Return what `poll_arrow` would as a data frame of pandas.

        :raises ConfigurationError: pandas or pyarrow is not installed.
        """
        import_for_frames("pandas")
        return to_pandas(self.poll_arrow(max_records, timeout_s))

    def __iter__(self) -> Iterator[Record]:
        self._application.check_undivided()
        return self._slices.records

    def __next__(self) -> Record:
        return next(iter(self))

    # --- positions --------------------------------------------------------------------------------------

    def position(self, tp: tuple[str, int], timeout_s: float | None = None) -> int:
        """Return the offset of the next record of a partition, looking it up if need be.

        :raises ConfigurationError: the partition is not assigned to this consumer.
        :raises TimedOutError: it could not be found out in time.
        """
        return run_to_its_end(self._application.position(tp, timeout_s))

    def seek(self, tp: tuple[str, int], offset: int) -> None:
        """Go on reading a partition at `offset`: rewind, or skip ahead.

        :raises ConfigurationError: the partition is not assigned to this consumer, or the offset is negative.
        """
        self._application.seek(tp, offset)

    def seek_to_beginning(self, *tps: tuple[str, int]) -> None:
        """Go to the first offset of partitions, of all assigned ones if none is named."""
        self._application.seek_by_policy(tps, "earliest")

    def seek_to_end(self, *tps: tuple[str, int]) -> None:
        """Go past the last offset of partitions, of all assigned ones if none is named."""
        self._application.seek_by_policy(tps, "latest")

    def pause(self, *tps: tuple[str, int]) -> None:
        """Hand out no records of these partitions until `resume`; they stay assigned."""
        self._application.set_paused(tps, True)

    def resume(self, *tps: tuple[str, int]) -> None:
        """Hand out records of these partitions again."""
        self._application.set_paused(tps, False)

    # --- offsets ----------------------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[TopicPartition, Committable] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Commit offsets for the group and wait until it is done.

        :param offsets: per partition the next offset to read, with or without metadata; None commits
            everything that was handed out, the record in hand included.
        :raises ConfigurationError: the consumer has no group.
        :raises KafkaError: the partitions may have gone to other members (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION),
            or are being shared anew (REBALANCE_IN_PROGRESS: poll, then commit for what is left).
        :raises FencedError: another consumer has joined with the same `group_instance_id`.
        """
        run_to_its_end(self._application.commit(offsets, timeout_s))

    def committed(self, tp: tuple[str, int], timeout_s: float | None = None) -> OffsetAndMetadata | None:
        """Return what the group has committed for a partition, or None."""
        return run_to_its_end(self._application.committed(tp, timeout_s))

    def beginning_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return run_to_its_end(self._application.beginning_offsets(tps))

    def end_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        return run_to_its_end(self._application.end_offsets(tps))

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return for each partition the first offset with a timestamp of at least the one given, or None."""
        return run_to_its_end(self._application.offsets_for_times(timestamps_ms))

    # --- finishing --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit (if auto-commit is on) what was handed out, leave the group, end the background thread.

        Ends running iterations and streams of other threads. May be called again.
        """
        run_to_its_end(self._application.close(all_done=True))

    def close_at_exit(self) -> None:
        """Leave the group when the program ends; records in hand were not dealt with for sure."""
        run_to_its_end(self._application.close(all_done=False))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception the record in hand was not dealt with: the group shall see it again.
        run_to_its_end(self._application.close(all_done=error is None))

    def __repr__(self) -> str:
        return f"<Consumer{self._application}>"


class Slices(Iterator[Iterator[Record]]):
    """Iterators over stretches of records, one after the other, until the consumer is closed.

    `records` chains them, so that no Python code runs between the records of a stretch. An error ends a chain for
    good; then there is a new one, with which the iteration goes on where it was.
    """

    def __init__(self, application: ApplicationSide, cursor: Cursor) -> None:
        self._application = application
        self._cursor = cursor
        self.records: Iterator[Record] = chain.from_iterable(self)

    def __next__(self) -> Iterator[Record]:
        try:
            return run_to_its_end(self._application.reading.next_slice(self._cursor))
        except BaseException as error:
            if isinstance(error, ClosedError) and self._application.closed:
                raise StopIteration from None
            self.records = chain.from_iterable(self)
            raise
