"""What is configured for topics, brokers and groups: replaced as a whole, kept apart, told to the others."""

from __future__ import annotations

import pytest

from barnabas.coordination import configs, paths, registry

TOPIC_ID = bytes(range(16))


@pytest.fixture(autouse=True)
def _prepared(tree):
    registry.prepare(tree, "cluster-1")


def test_configuration_is_replaced(tree):
    registry.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    assert configs.read_topic_config(tree, "clicks") == {}
    configs.write_topic_config(tree, "clicks", {"a": "1", "b": "2"})
    configs.write_topic_config(tree, "clicks", {"b": "3"})
    assert configs.read_topic_config(tree, "clicks") == {"b": "3"}
    assert registry.read_topics(tree)["clicks"].config == {"b": "3"}


def test_configurations_of_brokers_and_of_all_of_them_are_kept_apart(tree):
    configs.write_broker_config(tree, "", {"a": "all"})
    configs.write_broker_config(tree, "1", {"a": "one"})
    assert [configs.read_broker_config(tree, name) for name in ("", "1", "2")] == [{"a": "all"}, {"a": "one"}, {}]


def test_nothing_is_kept_of_a_group_without_settings(tree):
    assert configs.read_group_configs(tree) == {}
    configs.write_group_config(tree, "readers/1", {"a": "1"})
    configs.write_group_config(tree, "others", {"a": "2"})
    configs.write_group_config(tree, "others", {})
    assert configs.read_group_configs(tree) == {"readers/1": {"a": "1"}}


def test_each_change_is_told(tree):
    before = len(tree.children(paths.CHANGES))
    registry.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    for number, write in enumerate((configs.write_topic_config, configs.write_broker_config), start=2):
        write(tree, "clicks" if number == 2 else "1", {"a": "1"})
        assert len(tree.children(paths.CHANGES)) == before + number
    configs.write_group_config(tree, "readers", {"a": "1"})
    configs.write_group_config(tree, "readers", {})
    assert len(tree.children(paths.CHANGES)) == before + 5
