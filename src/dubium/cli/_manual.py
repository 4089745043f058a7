"""What `dubium --help` says besides the list of commands."""

HELP = """Which pixels make a Bayesian neural network unsure, and what can be done about it?

A posterior is a collection of networks: a deep ensemble, MC dropout, Laplace, SWAG, and others. dubium says how unsure
it is about each image, splits the doubt into aleatoric (the image is ambiguous) and epistemic (the networks disagree),
and draws which pixels raise it.
"""

EPILOG = """**Examples**

- `dubium demo` — what it looks like, on embedded digits

- `dubium train --dataset mnist --out runs/mnist` — train an ensemble

- `dubium explain runs/mnist --dataset mnist:test --top 100 --out doubts` — the 100 most doubtful images, on a page

- `dubium explain --posterior mine:network --weights a.pt b.pt --images photos/ --out doubts` — networks of your own

- `dubium serve doubts` — explore them in the browser

**Files** — `OUT/results/*.parquet` are tables for pandas, polars and DuckDB; `OUT/index.html` is a page that needs
nothing else; `OUT/run.json` says what made them.

**Environment** — `DUBIUM_DATA`: folders of datasets, separated as in PATH. `DUBIUM_MODELS`: a folder of named
posteriors.

**Exit codes** — 0: done. 1: done, but some files could not be read and were skipped. 2: a mistake that you can fix;
the message says how. 3: a mistake of dubium's own. 130: stopped by Ctrl-C; the same command goes on.

**Completion** — `dubium --install-completion` sets it up for your shell.
"""
