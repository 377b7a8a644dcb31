# make run    installs GradStudio into .venv and opens it
# make test   installs what the tests need, then lints, checks the types, builds the documentation and tests
# make types  checks the types alone, with basedpyright, whose wheel brings all of it
# make test-thorough  runs what make test leaves out: long forms of what a shorter test in it holds too
# make torture  lets a monkey act on the window, opens and closes it, and fuzzes the commands, at length (docs/reliability.md)
# make presets-check  trains what every preset promises, over five seeds, and prints a table of what holds; takes an hour
# make release-check  builds wheel and sdist, installs each into a fresh environment, and opens the window there
# make test-bare  does the same with the wheel alone, without any extra
# make portable builds a folder that runs where no Python is, in build/portable/gradstudio, and uses it once
# make docs     builds the documentation site into build/site; make pictures takes its pictures anew
# make test-under-load  runs the tests ten times beside four busy loops, and says which run failed first; with WORKERS=16
#     the tests get four fifths of the processors' time
# make test-torch VERSION=2.8.0  tests the watch with another torch, in an environment of its own (docs/reliability.md)
# make test-perturbed  runs them with threads that are early or late on purpose, and says in which mode one failed (docs/reliability.md)

SHELL := /bin/bash
PY    := .venv/bin/python
# The stamps bear the sum of what they were made from; a changed file or a moved tree means a new name, so a new install.
KEY   := $(shell { cat pyproject.toml constraints.txt Makefile; pwd; } | cksum | cut -d' ' -f1)
RUN   := .venv/.installed-run-$(KEY)
TEST  := .venv/.installed-test-$(KEY)
PIP   := $(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# One more than there are processors, as tests wait now and then; each takes up to 2.4 GB.
WORKERS := $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$(( n < 4 ? n + 1 : 4 )))

# What `make test` runs of the tests.
GATE := -n $(WORKERS) --dist worksteal -m "not thorough"

.PHONY: run test docs pictures torture presets-check release-check portable test-thorough test-under-load test-perturbed test-torch test-bare types qt

run: $(RUN)
	@$(MAKE) --no-print-directory qt || true
	@$(PY) -m gradstudio

test: $(TEST) qt
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@# the types are checked beside the tests, which wait now and then; the tests are collected once beforehand, or each
	@# worker would compile every module for itself
	$(PY) -m basedpyright & types=$$!; \
	$(PY) -m pytest --collect-only -qq >/dev/null; $(PY) -m pytest -q $(GATE); tests=$$?; \
	wait $$types && exit $$tests

test-thorough: $(TEST) qt
	$(PY) -m pytest -q -n $(WORKERS) --dist worksteal -m thorough

docs: $(TEST)
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

pictures: $(TEST) qt
	@$(PY) docs/take_pictures.py

SEEDS := 1 2 3
ACTIONS := 20000
CYCLES := 100

torture: $(TEST) qt
	@for seed in $(SEEDS); do $(PY) tests/torture/monkey.py --seed $$seed --actions $(ACTIONS) || exit 1; done
	@$(PY) tests/torture/cycles.py --cycles $(CYCLES)
	@GRADSTUDIO_TORTURE=1 $(PY) -m pytest -q tests/torture --ignore tests/torture/test_monkey.py --ignore tests/torture/test_cycles.py
	@GRADSTUDIO_TORTURE=1 $(PY) -m pytest -q tests/session/test_branches.py tests/session/test_snapshots.py tests/engine/test_snapshot.py \
	    tests/core/test_presets.py -k "whatever_a_person_does or over_100_000_steps or random_courses or read_back_equal"

presets-check: $(TEST)
	@$(PY) -m gradstudio presets check all --seeds 5 --markdown

release-check: $(TEST) qt
	@$(PY) tests/release_check.py

test-bare: $(TEST)
	@$(PY) tests/release_check.py bare

portable: $(TEST) qt
	@$(PY) portable/build.py

RUNS := 10
LOOPS := 4

test-under-load: $(TEST) qt
	@loops=(); trap 'kill "$${loops[@]}" 2>/dev/null || true' EXIT; trap 'exit 130' INT TERM HUP; \
	for loop in $$(seq $(LOOPS)); do (while :; do :; done) & loops+=($$!); done; \
	log=$$(mktemp); \
	for run in $$(seq $(RUNS)); do \
	    echo "run $$run of $(RUNS)"; \
	    $(PY) -m pytest -q $(GATE) 2>&1 | tee "$$log"; \
	    if [ "$${PIPESTATUS[0]}" != 0 ]; then \
	        echo "Run $$run of $(RUNS) failed. First in it: $$(grep -m1 -E '^(FAILED|ERROR) ' "$$log")" >&2; rm -f "$$log"; exit 1; \
	    fi; \
	done; rm -f "$$log"

MODES := short ahead behind
TESTS := tests

