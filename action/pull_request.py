"""Dry runs of a command at the base of a pull request and at its head; one table of what changed.

In, from the environment: OOMSCOPE (the program), RUN (the command), GPUS (a name on each line; the first is checked
against the limits), FIT (such as BATCH=4,8, may be empty), LIMITS (options of `oomscope check`), and GITHUB_EVENT_PATH,
GITHUB_OUTPUT, GITHUB_STEP_SUMMARY, GITHUB_WORKSPACE and RUNNER_TEMP of the runner.
Out: the step summary, its text as `comment-file`, annotations in the log, and the exit code of the check of the head.

The command is a stranger's and runs as the same user, so it could read a secret of this process. There is none: the
comment is written by another step (comment.py), when all processes of the command have ended.

Run as `python -I`, so that no module of the checkout is imported. Names in the table come from strangers: each
character that Markdown could interpret is an entity, within <code>, where GitHub notifies nobody.
"""

import ctypes
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

MARK = "<!-- oomscope: GPU memory -->"
ENV = dict(os.environ)
# <sys/prctl.h>: orphans below this process become its children.
PR_SET_CHILD_SUBREAPER = 36
TEMP = Path(ENV["RUNNER_TEMP"], "oomscope-pull-request")
VERDICTS = {"may-fit", "did-not-finish", "no-verdict"}


def code(text):
    return "<code>" + re.sub(r"[^A-Za-z0-9 /_.,:+>=-]", lambda c: "&#%d;" % ord(c.group()), text) + "</code>"


