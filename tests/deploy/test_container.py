"""deploy/container/Dockerfile and .dockerignore, and deploy/dask.yaml: linted, built and run as far as goes here."""

from __future__ import annotations

import http.server
import io
import os
import re
import shutil
import subprocess
import tarfile
import threading
import tomllib

import pytest
import yaml

from bigembed.jobs.places import ClusterTable, settings
from tests.deploy.processes import DEPLOY, ROOT, command, run

pytest.importorskip("dockerfile_parse", reason="dockerfile-parse is not installed: pip install -e '.[test]'")
from tests.deploy import image

FILE = DEPLOY / "container" / "Dockerfile"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="needs the repository")


def test_no_rule_of_hadolint_is_broken_or_ignored(tmp_path):
    lint = [command("hadolint"), "--failure-threshold", "style", "--disable-ignore-pragma", "--no-color"]
    done = run([*lint, FILE], tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    (tmp_path / "Dockerfile").write_text(FILE.read_text().replace("--no-cache-dir ", ""))
    assert "DL3042" in run([*lint, "Dockerfile"], tmp_path).stdout


def test_two_stages_and_no_compiler_in_the_last():
    build, final = image.stages(FILE)
    assert build[0][1].split()[1:] == ["AS", "build"]
    assert build[0][1].split()[0] == final[0][1] == "python:${PYTHON}-slim"
    assert any(step[0] == "RUN" and "pip" in step[1] for step in build)
    assert [value for name, value in final if name == "RUN"] == ["install -d -o 10001 -g 10001 /data"]
    installs = [value for name, value in build if name == "RUN" and " install " in value]
    assert len(installs) == 1
    for option in ("--only-binary=:all:", "--without-pip", "-c constraints/tested.txt"):
        assert option in installs[0]


def test_whoever_runs_it_is_not_root_and_has_no_name():
    _, final = image.stages(FILE)
    users = [value for name, value in final if name == "USER"]
    assert len(users) == 1
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", users[0])
    last = [name for name, _ in final]
    assert last.index("USER") > max(place for place, name in enumerate(last) if name in ("RUN", "COPY"))


def test_caches_are_where_anybody_may_write():
    _, final = image.stages(FILE)
    environment = {}
    for name, value in final:
        environment |= image.assignments(value) if name == "ENV" else {}
    assert environment["PYTHONUNBUFFERED"] == "1"
    for name in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "MPLCONFIGDIR"):
        assert environment[name].split("/")[1] == "tmp"


def test_the_python_and_the_extras_are_ours():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    arguments = {}
    for name, value in image.instructions(FILE):
        arguments |= image.assignments(value) if name == "ARG" else {}
    assert f"Programming Language :: Python :: {arguments['PYTHON']}" in project["classifiers"]
    assert (ROOT / "constraints" / f"py{arguments['PYTHON'].replace('.', '')}.txt").exists()
    all_of_them = project["optional-dependencies"]["all"]
    queues = {"slurm"}  # (nobody submits to one from inside a container)
    assert set(arguments["EXTRAS"].split(",")) == set(re.findall(r"\w+", all_of_them[0])) - {"bigembed"} - queues
    assert f"`{arguments['EXTRAS']}`" in (DEPLOY / "README.md").read_text()


def test_the_commands_of_the_file_are_those_of_the_page():
    written = [
        line[4:] for line in FILE.read_text().splitlines() if re.match(r"#   (docker (build|run --rm)|mkdir)", line)
    ]
    page = [line.split("  ")[0] for line in (DEPLOY / "README.md").read_text().splitlines()]
    assert [line.split()[0] for line in written] == ["docker", "mkdir", "docker"]
    assert [line for line in written if line not in page] == []


def test_workers_have_the_settings_of_an_embedded_cluster():
    def flat(value, name=""):
        if not isinstance(value, dict):
            return {name: value}
        return {key: leaf for part in value for key, leaf in flat(value[part], f"{name}.{part}".strip(".")).items()}

    ours = settings(ClusterTable())
    del ours["distributed.scheduler.no-workers-timeout"]  # the job's, and watched by its client
    del ours["distributed.worker.preload"]  # for children of a terminal
    del ours["distributed.scheduler.worker-ttl"]  # other programs may use a running scheduler, without a monitor
    assert flat(yaml.safe_load((DEPLOY / "dask.yaml").read_text())) == ours


# ----------------------------------------------------------------------- what would be built


