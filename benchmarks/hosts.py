"""Hosts that share nothing but an object store, on one machine: every method, and what goes wrong between hosts.

    python benchmarks/hosts.py methods              # each method, by 1 Gbit/s and 1 ms between hosts
    python benchmarks/hosts.py methods --link 100Mbit-20ms
    python benchmarks/hosts.py events               # cut cables, a restarted scheduler, a store in trouble

A scheduler, workers with nannies, an S3 server and whoever submits the job are processes in namespaces of their own
(network, mounts, processes, name, shared memory): each has its loopback, its address and one folder that no other sees;
the packages are read-only. Frames between them pass a switch in this process, which has the rate of each cable and the
way from one host to another (`tests/fault/switch.py`). Rows, exchanges and results are in the object store only. What
each stage published is compared with a run of one process with files. It needs root on Linux, `/dev/net/tun`,
`iproute2` and SeaweedFS (extra `test`).

Everything is compiled anew unless `--compiled FOLDER` keeps it for the next start: only then the seconds of one process
are those of its work. Blocks are small, so that few rows are cut as many are: seconds say what requests and messages
cost on such a link, not how fast a method is. An event ends it with status 1 where bytes differ, a status is none that
the guide has for it, or no message names the culprit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import keep, kept, table

from bigembed.maps import REGISTRY
from tests.fault.deployment import Deployment, Job, Reference, deployed
from tests.fault.hosts import lacking
from tests.s3 import ABSENT, weed

LINKS = {"1Gbit-1ms": (1e9, 1e-3), "100Mbit-20ms": (1e8, 20e-3)}
"""Bits a second of a cable, seconds from one host to another."""
CANNOT: dict[str, str] = {}
"""Methods that do not work by an object store alone, and why."""
MIB = 1 << 20
LONGEST = 7_200.0
"""Seconds of a job: two views by the slow link take more than half an hour."""
STILL, ATTEMPTS = 5.0, 5
"""Seconds without any frame after which a run does not count, and how often it is tried."""


# --------------------------------------------------------------------------------------------------------- methods


Row = dict[str, Any]


def every_method(
    names: list[str], folder: Path, reference: Reference, workers: int, link: str
) -> Iterator[tuple[str, Row]]:
    """Yield each method on hosts of this link, beside a run of one process with files."""
    (place := folder / "hosts").mkdir()
    with deployed(place, reference, workers, *LINKS[link]) as deployment:
        for name in names:
            reference.run(name)
            deployment.share_compiled(*deployment.network.hosts.values())
            yield name, {**one_method(deployment, name), "one process, files": round(reference.seconds[name], 1)}


def one_method(deployment: Deployment, name: str) -> dict[str, Any]:
    """A job of a method: seconds, bytes on all cables, whether the bytes are those of one process with files.

    It is run again where this machine stood still meanwhile, so that connections were lost.
    """
    switch = deployment.network.switch
    for attempt in range(ATTEMPTS):
        before, switch.stood_still = deployment.network.moved(), 0.0
        job = deployment.run(name, f"{name}-{attempt}")
        status, seconds = job.end(LONGEST)
        moved = deployment.network.moved() - before
        if switch.stood_still < STILL:
            break
    if status:
        raise SystemExit(f"{name} ended with {status}: {job.messages()}")
    same = deployment.published(job) == deployment.reference.run(name)
    differ(name, same)
    return {"seconds": round(seconds, 1), "MiB": round(moved / MIB, 1), "same bytes": same}


def differ(name: str, same: bool) -> None:
    """End where bytes differ."""
    if not same:
        raise SystemExit(f"{name}: other bytes than those of one process with files")


# ---------------------------------------------------------------------------------------------------------- events

AWAY, THROTTLED = 60.0, 30.0


@dataclass(frozen=True)
class Trouble:
    """What happens in the middle of a job, who is to blame, and how the job may end by it."""

    happens: Callable[[Deployment], None]
    culprit: Callable[[Deployment], str]
    """What a message has to hold."""
    statuses: tuple[int, ...] = (0,)
    after: Callable[[Deployment], None] = lambda deployment: None
    """What somebody does about it before the job is started again, or when it has ended."""


def away(role: str) -> Callable[[Deployment], None]:
    """A host that nobody reaches for a minute."""

    def happens(deployment: Deployment) -> None:
        with deployment.network.hosts[role].away(AWAY):
            pass

    return happens


def cut(role: str) -> Callable[[Deployment], None]:
    """A host whose cable is pulled out for good."""
    return lambda deployment: deployment.network.hosts[role].cut()


def mended(role: str) -> Callable[[Deployment], None]:
    """The cable is put back."""
    return lambda deployment: deployment.network.hosts[role].mend()


def throttled(mode: str) -> Callable[[Deployment], None]:
    """A store that behaves so for half a minute."""

    def happens(deployment: Deployment) -> None:
        deployment.trouble(mode)
        time.sleep(THROTTLED)
        deployment.trouble("pass")

    return happens


def restart(deployment: Deployment) -> None:
    """The scheduler is killed, and started again at the same address."""
    deployment.kill_scheduler()
    deployment.start_scheduler()


def scheduler(deployment: Deployment) -> str:
    """The address of the scheduler."""
    return deployment.address


def worker(deployment: Deployment) -> str:
    """The address of the first worker."""
    return f"tcp://{deployment.workers[0].address}:"


def store(deployment: Deployment) -> str:
    """The bucket."""
    return "s3://bucket"


EVENTS = {
    "a worker away for a minute": Trouble(away("worker-0"), worker),
    "the scheduler away for a minute": Trouble(away("scheduler"), scheduler, (0, 5)),
    "the submitter away for a minute": Trouble(away("submitter"), scheduler, (0, 5)),
    "the store away for a minute": Trouble(away("store"), store),
    "a worker cut off for good": Trouble(cut("worker-0"), worker),
    "the scheduler cut off, mended after the end": Trouble(cut("scheduler"), scheduler, (5,), mended("scheduler")),
    "the store cut off, mended after the end": Trouble(cut("store"), store, (5,), mended("store")),
    "the scheduler restarted": Trouble(restart, scheduler, (0, 5)),
    "the store answers 503 for half a minute": Trouble(throttled("503"), store),
    "every second request gets 503 for half a minute": Trouble(throttled("busy"), store),
    "each GET takes 2 s longer for half a minute": Trouble(throttled("slow"), store),
}
UNSAID = (
    "the submitter away for a minute",
    "the scheduler restarted",
    "every second request gets 503 for half a minute",
    "each GET takes 2 s longer for half a minute",
)
"""Of which a job need not say anything: workers go on with the tasks they have; a scheduler is back before a task is
missed; requests are repeated, or late."""


def every_event(
    names: list[str], folder: Path, reference: Reference, workers: int, name: str, stage: str, link: str
) -> Iterator[tuple[str, Row]]:
    """Yield each event under a job of its own, beside jobs that nothing disturbs, with and without a proxy."""
    reference.run(name)
    calm: dict[bool, Row] = {}
    for event in ("undisturbed", "undisturbed, through the proxy", *names):
        proxy = any(word in event for word in ("proxy", "503", "GET"))
        row = undisturbed_by_others(folder, reference, workers, LINKS[link], proxy, name, stage, event)
        without = calm.setdefault(proxy, row)
        row["lost"] = round(row["seconds"] - without["seconds"], 1)
        row["MiB more"] = round(row["MiB"] - without["MiB"], 1)
        yield event, row


def undisturbed_by_others(
    folder: Path, reference: Reference, workers: int, link: tuple[float, float], proxy: bool, *asked: str
) -> dict[str, Any]:
    """One event on hosts of its own, again where this machine stood still meanwhile."""
    for _ in range(ATTEMPTS):
        place = Path(tempfile.mkdtemp(dir=folder))
        with deployed(place, reference, workers, *link, proxy) as deployment:
            try:
                row = one_event(deployment, *asked)
            except SystemExit:
                if deployment.network.switch.stood_still < STILL:
                    raise
        if deployment.network.switch.stood_still < STILL:
            return row
    raise SystemExit(f"this machine stood still in each of {ATTEMPTS} attempts")


def one_event(deployment: Deployment, name: str, stage: str, event: str) -> dict[str, Any]:
    """A job under an event, started again until it is done."""
    trouble = EVENTS.get(event)
    began, before = time.monotonic(), deployment.network.moved()
    job: Job = deployment.run(name, "job")
    statuses = []
    if trouble is not None:
        job.reaches(stage)
        trouble.happens(deployment)
    statuses.append(job.end()[0])
    said = job.messages()
    if trouble is not None:
        trouble.after(deployment)
    while statuses[-1] and len(statuses) < 4:
        job = deployment.run(name, "job")
        statuses.append(job.end()[0])
        said += job.messages()
    seconds, moved = time.monotonic() - began, deployment.network.moved() - before
    allowed = trouble.statuses if trouble is not None else (0,)
    if statuses[0] not in allowed or statuses[1:] not in ([], [0]):
        raise SystemExit(f"{event}: ended with {statuses}, not {allowed} and then 0:\n{said}")
    same = deployment.published(job) == deployment.reference.run(name)
    differ(event, same)
    culprit = trouble.culprit(deployment) if trouble is not None else ""
    lines = [line for line in said.splitlines() if culprit and culprit in line and "without TLS" not in line]
    row = {"seconds": round(seconds, 1), "MiB": round(moved / MIB, 1), "statuses": statuses, "same bytes": same}
    if trouble is not None and not lines and event not in UNSAID:
        row["wrong"] = f"no message names {culprit}"
    return row | ({"said": lines[0]} if lines else {})


# ------------------------------------------------------------------------------------------------------------ main


def main() -> None:
    """Take the arguments, run, and keep what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["methods", "events"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rows", type=int, default=2_400)
    parser.add_argument("--block", type=int, default=400, help="rows of a block")
    parser.add_argument("--only", nargs="*", help="of the methods or events; what was kept of others stays")
    parser.add_argument("--method", default="diffusion_map", help="of the events")
    parser.add_argument("--stage", default="search", help="at whose start events happen")
    parser.add_argument("--link", choices=list(LINKS), default=next(iter(LINKS)))
    parser.add_argument("--compiled", type=Path, help="a folder that keeps compiled code from one start to the next")
    parser.add_argument("--check", action="store_true", help="keep no results")
    given = parser.parse_args()
    if why := lacking() or (None if weed() else ABSENT):
        raise SystemExit(why)
    parameters = {"rows": given.rows, "block": given.block, "workers": given.workers, "link": given.link}
    name = f"hosts_{given.what}"
    parameters |= {"method": given.method} if given.what == "events" else {}
    found: dict[str, Row] = dict(kept(name, parameters)) if given.only else {}
    with tempfile.TemporaryDirectory(prefix="bigembed-hosts-") as place:
        folder = Path(place)
        reference = Reference(folder / "reference", given.rows, given.block, given.compiled)
        shared = folder, reference, given.workers
        if given.what == "methods":
            names = given.only or [one for one in REGISTRY if one not in CANNOT]
            rows = every_method(names, *shared, given.link)
        else:
            names = [one for one in EVENTS if not given.only or any(word in one for word in given.only)]
            rows = every_event(names, *shared, given.method, given.stage, given.link)
        for label, row in rows:
            found[label] = row
            print(label, row, flush=True)
            if not given.check:
                keep(name, parameters, found)
    if not given.check:
        table(name, parameters, found)
    if wrong := [label for label, row in found.items() if "wrong" in row]:
        raise SystemExit(f"no message names the culprit of: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
