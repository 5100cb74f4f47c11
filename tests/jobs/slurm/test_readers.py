"""What sacctmgr, sshare and scontrol print about a site's rules is read, whatever its columns."""

from pathlib import Path

import pytest

from headway.errors import ExperimentError
from headway.jobs.slurm.accounting.submit_line import asked
from headway.jobs.slurm.output import conf, sacctmgr, scontrol
from headway.jobs.slurm.output.records import Away, Bound, SiteRules
from headway.jobs.slurm.site.followed import followed
from headway.jobs.slurm.site.outages import site_times
from headway.jobs.tables import cluster as cluster_table
from headway.jobs.traces.clusters import file as cluster_file
from headway.units import HOUR, MINUTE, SECOND

SAMPLES = Path(__file__).parents[2] / "samples" / "slurm"


def _rules(name: str) -> SiteRules:
    text = (SAMPLES / name).read_text()
    (source,) = (each for each in (conf, sacctmgr, scontrol) if each.describes(text))
    return source.cluster(text, name).rules


def _site(text: str) -> SiteRules:
    return sacctmgr.cluster(text, "x").rules


def test_a_qos_has_its_priority_limits_flags_and_whom_it_preempts() -> None:
    normal, long, scavenger, *_ = _rules("qos.txt").qos
    assert (normal.name, normal.priority, normal.preempts) == ("normal", 100, ("scavenger",))
    assert normal.bounds == (Bound("MaxTRESPU", "gres/gpu", 8), Bound("MaxJobsPU", "", 20))
    assert long.flags == {"overpartqos", "denyonlimit"}
    assert (long.usage_factor, long.grace) == (2.0, MINUTE)
    assert Bound("MaxWall", "", 7 * 24 * HOUR) in long.bounds
    assert long.unread == ()
    assert {"MaxTRESPerNode", "MinTRES"} <= {bound.name for bound in long.bounds}
    assert Bound("GrpWall", "", 240 * HOUR) in long.bounds
    assert (scavenger.preempt_mode, scavenger.exempt, scavenger.grace) == ("requeue", 2 * MINUTE, 30 * SECOND)


def test_columns_may_come_in_any_order_under_long_or_short_names_and_in_the_form_of_p() -> None:
    one = "Name|Priority|MaxTRESPU|MaxSubmitPU|MaxWall\nlong|5|gres/gpu=4,mem=1G|7|60\n"
    other = (
        "MaxWallDurationPerJob|MaxSubmitJobsPerUser|MaxTRESPerUser|Name|Priority|\n60|7|gres/gpu=4,mem=1024M|long|5|\n"
    )
    (first,), (second,) = _site(one).qos, _site(other).qos
    assert set(first.bounds) == set(second.bounds)
    assert Bound("MaxTRESPU", "mem", 2**30) in first.bounds
    assert (first.name, first.priority) == (second.name, second.priority)


def test_old_names_of_limits_are_limits_on_a_resource() -> None:
    (row,) = _site("Account|User|MaxCPUs|MaxNodes|GrpCPUs|GrpCPUMins\nbio|eve|8|2|64|1000\n").associations
    assert set(row.bounds) == {
        Bound("MaxTRES", "cpu", 8), Bound("MaxTRES", "node", 2), Bound("GrpTRES", "cpu", 64),
        Bound("GrpTRESMins", "cpu", 1000),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["assoc.txt", "sshare.txt"])
def test_the_tree_of_accounts_is_told_by_indentation(name: str) -> None:
    tenants = {tenant.name: tenant for tenant in followed(_rules(name)).tenants}
    assert {name: tenant.parent for name, tenant in tenants.items()} == {
        "root": "", "guests": "root", "science": "root", "bio": "science", "chem": "science",
    }  # fmt: skip
    assert (tenants["science"].weight, tenants["bio"].weight) == (40, 25)
    assert dict(tenants["bio"].users) == {"alice": 5, "bob": 7, "root": 1}


def test_the_tree_is_told_by_a_column_too_and_otherwise_asked_for() -> None:
    found = followed(_site("Account|User|ParentName|Share\nroot||\u0020|1\nuni||root|1\nbio||uni|3\n"))
    assert {each.name: each.parent for each in found.tenants} == {"root": "", "uni": "root", "bio": "uni"}
    assert not found.notes[1:]
    flat = followed(_rules("assoc-flat.txt"))
    assert any("no parent in the files (guests, science, bio, …)" in note for note in flat.notes)


def test_users_with_their_associations_and_rows_that_are_printed_twice_are_one() -> None:
    both = _rules("assoc.txt").merged(_rules("users.txt"))
    assert followed(both).tenants == followed(_rules("assoc.txt")).tenants
    alone = sacctmgr.cluster("User|Def Acct|Admin\nalice|bio|None\n", "x")
    assert "sacctmgr show user -P -s" in alone.notes[0]


