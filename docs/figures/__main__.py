"""Every figure of the sources that a method of ours draws, with its numbers: pictures beside this file, and figures.md.

python docs/figures --mnist FOLDER  # all of them, some minutes; without the files of MNIST one less
python docs/figures seed003         # only those of one source: the page is left as it is
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import seed000
import seed001
import seed002
import seed003
import seed004
from book import Book

from bigembed.errors import BigembedWarning

SOURCES = {module.__name__: module for module in (seed000, seed001, seed002, seed003, seed004)}
HEAD = """# Figures of the sources

Every figure of the [sources](sources.md) that a method of bigembed draws, redrawn by one command, with its numbers
beside those of the source. Where something that a source says is not seen, the page says so, with the counterexample.

```{code-block} text
:class: not-run

python docs/figures --mnist FOLDER
```

Points are drawn anew (the sources do not give theirs), so numbers that depend on them agree in size only. Ranks are
compared by Spearman's correlation ρ, without its sign. Not here: figure 10 of seed 000, whose picture does not come
with the project (`be.datasets.rotated` takes one of yours), and figures 2 and 3 of seed 004, which `benchmarks/paper`
draws from data of yours.
"""


def main() -> None:
    """Draw the figures of the sources that are named; of all of them where none is, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="SOURCE")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the pictures")
    parser.add_argument("--mnist", type=Path, metavar="FOLDER", help="the files of MNIST (seed 000, figure 5)")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", BigembedWarning)  # (what is doubtful is what the sources chose)
    book = Book(given.out, given.mnist)
    for name in given.names or SOURCES:
        SOURCES[name].draw(book)
    if not given.names:
        book.write(HEAD)


if __name__ == "__main__":
    main()
