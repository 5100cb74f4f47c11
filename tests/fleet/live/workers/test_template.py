"""Workers are forked from one process that has imported libraries, and nothing of the user's."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headway.fleet.live.options import Options
from headway.fleet.live.scene import live_scene, served
from headway.fleet.live.server import Server
from headway.fleet.live.workers.forking import UNKNOWN, Template
from headway.fleet.live.workers.template import libraries
from headway.runs.settings.files import typed
from tests.fleet.live.test_server import Bench


def test_libraries_are_those_that_are_imported_when_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("import numpy.linalg\nfrom app import nothing\n")
    (app := tmp_path / "app.py").write_text(
        "import os, msgspec\nfrom scipy import stats\nimport beside\nimport not_there_at_all\n"
        "try:\n    import pyarrow\nexcept ImportError:\n    pass\n"
        "def build():\n    import polars\n"
    )
    assert set(libraries(app)) - {"os"} == {"msgspec", "scipy", "numpy.linalg", "pyarrow"}
    app.write_text("import (")
    assert libraries(app) == []
    assert libraries(tmp_path / "none.py") == []


def test_a_library_that_starts_a_thread_is_left_to_workers(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    code = (
        "from headway.fleet.live.workers.template import imported; "
        "print([imported(['no_such_library']), imported(['busy'])])"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['', 'a library starts threads when it is imported']"


def test_who_cannot_import_is_started_without_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A template that ends while it imports is replaced by one that imports nothing."""
    (app := tmp_path / "app.py").write_text("")
    asked: list[tuple[str, ...]] = []
    template = Template(app)
    start = template._started

    async def started(*words: str) -> bool:
        asked.append(words)
        return False if words else await start(*words)

    monkeypatch.setattr(template, "_started", started)
    try:
        asyncio.run(template.ready())
        assert asked == [(str(app),), ()]
        assert template.pid
    finally:
        template.stop()
    assert not template.pid


def test_nothing_of_the_application_runs_in_the_template(tmp_path: Path) -> None:
    (app := tmp_path / "app.py").write_text("open(__file__ + '.ran', 'w').close()\n")
    template = Template(app)
    try:
        asyncio.run(template.ready())
    finally:
        template.stop()
    assert not (tmp_path / "app.py.ran").exists()


def test_a_worker_of_a_killed_template_goes_on_and_the_next_has_a_new_one(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        parents = {int(_stat(worker.pid)[3]) for worker in server.processes}
        first, (one, other) = parents.pop(), [worker.pid for worker in server.processes]
        assert not parents
        assert [os.getsid(pid) for pid in (one, other)] == [one, other]
        os.kill(first, signal.SIGKILL)
        assert await server.submit("one", {"n": 1}) == {"n": 1, "trail": ["read"]}
        os.kill(one, signal.SIGKILL)
        while server.processes[0].pid == one or not all(worker["up"] for worker in server.status()["workers"]):
            await asyncio.sleep(0.05)
        assert server.processes[1].pid == other
        assert int(_stat(server.processes[0].pid)[3]) != first
        assert await server.submit("one", {"n": 2}) == {"n": 2, "trail": ["read"]}

    (bench := Bench(tmp_path)).run(body)
    assert "worker 0 ended (nobody knows how) and is started again" in bench.log


def _stat(pid: int) -> list[str]:
    """The fields of a process; the fourth is its parent."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return [str(pid), "", *text.rpartition(")")[2].split()]


def test_forked_workers_draw_different_numbers(tmp_path: Path) -> None:
    (app := tmp_path / "app.py").write_text(
        "import random\nimport numpy as np\nimport headway as hw\n"
        "@hw.task(cpus=1)\n"
        "def draw(values): return [[random.random(), float(np.random.random())] for _ in values]\n"
        'drawing = hw.graph("drawing", draw)\n'
    )
    document = {"scale": "fleet", "serving": {"scenario": str(app), "workers": 2}, "policy": {"name": "hash"}}
    drawn: list[list[float]] = []

    async def body(server: Server) -> None:
        await server.start()
        try:
            drawn.extend(await asyncio.gather(*(server.submit("drawing", 0) for _ in range(20))))
            assert all(worker["starts"] == 1 for worker in server.status()["workers"])
        finally:
            await server.stop()

    with served(live_scene(typed(document, "test")), Options(app, tmp_path / "server")) as server:
        asyncio.run(body(server))
    assert len({one for one, _ in drawn}) == len({other for _, other in drawn}) == 20


def test_nobody_knows_how_a_worker_of_an_ended_template_ended() -> None:
    template = Template(Path("none.py"))
    assert template.reaped(1, parent=0) == UNKNOWN
    with pytest.raises(OSError, match="has ended"):
        template.fork(0, {})


def test_a_worker_of_an_ended_template_does_not_harm_the_next_one(tmp_path: Path) -> None:
    (app := tmp_path / "app.py").write_text("import headway as hw\n")

    async def body() -> None:
        template = Template(app)
        await template.ready()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            worker = template.fork(theirs.fileno(), {})
        first = template.pid
        os.kill(first, signal.SIGKILL)
        worker.kill()
        while worker.runs() or os.waitid(os.P_PID, first, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            await asyncio.sleep(0.01)
        await template.ready()
        second = template.pid
        assert second not in (0, first)
        assert worker.poll() == UNKNOWN
        assert template.pid == second
        template.stop()

    asyncio.run(body())
