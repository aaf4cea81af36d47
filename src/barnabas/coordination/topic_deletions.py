"""Notes of topic deletions: the brokers that still have to do their part, which allows the deletion of their files.

A note exists before the topic goes, and stays until the last broker has done its part. A starting broker may find a
note of a topic that exists: the deletion has not begun. It removes such a note for all brokers, in a step that requires
the topic, because running brokers never look at it. A topic goes only while its note is as the deleting broker has
written it. So every broker takes part in a deletion that takes place. Only a creation that its broker takes back,
without replicas elsewhere, needs no note (`topic_metadata_store.take_topic_back`).

A topic may be created again under its name, and its nodes then have the versions of the deleted topic's nodes. So a
compare-and-set by a broker that has not heard of the deletion could change the wrong topic. A write to the nodes of a
topic therefore requires in the same step that this topic is not deleted (`guards`): there is no note, or the note is as
it was before the deletion, which changes the note. A broker ends its part of a deletion after its last write.
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
    """Note, before a topic is deleted, that its files and offsets may be removed; durable with the deletion.

    Return what the deletion has to write as well, which leaves the note as it is, with another version: so it deletes
    this topic, and not one that others have made under its name since. None, and no note, if this topic is not there:
    whoever deletes it may not have heard of that yet. A broker that starts finds a topic whose deletion was not begun,
    and removes the note (`forget_deletion_not_begun`).

    :param brokers: who has to do that; with those that an earlier attempt has noted.
    """
    path, wanted = paths.deleted_topic_id(topic_id), set(brokers)
    ensure_paths(tree, [paths.DELETED_TOPIC_IDS])
    while True:
        # First the note: the deletion of what is found there after it would change it, and so the version be another.
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
            if known is not None and (not known or wanted <= known):  # a note that names nobody is for all
                return Set(path, data, stat.version)
            noted = encode_deletion(Deletion(name, tuple(sorted(wanted | (known or set())))))
            tree.multi([is_there, Set(path, noted, stat.version)])
            return Set(path, noted, stat.version + 1)
        except (BadVersionError, NoNodeError, NodeExistsError):
            continue  # somebody has just changed the note, or the topic


def check_topic(tree: MetadataStore, topic_id: bytes, name: str) -> Check | None:
    """Return what a `multi` needs to do nothing where a topic is not there any more; None if it is not there now.

    One whose node cannot be understood is taken to be the one.
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
    """Return the brokers that a note names; None if it cannot be understood, and may be written anew."""
    try:
        return set(decode_deletion(path, data).brokers)
    except DamagedNodeError:
        return None


def forget_deletion_not_begun(tree: MetadataStore, topic_id: bytes) -> None:
    """Remove the note of a deletion that was not begun: the topic is there, and nobody has to do anything.

    Whoever is about to delete it then notes that anew. If the topic has gone meanwhile, the note stays as it is.
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
            continue  # the note or the topic has just been changed
        return


def _without(broker_id: int, path: str, deletion: Deletion, version: int) -> Operation:
    left = tuple(each for each in deletion.brokers if each != broker_id)
    return Set(path, encode_deletion(Deletion(deletion.name, left)), version) if left else Delete(path, version)


def end_deletion(tree: MetadataStore, topic_id: bytes, broker_id: int) -> None:
    """Note that nothing is left of a deleted topic on this broker; the last one forgets that it was deleted."""
    path = paths.deleted_topic_id(topic_id)
    while True:
        try:
            data, stat = tree.get(path)
            tree.multi([_without(broker_id, path, decode_deletion(path, data), stat.version)])
        except (NoNodeError, DamagedNodeError):
            return
        except BadVersionError:
            continue  # another broker is done as well
        return


Guards = Mapping[bytes, tuple[Operation, ...]]
"""By the topic's id: what a `multi` needs to do nothing where that topic is deleted."""


def guards(topic_ids: Iterable[bytes]) -> Guards:
    """Return guards for topics of which no deletion is noted; where one is, `NodeExistsError` is raised."""
    found: dict[bytes, tuple[Operation, ...]] = {}
    for topic_id in topic_ids:
        path = paths.deleted_topic_id(topic_id)
        found[topic_id] = (Create(path), Delete(path))
    return found


def guards_by_notes(tree: MetadataStore, topics: Mapping[bytes, str]) -> Guards:
    """Return guards for those of some topics that are there, deletions of which may be noted.

    :param topics: names by id.
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
    """Return the topics whose deletion was noted and has not ended everywhere, by id.

    A note that cannot be understood is passed over: then nothing is removed.
    """
    found = {}
    bad: list[NodeError] = []
    for path, node in tree.subtree(paths.DELETED_TOPIC_IDS).items():
        name = path.removeprefix(f"{paths.DELETED_TOPIC_IDS}/")
        try:
            if not _TOPIC_ID.fullmatch(name):
                raise DamagedNodeError(path, "its name is no topic id")  # noqa: TRY301 - one place reports both
            found[bytes.fromhex(name)] = decode_deletion(path, node.data)
        except DamagedNodeError as error:
            bad.append(error)
    report_damaged(tree, bad, "skipping the note of a deletion")
    return found