def size(count):
    units = ["B", "KiB", "MiB", "GiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return ("%d %s" if units[0] == "B" else "%.2f %s") % (count, units[0])


def oomscope(directory, *args, **options):
    """Runs the program in `directory`. Its messages and the command's output go to the log."""
    return subprocess.run(
        [ENV["OOMSCOPE"], *args], cwd=str(directory), stdout=subprocess.PIPE, text=True, errors="replace", **options
    )


def growth_options(limits):
    """Growth is shown, and fails only if `limits` say so."""
    given = {word.split("=")[0] for word in limits}
    options = [] if given & {"--max-growth", "--max-growth-ratio"} else ["--max-growth", "1000TiB"]
    return options + ([] if "--max-step-growth" in given else ["--max-step-growth", "1000TiB"])


def command(run, fit):
    """The words of the command. With `fit`, the first of its sizes is in place of the name."""
    words = shlex.split(run)
    if not fit:
        return words
    name, sizes = fit.split("=", 1)
    return [word.replace("{" + name + "}", sizes.split(",")[0]) for word in words]


def check(side, directory, gpu, words, options, formats=()):
    """The report of `oomscope check`, and its exit code; `None` if it could not check anything."""
    report = TEMP / (side + "-" + re.sub(r"\W", "_", gpu) + ".json")
    also = [part for name, file in formats for part in ("--also", name + "=" + str(file))]
    kept = report.with_suffix("")
    result = oomscope(
        directory, "check", "--gpu", gpu, "--format", "json", "--output", str(report), "--dir", str(kept),
        *options, *also, "--", *words,
    )  # fmt: skip
    try:
        return json.loads(report.read_text()), result.returncode
    except (OSError, ValueError):
        return None, result.returncode


def largest(directory, gpu, fit, run):
    """The largest size that fits, as text."""
    # The runs leave their snapshots where the program starts: not in the checkout.
    runs = TEMP / ("fit-" + secrets.token_hex(4))
    runs.mkdir(parents=True)
    there = ["sh", "-c", 'cd "$0" && exec "$@"', str(directory)]
    sizes = fit.split("=", 1)[1]
    result = oomscope(runs, "fit", "--gpu", gpu, "--sizes", sizes, "--format", "json", "--", *there, *shlex.split(run))
    try:
        found = json.loads(result.stdout)
    except ValueError:
        return "not known"
    if found["every_size_fits"]:
        return "every size"
    if found["largest"] is None:
        return "none" if found["is_exact"] else "not known"
    return ("%d" if found["is_exact"] else "at least %d") % found["largest"]


def base_directory(workspace):
    """A work tree of the commit that the pull request is against, and why there is none."""
    event = json.loads(Path(ENV["GITHUB_EVENT_PATH"]).read_text())
    commit = ((event.get("pull_request") or {}).get("base") or {}).get("sha") or ""
    if not re.fullmatch("[0-9a-f]{40}([0-9a-f]{24})?", commit):
        return None, "This run is not for a pull request, so there is nothing to compare with."
    git = ["git", "-C", str(workspace)]
    if subprocess.run([*git, "cat-file", "-e", commit + "^{commit}"], capture_output=True).returncode != 0:
        subprocess.run([*git, "fetch", "--quiet", "--depth", "1", "origin", commit])
    base = TEMP / "base"
    added = subprocess.run([*git, "worktree", "add", "--quiet", "--force", "--detach", str(base), commit])
    if added.returncode != 0:
        return None, "The commit of the base is not here: give actions/checkout `fetch-depth: 0`."
    return base, ""


def peak(report, key):
    devices = ((report or {}).get("baseline") or {}).get("devices") or []
    return max((device["after"][key] for device in devices), default=None)


def verdict(report):
    job = (report or {}).get("dry_run")
    return job["verdict"].replace("-", " ") if job else "could not be checked"


def table(header, rows):
    lines = ["| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]]
    return "\n".join(lines) + "\n"


def summarize(run, gpus, reports, fit, fits, note):
    """The text of the summary. `reports`: by GPU, those of base and head."""
    head = reports[gpus[0]][1]
    text = [MARK + "\n### GPU memory of " + code(run) + " on " + code(gpus[0]) + " (dry run)\n"]
    if note:
        text.append(note + "\n")
    rows = []
    for name, key in (("peak allocated", "peak_allocated_bytes"), ("peak reserved", "peak_reserved_bytes")):
        values = [peak(report, key) for report in reports[gpus[0]]]
        rows.append([name, *("not known" if value is None else size(value) for value in values)])
    rows.extend(["fits on " + code(gpu), *map(verdict, reports[gpu])] for gpu in gpus)
    rows.extend([["largest " + code(fit.split("=")[0]), *fits]] if fits else [])
    text.append(table(["", "base", "head"], rows))
    lost = [gpu for gpu in gpus if [verdict(report) for report in reports[gpu]] == ["would fit", "would not fit"]]
    if lost:
        text.append("**It no longer fits on " + ", ".join(map(code, lost)) + ".**\n")
    grown = ((head or {}).get("baseline") or {}).get("text") or []
    if grown:
        text.append("Changes:\n\n" + "".join("- " + code(line) + "\n" for line in grown))
    failed = [finding["message"] for finding in (head or {}).get("findings", []) if not finding["passed"]]
    job = (head or {}).get("dry_run")
    if job and not job["passed"]:
        failed.insert(0, job["verdict"].replace("-", " ") + ": " + job["reason"])
    if failed:
        text.append("Failed:\n\n" + "".join("- " + code(line) + "\n" for line in failed))
    return "\n".join(text)


def adopt_orphans():
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_processes():
    """Ends what the commands left running, with the children that this uncovers."""
    lists = list(Path("/proc/self/task").glob("*/children"))
    while lists:
        try:
            for pid in " ".join(children.read_text() for children in lists).split():
                os.kill(int(pid), signal.SIGKILL)
            os.waitpid(-1, 0)
        except ProcessLookupError:
            continue
        except OSError:  # no children
            return


def main():
    run, fit = ENV["RUN"], ENV.get("FIT", "").strip()
    gpus = ENV.get("GPUS", "").split() or ["h100"]
    limits = ENV.get("LIMITS", "").split()
    workspace = Path(ENV["GITHUB_WORKSPACE"])
    # Another use of the action in this job must not leave its results here.
    shutil.rmtree(TEMP, ignore_errors=True)
    TEMP.mkdir(parents=True)
    adopt_orphans()
    words = command(run, fit)
    annotations, sarif = TEMP / "annotations.txt", TEMP / "oomscope.sarif"
    # The command's output is no workflow command.
    token = secrets.token_hex(16)
    print("::stop-commands::" + token, flush=True)
    try:
        base, note = base_directory(workspace)
        reports, exit_code = {}, 0
        for gpu in gpus:
            baseline = ["--baseline", str(TEMP / "baseline.json"), "--entry", gpu]
            allowed = [part for verdict in sorted(VERDICTS) for part in ("--allow-missing", verdict)]
            before, _ = check("base", base, gpu, words, [*baseline, "--update", *allowed]) if base else (None, 0)
            is_written = before is not None and bool(before["baseline"].get("written"))
            given = limits if gpu == gpus[0] else []
            options = [*baseline, *given, *(growth_options(given) if is_written else ["--update"])]
            formats = [("github", annotations), ("sarif", sarif)] if gpu == gpus[0] else []
            after, result = check("head", workspace, gpu, words, options, formats)
            if gpu == gpus[0]:
                # Without a report nothing was checked, as with `--help` among the limits.
                exit_code = result if after else result or 2
            reports[gpu] = (before, after)
        fits = []
        if fit:
            fits = [largest(base, gpus[0], fit, run) if base else "not known", largest(workspace, gpus[0], fit, run)]
    finally:
        end_processes()
        print("::" + token + "::", flush=True)
        subprocess.run(
            ["git", "-C", str(workspace), "worktree", "remove", "--force", str(TEMP / "base")], capture_output=True
        )
    if annotations.exists():
        sys.stdout.write(annotations.read_text())
    text = summarize(run, gpus, reports, fit, fits, note)
    with open(ENV["GITHUB_STEP_SUMMARY"], "a") as summary:
        summary.write(text)
    with open(ENV["GITHUB_OUTPUT"], "a") as output:
        if sarif.exists():
            output.write("sarif-file=%s\n" % sarif)
        output.write("comment-file=%s\n" % (TEMP / "comment.md"))
    (TEMP / "comment.md").write_text(text)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
