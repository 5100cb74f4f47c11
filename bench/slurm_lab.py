"""A real Slurm on this machine: controller, accounting, virtual nodes with pretended GPUs, everything on loopback.

For tests and measurements against the scheduler itself. It needs Debian's slurmctld, slurmd, slurmdbd, munge and
mariadb-server, and root (for the device files); jobs are real processes that sleep. Everything lives in one folder and
ends with the ``with`` block.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

NEEDED = ("slurmctld", "slurmd", "slurmdbd", "munged", "sbatch", "scontrol", "sacct", "mariadbd", "mariadb-install-db")
_CONFIG = """\
ClusterName=lab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
SlurmctldParameters=enable_configless
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=300
KillWait=5
MinJobAge=300
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PriorityType=priority/multifactor
GresTypes=gpu
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting}
AccountingStoragePass={root}/munge.sock
AccountingStorageTRES=gres/gpu,gres/gpu:a100
JobCompType=jobcomp/filetxt
JobCompLoc={root}/jobcomp.txt
DefMemPerCPU=2000
SlurmdParameters=config_overrides
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
{settings}
NodeName=DEFAULT CPUs=16 SocketsPerBoard=1 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=64000 State=UNKNOWN \
Gres=gpu:a100:{gpus}
NodeName=n[1-{nodes}] NodeAddr=127.0.0.1 NodeHostname=localhost Port=[{first}-{last}]
{partitions}
"""

_ACCOUNTING = """\
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={accounting}
SlurmUser=root
LogFile={root}/slurmdbd.log
PidFile={root}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct
CommunicationParameters=NoInAddrAny
"""
_FORMAT = (
    "JobID,JobIDRaw,JobName,User,Account,Partition,QOS,Priority,Submit,Eligible,Start,End,Elapsed,Timelimit,State,"
    "ReqTRES,AllocTRES,NNodes,NodeList"
)


def missing() -> list[str]:
    """The programs that are not here; a lab needs them all."""
    return [name for name in NEEDED if shutil.which(name) is None]


class SlurmLab:
    """Slurm with ``nodes`` virtual nodes of ``gpus`` pretended GPUs. ``settings`` are further lines of slurm.conf."""

    def __init__(
        self,
        root: Path,
        *,
        nodes: int = 8,
        gpus: int = 4,
        settings: Mapping[str, str] | None = None,
        partitions: Sequence[str] = ("PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP",),
        accounts: Sequence[str] = (),
    ) -> None:
        self.root = root
        self.nodes = nodes
        self._accounts = accounts
        port = _free_block(nodes + 2)
        accounting = port + nodes + 1
        lines = {"SchedulerParameters": "bf_interval=1,sched_interval=2,sched_min_interval=100000,batch_sched_delay=0"}
        text = _CONFIG.format(
            root=root,
            port=port,
            accounting=accounting,
            nodes=nodes,
            gpus=gpus,
            first=port + 1,
            last=port + nodes,
            settings="\n".join(f"{key}={value}" for key, value in {**lines, **(settings or {})}.items()),
            partitions="\n".join(partitions),
        )
        for folder in ("state", "spool", "dev"):
            (root / folder).mkdir(parents=True)
        (root / "slurm.conf").write_text(text)
        (root / "slurmdbd.conf").write_text(_ACCOUNTING.format(root=root, accounting=accounting))
        (root / "slurmdbd.conf").chmod(0o600)
        devices = f"{root}/dev/nvidia[0-{gpus - 1}]"
        gres = f"AutoDetect=off\nNodeName=n[1-{nodes}] Name=gpu Type=a100 File={devices}\n"
        (root / "gres.conf").write_text(gres)
        for device in range(gpus):
            os.mknod(root / "dev" / f"nvidia{device}", 0o020666, os.makedev(195, device))
        (root / "munge.key").write_bytes(os.urandom(128))
        (root / "munge.key").chmod(0o400)
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._environment = {**os.environ, "SLURM_CONF": str(root / "slurm.conf"), "TZ": "UTC"}
        self._environment["MYSQL_UNIX_PORT"] = str(root / "mysql.sock")

    def __enter__(self) -> "SlurmLab":
        root = self.root
        files = [f"--{kind}={root}/munge{end}" for kind, end in (("key-file", ".key"), ("socket", ".sock"))]
        files += [f"--{kind}={root}/munge{end}" for kind, end in (("pid-file", ".pid"), ("log-file", ".log"))]
        try:
            self._start("munged", "--foreground", "--force", *files, f"--seed-file={root}/munge.seed")
            _until(lambda: (root / "munge.sock").exists(), "munged did not start")
            self._start_accounting()
            self._start("slurmctld", "-D")
            for number in range(1, self.nodes + 1):
                self._start("slurmd", "-D", "-N", f"n{number}")
            _until(self._ready, "the nodes did not come up")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start_accounting(self) -> None:
        root = self.root
        data = ("--no-defaults", f"--datadir={root}/mysql", "--user=root")
        self.run("mariadb-install-db", *data, "--auth-root-authentication-method=normal", "--skip-test-db")
        self._start(
            "mariadbd", *data, f"--socket={root}/mysql.sock", f"--pid-file={root}/mysql.pid", "--skip-networking"
        )
        _until(lambda: (root / "mysql.sock").exists(), "the database did not start")
        self._start("slurmdbd", "-D")
        _until(lambda: self._works("sacctmgr", "-n", "show", "cluster"), "slurmdbd did not start")
        self.run("sacctmgr", "-i", "add", "cluster", "lab")
        for name in self._accounts:  # everything runs as root
            self.run("sacctmgr", "-i", "add", "account", name)
            self.run("sacctmgr", "-i", "add", "user", "root", f"account={name}")

    def run(self, *command: str) -> str:
        """What a Slurm command prints."""
        done = subprocess.run(
            command, env=self._environment, cwd=self.root, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def submit(self, *options: str, seconds: float) -> str:
        """The number of a new job that sleeps so long."""
        return self.run("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", f"exec sleep {seconds}").strip()

    def waiting(self) -> int:
        """Jobs that have not ended."""
        return len(self.run("squeue", "-h", "-o", "%i").split())

    def accounts(self) -> str:
        """What ``sacct`` says about all jobs, once it knows that all have ended (the accounting lags behind)."""
        command = ("sacct", "-a", "--parsable2", "-S", "2000-01-01", "-o", _FORMAT)
        unsettled = ("|RUNNING|", "|PENDING|", "|Unknown|")
        _until(lambda: not any(word in self.run(*command) for word in unsettled), "the accounting did not settle", 60)
        return self.run(*command)

    def _ready(self) -> bool:
        if not self._works("sinfo"):
            return False
        states = self.run("sinfo", "-h", "-N", "-o", "%N %T").splitlines()
        return sum(line.endswith(" idle") for line in set(states)) == self.nodes

    def _works(self, *command: str) -> bool:
        try:
            self.run(*command)
        except RuntimeError:
            return False
        return True

    def _start(self, *command: str) -> None:
        with (self.root / f"{command[0]}.out").open("ab") as output:
            self._daemons.append(
                subprocess.Popen(command, env=self._environment, stdout=output, stderr=output, start_new_session=True)
            )

    def _stop(self) -> None:
        for daemon in reversed(self._daemons):
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()


def _until(met: Callable[[], bool], complaint: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        if time.monotonic() > deadline:
            raise RuntimeError(complaint)
        time.sleep(0.1)


def _free_block(length: int) -> int:
    """The first of so many neighbouring ports that nobody listens on."""
    for first in range(16817, 30000, 100):
        sockets = [socket.socket() for _ in range(length)]
        try:
            for offset, each in enumerate(sockets):
                each.bind(("127.0.0.1", first + offset))
            return first
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()
    raise RuntimeError("no free ports")
