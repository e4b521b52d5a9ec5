#!/usr/bin/env bash
# usage: VENV=path/to/venv run.sh SCRIPT.py [ARG ...]
# Run a script under the stub of CUDA that `oomscope dry-run` has, building it first if need be.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python="${VENV:?set VENV to a virtual environment that holds torch}/bin/python"
export PYTHONDONTWRITEBYTECODE=1
build=$(cd "$here/../../python/oomscope" && "$python" -c '
import importlib.util, _stub
print(_stub.prepare(importlib.util.find_spec("torch").submodule_search_locations[0], "../../stub"))')
LD_PRELOAD="$build/libcuda.so.1" LD_LIBRARY_PATH="$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$python" "$@"
