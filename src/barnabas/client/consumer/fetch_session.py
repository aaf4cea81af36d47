"""The reader's side of a fetch session (KIP-227): what the broker remembers need not be said again. No I/O.

While a consumer waits for new records it asks for the same partitions over and over, and nearly all of them have
nothing new. In a session a request names only those whose offset has changed, and an answer only those with news.
The broker's side is `barnabas.broker.fetch_sessions`.
"""

from __future__ import annotations

from barnabas.client.consumer.fetcher import SinglePartitionFetch
from barnabas.protocol.messages.fetch import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    next_session_epoch,
)

SESSIONS_SINCE = 7
"""The version of Fetch that brought sessions."""


class FetchSession:
    """The fetches of one connection to a broker: each request is made after the answer to the one before."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: dict[tuple[str, int], FetchPartition] = {}
        """What the broker remembers if the last request has reached it."""

    @property
    def is_open(self) -> bool:
        """Whether the broker remembers what was asked for, so that it looks after the order, too."""
        return self._epoch != INITIAL_EPOCH

    def incremental_request(self, request: FetchRequest) -> FetchRequest:
        """Return what to send for `request`, which names all that is wanted: without what the broker remembers."""
        wanted = {(topic.topic, part.partition): part for topic in request.topics for part in topic.partitions}
        known, self._known = self._known, wanted
        if not self.is_open:
            return self._said(request, request.topics)
        said = self._said(request, _changed(request.topics, known))
        if known.keys() != wanted.keys():
            said.forgotten_topics_data = _forgotten(known, wanted)
        return said

    def continue_with(self, topic: str, part: FetchPartition) -> tuple[int, int] | None:
        """Take note of a request that says one partition anew, and is as the one before in all else.

        :returns: its session id and epoch; None if there is no session, so that all has to be said.
        """
        if not self.is_open:
            return None
        self._known[topic, part.partition] = part
        return self._id, self._epoch

    def _said(self, request: FetchRequest, topics: list[FetchTopic]) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=topics,
            rack_id=request.rack_id,
        )

    def on_response(self, response: FetchResponse | SinglePartitionFetch) -> None:
        """Go on after an answer that is no error."""
        if response.session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH  # the broker has no room for one
        else:
            self._id = response.session_id
            self._epoch = next_session_epoch(self._epoch)

    def closing_request(self) -> FetchRequest | None:
        """Return what to send so that the broker need not remember this session any longer; None if there is none."""
        if self._id == NO_SESSION:
            return None
        return FetchRequest(max_wait_ms=0, min_bytes=0, session_id=self._id, session_epoch=FINAL_EPOCH, topics=[])

    def reset(self) -> None:
        """Say everything again: nobody knows whether the last request has reached the broker."""
        self._epoch = INITIAL_EPOCH


def _changed(topics: list[FetchTopic], known: dict[tuple[str, int], FetchPartition]) -> list[FetchTopic]:
    changed: list[FetchTopic] = []
    for topic in topics:
        name = topic.topic
        parts: list[FetchPartition] = [
            part
            for part in topic.partitions
            # Nearly all are the very objects of the request before.
            if (before := known.get((name, part.partition))) is not part and not _is_same(before, part)
        ]
        if parts:
            changed.append(FetchTopic(topic=topic.topic, partitions=parts))
    return changed


def _is_same(before: FetchPartition | None, part: FetchPartition) -> bool:
    return (
        before is not None
        and before.fetch_offset == part.fetch_offset
        and before.partition_max_bytes == part.partition_max_bytes
    )


def _forgotten(
    known: dict[tuple[str, int], FetchPartition], wanted: dict[tuple[str, int], FetchPartition]
) -> list[ForgottenTopic]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(known.keys() - wanted.keys()):
        topics.setdefault(topic, []).append(partition)
    return [ForgottenTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()]
