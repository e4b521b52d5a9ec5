"""The runs to record: `plan(kind, release, seed)` determines a run completely.

A plan is a plain dictionary: the allocator settings, the stub device, the process limit and
the knobs of the workload in fuzz.py. Nothing here needs torch. `KINDS` says which kinds of run
there are, since which release each is possible, and what it is meant to reach.
"""

import random
import re
import zlib

MIB = 1 << 20

KINDS = {  # kind: (first release that has it, what it reaches)
    "plain": (
        (2, 1),
        "default settings, one stream, room to spare: rounding, pool choice, split and merge at every threshold",
    ),
    "tight": ((2, 1), "default settings, little memory: out of memory, release of the cache, retry"),
    "streams": ((2, 1), "many streams, record_stream, events that lag, synchronisation"),
    "streams-tight": ((2, 1), "the same with little memory"),
    "roundup": ((2, 1), "roundup_power2_divisions, single and by interval"),
    "maxsplit": ((2, 1), "max_split_size_mb, little memory: oversize blocks, release of available cached blocks"),
    "nonsplit": ((2, 6), "max_non_split_rounding_mb beside max_split_size_mb"),
    "gc": ((2, 1), "garbage_collection_threshold under a fraction"),
    "fraction": ((2, 1), "a fraction and nothing else"),
    "largeseg": ((2, 11), "large_segment_size_mb"),
    "expandable": ((2, 1), "expandable segments, streams, little or enough memory"),
    "expandable-mix": ((2, 1), "expandable segments with max_split, garbage collection, fraction and roundup"),
    "reserve": ((2, 15), "expandable_segments_reserve: several reservations, reservations too small"),
    "throw": ((2, 12), "throw_on_cudamalloc_oom"),
    "mempool": ((2, 6), "MemPool and use_mem_pool, nested, dropped empty and dropped in use"),
    "mempool-oom": ((2, 8), "MemPool(use_on_oom=True), little memory"),
    "mempool-nosplit": ((2, 10), "MemPool(no_split=True)"),
    "mempool-custom": ((2, 6), "MemPool over a pluggable allocator"),
    "mempool-expandable": ((2, 6), "MemPool with expandable segments; pools dropped only when empty"),
    "graph": ((2, 1), "graph captures into private pools, shared and their own; frees deferred by a capture"),
    "graph-tight": ((2, 1), "the same with little memory and with max_split"),
    "graph-expandable": ((2, 5), "the same with expandable segments; graphs kept until the end"),
    "checkpoint": ((2, 1), "the state of a private pool saved and put back, as cudagraph trees do"),
    "marks": ((2, 1), "annotations, metadata and snapshots taken in mid-run"),
    "scopes": ((2, 6), "allocation scopes opened by hand, for one thread or for all"),
    "devices": ((2, 1), "two devices, any settings"),
    "threads": ((2, 1), "allocations and frees from three threads that take turns"),
    "flaky": ((2, 1), "a driver that refuses although there is room"),
    "all": ((2, 1), "any settings at all, drawn together"),
    "late": ((2, 1), "recording started in mid-run (statistics reset there)"),
    "ring": ((2, 1), "a buffer too small for the run: the first entries are lost"),
    "reconfigure": ((2, 1), "settings changed at run time: a snapshot tells only the last ones"),
    "drift": ((2, 6), "private pools of expandable segments dropped in use: behaviour PyTorch leaves undefined"),
}
# Kinds whose snapshot does not determine the outcome: reported by compare.py, never counted as failures of a model.
UNDETERMINED = ("reconfigure", "drift", "ring")


def release_of(version):
    m = re.match(r"(\d+)\.(\d+)", version)
    return int(m[1]), int(m[2])


def possible(kind, release):
    return release >= KINDS[kind][0]


def _max_split(rng, least=21):
    return rng.choice([least, least + 1, 24, 32, 40, 50, 64, 100, 128, 200, 256, 512])


def _roundup(rng, release):
    if rng.random() < 0.4:
        return f"roundup_power2_divisions:{rng.choice([1, 2, 4, 8, 16, 32])}"
    bounds = sorted(rng.sample([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 32768], rng.randint(1, 5)))
    parts = [f"{b}:{rng.choice([0 if release >= (2, 5) else 1, 1, 2, 4, 8, 16])}" for b in bounds]
    if rng.random() < 0.6:
        parts.append(f">:{rng.choice([1, 2, 4, 8])}")
    return f"roundup_power2_divisions:[{','.join(parts)}]"


