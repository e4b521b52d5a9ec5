#!/usr/bin/env bash
# usage: [SEEDS=A:B] [OUT=DIR] check.sh OOMSCOPE VENV...
# In one go: see that the stub leaves the host's memory alone, record runs of every kind on the real
# allocator of each VENV's torch, replay them through the model with OOMSCOPE, and compare. OUT keeps the
# recordings; without it they are thrown away.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
oomscope=${1:?the oomscope program} && shift
if [ -z "${OUT:-}" ]; then
  OUT=$(mktemp -d) && trap 'rm -rf "$OUT"' EXIT
fi
for venv in "$@"; do
  VENV=$venv "$here/run.sh" "$here/roundtrip.py"
done
python3 "$here/fuzz_matrix.py" --out "$OUT" --seeds "${SEEDS:-1:2}" "$@"
python3 "$here/compare.py" "$oomscope" "$OUT"
