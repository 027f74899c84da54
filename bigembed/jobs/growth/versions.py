"""A growing embedding on disk: versions of run, model and coordinates, and which of them is the current one.

``[output] path`` of the job holds::

    current.json              the version that counts: replaced in one step when a new one is whole
    versions/0002-1200-3f2a/  rows 0:1200 fitted
        version.json          what was asked and how many rows were there when it began
        rows.json             the ledger: which rows were there (:mod:`bigembed.jobs.growth.ledger`)
        run.zarr, model.zarr  as ``bigembed run`` writes them
        coordinates           (n, m) one row for every row of the input up to n: first those fitted, then those placed
        placing/              ranges of new rows in work
    status.json, hold/        how the last job on it stands, and who works on it

The attributes of ``coordinates`` say which rows were fitted and which ranges were placed, by which model; they are
replaced together with the shape, so the array and its account never differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bigembed import __version__
from bigembed.errors import InputError, JobError, MissingPathError
from bigembed.jobs.growth.ledger import Ledger
from bigembed.jobs.inputs import Input
from bigembed.jobs.spec import CHOICE, JobSpec
from bigembed.stages import Run
from bigembed.store import manifest as manifests
from bigembed.store.apart import require_apart
from bigembed.store.arrays import open_array
from bigembed.store.growing import StoreRows
from bigembed.store.manifest import digest_of, read_json, write_json
from bigembed.store.paths import AnyPath, PathLike, at, remove
from bigembed.store.source import RowSource

if TYPE_CHECKING:
    import dask.array as da

KIND = "growth"
CURRENT, ABOUT, LEDGER = "current.json", "version.json", "rows.json"


@dataclass(frozen=True)
class Range:
    """Rows ``start:stop``, and how they came to their coordinates."""

    start: int
    stop: int
    how: str
    """``"fitted"`` or ``"placed"`` (by the extension of the model)."""
    rows: str
    """Digest of the rows."""
    model: str
    """Digest of the model."""


@dataclass(frozen=True)
class Version:
    """One fit of the growing input, and what was placed by it since."""

    root: AnyPath
    fitted: int
    """Rows that were fitted: those that were there when it began."""
    asked: str
    """Digest of what the job asks for."""
    content: str
    """Digest of the rows fitted."""

    @property
    def run(self) -> AnyPath:
        """The run: ``bigembed verify`` and ``bigembed report`` take it."""
        return self.root / "run.zarr"

    @property
    def model(self) -> AnyPath:
        """The saved model: :func:`bigembed.load` takes it."""
        return self.root / "model.zarr"

    @property
    def array(self) -> AnyPath:
        """The Zarr array of the coordinates."""
        return self.root / "coordinates"

    @property
    def coordinates(self) -> da.Array:
        """Coordinates (n, m) of rows 0:n of the input, lazy: row i of the input is row i here."""
        return open_array(self.array)

    @property
    def ranges(self) -> tuple[Range, ...]:
        """Which rows were fitted, which placed, by which model: 0:n without gap or overlap."""
        found = read_json(self.array / "zarr.json")["attributes"].get("ranges", [])
        return tuple(Range(**entry) for entry in found)

    @property
    def covered(self) -> int:
        """Rows that have coordinates."""
        return int(read_json(self.array / "zarr.json")["shape"][0])

    @property
    def ledger(self) -> Ledger:
        """The rows that were there when they were last looked at."""
        return Ledger.from_dict(read_json(self.root / LEDGER))

    def keep(self, ledger: Ledger) -> None:
        """Write the ledger."""
        write_json(self.root / LEDGER, ledger.as_dict(), indent=None)

    def attributes(self, ranges: Sequence[Range]) -> dict[str, Any]:
        """What the array of coordinates says of itself."""
        return {"bigembed": "coordinates", "format": manifests.FORMAT, "ranges": [asdict(part) for part in ranges]}


class Growth:
    """A growing embedding at a path. Reading takes no lock; a version that was opened stays until the one after the
    next is published."""

    def __init__(self, root: PathLike) -> None:
        self.root = at(root).absolute()

    @property
    def current(self) -> Version | None:
        """The version that counts, or None before the first one is whole."""
        file = self.root / CURRENT
        return self._version(read_json(file)["version"]) if file.exists() else None

    @property
    def history(self) -> list[str]:
        """Names of the versions published, the current one first."""
        file = self.root / CURRENT
        found = read_json(file) if file.exists() else {}
        return [found["version"], *found["previous"]] if found else []

    def unfinished(self) -> list[Version]:
        """Versions begun and not published, the newest first."""
        published = self.history
        names = [path.name for path in self.root.glob("versions/*") if path.name not in published]
        return [self._version(name) for name in sorted(names, reverse=True) if self._begun(name)]

    def begin(self, asked: str, ledger: Ledger) -> Version:
        """A new version on the rows of the ledger."""
        numbers = [int(path.name.partition("-")[0]) for path in self.root.glob("versions/*-*")]
        name = f"{max(numbers, default=0) + 1:04d}-{ledger.n}-{ledger.content[:8]}"
        version = Version(self.root / "versions" / name, ledger.n, asked, ledger.content)
        version.keep(ledger)
        about = {"fitted": ledger.n, "asked": asked, "content": ledger.content, "bigembed": __version__}
        write_json(version.root / ABOUT, about)
        return version

    def publish(self, version: Version, keep: int = 1) -> None:
        """Make it the current one, and remove those before it but the last ``keep``."""
        previous = [name for name in self.history if name != version.root.name][:keep]
        model = model_digest(version.model)
        write_json(
            self.root / CURRENT,
            {"version": version.root.name, "previous": previous, "fitted": version.fitted, "model": model},
        )
        self.clear()

    def clear(self) -> None:
        """Remove every version that is not listed."""
        listed = self.history
        for path in self.root.glob("versions/*"):
            if path.name not in listed:
                remove(path)

    def _begun(self, name: str) -> bool:
        return (self.root / "versions" / name / ABOUT).exists()

    def _version(self, name: str) -> Version:
        root = self.root / "versions" / name
        about = read_json(root / ABOUT)
        return Version(root, about["fitted"], about["asked"], about["content"])


def open_growth(path: PathLike) -> Growth:
    """The growing embedding that ``workflows/refresh.py`` keeps at a path, to read.

    Parameters
    ----------
    path : path that ``[output] path`` of its job file names.

    Returns
    -------
    :class:`Growth`, whose ``current`` is the version that counts: its ``coordinates`` (lazy, one row for every row of
    the input), ``ranges`` (which rows were fitted, which placed, by which model) and ``model`` (a path for
    :func:`bigembed.load`); None before the first one is whole.

    Raises
    ------
    MissingPathError : no such path.
    InputError : something else is there.

    Notes
    -----
    Takes no lock and reads a few kilobytes; no pass over any rows.

    Examples
    --------
    >>> import tempfile
    >>> from bigembed.store import manifest
    >>> path = tempfile.mkdtemp() + "/growing.zarr"
    >>> manifest.prepare(at(path), "growth")
    >>> open_growth(path).current is None
    True
    """
    root = at(path)
    if not root.exists():
        raise MissingPathError(f"{root}: no such path. Give [output] path of the job that workflows/refresh.py runs")
    file = root / "zarr.json"
    kind = read_json(file).get("attributes", {}).get("bigembed") if file.exists() else None
    if kind != KIND:
        raise InputError(f"{root}: not a growing embedding but {kind or 'something else'}")
    return Growth(root)


def prepared(job: JobSpec) -> Growth:
    """The growing embedding of a job, made if it is not there; :class:`JobError` where the job cannot grow."""
    problems = [f"[input] {name}: a growing input takes rows alone; leave it out" for name in job.beside]
    problems += [
        f"[input] {name}: a growing input is one array; leave it out" for name in CHOICE if getattr(job.input, name)
    ]
    if job.output.table is not None:
        problems.append("[output] table: of a growing embedding it would be old at once; bigembed export writes one")
    if job.input.dataset is not None:
        problems.append("[input] dataset: a growing input is a store that is there; give its path")
    if job.output.model is not None:
        problems.append("[output] model: each version keeps its own in [output] path; leave it out")
    if problems:
        raise JobError(f"{job.file}: " + "".join(f"\n  {problem}" for problem in problems))
    require_apart(job.input_path, job.output_path, job.output.picture, job.output.report)
    manifests.prepare(job.output_path, KIND)
    return Growth(job.output_path)


def asked_of(job: JobSpec) -> str:
    """Digest of what the results depend on, beside the rows."""
    method = {"name": job.method.name, **job.method.parameters}
    return digest_of({"input": str(job.input_path), "method": method, "version": __version__})


def model_digest(path: AnyPath) -> str:
    """Digest of a saved model: of its files and parameters, not of how long it took to make them."""
    run = Run(path, kind="model")
    stages = {name: run.manifest(name) for name in run.published()}
    return digest_of({name: [found.files, found.parameters] for name, found in stages.items()})


@dataclass(frozen=True)
class FirstRows(Input):
    """The first rows of a store, whatever is appended to it while they are fitted."""

    content: str = ""

    def source(self) -> RowSource:
        """What stages read."""
        return StoreRows(self.shape, self.dtype, path=str(self.path), content=self.content)

    @property
    def given(self) -> Any:
        """What ``fit`` takes."""
        return self.source()
