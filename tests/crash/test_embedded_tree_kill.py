"""kill -9 while the embedded tree is written: all that was acknowledged is there, and nothing is there by half."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import Set
from barnabas.coordination.offsets import read_offsets
from barnabas.coordination.topic_metadata_store import take_producer_ids

WRITER = textwrap.dedent("""
    import sys
    from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
    from barnabas.coordination.offsets import commit_offsets
    from barnabas.coordination.subtrees import ensure_paths
    from barnabas.model import OffsetAndMetadata, TopicPartition

    tree, start = EmbeddedMetadataStore(sys.argv[1]), int(sys.argv[2])
    ensure_paths(tree, ["/brokers/topics/clicks"])
    partitions = [TopicPartition("clicks", number) for number in range(20)]
    for offset in range(start, start + 1_000_000):
        commit_offsets(tree, "ctr", dict.fromkeys(partitions, OffsetAndMetadata(offset)), 0)
        print(offset, flush=True)
""")


def run_until_killed(path, start, acknowledged_min):
    """Commit from offset `start` on in a process, kill it, and return the last offset that it acknowledged."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path, str(start)], stdout=subprocess.PIPE)
    with writer:
        for _ in itertools.islice(writer.stdout, acknowledged_min - 1):
            pass
        last = writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        complete = [line for line in writer.stdout.readlines() if line.endswith(b"\n")]
    assert writer.returncode == -signal.SIGKILL
    return int(complete[-1] if complete else last)


@pytest.mark.parametrize("acknowledged_min", [1, 7, 50, 400])
def test_acknowledged_commits_survive_kill_and_each_is_whole(tmp_path, acknowledged_min):
    path, start = tmp_path / "tree.db", 0
    for _ in range(3):
        acknowledged = run_until_killed(path, start, acknowledged_min)
        tree = EmbeddedMetadataStore(path)
        offsets = {each.offset for each in read_offsets(tree, "ctr").values()}
        tree.close()
        assert len(offsets) == 1, "a commit of all partitions is seen in some only"
        (found,) = offsets
        # The last commit may have been done without its acknowledgement having been printed.
        assert acknowledged <= found <= acknowledged + 1
        start = found + 1


def test_producer_ids_are_not_given_out_again_after_a_kill(tmp_path):
    code = (
        "import os, sys; from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore;"
        "from barnabas.coordination.topic_metadata_store import take_producer_ids;"
        "print(take_producer_ids(EmbeddedMetadataStore(sys.argv[1]), 1).stop, flush=True); os.kill(os.getpid(), 9)"
    )
    path = tmp_path / "tree.db"
    died = subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=False)
    tree = EmbeddedMetadataStore(path)
    assert take_producer_ids(tree, 1).start == int(died.stdout)
    tree.close()


@pytest.mark.parametrize("cut_bytes", [1, 500, 5_000])
def test_torn_end_of_the_write_ahead_log_costs_the_last_changes_only(tmp_path, cut_bytes):
    """What a loss of power may leave: the tree opens, and holds the state after one of its transactions."""
    path = tmp_path / "tree.db"
    tree = EmbeddedMetadataStore(path)
    for name in ("/a", "/b"):
        tree.create(name, b"0")
    tree.flush()
    for number in range(1, 30):
        tree.multi([Set("/a", b"%d" % number), Set("/b", b"%d" % number)])
    folder = tmp_path / "after"
    folder.mkdir()
    for suffix in ("", "-wal"):
        (folder / f"tree.db{suffix}").write_bytes((tmp_path / f"tree.db{suffix}").read_bytes())
    tree.close()
    log = folder / "tree.db-wal"
    os.truncate(log, log.stat().st_size - cut_bytes)
    tree = EmbeddedMetadataStore(folder / "tree.db")
    a, b = int(tree.get("/a").data), int(tree.get("/b").data)
    tree.close()
    assert a == b
    assert 20 <= a <= 29
