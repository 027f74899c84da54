"""Damages stored files, one at a time, and counts what every command that reads them says.

``python -m tests.fault.corruption --cases 2000 [--seed 0] [--only NAME …] [--methods all]`` makes each target once,
damages a file of a copy in each case, lets some readers look at it, mends it by what makes it (``run``, then
``run --fresh``), and prints counts by target and kind. An outcome is right (the answer without the damage), refused
(an error of ours), wrong, a traceback (any other exception) or a hang. Ends with status 1 if there was one of the last
three. Each case is a fork of this process, which loads everything and touches nothing, so nothing is remembered.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bigembed.errors import BigembedError

SECONDS = 120
"""After which a case hangs."""
KINDS = ("bit", "digit", "truncate", "empty", "delete", "swap", "older", "garbage", "folder")
BAD = ("wrong", "traceback", "hang")
OUTCOMES = ("right", "refused", *BAD)


@dataclass(frozen=True)
class Target:
    """Something stored: how it is made, read and made anew. Every function takes the folder in which it lies."""

    name: str
    make: Callable[[Path], object]
    """Makes it."""
    files: Callable[[Path], Sequence[Path]]
    """What may be damaged, from the folder on."""
    readers: Mapping[str, Callable[[Path], Any]]
    """Each gives an answer that can be compared, and raises an error of ours where it refuses."""
    mends: Mapping[str, Callable[[Path], Any]] = field(default_factory=dict)
    """What makes it anew, the next one where one refuses."""
    after: Mapping[str, Callable[[Path], Any]] = field(default_factory=dict)
    """Readers of what was made anew, where they are others than ``readers``: they must say what they say undamaged."""
    older: Callable[[Path], object] | None = None
    """Makes an earlier version of it, in the same folder."""
    found: Callable[[Path], bool] = lambda path: False
    """Whether ``verify`` must find a damage of this file."""


def damage(file: Path, kind: str, siblings: Sequence[Path], older: Path, chance: random.Random) -> bool:
    """Damage a file; False where it cannot be damaged in this way."""
    content = file.read_bytes()
    if kind == "bit" and content:
        changed = bytearray(content)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        file.write_bytes(changed)
    elif kind == "digit":
        places = [place for place, byte in enumerate(content) if chr(byte).isdigit()] if _text(content) else []
        if not places:
            return False
        changed, place = bytearray(content), chance.choice(places)
        changed[place] = ord(chance.choice([one for one in "0123456789" if ord(one) != changed[place]]))
        file.write_bytes(changed)
    elif kind == "truncate" and len(content) > 1:
        file.write_bytes(content[: chance.randrange(1, len(content))])
    elif kind == "empty" and content:
        file.write_bytes(b"")
    elif kind == "delete":
        file.unlink()
    elif kind == "swap":
        same = [one for one in siblings if one != file and one.stat().st_size == len(content)]
        other = chance.choice([one for one in same if one.read_bytes() != content] or [file])
        if other == file:
            return False
        file.write_bytes(other.read_bytes())
        other.write_bytes(content)
    elif kind == "older" and older.is_file() and older.read_bytes() != content:
        shutil.copy2(older, file)
    elif kind == "garbage":
        file.write_bytes(bytes(chance.randrange(128, 256) for _ in range(len(content) or 9)))
    elif kind == "folder":
        file.unlink()
        file.mkdir()
    else:
        return False
    return True


def _text(content: bytes) -> bool:
    return content[:1] in (b"{", b"[", b'"')


def asked(reader: Callable[[Path], Any], folder: Path) -> tuple[str, Any]:
    """What a reader says: ``("right", answer)``, ``("refused", message)`` or ``("traceback", where)``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "right", reader(folder)
        except BigembedError as error:
            return "refused", str(error)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            ours = [f"{Path(one.filename).name}:{one.lineno}" for one in traceback.extract_tb(error.__traceback__)]
            return "traceback", f"{type(error).__name__}: {error} ({' '.join(ours[-4:])}; {last.name})"


