"""Builds scalers from their names, with options in brackets: ``utilisation(target=0.7)``."""

from headway.core.named import chosen, made
from headway.fleet.policies.scalers.headway import HeadwayScaler
from headway.fleet.policies.scalers.parts import Scaler
from headway.fleet.policies.scalers.queue import Queue
from headway.fleet.policies.scalers.utilisation import Utilisation

NONE = "none"
SCALERS: dict[str, type[Scaler]] = {scaler.name: scaler for scaler in (Utilisation, Queue, HeadwayScaler)}


def build(spec: str) -> Scaler | None:
    """Return the scaler that a string names; None for ``none`` and for an empty string."""
    if spec.strip() in ("", NONE):
        return None
    scaler, options = chosen(spec, SCALERS, kind="autoscaler", example="utilisation(target=0.6)")
    return made(scaler, scaler.name, options, {}, kind="autoscale")
