"""Which CPUs programs run on: each gets as many as it holds, those that others hold least.

A program that holds parts of CPUs may run on all of them where a quota of a control group keeps it to its part: pinned
to one CPU, two programs with most of a CPU each would have it together.
"""

from collections.abc import Iterable, Sequence


class CpuBooks:
    """Thousandths of each CPU that leases hold."""

    def __init__(self, cpus: Sequence[int], *, quotas: bool = False) -> None:
        """``quotas``: whether programs are kept to parts of CPUs."""
        self._quotas = quotas
        self.all = tuple(cpus)
        self._held = dict.fromkeys(cpus, 0)
        self._leases: dict[int, tuple[tuple[int, ...], int]] = {}

    def given(self, lease: int, cpu_milli: int) -> tuple[int, ...]:
        """Return the CPUs of a lease; none for one that holds none, which may run on all."""
        count = -(-cpu_milli // 1000)
        if not 0 < count < len(self._held) or (self._quotas and cpu_milli % 1000):
            return ()
        chosen = sorted(sorted(self._held, key=lambda cpu: (self._held[cpu], cpu))[:count])
        self.take(lease, chosen, cpu_milli)
        return tuple(chosen)

    def take(self, lease: int, cpus: Iterable[int], cpu_milli: int) -> None:
        """Enter the CPUs of a lease."""
        known = tuple(cpu for cpu in cpus if cpu in self._held)
        if known:
            each = cpu_milli // len(known)
            self._leases[lease] = (known, each)
            for cpu in known:
                self._held[cpu] += each

    def give_back(self, lease: int) -> tuple[int, ...]:
        """Enter that a lease is gone; return the CPUs that it had, none for one that may run on all."""
        cpus, each = self._leases.pop(lease, ((), 0))
        for cpu in cpus:
            self._held[cpu] -= each
        return cpus
