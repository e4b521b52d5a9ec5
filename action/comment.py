"""Writes one comment on a pull request, or replaces the one from before. Never fails: forks have no right to.

In, from the environment: COMMENT_FILE (its text, by pull_request.py), GH_TOKEN, and GITHUB_EVENT_PATH and
GITHUB_REPOSITORY of the runner. Run as `python -I`.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path


def main():
    text = Path(os.environ["COMMENT_FILE"]).read_text()
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text())
    number = (event.get("pull_request") or {}).get("number")
    repository = os.environ.get("GITHUB_REPOSITORY", "")
    if not isinstance(number, int) or not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        return
    comments = "repos/%s/issues/%d/comments" % (repository, number)
    mark = json.dumps(text.split("\n", 1)[0])
    filter_own = '.[] | select(.user.type == "Bot" and (.body | startswith(%s))) | .id' % mark
    pipes = {"text": True, "stdout": subprocess.PIPE}
    found = subprocess.run(["gh", "api", "--paginate", comments, "--jq", filter_own], **pipes)
    own = (found.stdout.split() or [""])[0] if found.returncode == 0 else ""
    where = ["--method", "PATCH", "repos/%s/issues/comments/%s" % (repository, own)] if own.isdigit() else [comments]
    if subprocess.run(["gh", "api", *where, "--field", "body=@-"], input=text, **pipes).returncode != 0:
        print("The comment could not be written; the step summary has its text.", file=sys.stderr)


if __name__ == "__main__":
    main()
