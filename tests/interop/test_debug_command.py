"""`barnabas debug bundle` with real brokers: what it finds, and that it contains no secret."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import barnabas
from tests.support.ports import free_port
from tests.support.secured_broker import PASSWORD, USER, SecuredBroker

COMMAND = [sys.executable, "-m", "barnabas.cli.main", "debug", "bundle"]
TIMEOUT_S = 120
KEY_PASSWORD = "planted key password"
REGISTRY_PASSWORD = "planted registry password"
LOG_PASSWORD = "planted/in a log"
TOKEN = "planted-token-of-a-variable"
PRIVATE_KEY = "MIIplantedprivatekey"


def read(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def bundle(path: Path, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, "-o", path, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{path}\n"
    return done


def test_bundle_has_the_state_of_a_secured_cluster_and_no_secret(tmp_path: Path) -> None:
    broker = SecuredBroker(
        tmp_path, **{"sasl.inter.broker.username": "broker", "sasl.inter.broker.password": KEY_PASSWORD}
    )
    try:
        broker.start()
        settings = broker.client()
        with barnabas.Admin(**settings) as admin:
            admin.create_topic("clicks", 2, config={"retention.ms": "-1"})
        with barnabas.Producer(**settings) as producer:
            producer.send("clicks", b"the value of a record").result(60)
        (tmp_path / "password.txt").write_text(f"{PASSWORD}\n")
        profile = tmp_path / "profile.toml"
        named = {name.replace("bootstrap", "bootstrap_servers"): value for name, value in settings.items()}
        named |= {"sasl_password": f"${{file:{tmp_path}/password.txt}}", "client_id": "me"}
        registry = {"schema.registry.url": "http://h", "schema.registry.username": "r"}
        lines = [f"{json.dumps(name)} = {json.dumps(str(value))}" for name, value in {**named, **registry}.items()]
        profile.write_text("\n".join([*lines, f'"schema.registry.password" = "{REGISTRY_PASSWORD}"']))
        profile.chmod(0o600)
        config = tmp_path / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in broker.settings.items()))
        log = tmp_path / "broker.log"
        log.write_text(
            f"INFO the first line\nDEBUG got password={LOG_PASSWORD.split(maxsplit=1)[0]} and {PASSWORD}\n"
            f"-----BEGIN PRIVATE KEY-----\n{PRIVATE_KEY}\n-----END PRIVATE KEY-----\n"
            f"Authorization: Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}\n"
            f"{KEY_PASSWORD}, {REGISTRY_PASSWORD}\nINFO the last line\n"
        )
        path = tmp_path / "b.zip"
        arguments = ["--profile", profile, "--config", config, "--log", log, "--data", tmp_path / "data"]
        dead = free_port()
        done = bundle(path, *arguments, "--http", dead, BARNABAS_SASL_OAUTH_TOKEN=TOKEN)
    finally:
        broker.close()
    found = read(path)
    everything = "\n".join(found.values())
    for secret in (PASSWORD, KEY_PASSWORD, REGISTRY_PASSWORD, "planted", TOKEN, PRIVATE_KEY):
        assert secret not in everything
        assert secret.encode() not in path.read_bytes()
    assert base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode() not in everything
    users = json.loads((tmp_path / "users.json").read_text())["users"][USER]
    assert not [each for each in users.values() if each in everything]
    assert "the value of a record" not in everything
    topic = json.loads(found["cluster/topics.json"])["clicks"]
    assert [part["leader"] for part in topic["partitions"]] == [0, 0]
    assert json.loads(found["cluster/topic-settings.json"])["clicks"]["retention.ms"]["value"] == "-1"
    assert json.loads(found["broker-settings.json"])["settings"]["super.users"] == f"User:{USER}"
    assert json.loads(found["client.json"])["settings"]["client.id"] == "me"
    assert "clicks-0" in found["data/0/files.txt"]
    assert found["logs/0-broker.log"].startswith("INFO the first line\n")
    assert found["logs/0-broker.log"].endswith("INFO the last line\n")
    missing = json.loads(found["missing.json"])
    assert set(missing) == {f"status-pages/0/{page}.txt" for page in ("metrics", "healthz", "readyz")}
    assert "missing: status-pages/0/metrics.txt: " in done.stderr


def test_bundle_says_what_is_missing_while_brokers_are_down(broker, tmp_path: Path) -> None:
    dead = f"127.0.0.1:{free_port()}"
    bundle(tmp_path / "one.zip", "-b", f"{dead},{broker.bootstrap}")
    found = read(tmp_path / "one.zip")
    assert list(json.loads(found["missing.json"])) == [f"cluster/addresses/{dead.replace(':', '_')}.json"]
    assert json.loads(found["cluster/cluster.json"])["brokers"]
    done = bundle(tmp_path / "none.zip", "-b", dead)
    found = read(tmp_path / "none.zip")
    assert json.loads(found["missing.json"])["cluster/..."] == "no broker responds"
    assert "environment.json" in found
    assert "Connection refused" in done.stderr or "connection refused" in done.stderr
