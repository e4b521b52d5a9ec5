#!/usr/bin/env python3
"""Independent confirmation of `oomscope analyze`: confirm.py OOMSCOPE SNAPSHOT...

Reads each snapshot with Python's pickle module, computes every figure of `analyze` that follows from the snapshot
alone, with plain loops, and compares them with `OOMSCOPE analyze --format json`. Prints one line per mismatch, then a
summary; exits with 1 on any mismatch. Needs only Python 3.8. (`tests/suite/statistics.rs` compares with PyTorch's
statistics.)
"""

import gzip
import io
import json
import pickle
import subprocess
import sys
from pathlib import Path

MIB = 1 << 20
PENDING = ("active_pending_free", "active_awaiting_free")
GROW = ("segment_alloc", "segment_map")
SHRINK = ("segment_free", "segment_unmap")
DEFAULT_POOL = (0, 0)


# ---- reading -------------------------------------------------------------------------


class Unpickler(pickle.Unpickler):
    """Accepts only built-in types, and the tag that PyTorch's C++ pickler puts around every list and dict."""

    def find_class(self, module, name):
        if (module, name) == ("torch.jit._pickle", "restore_type_tag"):
            return lambda value, tag: value
        raise pickle.UnpicklingError(f"the file asks for {module}.{name}")


def read(path):
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    snapshot = json.loads(data) if data[:1] in b"{[" else Unpickler(io.BytesIO(data)).load()
    if isinstance(snapshot, list):  # torch.cuda.memory_snapshot()
        snapshot = {"segments": snapshot, "device_traces": []}
    return snapshot


def large_segment_bytes(snapshot):
    """20 MiB unless the settings string says otherwise."""
    text = snapshot.get("allocator_settings", {}).get("PYTORCH_CUDA_ALLOC_CONF") or ""
    for item in text.replace(" ", "").split(","):
        if item.startswith("large_segment_size_mb:"):
            return int(item.split(":")[1]) * MIB
    return 20 * MIB


def stack(frames):
    return [{"file": f["filename"], "line": f["line"], "name": f["name"]} for f in frames]


# ---- the figures, shaped as in the JSON of `analyze` ----------------------------------


def with_details(part):
    """The `details` of each part of an answer beside its promised keys."""
    if isinstance(part, list):
        return [with_details(item) for item in part]
    if isinstance(part, dict):
        return {
            key: with_details(value) for key, value in {**part, **part.pop("details", {})}.items() if key != "details"
        }
    return part


def ratio(part, whole):
    return part / whole if whole else 0.0


def total(blocks, key="size"):
    return sum(b[key] for b in blocks)


def count_and_bytes(items, key):
    return {"count": len(items), "bytes": total(items, key)}


def largest(blocks):
    return max([b["size"] for b in blocks], default=0)


