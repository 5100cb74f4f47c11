"""Program of the distance measurement: works for a time in all, over all its starts; saves on SIGTERM.

``queue_distance_program.py SECONDS`` sleeps so long; what it has done stands in the folder of its checkpoints.
``queue_distance_program.py SECONDS torch STEPS`` takes steps of a small network with ``headway.steps`` instead.
"""

import os
import signal
import sys
import time

SAVED = 85


def sleep(seconds: float) -> int:
    """Sleep for what is left, or until it is asked to save."""
    path = os.path.join(os.environ["HEADWAY_CHECKPOINTS"], "done")
    asked: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    try:
        with open(path) as file:
            done = float(file.read())
    except FileNotFoundError:
        done = 0.0
    began = time.monotonic()
    while not asked and (left := seconds - done - (time.monotonic() - began)) > 0:
        time.sleep(min(0.05, left))
    if not asked:
        return 0
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.new", "w") as file:
        file.write(str(done + time.monotonic() - began))
    os.replace(f"{path}.new", path)
    return SAVED


def train(steps: int) -> int:
    """Train a small network for some steps."""
    import torch

    import headway

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def save(path: str) -> None:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)

    def load(path: str) -> None:
        kept = torch.load(path)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])

    for _ in headway.steps(range(steps), checkpoint=save, resume=load, every=None):
        optimizer.zero_grad()
        model(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()
        time.sleep(0.02)
    return 0


if __name__ == "__main__":
    sys.exit(train(int(sys.argv[3])) if len(sys.argv) > 2 else sleep(float(sys.argv[1])))
