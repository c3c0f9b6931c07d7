#!/bin/sh
# Installs the Debian packages that the tests use, if their programs are missing.
set -eu
missing=""
command -v valgrind >/dev/null || missing="$missing valgrind"
command -v g++ >/dev/null || missing="$missing g++"
command -v ninja >/dev/null || missing="$missing ninja-build" # what torch builds C++ extensions with
command -v git >/dev/null || missing="$missing git"
command -v chromium >/dev/null || missing="$missing chromium"
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "The tests need:$missing. There is no apt-get here: install them in your system's way, then run make again." >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "The tests need:$missing. Run: sudo apt-get install$missing (then make again)." >&2
    exit 1
fi
echo "installing$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # a list of words
{ apt-get update -q && apt-get install -q -y --no-install-recommends $missing; } >/dev/null ||
    { echo "apt-get could not install:$missing. The lines above say why." >&2; exit 1; }
