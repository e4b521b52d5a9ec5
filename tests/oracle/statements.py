#!/usr/bin/env python3
"""Judges every statement of the first lines of `analyze` and `whatif` by what the programs of trials.py really did.

usage: statements.py OOMSCOPE VENV OUT PROGRAMS.py [NAME ...]

Records each program on the devices that it names, reads what oomscope says of the recording, runs the program again
under each remedy named (settings, a larger device, the program changed as its comments say), and prints one line for
each statement: true, FALSE, or unknown where the page says that it does not know or no rerun can tell. OUT keeps the
recordings and what the reruns gave. Plain Python, no torch.
"""

import collections
import gzip
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
POINTS = 0.05  # by which the share of a category may be wrong
SETTINGS = 2  # that are really tried, of each kind
RATE = 0.03  # by which a rate of growth may be wrong
PARTS = {  # what checkpointing wraps, by a word of the program
    "ConvNet": ["ConvBlock"],
    "UNet": ["ConvBlock"],
    "Encoder": ["TransformerEncoderLayer"],
    "Experts": ["Experts"],
    "CausalLM": ["DecoderLayer"],
}


class Server:
    def __init__(self, venv, programs):
        env = {
            k: v for k, v in os.environ.items() if not k.startswith(("STUBCUDA_", "PYTORCH_")) or k == "STUBCUDA_BUILD"
        }
        env |= {"VENV": venv, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        command = [HERE / "run.sh", HERE / "trial_server.py", programs]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def run(self, facts, **job):
        if not facts.exists():
            self.process.stdin.write(json.dumps(job | {"facts": str(facts)}) + "\n")
            self.process.stdin.flush()
            self.process.stdout.readline()
        return json.loads(facts.read_text())


class Trial:
    """One program on one device: what happened, and what would have under a remedy."""

    def __init__(self, server, out, source, name, mib):
        self.server, self.out, self.name, self.mib = server, out, name, mib
        self.id = f"{name}-{mib}"
        self.source = re.search(rf"^def {name}\(.*?(?=^[@\w#]|\Z)", source, re.M | re.S)[0]
        start = source.index(self.source)
        self.declared = source[source.rindex("@trial(", 0, start) : start]
        shared = (HERE / "trials.py").read_text()
        marked = [enumerate(text.split("\n"), 1) for text in (source, shared)]
        self.kept = {n for lines in marked for n, line in lines if "# kept" in line}
        self.has_kept = "# kept" in self.source
        self.larger = {n for n, line in enumerate(source.split("\n"), 1) if "# larger" in line}
        self.snapshot = out / f"{self.id}.pickle.gz"
        self.facts = self.rerun(snapshot=str(self.snapshot))

    def rerun(self, settings="", edits=(), mib=None, snapshot=None):
        label = "+".join([settings.replace(":", "_"), *edits, str(mib or "")]).strip("+")
        facts = self.out / (self.id + (f"@{label}" if label else "") + ".json")
        job = {"name": self.name, "mib": mib or self.mib, "settings": settings, "edits": list(edits)}
        job["classes"] = next((parts for word, parts in PARTS.items() if word in self.source), [])
        return self.server.run(facts, **job, **({"snapshot": snapshot} if snapshot else {}))

    def can(self, edit):
        """Whether the program can be changed so."""
        if edit == "checkpoint":
            return any(word in self.source for word in PARTS)
        return edit in ("foreach", "bfloat16") or f"# {edit}: " in self.source

    def serves(self, facts):
        """Whether a rerun got beyond the request that failed."""
        if "error" in facts:
            return None
        return not facts["fails"] or facts["requests"] > self.facts["requests"]

    def goes_on(self, facts):
        """Whether it finished the iteration that failed and one more, or all."""
        if "error" in facts:
            return None
        return not facts["fails"] or len(facts["held"]) >= len(self.facts["held"]) + 2

    def rate(self):
        """Bytes that an iteration keeps: the slope of what is held at their ends."""
        held = self.facts["held"]
        if len(held) < 3:
            return None
        rises = [after - before for before, after in zip(held, held[1:])]
        typical = sorted(rises[-5:])[2] if len(rises) > 4 else 0
        start = max((index for index, rise in enumerate(rises) if rise < typical / 4), default=0)
        # Another loop may come before the one that grows.
        if start > len(held) // 2 and len(held) - start > 8:
            held = held[start + 1 :]
        held = held[len(held) // 3 :]
        if len(held) < 3:
            return None
        middle, mean = (len(held) - 1) / 2, sum(held) / len(held)
        slope = sum((index - middle) * (value - mean) for index, value in enumerate(held))
        return slope / sum((index - middle) ** 2 for index in range(len(held)))


def said(oomscope, *arguments):
    done = subprocess.run([oomscope, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def holds(path, line):
    """Bytes of live blocks whose innermost frame of the program is `line`."""
    with gzip.open(path) as file:
        segments = pickle.load(file)["segments"]
    total = 0
    for block in (block for segment in segments for block in segment["blocks"]):
        if block["state"] == "active_allocated":
            own = [f["line"] for f in block.get("frames", ()) if f["filename"].startswith("/app/")]
            total += block["size"] if own[:1] == [line] else 0
    return total


class Judge:
    def __init__(self, oomscope, trial):
        self.oomscope, self.trial, self.rows = oomscope, trial, []
        self.facts = trial.facts
        [snapshot] = said(oomscope, "analyze", "--format", "json", str(trial.snapshot))["snapshots"]
        report = said(oomscope, "analyze", "--format", "json", str(trial.snapshot))
        self.summary = report["summary"]
        self.device = next((d for d in snapshot["devices"] if d.get("ooms")), snapshot["devices"][0])
        self.oom = self.device["ooms"][-1] if self.device.get("ooms") else None
        self.whatif = said(oomscope, "whatif", "--format", "json", str(trial.snapshot))

    def add(self, kind, text, is_true):
        result = "unknown" if is_true is None else "true" if is_true else "FALSE"
        self.rows.append((kind, result, text))

    def settings_tried(self):
        rows = [row["settings"] for row in self.oom["details"]["remedies"] if not row.get("without")]
        rows += [row["settings"] for row in self.whatif["rows"][1:6]]
        names = [name for name in dict.fromkeys(["expandable_segments:True", *rows]) if "fraction" not in name]
        return [self.trial.rerun(settings=name) for name in names[:SETTINGS]]

    def judge(self):
        self.answer() if self.oom else self.no_failure()
        self.holders()
        self.growth()
        if self.oom:
            self.advice()
            self.forecasts()
            self.changes()
        else:
            self.advice_without_failure()
        self.settings()
        return self.rows

    def answer(self):
        oom, facts = self.oom, self.facts
        lines = [line for line, _ in facts["lines"]]
        self.add(
            "line", f"fails at {oom['culprit'] and oom['culprit']['line']}", (oom["culprit"] or {}).get("line") in lines
        )
        figures = oom["device_free_bytes"] == facts["free"] and oom["allocated_bytes"] == facts["allocated"]
        self.add("figures", "requested, free, allocated", figures and oom["segment_bytes"] == facts["wanted"])
        goes_on = [self.trial.goes_on(rerun) for rerun in self.settings_tried()]
        verdict, text = oom["verdict"], self.summary["answer"].split(": ", 1)[-1]
        if "what follows is not known" in text:
            self.add("verdict", text, None)
        elif self.oom.get("unusual_input") and "before it needed" in text:
            self.add("verdict", text, bool(self.trial.larger) and "# larger" in self.trial.source)
        elif "memory grows" in text:
            ends = [not rerun["fails"] for rerun in self.settings_tried()]
            self.add("verdict", text, not any(ends))
        elif verdict == "capacity":
            self.add("verdict", text, not any(goes_on))
        elif verdict == "fragmentation":
            self.add("verdict", text, any(goes_on))
        else:
            # Only right where nothing else is missing: then the job goes on with the memory named.
            more = self.trial.mib + max(1, oom["cached_bytes"] // MIB)
            self.add("verdict", text, self.trial.goes_on(self.trial.rerun(mib=more)))

    def no_failure(self):
        self.add("line", "no request failed", not self.facts["fails"])
        peak = self.device["peak"]
        figures = peak["allocated_bytes"] == self.facts["peak_allocated"]
        self.add("figures", "peak", figures and peak["reserved_bytes"] == self.facts["peak_reserved"])

    def holders(self):
        if not self.oom:
            return
        held, uses = self.oom.get("held"), self.facts["uses"]
        if not held:
            return
        whole = self.facts["allocated"]
        row = held["by_line"]["rows"][0]
        if row.get("frame"):
            line = row["frame"]["line"]
            real = holds(self.trial.snapshot, line)
            self.add(
                "holder",
                f"line {line} holds {row['bytes'] / MIB:.1f}",
                "backward" in row or abs(real - row["bytes"]) <= 0.02 * whole,
            )
        # Bytes whose use the program's objects do not say may be temporaries, inputs, other or an output.
        named = {kind: uses[kind] / whole for kind in ("parameters", "gradients", "optimizer-state", "activations")}
        outputs, plain = uses["graph-outputs"] / whole, uses["plain"] / whole
        saved = uses.get("saved-in-iteration", 0) / whole
        rest = max(0, 1 - sum(named.values()) - outputs - plain)
        if "copies=True" in self.trial.declared:  # of the weights, which count as parameters
            named["parameters"], plain = named["parameters"] + plain, 0
        shares = re.findall(
            r"([\d.]+)% ([a-z ]+?)(?: \(a guess\))?(?:,|$)", (self.summary["who"] or "").split("of all: ")[-1]
        )
        unknown = sum(float(share) / 100 for share, kind in shares if kind == "other")
        for share, kind in shares:
            share, kind = float(share) / 100, kind.strip().replace(" ", "-")
            if kind == "other":
                self.add("share", f"{share:.0%} other", None)
                continue
            low = named.get(kind, 0)
            high = low + (
                outputs + saved + rest
                if kind == "activations"
                else outputs + plain + rest
                if kind in ("temporaries", "inputs")
                else 0
            )
            if kind in ("gradients", "optimizer-state"):
                high += rest + plain
            text = f"{share:.1%} {kind} ({low:.1%} to {high:.1%})"
            self.add("share", text, low - POINTS - unknown <= share <= high + POINTS)

    def growth(self):
        real = self.trial.rate()
        growth, leaks = (self.oom or {}).get("details", {}).get("growth"), self.device["details"]["leaks"]
        match = re.search(
            r"memory grows by ([\d.,]+) (B|KiB|MiB|GiB) (?:a|per) step",
            f"{self.summary['answer']} {self.summary['action']}",
        )
        if match:
            rate = float(match[1].replace(",", "")) * 1024 ** "B KiB MiB GiB".split().index(match[2])
            units = (1, 2, 3, 4, 5, 8, 16)
            ratios = [abs(rate / ((real or 1) * k) - 1) for k in (*units, *(1 / k for k in units))]
            # Which iteration is "a step" is the page's choice; a multiple of a true rate is true.
            self.add(
                "rate", f"{match[0]} (really {(real or 0) / MIB:.3f} MiB)", real is not None and min(ratios) <= RATE
            )
            suspects = leaks["suspects"]
            if suspects and suspects[0].get("frame"):
                line = suspects[0]["frame"]["line"]
                is_leak = "leaks=True" in self.trial.declared or "bounded=True" in self.trial.declared
                self.add(
                    "kept at", f"line {line} keeps", is_leak and (line in self.trial.kept or not self.trial.has_kept)
                )
        elif self.oom and "leaks=True" in self.trial.declared and len(self.facts["held"]) > 5:
            self.add(
                "rate",
                f"not named: {(real or 0) / MIB:.3f} MiB a step"
                + (f" ({growth['bytes_per_step'] / MIB:.3f} below)" if growth else ""),
                None,
            )

    def advice(self):
        trial, action = self.trial, self.summary["action"] or ""
        tried = self.settings_tried()
        served, goes_on = [trial.serves(rerun) for rerun in tried], [trial.goes_on(rerun) for rerun in tried]
        edits = {
            "free what": "free",
            "limit what": "free",
            "torch.no_grad() or": "no_grad",
            "request less at once": "less",
            "map_location": "host",
            "half the batch": "half",
            "freed at its end": "free",
            "activation checkpointing of each": "checkpoint",
            "foreach=False": "foreach",
            "bfloat16": "bfloat16",
        }
        if "no setting helps for long" in action:
            self.add("reason", "no setting helps for long", not any(rerun["fails"] is False for rerun in tried))
        if "under every replayed setting the request fails" in action:
            self.add("reason", "under every setting the request fails", not any(served))
        for text in ("settings only postpone", "no allocator setting helps", "but probably not the ones after it"):
            if text in action:
                self.add("reason", text, not any(goes_on))
        match = re.search(r"(\S+) only postpones the failure", action)
        if match:
            self.add("reason", match[0], trial.rerun(settings=match[1])["fails"])
        if "serve this request, not the next one" in action:
            self.add("reason", "no setting serves the next request", any(served) and not any(goes_on))
        if "a setting serves this request, but" in action:
            self.add("reason", "a setting serves this request", any(served))
        match = re.match(r"(set|try) (\S+): in a replay (.*)", action)
        if match:
            rerun = trial.rerun(settings=match[2])
            is_true = trial.goes_on(rerun) if "goes on" in match[3] else trial.serves(rerun)
            return self.add("advice", action, is_true)
        if "inputs at" in action or "cut or skip the input" in action:
            is_input = next((int(n) in trial.larger for n in re.findall(r"\.py:(\d+)", action)), False)
            return self.add("advice", action, is_input)
        for text, edit in edits.items():
            if text in action:
                is_known = trial.can(edit)
                is_true = trial.goes_on(trial.rerun(edits=[edit])) if is_known else None if edit != "no_grad" else False
                return self.add("advice", action, is_true)
        self.add("advice", action, None)

    def advice_without_failure(self):
        action = self.summary["action"] or ""
        if "torch.no_grad()" in action and self.trial.can("no_grad"):
            less = self.trial.rerun(edits=["no_grad"])["peak_allocated"]
            self.add("advice", action, less < 0.9 * self.facts["peak_allocated"])
        elif action and "memory grows by" not in action:
            self.add("advice", action, None)

    def forecasts(self):
        """What comes after the failed request under each setting named, and on a larger device."""
        trial = self.trial
        remedies = [row for row in self.oom["details"]["remedies"] if row["avoids_oom"] and not row.get("without")]
        rows = [(row["settings"], trial.rerun(settings=row["settings"]), row) for row in remedies[:SETTINGS]]
        larger = trial.mib * 5 // 4
        command = (
            "whatif",
            "--format",
            "json",
            "--capacity",
            f"{larger}MiB",
            "--set",
            "backend:native",
            str(trial.snapshot),
        )
        rows.append((f"on {larger} MiB", trial.rerun(mib=larger), said(self.oomscope, *command)["rows"][0]))
        for name, rerun, row in rows:
            if row.get("avoids_oom"):
                self.add("serves", name, trial.serves(rerun))
            if row.get("forecast") and "error" not in rerun:
                self.after("after", name, rerun, row["forecast"])

    def after(self, statement, name, rerun, verdict):
        """Judges the forecast of the requests after the failed one."""
        kind = verdict["verdict"]
        if kind == "unknown":
            self.add(statement, f"{name}: not known: {verdict['why']}", None)
        elif kind == "goes-on":
            self.add(statement, f"{name}: goes on", self.trial.goes_on(rerun))
        else:
            after, at = rerun["requests"] - self.facts["requests"], verdict["after_requests"] + 1
            about, really = "" if verdict["sure"] else " or so", after if rerun["fails"] else "ends"
            text = f"{name}: fails after {at}{about} ({really})"
            # The program may end before that, which no recording tells.
            is_over = not rerun["fails"] and after < at
            self.add(statement, text, None if is_over else rerun["fails"] and abs(at - after) <= 0.2 * after)

    def changes(self):
        """The changes of the program that the page says serve every request."""
        kinds = {
            "checkpoint": "checkpoint",
            "half-batch": "half",
            "left-behind": "free",
            "half-precision": "bfloat16",
            "foreach": "foreach",
            "no_grad": "no_grad",
        }
        for row in self.device.get("changes") or ():
            label = row["change"]
            kind = next((edit for text, edit in kinds.items() if label.startswith(text)), None)
            if not row.get("fits") or not kind:
                continue
            if not self.trial.can(kind):
                self.add("change", f"{label}: not tried", None)
                continue
            rerun = self.trial.rerun(edits=[kind])
            sure = row.get("sure")
            is_true = self.trial.serves(rerun)
            if is_true is False and len(rerun["held"]) > len(self.facts["held"]):
                is_true = True  # another number of requests
            self.add("change" if sure != "guess" else "change (guess)", f"{label}", is_true)

    def settings(self):
        summary, trial = self.whatif["summary"], self.trial
        answer, action = summary["answer"], summary["action"] or ""
        match = re.match(r"(\S+) serves the failed request", answer)
        if match:
            rerun = trial.rerun(settings=match[1])
            self.add("whatif", f"{match[1]} serves it", trial.serves(rerun))
            row = next((row for row in self.whatif["rows"] if row["settings"] == match[1]), {})
            if "would fail" in answer:
                self.add("whatif", answer, not trial.goes_on(rerun))
            elif row.get("forecast") and "later requests are not recorded" not in answer:
                self.after("whatif", match[1], rerun, row["forecast"])
            if action == "set it":
                self.add("whatif", "set it", trial.goes_on(rerun))
        elif "no setting tried serves" in answer:
            self.add("whatif", answer, not any(trial.serves(rerun) for rerun in self.settings_tried()))
        match = re.search(r"(\S+) would reserve ([\d.]+) (MiB|GiB) at its peak", answer)
        if match:
            size = float(match[2]) * (MIB if match[3] == "MiB" else 1024 * MIB)
            real = trial.rerun(settings=match[1])["peak_reserved"]
            self.add("whatif", f"{match[0]} ({real / MIB:.0f} MiB)", abs(real - size) <= 0.01 * real)
        match = re.search(r"it takes a device with ([\d.]+) (MiB|GiB)", action)
        if match:
            size = float(match[1]) * (1 if match[2] == "MiB" else 1024)
            self.add("whatif", action, not trial.serves(trial.rerun(mib=int(size) - 4)))
        elif "live memory alone exceeds the device" in action:
            self.add(
                "whatif", "live memory alone exceeds the device", self.whatif["lower_bound_bytes"] > trial.mib * MIB
            )


def main():
    oomscope, venv, out, programs = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    source = programs.read_text()
    server = Server(venv, programs)
    counts = collections.defaultdict(collections.Counter)
    for match in re.finditer(r"^@trial\(([^)]*)\)\n(?:@.*\n)*def (\w+)", source, re.M):
        for mib in [int(word) for word in match[1].split(", ") if word.isdigit()]:
            if sys.argv[5:] and match[2] not in sys.argv[5:]:
                continue
            trial = Trial(server, out, source, match[2], mib)
            rows = Judge(oomscope, trial).judge()
            tally = collections.Counter(result for _, result, _ in rows)
            print(f"\n{trial.id}: {tally['true']} true, {tally['FALSE']} false, {tally['unknown']} unknown", flush=True)
            for kind, result, text in rows:
                counts[kind][result] += 1
                print(f"  {result:8} {kind:10} {text}", flush=True)
    print("\n| statements | true | false | unknown |\n|---|---|---|---|")
    total = collections.Counter()
    for kind, tally in counts.items():
        total += tally
        print(f"| {kind} | {tally['true']} | {tally['FALSE']} | {tally['unknown']} |")
    print(f"| all | {total['true']} | {total['FALSE']} | {total['unknown']} |")


main()
