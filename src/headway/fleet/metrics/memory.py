"""GPU memory metrics of a serving tape: bytes held over time, bytes fetched, and prefetches that were used."""

import numpy as np

from headway.fleet.metrics.ledger import Ledger
from headway.fleet.model.rows import Kind
from headway.fleet.state.warm import placed
from headway.statistics.series import IntArray, Series, joined


def sizes(ledger: Ledger) -> IntArray:
    """Return the bytes of each model in GPU memory."""
    return np.array([model.size_bytes for model in ledger.catalogue.models], dtype=np.int64)


def bytes_fetched(ledger: Ledger) -> int:
    """Return the bytes of weights that were fetched into GPU memory, by batches and ahead of them."""
    rows = ledger.rows(Kind.LOAD, Kind.FETCH)
    weights = np.array([model.weights_bytes for model in ledger.catalogue.models], dtype=np.int64)
    return int(weights[ledger.detail[rows]].sum())


def memory_held(ledger: Ledger) -> Series:
    """Return the bytes of GPU memory in use on all workers over time: weights, once reserved, and activations."""
    came, went = ledger.rows(Kind.LOAD, Kind.FETCH), ledger.rows(Kind.EVICT, Kind.EVICTED)
    rows = np.concatenate([came, went])
    begins_with = [
        (at, model) for at, warm in enumerate(placed(ledger.catalogue, ledger.fleet)) for model in warm.models
    ]
    at, model = np.array(begins_with, dtype=np.int64).reshape(-1, 2).T
    first = np.full(len(at), -1, dtype=np.intp)  # before the first row
    times = np.concatenate([np.zeros(len(at), dtype=np.int64), ledger.time[rows]])
    size = sizes(ledger)[np.concatenate([model, ledger.detail[rows]])]
    size[len(at) + len(came) :] *= -1
    died = ledger.next_failure(np.concatenate([at, ledger.place[rows]]), np.concatenate([first, rows]))
    gone = died < len(ledger.time)  # what is left on a worker goes with it
    activation = np.array([f.activation_bytes for f in ledger.catalogue.functions], dtype=np.int64)
    held = activation[ledger.function] * ledger.batch_size if len(activation) else ledger.batch_size * 0
    return joined(
        [times, ledger.time[died[gone]], ledger.began, ledger.batch_end],
        [size, -size[gone], held, -held],
    )


def prefetches_used(ledger: Ledger) -> int:
    """Count models fetched ahead that a batch used before they were evicted or lost."""
    fetched, went = ledger.rows(Kind.FETCH), ledger.rows(Kind.EVICT, Kind.EVICTED)
    count = len(ledger.catalogue.models)
    uses = [
        (ledger.worker[called] * count + model, ledger.batch_row[called])
        for index, function in enumerate(ledger.catalogue.functions)
        if (called := ledger.function == index).any()
        for model in function.models
    ]
    if not len(fetched) or not uses:
        return 0
    keys = ledger.place[fetched] * count + ledger.detail[fetched]
    used = ledger.next_row(keys, fetched, *(np.concatenate(column) for column in zip(*uses, strict=True)))
    evicted = ledger.next_row(keys, fetched, ledger.place[went] * count + ledger.detail[went], went)
    died = ledger.next_failure(ledger.place[fetched], fetched)
    return int((used < np.minimum(evicted, died)).sum())
