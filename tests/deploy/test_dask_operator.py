"""DaskCluster and DaskJob against Dask's operator: the schemas that it ships, and what it makes of them."""

from __future__ import annotations

import copy
import subprocess

import pytest
import yaml

from tests.deploy.manifests import FOLDER, built
from tests.deploy.processes import ROOT, command, run
from tests.deploy.venvs import venv

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: pip install -e '.[test]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not FOLDER.exists(), reason="needs the repository"),
]
VERSION = "2026.3.0"


@pytest.fixture(scope="module")
def operator(tmp_path_factory):
    """Programs of an environment with the operator."""
    with venv(tmp_path_factory.mktemp("operator") / "venv", f"dask-kubernetes=={VERSION}") as programs:
        yield programs


@pytest.fixture(scope="module")
def schemas(operator):
    """Schema by kind; a field that is not in it is refused, as kubectl does and the server drops it."""
    [folder] = operator.parent.glob("lib/*/site-packages/dask_kubernetes/operator/deployment/helm/*/crds")
    found = {}
    for path in folder.glob("*.yaml"):
        for definition in yaml.safe_load_all(path.read_text()):
            [version] = definition["spec"]["versions"]
            schema = version["schema"]["openAPIV3Schema"]
            schema["properties"] |= {"apiVersion": {"const": f"{definition['spec']['group']}/{version['name']}"}}
            schema["properties"] |= {"kind": {"const": definition["spec"]["names"]["kind"]}, "metadata": {}}
            found[definition["spec"]["names"]["kind"]] = closed(schema)
    return found


def closed(schema):
    """No field beside those that are named."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {name: closed(part) for name, part in schema.items()}
    if (
        isinstance(out.get("properties"), dict)
        and "additionalProperties" not in out
        and out.get("type", "object") == "object"
    ):
        out["additionalProperties"] = False
    if "x-kubernetes-int-or-string" in out:
        out.pop("type", None)
    return out


@pytest.mark.parametrize("kind", ["cluster", "job"])
def test_the_operators_schema_takes_it(kind, schemas):
    [thing] = [thing for thing in built(kind) if "dask" in thing["apiVersion"]]
    check = jsonschema.Draft202012Validator(schemas[thing["kind"]])
    assert [f"{list(error.absolute_path)}: {error.message}" for error in check.iter_errors(thing)] == []
    wrong = copy.deepcopy(thing)
    spec = wrong["spec"] if kind == "cluster" else wrong["spec"]["cluster"]["spec"]
    spec["worker"]["spec"]["containers"][0]["memory"] = "4Gi"
    spec["worker"]["replicas"] = "four"
    found = sorted(error.message for error in check.iter_errors(wrong))
    assert len(found) == 2
    assert "'four' is not of type 'integer'" in found[0]
    assert "'memory' was unexpected" in found[1]


@pytest.mark.parametrize("kind", ["cluster", "job"])
def test_what_the_operator_makes_of_it_is_valid_and_speaks_tls(kind, operator, tmp_path):
    done = subprocess.run(
        [operator / "python", ROOT / "tests" / "deploy" / "operator_objects.py"],
        input=yaml.safe_dump_all(copy.deepcopy(built(kind))),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "made.yaml").write_text(done.stdout)
    checked = run([command("kubernetes-validate"), "--strict", "--quiet", "made.yaml"], tmp_path)
    assert (checked.returncode, checked.stdout) == (0, "")
    made = list(yaml.safe_load_all(done.stdout))
    assert sorted(thing["kind"] for thing in made) == [
        "Deployment",
        "Deployment",
        *["Pod"] * (kind == "job"),
        "Service",
    ]
    [service] = [thing for thing in made if thing["kind"] == "Service"]
    labels = [thing["spec"]["template"]["metadata"]["labels"] for thing in made if thing["kind"] == "Deployment"]
    chosen = [label for label in labels if service["spec"]["selector"].items() <= label.items()]
    assert [label["dask.org/component"] for label in chosen] == ["scheduler"]
    pods = [
        thing["spec"] if thing["kind"] == "Pod" else thing["spec"].get("template", {}).get("spec") for thing in made
    ]
    for pod in filter(None, pods):
        for variable in pod["containers"][0].get("env", []):
            if variable["name"] == "DASK_SCHEDULER_ADDRESS":
                assert variable["value"] == f"tls://{service['metadata']['name']}:8786"
