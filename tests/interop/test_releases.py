"""This release beside the last one: a cluster of both, and what the last one has left on the disk.

`LAST_RELEASE=HEAD~30 python -m pytest tests/interop/test_releases.py` tries another commit in its place.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import barnabas
from tests.interop.test_group_restart import PARTITIONS, Ours, expect, group_of, send
from tests.support.broker_process import BrokerProcess
from tests.support.process_cluster import Cluster, running_cluster
from tests.support.reading import wait_until
from tests.support.releases import ASKED_FOR, last_release, unpack
from tests.support.xdist_groups import CLUSTERS

pytestmark = pytest.mark.xdist_group(CLUSTERS)

RECORDS = 50


class OlderBroker(BrokerProcess):
    """A broker of another release."""

    sources: Path

    def begin(self) -> None:
        """Start it with the sources of that release before all others."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(self.sources))
            super().begin()


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the sources of the last release are."""
    release = last_release()
    if release is None:
        pytest.skip(f"no release is behind this commit, or there is no git; {ASKED_FOR}=HEAD~30 tries another commit")
    return unpack(release, tmp_path_factory.mktemp("release"))


def older_broker(sources: Path, data: Path, settings: dict[str, str]) -> OlderBroker:
    made = OlderBroker(data, settings)
    made.sources = sources
    return made


def produce(bootstrap: str, first: int) -> None:
    with barnabas.Producer(bootstrap, acks="all") as producer:
        for number in range(first, first + RECORDS):
            producer.send("clicks", b"%d" % number, partition=0)


def read(bootstrap: str, count: int) -> list[int]:
    """Read all that there is, as a group that goes on from the beginning each time."""
    values: list[int] = []
    with barnabas.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([("clicks", 0)])

        def has_read_all() -> bool:
            values.extend(int(record.value or b"") for record in consumer.poll(timeout_s=0.2))
            return len(values) >= count

        wait_until(has_read_all, f"{count} records are read")
    return values


def test_a_broker_of_the_last_release_and_two_of_this_are_a_cluster(sources: Path, tmp_path: Path) -> None:
    class Mixed(Cluster):
        @staticmethod
        def make_broker(data: Path, settings: dict[str, str]) -> BrokerProcess:
            is_older = settings["broker_id"] == "1"
            return older_broker(sources, data, settings) if is_older else BrokerProcess(data, settings)

    with running_cluster(tmp_path, {}, Mixed) as cluster:
        with barnabas.Admin(cluster.bootstrap) as admin:
            admin.create_topic("clicks", 1, 3)
        # Each of them leads once, and the others follow it.
        for number, leader in enumerate((1, 2, 3)):
            cluster.wait_until_in_sync("clicks", 3)
            for other in cluster.others(leader):
                if cluster.leader_of("clicks") == other:
                    assert cluster.brokers[other].stop() == 0
                    cluster.wait_for_another_leader("clicks", other)
                    cluster.brokers[other].restart()
                    cluster.wait_until_in_sync("clicks", 3)
            produce(cluster.bootstrap, number * RECORDS)
            assert read(cluster.bootstrap, (number + 1) * RECORDS) == list(range((number + 1) * RECORDS))
        # The older one becomes one of this release: a rolling upgrade ends so.
        assert cluster.brokers[1].stop() == 0
        newer = BrokerProcess(cluster.brokers[1].data, cluster.brokers[1].settings)
        newer.port = cluster.brokers[1].port
        cluster.brokers[1] = newer
        newer.start()
        cluster.wait_until_same("clicks")
        assert read(newer.bootstrap, 3 * RECORDS) == list(range(3 * RECORDS))


def test_what_the_last_release_left_on_the_disk_is_read_and_goes_on(sources: Path, tmp_path: Path) -> None:
    settings = {"log_segment_bytes": "2000"}
    older = older_broker(sources, tmp_path / "data", settings)
    older.start()
    try:
        produce(older.bootstrap, 0)
        older.kill()
    finally:
        older.close()
    newer = BrokerProcess(tmp_path / "data", settings)
    newer.start()
    try:
        assert read(newer.bootstrap, RECORDS) == list(range(RECORDS))
        produce(newer.bootstrap, RECORDS)
        assert read(newer.bootstrap, 2 * RECORDS) == list(range(2 * RECORDS))
        assert newer.stop() == 0
    finally:
        newer.close()


def test_groups_keep_members_generation_and_offsets_over_a_rolling_upgrade(sources: Path, tmp_path: Path) -> None:
    class Older(Cluster):
        @staticmethod
        def make_broker(data: Path, settings: dict[str, str]) -> BrokerProcess:
            return older_broker(sources, data, settings)

    with running_cluster(tmp_path, {"offsets_topic_num_partitions": "1"}, Older, count=2) as cluster:
        with barnabas.Admin(cluster.bootstrap) as admin:
            admin.create_topic("clicks", PARTITIONS, 2)
        members = Ours(cluster.bootstrap)
        try:

            def is_shared() -> bool:
                members.poll()
                state, found = group_of(cluster.bootstrap)
                return state == "Stable" and [len(owned) for _, owned in found] == [2, 2]

            wait_until(is_shared, "the group becomes stable")
            send(cluster.bootstrap, "before")
            expect(members, "before")
            members.commit()
            before, moves = group_of(cluster.bootstrap), members.moves
            for number in (1, 2):
                for topic in ("clicks", "__consumer_offsets"):
                    cluster.wait_until_in_sync(topic, 2)
                older = cluster.brokers[number]
                assert older.stop() == 0
                newer = BrokerProcess(older.data, older.settings)
                newer.port = older.port
                cluster.brokers[number] = newer
                newer.start()
                wait_until(cluster.is_complete, "both brokers know each other")
                send(cluster.bootstrap, f"upgrade-{number}")
                expect(members, f"upgrade-{number}")
                # A commit names member and generation; another generation would be refused.
                members.commit()
            assert group_of(cluster.bootstrap) == before
            assert members.moves == moves
            with barnabas.Admin(cluster.bootstrap) as admin:
                committed = admin.group_offsets("g")
            assert [found.offset for found in committed.values()] == [3] * PARTITIONS
        finally:
            members.close()


def git(folder: Path, *arguments: str) -> str:
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    try:
        said = subprocess.run(
            ["git", "-C", folder, *arguments],
            check=True,
            env={**os.environ, **identity},
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        pytest.skip("there is no git")
    return said.stdout.strip()


def test_the_last_release_is_the_newest_tag_before_this_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ASKED_FOR, raising=False)
    git(tmp_path, "init", "-q")
    assert last_release(tmp_path) is None
    for text, tag in (("one", "v0.1.0"), ("two", "v0.2.0"), ("three", "not-a-release"), ("four", "v0.3.0")):
        (tmp_path / "src").mkdir(exist_ok=True)
        (tmp_path / "src" / "text").write_text(text)
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-q", "-m", text)
        git(tmp_path, "tag", tag)
    # The commit of a release is tried beside the release before it.
    assert last_release(tmp_path) == "v0.2.0"
    assert (unpack("v0.2.0", tmp_path / "unpacked", tmp_path) / "text").read_text() == "two"
    monkeypatch.setenv(ASKED_FOR, "HEAD~1")
    assert last_release(tmp_path) == "HEAD~1"


def test_a_clone_without_tags_knows_the_releases_by_their_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ASKED_FOR, raising=False)
    git(tmp_path, "init", "-q")
    commits = []
    for _ in range(3):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one more")
        commits.append(git(tmp_path, "rev-parse", "HEAD"))
    assert last_release(tmp_path, commits) == commits[1]
    assert last_release(tmp_path, ["0" * 40]) is None
