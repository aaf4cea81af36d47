"""What `import barnabas` gives, and what it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from barnabas.client.admin.configs import ConfigType

OPENED_STUBS = """
import sys
opened = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
import barnabas
barnabas.ErrorCode
print(*(name for name in opened if name.endswith(".pyi")))
"""


def test_every_public_name_is_there():
    for name in barnabas.__all__:
        assert getattr(barnabas, name) is not None
    assert set(barnabas.__all__) <= set(dir(barnabas))


def test_the_stub_has_the_same_names_of_the_same_modules():
    stub = ast.parse(Path(barnabas.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    assert {alias.asname: node.module for node in imports for alias in node.names} == barnabas._MODULE_OF
    assert all(alias.name == alias.asname for node in imports for alias in node.names), "`as` makes a name public"


def test_the_import_opens_no_stub():
    run = subprocess.run([sys.executable, "-c", OPENED_STUBS], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="'barnabas' has no attribute 'Consumr'"):
        barnabas.Consumr  # noqa: B018


def test_the_import_loads_nothing_of_the_clients():
    code = "import sys, barnabas; print(*(name for name in sys.modules if name.startswith(('barnabas', 'asyncio'))))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["barnabas"]


def test_admin_and_its_settings_are_readable():
    with barnabas.Admin("one:1,two") as admin:
        assert repr(admin) == "<barnabas.Admin one:1,two:9092>"
    assert repr(admin) == "<barnabas.Admin one:1,two:9092 closed>"
    setting = barnabas.ConfigSetting(
        "retention.ms", "5", barnabas.ConfigSource.TOPIC, ConfigType.LONG, "How long records stay.", False, False, ()
    )
    assert repr(setting) == (
        "ConfigSetting(name='retention.ms', value='5', source=<ConfigSource.TOPIC: 1>, type=<ConfigType.LONG: 5>)"
    )
