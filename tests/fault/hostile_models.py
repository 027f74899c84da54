"""Models that a stranger wrote: any field of any JSON file altered, every digest repaired, under a memory limit.

``python -m tests.fault.hostile_models --cases 2000 [--seed 0] [--methods all] [--only NAME …]`` saves a model of each
method once, and in each case deletes, renames, swaps or replaces one field (by a value of another type, a huge or
negative one, NaN, a nest, a long text), mends all digests, and loads, places rows, verifies and saves again, in a fork
with a limit of memory and of time. Every outcome is a result or an error of ours; the command prints counts and ends
with status 1 at a traceback, a hang, or a process that was killed.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import bigembed as be
from bigembed.jobs.report.lines import verify_lines
from bigembed.jobs.verify import verify
from bigembed.store.files import digest_of
from tests.fault.corruption import asked, in_a_fork
from tests.fault.model_targets import NAME, models

MEMORY = 2 << 30
"""Address space of a case above that of the process that it forks from."""
VALUES: dict[str, Any] = {
    "null": None, "true": True, "text": "x", "number": 7, "fraction": 0.5, "list": [], "table": {}, "zero": 0,
    "negative": -3, "huge": 10**18, "beyond": 10**400, "NaN": float("nan"), "infinite": float("inf"), "small": 1e-300,
    "long": "y" * 1_000_000, "path": "../../../../etc/passwd", "many": [1] * 10_000, "other": "float16",
}  # fmt: skip
KINDS = ("delete", "rename", "swap", "nest", "add", *VALUES)
BAD = ("traceback", "hang or killed")


def fields(said: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every value of a JSON file stands; of long lists the first."""
    inside = said.items() if isinstance(said, dict) else enumerate(said[:3]) if isinstance(said, list) else ()
    for key, value in inside:
        yield (*place, key)
        yield from fields(value, (*place, key))


def altered(said: Any, place: tuple[Any, ...], kind: str, chance: random.Random) -> Any:
    """The same with one field changed; None where that is not possible."""
    said = json.loads(json.dumps(said))
    above = said
    for key in place[:-1]:
        above = above[key]
    key = place[-1]
    if kind == "delete":
        del above[key]
    elif kind == "rename" and isinstance(above, dict):
        above[f"{key}_"] = above.pop(key)
    elif kind == "swap":
        other = chance.choice([*above] if isinstance(above, dict) else range(len(above)))
        if above[other] == above[key]:
            return None
        above[key], above[other] = above[other], above[key]
    elif kind == "nest":
        nest: Any = 1
        for _ in range(800):
            nest = [nest]
        above[key] = nest
    elif kind == "add" and isinstance(above, dict):
        above["unheard_of"] = 1
    elif kind in VALUES:
        above[key] = VALUES[kind]
    else:
        return None
    return said


def reseal(model: Path) -> None:
    """Every digest as if the files had been written so."""
    for file in sorted(model.glob("manifest/*.json")):
        said, base = json.loads(file.read_text()), model / "stages" / file.stem
        if isinstance(said, dict) and isinstance(said.get("files"), dict):
            said["files"] |= {
                name: [(base / name).stat().st_size, sha256((base / name).read_bytes()).hexdigest()]
                for name in said["files"]
                if name.endswith("zarr.json") and (base / name).is_file()
            }
        write_sealed(file, said)
    said = json.loads((model / "model.json").read_text())
    if isinstance(said, dict) and "files" in said:
        listed = [model / "zarr.json", *sorted(model.glob("manifest/*.json"))]
        said["files"] = {str(path.relative_to(model)): sha256(path.read_bytes()).hexdigest() for path in listed}
    write_sealed(model / "model.json", said)


def write_sealed(file: Path, said: Any) -> None:
    """With a digest over the rest."""
    if isinstance(said, dict):
        rest = {name: value for name, value in said.items() if name != "digest"}
        said = {**rest, "digest": digest_of(rest)}
    file.write_text(json.dumps(said))


