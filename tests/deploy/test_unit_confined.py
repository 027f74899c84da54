"""The service of deploy/systemd under its own restrictions, without systemd: a refresh on an embedded cluster."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from bigembed import open_growth
from bigembed.store.arrays import write_array
from tests.deploy.processes import DEPLOY, ROOT
from tests.deploy.units import FOLDER, command_line, instance

pytest.importorskip("dockerfile_parse", reason="dockerfile-parse is not installed: pip install -e '.[test]'")
from tests.deploy import image

WHY_NOT = image.can_build() or (None if shutil.which("systemd-analyze") and shutil.which("ip") else "needs systemd, ip")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not FOLDER.exists(), reason="needs the repository"),
    pytest.mark.skipif(WHY_NOT is not None, reason=f"confines a process: {WHY_NOT}"),
]
USER = 10007


def confined(folder, words, unit):
    """A command with a root that cannot be written, no rights, only this host's own addresses and the calls allowed."""
    stage = image.Stage(folder)
    image.python_for_all(stage)
    for place in {*Path(sys.prefix).parents, *ROOT.parents}:
        assert stage.inside(f"chmod a+x {shlex.quote(str(place))}").returncode == 0
    [data] = unit["Service", "ReadWritePaths"]
    cache = f"/var/cache/{unit['Service', 'CacheDirectory'][0]}"
    for place in (data, cache, "/etc/bigembed", "/opt/bigembed/bin", "/run/private"):
        stage.at(place).mkdir(parents=True)
    program = stage.at("/opt/bigembed/bin/bigembed")
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m bigembed.cli "$@"\n')
    program.chmod(0o755)
    job = (DEPLOY / "growing.toml").read_text()
    stage.at("/etc/bigembed/growing.toml").write_text(job.replace("3 GiB", "1 GiB"))
    given = [word for value in unit["Service", "Environment"] for word in shlex.split(value)]
    variables = [*given, "PATH=/usr/bin:/bin", f"HOME={data}", f"PYTHONPATH={ROOT}", "TMPDIR=/run/private"]
    lines = [shlex.join(["mkdir", "-p", "{root}" + data])]
    lines += [f"mount --bind {shlex.quote(str(folder.parent / 'data'))} {{root}}{data}"]
    lines += [
        f"mount -t tmpfs -o uid={USER},gid={USER},mode=700 tmpfs {{root}}{place}" for place in (cache, "/run/private")
    ]
    calls = ",".join(word for value in unit["Service", "SystemCallFilter"] for word in value.split())
    families = ",".join(word for value in unit["Service", "RestrictAddressFamilies"] for word in value.split())
    confine = [sys.executable, str(ROOT / "tests" / "deploy" / "syscalls.py"), calls, families]
    rights = f"setpriv --reuid={USER} --regid={USER} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all"
    script = (
        f"ip link set lo up; cd {data}; exec {rights} env -i {shlex.join(variables)} {shlex.join([*confine, *words])}"
    )
    alone = f"unshare --net sh -ec {shlex.quote(script)}"
    return stage.inside(alone, then="\n".join(lines) + "\nmount -o remount,ro {root}\n")


@pytest.fixture
def data(tmp_path):
    """The folder that the service may write, with rows in it."""
    write_array(tmp_path / "data" / "points.zarr", np.random.default_rng(0).normal(size=(2000, 6)).astype("f4"))
    for place in (tmp_path / "data", *(tmp_path / "data").rglob("*")):
        os.chown(place, USER, USER)
    return tmp_path / "data"


def test_a_refresh_with_workers_is_done_under_the_restrictions(data, tmp_path):
    unit = instance("refresh")
    words = shlex.split(command_line("refresh", WINDOW="--deadline 4m"))
    done = confined(tmp_path / "root", words, unit)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert open_growth(data / "growing.zarr").current.fitted == 2000


def test_the_restrictions_are_there(data, tmp_path):
    code = (
        "import os, socket\n"
        "for name, call in {\n"
        "    'packet': lambda: socket.socket(socket.AF_PACKET),\n"
        "    'netlink': lambda: socket.socket(socket.AF_NETLINK),\n"
        "    'mount': lambda: os.chroot('/'),\n"
        "    'root': lambda: open('/etc/x', 'w'),\n"
        "    'elsewhere': lambda: socket.create_connection(('192.0.2.1', 443), 2),\n"
        "    'data': lambda: open('/data/x', 'w'),\n"
        "    'here': lambda: socket.create_server(('127.0.0.1', 0)),\n"
        "}.items():\n"
        "    try:\n        call()\n        print(name, 'done')\n"
        "    except OSError as error:\n        print(name, error.errno)\n"
    )
    done = confined(tmp_path / "root", ["/opt/bigembed/bin/python", "-c", code], instance("extend"))
    found = dict(line.split() for line in done.stdout.splitlines())
    assert found == {
        **{"packet": "97", "netlink": "97", "mount": "1", "root": "30", "elsewhere": "101"},
        **{"data": "done", "here": "done"},
    }
