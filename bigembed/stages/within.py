"""Stages under a prefix: those of something that has a part of a run to itself, and knows them by their own names."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from bigembed.stages.runs import PartOfRun
from bigembed.stages.stage import Context, Stage


def within(stage: Stage, prefix: str) -> Stage:
    """Return a stage under a prefix, which opens its inputs under it, too."""
    inputs, asked = (tuple(prefix + name for name in names) for names in (stage.inputs, stage.parameters_of))
    run = partial(run_within, stage=stage, prefix=prefix)
    return replace(stage, name=prefix + stage.name, inputs=inputs, parameters_of=asked, run=run)


def run_within(context: Context, stage: Stage, prefix: str) -> Any:
    """Run the function of a stage, which knows the stages of its part by their own names."""
    return stage.run(replace(context, home=PartOfRun(context.home, prefix)))