def whole_granules(segment, block_at, block_size, granule):
    """Bytes of the block made of whole granules, counted from the segment's start."""
    low = block_at - segment["address"]
    high = low + block_size
    first = -(-low // granule) * granule  # rounded up
    last = high // granule * granule  # rounded down
    return max(0, last - first)


def releasable(segment, large):
    """Free bytes of this segment that empty_cache() would give back to the device."""
    if pool_of(segment) != DEFAULT_POOL:
        return 0
    blocks = segment["blocks"]
    if not segment.get("is_expandable", False):
        return total(blocks) if len(blocks) == 1 and blocks[0]["state"] == "inactive" else 0
    granule = large if segment["segment_type"] == "large" else 2 * MIB
    released, at = 0, segment["address"]
    for b in blocks:
        if b["state"] == "inactive":
            released += whole_granules(segment, at, b["size"], granule)
        at += b["size"]
    return released


def pool_of(segment):
    return tuple(segment.get("segment_pool_id", DEFAULT_POOL))


def segment_for(rounded, large):
    """Size of the segment that the allocator requests for this rounded size."""
    if rounded <= MIB:
        return 2 * MIB
    if rounded < 10 * MIB:
        return large
    return -(-rounded // (2 * MIB)) * (2 * MIB)


def split_free_blocks(segments):
    """Free blocks that have a neighbour in their (non-expandable) segment."""
    found = []
    for s in segments:
        if not s.get("is_expandable", False) and len(s["blocks"]) > 1:
            found += [b for b in s["blocks"] if b["state"] == "inactive"]
    return found


def blocks_of(segments, states=None):
    return [b for s in segments for b in s["blocks"] if states is None or b["state"] in states]


def device_figures(device, segments, trace, large):
    live = blocks_of(segments, ["active_allocated"])
    pending = blocks_of(segments, PENDING)
    free = blocks_of(segments, ["inactive"])
    active = live + pending
    reserved = total(segments, "total_size")
    allocated = total(live)
    requested = sum(b.get("requested_size", b["size"]) for b in active)
    split = total(split_free_blocks(segments))
    returned = sum(releasable(s, large) for s in segments)
    stranded = total(free) - returned
    rounding = total(active) - requested

    pools = []
    for pool in sorted({pool_of(s) for s in segments}):
        members = [s for s in segments if pool_of(s) == pool]
        pools.append(
            {
                "pool_id": list(pool),
                "reserved_bytes": total(members, "total_size"),
                "allocated_bytes": total(blocks_of(members, ["active_allocated"])),
                "inactive_bytes": total(blocks_of(members, ["inactive"])),
                "streams": sorted({s["stream"] for s in members}),
            }
        )
    streams = []
    for stream in sorted({s["stream"] for s in segments}):
        members = [s for s in segments if s["stream"] == stream]
        streams.append(
            {
                "stream": stream,
                "reserved_bytes": total(members, "total_size"),
                "allocated_bytes": total(blocks_of(members, ["active_allocated"])),
                "inactive_bytes": total(blocks_of(members, ["inactive"])),
                "largest_free_block_bytes": largest(blocks_of(members, ["inactive"])),
            }
        )

    # Reserved memory over time: backwards to the state before the first entry, then forwards.
    before = reserved
    for e in trace:
        before += e["size"] * ((e["action"] in SHRINK) - (e["action"] in GROW))
    reserved_after = []  # after each entry
    now = before
    ooms = []
    for i, e in enumerate(trace):
        now += e["size"] * ((e["action"] in GROW) - (e["action"] in SHRINK))
        reserved_after.append(now)
        if e["action"] == "oom":
            oom = {
                "event": i,
                "requested_bytes": e["size"],
                "segment_bytes": segment_for(e["size"], large),
                "stream": e["stream"],
                "device_free_bytes": e["device_free"],
                "reserved_bytes": now,
                "frames": stack(e.get("frames", [])),
            }
            if "time_us" in e:
                oom["time_us"] = e["time_us"]
            if "pool_id" in e:
                oom["pool_id"] = list(e["pool_id"])
            if all(later["action"] == "snapshot" for later in trace[i + 1 :]):
                oom["allocated_bytes"] = allocated
            ooms.append(oom)

    figures = {
        "device": device,
        "reserved_bytes": reserved,
        "allocated_bytes": allocated,
        "active_bytes": total(active),
        "requested_bytes": requested,
        "segments": {
            "count": len(segments),
            "small": count_and_bytes([s for s in segments if s["segment_type"] == "small"], "total_size"),
            "large": count_and_bytes([s for s in segments if s["segment_type"] == "large"], "total_size"),
            "expandable": count_and_bytes([s for s in segments if s.get("is_expandable", False)], "total_size"),
        },
        "blocks": {
            "active_allocated": count_and_bytes(live, "size"),
            "active_pending_free": count_and_bytes(pending, "size"),
            "inactive": count_and_bytes(free, "size"),
        },
        "pools": pools,
        "streams": streams,
        "fragmentation": {
            "gap_ratio": ratio(reserved - allocated, reserved),
            "inactive_split_bytes": split,
            "inactive_split_ratio": ratio(split, reserved),
            "releasable_bytes": returned,
            "stranded_bytes": stranded,
            "stranded_ratio": ratio(stranded, reserved),
            "largest_free_block_bytes": largest(free),
            "external_ratio": ratio(total(free) - largest(free), total(free)),
            "rounding_bytes": rounding,
            "rounding_ratio": ratio(rounding, total(active)),
        },
        "peak": {"reserved_bytes": max([before, *reserved_after])},
        "ooms": ooms,
    }
    return figures, before, reserved_after


def live_by_stack(segments):
    """{stack as text: [bytes, blocks]} over the live blocks."""
    rows = {}
    for b in blocks_of(segments, ["active_allocated"]):
        row = rows.setdefault(json.dumps(stack(b.get("frames", []))), [0, 0])
        row[0] += b["size"]
        row[1] += 1
    return rows


# ---- comparing -----------------------------------------------------------------------


def differences(where, want, got):
    """Everything in `want` that is missing or different in `got`. Ignores keys that only `got` has."""
    if isinstance(want, dict) and isinstance(got, dict):
        for key, value in want.items():
            if key in got:
                yield from differences(f"{where}.{key}", value, got[key])
            else:
                yield f"{where}.{key}: missing, should be {value}"
    elif isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            yield f"{where}: {len(got)} entries, should be {len(want)}"
        for i, (w, g) in enumerate(zip(want, got)):
            yield from differences(f"{where}[{i}]", w, g)
    elif isinstance(want, float):
        if not isinstance(got, (int, float)) or abs(want - got) > 1e-9:
            yield f"{where}: {got}, should be {want}"
    elif want != got:
        yield f"{where}: {got}, should be {want}"


def compare_binary(where, figures, segments, before, reserved_after, got):
    for pool in got.get("pools", []):
        pool["streams"] = sorted(pool["streams"])
    got["pools"] = sorted(got.get("pools", []), key=lambda p: p["pool_id"])
    got["streams"] = sorted(got.get("streams", []), key=lambda s: s["stream"])
    yield from differences(where, figures, got)

    peak = got.get("peak", {})
    at = peak.get("reserved_event")
    top = figures["peak"]["reserved_bytes"]
    if at is not None and top > before and not (0 <= at < len(reserved_after) and reserved_after[at] == top):
        yield f"{where}.peak.reserved_event: {at}, where reserved memory is not at its peak"
    if not figures["allocated_bytes"] <= peak.get("allocated_bytes", 0) <= peak.get("reserved_bytes", 0):
        yield f"{where}.peak.allocated_bytes: {peak.get('allocated_bytes')} lies outside allocated..peak reserved"

    rows = got.get("top_stacks", [])
    want = live_by_stack(segments)
    if (
        sum(r["bytes"] for r in rows) != figures["allocated_bytes"]
        or sum(r["blocks"] for r in rows) != figures["blocks"]["active_allocated"]["count"]
    ):
        yield f"{where}.top_stacks: do not add up to the live blocks"
    for r in rows:
        if abs(r["share_ratio"] - ratio(r["bytes"], figures["allocated_bytes"])) > 1e-9:
            yield f"{where}.top_stacks: share_ratio {r['share_ratio']} of {r['bytes']} bytes"
        if want.get(json.dumps(stack_of_row(r))) != [r["bytes"], r["blocks"]]:
            expected = want.get(json.dumps(stack_of_row(r)))
            yield f"{where}.top_stacks: {r['bytes']} bytes in {r['blocks']} blocks, should be {expected}"
    if len(rows) != len(want):
        yield f"{where}.top_stacks: {len(rows)} rows, should be {len(want)}"
    if [r["bytes"] for r in rows] != sorted((r["bytes"] for r in rows), reverse=True):
        yield f"{where}.top_stacks: not largest first"


def stack_of_row(row):
    return [{"file": f["file"], "line": f["line"], "name": f["name"]} for f in row["frames"]]


def confirm(path, oomscope):
    """Yields one text per mismatch."""
    snapshot = read(path)
    traces = snapshot.get("device_traces", [])
    large = large_segment_bytes(snapshot)
    run = subprocess.run([oomscope, "analyze", "--format", "json", "--top", "100000", str(path)], capture_output=True)
    if run.returncode != 0:
        yield f"{path}: analyze ended with status {run.returncode}: {run.stderr.decode(errors='replace').strip()}"
        return
    (answer,) = with_details(json.loads(run.stdout))["snapshots"]
    yield from differences(str(path), {"events": sum(map(len, traces))}, answer)
    answers = {d["device"]: d for d in answer["devices"]}

    devices = sorted({s["device"] for s in snapshot["segments"]} | {d for d, t in enumerate(traces) if t})
    if sorted(answers) != devices:
        yield f"{path}: devices {sorted(answers)}, should be {devices}"
    for d in devices:
        trace = traces[d] if d < len(traces) else []
        segments = [s for s in snapshot["segments"] if s["device"] == d]
        figures, before, reserved_after = device_figures(d, segments, trace, large)
        if not trace:
            figures["peak"]["allocated_bytes"] = figures["allocated_bytes"]
        if d in answers:
            where = f"{path}: device {d}"
            yield from compare_binary(where, figures, segments, before, reserved_after, answers[d])
        if trace and len(devices) == 1 and answer.get("truncated") != (before > 0):
            truncated = answer.get("truncated")
            yield f"{path}: truncated is {truncated}, but {before} bytes were reserved before the first entry"


def main():
    oomscope, *snapshots = sys.argv[1:]
    mismatches = [text for path in snapshots for text in confirm(Path(path), oomscope)]
    print(*mismatches, f"{len(snapshots)} files confirmed, {len(mismatches)} mismatches", sep="\n")
    sys.exit(bool(mismatches))


if __name__ == "__main__":
    main()
