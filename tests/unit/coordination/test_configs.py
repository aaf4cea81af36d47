"""What is configured for topics, brokers and groups: changed by what it is, kept apart, told to the others."""

from __future__ import annotations

import pytest

from barnabas.coordination import configs, paths, topic_metadata_store
from barnabas.coordination.metadata_store import NoNodeError

TOPIC_ID = bytes(range(16))


@pytest.fixture(autouse=True)
def _prepared(tree):
    topic_metadata_store.prepare(tree, "cluster-1")


def test_configuration_is_replaced(tree):
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    assert configs.read_topic_config(tree, "clicks") == {}
    configs.change_topic_config(tree, "clicks", lambda _: {"a": "1", "b": "2"})
    configs.change_topic_config(tree, "clicks", lambda _: {"b": "3"})
    assert configs.read_topic_config(tree, "clicks") == {"b": "3"}
    assert topic_metadata_store.read_topics(tree)["clicks"].config == {"b": "3"}


def test_configurations_of_brokers_and_of_all_of_them_are_kept_apart(tree):
    configs.change_broker_config(tree, "", lambda _: {"a": "all"})
    configs.change_broker_config(tree, "1", lambda _: {"a": "one"})
    assert [configs.read_broker_config(tree, name) for name in ("", "1", "2")] == [{"a": "all"}, {"a": "one"}, {}]


def test_nothing_is_kept_of_a_group_without_settings(tree):
    assert configs.read_group_configs(tree) == {}
    configs.change_group_config(tree, "readers/1", lambda _: {"a": "1"})
    configs.change_group_config(tree, "others", lambda _: {"a": "2"})
    configs.change_group_config(tree, "others", lambda _: {})
    assert configs.read_group_configs(tree) == {"readers/1": {"a": "1"}}


def test_each_change_is_told(tree):
    before = len(tree.children(paths.CHANGES))
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    for number, write in enumerate((configs.change_topic_config, configs.change_broker_config), start=2):
        write(tree, "clicks" if number == 2 else "1", lambda _: {"a": "1"})
        assert len(tree.children(paths.CHANGES)) == before + number
    configs.change_group_config(tree, "readers", lambda _: {"a": "1"})
    configs.change_group_config(tree, "readers", lambda _: {})
    assert len(tree.children(paths.CHANGES)) == before + 5


@pytest.mark.parametrize(
    "change", [configs.change_topic_config, configs.change_broker_config, configs.change_group_config]
)
def test_change_that_others_make_meanwhile_is_kept(tree, change):
    """Simulated seed 101134: a broker that had not heard of a change took it back with the next one."""
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    overtaken = []

    def first(settings):
        if len(overtaken) < 2:  # the node is not there, and it is
            overtaken.append(change(tree, "clicks", lambda settings: {**settings, str(len(overtaken)): "theirs"}))
        return {**settings, "mine": "1"}

    assert change(tree, "clicks", first) == {"0": "theirs", "1": "theirs", "mine": "1"}
    assert change(tree, "clicks", dict) == {"0": "theirs", "1": "theirs", "mine": "1"}


def test_topic_made_again_is_not_changed_for_the_one_that_is_gone(tree):
    topic_metadata_store.create_topic(tree, "clicks", bytes(16), [[1]])
    with pytest.raises(NoNodeError):
        configs.change_topic_config(tree, "clicks", lambda _: {"a": "1"}, None, TOPIC_ID)
    assert configs.read_topic_config(tree, "clicks") == {}


def test_settings_that_cannot_be_understood_are_changed_by_what_was_known_of_them(tree):
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    tree.create(paths.topic_config("clicks"), b"{", make_parents=True)
    changed = configs.change_topic_config(tree, "clicks", lambda settings: {**settings, "b": "2"}, {"a": "1"})
    assert changed == configs.read_topic_config(tree, "clicks") == {"a": "1", "b": "2"}