def sent(folder, dockerfile="deploy/container/Dockerfile"):
    """The files that the Docker client sends for a build of ``folder``: it talks to a daemon that only listens."""
    if shutil.which("docker") is None:
        pytest.skip("the Docker client is not installed (no engine is needed)")
    got = {}

    class Daemon(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, status=200, body=b"{}"):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Api-Version", "1.43")
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self):
            self.answer(body=b"")

        def do_GET(self):
            self.answer(body=b"OK" if self.path.endswith("_ping") else b"{}")

        def do_POST(self):
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            with tarfile.open(fileobj=io.BytesIO(b"".join(parts))) as archive:
                got["names"] = {member.name for member in archive if member.isfile()}
            self.answer(body=b'{"stream": "built"}')

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Daemon) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        run(
            ["docker", "build", "-f", dockerfile, "."],
            folder,
            DOCKER_HOST=f"tcp://127.0.0.1:{server.server_port}",
            DOCKER_BUILDKIT="0",
            NO_PROXY="127.0.0.1",
        )
        server.shutdown()
    assert "names" in got, "the client sent nothing"
    return got["names"] - {dockerfile, ".dockerignore"}


def copied():
    """The sources of COPY."""
    lines = [value.split() for name, value in image.instructions(FILE) if name == "COPY"]
    return [source for line in lines if not line[0].startswith("--") for source in line[:-1]]


def test_every_source_of_copy_is_there():
    assert copied()
    for source in copied():
        assert list(ROOT.glob(source)), source


def test_what_is_sent_is_what_is_copied(tmp_path):
    tree = tmp_path / "tree"
    for source in copied():
        for path in ROOT.glob(source):
            target = tree / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if path.is_dir() else shutil.copy
            copy(path, target, **({"ignore": shutil.ignore_patterns("__pycache__")} if path.is_dir() else {}))
    (tree / "deploy" / "container").mkdir(parents=True)
    for name in (".dockerignore", "deploy/container/Dockerfile"):
        shutil.copy(ROOT / name, tree / name)
    wanted = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
    stray = [".git/config", "deploy/tls/private/key.pem", "data/points.zarr/zarr.json", "workflows/run.zarr/zarr.json"]
    stray += ["tests/test_x.py", "bigembed/__pycache__/a.pyc", "deploy/job.toml", "workflows/a.png", ".env"]
    for name in stray:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("not for the image")
    assert sent(tree) == wanted - {".dockerignore", "deploy/container/Dockerfile"}
    (tree / ".dockerignore").unlink()
    assert set(stray) <= sent(tree)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(image.can_build() is not None, reason=f"builds without an engine: {image.can_build()}")
def test_the_image_builds_and_runs_with_a_root_that_nobody_can_write(tmp_path, request):
    built = tmp_path / "image"
    request.addfinalizer(lambda: shutil.rmtree(built))  # (gigabytes)
    made = image.build(FILE, ROOT, built)
    installed = made.folder / "up" / "opt" / "bigembed"
    size = int(subprocess.run(["du", "-sm", installed], capture_output=True, text=True, check=True).stdout.split()[0])
    print(f"the image adds {size} MB to its base")
    assert not list(installed.glob("bin/pip*"))
    assert not list(installed.glob("bin/*gcc*"))
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 10001, 10001)
    assert (made.folder / "up" / "data").stat().st_uid == 10001
    (data / "job.toml").write_text(
        '[input]\ndataset = "digits"\n[method]\nname = "diffusion_map"\nn_components = 3\nn_neighbors = 10\n'
        '[output]\npath = "run.zarr"\nmodel = "model.zarr"\npicture = "map.png"\nreport = "report.html"\n'
        '[cluster]\nworkers = 1\nmemory = "1 GiB"\n'
    )
    done = image.run(made, [*made.entrypoint, "run", "/data/job.toml"], data)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    made_there = {"run.zarr", "model.zarr", "map.png", "report.html"}
    assert made_there <= {path.name for path in data.iterdir()}
    assert {path.stat().st_uid for path in data.iterdir() if path.name in made_there} == {10001}
    assert image.run(made, [*made.entrypoint, "verify", "/data/run.zarr"], data).returncode == 0
    for words in (["dask", "scheduler", "--version"], ["dask", "worker", "--version"]):
        assert image.run(made, words, data).returncode == 0
    for name in ("refresh", "extend", "audit"):
        helped = image.run(made, [*made.entrypoint, name, "--help"], data)
        assert "growing store" in " ".join(helped.stdout.split()), helped.stderr
    known = image.run(made, ["python", "-c", "import dask; print(dask.config.get('distributed.worker.memory'))"], data)
    assert "'spill': False" in known.stdout
    for place in ("/opt/bigembed/x", "/etc/x", "/x"):
        assert image.run(made, ["touch", place], data).returncode != 0
