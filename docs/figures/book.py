"""Figures with what is measured on them: pictures, and a page that says what each source shows and what is seen "
"here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

GOLDEN = 0.6180339887498949
SIZE, DPI = 3.1, 85
"""Inches of a panel, and pixels of an inch."""

Panel = Callable[[Any], None]
"""Draws into an axis."""


@dataclass(frozen=True)
class Entry:
    """A figure of a source: its picture, its numbers, and whether what the source says of it is seen."""

    name: str
    title: str
    says: str
    seen: str
    holds: bool
    numbers: Sequence[tuple[str, str, str]] = ()
    """What; the source's number, or nothing; the one found here."""
    but: str = ""
    """What of its numbers is not found here."""

    def lines(self) -> list[str]:
        """As Markdown."""
        verdict = "Seen." if self.holds else "**Not seen.**"
        out = [f"### {self.title}", "", f"![{self.title}](figures/{self.name}.png){{width=900px}}", ""]
        out += [f"*The source*: {self.says}", "", f"{verdict} {self.seen}", ""]
        out += [f"**But** {self.but}", ""] if self.but else []
        if self.numbers:
            out += ["| | source | here |", "|---|---|---|"]
            out += [f"| {what} | {source or '–'} | {here} |" for what, source, here in self.numbers]
            out += [""]
        return out


@dataclass
class Book:
    """All figures, in the order in which they are drawn."""

    folder: Path
    """Where the pictures lie; the page lies beside it."""
    mnist: Path | None = None
    """Where the files of MNIST lie; what needs them is left out else."""
    chapters: list[tuple[str, list[Entry]]] = field(default_factory=list)

    def chapter(self, title: str) -> None:
        """What follows belongs to this source."""
        self.chapters.append((title, []))

    def add(self, entry: Entry, panels: Sequence[tuple[str, str, Panel]], columns: int = 0) -> None:
        """Draw a figure; each panel has a title, a projection ("" or "3d") and what draws it."""
        columns = columns or len(panels)
        rows = -(-len(panels) // columns)
        figure = Figure(figsize=(SIZE * columns, SIZE * rows), layout="constrained")
        for number, (title, projection, draw) in enumerate(panels, 1):
            axis = figure.add_subplot(rows, columns, number, projection=projection or None)
            if projection:
                axis.view_init(18, -72)
            axis.set_title(title, fontsize=9)
            axis.tick_params(labelsize=6)
            draw(axis)
        figure.savefig(self.folder / f"{entry.name}.png", dpi=DPI, metadata={"Software": None})
        self.note(entry)

    def note(self, entry: Entry) -> None:
        """A figure whose picture is there."""
        self.chapters[-1][1].append(entry)
        print(f"{entry.name}: {'seen' if entry.holds else 'not seen'}", flush=True)

    def write(self, head: str) -> None:
        """The page."""
        lines = [head]
        for title, entries in self.chapters:
            lines += [f"## {title}", "", *(line for entry in entries for line in entry.lines())]
        (self.folder.parent / "figures.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def points(values: Any, color: Any = None, size: float = 4, cmap: str = "viridis", equal: bool = False) -> Panel:
    """Points in two or three dimensions; of one, along a line."""
    values = np.asarray(values)

    def draw(axis: Any) -> None:
        flat = values.ndim == 1 or values.shape[1] == 1
        columns = (values.ravel(), np.arange(len(values)) * GOLDEN % 1) if flat else values.T  # (spread, to be seen)
        shaded = {"depthshade": False} if hasattr(axis, "zaxis") else {}
        axis.scatter(*columns, c=color, s=size, cmap=cmap if color is not None else None, linewidths=0, **shaded)
        if flat:
            axis.set(yticks=[])
        if equal:
            axis.set_aspect("equal")

    return draw


def line(values: Any, marker: str = ".") -> Panel:
    """Numbers in their order, from 1 on."""
    return lambda axis: axis.plot(np.arange(1, len(values) + 1), values, marker=marker, linewidth=0.8, markersize=3)


def matrix(values: Any) -> Panel:
    """A matrix by its entries, the largest percent at one colour."""
    top = float(np.quantile(values, 0.99))
    return lambda axis: axis.imshow(values, cmap="viridis", vmax=top, interpolation="antialiased")


def order(a: Any, b: Any) -> float:
    """Spearman's rank correlation without its sign: 1 where the one is in the order of the other."""
    return abs(float(spearmanr(a, b).statistic))


def explained(target: Any, by: Any) -> float:
    """R² of the columns of ``target`` as linear functions of ``by``: 1 for the same picture up to a linear map."""
    design = np.column_stack([by, np.ones(len(by))])
    rest = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return float(1 - rest.var(axis=0).sum() / np.asarray(target).var(axis=0).sum())
