"""A store that grows: its versions, what was placed by which model, and whether the model still fits.

Its versions are here, as they lie on the disk: run, model and coordinates, and which of them is the current one.

``[output] path`` of the job holds::

    current.json              the version that counts: replaced in one step when a new one is whole
    versions/0002-1200-3f2a/  rows 0:1200 fitted
        version.json          what was asked and how many rows were there when it began; once published, its model
        rows.json             the ledger: which rows were there (:mod:`bigembed.jobs.growth.account`)
        run.zarr, model.zarr  as ``bigembed run`` writes them
        coordinates           (n, m) one row for every row of the input up to n: first those fitted, then those placed
        placing/              ranges of new rows in work
    status.json, hold/        how the last job on it stands, and who works on it

The attributes of ``coordinates`` are its account (:mod:`bigembed.jobs.growth.account`). Files of JSON carry a digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bigembed import __version__
from bigembed.errors import ChangedInputError, DamagedError, ExistingOutputError, InputError, JobError, MissingPathError
from bigembed.jobs import record
from bigembed.jobs.growth import account, locations
from bigembed.jobs.job import CHOICE, GRAPH, JobSpec
from bigembed.jobs.parameters import require_single
from bigembed.jobs.places import Place
from bigembed.jobs.places.cluster import PROCESS, choose, choose_running
from bigembed.jobs.session import session, working
from bigembed.jobs.watching import Reporter, RunOptions
from bigembed.rows.growing import refuse_sparse
from bigembed.rows.opening import open_array
from bigembed.stages import Run
from bigembed.store import AnyPath, PathLike, at, files, locks, manifests, no_such_path, remove, require_apart

if TYPE_CHECKING:
    import dask.array as da


# -------------------------------------------------------------------------------------------------------- versions

KIND = "growth"
CURRENT, ABOUT, LEDGER = "current.json", "version.json", "rows.json"
_NAME = re.compile(r"([0-9]{4,9})-[0-9]+-[0-9a-f]{8}")
"""Of a version: its number, the rows fitted, their digest."""
AGAIN = "bigembed extend with the job file makes it anew"


@dataclass(frozen=True)
class Version:
    """Hold one fit of the growing input, and what was placed by it since."""

    root: AnyPath
    fitted: int
    """Rows that were fitted: those that were there when it began."""
    asked: str
    """Digest of what the job asks for."""
    content: str
    """Digest of the rows fitted."""
    published: str = ""
    """Digest of its model since it was published."""
    follows: str = ""
    """The name of the version that it is laid over; empty where it begins a frame."""
    deleted: int = 0
    """Rows, of those fitted, that were deleted when it began: they have no coordinates."""
    mask: str = ""
    """Digest of which these are; empty where none is."""
    ids: str = ""
    """Digest of the ids of the rows fitted (see ``growth/ids.py``); empty where it is not known."""

    @property
    def run(self) -> AnyPath:
        """Return the path of the run: ``bigembed verify`` and ``bigembed report`` take it."""
        return self.root / "run.zarr"

    @property
    def model(self) -> AnyPath:
        """Return the path of the saved model: :func:`bigembed.load` takes it."""
        return self.root / "model.zarr"

    @property
    def array(self) -> AnyPath:
        """Return the path of the Zarr array of the coordinates."""
        return self.root / "coordinates"

    @property
    def coordinates(self) -> da.Array:
        """Return the coordinates (n, m), lazily: row i of the input is row i here, NaN if it was left out.

        Read once in a process, as long as no file changes, to be those that were published; :class:`DamagedError`.
        """
        account.require_published(self.array, self.ranges)
        return open_array(self.array)

    @property
    def ranges(self) -> tuple[account.Range, ...]:
        """Say which rows were fitted, which placed, by which model: 0:n without gap or overlap."""
        found = account.read_account(self.array)
        models = {part.model for part in found}
        if (found[0].stop, found[0].rows) != (self.fitted, self.content) or models != {
            self.published or found[0].model
        }:
            raise DamagedError(f"{self.array}: coordinates of another version than {self.root.name}")
        return found

    @property
    def covered(self) -> int:
        """Count the rows that have coordinates."""
        return self.ranges[-1].stop

    @property
    def ledger(self) -> account.Ledger:
        """Return the rows that were there when they were last looked at."""
        file = self.root / LEDGER
        with misread_is_damage(file):
            return account.Ledger.from_dict(files.read_sealed(file))

    def describe(self) -> None:
        """Write what the version says of itself."""
        about = {name: getattr(self, name) for name in ("fitted", "asked", "content", "published")}
        about |= {name: value for name in ("follows", "deleted", "mask", "ids") if (value := getattr(self, name))}
        files.write_json(self.root / ABOUT, files.sealed(about | {"bigembed": __version__}))

    @property
    def input(self) -> AnyPath:
        """Return where the rows are: as the last job on them said, or in the same place beside a store that moved."""
        file, root = self.root / LEDGER, self.root.parent.parent
        with misread_is_damage(file):
            known = files.read_sealed(file)
            place, kept = str(known.get("input") or known["path"]), "input" in known
        if not kept and record.was_moved(self.run):
            raise ChangedInputError(
                f"{root}: was moved since an earlier version of bigembed wrote it, and where its rows are now is not "
                "known. bigembed extend with the job file says it"
            )
        return locations.located(place, root)

    def keep(self, ledger: account.Ledger, job: JobSpec) -> None:
        """Write the ledger, and where the job says that its rows are."""
        place = locations.written(job.input_path, self.root.parent.parent, job)
        files.write_json(self.root / LEDGER, files.sealed({"input": place} | ledger.as_dict()), indent=None)


class Growth:
    """Open a growing embedding at a path.

    Reading takes no lock; a version that was opened stays until the one after the next is published.

    Parameters
    ----------
    root : path
        The path of the embedding.
    """

    def __init__(self, root: PathLike) -> None:
        self.root = at(root).absolute()

    @property
    def current(self) -> Version | None:
        """Return the version that counts, or None before the first one is whole; :class:`DamagedError`."""
        names = self.history
        return self.version(names[0]) if names else None

    @property
    def history(self) -> list[str]:
        """Return the names of the versions published, the current one first."""
        file, published = self.root / CURRENT, self.published()
        if not file.exists():
            if published:
                raise DamagedError(f"{file}: is gone, and {published[0].root.name} was published. {AGAIN}")
            return []
        with misread_is_damage(file):
            found = files.read_sealed(file)
            names = [found["version"], *found["previous"]]
            if not all(_NAME.fullmatch(name) for name in names):
                raise DamagedError(f"{file}: {names} are not names of versions")
        if published and _number(published[0].root.name) > _number(names[0]):
            raise DamagedError(f"{file}: is older than {published[0].root.name}, which was published. {AGAIN}")
        return names

    def published(self) -> list[Version]:
        """List the versions that say of themselves that they were published.

        Returns
        -------
        list of Version
            The versions, the newest first.
        """
        return [version for version in self._there() if version.published]

    def placed(self) -> list[Version]:
        """List the versions with coordinates, the newest first."""
        found = []
        for version in self._there():
            with suppress(DamagedError):
                found += [version] * bool(version.ranges)
        return found

    def unfinished(self) -> list[Version]:
        """List the versions begun and not published, the newest first."""
        published = self.history
        return [version for version in self._there() if version.root.name not in published]

    def _there(self) -> list[Version]:
        """Return all versions whose records can be read, the newest first."""
        names, found = [path.name for path in self.root.glob("versions/*")], []
        for name in sorted(filter(_NAME.fullmatch, names), key=_number, reverse=True):
            with suppress(DamagedError):  # (one that is not published is begun anew)
                found.append(self.version(name))
        return found

    def begin(self, job: JobSpec, asked: str, ledger: account.Ledger, **known: Any) -> Version:
        """Begin a new version on the rows of the ledger; ``known``: what else is known of it from the beginning."""
        names = [path.name for path in self.root.glob("versions/*-*")]
        last = max(map(_number, filter(_NAME.fullmatch, names)), default=0)
        name = f"{last + 1:04d}-{ledger.n}-{ledger.content[:8]}"
        version = Version(self.root / "versions" / name, ledger.n, asked, ledger.content, **known)
        version.keep(ledger, job)
        version.describe()
        return version

    def publish(self, version: Version, keep: int = 1) -> None:
        """Make it the current one, and remove those before it but the last ``keep``."""
        self.point(version, [name for name in self.history if name != version.root.name][:keep])
        self.clear()

    def point(self, version: Version, previous: Sequence[str] = ()) -> None:
        """Say that it is the current one, here and in the version, so that it is noticed if either is missing."""
        current = {"version": version.root.name, "previous": list(previous), "fitted": version.fitted}
        files.write_json(self.root / CURRENT, files.sealed(current | {"model": model_digest(version.model)}))
        self.mark_published(version)

    def mark_published(self, version: Version) -> Version:
        """Make sure that the version says that it was published: one of an earlier bigembed or after a kill may not."""
        if not version.published:
            version = replace(version, published=model_digest(version.model))
            version.describe()
        return version

    def clear(self) -> None:
        """Remove every version that is not listed."""
        listed = self.history
        for path in self.root.glob("versions/*"):
            if path.name not in listed:
                remove(path)

    def version(self, name: str) -> Version:
        """Open one of the versions.

        Parameters
        ----------
        name : str
            The name of the version.

        Returns
        -------
        Version
            The version.
        """
        root = self.root / "versions" / name
        with misread_is_damage(root / ABOUT):
            about = files.read_sealed(root / ABOUT)
            texts = str(about["asked"]), str(about["content"]), str(about.get("published", ""))
            since = {name: str(about.get(name, "")) for name in ("follows", "mask", "ids")}
            return Version(root, int(about["fitted"]), *texts, **since, deleted=int(about.get("deleted", 0)))


def _number(name: str) -> int:
    return int(name.partition("-")[0])


@contextmanager
def misread_is_damage(file: AnyPath) -> Iterator[None]:
    """What cannot be understood of a file is damage."""
    try:
        yield
    except MissingPathError as error:
        raise DamagedError(f"{file}: is gone") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise DamagedError(f"{file}: not what was written there ({type(error).__name__}: {error})") from error


def open_growth(path: PathLike) -> Growth:
    """Open the growing embedding that ``bigembed refresh`` keeps at a path, to read it.

    Parameters
    ----------
    path : path
        The path that ``[output] path`` of its job file names.

    Returns
    -------
    Growth
        The embedding. Its ``current`` is the version that counts, with ``coordinates`` (lazy, one row for every row of
        the input), ``ranges`` (which rows were fitted, which placed, by which model) and ``model`` (a path for
        :func:`bigembed.load`); None before the first one is whole.

    Raises
    ------
    MissingPathError
        If there is no such path.
    InputError
        If something else is there.

    Notes
    -----
    Takes no lock and reads a few kilobytes; no pass over any rows.

    Examples
    --------
    >>> import tempfile
    >>> from bigembed.store.manifests import prepare
    >>> from bigembed.store import at
    >>> path = tempfile.mkdtemp() + "/growing.zarr"
    >>> prepare(at(path), "growth")
    >>> open_growth(path).current is None
    True
    """
    root = at(path)
    if not root.exists():
        raise MissingPathError(f"{no_such_path(root)}. Give [output] path of the job that bigembed refresh runs")
    file = root / "zarr.json"
    with misread_is_damage(file):
        kind = files.read_json(file).get("attributes", {}).get("bigembed") if file.exists() else None
    if kind != KIND:
        raise InputError(f"{root}: not a growing embedding but {kind or 'something else'}")
    return Growth(root)


def require_growing(job: JobSpec) -> None:
    """:class:`JobError` where what the job asks for cannot grow."""
    require_single(job)
    problems = [f"[input] {name}: a growing input takes only rows; leave it out" for name in job.aligned]
    problems += [
        f"[input] {name}: a growing input is one array of rows; leave it out"
        for name in (*CHOICE, *GRAPH)
        if getattr(job.input, name) not in (None, False, "error")
    ]
    if job.condense is not None:
        problems.append(
            "[condense]: the rows of a growing store are fitted and placed themselves, each once; leave it out, or "
            "make a job that does not grow (bigembed run)"
        )
    if job.output.view is not None:
        problems.append("[output] view: of a growing embedding it would be old at once; bigembed view writes one")
    if job.input.dataset is not None:
        problems.append("[input] dataset: a growing input is a store that is there; give its path")
    if job.output.keep == "coordinates":
        problems.append('[output] keep: with "coordinates" what places new rows is deleted; say "map"')
    if job.output.model is not None:
        problems.append("[output] model: each version keeps its own in [output] path; leave it out")
    if problems:
        raise JobError(f"{job.file}: " + "".join(f"\n  {problem}" for problem in problems))


def prepared(job: JobSpec) -> Growth:
    """Return the growing embedding of a job, made if it is not there."""
    require_apart(job.input_path, job.output_path, job.output.picture, job.output.report)
    root = job.output_path
    try:
        with misread_is_damage(root / "zarr.json"):
            manifests.prepare(root, KIND)
    except (DamagedError, ExistingOutputError):
        if not (root / CURRENT).is_file() or not (root / "versions").is_dir():
            raise
        about = {"bigembed": KIND, "format": manifests.FORMAT}  # (its own file is damaged, or gone)
        files.write_json(root / "zarr.json", {"attributes": about, "node_type": "group", "zarr_format": 3})
    return Growth(root)


def model_digest(path: AnyPath) -> str:
    """Return the digest of a saved model: of its files and parameters, not of how long it took to make them."""
    run = Run(path, kind="model")
    stages = {name: run.manifest(name) for name in run.published()}
    return files.digest_of({name: [found.files, found.parameters] for name, found in stages.items()})


# --------------------------------------------------------------------------------------------------------- session
# Around a job on a growing embedding: it is held, its input is what it was, and tasks have a place to run.


@contextmanager
def growing(job: JobSpec, options: RunOptions | None) -> Iterator[tuple[Growth, Reporter, locks.Lock]]:
    """Around a job on a growing embedding, which it holds."""
    with session(job.output_path, options, job.method.name, job.output.scratch) as command:
        require_growing(job)
        account.snapshot(job.input_path)  # so that nothing is made beside an input that cannot be read
        growth = prepared(job)
        with command.hold_folder(growth.root) as (reporter, lock):
            yield growth, reporter, lock


def refuse_unfitted(job: JobSpec) -> None:
    """MissingPathError before the first refresh, and InputError where rows are sparse, of which none can be made."""
    refuse_sparse(job.input_path)
    with suppress(DamagedError):  # (there is one)
        if not Growth(job.output_path).history:
            raise MissingPathError(f"{job.output_path}: no model is there yet. Run bigembed refresh {job.file} first")


def unchanged(
    job: JobSpec, ledger: account.Ledger, there: account.Snapshot, verify: bool, reporter: Reporter
) -> account.Ledger:
    """Return the ledger with the present times; ChangedInputError, with the remedy, if it does not hold any more."""
    doubted = sum(entry.stop - entry.start for entry in account.doubted_entries(ledger, there, verify))
    try:
        with reading(job, there, reporter, doubted):
            return account.check(ledger, there, verify)
    except ChangedInputError as error:
        raise ChangedInputError(
            f"{error}. Nothing was changed. Put the rows back; or, if they are meant to be so, fit them as they are: "
            f"bigembed refresh {job.file} --fresh, or --changed, which leaves all other rows where they are on the map"
        ) from error


def reading(job: JobSpec, there: account.Snapshot, reporter: Reporter, rows: int) -> AbstractContextManager[Place]:
    """Return a place to read ``rows`` rows for their digests: the running cluster if the job names one, else this
    process."""
    return place_for(job, there, reporter, rows, choose_running(job.cluster) if rows else PROCESS.name)


@contextmanager
def place_for(job: JobSpec, there: account.Snapshot, reporter: Reporter, rows: int, kind: str = "") -> Iterator[Place]:
    """A place for tasks on ``rows`` rows: by default this process if they are few and the job names no cluster."""
    nbytes = rows * there.shape[1] * there.dtype.itemsize
    kind = kind or choose(job.cluster, (rows, there.shape[1]), nbytes)
    with working(job.cluster, kind, reporter) as (place, _):
        place.prove_access(job.output_path, str(job.input_path))
        yield place


def about(growth: Growth, version: Version, unchanged: bool) -> dict[str, Any]:
    """Return what a job returns of the version that it left as the current one."""
    return {
        "output": str(growth.root),
        "version": version.root.name,
        "model": str(version.model),
        "coordinates": str(version.array),
        "fitted": version.fitted,
        "rows": version.covered,
        "left_out": sum(part.left_out for part in version.ranges),
        **({"deleted": version.deleted} if version.deleted else {}),
        "unchanged": unchanged,
    }
