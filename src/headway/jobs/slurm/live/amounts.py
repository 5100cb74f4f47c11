"""Amounts and names as Slurm takes them: whole CPUs and mebibytes of each node, names of plain characters."""

import re

_MEBIBYTE = 2**20


def plain_name(name: str) -> str:
    """Return a name with characters that Slurm's output can be split at replaced."""
    return re.sub(r"[^\w.+-]", "_", name, flags=re.ASCII) or "job"


def cpus_per_node(cpu_milli: int, nodes: int) -> int:
    """Return whole CPUs of each node, at least one."""
    return max(1, -(-cpu_milli // (1000 * max(1, nodes))))


def mebibytes_per_node(memory_bytes: int, nodes: int) -> int:
    """Return the memory of each node, rounded up."""
    return -(-memory_bytes // (_MEBIBYTE * max(1, nodes)))
