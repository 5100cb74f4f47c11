"""Draw workloads as Synergy's simulator does, and assign models to the jobs of other traces.

Jobs arrive as a Poisson process; four of five take half an hour to sixteen hours and the rest up to a week; each is of
a class (image, language, speech) and trains one of its models (Mohan et al., OSDI 2022). Traces of clusters do not say
what their jobs train, so ``with_models`` draws that for them in the same way.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from headway.core.collector import no_collection
from headway.errors import ExperimentError, unknown_name
from headway.jobs.model.job import Job, workload
from headway.jobs.traces.build import altered, build
from headway.streams import stream
from headway.units import DAY, HOUR, MINUTE, SECOND

CLASSES = {
    "image": ("alexnet", "shufflenet", "res18", "mobilenet", "res50"),
    "language": ("gnmt", "transformer", "lstm"),
    "speech": ("m5", "deepspeech"),
}
"""What each class trains, in the order of a split."""
WIDTHS = {"single": ((1,), (1.0,)), "multi": ((1, 2, 4, 8), (0.70, 0.10, 0.15, 0.05))}
"""GPUs of jobs, and how often each number comes."""

_PER = {"s": SECOND, "sec": SECOND, "m": MINUTE, "min": MINUTE, "h": HOUR, "d": DAY}
_SHORT_SHARE = 0.8
_SHORT, _LONG = (1.5, 3.0), (3.0, 4.0)
"""Powers of ten of minutes between which durations lie."""
_SLACK = Fraction(1)
"""Thirds are written 33,33,33: what three equal percentages may be off by."""
_MOST_DIGITS = 12
_LONGEST_SPAN = 2**62


def parse_split(text: str, what: str = "split") -> tuple[float, ...]:
    """Parse ``50,0,50`` into the shares of image, language and speech jobs; they sum to 1."""
    parts = [_number(part) for part in text.split(",")]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts) or len(known) != len(CLASSES):
        raise ExperimentError(
            f"{what} {text!r} is not understood: write percentages of image, language and speech jobs, like 20,70,10"
        )
    whole = sum(known, Fraction())
    if whole != 100 and not (len(set(known)) == 1 and abs(whole - 100) <= _SLACK):
        raise ExperimentError(f"{what} {text!r}: percentages must add up to 100, not {float(whole):g}")
    return tuple(float(part / whole) for part in known)


def parse_rate(text: str) -> float:
    """Parse ``9/h`` into the mean time between two arrivals, in nanoseconds."""
    number, _, unit = (part.strip() for part in text.partition("/"))
    count, per = _number(number), _PER.get(unit)
    if count is None or per is None:
        raise ExperimentError(f"rate {text!r} is not understood: write arrivals a time, like 9/h, 0.5/min or 216/d")
    if count <= 0:
        raise ExperimentError(f"rate {text!r} must be above 0")
    return float(per / count)


def _number(text: str) -> Fraction | None:
    """Parse a decimal number as it is written; None for anything else, a negative one among them."""
    digits = text.strip()
    plain = digits.replace(".", "", 1)
    return Fraction(digits) if plain.isdecimal() and plain.isascii() and len(plain) <= _MOST_DIGITS else None


def synergy_like(
    jobs: int, *, rate: str = "9/h", split: str = "20,70,10", gpus: str = "single", seed: int = 0
) -> tuple[Job, ...]:
    """Draw ``jobs`` jobs, the same for the same arguments; the first is submitted at 0.

    ``split`` is the percentages of image, language and speech jobs, ``gpus`` is single or multi: 1, 2, 4 or 8.
    """
    if jobs < 1:
        raise ExperimentError(f"a workload of {jobs} jobs cannot be drawn: at least 1 is needed")
    if gpus not in WIDTHS:
        raise ExperimentError(unknown_name("GPUs of jobs", gpus, WIDTHS))
    gap, shares = parse_rate(rate), parse_split(split)
    if gap * jobs > _LONGEST_SPAN:
        raise ExperimentError(f"{jobs} jobs at {rate} would span {gap * jobs / DAY / 365:.0f} years: raise the rate")
    submit = np.cumsum(stream(seed, "synergy.arrivals").exponential(gap, jobs))
    widths, often = WIDTHS[gpus]
    columns = {
        "submit": (submit - submit[0]).astype(np.int64).tolist(),
        "work": _durations(jobs, seed),
        "gpus": stream(seed, "synergy.widths").choice(widths, size=jobs, p=often).tolist(),
        "model": _models(jobs, shares, seed),
    }
    with no_collection():
        return workload(build(jobs, columns))


def _durations(jobs: int, seed: int) -> list[int]:
    """Draw durations of whole seconds, in nanoseconds."""
    draws = stream(seed, "synergy.durations")
    short = draws.random(jobs) < _SHORT_SHARE
    power = np.where(short, draws.uniform(*_SHORT, jobs), draws.uniform(*_LONG, jobs))
    seconds: list[int] = np.rint(60 * 10**power).astype(np.int64).tolist()
    return [each * SECOND for each in seconds]


def _models(jobs: int, shares: Sequence[float], seed: int) -> list[str]:
    """Return what each job trains: its class by the split, and any model of the class as likely as the others."""
    names = [
        (model, share / len(models)) for models, share in zip(CLASSES.values(), shares, strict=True) for model in models
    ]
    drawn = stream(seed, "synergy.models").choice(len(names), size=jobs, p=[share for _, share in names])
    return [names[index][0] for index in drawn.tolist()]


def with_models(jobs: Sequence[Job], split: str, seed: int = 0) -> tuple[Job, ...]:
    """Return the jobs, with a model drawn from ``seed`` for those on GPUs that do not say what they train."""
    drawn = _models(len(jobs), parse_split(split, "models"), seed)
    given = [job.model or (model if job.gpus else "") for job, model in zip(jobs, drawn, strict=True)]
    return altered(jobs, {"model": given})
