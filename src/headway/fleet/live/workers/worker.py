"""A worker: a process that runs batches of an application's tasks, on a socket that its server gave it.

``python -m headway.fleet.live.workers.worker FD``. One thread reads orders and keeps the books of memory, in the order
in which they came. Batches on the device run one after the other in the main thread, those on CPUs alone in threads of
their own; models are fetched ahead in another thread. A closed socket or SIGTERM ends the process at once.
"""

import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from time import sleep
from typing import Any

from headway.door.frames import Frames, framed
from headway.errors import InputError
from headway.fleet.live.weights.device import Device, device_named
from headway.fleet.live.weights.host import Host
from headway.fleet.live.weights.memory import Memory, RefusedError
from headway.fleet.live.weights.origins import Origins, run_stamp
from headway.fleet.live.weights.residents import Resident, Unprepared, prepared
from headway.fleet.live.workers.batch import Batch, reason
from headway.fleet.live.workers.messages import (
    NO_LEASE,
    ORDERS,
    Answer,
    Beat,
    Evict,
    Fetch,
    Fetched,
    Finished,
    Hello,
    Loaded,
    Lost,
    Order,
    Rejected,
    Run,
    Setup,
    Stop,
)
from headway.fleet.live.workers.payload import Packer
from headway.fleet.live.workers.warmup import warm_up
from headway.fleet.live.workers.worker_lanes import Lane
from headway.fleet.scenarios.app import App, read_app
from headway.program.pipeline import Model, Task

BEAT_SECONDS = 0.5
_MOST_AT_ONCE = 64
"""Batches on CPUs alone; the server admits fewer."""
_READ_BYTES = 1 << 18


def say(text: str) -> None:
    """Write a line to the server's log."""
    sys.stderr.write(f"worker {os.getpid()}: {text}\n")
    sys.stderr.flush()


class Link:
    """The socket to the server; any thread may send."""

    def __init__(self, handle: int) -> None:
        self._socket = socket.socket(fileno=handle)
        self._socket.set_inheritable(False)
        self._socket.setblocking(True)
        self._turn = threading.Lock()
        os.register_at_fork(after_in_child=self._socket.close)  # a child would keep it open after our end

    def send(self, message: Answer) -> None:
        """Send a message; end the process where nobody is there to read it."""
        data = framed(message)
        try:
            with self._turn:
                self._socket.sendall(data)
        except OSError:
            os._exit(0)

    def flush(self) -> None:
        """Return when what was sent has left this process: at once, a socket has it."""

    def orders(self) -> Iterator[Order]:
        """Yield orders as they come; end the process when the socket is closed."""
        frames = Frames(ORDERS)
        while True:
            try:
                data = self._socket.recv(_READ_BYTES)
            except OSError:
                data = b""
            if not data:
                os._exit(0)
            yield from frames.feed(data)


