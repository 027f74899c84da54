"""deploy/systemd and deploy/cron: valid units, what they may do, and command lines that bigembed understands."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from bigembed.jobs.growth.audit import DUE
from bigembed.jobs.places import parse_bytes
from bigembed.jobs.spec import read_job
from tests.deploy.processes import DEPLOY, command, run
from tests.deploy.units import FOLDER, command_line, instance, settings
from tests.deploy.words import commands, parse

INSTANCES = ["append", "extend", "audit", "refresh"]
TIMERS = {
    "bigembed-append": "append",
    "bigembed-extend": "extend",
    "bigembed-audit": "audit",
    "bigembed-refresh": "refresh",
}
ROWS_OF_JOB = str(read_job(DEPLOY / "growing.toml").input.path) if FOLDER.exists() else ""
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="needs the repository")
systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@pytest.fixture
def units(tmp_path):
    """The units as if bigembed were installed here."""
    shutil.copytree(FOLDER, tmp_path / "units")
    installed = tmp_path / "bigembed" / "bin"
    installed.mkdir(parents=True)
    (installed / "bigembed").symlink_to(sys.executable)
    for name in ("bigembed@.service", "bigembed@append.service.d/rows.conf"):
        unit = tmp_path / "units" / name
        unit.write_text(unit.read_text().replace("/opt/bigembed/bin/", f"{installed}/"))
    return tmp_path / "units"


def verify(units, name):
    done = run(["systemd-analyze", "verify", "--man=no", units / name], units, SYSTEMD_UNIT_PATH=f"{units}:")
    return done.returncode, done.stderr


@systemd
@pytest.mark.parametrize(
    "name", [*(f"bigembed@{name}.service" for name in INSTANCES), *(f"{name}.timer" for name in TIMERS)]
)
def test_systemd_takes_every_unit(units, name):
    assert verify(units, name) == (0, "")


@systemd
def test_a_unit_with_a_mistake_is_found(units):
    template = units / "bigembed@.service"
    right = template.read_text()
    template.write_text(right.replace("MemoryMax=8G", "MemoryMaximum=8G"))
    assert "MemoryMaximum" in verify(units, "bigembed@extend.service")[1]
    template.write_text(right.replace("/bin/bigembed", "/bin/bigembd"))
    assert verify(units, "bigembed@extend.service")[0] != 0
    drop_in = units / "bigembed@refresh.service.d" / "window.conf"
    drop_in.write_text(drop_in.read_text().replace("RestartForceExitStatus", "RestartOnExitStatus"))
    assert "RestartOnExitStatus" in verify(units, "bigembed@refresh.service")[1]


@systemd
def test_the_service_can_do_little_harm(units):
    rate = ["systemd-analyze", "security", "--offline=yes", "--no-pager"]
    for name in INSTANCES:
        done = run([*rate, "--threshold=16", units / f"bigembed@{name}.service"], units, SYSTEMD_UNIT_PATH=f"{units}:")
        assert done.returncode == 0, done.stdout
    template = units / "bigembed@.service"
    template.write_text(re.sub(r"(?m)^(NoNewPrivileges|ProtectSystem|SystemCallFilter)=.*\n", "", template.read_text()))
    done = run([*rate, "--threshold=16", units / "bigembed@extend.service"], units, SYSTEMD_UNIT_PATH=f"{units}:")
    assert done.returncode != 0


@systemd
@pytest.mark.parametrize("timer", TIMERS)
def test_timers(timer):
    found = settings(f"{timer}.timer")
    [when] = found["Timer", "OnCalendar"]
    assert run(["systemd-analyze", "calendar", when], FOLDER).returncode == 0
    assert run(["systemd-analyze", "calendar", when.replace(":", "!")], FOLDER).returncode != 0
    assert found["Timer", "Unit"] == [f"bigembed@{TIMERS[timer]}.service"]
    assert found["Timer", "Persistent"] == ["true"]
    assert found["Install", "WantedBy"] == ["timers.target"]


@pytest.mark.parametrize("name", INSTANCES)
def test_exit_statuses(name):
    found = instance(name)
    good = {int(word) for value in found["Service", "SuccessExitStatus"] for word in value.split()}
    assert good == {4, 5} | ({DUE} if name == "audit" else set())
    windowed = any("--deadline" in value for value in found["Service", "Environment"])
    assert windowed == (name == "refresh")
    assert found["Service", "RestartForceExitStatus"] == ([] if windowed else ["5"])
    assert found["Unit", "StartLimitBurst"]
    assert found["Service", "KillMode"] == ["mixed"]  # (a signal to the workers, too, would look like their loss)
    assert found["Service", "TimeoutStopSec"] == ["60"]


def test_an_audit_that_says_so_starts_the_refresh(tmp_path):
    [line] = instance("audit")["Service", "ExecStopPost"]
    prefix, shell = line[0], line[1:].replace("$$", "$")
    assert prefix == "+"
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/said\n')
    (tmp_path / "systemctl").chmod(0o755)
    for status in (0, 2, 4, 5, DUE):
        variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "EXIT_STATUS": str(status)}
        assert subprocess.run(["sh", "-c", shell], env=variables, check=False).returncode == 0
    assert (tmp_path / "said").read_text() == "start --no-block bigembed@refresh.service\n"


@pytest.mark.parametrize("name", INSTANCES)
def test_command_lines_of_units_are_understood(name):
    [words] = commands(command_line(name))
    found = parse(words)
    if name == "append":
        assert (found["store"], found["new"], found["ids"]) == (ROWS_OF_JOB, "/data/new.parquet", "id")
        assert found["skip_known"]
        return
    assert str(found["model" if name == "extend" else "job"]) == "/etc/bigembed/growing.toml"


def test_options_do_not_take_the_window_away():
    """OPTIONS= in refresh.env leaves the deadline of the drop-in, unless it holds one itself."""

    def asked(**file):
        [words] = commands(command_line("refresh", **file))
        return parse(words)

    assert asked()["deadline"] == "06:30"
    kept = asked(OPTIONS="--keep 3")
    assert (kept["keep"], kept["deadline"]) == (3, "06:30")
    assert asked(OPTIONS="--deadline 2h")["deadline"] == asked(WINDOW="--deadline 2h")["deadline"] == "2h"
    assert asked(WINDOW="")["deadline"] is None


@pytest.mark.parametrize("name", INSTANCES)
def test_every_instance_has_the_credentials(name):
    shared, own = instance(name)["Service", "EnvironmentFile"]
    assert (shared, own) == ("-/etc/bigembed/credentials.env", "-/etc/bigembed/%i.env")
    assert f"chmod 600 {shared[1:]}" in (DEPLOY / "README.md").read_text()


@systemd
def test_the_drop_in_for_what_is_elsewhere(units):
    """It is not among the files that are installed for everybody; where it is, all addresses are allowed."""
    [installed] = re.findall(r"cp -r (deploy/systemd/\S+)", (DEPLOY / "README.md").read_text())
    assert units / "elsewhere.conf" not in units.glob(installed.removeprefix("deploy/systemd/"))
    drop_in = units / "bigembed@.service.d" / "elsewhere.conf"
    drop_in.parent.mkdir()
    shutil.move(units / "elsewhere.conf", drop_in)
    for name in INSTANCES:
        assert verify(units, f"bigembed@{name}.service") == (0, "")
    assert settings("elsewhere.conf")["Service", "IPAddressAllow"] == ["any"]
    narrow = drop_in.read_text().replace("IPAddressAllow=any\n", "").replace("# IPAddressAllow", "IPAddressAllow")
    assert "IPAddressAllow=10." in narrow
    drop_in.write_text(narrow)
    assert verify(units, "bigembed@extend.service") == (0, "")
    drop_in.write_text(narrow.replace("Allow=10.", "Allow=some."))
    assert "some.20.0.0" in verify(units, "bigembed@extend.service")[1]


def test_memory_of_the_unit_and_of_the_job_agree():
    job = read_job(DEPLOY / "growing.toml")
    [limit] = instance("extend")["Service", "MemoryMax"]
    assert parse_bytes(limit.replace("G", " GiB")) == job.cluster.workers * job.cluster.memory + (2 << 30)
    written = instance("extend")["Service", "ReadWritePaths"]
    assert written == ["/data"]
    assert job.output_path.parts[:2] == ("/", "data")


def test_docs_and_files_agree_on_what_is_not_tried_again():
    """The table of deploy/README.md, that of docs/guide/resuming.md, and what each orchestrator refuses."""
    table = (DEPLOY / "README.md").read_text().split("## Exit statuses")[1].split("\n## ")[0]
    [row] = [line for line in table.splitlines() if "no second try" in line]
    refused = {int(word) for word in re.findall(r"\d", row.split("|")[1])}
    assert refused == {2, 3, 6, 8, 9}
    for file in ("airflow/bigembed_dags.py", "prefect/bigembed_flows.py"):
        text = (DEPLOY / file).read_text()
        assert {int(one) for one in re.findall(r"(?m)^ +(\d): ", text.split("REFUSED = {")[1].split("}")[0])} == refused
        assert "2, 3, 6, 8 and 9 fail" in text
    for file in (DEPLOY / "kubernetes").rglob("*.yaml"):
        for values in re.findall(r"operator: In\s+values: \[(.*)\]", file.read_text()):
            assert set(map(int, values.split(","))) == refused, file
    guide = (DEPLOY.parent / "docs" / "guide" / "resuming.md").read_text()
    rows = dict(re.findall(r"(?m)^\| (\d) \| .* \| (.*) \|$", guide))
    assert [status for status, advice in rows.items() if advice.startswith("start it again")] == ["5"]
    assert "after status 5, perhaps after 1, and after no other" in " ".join(guide.split())


def test_compiled_code_is_kept_where_the_schedules_say():
    places = [(DEPLOY / name).read_text() for name in (
        "cron/bigembed.crontab", "systemd/bigembed@.service", "airflow/bigembed_dags.py", "prefect/bigembed_flows.py"
    )]  # fmt: skip
    assert all("NUMBA_CACHE_DIR" in text and "/var/cache/bigembed/numba" in text for text in places)
    assert "/var/cache/bigembed" in (DEPLOY / "README.md").read_text()


# ----------------------------------------------------------------------------------------- cron


def test_the_crontab():
    crontab = pytest.importorskip("crontab", reason="python-crontab is not installed: pip install -e '.[test]'")
    file = DEPLOY / "cron" / "bigembed.crontab"
    table = crontab.CronTab(tabfile=str(file))
    entries = list(table)
    assert [str(entry.slices) for entry in entries] == ["0 1 * * *", "30 * * * *", "0 2 * * *"]
    assert all(entry.is_valid() for entry in entries)
    assert set(table.env) == {"SHELL", "PATH", "MAILTO", "NUMBA_CACHE_DIR"}
    asked = [parse(words) for entry in entries for words in commands(entry.command)]
    assert len(asked) == 4
    assert (asked[0]["store"], asked[0]["ids"], asked[0]["skip_known"]) == (ROWS_OF_JOB, "id", True)
    for entry in entries:
        assert "%" not in entry.command  # (cron takes it for the end of the line)
    known = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    assert len(known) == len(entries) + len(table.env)


def test_shell_code_of_the_crontab(tmp_path):
    lines = [line for line in (DEPLOY / "cron" / "bigembed.crontab").read_text().splitlines() if "bigembed " in line]
    codes = [line.split(maxsplit=5)[5] for line in lines if not line.startswith("#")]
    (tmp_path / "lines.sh").write_text("\n".join(["#!/bin/sh", *codes, ""]))
    done = run([command("shellcheck"), "--exclude=SC2181", "lines.sh"], tmp_path)  # SC2181: $? is asked for 7
    assert done.returncode == 0, done.stdout
