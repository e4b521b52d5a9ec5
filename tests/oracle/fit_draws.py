#!/usr/bin/env python3
"""Whether the range that `oomscope fit` gives covers new draws of data: ./fit_draws.py OOMSCOPE VENV OUT.

Each program draws its data anew in every step: sentences padded to the longest of a batch, boxes of images, one length
for a step, graphs, utterances. Eight times, each is recorded at three sizes, and `fit` gives the sizes between which
the data decides, on a device for about 2.5 times the largest. A new draw is covered if it completes at the minimum and
fails at the size after the maximum. The width of a range is relative to its middle. Runs are kept in OUT. As a server
for these runs: run.sh fit_draws.py --serve.
"""

import collections
import json
import os
import random
import statistics
import subprocess
import sys
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIZES, TIMES, RECORDED, DRAWN, STEPS = (8, 12, 16), 2.5, 8, 5, 5
PROGRAMS = ("padded", "boxes", "lengths", "graphs", "utterances")
LARGE_MIB = 81920 * 4


def serve():
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Attend(nn.Module):
        def __init__(self, d=64, heads=4):
            super().__init__()
            self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(x)))

    def zeros(*shape, dtype=torch.float32):
        return torch.zeros(*shape, device="cuda", dtype=dtype)

    def padded(net, n, draws):
        longest = max(min(512, int(draws.lognormvariate(3.6, 0.6)) + 4) for _ in range(n))
        return net(zeros(n, longest, 64))

    def boxes(net, n, draws):
        total = sum(1 + int(draws.expovariate(1 / 12)) for _ in range(n))
        maps = net[0](zeros(n, 400, 64)).flatten(0, 1)
        regions = maps[zeros(total * 16, dtype=torch.long)].unflatten(0, (total, 16)).flatten(1)
        return net[1:](regions)

    def lengths(net, n, draws):
        return net(zeros(n, draws.randint(64, 320), 64))

    def graphs(net, n, draws):
        nodes = [max(3, int(draws.lognormvariate(4.0, 0.7))) for _ in range(n)]
        source, target = (zeros(8 * sum(nodes), dtype=torch.long) for _ in range(2))
        messages = F.relu(net(zeros(sum(nodes), 64))[source])
        return zeros(sum(nodes), 64).index_add(0, target, messages)

    def utterances(net, n, draws):
        longest = max(draws.randint(80, 400) for _ in range(n))
        return net(zeros(n, longest, 128))

    def dense(*widths):
        layers = [layer for pair in zip(widths, widths[1:]) for layer in (nn.Linear(*pair), nn.GELU())]
        return nn.Sequential(*layers[:-1])

    programs = {
        "padded": (padded, lambda: nn.Sequential(Attend(), Attend())),
        "boxes": (boxes, lambda: nn.Sequential(nn.Linear(64, 64), *dense(1024, 2048, 2048, 84))),
        "lengths": (lengths, lambda: nn.Sequential(Attend(), Attend())),
        "graphs": (graphs, lambda: dense(64, 512, 64)),
        "utterances": (utterances, lambda: dense(128, 1024, 1024, 128)),
    }

    def train(job):
        forward, model = programs[job["program"]]
        draws = random.Random(f"{job['program']} {job['seed']} {job['size']}")
        net = model().cuda()
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(STEPS):
            forward(net, job["size"], draws).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    def run(job):
        os.environ.update(STUBCUDA_TOTAL_MIB=str(job["mib"]), STUBCUDA_NAME="NVIDIA H100 80GB HBM3", STUBCUDA_CC="90")
        os.environ.update(STUBCUDA_SMS="132", STUBCUDA_THREADS="2048")
        torch.cuda.init()
        facts = {"fails": False}
        try:
            if job["snapshot"]:
                import oomscope

                with oomscope.record(job["snapshot"]):
                    train(job)
            else:
                train(job)
        except torch.cuda.OutOfMemoryError:
            facts["fails"] = True
        facts["reserved"] = torch.cuda.memory_stats()["reserved_bytes.all.peak"]
        Path(job["facts"]).write_text(json.dumps(facts))

    torch.set_num_threads(1)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                run(json.loads(line))
            except BaseException:
                traceback.print_exc()
            os._exit(0)
        os.waitpid(child, 0)
        print(flush=True)


class Server:
    def __init__(self, venv, out):
        env = os.environ | {"VENV": str(venv), "PYTHONPATH": str(HERE.parent.parent / "python")}
        command = [HERE / "run.sh", HERE / "fit_draws.py", "--serve"]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.out = out

    def run(self, program, size, seed, mib=LARGE_MIB, is_recorded=False):
        facts = self.out / f"{program}-{size}-{seed}-{mib}.json"
        snapshot = str(facts.with_suffix(".pickle.gz"))
        if not facts.exists():
            job = {"program": program, "size": size, "seed": seed, "mib": mib, "facts": str(facts)}
            self.process.stdin.write(json.dumps(job | {"snapshot": snapshot if is_recorded else None}) + "\n")
            self.process.stdin.flush()
            self.process.stdout.readline()
        return json.loads(facts.read_text()) | {"snapshot": snapshot}


def main(oomscope, venv, out):
    out = Path(out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    server = Server(Path(venv).resolve(), out)
    print("| program | MiB | range | covered | completes | fails |\n|---|---|---|---|---|---|")
    widths, all_covered, all_drawn = collections.defaultdict(list), collections.Counter(), collections.Counter()
    for program in PROGRAMS:
        mib = server.run(program, int(SIZES[-1] * TIMES), "device")["reserved"] >> 20
        for recorded in range(RECORDED):
            files = [f"{size}={server.run(program, size, recorded, LARGE_MIB, True)['snapshot']}" for size in SIZES]
            command = [oomscope, "fit", *files, "--capacity", f"{mib}MiB", "--format", "json"]
            report = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
            data_range = report.get("devices", [{}])[0].get("data_range")
            if not data_range:
                print(f"| {program} | {mib} | none | | | |")
                continue
            minimum, maximum = data_range["minimum"], data_range["maximum"]
            seeds = [f"{recorded}-{drawn}" for drawn in range(DRAWN)]
            completes = [not server.run(program, minimum, seed, mib)["fails"] for seed in seeds]
            fails = [server.run(program, maximum + 1, seed, mib)["fails"] for seed in seeds]
            covered = sum(both == (True, True) for both in zip(completes, fails))
            all_covered[program] += covered
            all_drawn[program] += DRAWN
            widths[program].append((maximum - minimum) / report["devices"][0]["largest_safe"]["size"])
            counts = " | ".join(str(count) for count in (covered, sum(completes), sum(fails)))
            print(f"| {program} | {mib} | {minimum} to {maximum} | {counts} |", flush=True)
    print("\n| program | with a range | covered | median width |\n|---|---|---|---|")
    for program in PROGRAMS:
        width = statistics.median(widths[program] or [float("nan")])
        covered = f"{all_covered[program]} of {all_drawn[program]}"
        print(f"| {program} | {len(widths[program])} of {RECORDED} | {covered} | {width:.2f} |")


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve()
    else:
        main(*sys.argv[1:])
