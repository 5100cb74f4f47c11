"""Typed tables of the run folder of a broker. They say what was shared; nobody runs them again."""

from msgspec import Struct, field

from headway.runs.settings.tables import MeasureTable, NamedPolicyTable, RunTable, Variant


class ShareTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """The GPU that was shared."""

    gpu: int = 0
    gpu_name: str = ""
    driver: str = ""
    mode: str = ""
    """``mps`` or ``coarse``."""
    version: str = ""
    """That of the headway whose broker it was."""
    began: str = ""
    """When the broker began: the time 0 of the tape."""


class ShareExperiment(Struct, kw_only=True, forbid_unknown_fields=True):
    """A GPU that was shared by headway."""

    scale: str = "share"
    share: ShareTable = field(default_factory=ShareTable)
    policy: NamedPolicyTable = field(default_factory=NamedPolicyTable)
    run: RunTable = field(default_factory=RunTable)
    measure: MeasureTable = field(default_factory=MeasureTable)
    variants: list[Variant] = field(default_factory=list)
