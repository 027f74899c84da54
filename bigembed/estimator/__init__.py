"""What every estimator shares: the base class, fitting, new rows, saving, the certificate."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any, Literal


@dataclass(eq=False, repr=False, kw_only=True)
class RunParameters:
    """Parameters of every method that say where a fit keeps its stages and what it reports, and change no result."""

    workdir: str | os.PathLike[str] | None = None
    persist: Literal["store"] | None = None
    keep: Literal["all", "map"] = "all"
    verbose: bool = False
    callbacks: Any = None


RUN_PARAMETERS = tuple(field.name for field in fields(RunParameters))