def test_changes_of_limits_are_told_by_whose_they_were_and_others_are_none() -> None:
    changes = _rules("transactions.txt").changes
    assert [(each.what, each.names) for each in changes] == [
        ("association 7", ("qos",)), ("QOS long", ("MaxTRESPU",)), ("association 4", ("shares", "GrpTRES")),
        ("association 15, 9", ("MaxJobs",)), ("QOS long", ("GrpJobs",)), ("QOS long", ("priority",)),
        ("association 11, 10", ("shares",)),
    ]  # fmt: skip


def test_a_change_that_nobody_knows_is_told_and_not_left_out() -> None:
    head, start = "Time|Action|Actor|Where|Info", "2026-03-01T12:00:00|Modify QOS|root|(name='long')"
    infos = ("grace_time=60", "mod_time=5, description='x'", "gone wrong", "parent_acct='bio'")
    changes = _site("\n".join([head, *(f"{start}|{info}" for info in infos)])).changes
    assert [each.names for each in changes] == [("grace_time",), ("'gone wrong' (not understood)",), ("parent_acct",)]


def test_a_state_of_a_node_that_is_not_known_is_told() -> None:
    rows = [("n1", "DOWN*"), ("n1", "IDLE+DRAIN"), ("n1", "FROB"), ("n1", "")]
    aways = [Away(node, 0, HOUR, state) for node, state in rows]
    assert site_times(aways, (), ["n1"]).notes == ["events: states that are not known (FROB): taken as drained"]


def test_nodes_are_away_from_one_time_to_another() -> None:
    still, down, drained = _rules("events.txt").aways
    assert (still.node, still.end, still.state) == ("n2", None, "DRAIN")
    assert (down.node, down.end - down.start, down.reason) == ("n3", 2 * SECOND, "crash")  # type: ignore[operator]
    assert (drained.node, drained.state) == ("n4", "DRAIN")


def test_usage_is_read_with_the_shares() -> None:
    usage = {(each.account, each.user): each.usage for each in _rules("sshare.txt").shares}
    assert (usage[("root", "")], usage[("science", "root")], usage[("bio", "root")]) == (186.0, 160.0, 21.0)
    (row,) = _site("Account|User|RawUsage|GrpTRESRaw\nbio||21|cpu=3,gres/gpu=5,billing=3\n").shares
    assert dict(row.tres_minutes) == {"cpu": 3, "gres/gpu": 5}


def test_reservations_are_read_and_two_that_hold_one_node_at_a_time_are_told() -> None:
    found = scontrol.cluster((SAMPLES / "reservations.txt").read_text(), "r")
    maintenance, course, _ = found.rules.reservations
    assert (maintenance.nodes, maintenance.users) == (("n4",), ("root",))
    assert maintenance.end - maintenance.start == 2 * HOUR
    assert (course.accounts, course.partition, "WEEKLY" in course.flags) == (("bio", "chem"), "batch", True)
    assert not found.notes
    one = "ReservationName=a StartTime=2026-03-01T08:00:00 EndTime=2026-03-01T12:00:00 Nodes=n[1-3] NodeCnt=3 Flags="
    two = "ReservationName=b StartTime=2026-03-01T10:00:00 EndTime=2026-03-01T14:00:00 Nodes=n2 NodeCnt=1 Flags="
    (line,) = scontrol.cluster(f"{one}\n{two}\n", "r").notes
    assert line == (
        "r: reservations a and b overlap on node n2 from 2026-03-01T10:00:00 to 2026-03-01T12:00:00, "
        "and neither has the flag OVERLAP or MAINT"
    )
    assert not scontrol.cluster("No reservations in the system\n", "r").rules


def test_a_partition_has_a_tier_a_qos_and_caps() -> None:
    batch, debug, scavenged = _rules("partitions.txt").partitions
    assert (batch.qos, batch.tier, batch.most_time) == ("part_batch", 1, 48 * HOUR)
    assert (debug.tier, debug.most_nodes, debug.most_time) == (10, 2, 30 * MINUTE)
    assert dict(debug.allowed) == {"DenyAccounts": ("guests",), "AllowQos": ("normal", "long")}
    assert (scavenged.most_time, scavenged.preempt_mode, scavenged.grace) == (0, "REQUEUE", 30 * SECOND)


def test_slurm_conf_is_a_cluster_with_the_files_it_includes_and_lines_that_go_on() -> None:
    table, _, unread, *_ = cluster_file.read([str(SAMPLES / "slurm.conf")])
    cluster = cluster_table.build(table)
    assert [(node.name, node.gpus, node.gpu_type, node.cpu_milli) for node in cluster.nodes] == [
        ("n1", 4, "a100", 16_000), ("n2", 4, "a100", 16_000), ("n3", 4, "a100", 16_000), ("n4", 4, "h100", 16_000),
    ]  # fmt: skip
    assert {part.name: (part.nodes, part.priority, part.tier) for part in cluster.partitions} == {
        "batch": ((0, 1, 2), 10, 1), "debug": ((0, 1, 2, 3), 50, 10),
    }  # fmt: skip
    assert not any("Tier" in each.what for each in unread)
    text = conf.text_of(SAMPLES / "slurm.conf")
    assert conf.settings(text)["schedulerparameters"] == "bf_interval=60, bf_max_job_test=200"


