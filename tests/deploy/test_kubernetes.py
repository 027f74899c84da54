"""deploy/kubernetes: valid for Kubernetes, restricted, and saying what bigembed understands."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml

from bigembed.jobs import parse_deadline
from bigembed.jobs.places import parse_bytes
from bigembed.jobs.watching.status import STATUS
from tests.deploy.manifests import FOLDER, KINDS, built, jobs, pods, words
from tests.deploy.processes import DEPLOY, command, run
from tests.deploy.words import commands, parse
from tests.some import a_few

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="needs the repository")
CRON = pytest.importorskip("crontab", reason="python-crontab is not installed: pip install -e '.[test]'").CronSlices
MARGIN = 120
"""Seconds beside --deadline and the time to stop: scheduling, pulling the image, starting."""


def strict(things, folder):
    (folder / "objects.yaml").write_text(yaml.safe_dump_all(things))
    return run([command("kubernetes-validate"), "--strict", "--quiet", "objects.yaml"], folder)


@a_few(2, "kind", KINDS)
def test_kubernetes_takes_every_object(kind, tmp_path):
    things = [thing for thing in built(kind) if "dask" not in thing["apiVersion"]]
    things += [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}"}, "spec": spec}
        for number, (_, spec) in enumerate(pods(kind))
    ]
    done = strict(things, tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    for thing in things:
        thing["spce"] = {}
    done = strict(things, tmp_path)
    assert done.stdout.count("'spce' was unexpected") == len(things)
    for thing in things:
        del thing["spce"]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_pods_have_no_more_rights_than_they_need(kind):
    assert list(pods(kind))
    for name, pod in pods(kind):
        context = pod["securityContext"]
        assert context["runAsNonRoot"], name
        assert context["runAsUser"] == context["runAsGroup"] == context["fsGroup"] == 10001
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["serviceAccountName"] == "bigembed"
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False  # (variables of a service could be read as Dask's settings)
        [container] = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume.pop("name"): volume for volume in [dict(volume) for volume in pod["volumes"]]}
        assert set(mounts.values()) == set(volumes)
        assert "emptyDir" in volumes[mounts["/tmp"]]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert container["image"] == "registry.example.org/bigembed:0.2.0"


@pytest.mark.parametrize("kind", KINDS[1:])
def test_secrets_are_only_named(kind):
    assert not [thing for thing in built(kind) if thing["kind"] == "Secret"]
    for _, pod in pods(kind):
        for variable in pod["containers"][0].get("env", []):
            assert variable["name"] == "DASK_SCHEDULER_ADDRESS"
        for volume in pod["volumes"]:
            if "secret" in volume:
                assert volume["secret"] == {"secretName": "bigembed-tls", "defaultMode": 0o440}


@pytest.mark.parametrize("kind", KINDS[1:])
def test_every_name_that_is_used_is_there(kind):
    there = {(thing["kind"], thing["metadata"]["name"]) for thing in built(kind)}
    for name, pod in pods(kind):
        for volume in pod["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there, name
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in there
        for source in pod["containers"][0].get("envFrom", []):
            if "configMapRef" in source:
                assert ("ConfigMap", source["configMapRef"]["name"]) in there
            else:
                assert source["secretRef"] == {"name": "bigembed-object-store", "optional": True}
        assert ("ServiceAccount", pod["serviceAccountName"]) in there


# ------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize("kind", ["growing", "cluster", "job"])
def test_command_lines_are_understood(kind):
    for name, pod in pods(kind):
        line = words(pod)
        lines = commands(line[2]) if line[0] == "sh" else [line]
        assert lines, name
        for each in lines:
            parse(each)


def test_a_command_line_that_is_not_understood_is_found():
    with pytest.raises(Exception, match="No such option"):
        parse(["bigembed", "run", "job.toml", "--deadlin", "6h"])
    with pytest.raises(ValueError, match="deadline"):
        parse(["bigembed", "extend", "job.toml", "--deadline", "soon"])


def test_the_shell_code_of_the_audit(tmp_path):
    [(_, pod)] = [found for found in pods("growing") if found[0].endswith("audit")]
    code = words(pod)[2]
    (tmp_path / "audit.sh").write_text("#!/bin/sh\n" + code)
    done = run([command("shellcheck"), "audit.sh"], tmp_path)
    assert done.returncode == 0, done.stdout
    for status, expected in ((0, (0, "audit")), (7, (5, "audit refresh")), (2, (2, "audit")), (5, (5, "audit"))):
        said = tmp_path / f"{status}"
        (tmp_path / "bigembed").write_text(
            f'#!/bin/sh\nprintf "%s " "$1" >>{said}\n[ "$1" = audit ] && exit {status}\nexit 5\n'
        )
        (tmp_path / "bigembed").chmod(0o755)
        found = subprocess.run(["sh", "-c", code], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False).returncode
        assert (found, said.read_text().strip()) == expected


@pytest.mark.parametrize("kind", ["growing", "cluster"])
def test_exit_statuses_and_times(kind):
    refused = sorted({*STATUS} - {4, 5})
    assert refused == [2, 3, 6, 8, 9]
    for name, job in jobs(kind):
        ignored, failed, counted = job["podFailurePolicy"]["rules"]
        assert ignored == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        assert (failed["action"], failed["onExitCodes"]["values"]) == ("FailJob", refused)
        assert (counted["action"], counted["onExitCodes"]["operator"]) == ("Count", "NotIn")
        assert set(counted["onExitCodes"]["values"]) == {0, *refused}
        pod = job["template"]["spec"]
        assert {rule["onExitCodes"]["containerName"] for rule in (failed, counted)} == {pod["containers"][0]["name"]}
        assert pod["restartPolicy"] == "Never"
        assert job["backoffLimit"] >= 1
        text = " ".join(words(pod))
        deadlines = [parse_deadline(found, 0.0) for found in re.findall(r"--deadline (\w+)", text)]
        assert deadlines, name
        assert job["activeDeadlineSeconds"] == sum(deadlines) + pod["terminationGracePeriodSeconds"] + MARGIN


def test_time_to_stop_in_good_order():
    places = (DEPLOY.parent / "bigembed" / "jobs" / "places").glob("*.py")
    closing = [re.findall(r"callback\(close_quietly, \w+, (\d+)\)", place.read_text()) for place in places]
    seconds = max(sum(map(float, found)) for found in closing)
    assert seconds > 0
    for kind in KINDS[1:]:
        for name, pod in pods(kind):
            assert pod["terminationGracePeriodSeconds"] >= 1.5 * seconds, name


def test_schedules():
    found = {thing["metadata"]["name"]: thing["spec"] for thing in built("growing") if thing["kind"] == "CronJob"}
    assert set(found) == {"bigembed-extend", "bigembed-audit", "bigembed-refresh"}
    for name, spec in found.items():
        assert CRON.is_valid(spec["schedule"]), name
        assert spec["concurrencyPolicy"] == "Forbid"
        assert spec["startingDeadlineSeconds"] >= 10  # (the controller looks every ten seconds)
    assert not CRON.is_valid("61 * * * *")
    assert all(spec["suspend"] for spec in found.values())  # (there is no model yet)
    hourly = found["bigembed-extend"]
    assert hourly["schedule"] == "30 * * * *"
    assert hourly["jobTemplate"]["spec"]["activeDeadlineSeconds"] < 3600


# --------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("kind", ["cluster", "job"])
def test_a_worker_fits_into_its_pod(kind):
    for file in ("job.toml", "dask.env"):
        assert (FOLDER / kind / file).read_text() == (FOLDER / "job" / file).read_text()
    assert (FOLDER / kind / "job.toml").read_text() == (DEPLOY / "job.toml").read_text()
    [pod] = [pod for name, pod in pods(kind) if name.endswith("worker")]
    asked = parse(words(pod))
    limits = pod["containers"][0]["resources"]["limits"]
    assert size(limits["memory"]) - size(asked["memory_limit"]) == 512 << 20
    assert int(limits["cpu"]) == asked["nthreads"] == 1


def size(text):
    return parse_bytes(re.sub(r"(Gi|Mi)B?$", r" \1B", text))


# --------------------------------------------------------------------------------------- cluster


@pytest.mark.parametrize("kind", ["cluster", "job"])
def test_everybody_means_the_same_scheduler_and_by_tls(kind):
    [thing] = [thing for thing in built(kind) if "dask" in thing["apiVersion"]]
    spec = thing["spec"] if thing["kind"] == "DaskCluster" else thing["spec"]["cluster"]["spec"]
    name = thing["metadata"]["name"]
    address = f"tls://{name}-scheduler:8786"
    assert spec["scheduler"]["service"]["selector"]["dask.org/cluster-name"] == name
    found = {part.split()[-1]: pod for part, pod in pods(kind)}
    scheduler = found.pop("scheduler")
    asked = parse(words(scheduler))
    assert (asked["protocol"], asked["port"], asked["dashboard_address"]) == ("tls", "8786", ":8787")
    ports = {port["name"]: port["containerPort"] for port in scheduler["containers"][0]["ports"]}
    assert ports == {"tcp-comm": 8786, "http-dashboard": 8787}
    assert {port["targetPort"] for port in spec["scheduler"]["service"]["ports"]} == set(ports)
    for part, pod in found.items():
        assert parse(words(pod))["scheduler"] == address, part
        for variable in pod["containers"][0].get("env", []):
            assert variable == {"name": "DASK_SCHEDULER_ADDRESS", "value": address}
    settings = {thing["metadata"]["name"]: thing for thing in built(kind) if thing["kind"] == "ConfigMap"}
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["x-bigembed"]["environment"]
    assert settings["bigembed-dask"]["data"] == compose
    for part, pod in pods(kind):
        sources = pod["containers"][0]["envFrom"]
        assert {"configMapRef": {"name": "bigembed-dask"}} in sources, part
        mounts = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
        assert "/etc/bigembed/tls" in mounts


def test_only_the_namespace_itself_speaks_to_a_scheduler():
    [policy] = [thing["spec"] for thing in built("base") if thing["kind"] == "NetworkPolicy"]
    assert policy["podSelector"] == {}
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    for rule in policy["ingress"]:
        if rule["from"] != [{"podSelector": {}}]:
            assert rule["ports"] == [{"protocol": "TCP", "port": 8787}]
