"""A small application for tests of servers: what its tasks do is said by the requests."""

import os
import signal
import subprocess
import time
from typing import Any

import headway as hw

Order = dict[str, Any]
"""``{"do": "sleep", "s": 0.1}``, and the trail of tasks that it went through."""


@hw.model(memory="40MB")
def words() -> dict[str, int]:
    return {"a": 1}


@hw.model(memory="40MB")
def sounds() -> dict[str, int]:
    return {"b": 2}


def _obey(order: Order, task: str) -> Order:
    if order.get("at", task) == task:
        match order.get("do"):
            case "sleep":
                time.sleep(order["s"])
            case "memory":
                raise MemoryError("too much")
            case "child":
                child = subprocess.Popen(["sleep", "600"])
                return {**order, "child": child.pid}
            case "raise":
                raise ValueError(f"cannot do {order['n']}")
            case "kill" if not os.path.exists(order["once"]):
                open(order["once"], "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            case "kill-always":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang" if not os.path.exists(order["once"]):
                open(order["once"], "w").close()
                time.sleep(600)
    return {**order, "trail": [*order.get("trail", ()), task]}


@hw.task(models=[words], max_batch=4)
def read(model: Any, orders: list[Order]) -> list[Order]:
    return [_obey(order, "read") for order in orders]


@hw.task(models=[sounds], max_batch=4)
def speak(model: Any, orders: list[Order]) -> list[Order]:
    return [_obey(order, "speak") for order in orders]


@hw.task(cpus=1)
def join(read: list[Order], speak: list[Order]) -> list[Order]:
    return [{"trail": [*a["trail"], *b["trail"], "join"], "n": a["n"]} for a, b in zip(read, speak, strict=True)]


@hw.task(cpus=1)
def begin(orders: list[Order]) -> list[Order]:
    return [_obey(order, "begin") for order in orders]


both = hw.graph("both", begin >> {read, speak} >> join, slo="20s")
one = hw.graph("one", read)