class Worker:
    """Carries orders out."""

    def __init__(self, link: Link, setup: Setup, app: App) -> None:
        self._link = link
        self._setup = setup
        self._packer = Packer(setup.prefix)
        tasks, named = {each.name: each for each in app.tasks}, {each.name: each for each in app.models}
        self._functions: list[Callable[..., Any]] = [tasks[name].run for name in setup.functions]
        self._device: Device = device_named(setup.device, setup.memory_bytes, Path(setup.host_folder), say)
        residents = self._prepared([named[name] for name in setup.models])
        self._sizes = tuple(each.size_bytes for each in residents)
        capacity = setup.booked_bytes or setup.memory_bytes - self._device.overhead_bytes
        self._memory = Memory(residents, capacity, self._device, setup.model_bytes)
        self._batches: SimpleQueue[Run | None] = SimpleQueue()
        self._given, self._done = 0, 0
        """Batches of the main thread: the reader counts the one, the main thread the other."""
        self._loader = Lane(1)
        self._cpu_batches = Lane(_MOST_AT_ONCE)
        self._stopping = False
        self._ending = threading.Lock()
        """Held, and never given back, by the thread that ends the process."""
        threading.Thread(target=self._beat, daemon=True, name="beat").start()

    def _prepared(self, models: list[Model]) -> list[Resident]:
        """Return the models, ready to be loaded; workers that start together begin with different ones."""
        setup = self._setup
        app, disk = Path(setup.app), Path(setup.weights_folder) if setup.weights_folder else None
        stamp = run_stamp(app, setup.host_folder)
        host = Host(Path(setup.host_folder), disk, stamp, say, Origins(app, models))
        found: dict[int, Resident] = {}
        for step in range(len(models)):
            at = (setup.worker + step) % len(models)
            model, declared_bytes = models[at], models[at].memory_bytes or 0

            def prepare(model: Model = model, declared_bytes: int = declared_bytes) -> Resident:
                return prepared(model.name, model.build, declared_bytes, host, self._device.reserve)

            try:
                found[at] = prepare()
            except Exception as problem:  # noqa: BLE001 - the user's function; others serve on, this one says so
                traceback.print_exc(file=sys.stderr)
                say(f"model {model.name} cannot be built: {reason(problem)}")
                found[at] = Unprepared(model.name, prepare, declared_bytes)
        return [found[at] for at in range(len(models))]

    def warm_up(self, app: App) -> None:
        """Run all tasks of an application on their examples, then give the models back."""
        numbers = {name: number for number, name in enumerate(self._setup.models)}

        def call(task: Task, lists: list[list[Any]]) -> list[Any]:
            models = [numbers[model.name] for model in task.models]
            self._device.use_cpus(task.cpus)
            with self._memory.held(models) as values:
                results = task.run(*values, *lists)
                if task.slices:
                    self._device.wait()
            return results

        for line in warm_up(app.graphs, call):
            say(line)
        self._memory.make_room()

    def hello(self) -> None:
        """Say that the worker is ready; from now on, also which models it had to evict by itself."""
        self._memory.on_lost = lambda models, lease: self._link.send(Lost(models, lease))
        self._link.send(Hello(os.getpid(), self._sizes, self._device.overhead_bytes))

    # --- orders: in the reader's thread -------------------------------------------------------------------------

    def read(self, orders: Iterator[Order]) -> None:
        """Take orders for the rest of the process's life."""
        for order in orders:
            match order:
                case Run():
                    self._on_run(order)
                case Fetch():
                    self._on_fetch(order)
                case Evict(model):
                    self._reserved(NO_LEASE, (), (model,))
                case Stop():
                    self._stopping = True
                    self._batches.put(None)
                case Setup():
                    self._link.send(Rejected(NO_LEASE, "the worker has its setup already", stale=True))

    def _on_run(self, order: Run) -> None:
        if self._stopping:
            self._link.send(Rejected(order.lease, "the worker is stopping", stale=True))
            return
        missing = False
        if order.models or order.evict:
            found = self._reserved(order.lease, order.models, order.evict)
            if found is None:
                return
            missing = found
        if not order.slices:
            self._cpu_batches.put(lambda: self._run(order))
            return
        if missing and self._given != self._done:  # load while the batches before it run
            self._loader.put(lambda: self._load_ahead(order))
        self._given += 1
        self._batches.put(order)

    def _on_fetch(self, order: Fetch) -> None:
        if self._reserved(order.lease, (order.model,), order.evict) is not None:
            self._loader.put(lambda: self._fetch(order))

    def _reserved(self, lease: int, models: tuple[int, ...], evict: tuple[int, ...]) -> bool | None:
        """Evict and reserve; return whether models must be loaded, None where it was rejected."""
        try:
            return self._memory.reserve(models, evict, lease)
        except RefusedError as problem:
            self._link.send(Rejected(lease, str(problem), stale=True))
            return None

    # --- models: in the loader's thread -------------------------------------------------------------------------

    def _fetch(self, order: Fetch) -> None:
        problem = self._loaded((order.model,))
        self._memory.release((order.model,))
        if problem:
            self._link.send(Rejected(order.lease, problem, self._memory.missing((order.model,))))
        else:
            self._link.send(Fetched(order.lease, order.model))

    def _load_ahead(self, order: Run) -> None:
        """Load the models of a batch before its turn; what goes wrong is found again, and said, when its turn is."""
        self._loaded(order.models)

    def _loaded(self, models: tuple[int, ...]) -> str:
        """Load reserved models; return why that failed."""
        try:
            for model in models:
                self._memory.load(model)
        except Exception as problem:  # noqa: BLE001 - disk, driver or the user's function
            traceback.print_exc(file=sys.stderr)
            self._end_if_faulty()
            return f"models are not loaded: {reason(problem)}"
        return ""

    # --- batches: in the main thread, or in one of those for CPUs alone -----------------------------------------

    def work(self) -> None:
        """Run batches until the worker is told to stop."""
        while (order := self._batches.get()) is not None:
            self._run(order)
            self._done += 1
        self._cpu_batches.close()

    def _run(self, order: Run) -> None:
        if order.models and (problem := self._loaded(order.models)):
            self._memory.release(order.models)
            self._link.send(Rejected(order.lease, problem, self._memory.missing(order.models)))
            return
        if order.awaited:
            self._link.send(Loaded(order.lease))
        self._device.use_cpus(order.cpus)
        models = self._memory.values(order.models)
        name, function = self._setup.functions[order.function], self._functions[order.function]
        wait = self._device.wait if order.slices else _nothing  # a batch on CPUs alone waits for no other's kernels
        batch = Batch(order, name, function, models, self._memory.make_room, wait)
        answer = batch.run(self._packer)
        if order.models:
            self._memory.release(order.models)
        if answer.failures:
            self._end_if_faulty(answer)
        self._link.send(answer)

    def _end_if_faulty(self, answer: Finished | None = None) -> None:
        """End this process where it can no longer use the device: another is started.

        Tasks that did it fail: their answer is sent. Others go to another worker, as when a process is killed.
        """
        if (fault := self._device.fault()) is not None:
            self._ending.acquire()  # for good: no other thread ends the process before the answer has left
            if answer is not None and fault.is_own:
                self._link.send(answer)
                self._link.flush()
            say(f"{fault.reason}: this worker ends")
            os._exit(1)

    def _beat(self) -> None:
        while True:
            sleep(BEAT_SECONDS)
            if self._given == self._done:  # else the batch that runs finds it, and knows whether it was the cause
                self._end_if_faulty()
            used, of_device = self._device.used_bytes(self._memory.used_bytes)
            self._link.send(Beat(used, of_device))


