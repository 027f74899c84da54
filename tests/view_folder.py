"""The folder of a page as the page reads it: every node, every row, and the files that find a row."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bigembed.runtime.blocks import Array

LEAF, SIDE = 4096, 256


def payload(file: Path) -> bytes:
    """The bytes that a script hands over."""
    found = re.fullmatch(r'view\("([A-Za-z0-9+/=]+)"\)\n', file.read_text())
    assert found, file
    return zlib.decompress(b64decode(found[1]))


class Folder:
    """The folder of a page."""

    def __init__(self, path: Path, pane: int = 0, pair: int = 0) -> None:
        text = (path / "about.js").read_text()
        self.about: dict[str, Any] = json.loads(text.removeprefix("const ABOUT = ").removesuffix(";\n"))
        self.map = self.about["panes"][pane]["maps"][pair]
        self.home = path / self.map["folder"]
        self.columns = self.map["columns"]

    def file(self, kind: str, name: str, part: int = 0) -> Path:
        """The script of a cell."""
        return self.home / kind / (name or "r")[:3] / ((name or "r") + (f"_{part}" if part else "") + ".js")

    def nodes(self, name: str = "", said: Any = None) -> Iterator[tuple[str, Any]]:
        """All nodes, each with what its parent says of it, in the order of the places."""
        said = said or self.map["root"]
        if said[0] == 0:
            return
        yield name, said
        if said[0] == 1:
            for digit, quarter in enumerate(self.header(name)["quarters"]):
                yield from self.nodes(name + str(digit), quarter)

    def header(self, name: str, part: int = 0) -> Any:
        found = payload(self.file("t", name, part))
        return json.loads(found[4 : 4 + int.from_bytes(found[:4], "little")])

    def arrays(self, name: str, part: int = 0) -> bytes:
        found = payload(self.file("t", name, part))
        return found[4 + int.from_bytes(found[:4], "little") :]

    def tile(self, name: str) -> tuple[Array, list[Array]]:
        """Keys of the occupied pixels, and the planes."""
        data, pixels = self.arrays(name), self.header(name)["pixels"]
        mask = np.unpackbits(np.frombuffer(data[: SIDE * SIDE // 8], np.uint8))
        planes = np.frombuffer(data[SIDE * SIDE // 8 :], np.uint8).reshape(-1, pixels)
        return np.flatnonzero(mask), list(planes)

    def corner(self, name: str) -> tuple[float, float, float]:
        """Left, top and side of a cell, in the square."""
        x = y = 0
        for digit in map(int, name):
            x, y = 2 * x + (digit & 1), 2 * y + (digit >> 1)
        return x / 2 ** len(name), y / 2 ** len(name), 1 / 2 ** len(name)

    def leaf(self, name: str, part: int = 0) -> dict[str, Any]:
        """The points of a leaf: coordinates, rows, columns, ids."""
        data, n, at = self.arrays(name, part), self.header(name, part)["n"], 0

        def take(dtype: str, count: int) -> Array:
            nonlocal at
            found = np.frombuffer(data, dtype, count, at)
            at += found.nbytes
            return found

        def texts() -> list[str]:
            lengths = take("<u2", n)
            return [take("u1", int(length)).tobytes().decode() for length in lengths]

        left, top, side = self.corner(name)
        low, unit = np.array(self.map["low"]), np.array(self.map["unit"])
        square = np.stack([c + (take("<u2", n) + 0.5) / 65536 * side for c in (left, top)], axis=1)
        out: dict[str, Any] = {"points": low + square * unit, "rows": take("<u4", n), "side": side}
        for column in self.columns:
            out[column["name"]] = texts() if column["kind"] == "text" else take(column["dtype"], n)
        out["ids"] = texts() if self.map["ids"] else None
        assert at == len(data)
        return out

    def leaves(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """All leaves in order."""
        for name, (kind, count, _) in self.nodes():
            for part in range(-(-count // LEAF) if kind == 2 else 0):
                yield name, self.leaf(name, part)

    def places(self) -> Array:
        """The place of every row."""
        step, rows = self.map["indexed"], self.map["rows"]
        files = [self.home / f"r/{number // 1000}/{number}.js" for number in range(-(-rows // step))]
        return np.concatenate([np.frombuffer(payload(file), "<u4") for file in files])

    def place_of_id(self, name: str) -> list[int]:
        """Places of the hash of an id."""
        value = 0x811C9DC5
        for letter in name.encode():
            value = ((value ^ letter) * 0x01000193) & 0xFFFFFFFF
        file = value % self.map["hashed"]
        pairs = np.frombuffer(payload(self.home / f"i/{file // 1000}/{file}.js"), "<u4").reshape(2, -1)
        return pairs[1][pairs[0] == value].tolist()

    def neighbors(self, name: str, part: int = 0) -> Array:
        """Steps to the places of the nearest rows, 0 for none."""
        return np.frombuffer(payload(self.file("n", name, part)), "<i4").reshape(-1, self.map["near"])


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def read_back(folder: Folder) -> dict[str, Any]:
    """All rows in the order of the places."""
    leaves = [leaf for _, leaf in folder.leaves()]
    names = [name for name in leaves[0] if name != "side"]
    out = {name: [one for leaf in leaves for one in leaf[name]] for name in names if leaves[0][name] is not None}
    return out | {"side": np.concatenate([np.full(len(leaf["rows"]), leaf["side"]) for leaf in leaves])}
