#!/bin/sh
# make test-matrix: the kernel, line and timing tests on every supported Python that is at hand, and with the newest
# torch, with the built wheel installed as a user installs it.
# VERSIONS="3.13" takes only some of them. "3.13" has the torch of constraints.txt, "3.13+2.14.1" that version, "newest"
# the newest torch that the registry has, on the newest Python at hand, and "oldest" the lowest version of all that
# pyproject.toml requires, on the oldest Python.
# What follows `--` in TESTS= are arguments of pytest.
# An environment for each lies in .venv-3.x, .venv-3.x+y or .venv-newest. Pythons are looked for in PATH and among those
# of pyenv.
set -u
cd "$(dirname "$0")/.."

PYTHONS="3.11 3.12 3.13 3.14"
VERSIONS=${VERSIONS:-"$PYTHONS newest 3.12+2.11.0 oldest"}
TESTS=${TESTS:-"tests/profiling tests/insights tests/timing tests/process/test_code.py tests/notebook tests/kernel"}
# how many at a time: arguments of pytest-xdist
BESIDE=${BESIDE:-}
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

# The newest interpreter at hand.
newest_python() {
    newest=
    for one in $PYTHONS; do
        last=
        found=$(python_of "$one")
        [ -n "$found" ] && newest=$found
    done
    echo "$newest"
}

# What pyproject.toml requires, each at its lowest version.
lowest() {
    sed -n '/^dependencies = \[/,/^\]/s/^ *"\(.*\)>=\(.*\)",.*/\1==\2/p' pyproject.toml
}

# The constraints for a torch other than theirs ($torch, "newest" or a version): what it needs is its own choice.
constraints_for() {
    needed="torch triton sympy mpmath networkx fsspec filelock setuptools numpy"
    [ "$version" != oldest ] || needed="$needed $(lowest | sed 's/==.*//')"
    grep -v -i -E "^($(echo $needed | tr ' ' '|'))==" constraints.txt
    case $version in
    oldest) lowest ;;
    newest) ;;
    *) echo "torch==$torch" ;;
    esac
}

# Build this tree's wheel and install it into $venv, which is made if need be; what it depends on only once.
install_wheel() {
    [ -d "$venv" ] || "$python" -m venv "$venv" || return
    pip() { "$venv/bin/python" -m pip --disable-pip-version-check -qq "$@"; }
    rm -rf "$venv/dist"
    pip wheel --no-deps --wheel-dir "$venv/dist" . || return
    set -- "$venv"/dist/*.whl
    if [ ! -e "$venv/made" ] || [ pyproject.toml -nt "$venv/made" ] || [ constraints.txt -nt "$venv/made" ]; then
        constraints=constraints.txt
        if [ -n "$torch" ]; then
            constraints=$venv/constraints.txt
            constraints_for >"$constraints"
        fi
        pip install --upgrade -c "$constraints" "$1[test-slow]" ${torch:+torch} && touch "$venv/made" || return
    fi
    pip install --no-deps --force-reinstall "$1"
}

missing= failed= passed=
for version in $VERSIONS; do
    last= torch=
    case $version in
    newest) torch=newest python=$(newest_python) ;;
    oldest) torch=oldest python=$(python_of "${PYTHONS%% *}") ;;
    *+*) torch=${version#*+} python=$(python_of "${version%%+*}") ;;
    *) python=$(python_of "$version") ;;
    esac
    if [ -z "$python" ]; then
        missing="$missing $version"
        continue
    fi
    venv=.venv-$version
    began=$(date +%s)
    install_wheel || {
        failed="$failed $version(install)"
        continue
    }
    said=$("$venv/bin/python" -c 'import platform, torch; print(platform.python_version() + ", torch", torch.__version__)')
    echo "== $version: Python $said ($python), installed after $(($(date +%s) - began)) s"
    # -P: the installed package is tested, not the folder here
    # shellcheck disable=SC2086  # TESTS and BESIDE are lists
    if "$venv/bin/python" -P -m pytest -q -m "(kernel or not slow) and not browser and not terminal and not valgrind" $BESIDE $TESTS; then
        passed="$passed $version"
    else
        failed="$failed $version"
    fi
    echo "== $version: $(($(date +%s) - began)) s"
done

echo "passed:${passed:- none}"
[ -z "$missing" ] || echo "not at hand:$missing (pyenv install$missing)"
[ -z "$failed" ] || echo "failed:$failed"
[ -z "$failed" ] && [ -n "$passed" ]