def loaded(folder: Path) -> Any:
    """All that a user may look at after ``load``."""
    found = be.load(folder / NAME)
    return [repr(found), len(found._repr_html_()), str(found.certificate_)[:0], list(found.get_feature_names_out())[:2]]


def placed(folder: Path) -> Any:
    """Coordinates of new rows."""
    return be.load(folder / NAME).transform(np.load(folder / "new.npy")).shape


def lazily(folder: Path) -> Any:
    """Coordinates of rows at a path."""
    return be.load(folder / NAME).transform(folder / "new.npy").compute(scheduler="synchronous").shape


def verified(folder: Path) -> Any:
    """What ``verify`` prints."""
    return len(verify_lines(verify(folder / NAME)))


def saved_again(folder: Path) -> Any:
    """A copy by ``save``."""
    shutil.rmtree(folder / "again.zarr", ignore_errors=True)
    be.load(folder / NAME).save(folder / "again.zarr")


READERS = {"load": loaded, "transform": placed, "path": lazily, "verify": verified, "save": saved_again}


def one_case(folder: Path, file: str, place: tuple[Any, ...], kind: str, seed: int) -> list[tuple[str, str, str]]:
    """Alter, mend the digests, and let every reader look."""
    model = folder / "work" / NAME
    said = altered(json.loads((model / file).read_text()), place, kind, random.Random(seed))
    if said is None:
        return []
    (model / file).write_text(json.dumps(said))
    reseal(model)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    answers = {name: asked(reader, folder / "work") for name, reader in READERS.items()}
    return [(name, outcome, "" if outcome == "right" else str(answer)) for name, (outcome, answer) in answers.items()]


def attack(targets: Sequence[Any], cases: int, seed: int, home: Path, told: bool = False) -> tuple[Counter[Any], list]:
    """That many cases, spread evenly over methods and kinds: counts by kind and outcome, and what must not be."""
    chance, counts, bad = random.Random(seed), Counter(), []
    for number, target in enumerate(targets):
        (home / str(number) / "base").mkdir(parents=True)
        in_a_fork(partial(_made, target, home / str(number) / "base"))
    done = number = 0
    while done < cases:
        at, kind = number % len(targets), KINDS[number // len(targets) % len(KINDS)]
        number += 1
        folder = home / str(at)
        shutil.rmtree(folder / "work", ignore_errors=True)
        shutil.copytree(folder / "base", folder / "work")
        model = folder / "work" / NAME
        names = sorted(str(file.relative_to(model)) for file in model.rglob("*.json"))
        file = chance.choice(["model.json", *names, *(name for name in names if name.startswith("manifest"))])
        places = [place for place in fields(json.loads((model / file).read_text())) if place[0] != "digest"]
        place = chance.choice(places)
        said = in_a_fork(partial(one_case, folder, file, place, kind, chance.randrange(1 << 30)))
        if said == []:
            continue
        done += 1
        for who, outcome, message in [("?", "hang or killed", "")] if said is None else said:
            counts[kind, outcome] += 1
            if outcome in BAD:
                bad.append(f"{targets[at].name}: {file} {place} {kind}: {who} {outcome}: {message[:600]}")
                if told:
                    print(bad[-1], flush=True)
    return counts, bad


def _made(target: Any, folder: Path) -> bool:
    target.make(folder)
    return True


def main(arguments: Sequence[str]) -> int:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="beginnings of the names of methods")
    parser.add_argument("--methods", choices=["some", "all"], default="some")
    given = parser.parse_args(arguments)
    wanted = tuple(f"model of {name}" for name in given.only)
    targets = [one for one in models(given.methods) if not wanted or one.name.startswith(wanted)]
    with tempfile.TemporaryDirectory(prefix="hostile-") as home:
        counts, bad = attack(targets, given.cases, given.seed, Path(home), told=True)
    print("| field | result | refused | traceback | hang or killed |\n|---|---|---|---|---|")
    for kind in (*KINDS, "all"):
        row = [
            sum(count for (one, outcome), count in counts.items() if kind in (one, "all") and outcome == name)
            for name in ("right", "refused", *BAD)
        ]
        print(f"| {kind} | " + " | ".join(map(str, row)) + " |")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
