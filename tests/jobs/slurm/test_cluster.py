"""Clusters from what scontrol and sinfo print, as text and as JSON: one and the same cluster from each."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from headway.errors import ExperimentError
from headway.jobs.model.job import Job
from headway.jobs.slurm.output import (
    cluster_json as slurm_cluster_json,
    scontrol as slurm_scontrol,
    sinfo as slurm_sinfo,
)
from headway.jobs.slurm.site.followed import concerns, followed
from headway.jobs.tables import cluster as cluster_table
from headway.jobs.traces.clusters import file as cluster_file
from headway.jobs.traces.clusters.records import Described
from headway.units import HOUR

SAMPLES = Path(__file__).parents[2] / "samples"
SOURCES = (slurm_scontrol, slurm_sinfo, slurm_cluster_json)
NODE = (
    "NodeName=n1 Arch=x86_64 CPUTot=16 OS=Linux 6.1 #1 SMP Key Gres={gres} RealMemory=64000 State={state} "
    "Partitions=batch,urgent CfgTRES=cpu=16,mem=62.50G,billing=16{tres} Reason=disk bad x=1 [root@2026-03-01]\n"
)


def _sample(*names: str) -> tuple[cluster_table.ClusterTable, tuple[str, ...]]:
    table, notes, *_ = cluster_file.read([str(SAMPLES / name) for name in names])
    return table, notes


def _refusal(folder: Path, text: str) -> str:
    (folder / "c.txt").write_text(text)
    with pytest.raises(ExperimentError) as caught:
        cluster_file.read([str(folder / "c.txt")])
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "names",
    [
        ("scontrol-nodes.txt", "scontrol-partitions.txt"),
        ("scontrol-partitions.txt", "sinfo-nodes.txt"),
        ("scontrol-nodes.txt", "sinfo-plain.txt", "scontrol-partitions.txt"),
        ("sinfo.json",),
    ],
)
def test_every_command_describes_the_same_cluster(names: tuple[str, ...]) -> None:
    table, notes = _sample(*names)
    groups = [(group.names, group.gpus, group.gpu_type, group.cpus, group.memory) for group in table.node_groups]
    assert groups == [
        (["g01", "g02", "g03"], 4, "a100", 32, f"{257000 * 2**20}B"),
        (["v1"], 8, "v100", 64, f"{515000 * 2**20}B"),
        (["c1"], 0, "gpu", 64, f"{192000 * 2**20}B"),
    ]
    partitions = {each.name: (each.nodes, each.priority) for each in table.partitions}
    assert partitions == {"gpu": ([0, 1, 2, 3], 1), "debug": ([0], 10), "cpu": ([4], 1)}
    assert any("down or drained when it was written" in note and note.endswith("kept") for note in notes)


def test_a_cluster_from_slurm_can_be_built() -> None:
    table, _ = _sample("scontrol-nodes.txt", "scontrol-partitions.txt")
    cluster = cluster_table.build(table)
    assert [node.name for node in cluster.nodes] == ["g01", "g02", "g03", "v1", "c1"]
    assert cluster.nodes[3].cpu_milli == 64_000


def test_the_lines_of_a_record_may_stand_one_below_the_other() -> None:
    text = (SAMPLES / "scontrol-partitions.txt").read_text()
    joined = text.replace("\n   ", " ").replace("\n\n", "\n")
    assert len(joined.splitlines()) == 3
    assert slurm_scontrol.cluster(joined, "x") == slurm_scontrol.cluster(text, "x")


def test_values_may_hold_blanks_and_equal_signs() -> None:
    found = dict(slurm_scontrol.pairs(NODE.format(gres="gpu:2", state="IDLE", tres="")))
    assert found["OS"] == "Linux 6.1 #1 SMP Key"
    assert found["Reason"].startswith("disk bad x=1")
    assert found["CfgTRES"] == "cpu=16,mem=62.50G,billing=16"


@pytest.mark.parametrize(
    ("gres", "tres", "gpus", "kind"),
    [
        ("gpu:a100:4(S:0-1)", "", 4, "a100"),
        ("gpu:2", "", 2, "gpu"),
        ("(null)", "", 0, "gpu"),
        ("(null)", ",gres/gpu=4,gres/gpu:h100=4", 4, "h100"),
        ("gpu:a100:2,gpu:v100:6,shard:8", "", 8, "v100"),
    ],
)
def test_gpus_come_from_gres_or_from_the_configured_resources(gres: str, tres: str, gpus: int, kind: str) -> None:
    described = slurm_scontrol.cluster(NODE.format(gres=gres, state="IDLE", tres=tres), "x")
    (node,) = described.nodes
    assert (node.gpus, node.gpu_type, node.cpus, node.memory_bytes) == (gpus, kind, 16, 64000 * 2**20)
    assert node.partitions == ("batch", "urgent")
    assert ("node n1 has GPUs of several types (a100, v100): all taken as v100" in described.notes) == (gpus == 8)


@pytest.mark.parametrize("state", ["DOWN*", "IDLE+DRAIN", "MIXED+DRAIN", "drng", "down~", "FAIL", "drained*", "MAINT"])
def test_nodes_that_take_no_job_are_kept_and_named(state: str) -> None:
    described = slurm_scontrol.cluster(NODE.format(gres="gpu:2", state=state, tres=""), "nodes")
    assert [node.name for node in described.nodes] == ["n1"]
    assert described.notes == ("nodes: 1 node was down or drained when it was written (n1): kept",)


@pytest.mark.parametrize("state", ["IDLE", "ALLOCATED", "MIXED", "mix", "COMPLETING", "IDLE+PLANNED", "IDLE+CLOUD"])
def test_nodes_that_take_jobs_need_no_note(state: str) -> None:
    assert slurm_scontrol.cluster(NODE.format(gres="gpu:2", state=state, tres=""), "nodes").notes == ()


BARE = """\
g01 gpu* 32 257000 gpu:a100:4(S:0-1) alloc
g01 debug 32 257000 gpu:a100:4(S:0-1) alloc
"""
LONG = """\
Mon Mar 02 08:00:00 2026
NODELIST NODES PARTITION STATE CPUS S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE GRES REASON
g01 1 gpu* alloc 32 2:16:1 257000 0 10 a100 gpu:a100:4 none
g01 1 debug alloc 32 2:16:1 257000 0 10 a100 gpu:a100:4 some words here
"""
SEPARATED = """\
PARTITION|GRES|CPUS|MEMORY|NODELIST|STATE
gpu*|gpu:a100:4|32|257000|g01|mix
debug|gpu:a100:4|32|257000|g01|mix
"""
GROUPED = """\
PARTITION AVAIL TIMELIMIT NODES STATE NODELIST GRES CPUS MEMORY
gpu* up infinite 1 idle g[01] gpu:a100:4 32+ 257000+
debug up 30:00 1 idle g01 gpu:a100:4 32 257000
empty up 30:00 0 n/a (null) (null) 0 0
"""


@pytest.mark.parametrize("text", [BARE, LONG, SEPARATED, GROUPED])
def test_sinfo_is_read_in_any_layout_that_names_what_nodes_hold(text: str) -> None:
    assert slurm_sinfo.describes(text)
    described = slurm_sinfo.cluster(text, "x")
    (node,) = described.nodes
    assert (node.name, node.gpus, node.gpu_type, node.cpus) == ("g01", 4, "a100", 32)
    assert {each.name for each in described.partitions if each.nodes} == {"gpu", "debug"}


def test_plain_sinfo_tells_partitions_and_asks_for_the_nodes(tmp_path: Path) -> None:
    text = (SAMPLES / "sinfo-plain.txt").read_text()
    line = _refusal(tmp_path, text)
    assert "they name partitions but no node" in line
    assert "sinfo -N -o '%N %P %c %m %G %t'" in line
    rows = text.partition("\n")[2]
    assert slurm_sinfo.cluster(rows, "x").partitions == slurm_sinfo.cluster(text, "x").partitions


def test_json_of_nodes_and_of_partitions_is_read() -> None:
    node = {"name": "g1", "cpus": 8, "real_memory": 1000, "gres": "gpu:a100:2(S:0)", "partitions": ["gpu"]}
    old = {"meta": {}, "nodes": [{**node, "state": "idle", "state_flags": ["DRAIN"]}]}
    new = {"nodes": [{**node, "state": ["IDLE", "DRAIN"]}], "last_update": {"set": True, "number": 5}, "meta": {}}
    first, second = (slurm_cluster_json.cluster(json.dumps(each), "x") for each in (old, new))
    assert first == second
    assert (first.nodes[0].gpus, first.nodes[0].memory_bytes) == (2, 1000 * 2**20)
    assert "(g1): kept" in first.notes[0]
    listed = {
        "partitions": [{"name": "gpu", "nodes": {"configured": "g[1-2]"}, "priority": {"job_factor": 3, "tier": 1}}]
    }
    (partition,) = slurm_cluster_json.cluster(json.dumps(listed), "x").partitions
    assert (partition.name, partition.nodes, partition.priority) == ("gpu", ("g1", "g2"), 3)


def test_other_json_is_not_taken_for_slurm() -> None:
    for other in ('{"kind": "List", "apiVersion": "v1", "nodes": [1]}', '{"items": []}', '{"nodes": []}', "[1]", "{"):
        assert not slurm_cluster_json.describes(other)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("NodeName=n1 CPUTot=many Gres=gpu:2\n", "line 1: CPUTot 'many' is not a whole number"),
        ("NodeName=n[1-\n", "line 1: list 'n[1-' is not understood"),
        ("NodeName=n1 CPUTot=1\nslurm_load_node error\n", "line 2: opens neither with NodeName= nor"),
        ("NODELIST PARTITION GRES MEMORY\nn1 a gpu:2 1e3\n", "line 2: MEMORY '1e3' is not a whole number"),
        ("NODELIST PARTITION GRES\nn/a a gpu:2\n", "names no node"),
        ('{"nodes": [{"cpus": 4}]}', "node 1: has no name"),
        ('{"nodes": [4]}', "node 1 is no object"),
        ('{"sinfo": [{"nodes": {"nodes": ["n[1-"]}}]}', "group 1: list 'n[1-' is not understood"),
        ("hello\n", "is none of the files that describe a cluster"),
    ],
)
def test_what_is_wrong_with_a_cluster_file_is_one_line(tmp_path: Path, text: str, rule: str) -> None:
    assert rule in _refusal(tmp_path, text)


@given(st.text(alphabet='n[]1-2,|= \nNodeName=GresPartitionNODELISTGRES{}:"\x00', max_size=80))
def test_any_text_is_described_or_refused(text: str) -> None:
    for source in SOURCES:
        if source.describes(text):
            with suppress(ExperimentError):
                assert isinstance(source.cluster(text, "x"), Described)


def test_nodes_come_in_the_order_of_their_weight_and_partitions_have_their_tiers() -> None:
    text = "NodeName=a Weight=10 CPUTot=1\nNodeName=b Weight=1 CPUTot=1\nNodeName=c Weight=10 CPUTot=1\n"
    parts = "PartitionName=x Nodes=a PriorityTier=1\nPartitionName=y Nodes=b PriorityTier=2\n"
    found = slurm_scontrol.cluster(text + parts, "test")
    assert [node.name for node in found.nodes] == ["b", "a", "c"]
    assert [(each.name, each.tier) for each in followed(found.rules).levels] == [("x", 1), ("y", 2)]
    assert not followed(found.rules).unread


def test_every_kind_of_file_of_a_site_may_be_given_at_once_and_twice() -> None:
    names = ("qos", "assoc", "users", "transactions", "events", "sshare", "reservations", "partitions", "config")
    files = [*(str(SAMPLES / "slurm" / f"{name}.txt") for name in names), str(SAMPLES / "slurm" / "slurm.conf")]
    once, twice = cluster_file.read(files), cluster_file.read([*files, *files])
    assert twice.table == once.table
    assert (twice.unread, twice.site) == (once.unread, once.site)
    assert {"batch", "debug", "scav"} == {each.name for each in once.site.partitions}


def test_what_two_files_say_otherwise_of_one_partition_or_qos_is_told_and_the_first_counts(tmp_path: Path) -> None:
    conf, shown, qos = tmp_path / "slurm.conf", tmp_path / "partitions.txt", tmp_path / "qos.txt"
    conf.write_text("ClusterName=a\nNodeName=n[1-2] Gres=gpu:4\nPartitionName=p Nodes=ALL MaxTime=60 PriorityTier=2\n")
    shown.write_text("PartitionName=p Nodes=n[1-2] MaxTime=2:00:00 PriorityTier=2\n")
    qos.write_text("Name|Priority|MaxJobsPU\nlong|5|3\n")
    read = cluster_file.read([str(conf), str(shown)])
    told = f"cluster {shown}: partition p: MaxTime otherwise than in a file before, which counts"
    assert [note for note in read.notes if "otherwise" in note] == [told]
    assert [each.most for each in read.table.limits] == ["1h"]
    conf.write_text("ClusterName=a\nNodeName=n[1-2] Gres=gpu:4\nPartitionName=p Nodes=ALL PreemptMode=OFF AllowQos=a\n")
    shown.write_text("PartitionName=p Nodes=n[1-2] PreemptMode=REQUEUE AllowQos=b DenyAccounts=bio AllowGroups=ALL\n")
    (line,) = (note for note in cluster_file.read([str(conf), str(shown)]).notes if "otherwise" in note)
    assert "partition p: PreemptMode, AllowQos, DenyAccounts otherwise than in a file before" in line
    conf.write_text(
        "ClusterName=a\nNodeName=n[1-2] Gres=gpu:4\nPartitionName=p Nodes=ALL AllowQos=b DenyAccounts=bio\n"
    )
    silent = cluster_file.read([str(conf), str(shown)])
    assert not [note for note in silent.notes if "otherwise" in note]
    assert silent.site.partitions[0].preempt_mode == "REQUEUE", "where the first file is silent, the next one tells"
    found = cluster_file.read([str(conf), str(qos), str(qos)])
    assert [each.most for each in found.table.limits if each.name == "QOSMaxJobsPerUserLimit"] == [3]


def test_what_is_said_alike_of_several_partitions_is_one_line(tmp_path: Path) -> None:
    conf, shown = tmp_path / "slurm.conf", tmp_path / "partitions.txt"
    parts = "".join(f"PartitionName={name} Nodes=n1 AllowQos=x TRESBillingWeights=CPU=1\n" for name in "abc")
    conf.write_text(f"ClusterName=a\nNodeName=n1 Gres=gpu:4\n{parts}")
    shown.write_text(parts.replace("AllowQos=x", "AllowQos=x MaxTime=60"))
    read = cluster_file.read([str(conf), str(shown)])
    told = [note.partition(": ")[2] for note in read.notes if "otherwise" in note]
    assert told == ["partitions a, b, c: MaxTime otherwise than in a file before, which counts"]
    jobs = [Job(number, 0, 1, 1, name=str(number), partition=name) for number, name in enumerate("aab")]
    found = concerns(read.unread, jobs, {"0": HOUR, "2": HOUR}, ())
    assert list(map(str, found)) == [
        (
            "not followed: AllowQos of partitions a, b (who may enter is not asked): may concern 3 jobs, which "
            "waited 2 h in all"
        ),
        (
            "not followed: TRESBillingWeights=CPU=1 of partitions a, b (fair share counts GPU time): may concern "
            "3 jobs, which waited 2 h in all"
        ),
    ], "nobody is in partition c"


def test_reservations_of_two_files_that_overlap_are_told(tmp_path: Path) -> None:
    files = {"nodes.txt": "NodeName=n1 CPUTot=1\n"}
    for name, hour in (("a", "08"), ("b", "10"), ("c", "13")):
        times = f"StartTime=2026-03-01T{hour}:00:00 EndTime=2026-03-01T12:30:00"
        files[f"{name}.txt"] = f"ReservationName={name} {times} Nodes=n1 NodeCnt=1\n"
    files["c.txt"] = files["c.txt"].replace("T12:30", "T14:30")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in files]
    (line,) = (note for note in cluster_file.read([*paths, paths[1]]).notes if "overlap" in note)
    assert "reservations a and b overlap on node n1 from 2026-03-01T10:00:00 to 2026-03-01T12:30:00" in line
