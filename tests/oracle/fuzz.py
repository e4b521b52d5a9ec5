"""Run one plan on the real allocator and record it.

usage: run.sh fuzz.py PLAN.json OUT.pickle[.gz]

The plan (see plan.py) says everything; fuzz_matrix.py makes plans, sets the environment they
ask for and calls this. Only torch.empty is used: bytes on the device, no kernels.
"""

import concurrent.futures
import contextlib
import gc
import json
import math
import os
import random
import sys
import warnings

import torch

import recording
from plan import MIB, release_of

OOM = torch.cuda.OutOfMemoryError
RELEASE = release_of(torch.__version__)
U8 = torch.uint8
NEAR = (-513, -512, -511, -1, 0, 1, 511, 512, 513)


def end_scope(device, pool):
    (getattr(torch._C, "_cuda_endAllocateToPool", None) or torch._C._cuda_endAllocateCurrentStreamToPool)(device, pool)


def setting(p, key, fallback):
    for part in p["settings"].split(","):
        if part.startswith(key + ":"):
            return int(part.split(":")[1])
    return fallback


def thresholds(p):
    """Sizes at which the allocator changes its mind, under this plan's settings."""
    large = setting(p, "large_segment_size_mb", 20) * MIB
    split = setting(p, "max_split_size_mb", 0) * MIB
    slack = setting(p, "max_non_split_rounding_mb", large // MIB) * MIB
    marks = [
        512,
        1024,
        MIB,
        MIB,
        2 * MIB,
        2 * MIB,
        10 * MIB,
        10 * MIB,
        20 * MIB,
        large,
        large - MIB,
        large + MIB,
        2 * large,
        2 * large - MIB,
        19 * MIB,
        9 * MIB,
        8 * MIB,
        12 * MIB,
    ]
    if split:
        marks += [
            split,
            split,
            split - MIB,
            split + MIB,
            split + slack,
            split + slack,
            split + 2 * MIB,
            2 * split,
            split + slack // 2,
        ]
    marks += [1 << k for k in range(9, 31)]
    for d in (2, 4, 8, 16):
        marks += [(1 << k) + (1 << k) // d * j for k in range(13, 28, 2) for j in (1, d - 1)]
    return marks


class Workload:
    def __init__(self, p):
        self.p = p
        self.rng = random.Random(p["seed"] * 1000003 + len(p["kind"]))
        self.entries = 0  # an estimate, to know when to stop
        self.live = []  # (tensor, bytes, owner): owner is a private pool's number or None
        self.bytes = 0
        self.capacity = p["capacity"] * MIB
        usable = self.capacity * (p["fraction"] or 1.0)
        self.usable = max(usable, 30 * MIB)
        self.widest = min(30.0, math.log2(self.usable / 6))
        self.marks = thresholds(p)
        self.split = setting(p, "max_split_size_mb", 0) * MIB
        self.device = 0
        self.devices = [torch.device("cuda", d) for d in range(p["devices"])]
        self.streams = []
        for d in range(p["devices"]):
            with torch.cuda.device(d):
                self.streams.append(
                    [torch.cuda.default_stream(d)] + [torch.cuda.Stream(d) for _ in range(p["streams"] - 1)]
                )
        self.pools = {}  # number -> [handle, device]
        self.numbered = 0
        self.graphs = []
        self.handles = []
        self.opened = {}
        self.checkpoints = []
        self.inside = 0  # depth of scopes and captures
        self.capturing = False
        self.workers = []
        self.untold = {
            "empty_cache": 0,
            "empty_cache_silent": 0,
            "oom": 0,
            "rejected": 0,
            "empty_requests": 0,
            "absurd_requests": 0,
            "pools_made": 0,
            "pools_dropped": 0,
            "pools_dropped_silent": 0,
            "use_mem_pool": 0,
            "captures": 0,
            "record_stream": 0,
            "settings": [],
        }
        self.error = None
        self.phase()

    # ---- the next phase ----
    def phase(self):
        """Choose how the next stretch behaves."""
        r = self.rng
        self.left = r.choice([200, 600, 2000, 5000])
        small = self.p["capacity"] < 20000
        level = r.choice([0.3, 0.6, 0.8, 0.95, 1.1, 1.5, 3]) if small else r.choice([0.005, 0.02, 0.1, 0.3])
        self.target = self.usable * level
        self.most = r.choice([10, 60, 300, 300, 1500, 6000])
        self.p_alloc = r.choice([0.51, 0.55, 0.65, 0.8, 0.95])
        self.order = r.choice(["random", "random", "random", "lifo", "fifo", "saw", "alternate"])
        self.reuse = r.choice([0.0, 0.5, 0.9, 1.0])
        self.mix = r.choice(
            [
                (40, 20, 20, 14, 5, 1),
                (10, 70, 15, 5, 0, 0),
                (30, 0, 5, 40, 22, 3),
                (80, 5, 5, 5, 5, 0),
                (20, 30, 30, 18, 2, 0),
                (40, 0, 0, 10, 40, 10),
            ]
        )
        self.pick = [k for k, w in enumerate(self.mix) for _ in range(w)]
        self.usual = [self.fresh() for _ in range(r.choice([1, 4, 16, 64]))]
        self.flush = r.choice([0, 0.0003, 0.001, 0.004])
        self.wait = r.choice([0, 0, 0.002])
        self.switch = r.choice([0.02, 0.2, 0.6]) if self.p["streams"] > 1 else 0
        self.record = r.choice([0, 0.05, 0.3, 0.8]) if self.p["streams"] > 1 else 0
        self.sawing = False

    def fresh(self):
        r = self.rng
        k = self.pick[r.randrange(len(self.pick))]
        if k == 0:
            n = r.choice(self.marks) + r.choice(NEAR)
        elif k == 1:
            n = r.randrange(1, MIB + 1)
        elif k == 2:
            n = int(2 ** r.uniform(0, self.widest))
        elif k == 3:
            n = r.randrange(MIB, 11 * MIB)
        elif k == 4:
            base = self.split if self.split and r.random() < 0.6 else 10 * MIB
            n = r.randrange(base // 2, base * 4)
        else:
            n = int(self.usable * r.uniform(0.1, 1.1))
        if n > self.usable * 0.5 and r.random() < 0.9:
            n = n % int(self.usable * 0.5)
        return max(n, 1)

    # ---- one step ----
    def step(self, owner=None, keep_stream=False):
        r = self.rng.random
        x = r()
        if self.switch and not keep_stream and r() < self.switch:
            torch.cuda.set_stream(self.rng.choice(self.streams[self.device]))
        live = self.live
        grow = x < self.p_alloc and not self.sawing and self.bytes < self.target and len(live) < self.most
        if grow or not live:
            usual = self.usual
            n = usual[int(r() * len(usual))] if r() < self.reuse else self.fresh()
            try:
                t = torch.empty(n, dtype=U8, device=self.devices[self.device])
            except OOM as e:
                self.out_of_memory("preemptively rejected" in str(e))
                return
            self.entries += 1
            if self.record and r() < self.record and not (owner is not None and self.p.get("drop_empty_only")):
                for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
                    t.record_stream(self.rng.choice(self.streams[self.device]))
                self.untold["record_stream"] += 1
            live.append((t, n, owner))
            self.bytes += n
            return
        self.entries += 2
        order = self.order
        if order == "saw":
            self.sawing = len(live) > 1
            i = int(r() * len(live))
        elif order == "lifo":
            i = len(live) - 1
        elif order == "fifo":
            i = 0
        elif order == "alternate":
            i = (len(live) // 2) & ~1
        else:
            i = int(r() * len(live))
        if order == "random" or order == "saw":
            live[i], live[-1] = live[-1], live[i]
            t, n, _ = live.pop()
        else:
            t, n, _ = live.pop(i)
        self.bytes -= n
        del t

    def out_of_memory(self, rejected):
        self.untold["rejected" if rejected else "oom"] += 1
        self.entries += 1
        live, r = self.live, self.rng
        gone = r.choice((0, 1, 3, len(live) // 10, len(live) // 10, len(live) // 3, len(live) // 2, len(live)))
        for _ in range(gone):
            if not live:
                break
            i = r.randrange(len(live))
            live[i], live[-1] = live[-1], live[i]
            self.bytes -= live.pop()[1]
            self.entries += 2

    def visible(self):
        """Counters that move whenever an entry is written by a release."""
        out = []
        for d in range(self.p["devices"]):
            s = torch.cuda.memory_stats(d)
            out.append((s["reserved_bytes.all.freed"], s["active.all.freed"]))
        return out

    # ---- rare events ----
    def events(self):
        """Between steps: chances drawn one after another, so that kinds do not disturb each other."""
        p, r = self.p, self.rng
        x = r.random()
        if x < self.flush:
            self.empty_cache()
        elif x < self.flush + self.wait:
            torch.cuda.synchronize()
        elif x > 0.9998:
            what = r.randrange(3)
            if what == 0:
                self.untold["empty_requests"] += 1
                torch.empty(0, dtype=U8, device=self.devices[self.device])
            elif what == 1:
                self.untold["absurd_requests"] += 1
                with contextlib.suppress(OOM):
                    torch.empty(1 << 60, dtype=U8, device=self.devices[self.device])
            elif self.p["capacity"] < 40000:
                try:
                    torch.empty(
                        int(self.capacity * r.choice((1, 1.5, 3, 20))), dtype=U8, device=self.devices[self.device]
                    )
                except OOM as e:
                    self.out_of_memory("preemptively rejected" in str(e))
        if p["devices"] > 1 and r.random() < 0.02:
            self.device = r.randrange(p["devices"])
            torch.cuda.set_device(self.device)
        if p.get("pools") and r.random() < p["pool_rate"] / 10:
            self.pool_session()
        if p.get("graph_rate") and r.random() < p["graph_rate"]:
            self.capture()
        if p.get("checkpoint_rate") and r.random() < p["checkpoint_rate"]:
            self.checkpoint()
        if p.get("marks") and r.random() < p["marks"]:
            self.mark()
        if p.get("scope_rate") and r.random() < p["scope_rate"]:
            self.scope()
        if p.get("reconfigure") and r.random() < p["reconfigure"]:
            self.reconfigure()

    def empty_cache(self):
        before = self.visible()
        torch.cuda.empty_cache()
        self.untold["empty_cache"] += 1
        self.untold["empty_cache_silent"] += before == self.visible()

    def drop_tensors(self, owner):
        kept = [x for x in self.live if x[2] != owner]
        self.entries += 2 * (len(self.live) - len(kept))
        self.live[:] = kept
        self.bytes = sum(x[1] for x in kept)

    # ---- private pools ----
    def new_pool(self):
        r, p = self.rng, self.p
        kw = {}
        if p.get("use_on_oom") and r.random() < p["use_on_oom"]:
            kw["use_on_oom"] = True
        if p.get("no_split") and r.random() < p["no_split"]:
            kw["no_split"] = True
        if p.get("custom") and r.random() < p["custom"]:
            kw["allocator"] = plug().allocator()
        self.numbered += 1
        self.pools[self.numbered] = [torch.cuda.MemPool(**kw), self.device]
        self.untold["pools_made"] += 1
        return self.numbered

    def drop_pool(self, k):
        if self.p.get("use_on_oom") and RELEASE < (2, 11):
            return  # its id would stay behind and stop the process later
        if self.p.get("drop_empty_only"):
            self.drop_tensors(k)
        before = self.visible()
        del self.pools[k]
        self.untold["pools_dropped"] += 1
        self.untold["pools_dropped_silent"] += before == self.visible()

    def pool_session(self, outer=()):
        r, p = self.rng, self.p
        here = [k for k, v in self.pools.items() if v[1] == self.device and k not in outer]
        if not outer and here and r.random() < p["pool_drop"] and (len(self.pools) >= p["pools"] or r.random() < 0.2):
            self.drop_pool(r.choice(here))
            return
        k = r.choice(here) if here and (len(self.pools) >= p["pools"] or r.random() < 0.7) else self.new_pool()
        self.untold["use_mem_pool"] += 1
        with torch.cuda.use_mem_pool(self.pools[k][0]):
            self.inside += 1
            for _ in range(r.choice((1, 2, 5, 20, 80))):
                self.step(k)
                x = r.random()
                if x < 0.003 and RELEASE >= (2, 6):
                    self.empty_cache()
                elif p.get("nested") and x < 0.003 + p["nested"] / 10 and len(outer) < 2:
                    self.pool_session((*outer, k))
                elif p.get("in_thread") and x > 1 - p["in_thread"]:
                    self.elsewhere(lambda: [self.step(None) for _ in range(6)])
            self.inside -= 1

    def elsewhere(self, work):
        """Run on another thread, waiting for it: the order of everything stays fixed."""
        if not self.workers:
            self.workers = [
                concurrent.futures.ThreadPoolExecutor(1) for _ in range(max(1, self.p.get("threads", 2) - 1))
            ]

        def job():
            torch.cuda.set_device(self.device)
            work()

        self.rng.choice(self.workers).submit(job).result()

    # ---- captures ----
    def capture(self):
        r, p = self.rng, self.p
        if self.graphs and not p.get("keep_graphs") and r.random() < 0.3:
            _, _, handle = self.graphs.pop(r.randrange(len(self.graphs)))
            if handle in self.handles and not any(x[2] == handle for x in self.graphs):
                self.handles.remove(handle)  # nobody's now: PyTorch refuses to open it again
            return
        if len(self.graphs) > 40:
            return
        g = torch.cuda.CUDAGraph()
        if not self.handles or r.random() < 0.1:
            self.handles.append(torch.cuda.graph_pool_handle())
        choices = [None, self.handles[-1], r.choice(self.handles)] + [x[2] for x in self.graphs[-2:]]
        if p["devices"] > 1:
            choices = [None]
        handle = r.choice(choices)
        mine = [s for s in self.streams[self.device][1:]]
        stream = r.choice([None, *mine])
        if p["devices"] > 1 and stream is None:
            stream = torch.cuda.Stream(self.device)
        before = torch.cuda.current_stream()
        self.untold["captures"] += 1
        self.numbered += 1
        owner = self.numbered
        record = self.record
        with torch.cuda.graph(g, pool=handle, stream=stream):
            at = torch.cuda.current_stream()
            self.inside += 1
            if mine and r.random() < 0.4:  # fork: another stream joins the capture
                e = torch.cuda.Event()
                e.record(at)
                r.choice(mine).wait_event(e)
            if p.get("graph_record"):
                self.record = p["graph_record"]
            stray = r.random() < 0.3
            for _ in range(r.randint(1, p["graph_length"])):
                self.step(owner, keep_stream=not stray)
                if RELEASE >= (2, 8) and r.random() < 0.003:  # earlier releases refuse
                    self.empty_cache()
            torch.cuda.set_stream(at)
            if RELEASE >= (2, 6) and r.random() < 0.15:  # a scope inside the capture, for its stream
                k = torch.cuda.graph_pool_handle()
                torch._C._cuda_beginAllocateCurrentStreamToPool(self.device, k)
                for _ in range(6):
                    self.step(owner, keep_stream=True)
                end_scope(self.device, k)
                if not p.get("keep_graphs") and r.random() < 0.5:
                    torch._C._cuda_releasePool(self.device, k)
            self.inside -= 1
        self.record = record
        torch.cuda.set_stream(before)
        self.graphs.append((g, self.device, handle or g.pool()))

    def scope(self):
        """Allocation scopes opened by hand: for every thread, or (>= 2.9) for this one; several at once."""
        r, d = self.rng, self.device
        if not self.handles or r.random() < 0.2:
            self.handles.append(torch.cuda.graph_pool_handle())
        opened = r.sample(self.handles, min(len(self.handles), r.choice((1, 1, 2, 3))))
        for k in opened:
            begin = [torch._C._cuda_beginAllocateToPool]
            if RELEASE >= (2, 9):
                begin.append(torch._C._cuda_beginAllocateCurrentThreadToPool)
            r.choice(begin)(d, k)
            for _ in range(r.choice((0, 2, 10))):
                self.step(-1)
        for _ in range(r.choice((2, 10, 40))):
            self.step(-1)
        if r.random() < 0.2:
            self.elsewhere(lambda: [self.step(-1) for _ in range(4)])
        if r.random() < 0.5:
            opened.reverse()
        for k in opened:
            end_scope(d, k)
            for _ in range(r.choice((0, 2))):
                self.step(-1)
        for k in opened:
            self.opened[k] = self.opened.get(k, 0) + 1
            if r.random() < 0.3:
                for _ in range(self.opened.pop(k)):
                    torch._C._cuda_releasePool(d, k)
                self.handles.remove(k)  # nobody's now: its id may not be opened again

    def checkpoint(self):
        """Like cudagraph trees: captures, saves the state of the pool, captures more, and restores the state."""
        r, d = self.rng, self.device
        if not self.checkpoints or (r.random() < 0.1 and len(self.checkpoints) < 4):
            stream = r.choice(self.streams[d][1:] or [torch.cuda.Stream(d)])
            self.checkpoints.append(
                {
                    "handle": torch.cuda.graph_pool_handle(),
                    "stream": stream,
                    "graphs": [],
                    "state": None,
                    "owner": -10 - len(self.checkpoints),
                }
            )
        c = r.choice(self.checkpoints)
        owner = c["owner"]
        mine = [x for x in self.live if x[2] == owner]

        def storage(t):
            return t.untyped_storage() if isinstance(t, torch.Tensor) else t

        if c["state"] is not None and r.random() < 0.4:
            again = [torch._C._construct_storage_from_data_pointer(at, self.devices[d], n) for at, n in c["saved"]]
            torch._C._cuda_setCheckpointPoolState(
                d, c["state"], [storage(x[0])._cdata for x in mine], [x._cdata for x in again]
            )
            self.live[:] = [x for x in self.live if x[2] != owner] + [
                (t, n, owner) for t, (_, n) in zip(again, c["saved"])
            ]
            self.bytes = sum(x[1] for x in self.live)
            self.untold["restored"] = self.untold.get("restored", 0) + 1
            return
        record, self.record = self.record, 0
        g = torch.cuda.CUDAGraph()
        before = torch.cuda.current_stream()
        self.untold["captures"] += 1
        with torch.cuda.graph(g, pool=c["handle"], stream=c["stream"]):
            for _ in range(r.randint(1, 60)):
                self.step(owner, keep_stream=True)
        torch.cuda.set_stream(before)
        c["graphs"].append(g)
        self.record = record
        if c["state"] is None or r.random() < 0.5:
            c["state"] = torch._C._cuda_getCheckpointState(d, c["handle"])
            c["saved"] = [(storage(x[0]).data_ptr(), x[1]) for x in self.live if x[2] == owner]

    def mark(self):
        """Entries that are not decisions: annotations, and snapshots of everything or of one pool."""
        r = self.rng
        x = r.random()
        if x < 0.02 and self.untold.get("snapshots", 0) < 4:
            self.untold["snapshots"] = self.untold.get("snapshots", 0) + 1
            if self.pools and RELEASE >= (2, 10) and r.random() < 0.5:
                torch.cuda.memory_snapshot(r.choice(list(self.pools.values()))[0].id)
            else:
                torch.cuda.memory_snapshot()
        elif x < 0.6 and self.live and hasattr(torch._C, "_cuda_annotateMemory"):
            torch._C._cuda_annotateMemory(r.choice(self.live)[0].data_ptr(), f"note {r.randrange(50)}")
        elif hasattr(torch._C, "_cuda_setMemoryMetadata"):
            torch._C._cuda_setMemoryMetadata(r.choice(("", "forward", "backward")))

    # ---- settings changed in mid-run ----
    def reconfigure(self):
        r = self.rng
        parts = []
        if r.random() < 0.2:
            f = r.choice((0.3, 0.7, 1.0))
            torch.cuda.set_per_process_memory_fraction(f)
            self.untold["settings"].append([self.entries, f"fraction {f}"])
            return
        if r.random() < 0.5:
            parts.append(f"expandable_segments:{r.choice((True, False))}")
        if r.random() < 0.4:
            parts.append(f"max_split_size_mb:{r.choice((32, 64, 200))}")
        if r.random() < 0.4:
            parts.append(f"garbage_collection_threshold:{r.choice((0.3, 0.6, 0.9))}")
        if r.random() < 0.4:
            parts.append(f"roundup_power2_divisions:{r.choice((1, 4, 8))}")
        text = ",".join(parts)
        try:
            torch.cuda.memory._set_allocator_settings(text)
            self.untold["settings"].append([self.entries, text])
        except (RuntimeError, ValueError) as e:
            self.untold["settings"].append([self.entries, text, str(e).splitlines()[0]])

    # ---- the run ----
    def run(self, entries):
        stop = self.entries + entries
        threads = self.p.get("threads")
        try:
            while self.entries < stop:
                if self.left <= 0:
                    self.phase()
                if threads and self.rng.random() < 0.05:
                    n = self.rng.choice((1, 5, 30))
                    self.left -= n
                    self.elsewhere(lambda n=n: [self.step() for _ in range(n)])
                self.left -= 1
                self.step()
                self.events()
        except OOM as e:  # escaped from PyTorch's own code, such as the allocations a capture makes
            self.error = "escaped: " + str(e).splitlines()[0]
        except RuntimeError as e:
            self.error = recording.neutral(str(e))[:600]


_plug = []


def plug():
    if not _plug:
        _plug.append(
            torch.cuda.memory.CUDAPluggableAllocator(
                os.environ["LD_PRELOAD"], "stub_pluggable_alloc", "stub_pluggable_free"
            )
        )
    return _plug[0]


def main():
    warnings.simplefilter("ignore")
    with open(sys.argv[1]) as f:
        p = json.load(f)
    out = sys.argv[2]
    torch.cuda.init()
    if p["fraction"] is not None:
        for d in range(p["devices"]):
            torch.cuda.set_per_process_memory_fraction(p["fraction"], d)
    gc.collect()
    gc.freeze()  # a capture collects garbage: keep that cheap
    w = Workload(p)
    if p.get("late"):
        w.run(p["entries"] // 3)
        for d in range(p["devices"]):
            torch.cuda.reset_peak_memory_stats(d)
            torch.cuda.reset_accumulated_memory_stats(d)
    limit = {"max_entries": int(p["entries"] * p["ring"])} if p.get("ring") else {}
    torch.cuda.memory._record_memory_history(stacks="python", **limit)
    if w.error is None:
        w.run(p["entries"])
    if w.error is None:  # leave something to look at
        w.phase()
        w.p_alloc, w.order, w.most, w.flush, w.left = 0.65, "random", 1000, 0, 500
        w.target = min(w.target, w.usable * 0.9)
        w.run(800)
    untold = w.untold
    for d in range(p["devices"]):
        s = torch.cuda.memory_stats(d)
        for k in ("num_sync_all_streams", "num_alloc_retries", "num_oom_rejections"):
            if k in s:
                untold.setdefault(k, []).append(s[k])
    n = recording.write(out, {"plan": p, "error": w.error, "untold": untold})
    print(f"{sum(n)} entries, {untold['oom']} oom" + (f"; stopped: {w.error[:160]!r}" if w.error else ""))
    sys.stdout.flush()
    os._exit(0)  # the interpreter's own shutdown would free tensors in an order nobody asked about


main()
