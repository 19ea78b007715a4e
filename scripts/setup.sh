# Sourced by the scripts beside it: makes the environment, or finds it as it should be.
# Sets `root` (the repository) and `bin` (the environment's commands). Speaks on stderr, since
# stdout belongs to the report.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
bin="$root/.venv/bin"
stamp="$root/.venv/gradscope-setup"
log="$root/.venv/gradscope-setup.log"
python=${PYTHON:-python3}

# What the environment was made for: this place, since its commands know their own path, and these
# lists of packages.
setup_key() {
    printf '%s\n' "$root"
    cat "$root/pyproject.toml" "$root/scripts/constraints.txt" | cksum
}

set_up() {
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        echo "gradscope needs Python 3.11 or later; say which with PYTHON=/path/to/python" >&2
        exit 2
    fi
    echo "setting up $root/.venv (torch and the development tools; minutes the first time)" >&2
    if [[ ! -x "$bin/python" || "$(head -n 1 "$stamp" 2>/dev/null)" != "$root" ]]; then
        "$python" -m venv --clear "$root/.venv"
    fi
    if ! "$bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint "$root/scripts/constraints.txt" --editable "$root[dev]" >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "setting up failed; the whole log is $log" >&2
        exit 2
    fi
    setup_key >"$stamp"
}

if [[ ! -x "$bin/gradscope" || "$(cat "$stamp" 2>/dev/null)" != "$(setup_key)" ]]; then
    set_up
fi