def plan(kind, version, seed):
    release = release_of(version)
    rng = random.Random(zlib.crc32(f"{kind}/{seed}".encode()))
    settings, p = [], {}

    def big():
        return rng.choice([40960, 81920])

    def little():
        return rng.choice([96, 150, 256, 400, 700, 1100, 1500, 2200, 3000]) + rng.choice([0, 0, 0, 1, 3, 10, 11])

    def streams():
        return rng.choice([2, 3, 4, 6, 9])

    def lag():
        return rng.choice([0, 1, 3, 10, 40, 200, 2000, 10**12])

    def limit():
        return rng.choice([0.1, 0.25, 0.333, 0.5, 0.6, 0.77, 0.9, 0.99, 1.0])

    p.update(
        capacity=big(),
        other=0,
        lag=0,
        jitter=0,
        devices=1,
        streams=1,
        fraction=None,
        placement=rng.choice(["lowest", "lowest", "highest", "random"]),
        fail_one_in=0,
    )

    def put(key, value):
        settings.append(f"{key}:{value}")

    def gc():
        put("garbage_collection_threshold", rng.choice([0.05, 0.2, 0.4, 0.5, 0.6, 0.75, 0.8, 0.95, 0.999]))
        p["fraction"] = limit()

    def expandable():
        put("expandable_segments", "True")

    def non_split():
        if release >= (2, 6):
            put("max_non_split_rounding_mb", rng.choice([21, 22, 30, 64, 200]))

    def private(n):
        p.update(pools=n, pool_rate=rng.choice([0.02, 0.08, 0.2]), pool_drop=rng.choice([0.1, 0.3, 0.6]))

    def graphs():
        p.update(
            graph_rate=rng.choice([0.002, 0.005, 0.01]),
            graph_length=rng.choice([5, 20, 60]),
            graph_record=rng.choice([0, 0, 0.15]),
        )

    if kind == "plain":
        pass
    elif kind == "tight":
        p["capacity"] = little()
        p["other"] = rng.choice([0, 0, 20, 35])
    elif kind == "streams":
        p.update(streams=streams(), lag=lag(), jitter=rng.choice([0, 0, 5, 50]))
    elif kind == "streams-tight":
        p.update(streams=streams(), lag=lag(), jitter=rng.choice([0, 0, 5, 50]), capacity=little())
    elif kind == "roundup":
        settings.append(_roundup(rng, release))
        p["capacity"] = rng.choice([big(), little()])
    elif kind in ("maxsplit", "nonsplit"):
        put("max_split_size_mb", _max_split(rng))
        p["capacity"] = rng.choice([little(), little() + 2000, little() + 4000])
        p["streams"] = rng.choice([1, 1, 2, 3])
        p["lag"] = lag() if p["streams"] > 1 else 0
        if kind == "nonsplit":
            non_split()
    elif kind == "gc":
        gc()
        p["capacity"] = rng.choice([little(), little() + 2000])
        if rng.random() < 0.4:
            put("max_split_size_mb", _max_split(rng))
        if rng.random() < 0.3:
            p.update(streams=streams(), lag=lag())
    elif kind == "fraction":
        p.update(fraction=limit(), capacity=rng.choice([little(), little() + 2000]))
        if release >= (2, 10) and rng.random() < 0.4:
            put("per_process_memory_fraction", p["fraction"])
            p["fraction"] = None
    elif kind == "largeseg":
        size = rng.choice([11, 12, 16, 30, 40, 64, 128])
        put("large_segment_size_mb", size)
        p["capacity"] = rng.choice([little() + 300, little() + 2000, big()])
        if rng.random() < 0.4:
            expandable()
        if rng.random() < 0.5:
            put("max_split_size_mb", _max_split(rng, size))
            settings[-1] = f"max_split_size_mb:{max(size, int(settings[-1].split(':')[1]))}"
        p["streams"] = rng.choice([1, 1, 3])
    elif kind == "expandable":
        expandable()
        p.update(capacity=rng.choice([little(), little(), big()]), streams=rng.choice([1, 1, 2, 4]))
        p["lag"] = lag() if p["streams"] > 1 else 0
    elif kind == "expandable-mix":
        expandable()
        p["capacity"] = rng.choice([little(), little(), little() + 3000, big()])
        if release >= (2, 8) and rng.random() < 0.6:  # before, releasing an available block of one stops the process
            put("max_split_size_mb", _max_split(rng))
            if rng.random() < 0.4:
                non_split()
        if release >= (2, 8) and rng.random() < 0.4:
            gc()
        elif rng.random() < 0.4:
            p["fraction"] = limit()
        if rng.random() < 0.3:
            settings.append(_roundup(rng, release))
        p["streams"] = rng.choice([1, 1, 3])
        p["lag"] = lag() if p["streams"] > 1 else 0
    elif kind == "reserve":
        expandable()
        put("expandable_segments_reserve", rng.choice(["0.1", "0.25", "0.5", "1.0", "1G", "2G"]))
        p.update(capacity=rng.choice([little(), little() + 1500, little() + 4000]), streams=rng.choice([1, 2, 4]))
        p["lag"] = lag() if p["streams"] > 1 else 0
    elif kind == "throw":
        put("throw_on_cudamalloc_oom", "True")
        p["capacity"] = little()
        if rng.random() < 0.4:
            put("per_process_memory_fraction", limit())
        if rng.random() < 0.4:
            expandable()
        p["streams"] = rng.choice([1, 3])
    elif kind.startswith("mempool"):
        private(rng.choice([1, 2, 4]))
        p["capacity"] = rng.choice([little(), little() + 1000, big()])
        if rng.random() < 0.4:
            p.update(streams=streams(), lag=lag())
        if kind == "mempool-oom":
            p.update(use_on_oom=0.7, capacity=little())
        if kind == "mempool-nosplit":
            p.update(no_split=0.6, use_on_oom=rng.choice([0, 0.3]))
        if kind == "mempool-custom":
            p["custom"] = 0.6
            if release >= (2, 10) and rng.random() < 0.5:
                expandable()
                p["drop_empty_only"] = True
        if kind == "mempool-expandable":
            expandable()
            p["drop_empty_only"] = True
        elif kind != "mempool-custom" and rng.random() < 0.3:
            put("max_split_size_mb", _max_split(rng))
        p["nested"] = rng.choice([0, 0.2])
        p["in_thread"] = rng.choice([0, 0, 0.03])
        if kind == "mempool-custom" and release < (2, 8):  # scopes of other pools stop the process
            p["nested"] = p["in_thread"] = 0
        if p.get("use_on_oom"):  # probing a pool whose scope another thread has open is an error
            p["in_thread"] = 0
    elif kind.startswith("graph"):
        graphs()
        p["streams"] = rng.choice([1, 2, 4])
        p["lag"] = lag() if p["streams"] > 1 else 0
        if kind == "graph-tight":
            p["capacity"] = little()
            if rng.random() < 0.5:
                put("max_split_size_mb", _max_split(rng))
        elif kind == "graph-expandable":
            expandable()
            p.update(capacity=rng.choice([little() + 500, big()]), keep_graphs=True)
    elif kind == "checkpoint":
        p.update(
            checkpoint_rate=rng.choice([0.002, 0.006]),
            streams=rng.choice([1, 3]),
            capacity=rng.choice([little() + 500, big()]),
        )
        if release >= (2, 11) and rng.random() < 0.3:  # earlier ones cannot restore a segment that was split
            expandable()
    elif kind == "marks":
        p.update(marks=0.02, streams=rng.choice([1, 3]), capacity=rng.choice([little(), big()]))
        if release >= (2, 6) and rng.random() < 0.5:
            private(2)
        elif rng.random() < 0.5:
            expandable()
    elif kind == "scopes":
        p.update(
            scope_rate=rng.choice([0.005, 0.02]), streams=streams(), lag=lag(), capacity=rng.choice([little(), big()])
        )
    elif kind == "devices":
        p.update(devices=2, capacity=rng.choice([little(), little() + 1500, big()]), streams=rng.choice([1, 3]))
        p["lag"] = lag() if p["streams"] > 1 else 0
        what = rng.randrange(5)
        if what == 1:
            expandable()
        elif what == 2:
            put("max_split_size_mb", _max_split(rng))
        elif what == 3:
            gc()
        elif what == 4 and release >= (2, 6):
            private(3)
    elif kind == "threads":
        p.update(threads=3, streams=rng.choice([1, 3]), capacity=rng.choice([little(), big()]))
        if rng.random() < 0.3:
            expandable()
    elif kind == "flaky":
        p.update(
            fail_one_in=rng.choice([3, 8, 30]),
            capacity=rng.choice([little() + 1000, big()]),
            streams=rng.choice([1, 3]),
            lag=lag(),
        )
        what = rng.randrange(4)
        if what in (1, 2):
            expandable()
        elif what == 3:
            put("max_split_size_mb", _max_split(rng))
    elif kind in ("all", "late", "ring", "reconfigure"):
        p.update(
            capacity=rng.choice([little(), little() + 2000, big()]),
            streams=rng.choice([1, 3, 6]),
            lag=lag(),
            jitter=rng.choice([0, 7]),
            devices=rng.choice([1, 1, 1, 2]),
        )
        chosen = rng.random() < 0.35
        if chosen:
            expandable()
        if rng.random() < 0.4 and not (chosen and release < (2, 8)):
            size = 20
            if release >= (2, 11) and rng.random() < 0.4:
                size = rng.choice([11, 16, 30])
                put("large_segment_size_mb", size)
            put("max_split_size_mb", max(size, _max_split(rng)))
            if rng.random() < 0.5:
                non_split()
                if release >= (2, 6):
                    settings[-1] = f"max_non_split_rounding_mb:{max(size, int(settings[-1].split(':')[1]))}"
        if rng.random() < 0.35 and not (chosen and release < (2, 8)):
            gc()
        elif rng.random() < 0.2:
            p["fraction"] = limit()
        if rng.random() < 0.3:
            settings.append(_roundup(rng, release))
        if release >= (2, 2) and rng.random() < 0.2:
            put("release_lock_on_cudamalloc", "True")
        if not chosen and release >= (2, 6) and rng.random() < 0.4:
            private(3)
            if release >= (2, 10):
                p["no_split"] = rng.choice([0, 0.4])
            if release >= (2, 8):
                p["use_on_oom"] = rng.choice([0, 0.4])
        elif rng.random() < 0.3 and not (chosen and release < (2, 5)):
            graphs()
            p["keep_graphs"] = chosen
        if kind == "late":
            p["late"] = True
        if kind == "ring":
            p["ring"] = rng.choice([0.1, 0.5, 0.9])
        if kind == "reconfigure":
            p["reconfigure"] = rng.choice([0.0005, 0.003])
    elif kind == "drift":
        expandable()
        private(3)
        graphs()
        p.update(capacity=rng.choice([little(), little() + 2000, big()]), streams=rng.choice([1, 3]))
    else:
        raise KeyError(kind)
    if release < (2, 2):
        settings = [s for s in settings if not s.startswith(("release_lock", "max_non_split"))]
    rng.shuffle(settings)
    settings.sort(key=lambda s: s.startswith("roundup"))
    p.update(kind=kind, seed=seed, settings=",".join(settings), entries=int(20000 * 10 ** rng.random()))
    return p


