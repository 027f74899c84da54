"""The rows of a job and the vectors aligned with them: where they lie, or how they come to lie there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.datasets import LOADING, Dataset, DatasetReader, dataset
from bigembed.errors import ExistingOutputError, InputError
from bigembed.estimator import takes_sparse
from bigembed.estimator.frame import FrameReference
from bigembed.jobs.job import GRAPH, JobSpec
from bigembed.jobs.parameters import methods_of, single_jobs
from bigembed.jobs.spec import needed_aligned, placed
from bigembed.jobs.table_columns import Ids, TableColumn, column_of_table
from bigembed.rows import RowSource, derived, graph_source, rows_at
from bigembed.rows.formats import copy_aligned, copying, in_place, is_copy, open_reader, stays_sparse, write_copy
from bigembed.rows.formats.copying import vector_source
from bigembed.rows.formats.folders import delimited_files
from bigembed.rows.input import column_source
from bigembed.rows.reader import Choice, Reader, entries_of, features_of, named, native
from bigembed.rows.sparse import ENTRY_BYTES, SparseSource, group_source, is_csr_group
from bigembed.store import AnyPath, at, files, is_url, locks, published, require_apart, retire, stored
from bigembed.store.attributes import ABOUT, source_of
from bigembed.store.files import digest_of

# ---------------------------------------------------------------------------------------------------------- copied
# What the rows of a run were copied from, and whether it was written since.


def stamp_of(source: AnyPath) -> str:
    """Return a stamp that changes when the file, or one in the folder, is written anew, whatever time it is given;
    empty where there is no such path."""
    return (
        files.digest_of([(file.name, file.size, file.identity) for file in stored(source)]) if source.exists() else ""
    )


def older_source(record: Mapping[str, Any]) -> str:
    """Return what to say of a run whose rows were copied from a source that was written since; nothing of any other."""
    source = record.get("source") or {}
    if not (path := source.get("path")) or stamp_of(at(path)) in ("", source.get("stamp")):
        return ""
    return f"its rows are those that {path} held before it was written anew; run the job again for those there now"


# ---------------------------------------------------------------------------------------------------------- inputs

IDS = "ids"
FIRST_ROWS, FIRST_BYTES = 1 << 16, 32 << 20
"""What a plan reads, at the most, of rows that have to be copied."""


@dataclass(frozen=True)
class Input:
    """The rows of a job with their aligned vectors, and the readers that still have to copy them to their paths."""

    path: AnyPath
    rows: RowSource
    """What stages read: the rows where they lie, or will lie."""
    reader: Reader | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    dataset: Dataset | None = None
    aligned: Mapping[str, AnyPath] = field(default_factory=dict)
    """Where the vectors lie, or will lie, that belong to the rows; their ids among them."""
    vectors: Mapping[str, Reader] = field(default_factory=dict)
    """Of those that are copied from the source of the rows."""
    named: Mapping[str, str] = field(default_factory=dict)
    """What the job calls them: a path, or a name in the source."""
    choice: Choice = field(default_factory=Choice)
    own: bool = False
    """Whether it is the job that says where they are copied or generated: what it left there before is replaced."""
    frame: FrameReference | None = None
    """The published map that the map of these rows is laid over."""
    doubted: bool = False
    """Whether the rows were copied, and the file they are from was written since."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        n, d = self.rows.shape
        return n, d

    @property
    def dtype(self) -> np.dtype[Any]:
        """As stored."""
        return self.rows.dtype

    @property
    def nbytes(self) -> int:
        """n · d · itemsize; of sparse rows what their entries take."""
        if (entries := entries_of(self.rows)) is not None:
            return ENTRY_BYTES * (entries + self.shape[0])
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns, where the source has such names."""
        return features_of(self.reader or self.rows)

    @property
    def loading(self) -> int:
        """Return bytes of what a process loads that reads the source: a library of its format, a data set."""
        return LOADING.get(self.dataset.name, 0) if self.dataset else getattr(self.reader, "loading", 0)

    @property
    def ids(self) -> AnyPath | None:
        """Return the path where the ids of the rows lie, or will lie."""
        return self.aligned.get(IDS)

    def ids_source(self) -> RowSource | Reader:
        """Return the ids, from where they are read; for those that are there, or will be copied."""
        return self.vectors[IDS] if IDS in self.vectors else vector_source(self.aligned[IDS])

    @cached_property
    def source(self) -> RowSource:
        """Return the rows with their aligned vectors: what stages read, and ``fit`` takes."""
        return replace(self.rows, aligned={name: self._column(name) for name in self.aligned if name != IDS})

    def _column(self, name: str) -> RowSource:
        """Return a vector; held in memory where it is not copied yet, for a plan."""
        path, n = self.aligned[name], self.shape[0]
        if name in self.vectors and not self.there(name):
            held = np.concatenate(list(copying.rows_of_reader(self.vectors[name], 0, n)))
            return RowSource(held.shape, held.dtype, array=held)
        return column_source(path, n, path.parent, name)

    @property
    def written(self) -> bool:
        """Return whether the rows and their aligned vectors are written already."""
        return self.reader is None and all(self.there(name) for name in self.aligned)

    def there(self, name: str) -> bool:
        """Return whether a vector is there; a copy counts only if it is of the present source, or ``doubted``."""
        if not published(self.aligned[name]) or name not in self.vectors:
            return published(self.aligned[name])
        if (origin := self.origin_of(name)) is not None:
            return bool(source_of(self.aligned[name]) == origin)
        return self.doubted or source_of(self.aligned[name]) == copied_vector(self.about, name)

    def origin_of(self, name: str) -> Any:
        """Return what a copy says that is of a table beside the rows; None for any other vector."""
        vector = self.vectors.get(name)
        return _jsonable(vector.origin(stamp_of(vector.path))) if isinstance(vector, TableColumn) else None

    def content_of(self, name: str) -> Any:
        """Return what tells a vector from any other, whether it is copied from the source of the rows yet or not."""
        if (origin := self.origin_of(name)) is not None:
            return [self.named.get(name), origin]
        own = bool(self.about) and self.aligned[name] == copying.aligned_path(self.path, name)
        if own or name in self.vectors:
            return [self.named.get(name), self.about or stamp_of(self.path)]
        return vector_source(self.aligned[name]).fingerprint()

    def ready(self) -> Input:
        """This input, written if it was not: the ids first, so that a wrong one costs little.

        Two jobs that share it wait for each other.
        """
        if self.written:
            return self
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locks.in_turn(self.path):
            for name in sorted(self.vectors, key=lambda name: name != IDS):
                if not self.there(name):
                    self._copy_vector(name)
            if self.reader is not None and not (published(self.path) and source_of(self.path) == self.about):
                retire(self.path)  # (a copy of what the source was, or of another part of it)
                beside = {name: one for name, one in self.vectors.items() if not isinstance(one, TableColumn)}
                attributes = {ABOUT: self.about, **copying.link(self.path, beside)}
                write_copy(self.reader, self.path, self.choice, attributes, label="input")
        return replace(self) if self.reader is None else _existing(self)  # (not with the source of what was planned)

    def _copy_vector(self, name: str) -> None:
        """Copy it, in the place of a copy that a job made."""
        place, origin, vector = self.aligned[name], self.origin_of(name), self.vectors[name]
        about = copied_vector(self.about, name) if origin is None else origin
        if published(place):
            if not ((self.own or origin) and _made_by_job(source_of(place), about)):
                raise ExistingOutputError(
                    f"{place}: exists and is not a copy of {name} that this job made. Nothing was changed; move it "
                    "away, or choose another [output] path"
                )
            retire(place)
        if isinstance(vector, TableColumn):
            copying.write_vector(vector.values, place, f"input {name}", {ABOUT: about})
        else:
            copy_aligned(vector, place, name, label="input", attributes={ABOUT: about})


def unwritten(reader: Reader, path: AnyPath, choice: Choice | None = None) -> RowSource:
    """Describe the rows of a reader as they will lie at the path, once they are copied there."""
    if stays_sparse(reader, choice):
        return SparseSource(reader.shape, native(reader.dtype), entries=entries_of(reader) or 0)
    names, texts = features_of(reader), getattr(reader, "categories", {})
    return derived.PlannedRows(
        reader.shape, native(reader.dtype), path=str(path), stamp="not written yet", named=names, texts=texts
    )


def find_input(job: JobSpec) -> Input:
    """Return the input of a job. Nothing is written yet. Formats without quick access by rows will be copied."""
    written = job.output
    require_apart(job.input_path, job.output_path, written.table, written.picture, written.model, written.report)
    if written.scratch is not None:  # (which may hold the input beside what is left there)
        require_apart(job.input_path, at(written.scratch) / "exchange")
    copy = at(f"{job.output_path.with_suffix('')}-input.zarr")
    if job.input.graph is not None:
        return _with_aligned(*find_graph(job), job.input_path, job.aligned, job.file.parent, copy)
    if job.input.dataset is None:
        return find_rows(job.input_path, copy, job.choice, job.aligned, job.file.parent, lambda: _takes_sparse(job))
    made = dataset(str(job.input.dataset), **job.input.parameters)
    reader, given = DatasetReader(made), dict(job.aligned)
    needing = [name for name in methods_of(job) if "labels" in needed_aligned(name)]
    if needing and "labels" not in given:
        if "label" not in reader.names:
            raise InputError(
                f"[input] labels: {needing[0]} needs a label for each row, and {job.input.dataset!r} brings none; "
                "give the path of an array with one entry a row"
            )
        given["labels"] = "label"
    own = job.input.path is None
    todo = Input(job.input_path, unwritten(reader, job.input_path), reader, reader.about, made, own=own)
    found = _with_aligned(_existing(todo), reader, made.name, given, job.file.parent, copy)
    return replace(found, named={name: found.named[name] for name in job.aligned})


def find_graph(job: JobSpec) -> tuple[Input, graph_source.GraphSource]:
    """Return the graph of a job, which is read where it lies."""
    asked, choice = job.input, job.choice
    same = {name: getattr(asked, name) for name in GRAPH if name != "graph"}
    array = choice.array[0] if choice.array else None
    found = graph_source.open_graph(
        job.input_path, values=asked.graph, columns=choice.columns or None, array=array, **same
    )
    return Input(job.input_path, found), found


def find_rows(
    path: AnyPath,
    copy: AnyPath,
    choice: Choice,
    aligned: Mapping[str, str],
    folder: Path,
    takes_sparse: Callable[[], bool],
) -> Input:
    """Return rows that are there. Those of a format without quick access by rows will be copied to ``copy``.

    ``aligned``: vectors, each by its name in the source of the rows, or by its path from ``folder`` on.
    """
    about = {"copied": str(path), "stamp": stamp_of(path), **choice.asked()}
    if (choice.categories or choice.text) and delimited_files(path):
        about["words"] = "text"  # (NA and the like: copies of earlier versions have them as missing categories)
    if (copied := _copied(copy, about, aligned, folder)) is not None:
        return copied
    reader = open_reader(path, choice)
    if stays_sparse(reader, choice) and not takes_sparse():
        choice = replace(choice, dense=True)
    if (rows := in_place(path, reader, choice)) is not None:
        found = Input(path, rows)
    else:
        about |= choice.asked()
        found = _existing(Input(copy, unwritten(reader, copy, choice), reader, about, choice=choice, own=True))
        if found.reader is not None and not stays_sparse(reader, choice):
            refuse_unreadable(reader)
    return _with_aligned(found, reader, path, aligned, folder, copy)


@contextmanager
def rows_named(path: object) -> Iterator[None]:
    """Around what reads rows: an :class:`InputError` about them names the path of their source, if it does not yet."""
    try:
        yield
    except InputError as error:
        if path is not None and str(path) not in str(error):
            error.args = (f"{path}: {error}",)
        raise


def refuse_unreadable(reader: Reader) -> None:
    """Raise what copying the first rows would raise, so that a plan refuses a table of text as the job does.

    What a header does not say (of CSV: that the columns hold numbers, and none is missing) is seen only by reading.
    """
    read = 0
    for piece in copying.rows_of_reader(reader, 0, min(reader.shape[0], FIRST_ROWS)):
        if (read := read + piece.nbytes) >= FIRST_BYTES:
            return


def _copied(copy: AnyPath, about: Mapping[str, Any], aligned: Mapping[str, str], folder: Path) -> Input | None:
    """Dense rows that were copied whole, with their aligned vectors: found without reading their source again."""
    if not published(copy) or source_of(copy) != _jsonable(about) or is_csr_group(copy):
        return None
    own, rows = copying.aligned_of(copy), rows_at(copy)
    places = {name: own.get(name) or _placed(text, folder) for name, text in aligned.items()} | own
    if not all(published(place) for place in places.values()):
        return None
    if any(source_of(place) != copied_vector(about, name) for name, place in own.items()):
        return None
    for name, place in places.items():
        copying.require_length(copying.vector_source(place), rows.shape[0], place, name)
    called = {name: aligned[name] if name in own else str(places[name]) for name in aligned}
    return Input(copy, rows, about=about, aligned=places, named=called, own=True)


def copied_vector(about: Mapping[str, Any], name: str) -> Any:
    """Return what a copy of a vector says of the source that it is from: what the copy of the rows says, and its
    name."""
    return _jsonable({**about, "vector": name})


def _placed(text: str, folder: Path) -> AnyPath:
    return at(text) if is_url(text) else placed(text, folder)


def _jsonable(about: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(about, default=str))


def _with_aligned(
    found: Input, reader: Reader, source: Any, aligned: Mapping[str, str], folder: Path, copy: AnyPath
) -> Input:
    """Return the rows with their aligned vectors: those given, and ids that the source or an earlier copy brings.

    ``copy``: beside it lie copies of columns of tables that are not the source of the rows.
    """
    given, source_of_names = dict(aligned), named(reader)
    if source_of_names is not None and source_of_names.row_ids is not None:
        given.setdefault(IDS, source_of_names.row_ids)
    inside = source_of_names.names if given and source_of_names is not None else {}
    places: dict[str, AnyPath] = {}
    vectors: dict[str, Reader] = {}
    own = copying.aligned_of(found.path).get(IDS) if found.reader is None else None

    def ids() -> Ids | None:
        """What the rows are called, when their ids are known: these come first."""
        vector, place = vectors.get(IDS), places.get(IDS, own)
        if isinstance(vector, TableColumn):
            return Ids(vector, vector.name, digest_of(vector.origin(stamp_of(vector.path))))
        if vector is not None:
            return Ids(vector, given[IDS], digest_of([stamp_of(at(str(source))), _jsonable(found.about)]))
        return None if place is None else Ids(vector_source(place), "", vector_source(place).fingerprint())

    for name, text in sorted(given.items(), key=lambda pair: pair[0] != IDS):
        if text in inside:
            vectors[name] = copying.named_vector(reader, source, text, name)
            places[name] = copying.aligned_path(found.path, name)
        elif (column := column_of_table(text, folder, name, ids())) is not None:
            copying.require_length(column, found.shape[0], text, name)
            vectors[name], places[name] = column, copying.aligned_path(copy, name)
        else:
            places[name] = _placed(text, folder)
            copying.named_vector(reader, source, str(places[name]), name)
    if own is not None and IDS not in places:
        copying.require_length(copying.vector_source(own), found.shape[0], own, f"{found.path}: ids")
        places[IDS] = own
    if found.doubted and not _unchanged(replace(found, aligned=places, vectors=vectors), reader):
        found = replace(found, rows=unwritten(reader, found.path, found.choice), reader=reader, doubted=False)
    called = {name: given[name] if name in vectors else str(places[name]) for name in aligned}
    return replace(found, aligned=places, vectors=vectors, named=called)


def _takes_sparse(job: JobSpec) -> bool:
    """Return whether sparse rows stay sparse: every method takes them, or there are steps, which refuse what they
    cannot."""
    if job.steps:
        return True
    from bigembed.maps import method

    jobs = single_jobs(job)
    made = [method(one.method.name)(**one.method.parameters) for one in jobs]
    return all(takes_sparse(one) for one in made)


def _existing(todo: Input) -> Input:
    """Return the input if these rows are there already, else with the reader that makes them."""
    about = _jsonable(todo.about)
    todo = replace(todo, about=about)
    if not published(todo.path):
        return todo
    found = source_of(todo.path)
    replaceable = todo.own and _made_by_job(found, about)
    doubted = replaceable and "copied" in about and {**found, "stamp": ""} == {**about, "stamp": ""}
    if found == about or doubted:
        rows = group_source(todo.path) if todo.rows.sparse else rows_at(todo.path)
        return replace(todo, rows=rows, reader=None, doubted=found != about)
    if replaceable:
        return todo
    raise ExistingOutputError(
        f"{todo.path}: exists and holds {_words(found)}; the job would write {_words(about)} there. Nothing was "
        "changed; move it away, or choose another path"
    )


def _made_by_job(found: Any, about: Mapping[str, Any]) -> bool:
    """Return whether a job copied rows, or a vector, or generated them, so that it may do so anew in a place of its
    own."""
    same = isinstance(found, dict) and found.get("vector") == about.get("vector")
    return same and bool({*found} & {"copied", "dataset"})


def _words(about: Any) -> str:
    """Return what rows are, in words."""
    if not isinstance(about, Mapping) or "dataset" not in about:
        return f"rows of {about['copied']}" if isinstance(about, Mapping) and "copied" in about else "something else"
    size = " × ".join(map(str, about.get("shape", ())))
    others = "".join(f", {name}={value}" for name, value in dict(about.get("parameters", {})).items())
    return f"the data set {about['dataset']} ({size}, seed={about.get('seed')}{others})"


def _unchanged(found: Input, reader: Reader) -> bool:
    """Return whether the rows that were copied are those of the source, which was written since: one pass over both."""
    copies = {path: found.vectors[name] for name, path in found.aligned.items() if name in found.vectors}
    return is_copy(reader, found.path, found.choice) and all(
        copying.same_rows(vector, path) for path, vector in copies.items() if published(path)
    )
