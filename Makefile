# make demo | test | lint | test-slow | soak | test-newest | test-matrix | bench | lab | notebooks | dist | clean
# Every path here is relative, so that the directory may have a space in its name.

PYTHON ?= python3
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -qq
INSTALLED_FROM := pyproject.toml constraints.txt $(wildcard jupyter-config/*.py)

# Numbers and tests must not depend on what the caller's shell says about threads; what is imported is compiled once.
unexport OMP_NUM_THREADS MKL_NUM_THREADS PYTHONPATH PYTHONDONTWRITEBYTECODE

# Three files at a time, in another order each time (its seed is printed): no test asserts a time or shares a place.
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: demo test rewritten test-slow soak test-newest test-matrix lint bench lab notebooks dist constraints debian clean

demo: .venv/for-demo ## run the quickstart in a session of its own, print its tables, write the html
	@echo "Running examples/01_quickstart.ipynb, cell by cell: about a minute."
	@$(PY) -m torchbench_magic demo

test: debian .venv/for-tests ## lint, all that is determined, and one of each real component; five minutes
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint rewritten
	$(PY) -m pytest -m "not slow" $(SIDE_BY_SIDE)

# What pytest makes of the tests' assertions takes half a minute where none of it is kept: not once for each worker.
rewritten: .venv/for-tests
	@$(PY) -m pytest --collect-only -q -p no:randomly > .venv/collected.txt || { cat .venv/collected.txt; exit 1; }

test-slow: debian .venv/for-slow-tests ## the rest: with a real kernel, browser, compiler, valgrind or cluster
	$(PY) -m pytest -m slow $(SIDE_BY_SIDE)

# make soak N=5 TIER=slow; MORE=1 adds to the runs that the file has; BUSY=0 without other load, PAUSES=1 stops the processes of the tests where they read a clock
N ?= 20
TIER ?= fast
BUSY ?= 2
soak: debian .venv/for-slow-tests ## the tests N times in random order beside busy processes, each failure with its seed
	$(PY) tests/soak.py -n $(N) --tier $(TIER) --busy $(BUSY) $(if $(PAUSES),--pauses) $(if $(MORE),--more) \
		--out tests/benchmarks/results/soak_$(TIER).json

# With the newest torch: what depends most on torch's own names, in some minutes; the environment (6 GB) is kept.
NEWEST := tests/process/test_compile_watch.py tests/timing tests/notebook tests/profiling/test_run.py tests/profiling/test_compiling.py tests/profiling/test_recorder.py tests/profiling/test_attribution.py tests/profiling/test_call_tree.py tests/profiling/test_torch_table.py tests/profiling/test_steps.py

test-newest: ## the timing and magics tests and part of the profiling ones, with the newest torch of the registry
	@VERSIONS=newest TESTS="$(NEWEST)" BESIDE="$(SIDE_BY_SIDE)" sh tests/matrix.sh

test-matrix: ## the kernel, line and timing tests on each supported Python at hand and with the newest torch; 5 GB each where torch has no CPU build
	@sh tests/matrix.sh

lint: .venv/for-tests
	$(PY) -m ruff check .
	$(PY) -m mypy

bench: .venv/for-slow-tests ## the numbers this project promises, as tables and as JSON
	$(PY) tests/benchmarks/run.py

lab: .venv/for-demo ## open the examples in JupyterLab
	$(PY) -m jupyterlab --notebook-dir=examples

# make notebooks ONLY=07
notebooks: debian .venv/for-slow-tests ## run the examples one after the other and store their outputs in the files; on an idle machine
	$(PY) docs/notebooks.py $(ONLY)

dist: .venv/for-slow-tests ## build what is released into dist/, check it, and run the demo from the wheel in a new environment
	rm -rf dist
	$(PY) -m build --no-isolation
	$(PY) -m twine check --strict dist/*
	$(PY) tests/packaging/from_the_wheel.py dist

constraints: .venv/for-slow-tests ## write down what is installed now
	$(PIP) install -c constraints.txt -e ".[cluster]"
	$(PY) -m pip freeze --exclude-editable | sed 's/+cpu$$//' > constraints.txt

debian: ## Debian's packages that the tests need
	@sh tests/debian-packages.sh

.venv/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + ": make PYTHON=python3.11 ...")'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python has no ensurepip: apt-get install python3-venv"; exit 1; }
	@echo "Setting up .venv with $$($(PYTHON) --version)."
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/for-demo: .venv/made $(INSTALLED_FROM)
	@$(PY) install.py ".[lab]"
	@touch $@

.venv/for-tests: .venv/made $(INSTALLED_FROM)
	@$(PY) install.py ".[test]"
	@touch $@

.venv/for-slow-tests: .venv/made $(INSTALLED_FROM)
	@$(PY) install.py ".[test-slow]"
	@touch $@ .venv/for-tests .venv/for-demo

clean:
	rm -rf .venv .venv-3.* .venv-newest build dist examples/output tests/browser/shots .mypy_cache .pytest_cache .ruff_cache
