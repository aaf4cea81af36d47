"""Finding a Java runtime for Spark among those that a machine has."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.spark.errors import JavaNotFoundError
from barnabas.spark.java import find_java_home


def make_home(folder: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/java").touch()
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return folder


def test_java_home_comes_first(tmp_path: Path) -> None:
    chosen = make_home(tmp_path / "mine", "21.0.2")
    make_home(tmp_path / "jvm/other", "17.0.1")
    assert find_java_home({"JAVA_HOME": str(chosen)}, [tmp_path / "jvm"]) == chosen


def test_a_java_that_is_too_old_or_cut_down_is_passed_over(tmp_path: Path) -> None:
    old = make_home(tmp_path / "jvm/old", "1.8.0_392")
    make_home(tmp_path / "jvm/small", "21.0.1", modules="java.base")
    good = make_home(tmp_path / "jvm/good", "17.0.9")
    assert find_java_home({"JAVA_HOME": str(old)}, [tmp_path / "jvm"]) == good


def test_the_java_on_the_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home = make_home(tmp_path / "real", "17")
    (tmp_path / "links").mkdir()
    (tmp_path / "links/java").symlink_to(home / "bin/java")
    assert find_java_home({"PATH": str(tmp_path / "links")}, []) == home


def test_without_any_java_one_line_says_what_to_install(tmp_path: Path) -> None:
    make_home(tmp_path / "jvm/old", "11.0.1")
    with pytest.raises(JavaNotFoundError, match=r"apt-get install openjdk-17.*version 11") as caught:
        find_java_home({}, [tmp_path / "jvm"])
    assert "\n" not in str(caught.value)
