"""Digests of all that every method stores and returns on small rows: what a change of the code's shape must not change.

    python -m tests.digests record before.json
    python -m tests.digests compare before.json

``compare`` prints each stage, model or set of coordinates whose digest is another one now, and ends with status 1 if
there are any. ``--keep FOLDER`` (with ``record``) leaves the runs and models there, and ``--opens FOLDER`` (with
``compare``) checks that they load and place rows as they did.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import dask
import numpy as np

import bigembed as be
from tests.cases import CASES, NEW


def digests(fitted: Any, folder: Path) -> dict[str, Any]:
    """Of every stage of a fit, of its model, of its coordinates, and of those of new rows."""
    np.asarray(fitted.embedding_)
    model = folder / "model"
    fitted.save(str(model))
    found = {f"stage {name}": value for name, value in published(folder / "run").items()}
    found |= {f"model {name}": value for name, value in published(model).items()}
    found["coordinates"] = of(np.asarray(fitted.embedding_))
    found["new rows"] = placed(fitted)
    return found


MADE = ("files", "results")
"""What a manifest lists that is the same for the same rows, wherever and whenever these were written."""


def published(root: Path, kept: Sequence[str] = ("key", "parameters", "inputs", *MADE)) -> dict[str, str]:
    """What each manifest lists, without what differs from one run to the next."""
    out = {}
    for path in sorted((root / "manifest").glob("*.json")):
        said = json.loads(path.read_text())
        listed = {name: said[name] for name in kept}
        out[path.stem] = sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()
    return out


def placed(fitted: Any) -> str:
    """Digest of the coordinates of new rows, or why there are none."""
    width = getattr(fitted, "n_features_in_", NEW.shape[1])
    try:
        return of(np.asarray(fitted.transform(NEW[:, :width])))
    except (be.errors.BigembedError, AttributeError) as error:
        return type(error).__name__


def of(values: Any) -> str:
    return sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def all_digests(folder: Path) -> dict[str, dict[str, Any]]:
    """Of every method and variant, fitted below a folder."""
    out = {}
    for name, case in CASES.items():
        print(name, file=sys.stderr)
        home = folder / name.replace(" ", "-")
        home.mkdir(parents=True)
        out[name] = digests(case.fit(workdir=str(home / "run")), home)
    return out


def reopened(folder: Path) -> dict[str, dict[str, Any]]:
    """Of new rows placed by every model below a folder."""
    return {
        name: {"new rows": placed(be.load(str(folder / name.replace(" ", "-") / "model")))}
        for name in CASES
        if (folder / name.replace(" ", "-")).exists()
    }


def differences(before: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What was there before and is another one now."""
    return [
        f"{name}: {part}"
        for name, parts in before.items()
        for part, digest in parts.items()
        if name in now and now[name].get(part) != digest
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--opens", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as scratch, dask.config.set(scheduler="synchronous"):
        found = all_digests(asked.keep or Path(scratch))
        if asked.what == "record":
            asked.file.write_text(json.dumps(found, indent=1, sort_keys=True))
            print(f"{sum(map(len, found.values()))} digests of {len(found)} fits")
            return 0
        before = json.loads(asked.file.read_text())
        changed = differences(before, found)
        if asked.opens:
            only = {name: {"new rows": parts["new rows"]} for name, parts in before.items()}
            changed += [f"{line} of the stored model" for line in differences(only, reopened(asked.opens))]
    gone = [name for name in before if name not in found]
    print("\n".join([*changed, *(f"{name}: gone" for name in gone)]) or "the same bytes")
    return 1 if changed or gone else 0


if __name__ == "__main__":
    sys.exit(main())
