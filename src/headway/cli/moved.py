"""Tell users of a command or flag that has another name, or stands elsewhere, where it is."""

from collections.abc import Sequence

_EACH = "headway jobs {0}, fleet {0} or gpu {0}"
COMMANDS = {
    "simulate": _EACH.format("simulate"),
    "compare": _EACH.format("compare"),
    "sweep": _EACH.format("sweep"),
    "plan": "headway fleet plan",
    "backtest": "headway jobs backtest",
    "share predict": "headway gpu predict",
}
ELSEWHERE = {
    "queue explain": "headway explain FOLDER JOB, with the folder of the queue",
    "queue story": "headway story FOLDER JOB, with the folder of the queue",
}
"""What was never there, and is looked for there."""
FLAGS = {
    "--trace": "the trace is an argument: headway jobs simulate TRACE",
    "--scenario": "the scenario is an argument: headway fleet simulate SCENARIO",
    "--high": "programs are arguments: headway gpu simulate HIGH LOW",
    "--low": "programs are arguments: headway gpu simulate HIGH LOW",
    "--backfill": "write --policy fifo+easy, or --set policy.backfill=easy",
    "--placement": "write --policy fifo+spread, or --set policy.placement=spread",
    "--quantum": "write --set policy.quantum=5m",
    "--completions": "write --set run.completions=round",
    "--speed": "write --set speed.model=matrix",
    "--storage-per-node": "write --set cluster.storage_per_node=2GB",
    "--no-intervals": "write --confidence 0",
    "--lenient": "write --no-strict",
    "run --warmup": "write --set measure.warmup=10%",
    "run --measure-jobs": "write --set measure.jobs=4000:5000",
}


def hint(words: Sequence[str], option: str) -> str:
    """Return what to write instead of an unknown command or option; nothing where that is not known."""
    if option:
        return FLAGS.get(option) or FLAGS.get(" ".join([*words[:1], option]), "")
    if elsewhere := ELSEWHERE.get(" ".join(words[:2])):
        return f"it is {elsewhere}"
    new_name = COMMANDS.get(" ".join(words[:2])) or COMMANDS.get(" ".join(words[:1]))
    return f"it is {new_name} now" if new_name else ""
