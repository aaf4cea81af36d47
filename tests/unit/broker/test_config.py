"""The broker's settings: where they come from, which of them wins, and what is said about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.config import BrokerConfig, load_config
from barnabas.errors import ConfigurationError


def test_defaults_are_kafkas() -> None:
    config = load_config()
    assert (config.port, config.num_partitions, config.message_max_bytes) == (9092, 1, 1_048_588)


def test_dotted_names_and_tables_are_the_same(tmp_path: Path) -> None:
    dotted, tables = tmp_path / "dotted.toml", tmp_path / "tables.toml"
    dotted.write_text("num.partitions = 6\nauto.create.topics.enable = false\n")
    tables.write_text("[num]\npartitions = 6\n[auto.create.topics]\nenable = false\n")
    assert load_config(dotted) == load_config(tables) == BrokerConfig(num_partitions=6, auto_create_topics_enable=False)


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("port = 1\nnum.partitions = 1\nbroker.id = 1\n")
    environment = {"BARNABAS_PORT": "2", "BARNABAS_NUM_PARTITIONS": "2", "BARNABAS_BOOTSTRAP": "elsewhere:9092"}
    config = load_config(file, {"port": 3, "host": None}, environment)
    assert (config.port, config.num_partitions, config.broker_id) == (3, 2, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num.partition = 6", r"no setting num\.partition; did you mean num\.partitions\?"),
        ('num.partitions = "six"', "num.partitions takes a whole number, not 'six'"),
        ("num.partitions = 0", "num.partitions must be at least 1"),
        ("port = 70000", "a port is a number from 0 to 65535"),
        ("auto.create.topics.enable = 1", "takes true or false, not 1"),
        ("message.max.bytes = -1", "message.max.bytes is -1; it must be 0 or more"),
        ("num.partitions", "is not TOML"),
    ],
)
def test_wrong_settings_are_told(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        load_config(file)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*nowhere\.toml: No such file"):
        load_config(tmp_path / "nowhere.toml")
