# make demo | test | lint | test-slow | test-newest | test-matrix | bench | lab | clean
# Every path here is relative, so that the directory may have a space in its name.

PYTHON ?= python3
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -qq
INSTALLED_FROM := pyproject.toml constraints.txt $(wildcard jupyter-config/*.py)

# Numbers and tests must not depend on what the caller's shell says about threads.
unexport OMP_NUM_THREADS MKL_NUM_THREADS PYTHONPATH

# Two at a time, each its half of the list until one helps the other: no test here asserts a time.
SIDE_BY_SIDE := -n 2 --dist worksteal

.PHONY: demo test test-slow test-newest test-matrix lint bench lab constraints debian clean

demo: .venv/for-demo ## run the quickstart in a real kernel, print its tables, write the html
	@echo "Running examples/01_quickstart.ipynb, cell by cell: about a minute."
	@$(PY) -m torchbench_magic demo

test: debian lint ## lint and every test that is not slow
	$(PY) -m pytest -m "not slow" $(SIDE_BY_SIDE)

test-slow: debian .venv/for-tests ## the tests that take a minute or more (none selected is no failure: exit 5)
	$(PY) -m pytest -m slow $(SIDE_BY_SIDE) || [ $$? -eq 5 ]
	$(MAKE) --no-print-directory test-newest

# With the newest torch: what depends most on torch's own names, in some minutes; the environment (6 GB) is kept.
NEWEST := tests/core/compiler tests/core/timing tests/magics tests/core/profiling/test_profiler.py tests/core/profiling/test_compilations.py tests/core/profiling/test_observer.py tests/core/profiling/joining/test_attribution.py tests/core/profiling/joining/test_call_tree.py tests/core/profiling/test_torch_table.py tests/core/profiling/recording/test_steps.py

test-newest: ## the timing and magics tests and part of the profiling ones, with the newest torch of the registry
	@VERSIONS=newest TESTS="$(NEWEST)" BESIDE="$(SIDE_BY_SIDE)" sh tests/matrix.sh

test-matrix: ## the kernel, line and timing tests on each supported Python at hand and with the newest torch; 5 GB each where torch has no CPU build
	@sh tests/matrix.sh

lint: .venv/for-tests
	$(PY) -m ruff check .
	$(PY) -m mypy

bench: .venv/for-tests ## the numbers this project promises, as tables and as JSON
	$(PY) tests/benchmarks/run.py

lab: .venv/for-demo ## open the examples in JupyterLab
	$(PY) -m jupyterlab --notebook-dir=examples

constraints: .venv/for-tests ## write down what is installed now
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
	@touch $@ .venv/for-demo

clean:
	rm -rf .venv .venv-3.* .venv-newest build dist examples/output tests/browser/shots .mypy_cache .pytest_cache .ruff_cache