def in_a_fork(work: Callable[[], Any]) -> Any:
    """What it returns, as JSON from a process of its own; None if that hangs or dies."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.close(reading)
            signal.alarm(SECONDS)
            with os.fdopen(writing, "w") as out:
                json.dump(work(), out)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def one_case(target: Target, folder: Path, file: Path, kind: str, seed: int) -> list[tuple[str, str, str]]:
    """Damage, let three readers look, mend: ``(who, outcome, message)`` of each; nothing where it does not apply."""
    chance = random.Random(seed)
    work, expected = folder / "work", json.loads((folder / "expected.json").read_text())
    if not damage(work / file, kind, [work / one for one in target.files(work)], folder / "older" / file, chance):
        return []
    said: list[tuple[str, str, str]] = []
    names = chance.sample(sorted(target.readers), min(3, len(target.readers)))
    if target.found(file) and "verify" not in names:
        names.append("verify")
    for name in names:
        outcome, answer = asked(target.readers[name], work)
        must = name == "verify" and target.found(file)
        if outcome == "right" and (must or _plain(answer) != expected[name]):
            outcome = "wrong"
            answer = f"{'not found' if must else _plain(answer)!r:.200}"
        said.append((name, outcome, "" if outcome == "right" else str(answer)))
    for mend, make in target.mends.items():
        outcome, answer = asked(make, work)
        if outcome == "right":
            answers = {name: asked(reader, work) for name, reader in (target.after or target.readers).items()}
            wanted = expected["after"]
            bad = {name: got for name, got in answers.items() if (got[0], _plain(got[1])) != ("right", wanted[name])}
            outcome, answer = ("wrong", str(bad)[:400]) if bad else ("right", "")
            said.append((mend, outcome, answer))
            break
        said.append((mend, outcome, str(answer)))
        if outcome != "refused":
            break
    return said


def _answers(readers: Mapping[str, Callable[[Path], Any]], work: Path) -> dict[str, Any]:
    answers = {name: asked(reader, work) for name, reader in readers.items()}
    assert all(outcome == "right" for outcome, _ in answers.values()), answers
    return {name: answer for name, (_, answer) in answers.items()}


def _plain(answer: Any) -> Any:
    return json.loads(json.dumps(answer))


def prepare(target: Target, folder: Path) -> list[str]:
    """Make it, an older version of it, and the answers without damage; the files that may be damaged."""
    work = folder / "work"
    work.mkdir(parents=True)
    if target.older is not None:
        target.older(work)
        shutil.copytree(work, folder / "older")
    target.make(work)
    shutil.copytree(work, folder / "base")
    files = [str(file) for file in target.files(work)]
    expected: dict[str, Any] = _answers(target.readers, work)
    if target.mends:
        next(iter(target.mends.values()))(work)
        expected["after"] = _answers(target.after or target.readers, work)
    (folder / "expected.json").write_text(json.dumps(expected))
    return files


@dataclass
class Counts:
    """Outcomes by target and kind, and the cases that must not be."""

    cases: Counter[tuple[str, str]] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Of (target, kind, outcome)."""
    mended: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)

    def table(self) -> list[str]:
        """For people, and for docs/reliability.md."""
        lines = [f"| target | damage | cases | {' | '.join(OUTCOMES)} |", "|---" * (3 + len(OUTCOMES)) + "|"]
        for target, kind in sorted(self.cases):
            row = [self.outcomes[target, kind, outcome] for outcome in OUTCOMES]
            lines.append(f"| {target} | {kind} | {self.cases[target, kind]} | " + " | ".join(map(str, row)) + " |")
        total = [sum(n for key, n in self.outcomes.items() if key[2] == one) for one in OUTCOMES]
        lines.append(f"| all | | {sum(self.cases.values())} | " + " | ".join(map(str, total)) + " |")
        return [*lines, "", *(f"{what}: {number}" for what, number in sorted(self.mended.items()))]


def corrupt(targets: Sequence[Target], cases: int, seed: int, home: Path, told: bool = False) -> Counts:
    """That many cases, spread evenly over targets and kinds."""
    counts, chance = Counts(), random.Random(seed)
    files = {}
    for number, target in enumerate(targets):
        files[target.name] = in_a_fork(partial(prepare, target, home / str(number)))
        assert files[target.name], target.name
    number = 0
    while sum(counts.cases.values()) < cases:
        place = number % len(targets)
        target, kind = targets[place], KINDS[number // len(targets) % len(KINDS)]
        number += 1
        folder, file, own = home / str(place), Path(chance.choice(files[target.name])), chance.randrange(1 << 30)
        shutil.rmtree(folder / "work")
        shutil.copytree(folder / "base", folder / "work")
        said = in_a_fork(partial(one_case, target, folder, file, kind, own))
        if said == []:
            continue
        said = [("?", "hang", "no answer")] if said is None else said
        counts.cases[target.name, kind] += 1
        for who, outcome, message in said:
            counts.outcomes[target.name, kind, outcome] += 1
            if who in target.mends:
                counts.mended[f"{who} {outcome}"] += 1
            if outcome in BAD or ([who] == [*target.mends][-1:] and outcome == "refused"):
                counts.bad.append(f"{target.name}: {file} {kind}: {who} {outcome}: {message[:600]}")
                if told:
                    print(counts.bad[-1], flush=True)
    return counts


def main(arguments: Sequence[str]) -> int:
    """All of it."""
    from tests.fault.targets import all_targets

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="beginnings of the names of targets")
    parser.add_argument("--methods", choices=["some", "all"], default="some")
    given = parser.parse_args(arguments)
    targets = [one for one in all_targets(given.methods) if not given.only or one.name.startswith(tuple(given.only))]
    with tempfile.TemporaryDirectory(prefix="corruption-") as home:
        counts = corrupt(targets, given.cases, given.seed, Path(home), told=True)
    print("\n".join(counts.table()))
    return 1 if counts.bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
