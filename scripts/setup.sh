# Sourced by the scripts beside it: makes the environment, or finds it as it should be.
# Sets `root` (the repository) and `bin` (the environment's commands). Speaks on stderr, since
# stdout belongs to the report.
set -euo pipefail
unset PYTHONDONTWRITEBYTECODE  # each of the many processes that we start would compile us anew

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

# Where there is no GPU, the build of torch for it, if pip's own sources have that.
torch_without_cuda() {
    [[ "$(uname -s)" == Linux && ! -e /dev/nvidiactl && ! -e /dev/kfd ]] || return 0
    local build
    build=$(sed -n 's/^\(torch==[0-9.]*\)$/\1+cpu/p' "$root/scripts/constraints.txt")
    if "$bin/python" -m pip install --quiet --disable-pip-version-check --dry-run --no-deps \
        "$build" >/dev/null 2>&1; then
        echo "$build"
    fi
}

# What pip is at, with the size of what it fetches, every few seconds, as long as this shell lives:
# Ctrl-C does not reach what it runs beside it.
tell_of_pip() {
    local line
    while sleep 5 >/dev/null 2>&1 && kill -0 "$$" 2>/dev/null; do
        line=$(grep -sE '^ *(Collecting|Downloading|Installing|Building)' "$log" | tail -n 1 | cut -c 1-100) || true
        echo "  ${SECONDS} s: ${line:-pip looks for packages}" >&2
    done
}

set_up() {
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        echo "gradscope needs Python 3.11 or later; say which with PYTHON=/path/to/python" >&2
        exit 2
    fi
    echo "setting up $root/.venv (torch, 0.2 GB or with CUDA 5, and the tools; minutes the first time)" >&2
    tell_of_pip &
    local teller=$! failed=0
    if [[ ! -x "$bin/python" || "$(head -n 1 "$stamp" 2>/dev/null)" != "$root" ]]; then
        "$python" -m venv --clear "$root/.venv"
    fi
    : >"$log"
    # shellcheck disable=SC2046  # a word, or none
    "$bin/python" -m pip install --disable-pip-version-check --progress-bar off $(torch_without_cuda) \
        --constraint "$root/scripts/constraints.txt" --editable "$root[dev]" >"$log" 2>&1 || failed=1
    kill "$teller" 2>/dev/null || true
    wait "$teller" 2>/dev/null || true
    if ((failed)); then
        tail -n 20 "$log" >&2
        echo "setting up failed; the whole log is $log" >&2
        exit 2
    fi
    setup_key >"$stamp"
}

if [[ ! -x "$bin/gradscope" || "$(cat "$stamp" 2>/dev/null)" != "$(setup_key)" ]]; then
    set_up
fi
