"""Kubernetes objects as kubectl builds them from deploy/kubernetes."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.processes import DEPLOY, run

FOLDER = DEPLOY / "kubernetes"
KINDS = ["base", "load", "growing", "cluster", "job"]


@functools.cache
def built(kind: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The objects of a folder."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    done = run(["kubectl", "kustomize", folder / kind], DEPLOY)
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.safe_load_all(done.stdout))


def pods(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and pod specification of everything that starts pods."""
    for thing in built(kind):
        name, spec = f"{thing['kind']}/{thing['metadata']['name']}", thing.get("spec", {})
        if thing["kind"] == "CronJob":
            yield name, spec["jobTemplate"]["spec"]["template"]["spec"]
        elif thing["kind"] == "Job":
            yield name, spec["template"]["spec"]
        elif thing["kind"] == "Pod":
            yield name, spec
        elif thing["kind"] == "DaskCluster":
            yield from ((f"{name} {part}", spec[part]["spec"]) for part in ("scheduler", "worker"))
        elif thing["kind"] == "DaskJob":
            yield f"{name} job", spec["job"]["spec"]
            cluster = spec["cluster"]["spec"]
            yield from ((f"{name} {part}", cluster[part]["spec"]) for part in ("scheduler", "worker"))


def jobs(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and job specification of jobs and scheduled jobs."""
    for thing in built(kind):
        if thing["kind"] in ("Job", "CronJob"):
            spec = thing["spec"]
            yield thing["metadata"]["name"], spec["jobTemplate"]["spec"] if thing["kind"] == "CronJob" else spec


def words(pod: dict[str, Any]) -> list[str]:
    """What the only container runs."""
    [container] = pod["containers"]
    return [*container.get("command", ["bigembed"]), *container.get("args", [])]
