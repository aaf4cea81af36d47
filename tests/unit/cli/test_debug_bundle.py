"""The archive of `barnabas debug bundle`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from barnabas.cli import debug_bundle
from barnabas.cli.debug_bundle import CUT, Bundle
from barnabas.cli.redaction import Redactor
from barnabas.errors import ConfigurationError

NOW_MS = 1_359_644_400_000


def contents(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def fail() -> None:
    raise ConfigurationError("no such thing: password=planted")


def test_texts_are_redacted_and_only_the_user_can_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with Bundle(path, Redactor(), NOW_MS) as bundle:
        bundle.add("a.txt", "password=planted \udcff")
        assert bundle.collect("b.json", lambda: {"sasl.password": "planted", "n": 1}) == {
            "sasl.password": "planted",
            "n": 1,
        }
        assert bundle.collect("c.json", fail) is None
    found = contents(path)
    assert found["a.txt"] == "password=[hidden] \\udcff"
    assert json.loads(found["b.json"]) == {"sasl.password": "[hidden]", "n": 1}
    assert json.loads(found["missing.json"]) == {"c.json": "no such thing: password=[hidden]"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_sizes_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug_bundle, "ENTRY_BYTES_MAX", 1_000)
    path = tmp_path / "b.zip"
    with Bundle(path, Redactor(), NOW_MS, bytes_max=2_500) as bundle:
        for number in range(4):
            bundle.add(f"{number}.txt", "x" * 5_000 + str(number))
    found = contents(path)
    assert found["0.txt"] == CUT + "x" * 999 + "0"
    assert set(found) == {"0.txt", "1.txt", "missing.json"}
    assert list(json.loads(found["missing.json"])) == ["2.txt", "3.txt"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_if_the_command_fails(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "b.zip"

    def write() -> None:
        with Bundle(path, Redactor(), NOW_MS) as bundle:
            bundle.add("a.txt", "a")
            raise error

    with pytest.raises(error):
        write()
    assert not path.exists()


def test_existing_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        Bundle(path, Redactor(), NOW_MS)
    assert path.read_text() == "mine"


def test_bundle_of_a_cluster_contains_its_state(cluster, run, tmp_path: Path) -> None:
    cluster.create("clicks", 2)
    cluster.append("clicks", b"a record")
    cluster.committed["ctr"] = {}
    outcome = run("debug", "bundle", "-o", str(tmp_path / "b.zip"), "-X", "client.id=me")
    assert (outcome.code, outcome.out) == (0, f"{tmp_path}/b.zip\n"), outcome.err
    found = contents(tmp_path / "b.zip")
    assert json.loads(found["client.json"])["settings"]["client.id"] == "me"
    assert list(json.loads(found["cluster/topics.json"])) == ["clicks"]
    assert json.loads(found["cluster/cluster.json"])["id"] == "its-id"
    assert "a record" not in "".join(found.values())
    assert json.loads(found["environment.json"])["packages"]["click"]


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["--http", "nonsense"], 2, "'http://nonsense' is not [HOST:]PORT"),
        (["--http", "http://u:planted@h:1"], 2, "'h:1' is not [HOST:]PORT"),
        (["--log", "/none"], 2, "File '/none' does not exist"),
        (["--data", "/none"], 2, "Directory '/none' does not exist"),
        (["--tail", "0"], 2, "0 is not in the range"),
        (["-o", "/none/b.zip"], 1, "/none/b.zip: no such file or directory"),
        (["-o", "/"], 1, "exists already"),
    ],
)
def test_wrong_options_are_refused(cluster, run, arguments: list[str], code: int, error: str) -> None:
    outcome = run("debug", "bundle", *arguments)
    assert (outcome.code, error in outcome.err, "planted" in outcome.err) == (code, True, False), outcome.err