def test_a_file_that_is_not_there_or_includes_itself_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=x\nInclude more.conf\n")
    with pytest.raises(ExperimentError, match=r"more.conf: there is no such file \(included by .*slurm.conf\)"):
        cluster_file.read([str(tmp_path / "slurm.conf")])
    (tmp_path / "more.conf").write_text("Include slurm.conf\n")
    with pytest.raises(ExperimentError, match=r"slurm.conf: includes itself"):
        conf.text_of(tmp_path / "slurm.conf")


def test_rules_alone_need_nodes(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="they name no node; add a file with the nodes"):
        cluster_file.read([str(SAMPLES / "qos.txt")])
    (tmp_path / "c.toml").write_text("nodes = 2\ngpus_per_node = 4\n")
    table, *_ = cluster_file.read([str(tmp_path / "c.toml"), str(SAMPLES / "qos.txt")])
    assert (table.nodes, table.qos[0].name, table.limits[0].name) == (2, "normal", "QOSMaxGRESPerUser")


BAD = {
    "Name|Priority|MaxWall\nlong|1|soon\n": "x: line 2: MaxWall 'soon' is not a time like 1-00:00:00",
    "Name|Priority|MaxTRESPU\nlong|1|8\n": "x: line 2: MaxTRESPU '8' is not a list like gres/gpu=8,cpu=400",
    "Name|Priority|MaxJobsPU\nlong|1|few\n": "x: line 2: MaxJobsPU 'few' is not a whole number",
    "Name|Priority|MaxJobsPU\nlong|1|1\nlong|1|2\n": "x: line 3: QOS long is described twice",
    "Name|Priority|MaxJobsPU\nlong|1\n": "x: line 2: has 2 cells, and there are 3 headings: print it with -P",
    "Name|Priority|MaxJobsPU\n": "x: has headings and no row",
    "Name|Priority|Preempt\na|1|b\nb|1|c\nc|1|a\n": "QOS a preempts itself: a preempts b preempts c preempts a",
    "Account|ParentName|QOS\na|b|n\nb|a|n\n": "account a is below itself: a under b under a",
    "Account|ParentName|QOS\na|z|n\n": "account a: its parent z is not among the accounts",
    "Cluster|Account|QOS\none|a|n\ntwo|a|n\n": "associations: they are of several clusters (one, two)",
    "Name|Priority|MaxWall\nlong|1|00:00:00\n": "QOS long: MaxWall is 0: no job could ever start; -1 lifts a limit",
}


@pytest.mark.parametrize(("text", "line"), BAD.items())
def test_what_is_wrong_with_rules_is_one_line(text: str, line: str) -> None:
    with pytest.raises(ExperimentError) as problem:
        followed(_site(text))
    assert str(problem.value).startswith(line)
    assert "\n" not in str(problem.value)


def test_a_limit_of_zero_an_unknown_limit_and_a_qos_that_nobody_may_use_are_told() -> None:
    qos = _site("Name|Priority|MaxTRESPU|MaxFurlongs|GrpTRES\nlong|1|gres/gpu=0|3|license/matlab=2\nidle|0|||\n")
    found = followed(qos.merged(_site("Account|QOS\nbio|long,gone\n")))
    assert "limit QOSMaxGRESPerUser@qos:long: is 0: no job that counts there can start" in found.notes
    assert "QOS idle: no association may use it" in found.notes
    assert "QOS gone: associations may use it, and it is not described" in found.notes
    assert {(each.what, each.why) for each in found.unread} == {
        ("maxfurlongs=3", "a limit that is not known"),
        ("GrpTRES=license/matlab=2", "license/matlab is not counted"),
    }


def test_the_command_of_a_submission_tells_what_accounting_does_not() -> None:
    line = "sbatch -A bio --dependency=afterok:1:2 --nice -L matlab:2 -a 1-6%2 --begin=now+1hour run.sh"
    assert asked(line) == {
        "dependency": "afterok:1:2", "begin": "now+1hour", "nice": "100", "licences": "matlab:2", "array throttle": "2",
    }  # fmt: skip
    assert asked("sbatch --exclusive=user --nice=50 -C a100&nvlink x.sh") == {
        "exclusive": "user", "nice": "50", "constraint": "a100&nvlink",
    }  # fmt: skip
    assert asked("sbatch -n 4 --wrap program --nice=5") == {}, "that is the job's own command"
