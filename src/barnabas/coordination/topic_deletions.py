"""Deletion notes: nodes that list the brokers that must still delete the files and offsets of a deleted topic.

A note is created before the topic is deleted. It exists until the last broker in the note has deleted its files. If a
starting broker finds a note for an existing topic, the deletion has not begun. The starting broker removes such a note,
because running brokers do not look for notes of existing topics. The same `multi` checks that the topic exists. A topic
is deleted only if its note is unchanged since the deleting broker wrote it. So no deletion happens without a note that
lists all its brokers. Only one kind of deletion needs no note: a broker reverts its own failed creation, and no other
broker has replicas (`topic_metadata_store.take_topic_back`).

A new topic may get the name of a deleted topic, and its nodes then have the same versions as the deleted nodes. So the
compare-and-set of a broker that does not know of the deletion could change the wrong topic. To prevent this, each write
to a topic's nodes checks in the same `multi` that the topic has not been deleted (`guards`). The check succeeds if the
note does not exist or is unchanged, because a deletion changes the note. A broker removes itself from the note after
its last write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from barnabas.coordination import paths
from barnabas.coordination.damaged_nodes import report_damaged
from barnabas.coordination.fields import DamagedNodeError
from barnabas.coordination.metadata_store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeError,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
)
from barnabas.coordination.subtrees import ensure_paths
from barnabas.coordination.values import Deletion, decode_deletion, decode_topic, encode_deletion

_TOPIC_ID = re.compile("[0-9a-f]{32}")


def note_deletion(tree: MetadataStore, topic_id: bytes, name: str, brokers: Iterable[int]) -> Set | None:
    """Create the deletion note of a topic before its deletion; return the operation that the deletion must include.

    The note permits brokers to delete the topic's files and offsets. It becomes durable together with the deletion. The
    returned operation writes the note with a new version. So the deletion fails if the topic has been deleted and
    created again since this call. If the deletion never begins, a starting broker removes the note
    (`forget_deletion_not_begun`).

    :param brokers: the brokers that must delete their files and offsets, in addition to those in an existing note.
    :returns: None if the topic does not exist; no note is created then. The caller may not know yet that the topic was
        deleted.
    """
    path, wanted = paths.deleted_topic_id(topic_id), set(brokers)
    ensure_paths(tree, [paths.DELETED_TOPIC_IDS])
    while True:
        # Read the note before the topic: a deletion after both reads changes the note's version.
        note = tree.exists(path)
        is_there = check_topic(tree, topic_id, name)
        if is_there is None:
            return None
        try:
            if note is None:
                content = encode_deletion(Deletion(name, tuple(sorted(wanted))))
                tree.multi([is_there, Create(path, content)])
                continue
            data, stat = tree.get(path)
            if stat.version != note.version:
                continue
            known = _noted_brokers(path, data)
            if known is not None and (not known or wanted <= known):  # An empty list of brokers stands for all brokers.
                return Set(path, data, stat.version)
            noted = encode_deletion(Deletion(name, tuple(sorted(wanted | (known or set())))))
            tree.multi([is_there, Set(path, noted, stat.version)])
            return Set(path, noted, stat.version + 1)
        except (BadVersionError, NoNodeError, NodeExistsError):
            continue  # Another broker has just changed the note or the topic.


def check_topic(tree: MetadataStore, topic_id: bytes, name: str) -> Check | None:
    """Return a check that makes a `multi` fail if a topic is changed or deleted.

    Return None if the topic does not exist now.

    A topic with a damaged node is treated as existing.
    """
    path = paths.topic(name)
    try:
        data, stat = tree.get(path)
        is_there = decode_topic(path, data).topic_id == topic_id
    except NoNodeError:
        return None
    except DamagedNodeError:
        is_there = True
    return Check(path, stat.version) if is_there else None


def _noted_brokers(path: str, data: bytes) -> set[int] | None:
    """Return the brokers in a deletion note; None if the note is damaged and may be overwritten."""
    try:
        return set(decode_deletion(path, data).brokers)
    except DamagedNodeError:
        return None


def forget_deletion_not_begun(tree: MetadataStore, topic_id: bytes) -> None:
    """Remove the deletion note of an existing topic, because its deletion has not begun.

    If a broker is about to delete the topic, it creates the note again. If the topic does not exist, the note stays.
    """
    path = paths.deleted_topic_id(topic_id)
    while True:
        try:
            data, stat = tree.get(path)
            topic_path = paths.topic(decode_deletion(path, data).name)
            topic_data, topic_stat = tree.get(topic_path)
            if decode_topic(topic_path, topic_data).topic_id != topic_id:
                return
            tree.multi([Check(topic_path, topic_stat.version), Delete(path, stat.version)])
        except (NoNodeError, DamagedNodeError):
            return
        except BadVersionError:
            continue  # Another broker has just changed the note or the topic.
        return


def _without(broker_id: int, path: str, deletion: Deletion, version: int) -> Operation:
    left = tuple(each for each in deletion.brokers if each != broker_id)
    return Set(path, encode_deletion(Deletion(deletion.name, left)), version) if left else Delete(path, version)


def end_deletion(tree: MetadataStore, topic_id: bytes, broker_id: int) -> None:
    """Remove a broker from a topic's deletion note, after the broker's last write to the topic.

    The last broker in a note deletes the note.
    """
    path = paths.deleted_topic_id(topic_id)
    while True:
        try:
            data, stat = tree.get(path)
            tree.multi([_without(broker_id, path, decode_deletion(path, data), stat.version)])
        except (NoNodeError, DamagedNodeError):
            return
        except BadVersionError:
            continue  # Another broker has just changed the note.
        return


Guards = Mapping[bytes, tuple[Operation, ...]]
"""The operations that make a `multi` fail if a topic has been deleted, by topic id."""


def guards(topic_ids: Iterable[bytes]) -> Guards:
    """Return guards for topics without a deletion note.

    If a note exists, the guards make the `multi` raise `NodeExistsError`.
    """
    found: dict[bytes, tuple[Operation, ...]] = {}
    for topic_id in topic_ids:
        path = paths.deleted_topic_id(topic_id)
        found[topic_id] = (Create(path), Delete(path))
    return found


def guards_by_notes(tree: MetadataStore, topics: Mapping[bytes, str]) -> Guards:
    """Return guards for topics with or without a deletion note. Topics with a note that no longer exist are left out.

    :param topics: topic names by topic id.
    """
    ensure_paths(tree, [paths.DELETED_TOPIC_IDS])
    found = dict(guards(topics))
    for topic_id, name in topics.items():
        note = tree.exists(paths.deleted_topic_id(topic_id))
        if note is not None and _is_there(tree, topic_id, name):
            found[topic_id] = (Check(paths.deleted_topic_id(topic_id), note.version),)
        elif note is not None:
            del found[topic_id]
    return found


def _is_there(tree: MetadataStore, topic_id: bytes, name: str) -> bool:
    path = paths.topic(name)
    try:
        return decode_topic(path, tree.get(path).data).topic_id == topic_id
    except NodeError:
        return False


def read_deletions(tree: MetadataStore) -> dict[bytes, Deletion]:
    """Return all deletion notes, by topic id. Each note lists brokers that have not finished the deletion.

    Damaged notes are skipped, so nothing is deleted because of them.
    """
    found = {}
    bad: list[NodeError] = []
    for path, node in tree.subtree(paths.DELETED_TOPIC_IDS).items():
        name = path.removeprefix(f"{paths.DELETED_TOPIC_IDS}/")
        try:
            if not _TOPIC_ID.fullmatch(name):
                raise DamagedNodeError(path, "its name is not a topic id")  # noqa: TRY301 - one place reports both
            found[bytes.fromhex(name)] = decode_deletion(path, node.data)
        except DamagedNodeError as error:
            bad.append(error)
    report_damaged(tree, bad, "skipping the deletion note")
    return found
