"""The scenario files of this repository, and what is said of files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tnats.cli.jepsen import runnable_on
from tnats.harness.findings import FindingError, parse_finding, with_nodes
from tnats.harness.real.errors import CouldNotRun
from tnats.harness.real.finding_files import load, load_findings
from tnats.harness.real.stores import FILE_CLASSES, matches
from tnats.harness.real.targets import Target

DIRECTORY = Path(__file__).parents[3] / "jepsen"

TEXT = """
id = "F0"
title = "t"
reference = "r"
affected = "a"
nodes = 1
seen_by_jepsen = "s"

[profile.short]
worker_count = 1
rate_per_s = 1
quiet_s = 0
duration_s = 1
time_scale = 1
timeout_s = 1

[[variant]]
name = "v"
text = "x"
expect = "S"
faults = ["at 1s P_KILL"]
"""


def test_every_finding_is_there_with_both_profiles() -> None:
    """F1 to F6, each with a short and a real profile, variants of distinct names, and faults on file classes that
    exist."""
    findings = load_findings(str(DIRECTORY))
    assert [finding.id for finding in findings] == ["F1", "F2", "F3", "F4", "F5", "F6"]
    for finding in findings:
        assert set(finding.profiles) == {"short", "real"}
        names = [variant.name for variant in finding.variants]
        assert len(set(names)) == len(names)
        for fault in (fault for variant in finding.variants for fault in variant.faults):
            assert set(fault.word("files", "any").split("|")) <= set(FILE_CLASSES)


def test_only_power_loss_needs_the_fault_file_system() -> None:
    """A variant with D_POWER stands on it; others do without, so that they run where FUSE is missing."""
    for finding in load_findings(str(DIRECTORY)):
        for variant in finding.variants:
            needs = any(fault.kind == "D_POWER" for fault in variant.faults)
            assert needs == (variant.store == "faultfs"), f"{finding.id} {variant.name}"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('id = "F0"', "", "id"),
        ('id = "F0"', 'id = "F0"\nidd = 1', "idd"),
        ("quiet_s = 0", "", "quiet_s"),
        ("quiet_s = 0", "quiet_s = -1", "'quiet_s' must be >= 0"),
        ("worker_count = 1", 'worker_count = "x"', "'worker_count' must be"),
        ("rate_per_s = 1", "rate_per_s = 0", "'rate_per_s' must be > 0"),
        ("nodes = 1", "nodes = 0", "'nodes' must be >= 1"),
        ('expect = "S"', 'expect = "X"', "'expect' must be in ('S', 'W', 'H')"),
        ('expect = "S"', 'expect = "S"\nworkload = "x"', "'workload' must be in"),
        ('expect = "S"', 'expect = "S"\nstore = "x"', "'store' must be in"),
        ('expect = "S"', 'expect = "S"\nsync_interval = 5', "'sync_interval' must be"),
        ('name = "v"', 'name = "../v"', "'name' must match"),
        ('["at 1s P_KILL"]', "[3]", "fault '3': begin with"),
        ("[profile.short]", "[[profile]]", "'list' object"),
        ("at 1s P_KILL", "at 1s P_KILL targets=n2", "no node 'n2' among n1"),
        ("at 1s P_KILL", "at 1s P_KIL", "unknown kind P_KIL"),
        ('name = "v"', 'name = "v', "line"),
        ("[[variant]]", "[[varian]]", "variant"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_reason(tmp_path: Path, old: str, new: str, reason: str) -> None:
    """The whole is right before, and one line names file and fault after."""
    assert parse_finding(TEXT).id == "F0"
    path = tmp_path / "f0.toml"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(FindingError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)


def test_a_directory_without_scenarios_and_a_file_that_is_no_text_are_named(tmp_path: Path) -> None:
    """Nothing is listed then; the reason stands in one line."""
    with pytest.raises(FindingError, match=f"{tmp_path}: no scenario files"):
        load_findings(str(tmp_path))
    (tmp_path / "f0.toml").write_bytes(TEXT.encode() + b"\xff")
    with pytest.raises(FindingError, match=r"f0\.toml: not UTF-8 at byte"):
        load_findings(str(tmp_path))


@pytest.mark.parametrize(
    ("path", "file_class"),
    [
        ("/x/jetstream/$G/streams/jepsen-stream/msgs/1.blk", "block"),
        ("/x/jetstream/$SYS/_js_/_meta_/msgs/1.blk", "wal"),
        ("/x/jetstream/$SYS/_js_/_meta_/snapshots/snap.3.17", "snapshot"),
        ("/x/jetstream/$G/streams/jepsen-stream/msgs/index.db", "index"),
        ("/x/tnats/streams/7/12.seg", "block"),
        ("/x/tnats/journal/12.part", "wal"),
    ],
)
def test_files_fall_into_one_class(path: str, file_class: str) -> None:
    """Blocks of streams and of Raft logs have the same name and are told apart by their folder."""
    assert [name for name in FILE_CLASSES if name != "any" and matches(path, name)] == [file_class]


def test_a_server_without_clusters_runs_what_needs_none() -> None:
    """Of F2 the variants on one node; of F5 nothing, which is said in one line."""
    findings = {finding.id: finding for finding in load_findings(str(DIRECTORY))}
    alone, many = Target("t", ("t",), has_clusters=False), Target("t", ("t",))
    for finding_id in ("F2", "F4"):
        finding = findings[finding_id]
        variants = list(finding.variants)
        assert runnable_on(many, finding, variants) == variants
        assert {variant.nodes for variant in runnable_on(alone, finding, variants)} == {1}
        assert {variant.nodes for variant in variants} == {1, 5}
    with pytest.raises(CouldNotRun, match="F5 needs a cluster of 5 nodes, and t has no clusters yet"):
        runnable_on(alone, findings["F5"], list(findings["F5"].variants))


def test_a_cluster_may_have_another_size() -> None:
    """Where no fault names a node that it would lack; one node stays one."""
    findings = {finding.id: finding for finding in load_findings(str(DIRECTORY))}
    assert [with_nodes(variant, 3).nodes for variant in findings["F1"].variants] == [3, 3]
    assert with_nodes(findings["F2"].variants[0], 3).nodes == 1
    with pytest.raises(FindingError, match="does not fit into a cluster of 3"):
        with_nodes(findings["F5"].variants[0], 3)
