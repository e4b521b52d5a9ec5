#!/usr/bin/env bash
# Installs oomscope from PyPI beside the environment of the job, not in it.
# In: GITHUB_ACTION_PATH, RUNNER_TEMP, VERSION (may be empty), SHA256 (hashes of the wheels, may be empty).
set -euo pipefail
own=$(sed -n 's/^version = "\(.*\)"/\1/p' "$GITHUB_ACTION_PATH/Cargo.toml" | head -n 1)
python=$(command -v python3 || command -v python)
version=${VERSION:-$own}
read -r -d '' -a hashes <<<"${SHA256:-}" || true
# Each becomes a part of one line of a requirements file.
for text in "$version" ${hashes[@]+"${hashes[@]}"}; do
  [[ $text =~ ^[0-9A-Za-z.+!]+$ ]] || { echo "::error::$(printf %q "$text") is no version or SHA-256"; exit 1; }
done
requirement="oomscope==$version"
options=()
for hash in ${hashes[@]+"${hashes[@]}"}; do
  requirement+=" --hash=sha256:$hash"
  options=(--require-hashes)
done
printf '%s\n' "$requirement" >"$RUNNER_TEMP/oomscope-requirement.txt"
# -I: neither the checkout nor PYTHONPATH may replace a module of pip.
"$python" -I -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
  ${options[@]+"${options[@]}"} --target "$RUNNER_TEMP/oomscope" --requirement "$RUNNER_TEMP/oomscope-requirement.txt"