test-perturbed: $(TEST) qt
	@failed=; for mode in $(MODES); do \
	    echo "threads: $$mode"; \
	    PERTURB=$$mode PYTHONPATH=$(CURDIR)/tests/perturbed $(PY) -m pytest -q -p perturbed_timing $(GATE) $(TESTS) \
	        || failed="$$failed $$mode"; \
	done; \
	if [ -n "$$failed" ]; then echo "Tests failed with threads:$$failed" >&2; exit 1; fi

VERSION := 2.8.0

test-torch: $(TEST)
	@$(PY) tests/other_torch.py $(VERSION)

types: $(TEST)
	$(PY) -m basedpyright

$(RUN): $(PY)
	@echo "Installing GradStudio into .venv (torch is large: minutes the first time)"
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation torch==2.13.0 --editable '.[gui]'
	@rm -f .venv/.installed-run-* && touch $@

$(TEST): $(PY)
	@echo "Installing GradStudio and its tests into .venv (torch is large: minutes the first time)"
	@$(PIP) hatchling editables
	@# pip would compile all of it; what the tests import is compiled beside the check of the types
	@$(PIP) --no-compile --no-build-isolation torch==2.13.0 --editable '.[test]'
	@rm -f .venv/.installed-* && touch $(RUN) $@

# Whether commands can be run as root without asking, and how.
AS_ROOT = if [ "$$(id -u)" = 0 ]; then as_root=; elif sudo -n true 2>/dev/null; then as_root=sudo; else as_root=no; fi; \
	command -v apt-get >/dev/null || as_root=no
APT = { $$as_root apt-get update -qq || true; $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends

# 3.11 to 3.14: what the wheels in constraints.txt are made for.
RIGHT_PYTHON := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))

$(PY):
	@for python in $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14 python; do \
	    command -v $$python >/dev/null && $$python -c '$(RIGHT_PYTHON)' 2>/dev/null && break; python=; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "GradStudio needs Python 3.11 to 3.14, which is not here: install it, or name it with make PYTHON=/path/to/python." >&2; exit 1; \
	fi; \
	if ! $$python -c 'import ensurepip, venv' 2>/dev/null; then \
	    $(AS_ROOT); package=$$($$python -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
	    if [ "$$as_root" = no ] || ! $(APT) $$package >/dev/null; }; then \
	        echo "Python's venv module is missing: install it (on Debian and Ubuntu: apt-get install $$package)." >&2; exit 1; \
	    fi; \
	fi; \
	$$python -m venv --clear .venv

# What PySide6's wheel takes from the system to draw at all and to open a window on X11: library:Debian package.
QT_LIBRARIES := libEGL.so.1:libegl1 libGL.so.1:libgl1 libX11.so.6:libx11-6 libxkbcommon.so.0:libxkbcommon0 \
    libfontconfig.so.1:libfontconfig1 libfreetype.so.6:libfreetype6 libdbus-1.so.3:libdbus-1-3 libglib-2.0.so.0:libglib2.0-0 \
    libzstd.so.1:libzstd1 libz.so.1:zlib1g libxkbcommon-x11.so.0:libxkbcommon-x11-0 libX11-xcb.so.1:libx11-xcb1 libxcb.so.1:libxcb1 \
    libxcb-cursor.so.0:libxcb-cursor0 libxcb-icccm.so.4:libxcb-icccm4 libxcb-image.so.0:libxcb-image0 \
    libxcb-keysyms.so.1:libxcb-keysyms1 libxcb-randr.so.0:libxcb-randr0 libxcb-render.so.0:libxcb-render0 \
    libxcb-render-util.so.0:libxcb-render-util0 libxcb-shape.so.0:libxcb-shape0 libxcb-shm.so.0:libxcb-shm0 \
    libxcb-sync.so.1:libxcb-sync1 libxcb-util.so.1:libxcb-util1 libxcb-xfixes.so.0:libxcb-xfixes0 libxcb-xkb.so.1:libxcb-xkb1

define FIND_MISSING
import ctypes, sys
for library, _, package in (pair.partition(":") for pair in sys.argv[1:] if sys.platform == "linux"):
    try:
        ctypes.CDLL(library)
    except OSError:
        print(package)
endef
export FIND_MISSING

qt: $(PY)
	@missing=$$($(PY) -c "$$FIND_MISSING" $(QT_LIBRARIES) | paste -sd ' ' -); \
	if [ -n "$$missing" ]; then \
	    $(AS_ROOT); \
	    if [ "$$as_root" != no ]; then \
	        echo "Installing the system libraries that Qt needs: $$missing"; \
	        $(APT) $$missing >/dev/null; } && exit 0; \
	    fi; \
	    echo "Qt needs system libraries that are not here; install them (on Debian and Ubuntu: sudo apt-get install $$missing)." >&2; exit 1; \
	fi
