#!/usr/bin/env bash
# usage: VENV=path/to/venv run.sh SCRIPT.py [ARG ...]
# Run a script under the stub of CUDA that `oomscope dry-run` has, building it first if need be.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
builder="$here/../../python/oomscope/_stub.py"
python="${VENV:?set VENV to a virtual environment that holds torch}/bin/python"
version=$("$python" -c 'import importlib.metadata as m; print(m.version("torch").split("+")[0])')
build="${STUBCUDA_BUILD:-${TMPDIR:-/tmp}/stubcuda}/$version"
newest=$(ls -t "$here"/../../stub/*.c "$builder" | head -1)
mkdir -p "$build"
exec 9>"$build/lock"
flock 9 # several that start at once build it once
[ -f "$build/libcuda.so.1" ] && [ ! -L "$build/libcuda.so.1" ] && [ "$build/libcuda.so.1" -nt "$newest" ] || "$python" "$builder" "$build" >&2
exec 9>&-
export PYTHONDONTWRITEBYTECODE=1
LD_PRELOAD="$build/libcuda.so.1" LD_LIBRARY_PATH="$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$python" "$@"
