"""The command line with the small method registered, for tests that need a process."""

from bigembed.cli import main
from tests.unit.jobs.small_method import register

if __name__ == "__main__":
    register()
    main()
