"""The broker's settings: where they come from, which of them wins, and what is said about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.settings.loading import load_config
from barnabas.broker.settings.static import BrokerConfig
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
        ("num.partition = 6", r"unknown setting num\.partition; did you mean num\.partitions\?"),
        ('num.partitions = "six"', "num.partitions is 'six'; it must be a whole number"),
        ("num.partitions = 0", "num.partitions is 0; it must be 1 or more"),
        ("port = 70000", "a port must be from 0 to 65535"),
        ("auto.create.topics.enable = 1", "is 1; it must be true or false"),
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


def test_variables_that_kubernetes_makes_of_services_are_no_settings(caplog) -> None:
    environment = {
        "BARNABAS_SERVICE_HOST": "10.0.0.11",
        "BARNABAS_SERVICE_PORT": "9092",
        "BARNABAS_SERVICE_PORT_KAFKA": "9092",
        "BARNABAS_PORT": "tcp://10.0.0.11:9092",
        "BARNABAS_PORT_9092_TCP": "tcp://10.0.0.11:9092",
        "BARNABAS_PORT_9092_TCP_PROTO": "tcp",
        "BARNABAS_PORT_9092_TCP_PORT": "9092",
        "BARNABAS_PORT_9092_TCP_ADDR": "10.0.0.11",
        "BARNABAS_HEADLESS_SERVICE_HOST": "10.0.0.12",
        "BARNABAS_HEADLESS_PORT": "tcp://10.0.0.12:9092",
    }
    assert load_config(environment=environment) == BrokerConfig()
    assert caplog.records == []


def test_unknown_variable_is_a_warning_that_names_it(caplog) -> None:
    environment = {"BARNABAS_NUM_PARTITION": "3", "BARNABAS_TEAM": "logs", "BARNABAS_NUM_PARTITIONS": "4"}
    assert load_config(environment=environment) == BrokerConfig(num_partitions=4)
    assert [record.getMessage() for record in caplog.records] == [
        "environment variable BARNABAS_NUM_PARTITION is not a broker setting; ignoring it; did you mean"
        " num.partitions?",
        "environment variable BARNABAS_TEAM is not a broker setting; ignoring it",
    ]


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("BARNABAS_NUM_PARTITIONS", "many", "num.partitions is 'many'; it must be a whole number"),
        ("BARNABAS_NUM_PARTITIONS", "0", "num.partitions is 0; it must be 1 or more"),
        ("BARNABAS_PORT", "70000", "a port must be from 0 to 65535"),
        (
            "BARNABAS_REPLICA_SELECTOR_CLASS",
            "nearest",
            "replica.selector.class is 'nearest'; it must be LeaderSelector or RackAwareReplicaSelector, also with"
            " the prefix org.apache.kafka.common.replica.",
        ),
    ],
)
def test_wrong_value_of_a_variable_names_the_variable(variable: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_config(environment={variable: value})
    assert str(raised.value) == f"environment variable {variable}={value}: {reason}"


def test_data_folders_are_those_of_data_or_of_log_dirs() -> None:
    assert load_config().folders == (Path("barnabas-data"),)
    assert load_config(overrides={"data": "a,b"}).folders == (Path("a,b"),)
    assert load_config(overrides={"log.dirs": "a, b"}).folders == (Path("a"), Path("b"))


def test_data_folder_that_is_given_later_wins_over_all_that_were_given_before(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('log.dirs = "a,b"')
    assert load_config(file, environment={"BARNABAS_DATA": "c"}).folders == (Path("c"),)
    assert load_config(file, {"data": "d"}, {"BARNABAS_LOG_DIRS": "c,d"}).folders == (Path("d"),)
    assert load_config(file, {"log_dirs": "e,f"}, {"BARNABAS_DATA": "c"}).folders == (Path("e"), Path("f"))


def test_data_folder_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"log\.dirs contains a directory twice"):
        load_config(overrides={"log_dirs": "a,./a"})


@pytest.mark.parametrize("address", ["here", "here:", ":99999", "127.0.0.1:-1", "2181,2182"])
def test_address_of_the_listener_for_zookeepers_clients_is_checked(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"zookeeper\.listener is .*; it must be \[HOST:\]PORT"):
        load_config(overrides={"zookeeper_listener": address})


def test_tree_that_is_in_zookeeper_is_not_served_by_the_broker() -> None:
    with pytest.raises(ConfigurationError, match="exclude each other"):
        load_config(overrides={"zookeeper_listener": "2181", "zookeeper_connect": "z1:2181"})


def test_file_of_properties_has_the_settings_of_kafka(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# of Kafka\n\nbroker.id=7\nnum.partitions : 3\nlog.dirs=/a,\\\n    /b\nrack = east side \n")
    config = load_config(file)
    assert (config.broker_id, config.num_partitions, config.log_dirs, config.rack) == (7, 3, "/a,/b", "east side")


def test_properties_in_a_file_of_another_name_are_refused_with_the_name_that_works(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text("broker.id=x y\n")
    with pytest.raises(ConfigurationError, match=r"is not TOML: .*\.properties"):
        load_config(file)


def test_secrets_are_not_in_errors_about_them(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("zookeeper.auth = 4711\n")
    with pytest.raises(ConfigurationError, match=r"zookeeper\.auth must be a string$"):
        load_config(file)
    file.write_text('[zookeeper]\nset.acl = true\nauth = "user:planted"\n')
    assert load_config(file).zookeeper_set_acl == "true"
    assert "planted" not in repr(load_config(file))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("zookeeper.ssl.truststore.type", "JKS", "only PEM is supported"),
        ("zookeeper.ssl.keystore.type", "PKCS12", "only PEM is supported"),
        ("zookeeper.ssl.enabled.protocols", "TLSv1", r"it must be one of TLSv1\.2, TLSv1\.3"),
        ("zookeeper.ssl.endpoint.identification.algorithm", "LDAPS", "it must be one of HTTPS"),
        ("zookeeper.ssl.truststore.password", "planted", r"zookeeper\.ssl\.truststore\.password is set"),
        ("zookeeper.ssl.crl.enable", "true", "revocation of certificates is not supported"),
        ("zookeeper.ssl.ocsp.enable", "true", "revocation of certificates is not supported"),
        ("zookeeper.ssl.cipher.suites", "TLS_RSA", "OpenSSL's defaults"),
        ("zookeeper.set.acl", "yes", "it must be one of"),
    ],
)
def test_unsupported_settings_for_zookeeper_are_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        load_config(overrides={name: value})
    assert "planted" not in str(refused.value)
