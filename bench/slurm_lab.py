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
_OF_ACCOUNTING = ("slurmdbd", "sacct", "mariadbd", "mariadb-install-db")
_CONFIG = """\
ClusterName={cluster}
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock,cred_expire={requeue}
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
SlurmdTimeout={timeout}
KillWait=5
MinJobAge=300
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PriorityType=priority/multifactor
GresTypes=gpu
{storage}
JobCompType=jobcomp/filetxt
JobCompLoc={root}/jobcomp.txt
DefMemPerCPU=2000
SlurmdParameters=config_overrides
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
{settings}
NodeName=DEFAULT CPUs=16 SocketsPerBoard=1 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=64000 State=UNKNOWN
{machines}
{partitions}
"""

_STORAGE = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting}
AccountingStoragePass={root}/munge.sock
AccountingStorageTRES=gres/gpu,{types}
"""
_NO_STORAGE = "AccountingStorageType=accounting_storage/none"
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
    "JobID,JobIDRaw,JobName,User,Account,Partition,QOS,Priority,Submit,Eligible,Start,End,Elapsed,Suspended,Timelimit,"
    "State,Reason,Flags,Constraints,Reservation,ReqTRES,AllocTRES,ReqMem,NNodes,NodeList,SubmitLine"
)
_PRINTED = {
    "nodes.txt": "scontrol show node -o",
    "partitions.txt": "scontrol show partition -o",
    "config.txt": "scontrol show config",
    "qos.txt": "sacctmgr show qos -P",
    "assoc.txt": "sacctmgr show assoc tree -P",
    "users.txt": "sacctmgr show user -P -s",
    "transactions.txt": "sacctmgr show transactions -P start=2000-01-01",
    "events.txt": "sacctmgr show events -P start=2000-01-01",
}
"""What an operator prints besides jobs, by the name of the file."""
_COMMON = "/lab"
"""The folder of the lab, in what is dumped."""


def missing(*, accounted: bool = True) -> list[str]:
    """The programs that are not here; a lab needs them all, but those of the accounting where it has none."""
    return [name for name in NEEDED if shutil.which(name) is None and (accounted or name not in _OF_ACCOUNTING)]


class SlurmLab:
    """Slurm with virtual nodes of ``gpus`` pretended GPUs each.

    ``nodes`` is their number, or the number of each GPU type. ``settings`` are further lines of slurm.conf,
    ``accounting`` are commands of sacctmgr. A requeued job waits for ``requeue_s`` seconds. Without ``accounted`` there
    is no database, and it starts at once. A node that is silent for ``timeout_s`` seconds is down.
    """

    def __init__(
        self,
        root: Path,
        *,
        nodes: int | Mapping[str, int] = 8,
        gpus: int = 4,
        settings: Mapping[str, str] | None = None,
        partitions: Sequence[str] = ("PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP",),
        accounting: Sequence[str] = (),
        requeue_s: int = 120,
        accounted: bool = True,
        timeout_s: int = 300,
    ) -> None:
        self.root = root
        kinds = {"a100": nodes} if isinstance(nodes, int) else nodes
        self.nodes = sum(kinds.values())
        self._accounting, self._accounted = accounting, accounted
        port = _free_block(self.nodes + 2)
        self.cluster = "lab" if accounted else f"lab{port}"
        """What it is called: by this, programs of labs beside each other are told apart."""
        places = _places(kinds)
        lines = {"SchedulerParameters": "bf_interval=1,sched_interval=2,sched_min_interval=100000,batch_sched_delay=0"}
        accounting_port = port + self.nodes + 1
        text = _CONFIG.format(
            root=root,
            port=port,
            cluster=self.cluster,
            requeue=requeue_s,
            timeout=timeout_s,
            storage=_STORAGE.format(
                accounting=accounting_port, root=root, types=",".join(f"gres/gpu:{kind}" for kind in kinds)
            ).strip()
            if accounted
            else _NO_STORAGE,
            machines="\n".join(
                f"NodeName=n[{first}-{last}] NodeAddr=127.0.0.1 NodeHostname=localhost "
                f"Port=[{port + first}-{port + last}] Gres=gpu:{kind}:{gpus}"
                for kind, first, last in places
            ),
            settings="\n".join(f"{key}={value}" for key, value in {**lines, **(settings or {})}.items()),
            partitions="\n".join(partitions),
        )
        root.chmod(0o755)  # jobs of other users run below it
        for folder in ("state", "spool", "dev"):
            (root / folder).mkdir(parents=True)
        (root / "slurm.conf").write_text(text)
        (root / "slurmdbd.conf").write_text(_ACCOUNTING.format(root=root, accounting=accounting_port))
        (root / "slurmdbd.conf").chmod(0o600)
        devices = f"{root}/dev/nvidia[0-{gpus - 1}]"
        gres = [f"NodeName=n[{first}-{last}] Name=gpu Type={kind} File={devices}" for kind, first, last in places]
        (root / "gres.conf").write_text("\n".join(["AutoDetect=off", *gres, ""]))
        for device in range(gpus):
            os.mknod(root / "dev" / f"nvidia{device}", 0o020666, os.makedev(195, device))
        (root / "munge.key").write_bytes(os.urandom(128))
        (root / "munge.key").chmod(0o400)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        """By name; nodes by theirs."""
        self._environment = {**os.environ, "SLURM_CONF": str(root / "slurm.conf"), "TZ": "UTC"}
        self._environment["MYSQL_UNIX_PORT"] = str(root / "mysql.sock")

    def __enter__(self) -> "SlurmLab":
        root = self.root
        files = [f"--{kind}={root}/munge{end}" for kind, end in (("key-file", ".key"), ("socket", ".sock"))]
        files += [f"--{kind}={root}/munge{end}" for kind, end in (("pid-file", ".pid"), ("log-file", ".log"))]
        try:
            self._start("munged", "--foreground", "--force", *files, f"--seed-file={root}/munge.seed")
            _until(lambda: (root / "munge.sock").exists(), "munged did not start")
            if self._accounted:
                self._start_accounting()
            self.start("slurmctld")
            for number in range(1, self.nodes + 1):
                self.start(f"n{number}")
            _until(self._ready, "the nodes did not come up")
            self._account(early=False)
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
        self._account(early=True)

    def _account(self, *, early: bool) -> None:
        """Give the commands of accounting: QOSs are made before the controller starts, whose partitions may have them.

        The others come after it: accounting learns from the controller that there are GPUs to limit.
        """
        for command in self._accounting:
            if command.startswith("add qos ") is early:
                self.run("sacctmgr", "-i", *command.split())

    def run(self, *command: str) -> str:
        """What a Slurm command prints."""
        done = subprocess.run(
            command, env=self._environment, cwd=self.root, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def submit(self, *options: str, seconds: float, user: str = "", stubborn: bool = False) -> str:
        """Return the number of a new job that sleeps so long; a stubborn one does not listen to SIGTERM."""
        owner = (f"--uid={user}",) if user else ()
        command = f"exec sleep {seconds:g}"
        if stubborn:
            command = f"trap '' TERM; {command}"
        fixed = ("sbatch", "--parsable", "-o", "/dev/null", "--chdir=/tmp")
        return self.run(*fixed, *owner, *options, "--wrap", command).strip()

    def waiting(self) -> int:
        """Jobs that have not ended."""
        return len(self.run("squeue", "-h", "-o", "%i").split())

    def dump_usage(self, folder: Path) -> None:
        """Write what accounts have used so far: the usage with which a recording begins."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "sshare.txt").write_text(self.run("sshare", "-a", "-l", "-P"))

    def dump(self, folder: Path) -> None:
        """Write what an operator prints, once the accounting knows that all jobs have ended (it lags behind)."""
        command = ("sacct", "-a", "-D", "-X", "--parsable2", "-S", "2000-01-01", "-o", _FORMAT)
        unsettled = ("|RUNNING|", "|PENDING|", "|Unknown|")
        _until(lambda: not any(word in self.run(*command) for word in unsettled), "the accounting did not settle", 60)
        texts = {name: self.run(*printed.split()) for name, printed in _PRINTED.items()}
        texts |= {"slurm.conf": (self.root / "slurm.conf").read_text(), "sacct.txt": self.run(*command)}
        for name, text in texts.items():
            (folder / name).write_text(text.replace(str(self.root), _COMMON))

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

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that lead Slurm's commands here."""
        return dict(self._environment)

    @property
    def pids(self) -> dict[str, int]:
        """Return the processes of its daemons, by name."""
        return {name: daemon.pid for name, daemon in self._daemons.items()}

    def start(self, name: str) -> None:
        """Start the controller (``slurmctld``), or a node by its name."""
        command = ("slurmctld", "-D") if name == "slurmctld" else ("slurmd", "-D", "-N", name)
        self._start(*command, name=name)

    def kill(self, name: str) -> None:
        """Kill the controller, or a node with all that runs there, as a loss of power would."""
        daemon = self._daemons.pop(name)
        daemon.kill()
        daemon.wait()
        if name != "slurmctld":
            for pid in _programs_of(self.cluster, name):
                _kill(pid)

    def stop(self, name: str) -> None:
        """End a daemon in good order: it writes its state down."""
        daemon = self._daemons.pop(name)
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)

    def resume(self, node: str) -> None:
        """Bring a node back that was down; Slurm refuses that until it has booked the ends of what ran there."""
        _until(
            lambda: self._works("scontrol", "update", f"NodeName={node}", "State=RESUME") or self._is_up(node),
            f"{node} cannot be resumed",
            60,
        )

    def _is_up(self, node: str) -> bool:
        return self.run("sinfo", "-h", "-N", "-n", node, "-o", "%T").strip() in ("idle", "mixed", "allocated")

    def until_answers(self) -> None:
        """Wait until the controller answers."""
        _until(lambda: self._works("squeue", "-h"), "slurmctld does not answer")

    def _start(self, *command: str, name: str = "") -> None:
        with (self.root / f"{command[0]}.out").open("ab") as output:
            self._daemons[name or command[0]] = subprocess.Popen(
                command, env=self._environment, stdout=output, stderr=output, start_new_session=True
            )

    def _stop(self) -> None:
        daemons = list(reversed(self._daemons.values()))
        for daemon in daemons:
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
        for daemon in daemons:
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()


def _programs_of(cluster: str, node: str) -> list[int]:
    """Return the processes of jobs on a virtual node of a lab, those first that would tell the controller of an end."""
    watchers, programs = [], []
    wanted = {f"SLURMD_NODENAME={node}".encode(), f"SLURM_CLUSTER_NAME={cluster}".encode()}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            inside = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            above = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            words = Path(f"/proc/{above}/cmdline").read_bytes()
        except OSError:
            continue
        if wanted <= set(inside):
            programs.append(int(entry))
            if words.startswith(b"slurmstepd"):
                watchers.append(above)
    return [*watchers, *programs]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _places(kinds: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """Each GPU type with the numbers of its first and last node."""
    last, places = 0, []
    for kind, count in kinds.items():
        places.append((kind, last + 1, last + count))
        last += count
    return places


def _until(met: Callable[[], bool], complaint: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        if time.monotonic() > deadline:
            raise RuntimeError(complaint)
        time.sleep(0.1)


def _free_block(length: int) -> int:
    """The first of so many neighbouring ports that nobody listens on."""
    for first in range(16817 + 100 * (os.getpid() % 64), 30000, 100):
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
