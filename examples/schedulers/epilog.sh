#!/bin/sh
# TaskEpilog of Slurm: a report on each failed request of the job. It always exits with 0, because Slurm takes a node with
# a failed epilog out of use.
directory=${OOMS:-$SLURM_SUBMIT_DIR/ooms}/$SLURM_JOB_ID
if [ -n "$(find "$directory" -name '*.pickle.gz' 2>/dev/null | head -n 1)" ]; then
  oomscope analyze --format markdown --output "$directory/report.md" "$directory" || true
fi
exit 0
