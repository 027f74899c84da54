"""deploy/README.md: links and files that are there, figures and commands that are true."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.deploy.manifests import FOLDER
from tests.deploy.processes import DEPLOY, ROOT
from tests.deploy.words import parse

FILE = DEPLOY / "README.md"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="needs the repository")


def blocks():
    return re.findall(r"```sh\n(.*?)```", FILE.read_text(), re.S)


def test_links_and_paths_are_there():
    text = FILE.read_text()
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert links
    paths = re.findall(r"(?<![\w/])(?:deploy|workflows|constraints)/[\w./@-]*\w", "".join(blocks()))
    assert paths
    missing = [link for link in links if not (DEPLOY / link).exists()]
    missing += [
        path
        for path in paths
        if not (ROOT / path).exists() and "private" not in path and not list(ROOT.glob(path + "*"))
    ]
    assert missing == []


def test_every_file_is_spoken_of():
    text = FILE.read_text()
    named = {path.relative_to(DEPLOY).parts[0] for path in DEPLOY.rglob("*") if path.is_file()} - {"README.md"}
    for name in named:
        assert name in text, name
    for folder in FOLDER.iterdir():
        assert f"kubernetes/{folder.name}" in text


def test_the_commands_of_a_cluster_of_your_own(tmp_path):
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).touch()
    [block] = [block for block in blocks() if "dask scheduler" in block]
    lines = block.replace("\\\n", " ").replace("/etc/bigembed/tls", str(tmp_path)).splitlines()
    [tls] = [line.split("=", 1)[1].strip('"') for line in lines if line.startswith("tls=")]
    asked = [parse(shlex.split(line.replace("$tls", tls))) for line in lines if line.startswith(("dask", "bigembed"))]
    assert [found.get("tls_ca_file") or str(found.get("tls_ca")) for found in asked] == [str(tmp_path / "ca.pem")] * 3


def test_nothing_names_one_machine():
    for path in DEPLOY.rglob("*"):
        if path.is_file() and "private" not in path.parts:
            assert not re.search(r"/(root|work|home/\w+)/|/tmp/(?!numba|matplotlib|cache)\w", path.read_text()), path
