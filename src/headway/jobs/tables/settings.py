"""Define the typed tables of an experiment file for training jobs, with their defaults.

Durations are text like ``5m`` or a number of seconds, sizes text like ``500GB``; empty text means: not given.
"""

from msgspec import Struct, field

from headway.errors import ExperimentError
from headway.jobs.tables.cluster import ClusterTable, within
from headway.runs.settings.tables import MeasureTable, RunTable, Variant
from headway.units import DAY, SECOND, exact_duration, parse_duration

Span = str | int | float
LONGEST = 100 * 365 * DAY
MOST_JOBS = 10_000_000
LEAST_MTBF = SECOND
"""The least time between failures, of a node or of a worker: below it nothing would ever be done."""
MOST_FAILURES = 15
"""Of a job's nodes between two of its checkpoints, on average: it then gets through once in three million times."""


class Synthetic(Struct, kw_only=True):
    """A Philly-like workload instead of a file; without ``gpus`` it is drawn for the whole cluster."""

    jobs: int
    load: float = 0.8
    gpus: int = 0
    outcomes: bool = True
    estimates: bool = True
    longest: Span = "60d"
    """No job has more work than this."""


class Synergy(Struct, kw_only=True):
    """A workload as Synergy's simulator draws it instead of a file."""

    jobs: int
    rate: str = "9/h"
    """Arrivals a time: 9/h, 0.5/min, 216/d."""
    split: str = "20,70,10"
    """Percentages of image, language and speech jobs."""
    gpus: str = "single"
    """single, or multi: 1, 2, 4 or 8 GPUs."""


class TraceTable(Struct, kw_only=True):
    """What arrives."""

    path: str = ""
    format: str = ""
    """Empty: told by the beginning of the file."""
    map: str = ""
    """For any table: which column is what, e.g. gpus=num_gpus,submit=timestamp,work=duration."""
    start: str = ""
    """Jobs submitted from then on, a date of the site or a time since the first submission; what ran or waited then
    is taken along and not measured."""
    end: str = ""
    """Jobs submitted before then."""
    begins: str = ""
    """The date of the first submission, of a trace that has no dates."""
    zone: str = ""
    """Where the site is: Europe/Berlin. Dates of a log that writes instants are shown there; else in UTC."""
    synthetic: Synthetic | None = None
    synergy: Synergy | None = None
    models: str = ""
    """20,70,10: jobs that do not say what they train are drawn a model by this split of image, language and speech."""
    load: float | str = 1
    """Arrivals come so many times as fast."""
    estimates: str = "trace"
    """What users announce: trace, exact, factor:N or user."""
    skip_infeasible: bool = False
    """Drop and count jobs that could never run, instead of refusing the trace."""
    same_jobs: bool = False
    """With variants: what one of them could never run is left out of all."""
    leave_out: list[str] = field(default_factory=list)
    """Jobs to leave out, by name."""
    strict: bool = False
    """Refuse a trace with a bad row or out of order; otherwise bad rows are dropped and explained, and it is sorted."""
    skip_bad_rows: bool = False
    """Go on although one rule drops more than a tenth of the rows."""


class PolicyTable(Struct, kw_only=True):
    """Who decides. The other keys fill in what the name leaves open."""

    name: str = "fifo"
    backfill: str = ""
    placement: str = ""
    preemption: str = ""
    """on, off, or empty: as the order wants it."""
    migration: str = ""
    """off, costed, free, always."""
    quantum: Span = ""
    allocation: str = ""
    """Who divides CPUs, memory and storage: proportional, greedy, tune, …; empty: jobs hold what they ask for."""
    round: Span = ""
    """Decide at multiples of this only; empty: 300s with an allocation, at every event without."""


class CostsTable(Struct, kw_only=True):
    """What stopping and moving a job costs it."""

    preemption: Span = ""
    """Empty: the job's own checkpoint and restore times."""
    migration: Span = "60s"
    reallocation: Span = 0
    """For other CPUs or memory where it is: 0 where limits change under a running program."""


