"""The files of a secured installation."""

from __future__ import annotations

import json
from pathlib import Path, PurePath

import pytest
from cryptography import x509

from barnabas.broker.settings.listeners import authenticates, listeners_of, mapping_rules, tls_settings
from barnabas.broker.settings.loading import load_config
from barnabas.broker.super_users import SuperUsers
from barnabas.broker.user_credentials import read_bootstrap_users
from barnabas.cli.installation import (
    Choices,
    authority_of,
    client_certificate,
    parse_description,
    parse_hosts,
    plan,
    server_certificate,
)
from barnabas.errors import AuthenticationError, ConfigurationError
from barnabas.security.acls import CLUSTER_NAME, Operation, ResourceType
from barnabas.security.authorizer import Acls, Authorizer
from barnabas.security.principal import Principal, PrincipalMapping
from barnabas.security.scram import ScramMechanism, password_matches
from tests.support.certificates import now

CHOICES = Choices(9092, 9094, "z:2181/barnabas")


def files_of(folder: Path, hosts: list[str], choices: Choices = CHOICES) -> dict[str, str]:
    return plan(folder, parse_hosts(hosts), choices, now(), "pa55", lambda: b"0123456789abcdef")


def config_of(folder: Path, text: str):
    file = folder / "read.toml"
    file.write_text(text)
    return load_config(file)


def names_of(pem: str) -> set[str]:
    certificate = x509.load_pem_x509_certificate(pem.encode())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))}


def test_single_broker_has_one_listener_with_authentication(tmp_path) -> None:
    files = files_of(tmp_path, ["localhost"])
    config = config_of(tmp_path, files["broker.toml"])
    [listener] = listeners_of(config)
    assert (listener.host, listener.port, listener.protocol.value) == ("localhost", 9092, "SASL_SSL")
    assert authenticates(config, listener)
    assert tls_settings(config, listener).key_store == str(tmp_path / "server.pem")
    assert names_of(files["server.pem"]) == {"localhost", "127.0.0.1", "::1"}
    assert Principal("User", "admin") in SuperUsers(config.super_users)


def test_several_brokers_authenticate_each_other(tmp_path) -> None:
    files = files_of(tmp_path, ["a,10.0.0.1", "b"])
    assert {"a/broker.toml", "a/server.pem", "a/ca.pem", "b/bootstrap-users.json", "ca-key.pem"} <= files.keys()
    assert not {"a/ca-key.pem", "broker.toml"} & files.keys()
    config = config_of(tmp_path, files["b/broker.toml"])
    clients, brokers = listeners_of(config)
    assert (clients.host, clients.advertised_host, brokers.advertised_host) == ("", "b", "b")
    assert (brokers.protocol.value, brokers.serves_brokers) == ("SSL", True)
    assert authenticates(config, clients)
    assert authenticates(config, brokers)
    assert (config.broker_id, config.zookeeper_connect) == (2, "z:2181/barnabas")
    super_users = SuperUsers(config.super_users)
    rules = PrincipalMapping.parse(mapping_rules(config, brokers))
    assert Principal("User", rules.name_of("CN=broker-2")) in super_users
    for client in ("CN=alice", "CN=broker-2,O=x", "CN=xbroker-2"):
        with pytest.raises(AuthenticationError):
            rules.name_of(client)
    certificate = x509.load_pem_x509_certificate(files["b/server.pem"].encode())
    assert Principal("User", certificate.subject.rfc4514_string()) in super_users
    assert names_of(files["a/server.pem"]) == {"a", "10.0.0.1"}


def test_passwords_are_in_one_file_only(tmp_path) -> None:
    files = files_of(tmp_path, ["a", "b"])
    assert [name for name, text in files.items() if "pa55" in text] == ["admin.password"]
    assert [name for name, text in files.items() if authority_key(files) in text] == ["ca-key.pem"]
    users = tmp_path / "users.json"
    users.write_text(files["a/bootstrap-users.json"])
    credentials = read_bootstrap_users(users).users["admin"]
    assert all(password_matches(credentials[each], each, "pa55") for each in ScramMechanism)


