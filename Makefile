# `make demo` and `make test` are all a fresh machine needs (Python 3.11+ and make); see README.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint types unit browser check bench zoo docs fuzz soak audit clean

demo: $(VENV)/.installed
	$(BIN)/dubium demo

test: lint types unit

lint: $(VENV)/.installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.installed-test
	$(BIN)/mypy

unit: $(VENV)/.installed-test browser
	# a thread a worker: threads that wait for each other on busy cores are many times slower
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile

# The longer part: slow tests, and those that need other libraries (torch-uncertainty, bayesian-torch, probly, ...).
check: $(VENV)/.installed-check
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/pytest -n 2 --dist loadfile -m 'slow or libraries'

# The explorer is tested in a browser: the one that is here, or one that can be installed; otherwise the test is skipped.
browser: $(VENV)/.installed-test
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	|| { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	     && (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium) >/dev/null 2>&1; } \
	|| timeout 120 $(BIN)/playwright install chromium >/dev/null 2>&1 \
	|| echo "make: there is no Chromium, and none can be installed: the test of the explorer in a browser is skipped."

# Time and memory, the targets, and docs/performance.md; goes on where it stopped (see benchmarks/suite/__main__.py).
# pip picks the torchvision that grad-cam needs by the torch that is there; without grad-cam the suite says so and goes on.
bench: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[bench]' \
	|| $(BIN)/pip install --quiet --disable-pip-version-check -e '.[captum]'
	$(BIN)/python -m benchmarks.suite $(BENCH)

# Networks of timm, torchvision, transformers and by hand, and docs/networks.md; goes on where it stopped.
zoo: $(VENV)/.installed-test
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[zoo]'
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m tests.zoo $(ZOO)

# Ten thousand damaged files of each reader, and their section of docs/trust.md; goes on where it stopped.
fuzz: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz $(FUZZ)

# Kills, full disks, vanishing files, two runs at once, thousands of calls: counted into docs/trust.md; goes on where it
# stopped. SOAK names parts: make soak SOAK=kill:train.
soak: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.soak $(SOAK)

# Installed files against their packages' checksums, and known vulnerabilities where they can be asked for (DUBIUM_OSV).
audit: $(VENV)/.installed-test
	$(BIN)/python -m tests.audit

# The site, from docs/ into site/; a broken link or name is an error. Open site/index.html; to search in it, serve it:
# .venv/bin/python -m http.server -d site
docs: $(VENV)/.installed-docs
	PYTHONPATH=. $(BIN)/zensical build --clean --strict

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.installed-test: $(BIN)/python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-check: $(VENV)/.installed-test
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test,test-adapters]'
	touch $@

$(VENV)/.installed-docs: $(BIN)/python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .cache site dubium-demo