class MaintenanceTable(Struct, kw_only=True):
    """Scheduled work on some nodes."""

    nodes: list[int] | str
    start: Span
    length: Span
    lead: Span = 0


class FailuresTable(Struct, kw_only=True):
    """Node failures; without ``mtbf`` nodes do not fail."""

    mtbf: Span = ""
    repair: Span = "4h"
    maintenance: list[MaintenanceTable] = field(default_factory=list)


class SpeedTable(Struct, kw_only=True):
    """What CPUs, memory and storage bandwidth do for jobs; in use with an allocation."""

    model: str = ""
    """matrix or synergy-scalar; empty: matrix with an allocation, none without."""
    profiles: list[str] | str = field(default_factory=list)
    """Profile files and folders of them; they come before the shipped ones of the same name."""
    error: float = 0
    """How far the truth lies from the profiles: each cell off by up to this share, drawn from the seed."""


class JobsRunTable(RunTable, kw_only=True):
    """The seed, the folder, and when ends of jobs are noticed."""

    completions: str = "exact"
    """When the end of a job is noticed: exact, or round: at the end of the round it falls into."""
    engine: str = ""
    """Where jobs ran as real programs: local, on the machine of a queue; slurm. Empty: nowhere, it is a simulation."""


class JobsMeasureTable(MeasureTable, kw_only=True):
    """Which jobs are measured, over how many seeds, against which run, and the confidence level of intervals."""

    jobs: str = ""
    """4000:5000: of the jobs in submission order, numbered from 0, those from 4000 up to but not including 5000."""
    warmup: Span = ""
    """Jobs that are submitted before: a share of the jobs like 10%, or a time."""
    price: list[str] | str = ""
    """Of an hour of one GPU, by type: h100=3.2,a100=1.8."""
    watts: list[str] | str = ""
    """Of one GPU while a job holds it, by type: h100=700."""


class Experiment(Struct, kw_only=True):
    """One experiment: a run, or with ``variants`` a run for each."""

    scale: str = "jobs"
    trace: TraceTable = field(default_factory=TraceTable)
    cluster: ClusterTable = field(default_factory=ClusterTable)
    policy: PolicyTable = field(default_factory=PolicyTable)
    costs: CostsTable = field(default_factory=CostsTable)
    speed: SpeedTable = field(default_factory=SpeedTable)
    failures: FailuresTable = field(default_factory=FailuresTable)
    run: JobsRunTable = field(default_factory=JobsRunTable)
    measure: JobsMeasureTable = field(default_factory=JobsMeasureTable)
    variants: list[Variant] = field(default_factory=list)


def span(value: Span, what: str, *, least: int = 0) -> int:
    """Parse a duration into nanoseconds and check that it lies within its bounds."""
    text = str(value)
    if text.strip().startswith("-"):
        raise ExperimentError(f"{what} {text!r} must not be negative")
    time = parse_duration(text, what=what)
    if time < least:
        rule = "above 0" if least == 1 or not time else f"at least {exact_duration(least)}"
        raise ExperimentError(f"{what} {text!r} must be {rule}")
    if time > LONGEST:
        raise ExperimentError(f"{what} {text!r} must not be over 100 years")
    return time


def optional_span(value: Span, what: str) -> int | None:
    """Parse a duration like ``span``; None where it was not given."""
    return None if value == "" else span(value, what)


def check_synthetic(table: Synthetic) -> Synthetic:
    """Check the numbers of a table, and return it."""
    within("synthetic jobs", table.jobs, 1, MOST_JOBS)
    within("synthetic load", table.load, 0.001, 1000)
    within("synthetic gpus", table.gpus, 0, 10**7)
    span(table.longest, "synthetic longest", least=SECOND)
    return table


def check_synergy(table: Synergy) -> Synergy:
    """Check the number of jobs of a table, and return it; the rest is checked where it is drawn."""
    within("synergy jobs", table.jobs, 1, MOST_JOBS)
    return table