def test_brokers_check_acls_and_the_components_get_their_topics(tmp_path) -> None:
    files = files_of(tmp_path, ["localhost"])
    assert config_of(tmp_path, files["broker.toml"]).authorizer_class_name
    users = tmp_path / "users.json"
    users.write_text(files["bootstrap-users.json"])
    authorizer = Authorizer(Acls(read_bootstrap_users(users).acls))

    def allowed(user: str, operation: Operation, topic: str) -> bool:
        return authorizer.allows(Principal("User", user), "127.0.0.1", operation, ResourceType.TOPIC, topic)

    for user, topic in (("registry", "_schemas"), ("mirror", "_mirror"), ("loads", "_audit")):
        assert all(allowed(user, each, topic) for each in (Operation.READ, Operation.WRITE, Operation.CREATE))
    for topic in ("_schemas", "_mirror", "_audit", "clicks"):
        assert not allowed("alice", Operation.DESCRIBE, topic)
    assert not allowed("mirror", Operation.WRITE, "_schemas")
    registry = Principal("User", "registry")
    assert authorizer.allows(registry, "127.0.0.1", Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)


def authority_key(files: dict[str, str]) -> str:
    return files["ca-key.pem"].splitlines()[1]


def test_settings_name_the_folder_on_the_machine_of_the_broker(tmp_path) -> None:
    files = files_of(tmp_path, ["a", "b"], Choices(9092, 9094, "z:1", PurePath("/etc/barnabas")))
    assert config_of(tmp_path, files["a/broker.toml"]).ssl_keystore_location == "/etc/barnabas/server.pem"


@pytest.mark.parametrize("hosts", [["a b"], [""], ["a,,b"], ["../a"], ["a", "a"], ["a,a"], ["-a"], ["a" * 254]])
def test_invalid_hosts_are_refused(hosts) -> None:
    with pytest.raises(ConfigurationError, match=r"not a host name|twice"):
        parse_hosts(hosts)


def test_renewed_certificates_have_the_same_names_and_issuer(tmp_path) -> None:
    files = files_of(tmp_path, ["a,10.0.0.1", "b"])
    [first, _] = parse_description(files["installation.json"], tmp_path)
    authority = authority_of(files["ca.pem"], files["ca-key.pem"])
    renewed = server_certificate(authority, first, now(), 30)
    assert names_of(renewed) == {"a", "10.0.0.1"}
    old, new = (x509.load_pem_x509_certificate(each.encode()) for each in (files["a/server.pem"], renewed))
    assert (old.subject, old.issuer) == (new.subject, new.issuer)
    assert old.serial_number != new.serial_number


@pytest.mark.parametrize("text", ["", "{}", '{"brokers": 1}', '{"brokers": [{"folder": "../x", "hosts": ["a"]}]}'])
def test_malformed_description_is_refused(text) -> None:
    with pytest.raises(ConfigurationError, match=r"installation\.json"):
        parse_description(text, Path("installation.json"))


@pytest.mark.parametrize("name", ["broker-1", "Broker-9", "", "a,CN=broker-1", "a" * 65])
def test_clients_get_no_certificate_of_a_broker(tmp_path, name) -> None:
    files = files_of(tmp_path, ["a"])
    authority = authority_of(files["ca.pem"], files["ca-key.pem"])
    with pytest.raises(ConfigurationError, match=r"belong to brokers|must have"):
        client_certificate(authority, name, now(), 30)
    assert (
        "CN=alice"
        in x509.load_pem_x509_certificate(
            client_certificate(authority, "alice", now(), 30).encode()
        ).subject.rfc4514_string()
    )


def test_description_lists_the_hosts(tmp_path) -> None:
    assert json.loads(files_of(tmp_path, ["a,c", "b"])["installation.json"]) == {
        "brokers": [{"folder": "a", "hosts": ["a", "c"]}, {"folder": "b", "hosts": ["b"]}]
    }
