#!/usr/bin/env python3
"""Whether the current model still fits a growing store: ``bigembed audit``, from a script of your own.

python workflows/audit.py JOB.toml; [ $? -ne 7 ] || python workflows/refresh.py JOB.toml
"""

import typer

from bigembed.cli import audit

if __name__ == "__main__":
    typer.run(audit)