def _nothing() -> None:
    """Do nothing."""


def serve(handle: int) -> None:
    """Be a worker on a socket until the server says stop or is gone."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal: the server says what ends when
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    threading.excepthook = _die
    link = Link(handle)
    setups: SimpleQueue[Order] = SimpleQueue()
    workers: SimpleQueue[Worker] = SimpleQueue()
    threading.Thread(target=_read, args=(link, setups, workers), daemon=True, name="orders").start()
    try:
        worker = prepared_worker(link, setups.get())
    except Exception as problem:  # noqa: BLE001 - the user's file; the server says it
        if not isinstance(problem, InputError):  # its line says all
            traceback.print_exc(file=sys.stderr)
        link.send(Rejected(NO_LEASE, reason(problem)))
        os._exit(1)
    worker.hello()
    workers.put(worker)
    try:
        worker.work()
    except BaseException:  # noqa: BLE001 - threads of user code would keep a process without its main thread alive
        traceback.print_exc(file=sys.stderr)
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)  # whatever threads user code left


def prepared_worker(link: Link, setup: Order) -> Worker:
    """Return a worker that is ready for orders, warm where that is asked for."""
    if not isinstance(setup, Setup):
        raise RefusedError(f"{type(setup).__name__} came before Setup")
    if setup.cpus:
        os.sched_setaffinity(0, setup.cpus)
    worker = Worker(link, setup, app := read_app(Path(setup.app)))
    if setup.warm:
        worker.warm_up(app)
    return worker


def _read(link: Link, setups: "SimpleQueue[Order]", workers: "SimpleQueue[Worker]") -> None:
    """Take orders: the setup, then those to a worker that is ready. A closed socket is noticed at all times."""
    orders = link.orders()
    setups.put(next(orders))
    first = next(orders)
    workers.get().read(chain((first,), orders))


def _die(problem: threading.ExceptHookArgs) -> None:
    """End the process: a worker without one of its threads would hang."""
    traceback.print_exception(problem.exc_type, problem.exc_value, problem.exc_traceback, file=sys.stderr)
    os._exit(1)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
