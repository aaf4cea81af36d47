"""The template of commits: the same member commits the same partitions again and again, at other offsets.

Nearly all commits are such ones. After one was carried out in full, those that repeat it are recognised by their bytes,
and what does not change of their records and answers is there already. The handler of OffsetCommit checks again all
that may have changed: whether the member may commit, whether the topics are still the same. Where anything has changed,
or the offsets cannot be stored at once, it carries the request out in full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.pipeline.call import Call
from barnabas.broker.topics import Topics
from barnabas.errors import ErrorCode
from barnabas.groups.records import Committed, OffsetRecord, encode_change
from barnabas.model import TopicPartition
from barnabas.protocol.codec import IntegerRequestTemplate, constant_response_encoder
from barnabas.records.batch_template import BatchTemplate

if TYPE_CHECKING:
    from barnabas.broker.group_service import GroupService
    from barnabas.broker.settings.dynamic import DynamicSettings
    from barnabas.broker.topics import Topic, Topics
    from barnabas.clock import Clock
    from barnabas.net.server_connection import Frame
    from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

PARTITIONS_MAX = 32
TEXT_CHARACTERS_MAX = 1024
"""A commit of more partitions, or with longer names and metadata, is not remembered: the memory is kept as long as the
connection."""


class CommitTemplates:
    """Learns which commits connections repeat. Used from the event loop's thread only."""

    def __init__(self, topics: Topics, groups: GroupService, settings: DynamicSettings, clock: Clock) -> None:
        self.topics = topics
        self.groups = groups
        self.settings = settings
        self.clock = clock

    def note(self, request: OffsetCommitRequest, response: OffsetCommitResponse, call: Call) -> None:
        """Note a commit that was carried out in full: all its offsets are stored."""
        templates = call.connection.templates
        before = templates.frame
        pauses = before.pauses if isinstance(before, CommitTemplate) else LearningPauses()
        if isinstance(before, CommitTemplate) and before.was_repeated:
            pauses.reset()
        if pauses.is_over() and _is_usual(request) and (topics := self._topics_of(request)) is not None:
            templates.frame = CommitTemplate(self, topics, request, response, call, pauses)

    def _topics_of(self, request: OffsetCommitRequest) -> list[Topic] | None:
        """Return the topics that a request names; None if one has been deleted meanwhile."""
        found = [self.topics.get(each.name) for each in request.topics]
        topics = [topic for topic in found if topic is not None]
        return topics if len(topics) == len(found) else None


class LearningPauses:
    """How many commits of one connection pass before the next one becomes the template.

    Making a template costs more than carrying out a commit. After each template that no commit repeated, the pause is
    twice as long as before.
    """

    __slots__ = ("_left", "_pause")

    def __init__(self) -> None:
        self._left = 0
        self._pause = 1

    def reset(self) -> None:
        """Note that a commit repeated the last template."""
        self._left, self._pause = 0, 1

    def is_over(self) -> bool:
        """Return True if the next commit becomes the template; otherwise count one commit that passes."""
        if self._left:
            self._left -= 1
            return False
        self._left = self._pause
        self._pause *= 2
        return True


class RepeatedCommit(NamedTuple):
    """A commit that repeats a template at other offsets."""

    template: CommitTemplate
    correlation_id: int
    offsets: tuple[int, ...]

    def store_at_once(self) -> bytes | None:
        """Store the offsets and return the frame of the answer; None if that cannot be done now."""
        return self.template.store_at_once(self.correlation_id, self.offsets)

    def in_full(self) -> OffsetCommitRequest:
        """Return the request as it would have been decoded."""
        request, offsets = self.template.request, iter(self.offsets)
        return replace(
            request,
            topics=[
                replace(topic, partitions=[replace(each, committed_offset=next(offsets)) for each in topic.partitions])
                for topic in request.topics
            ],
        )


