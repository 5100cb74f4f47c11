"""The shim, the stub driver and its clients, compiled once a session; and how to run a client and read what it did."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.gpu.share.shim import build

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native"
STRICT = ("-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")
LONG_S = 120.0
"""Nothing here takes long: who is not back by then hangs."""

# A sanitizer asks dlsym for the functions it watches before it is ready to be asked back. So with one in it the shim
# has its dlsym under another name, by which the client calls it, and is linked into the client instead of preloaded.
RENAMED = "-Ddlsym=headway_dlsym"
SANITIZERS = {
    "plain": (),
    "asan": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", RENAMED),
    "tsan": ("-fsanitize=thread", RENAMED),
}


def compiled(made: Path, files: list[Path], *flags: str) -> Path:
    """A program or library, or the compiler's words."""
    compiler = shutil.which("g++")
    assert compiler, "the tests of the shim need g++: apt-get install g++"
    draft = made.with_name(f"{made.name}.{os.getpid()}")  # several processes may make the same one
    call = [compiler, *STRICT, *flags, "-o", str(draft), *map(str, files), "-ldl"]
    ran = subprocess.run(call, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{made.name} does not compile:\n{ran.stderr}"
    return draft.replace(made)


@dataclass(frozen=True, slots=True)
class Run:
    """A client that has ended."""

    pid: int
    status: int
    said: str
    did: dict[str, Any]
    log: list[dict[str, Any]]
    counts: dict[int, dict[str, int]]

    def calls(self, *names: str, pid: int | None = None) -> list[dict[str, Any]]:
        """What reached the driver by functions that begin with one of the names."""
        return [row for row in self.log if row["call"].startswith(names) and row["pid"] == (pid or self.pid)]

    def total(self, *names: str) -> int:
        """How often the driver counted those, in all processes."""
        return sum(count for counts in self.counts.values() for name, count in counts.items() if name in names)


@dataclass(frozen=True, slots=True)
class Client:
    """A client that runs."""

    process: subprocess.Popen[str]
    log: Path

    def end(self, seconds: float = LONG_S) -> Run:
        """Wait for it."""
        try:
            printed, said = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        rows = [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []
        counts = {row["pid"]: row["counts"] for row in rows if "counts" in row}
        did = json.loads(printed) if printed.strip() else {}
        calls = [row for row in rows if "call" in row]
        return Run(self.process.pid, self.process.returncode, said, did, calls, counts)


@dataclass(frozen=True, slots=True)
class Built:
    """Everything compiled, in one folder, perhaps with a sanitizer in it."""

    folder: Path
    kind: str

    @property
    def shim(self) -> Path:
        """The library to preload."""
        return self.folder / build.LIBRARY

    def environment(self, share: Path | None, priority: int = 0, name: str = "test", **more: str) -> dict[str, str]:
        """A client's environment; without a block where ``share`` is None."""
        ours = {
            "PATH": os.environ["PATH"],
            "LD_PRELOAD": str(self.shim) if self.kind == "plain" else "",
            "LD_LIBRARY_PATH": str(self.folder),
            "HEADWAY_PRIORITY": str(priority),
            "HEADWAY_NAME": name,
            "HEADWAY_PROGRAM": name,
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=66",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "TSAN_OPTIONS": "exitcode=66:die_after_fork=0:ignore_noninstrumented_modules=1",
        }
        return ours | ({"HEADWAY_SHARE": str(share)} if share else {}) | more

    def start(
        self, folder: Path, share: Path | None, *flags: str, priority: int = 0, name: str = "test", **more: str
    ) -> Client:
        """Start a client; its log of the driver's calls goes to ``folder``."""
        linked = "--reach" not in flags or "direct" in flags
        log = folder / f"{name}-{len(list(folder.glob('*.log')))}.log"
        log.touch()
        program = self.folder / ("client-linked" if linked else "client")
        environment = self.environment(share, priority, name, STUB_LOG=str(log), **more)
        process = subprocess.Popen(
            [program, *flags], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return Client(process, log)

    def run(
        self, folder: Path, share: Path | None, *flags: str, priority: int = 0, name: str = "test", **more: str
    ) -> Run:
        """Run a client to its end."""
        return self.start(folder, share, *flags, priority=priority, name=name, **more).end()


def built(folder: Path, kind: str) -> Built:
    """Everything, compiled into ``folder`` unless another process of this session has done it."""
    made = Built(folder / kind, kind)
    made.folder.mkdir(parents=True, exist_ok=True)
    done = made.folder / "done"
    files = sorted(file for file in (*NATIVE.glob("*"), *(NATIVE / "test").glob("*")) if file.is_file())
    wanted = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    with (folder / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != wanted:
            _build_all(made)
            done.write_text(wanted)
    return made


def _build_all(made: Built) -> None:
    flags, folder, test = SANITIZERS[made.kind], made.folder, NATIVE / "test"
    driver = folder / "libcuda.so.1"
    shared = ("-fPIC", "-shared", "-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1")
    common = [test / name for name in ("client.cpp", "verbs.cpp", "situations.cpp")]

    with ThreadPoolExecutor(2) as pool:
        flip = pool.submit(compiled, folder / "flip", [test / "flip.cpp"])
        shim = pool.submit(build.build, "g++", folder, ("-Werror", "-g", *flags))
        unseen = flags if made.kind != "tsan" else ()  # its lock must not put threads in order: see stub.h
        stub = pool.submit(compiled, driver, sorted(test.glob("stub_*.cpp")), *unseen, *shared)
        objects = list(pool.map(lambda file: compiled(folder / f"{file.stem}.o", [file], *flags, "-c"), common))
        within = [shim.result()] if made.kind != "plain" else []
        reach = test / "reach.cpp"
        plain = pool.submit(compiled, folder / "client", [reach, *objects, *within], *flags)
        linked = [reach, *objects, *within, stub.result()]
        compiled(folder / "client-linked", linked, *flags, "-DLINKED")
        plain.result()
        shim.result()
        flip.result()


def program(folder: Path, name: str) -> Path:
    """One of the programs beside the shim, watched for undefined behaviour."""
    folder.mkdir(parents=True, exist_ok=True)
    return compiled(folder / name, [NATIVE / f"{name}.cpp"], "-fsanitize=undefined", "-fno-sanitize-recover=all")


def broker_process(share: Path, rules: dict[int, dict[str, int]] | None = None) -> subprocess.Popen[str]:
    """A broker in a process of its own, ready when this returns."""
    call = [sys.executable, "-m", "tests.native.mini_broker", str(share), json.dumps(rules or {})]
    process = subprocess.Popen(call, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process
