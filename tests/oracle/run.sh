#!/usr/bin/env bash
# usage: VENV=path/to/venv run.sh SCRIPT.py [ARG ...]
# Run a script under the stub CUDA library, building it first if need be.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python="${VENV:?set VENV to a virtual environment that holds torch}/bin/python"
version=$("$python" -c 'import importlib.metadata as m; print(m.version("torch").split("+")[0])')
build="${STUBCUDA_BUILD:-${TMPDIR:-/tmp}/stubcuda}/$version"
[ -e "$build/libstubcuda.so" ] && [ "$build/libstubcuda.so" -nt "$here/stubcuda.c" ] || "$python" "$here/build.py" "$build" >&2
export PYTHONDONTWRITEBYTECODE=1
LD_PRELOAD="$build/libstubcuda.so" LD_LIBRARY_PATH="$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$python" "$@"
