"""What `import barnabas` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import barnabas
from barnabas.client.admin.configs import ConfigType


def test_every_public_name_is_there():
    for name in barnabas.__all__:
        assert getattr(barnabas, name) is not None
    assert set(barnabas.__all__) <= set(dir(barnabas))


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
