"""The fast path of offset commits.

A template recognizes commits that differ from an earlier commit only in their offsets.

A member usually commits the same partitions again and again. After one commit has been processed in full, the template
recognizes its repetitions by their bytes, and reuses the constant parts of records and responses. The OffsetCommit
handler still checks the group membership and the topics. If one of them has changed, or the offsets cannot be stored
immediately, the handler processes the commit in full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.pipeline.call import Call
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
"""The maximum number of characters in the names and metadata of a commit that becomes a template.

A template stays in memory as long as its connection, so larger commits do not become templates.
"""


class CommitTemplates:
    """Creates the commit templates of connections. Used from the event loop's thread only."""

    def __init__(self, topics: Topics, groups: GroupService, settings: DynamicSettings, clock: Clock) -> None:
        self.topics = topics
        self.groups = groups
        self.settings = settings
        self.clock = clock

    def note(self, request: OffsetCommitRequest, response: OffsetCommitResponse, call: Call) -> None:
        """Make a template from a successful commit if it is suitable. Called after the commit was processed in full."""
        templates = call.connection.templates
        before = templates.frame
        pauses = before.pauses if isinstance(before, CommitTemplate) else LearningPauses()
        if isinstance(before, CommitTemplate) and before.was_repeated:
            pauses.reset()
        if pauses.is_over() and _is_usual(request) and (topics := self._topics_of(request)) is not None:
            templates.frame = CommitTemplate(self, topics, request, response, call, pauses)

    def _topics_of(self, request: OffsetCommitRequest) -> list[Topic] | None:
        """Return the topics of a request, or None if one of them no longer exists."""
        found = [self.topics.get(each.name) for each in request.topics]
        topics = [topic for topic in found if topic is not None]
        return topics if len(topics) == len(found) else None


class LearningPauses:
    """Decides which commit of a connection becomes the next template.

    Creating a template costs more than a full commit. If no commit repeats a template, the number of commits before the
    next template doubles.
    """

    __slots__ = ("_left", "_pause")

    def __init__(self) -> None:
        self._left = 0
        self._pause = 1

    def reset(self) -> None:
        """Reset the number of commits before the next template, because a commit repeated the last template."""
        self._left, self._pause = 0, 1

    def is_over(self) -> bool:
        """Return whether the next commit becomes the template. If not, count this commit."""
        if self._left:
            self._left -= 1
            return False
        self._left = self._pause
        self._pause *= 2
        return True


class RepeatedCommit(NamedTuple):
    """A commit that differs from a template only in its offsets."""

    template: CommitTemplate
    correlation_id: int
    offsets: tuple[int, ...]

    def store_at_once(self) -> bytes | None:
        """Store the offsets and return the response frame, or None if the offsets cannot be stored immediately."""
        return self.template.store_at_once(self.correlation_id, self.offsets)

    def in_full(self) -> OffsetCommitRequest:
        """Return the full request, as decoded from its frame."""
        request, offsets = self.template.request, iter(self.offsets)
        return replace(
            request,
            topics=[
                replace(topic, partitions=[replace(each, committed_offset=next(offsets)) for each in topic.partitions])
                for topic in request.topics
            ],
        )


class CommitTemplate:
    """A template from a completed commit, with the constant parts of its repetitions. Implements `FrameTemplate`."""

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
        """Return the request if its frame repeats this commit, or None if the frame must be decoded."""
        found = self._frames.recognise(frame)
        return None if found is None else RepeatedCommit(self, *found)

    def store_at_once(self, correlation_id: int, offsets: Sequence[int]) -> bytes | None:
        """Store the offsets of a repetition.

        Return the response frame, or None if the offsets cannot be stored immediately.
        """
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
        """Return whether the topics and the settings are unchanged since the template was made."""
        if self._parts.settings.config is not self._config:
            return False
        get = self._parts.topics.get
        return all([get(topic.name) is topic for topic in self._topics])  # noqa: C419 - faster than a generator

    def _records_with(self, number: int) -> list[tuple[bytes, bytes]]:
        """Return the records of this commit, with `number` in place of each offset and commit time."""
        records = []
        for where, metadata, leader_epoch, topic_id in self._fixed:
            committed = Committed(number, metadata, leader_epoch, number, topic_id)
            key, value = encode_change(OffsetRecord(self._group[0], where, committed))
            assert value is not None
            records.append((key, value))
        return records


def _is_usual(request: OffsetCommitRequest) -> bool:
    """Return whether a commit is small, and contains no partition twice."""
    texts = [request.group_id, request.member_id, request.group_instance_id or ""]
    places = []
    for topic in request.topics:
        places += [(topic.name, each.partition_index) for each in topic.partitions]
        texts += [topic.name, *(each.committed_metadata or "" for each in topic.partitions)]
    return 0 < len(places) == len(set(places)) <= PARTITIONS_MAX and sum(map(len, texts)) <= TEXT_CHARACTERS_MAX


def _with_offset(request: OffsetCommitRequest) -> Callable[[int], OffsetCommitRequest]:
    """Return a function that sets the same offset for every partition of a request."""

    def with_offset(offset: int) -> OffsetCommitRequest:
        for topic in request.topics:
            for each in topic.partitions:
                each.committed_offset = offset
        return request

    return with_offset
