"""What one does in this repository, each in an environment of its own: nox -s tests, lint, docs, release, ci."""

import nox

nox.options.sessions = ["lint", "tests"]
TESTED = ("-c", "constraints/tested.txt")
PYTHONS = nox.project.python_versions(nox.project.load_toml("pyproject.toml"))


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests in each Python that is here (``nox -s tests-3.13``: in one); what follows ``--`` goes to pytest."""
    session.install(*TESTED, "-e", ".[test]")
    session.run("pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, the floors of the package, and spelling."""
    session.install(*TESTED, "-e", ".[dev]")
    session.run("ruff", "check", ".")
    session.run("mypy")
    session.run("lint-imports")
    session.run("codespell", "README.md", "docs", "bigembed")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the pages into build/docs; a warning is an error."""
    session.install(*TESTED, "-e", ".[docs]")
    session.run("sphinx-build", "-W", "-n", "--keep-going", "docs", "build/docs")


@nox.session(venv_backend="none")
def release(session: nox.Session) -> None:
    """Build the packages into dist/, check them, and make maps with the wheel alone in each Python."""
    session.run("bash", ".ci/release", external=True)


@nox.session(venv_backend="none")
def ci(session: nox.Session) -> None:
    """Run everything that a change has to pass."""
    session.run("bash", ".ci/run", external=True)
