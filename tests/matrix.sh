#!/bin/sh
# make test-matrix: the kernel, line and timing tests on every supported Python that is at hand, with the built wheel
# installed as a user installs it.
# VERSIONS="3.13" takes only some of them; what follows `--` in TESTS= are arguments of pytest.
# An environment for each lies in .venv-3.x. Pythons are looked for in PATH and among those of pyenv.
set -u
cd "$(dirname "$0")/.."

VERSIONS=${VERSIONS:-"3.11 3.12 3.13"}
TESTS=${TESTS:-"tests/core/profiling tests/core/timing tests/core/test_body.py tests/magics tests/kernel"}
unset PYTHONPATH OMP_NUM_THREADS MKL_NUM_THREADS

# The interpreter of a version, or nothing.
python_of() {
    if command -v "python$1" >/dev/null && "python$1" -c '' 2>/dev/null; then
        command -v "python$1"
        return
    fi
    for root in "${PYENV_ROOT:-$HOME/.pyenv}"; do
        for found in "$root/versions/$1".*/bin/python; do
            [ -x "$found" ] && last=$found
        done
        [ -n "${last:-}" ] && echo "$last"
    done
    return 0
}

# Build this tree's wheel and install it into $venv, which is made if need be; what it depends on only once.
install_wheel() {
    [ -d "$venv" ] || "$python" -m venv "$venv" || return
    pip() { "$venv/bin/python" -m pip --disable-pip-version-check -qq "$@"; }
    rm -rf "$venv/dist"
    pip wheel --no-deps --wheel-dir "$venv/dist" . || return
    set -- "$venv"/dist/*.whl
    if [ ! -e "$venv/made" ] || [ pyproject.toml -nt "$venv/made" ] || [ constraints.txt -nt "$venv/made" ]; then
        pip install -c constraints.txt "$1[test]" && touch "$venv/made" || return
    fi
    pip install --no-deps --force-reinstall "$1"
}

missing= failed= passed=
for version in $VERSIONS; do
    last=
    python=$(python_of "$version")
    if [ -z "$python" ]; then
        missing="$missing $version"
        continue
    fi
    venv=.venv-$version
    echo "== Python $version: $python"
    install_wheel || {
        failed="$failed $version(install)"
        continue
    }
    # -P: the installed package is tested, not the folder here
    # shellcheck disable=SC2086  # TESTS is a list
    if "$venv/bin/python" -P -m pytest -q -m "not slow and not browser and not terminal and not valgrind" $TESTS; then
        passed="$passed $version"
    else
        failed="$failed $version"
    fi
done

echo "passed:${passed:- none}"
[ -z "$missing" ] || echo "not at hand:$missing (pyenv install$missing)"
[ -z "$failed" ] || echo "failed:$failed"
[ -z "$failed" ] && [ -n "$passed" ]
