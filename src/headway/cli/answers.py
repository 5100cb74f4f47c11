"""Print the answer to a question: lines and tables, or JSON, on stdout, and its notes on stderr."""

import sys

from headway.cli import console
from headway.runs.answer import Answer
from headway.runs.stopping import status
from headway.show.terminal import width_of


def show_answer(answer: Answer, as_json: bool) -> None:
    """Print the answer to a question; one that was stopped ends the program with 130 or 143."""
    if as_json and answer.record() is not None:
        console.print_json(answer.record())
    elif not as_json:
        widest = max((width_of(part) for part in answer.shown if not isinstance(part, str)), default=0)
        for part in answer.shown:
            console.say(part) if isinstance(part, str) else console.out(widest).print(part)
    for line in answer.notes:
        console.note(line)
    if answer.stopped:
        console.note(answer.stopped)
        sys.exit(status())
