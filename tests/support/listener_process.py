"""A broker in a process of its own whose settings are a file, so that it can have several listeners."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from tests.support.broker_process import BrokerProcess


class ListenerProcess(BrokerProcess):
    """A broker whose listeners `properties` names. Subclasses override it."""

    def properties(self) -> Mapping[str, str]:
        """Return settings in addition to `settings`."""
        return {}

    def begin(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
        given = {**{name.replace("_", "."): value for name, value in self.settings.items()}, **self.properties()}
        file = self.data.with_suffix(".properties")
        file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        command = [sys.executable, "-m", "barnabas.cli.main", "up", "--config", str(file), "--data", str(self.data)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)

    def wait_until_ready(self) -> None:
        assert self.process
        assert self.process.stdout
        line = self.process.stdout.readline().decode()
        assert line.startswith("ready "), self.log.read_text()[-3_000:]