class CommitTemplate:
    """A commit that was carried out, and what does not change when it is repeated (`FrameTemplate`)."""

    __slots__ = (
        "_answer",
        "_batch",
        "_config",
        "_fixed",
        "_frames",
        "_group",
        "_parts",
        "_topics",
        "client_id",
        "pauses",
        "request",
        "served",
        "version",
        "was_repeated",
    )

    def __init__(
        self,
        parts: CommitTemplates,
        topics: Sequence[Topic],
        request: OffsetCommitRequest,
        response: OffsetCommitResponse,
        call: Call,
        pauses: LearningPauses,
    ) -> None:
        self.was_repeated = False
        self.pauses = pauses
        self.request = request
        self.served, self.version, self.client_id = call.served, call.version, call.client_id
        self._parts = parts
        self._config = parts.settings.config
        self._group = (
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
        )
        self._topics = topics
        self._fixed = [
            (
                TopicPartition(topic.name, each.partition_index),
                each.committed_metadata or "",
                each.committed_leader_epoch,
                topic.id,
            )
            for topic, asked in zip(topics, request.topics, strict=True)
            for each in asked.partitions
        ]
        self._batch = BatchTemplate(self._records_with)
        self._answer: Callable[[int], bytes] = constant_response_encoder(response, call.version)
        self._frames = IntegerRequestTemplate(_with_offset(request), call.version, call.client_id)

    def recognise(self, frame: Frame) -> RepeatedCommit | None:
        """Return the request of a frame that repeats this one."""
        found = self._frames.recognise(frame)
        return None if found is None else RepeatedCommit(self, *found)

    def store_at_once(self, correlation_id: int, offsets: Sequence[int]) -> bytes | None:
        """Store offsets and return the frame of the answer; None if that cannot be done now."""
        if not self._holds():
            return None
        shard = self._parts.groups.find_for_commit(*self._group)
        if isinstance(shard, ErrorCode):
            return None
        clock = self._parts.clock
        committed_ms = clock.stored_ms()
        changes: list[OffsetRecord] = []
        numbers: list[int] = []
        for (where, metadata, leader_epoch, topic_id), offset in zip(self._fixed, offsets, strict=True):
            committed = Committed(offset, metadata, leader_epoch, committed_ms, topic_id)
            changes.append(OffsetRecord(self._group[0], where, committed))
            numbers += (offset, committed_ms)
        if not shard.log.write_at_once(self._batch.with_numbers(clock.time_ms(), numbers), changes):
            return None
        self.was_repeated = True
        return self._answer(correlation_id)

    def _holds(self) -> bool:
        """Whether its partitions are those that they were, and its metadata would still be accepted."""
        if self._parts.settings.config is not self._config:
            return False
        get = self._parts.topics.get
        return all([get(topic.name) is topic for topic in self._topics])  # noqa: C419  nearly always one

    def _records_with(self, number: int) -> list[tuple[bytes, bytes]]:
        """Return the records of a commit that has a number for all offsets and times."""
        records = []
        for where, metadata, leader_epoch, topic_id in self._fixed:
            committed = Committed(number, metadata, leader_epoch, number, topic_id)
            key, value = encode_change(OffsetRecord(self._group[0], where, committed))
            assert value is not None
            records.append((key, value))
        return records


def _is_usual(request: OffsetCommitRequest) -> bool:
    """Whether a commit is short, and names each of its partitions once."""
    texts = [request.group_id, request.member_id, request.group_instance_id or ""]
    places = []
    for topic in request.topics:
        places += [(topic.name, each.partition_index) for each in topic.partitions]
        texts += [topic.name, *(each.committed_metadata or "" for each in topic.partitions)]
    return 0 < len(places) == len(set(places)) <= PARTITIONS_MAX and sum(map(len, texts)) <= TEXT_CHARACTERS_MAX


def _with_offset(request: OffsetCommitRequest) -> Callable[[int], OffsetCommitRequest]:
    """Return what sets the offset of every partition of a request."""

    def with_offset(offset: int) -> OffsetCommitRequest:
        for topic in request.topics:
            for each in topic.partitions:
                each.committed_offset = offset
        return request

    return with_offset
