"""The setting ``serving.controller``: how long a decision takes."""

from headway.errors import ExperimentError
from headway.fleet.model.decision_time import DecisionTime
from headway.jobs.tables.settings import Span, span

NONE, CALIBRATED = "none", "calibrated"
_PARTS = ("fixed", "state")
_RULE = f"write {NONE}, {CALIBRATED}, a duration like 10ms, or fixed=1.2ms,state=3us"


def parse_controller(value: Span) -> DecisionTime | None:
    """Parse the decision time of a controller; None: decisions take no time, or it is yet to be measured."""
    text = str(value).strip()
    if text in (NONE, CALIBRATED):
        return None
    if not text or (text[0].isalpha() and "=" not in text):
        raise ExperimentError(f"controller {text!r} is not understood: {_RULE}")
    if "=" not in text:
        return DecisionTime(span(text, "controller", least=1))
    given: dict[str, int] = {}
    for part in text.split(","):
        name, _, time = part.partition("=")
        if (name := name.strip()) not in _PARTS or name in given:
            raise ExperimentError(f"controller {text!r}: {part.strip()!r} is not understood; {_RULE}")
        given[name] = span(time.strip(), f"controller {name}")
    if not any(given.values()):
        raise ExperimentError(f"controller {text!r}: decisions that take no time are written {NONE}")
    return DecisionTime(given.get("fixed", 0), given.get("state", 0))
