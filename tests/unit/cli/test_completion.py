"""What the shell completes."""

from __future__ import annotations

import pytest

from barnabas.cli.commands import COMMANDS
from barnabas.cli.main import main
from barnabas.model import OffsetAndMetadata, TopicPartition


@pytest.fixture
def complete(monkeypatch, capfd):
    """Returns what bash would be offered for the last of some words."""

    def offer(*words: str) -> list[str]:
        monkeypatch.setenv("_BARNABAS_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(["barnabas", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit):
            main([])
        out, err = capfd.readouterr()
        assert err == ""
        return [line.partition(",")[2] for line in out.splitlines() if line]

    return offer


def test_commands_and_their_options(complete) -> None:
    assert complete("") == list(COMMANDS)
    assert complete("to") == ["topic"]
    assert complete("group", "re") == ["reset"]
    assert "--to-earliest" in complete("group", "reset", "--to")
    assert complete("config", "show", "t") == ["topic"]


def test_topics_groups_and_settings_come_from_the_broker(cluster, complete) -> None:
    for topic in ("clicks", "clacks", "views"):
        cluster.create(topic)
    cluster.committed["ctr"] = {TopicPartition("clicks", 0): OffsetAndMetadata(1)}
    assert complete("consume", "cl") == ["clacks", "clicks"]
    assert complete("topic", "delete", "clicks", "v") == ["views"]
    assert complete("produce", "-t", "v") == ["views"]
    assert complete("consume", "clicks", "-g", "") == ["ctr"]
    assert complete("group", "describe", "c") == ["ctr"]
    assert complete("config", "unset", "topic", "clicks", "re") == ["retention.ms"]


def test_words_of_acls(cluster, complete) -> None:
    cluster.create("clicks")
    cluster.committed["ctr"] = {TopicPartition("clicks", 0): OffsetAndMetadata(1)}
    allow = ("acl", "allow", "User:alice")
    assert complete(*allow, "desc") == ["describe", "describe-configs", "describe-tokens"]
    assert complete(*allow, "read", "to") == ["topic:"]
    assert complete(*allow, "read", "topic:c") == ["topic:clicks"]
    assert complete(*allow, "read", "topic", ":", "c") == ["clicks"]  # as bash splits words
    assert complete(*allow, "read", "group", ":") == [":ctr"]
    assert complete("acl", "list", "clu") == ["cluster-action", "cluster"]


def test_without_a_broker_there_is_nothing_to_offer_and_nothing_to_say(monkeypatch, complete) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "127.0.0.1:1")
    assert complete("topic", "describe", "c") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_of_each_shell(run, shell) -> None:
    outcome = run("completion", shell)
    assert outcome.code == 0
    assert "_BARNABAS_COMPLETE" in outcome.out


def test_unknown_shell_is_wrong_usage(run) -> None:
    assert run("completion", "cmd").code == 2
