"""Notes of deletions in a tree, of topics that are there or not."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.coordination import paths
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.coordination.values import Deletion, encode_deletion


def note(tree: MetadataStore, topic_id: bytes, name: str, brokers: Iterable[int]) -> None:
    """Note a deletion, as a broker did that has deleted the topic since."""
    noted = encode_deletion(Deletion(name, tuple(sorted(brokers))))
    tree.create(paths.deleted_topic_id(topic_id), noted, make_parents=True)
