#!/usr/bin/env bash
# Checks snapshots: annotations in the log, a table in the step summary, SARIF for code scanning.
# In: OOMSCOPE (the program), SNAPSHOTS (a path on each line), LIMITS (options), RUNNER_TEMP, GITHUB_OUTPUT,
# GITHUB_STEP_SUMMARY.
set -euo pipefail
# Words and lines, never code: nothing in them is expanded.
set -o noglob
read -ra flags <<<"$(tr '\n' ' ' <<<"$LIMITS")"
paths=()
while IFS= read -r line; do
  [ -z "$line" ] || paths+=("$line")
done <<<"$SNAPSHOTS"
sarif=$RUNNER_TEMP/oomscope.sarif summary=$RUNNER_TEMP/oomscope.md
rm -f "$sarif" "$summary"
code=0
"$OOMSCOPE" check --format github --also "sarif=$sarif" --also "markdown=$summary" \
  ${flags[@]+"${flags[@]}"} -- "${paths[@]}" || code=$?
[ ! -s "$sarif" ] || echo "sarif-file=$sarif" >>"$GITHUB_OUTPUT"
[ ! -s "$summary" ] || cat "$summary" >>"$GITHUB_STEP_SUMMARY"
if [ "$code" = 0 ] && [ ! -s "$sarif" ]; then
  echo "::error::nothing was checked: remove what is no limit from the input limits"
  code=2
fi
exit "$code"
