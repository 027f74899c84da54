#!/usr/bin/env python3
"""Place the rows appended to a growing store since the last call: ``bigembed extend``, from a script of your own.

python workflows/extend.py JOB.toml --scheduler tls://host:8786
"""

import typer

from bigembed.cli import extend

if __name__ == "__main__":
    typer.run(extend)
