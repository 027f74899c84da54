"""What Dask's operator makes of the objects on standard input, by its own functions. Runs in an environment with it."""

from __future__ import annotations

import sys
from typing import Any

import yaml


def cluster(name: str, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Deployments and service of a cluster."""
    from dask_kubernetes.operator.controller import controller
    from dask_kubernetes.operator.validation import validate_cluster_name

    validate_cluster_name(name)
    scheduler, worker = spec["scheduler"], spec["worker"]
    return [
        controller.build_scheduler_deployment_spec(name, scheduler["spec"], {}, {}),
        controller.build_scheduler_service_spec(name, scheduler["service"], {}, {}),
        controller.build_worker_deployment_spec(
            f"{name}-default", "bigembed", name, "0123456789", worker["spec"], {}, {}
        ),
    ]


def made(thing: dict[str, Any]) -> list[dict[str, Any]]:
    """Everything that the operator makes of one object."""
    from dask_kubernetes.operator.controller import controller

    name, spec = thing["metadata"]["name"], thing["spec"]
    if thing["kind"] == "DaskCluster":
        return cluster(name, spec)
    pod = controller.build_job_pod_spec(name, name, "bigembed", spec["job"]["spec"], {}, {})
    return [*cluster(name, spec["cluster"]["spec"]), pod]


if __name__ == "__main__":
    things = [thing for thing in yaml.safe_load_all(sys.stdin) if "dask" in thing["apiVersion"]]
    yaml.safe_dump_all([part for thing in things for part in made(thing)], sys.stdout)
