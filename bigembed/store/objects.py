"""Object stores (``s3://``, ``gs://``, ``az://``): a URL with the words of :class:`pathlib.Path`.

What is pickled, logged or stored is the URL.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar

from bigembed.errors import InputError
from bigembed.store.requests import ask, client_of, library, patient_store

T = TypeVar("T")
SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")
MARKS = ("zarr.json", "model.json", ".zarray", ".zgroup")
"""What makes a folder of objects something: written last, deleted first."""
META = ("e_tag", "version")
"""What tells one content of an object from another."""
TAIL_BYTES = 64 << 10
"""Read with the end of an object: the index of most files of pieces, and the footer of most formats."""
EMPTY = "status code: 416"
"""What an error says of the end of an object that has no bytes."""
PIECE_BYTES = 8 << 20
"""Read at a time where an object is read from its start to its end."""


class Stat(NamedTuple):
    """What a store says of an object, in the words of :func:`os.stat`."""

    st_size: int
    st_mtime: float
    tag: str
    """Changes whenever the bytes do."""


def _stat(entry: Any) -> Stat:
    moment = entry["last_modified"].timestamp()
    tag = entry.get("e_tag") or entry.get("version") or str(moment)
    return Stat(int(entry["size"]), moment, str(tag).strip('"'))


class Stored(NamedTuple):
    """A file under a folder."""

    name: str
    """From the folder on."""
    size: int
    stamp: str
    """Changes when the file is written anew."""
    identity: str
    """Changes, too, when another file takes its name."""


@dataclass(frozen=True, order=True)
class ObjectPath:
    """An object, or all objects whose keys begin with this one and a slash."""

    root: str
    """Scheme and bucket: ``s3://bucket``."""
    key: str = ""

    @classmethod
    def of(cls, url: str) -> ObjectPath:
        """The path of a URL; :class:`InputError` for a scheme that is not known, or credentials in it."""
        scheme, _, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        scheme = scheme.lower()
        if scheme not in SCHEMES:
            known = ", ".join(f"{name}://" for name in SCHEMES)
            raise InputError(f"{scheme}://…: not a kind of store that is known; known are {known} and paths")
        secret = "@" in bucket and (not scheme.startswith("abfs") or ":" in bucket.partition("@")[0])
        if secret or "?" in rest:
            raise InputError(
                f"{scheme}://{bucket.rpartition('@')[2]}/{key.partition('?')[0]}: credentials and options do not "
                "belong in a URL, which is logged and stored. Give them in the environment (AWS_ACCESS_KEY_ID, "
                "AWS_PROFILE, a role, …)"
            )
        if not bucket:
            raise InputError(f"{url}: names no bucket; write {scheme}://BUCKET/KEY")
        return cls(f"{scheme}://{bucket}", "/".join(part for part in key.split("/") if part))

    def __str__(self) -> str:
        return f"{self.root}/{self.key}" if self.key else self.root

    def __truediv__(self, name: object) -> ObjectPath:
        parts = [part for part in f"{self.key}/{name}".split("/") if part and part != "."]
        return ObjectPath(self.root, "/".join(parts))

    # ---------------------------------------------------------------------------- names

    @property
    def _pure(self) -> PurePosixPath:
        return PurePosixPath(self.key)

    @property
    def name(self) -> str:
        return self._pure.name or self.root.partition("://")[2]

    @property
    def stem(self) -> str:
        return self._pure.stem

    @property
    def suffix(self) -> str:
        return self._pure.suffix

    @property
    def parent(self) -> ObjectPath:
        parent = str(self._pure.parent)
        return ObjectPath(self.root, "" if parent == "." else parent)

    def with_name(self, name: str) -> ObjectPath:
        return self.parent / name

    def with_suffix(self, suffix: str) -> ObjectPath:
        return self.parent / f"{self.stem}{suffix}"

    def absolute(self) -> ObjectPath:
        return self

    # ------------------------------------------------------------------------- questions

    def exists(self) -> bool:
        """Whether there is such an object, or one beneath."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Whether there are objects beneath."""
        return bool(self._listed(1))

    def stat(self) -> Stat:
        if not self.key:
            raise FileNotFoundError(f"{self}: a bucket")
        return self._ask(lambda store, client: _stat(store.head(client, self.key)))

    def stamp(self) -> str:
        """What changes whenever the bytes do."""
        return self.stat().tag

    def iterdir(self) -> Iterator[ObjectPath]:
        """Objects and folders right beneath."""
        found = self._ask(lambda store, client: store.list_with_delimiter(client, self.key or None))
        yield from (ObjectPath(self.root, key.rstrip("/")) for key in found["common_prefixes"])
        yield from (ObjectPath(self.root, entry["path"]) for entry in found["objects"])

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """Those beneath whose names match, a pattern a level."""
        first, _, rest = pattern.partition("/")
        there = [self / first] if not re.search(r"[*?\[]", first) else list(self.iterdir())
        for path in sorted(there):
            if fnmatchcase(path.name, first):
                yield from path.glob(rest) if rest else (path,)

    def stored(self) -> list[Stored]:
        """Every object beneath, by its name from here on; of an object, itself under the name ``.``."""
        cut = len(self.key) + 1 if self.key else 0
        found = [(key[cut:], stat) for key, stat in self._listed()]
        if not found and self.is_file():
            found = [(".", self.stat())]
        return sorted(Stored(name, stat.st_size, stat.tag, stat.tag) for name, stat in found)

    def published(self) -> bool:
        """Whether it is an object, or a folder with a mark."""
        return self.is_file() or any((self / mark).is_file() for mark in MARKS)

    def _listed(self, most: int | None = None) -> list[tuple[str, Stat]]:
        """Keys beneath, and what the store says of them; a list that ends half way is asked for anew, as a whole."""

        def found(store: Any, client: Any) -> Iterator[tuple[str, Stat]]:
            for page in store.list(client, self.key or None, chunk_size=1000):
                yield from ((entry["path"], _stat(entry)) for entry in page if entry["path"] != self.key)

        return self._ask(lambda store, client: list(islice(found(store, client), most)))

    # --------------------------------------------------------------------------- content

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """The bytes as a file that is read by ranges."""
        if mode != "rb":
            raise ValueError(f"{self}: opened with mode {mode!r}; objects are read, or written as a whole")
        return io.BufferedReader(Ranges(self), 256 << 10)

    def read_bytes(self) -> bytes:
        return self._ask(lambda store, client: bytes(store.get(client, self.key).bytes()))

    def tail(self, length: int) -> bytes:
        """The last bytes."""
        return self.end(length)[0]

    def end(self, length: int) -> tuple[bytes, int]:
        """The last bytes, and how many there are in all, by one request."""
        if not self.key:
            raise FileNotFoundError(f"{self}: a bucket")

        def last(store: Any, client: Any) -> tuple[bytes, int]:
            try:
                found = store.get(client, self.key, options={"range": {"suffix": length}})
                return bytes(found.bytes()), int(found.meta["size"])
            except (store.exceptions.NotSupportedError, store.exceptions.GenericError) as error:
                if not isinstance(error, store.exceptions.NotSupportedError) and EMPTY not in str(error):  # (Azure)
                    raise
                size = self.stat().st_size
                start = max(0, size - length)
                return bytes(store.get_range(client, self.key, start=start, end=size)) if size else b"", size

        return self._ask(last)

    def range(self, start: int, length: int) -> bytes:
        """Some of the bytes."""
        return self._ask(lambda store, client: bytes(store.get_range(client, self.key, start=start, length=length)))

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def write_bytes(self, data: Any) -> None:
        """Replace the object in one step; by what a local file holds, given its path, in pieces."""
        self._ask(lambda store, client: store.put(client, self.key, data))

    def download(self, file: Path) -> None:
        """Write the bytes into a local file, in pieces."""
        with open(file, "wb") as target, self.open() as source:
            shutil.copyfileobj(source, target, PIECE_BYTES)

    def write_text(self, text: str, encoding: str = "utf-8") -> None:
        self.write_bytes(text.encode(encoding))

    def create(self, data: bytes) -> None:
        """Write the object if it does not exist; :class:`FileExistsError` otherwise."""
        self._put_once(data, "create")

    def rewrite(self, data: Any) -> None:
        """Replace an object that is there; OSError if it changes meanwhile. ``data=None`` writes its own bytes again,
        which renews its time."""

        def read(store: Any, client: Any) -> tuple[Any, bytes]:
            found = store.get(client, self.key)
            return found.meta, bytes(found.bytes())

        meta, known = self._ask(read)
        self._put_once(known if data is None else data, {name: meta[name] for name in META if meta[name]})

    def _put_once(self, data: Any, mode: Any) -> None:
        """Write on a condition. A request that is repeated, because its answer was lost, finds what it wrote itself."""
        try:
            self._ask(lambda store, client: store.put(client, self.key, data, mode=mode))
        except FileExistsError:
            if self.read_bytes() != bytes(data):
                raise

    def unlink(self, missing_ok: bool = False) -> None:
        if not missing_ok and not self.is_file():
            raise FileNotFoundError(str(self))
        self._delete(self.key)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: folders are what keys begin with."""

    def remove_tree(self) -> None:
        """Delete the object and everything beneath; the marks first, so that it is nothing for readers."""
        keys = [key for key, _ in self._listed()]
        marks = [mark.key for mark in (self / name for name in MARKS) if mark.key in keys]
        rest = [key for key in keys if key not in marks]
        for batch in (marks, *(rest[start : start + 1000] for start in range(0, len(rest), 1000))):
            if batch:
                self._delete(batch)
        self.unlink(missing_ok=True)

    def _delete(self, keys: str | list[str]) -> None:
        """Delete objects that may be gone."""
        try:
            self._ask(lambda store, client: store.delete(client, keys))
        except FileNotFoundError:  # (some stores stop at the first one)
            for key in () if isinstance(keys, str) else keys:
                self._delete(key)

    def copy_to(self, other: ObjectPath) -> None:
        """Copy the object inside its store."""
        if other.root != self.root:
            other.write_bytes(self.read_bytes())
            return
        self._ask(lambda store, client: store.copy(client, self.key, other.key))

    def _ask(self, request: Callable[[Any, Any], T]) -> T:
        """What a request of the library to the bucket returns; it is repeated while the store is away."""
        return ask(self, lambda: request(library(), self.client))

    @property
    def client(self) -> Any:
        """The store of the bucket, one a process."""
        return client_of(self.root, os.getpid())

    def zarr(self) -> Any:
        """As a place that zarr opens. Never to be pickled: it may carry credentials."""
        from zarr.storage import StorePath

        return StorePath(patient_store()(self.client, root=self.root), self.key)


class Ranges(io.RawIOBase):
    """An object as a raw file; the end is read when it is opened, since indexes and footers lie there."""

    def __init__(self, path: ObjectPath) -> None:
        self.path, self.position = path, 0
        self._tail, self.size = path.end(TAIL_BYTES)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError(f"{self.path}: position {base + offset} is before the start")
        self.position = base + offset
        return self.position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = min(len(view), max(0, self.size - self.position))
        if count:
            view[:count] = self._range(self.position, count)
            self.position += count
        return count

    def _range(self, start: int, count: int) -> bytes:
        tail = self.size - len(self._tail)
        return self.path.range(start, count) if start < tail else self._tail[start - tail : start - tail + count]
