"""Runs of kernels on one GPU from the command line: the same commands, for programs that share it."""

from collections.abc import Mapping, Sequence
from typing import Any

from headway.cli import console
from headway.cli.flags import FLEET_POLICY, split_policies
from headway.cli.progress import share_bar
from headway.errors import ExperimentError
from headway.experiment import kernels as wiring
from headway.report import kernel_tables

SCENARIO = wiring.SCENARIO
KERNEL_FLAGS = ("high", "low", "think", "seconds", "floor")
"""What only runs of kernels have."""
_UNDERSTOOD = {*KERNEL_FLAGS, "scenario", "policy", "policies", "slo", "seed", "as_json", "processes"}


def simulate(flags: Mapping[str, Any]) -> None:
    """``headway simulate --scenario kernels …``."""
    each = _experiment(flags, flags.get("policy") or FLEET_POLICY)
    (row,) = _rows(each, [each.policy])
    if flags.get("as_json"):
        console.print_json(row)
        return
    console.out().print(kernel_tables.comparison([row]), "", kernel_tables.clients(row))


def compare(flags: Mapping[str, Any]) -> None:
    """``headway compare --scenario kernels …``."""
    policies = split_policies(str(flags["policies"]), "time-slicing,mps,headway")
    rows = _rows(_experiment(flags, policies[0]), policies)
    console.print_json(rows) if flags.get("as_json") else console.out().print(kernel_tables.comparison(rows))


def _rows(each: wiring.KernelsExperiment, policies: Sequence[str]) -> list[dict[str, Any]]:
    """One row a policy, with a bar meanwhile."""
    clients = wiring.clients_of(each)
    for line in (*wiring.notes(clients), *wiring.few(each, policies)):
        console.note(line)
    with share_bar("kernels") as tell:
        return wiring.compare(each, policies, clients, tell)


def refuse_kernel_flags(flags: Mapping[str, Any]) -> None:
    """What only programs on one GPU have means nothing for jobs or requests."""
    for flag in KERNEL_FLAGS:
        if flags.get(flag) is not None:
            raise ExperimentError(f"--{flag} needs --scenario {SCENARIO}: it is about programs that share one GPU")


def _experiment(flags: Mapping[str, Any], policy: str) -> wiring.KernelsExperiment:
    for flag, value in flags.items():
        if flag not in _UNDERSTOOD and value not in (None, False):
            named = "set" if flag == "overrides" else flag.replace("_", "-")
            raise ExperimentError(f"--{named} means nothing with --scenario {SCENARIO}")
    seconds = flags.get("seconds")
    return wiring.KernelsExperiment(
        tuple(flags.get("high") or ()),
        tuple(flags.get("low") or ()),
        policy,
        wiring.think_time(flags.get("think")),
        wiring.check_seconds(2.0 if seconds is None else seconds),
        flags.get("seed") or 0,
        wiring.options(flags.get("slo"), flags.get("floor")),
    )
