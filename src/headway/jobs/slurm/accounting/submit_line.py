"""Find in the command of a submission (sacct's SubmitLine) what accounting keeps nowhere else.

Only options of the command itself are seen: what stands in ``#SBATCH`` lines of a script is not in SubmitLine.
"""

import re

OPTIONS = {
    "dependency": r"(?:--dependency[= ]|-d ?)([^\s]+)",
    "begin": r"(?:--begin[= ]|-b ?)([^\s]+)",
    "nice": r"--nice(?:[= ](-?\d+))?",
    "exclusive": r"--exclusive(?:=([a-z]+))?",
    "licences": r"(?:--licenses[= ]|-L ?)([^\s]+)",
    "array throttle": r"(?:--array[= ]|-a ?)[^\s%]+%(\d+)",
    "reservation": r"--reservation[= ]([^\s]+)",
    "constraint": r"(?:--constraint[= ]|-C ?)([^\s]+)",
    "nodes by name": r"(?:--nodelist[= ]|-w ?|--exclude[= ]|-x ?)([^\s]+)",
}
"""Each option with its value as a group, to be looked for after a blank."""
WRAPPED = r"\s--wrap[= ].*$"
"""What follows is the job's own command."""


def asked(line: str) -> dict[str, str]:
    """Return the options of a submission by name, each with its value; ``nice`` without one has 100, as in Slurm."""
    plain = re.sub(WRAPPED, "", line)
    found = {name: re.search(rf"\s{pattern}(?=\s|$)", plain) for name, pattern in OPTIONS.items()}
    values = {name: match[1] or "" for name, match in found.items() if match}
    return values | ({"nice": "100"} if values.get("nice") == "" else {})
