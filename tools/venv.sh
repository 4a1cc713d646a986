#!/bin/sh
# Create a virtual environment from a lock file: tools/venv.sh DIRECTORY LOCK [--editable]
#
# Needs a Python 3.11 or newer with venv and ensurepip, and a network. Everything is installed by
# hash; --editable adds this package itself, linked to the source tree. PYTHON=... picks the
# interpreter, otherwise the first suitable one on PATH is taken.
set -eu

directory=$1
lock=$2
mode=${3:-}
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
bootstrap=$root/requirements/bootstrap.txt

say() { printf '%s: %s\n' "$directory" "$*" >&2; }

# 0: usable; 1: not there or does not run; 2: too old; 3: no venv or ensurepip.
judge() {
    command -v "$1" >/dev/null 2>&1 || return 1
    "$1" -c 'import sys; raise SystemExit(0 if sys.version_info >= (3, 11) else 2)' \
        2>/dev/null || { [ $? -eq 2 ] && return 2; return 1; }
    "$1" -c 'import ensurepip, venv' 2>/dev/null || return 3
}

find_python() {
    found=
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        if judge "$candidate"; then
            printf '%s\n' "$candidate"
            return
        else
            case $? in
            2) found="$found
  $candidate is $("$candidate" -V 2>&1 || true), too old" ;;
            3) found="$found
  $candidate has no venv and ensurepip (Debian, Ubuntu: apt install $("$candidate" -c \
                'import sys; print("python%d.%d-venv" % sys.version_info[:2])'))" ;;
            esac
        fi
    done
    say "no usable Python 3.11 or newer. Looked at:${found:-
  ${PYTHON:-python3, python3.11 to python3.14, python}: not found}
Install one, or name it: make PYTHON=/path/to/python3.12 ..."
    return 1
}

# An environment whose interpreter has gone (an upgraded system Python) is made anew.
if ! "$directory/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    say "creating it with $("$python" -V 2>&1)"
    "$python" -m venv --clear "$directory"
fi

pip() {
    "$directory/bin/python" -m pip --disable-pip-version-check --quiet "$@" || {
        code=$?
        say "pip failed (see above). Is there a network, and may pip reach its package index?"
        exit "$code"
    }
}

say "installing $(grep -c '^[a-z].*==' "$lock") locked packages from $(basename "$lock")" \
    "(minutes the first time)"
pip install --require-hashes -r "$bootstrap"
pip install --require-hashes --build-constraint "$bootstrap" -r "$lock"
if [ "$mode" = --editable ]; then
    pip install --no-deps --no-build-isolation --editable "$root"
fi
say "ready"
