#!/usr/bin/env python3
"""One graph, many embeddings: ``bigembed sweep``, from a script of your own.

python workflows/sweep.py workflows/sweep.toml
"""

import typer

from bigembed.cli import sweep

if __name__ == "__main__":
    typer.run(sweep)
