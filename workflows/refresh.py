#!/usr/bin/env python3
"""Fit all rows of a growing store: ``bigembed refresh``, from a script of your own.

python workflows/refresh.py JOB.toml --scheduler tls://host:8786 --deadline 06:30
"""

import typer

from bigembed.cli import refresh

if __name__ == "__main__":
    typer.run(refresh)
