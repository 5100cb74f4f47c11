"""What a run folder of a broker holds besides its tape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn

from headway.core.audit import Finding
from headway.core.tape import Tape
from headway.errors import ExperimentError
from headway.gpu.share.recorded.settings import ShareExperiment
from headway.gpu.share.tape.audit import audit
from headway.gpu.share.tape.rows import OF_ALL, ShareKind
from headway.runs.domain import Scene
from headway.runs.folder.folder import Limits


@dataclass(frozen=True)
class ShareScene(Scene):
    """A GPU that programs shared; who they were is on the tape."""

    experiment: ShareExperiment
    notes: tuple[str, ...] = ()

    def endless(self) -> str:
        """Return why the tape has no end yet."""
        return "the tape has no end, for the broker still runs or was killed"

    def policy(self) -> Any:
        """Refuse: the gates decided in the programs themselves."""
        self._only_recorded("asked again")

    def policy_name(self) -> str:
        """Return the policy's name."""
        return self.experiment.policy.name

    def inputs(self) -> Mapping[str, Sequence[Any]]:
        """Return nothing: no policy is shown anything."""
        return {}

    def begin(self) -> Any:
        """Refuse: it happened once."""
        self._only_recorded("played again")

    def store(self, folder: Path) -> Any:
        """Refuse: the broker writes its folder itself."""
        self._only_recorded("stored again")

    def progress(self, state: Any, now: int) -> Any:
        """Refuse: there is no state."""
        self._only_recorded("played again")

    def simulated(self, tape: Tape | None = None) -> "Scene | None":
        """Refuse: what the programs launch is not on the tape."""
        self._only_recorded("simulated")

    def row_kinds(self) -> tuple[type[IntEnum], Limits]:
        """Return the kinds of rows; programs are as many as joined."""
        return ShareKind, {}

    def row_subject(self, row: Sequence[int]) -> str:
        """Return the program of a row."""
        return "the GPU" if row[2] == OF_ALL else f"program {row[2]}"

    def replay(self, tape: Tape, *, complete: bool) -> Tape:
        """Refuse: each launch was decided in its program, and no tape holds launches."""
        self._only_recorded("replayed")

    def audit(self, tape: Tape, *, complete: bool) -> Sequence[Finding]:
        """Check who was there, that counters grow, and intervals."""
        return audit(tape)

    def _only_recorded(self, done: str) -> NoReturn:
        raise ExperimentError(
            f"a broker recorded this run on a real GPU, where the gates decided in the programs: it cannot be {done}; "
            "headway report, summary, story, audit and export show it, headway gpu predict simulates programs"
        )