def name(p):
    """kind, settings, capacity, limits, seed; fit for a file name."""
    short = {
        "expandable_segments:True": "es",
        "max_split_size_mb:": "ms",
        "max_non_split_rounding_mb:": "ns",
        "garbage_collection_threshold:": "gc",
        "roundup_power2_divisions:": "round",
        "large_segment_size_mb:": "ls",
        "expandable_segments_reserve:": "rsv",
        "per_process_memory_fraction:": "ppf",
        "throw_on_cudamalloc_oom:True": "throw",
        "release_lock_on_cudamalloc:True": "lock",
    }
    s = p["settings"]
    for long, brief in short.items():
        s = s.replace(long, brief)
    s = re.sub(r"[^A-Za-z0-9.]+", "_", s.replace(",", "-").replace(">", "gt")).strip("_") or "default"
    extra = "".join(
        f"-{k}{p[v]}"
        for k, v in (
            ("fr", "fraction"),
            ("lag", "lag"),
            ("st", "streams"),
            ("dev", "devices"),
            ("other", "other"),
            ("fail", "fail_one_in"),
        )
        if p[v] and not (v in ("streams", "devices") and p[v] == 1)
    )
    return f"{p['kind']}--{s}--{p['capacity']}m{extra}--s{p['seed']}".replace("lag1000000000000", "lagmax")
