"""`barnabas report` without Spark: what is refused before anything starts, and what is missing."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

import barnabas.cli.report as command
from barnabas.errors import ConfigurationError


def test_the_names_are_those_of_the_reports_that_there_are() -> None:
    from barnabas.spark.reports import REPORTS  # noqa: PLC0415

    assert set(command.REPORTS) == set(REPORTS)


@pytest.mark.parametrize("options", [(), ("--warehouse", "w", "--catalog", "c")])
def test_a_report_needs_one_place_of_tables(options: tuple[str, ...]) -> None:
    done = CliRunner().invoke(command.report, ["popularity", "clicks", *options])
    assert done.exit_code == 2
    assert "either --warehouse DIR or --catalog NAME" in done.output


def test_a_missing_matplotlib_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "barnabas.reports.pictures", raising=False)
    with pytest.raises(ConfigurationError, match=r"pip install 'barnabas\[reports\]'"):
        command.pictures()
