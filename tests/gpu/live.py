"""`oomscope live`: recordings replayed on the GPU, and what the driver does."""

import json
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import driver as cuda
from support import FIXTURES, HERE, MIB, mib, table

BESIDE = 8
SECONDS = 60
RESERVE = ("--reserve", "0")


def fixtures(only):
    names = sorted(path for path in FIXTURES.glob("*.pickle.gz") if "no-history" not in path.name)
    return [path for path in names if only is None or only in path.name]


class Live:
    def __init__(self, oomscope):
        self.oomscope = oomscope

    def start(self, *arguments):
        command = [self.oomscope, "live", "--format", "json", *map(str, arguments)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process):
        """The exit code, the report or None, and the first line of the error."""
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return None, None, f"not finished after {SECONDS} s"
        try:
            report = json.loads(out)
        except ValueError:
            report = None
        return process.returncode, report, err.strip()

    def run(self, *arguments):
        return self.finish(self.start(*arguments))


def corpus(live, only):
    """All recordings under three sets of options: the number of devices, and those that differ from the prediction."""
    variants = {
        "as recorded": [],
        "expandable_segments:True": ["--set", "expandable_segments:True"],
        "--touch": ["--touch"],
    }
    rows, calls = [], {}
    for name, options in variants.items():
        # One at a time where the driver's count is read, which includes other processes.
        with ThreadPoolExecutor(1 if not options else BESIDE) as pool:
            results = list(pool.map(lambda path, options=options: (path, *live.run(*options, path)), fixtures(only)))
        devices = [device for _, _, report, _ in results if report for device in report["devices"]]
        refused = [f"{path.name}: {err.splitlines()[-1]}" for path, _, report, err in results if not report]
        different = [
            f"{path.name}: {device['first_difference']}"
            for path, _, report, _ in results
            for device in (report or {}).get("devices", [])
            if not device["as_predicted"]
        ]
        over = [device["driver_peak_bytes"] - device["peak_reserved_bytes"] for device in devices]
        between = f"{mib(min(over, default=None))} to {mib(max(over, default=None))}" if not options else "-"
        rows.append((name, len(results), len(devices), len(different), len(refused), between))
        for line in different + refused:
            print(f"{name}: {line}", flush=True)
        for device in devices:
            for kind, times in device["calls"].items():
                calls.setdefault((name, kind), []).append(times)
    header = [
        "options",
        "recordings",
        "devices",
        "other decisions",
        "not replayed",
        "driver's count less reserved, MiB",
    ]
    text = table(header, rows)
    timed = []
    for (name, kind), times in calls.items():
        count = sum(one["count"] for one in times)
        if count:
            slowest = max(one["p99_us"] for one in times)
            timed.append((name, kind, f"{count:,}", round(sum(one["total_us"] for one in times) / count), slowest))
    return text + "\n" + table(["options", "driver call", "calls", "mean, us", "largest p99, us"], timed)


def large_trace(path, count, size):
    """A snapshot of `count` requests of `size` bytes, each in a segment of its own, none freed."""
    frames = [{"filename": "large.py", "line": 1, "name": "large"}]
    trace, base = [], 0x7F0000000000
    for number in range(count):
        entry = {"addr": base + number * size, "size": size, "stream": 0, "time_us": 1000 + number, "frames": frames}
        trace += [{"action": "segment_alloc", **entry}, {"action": "alloc", **entry}]
    segments = [
        {
            "device": 0, "address": base + number * size, "total_size": size, "allocated_size": size,
            "active_size": size, "requested_size": size, "stream": 0, "segment_type": "large",
            "segment_pool_id": (0, 0), "is_expandable": False, "frames": frames,
            "blocks": [{"address": base + number * size, "size": size, "requested_size": size,
                        "state": "active_allocated", "frames": frames}],
        }
        for number in range(count)
    ]  # fmt: skip
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": [trace], "allocator_settings": {}}))
    return path


def driver_part(driver):
    sizes = [1, 512, 65536, MIB, 2 * MIB, 2 * MIB + 512, 3 * MIB, 20 * MIB, 21 * MIB, 22 * MIB, 200 * MIB, 2048 * MIB]
    driver.free(driver.allocate(2 * MIB))
    rows = [
        (f"{size:,}", f"{used / MIB:g}", f"{left / MIB:g}", round(took), round(freed))
        for size, used, left, took, freed in cuda.rounding(driver, sizes)
    ]
    taken = driver.take_all_but(0)
    left = driver.memory()[0]
    for address in taken:
        driver.free(address)
    text = table(["cuMemAlloc of bytes", "free memory falls, MiB", "still after the free, MiB", "us", "free, us"], rows)
    return (
        text + f"\nWith all memory taken in pieces of 1,024, 64 and 2 MiB, the driver reports {mib(left)} MiB free.\n"
    )


def beside(live, driver, directory):
    """Two replays at once, other processes, and Ctrl-C. The driver's count of free memory must come back each time."""
    free, total = driver.memory()
    rows = []

    def note(what, result):
        time.sleep(0.3)
        rows.append((what, result, mib(free - driver.memory()[0])))

    context = subprocess.Popen([sys.executable, HERE / "driver.py", "context"], stdin=-1, stdout=-1, text=True)
    context.stdout.readline()
    used = free - driver.memory()[0]
    context.communicate("")
    note("a context of another process", f"{mib(used)} MiB")

    half = large_trace(directory / "half.pickle", int(total * 0.4) // (12 * MIB), 12 * MIB)
    pair = [live.start("--touch", half), live.start("--touch", half)]
    codes = [live.finish(process)[0] for process in pair]
    note(f"two replays of {mib(half_bytes(half))} MiB at once", f"exit codes {codes}")

    for seconds in (0.3, 0.5, 0.7, 1.0):
        process = live.start("--touch", half)
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        code, _, err = live.finish(process)
        note(f"Ctrl-C after {seconds} s", f"exit code {code}: {err.splitlines()[-1] if err else 'the replay was over'}")

    for leave in (3072 * MIB, 64 * MIB):
        holder = subprocess.Popen(
            [sys.executable, HERE / "driver.py", "hold", str(leave)], stdin=-1, stdout=-1, text=True
        )
        held = holder.stdout.readline().strip()
        code, report, err = live.run(*RESERVE, half)
        holder.communicate("")
        if report:
            device = report["devices"][0]
            difference = device["first_difference"] or {}
            result = (
                f"exit code {code}: {mib(report['gpu']['within_reach_bytes'])} MiB within reach, "
                f"{mib(device['peak_reserved_bytes'])} reserved, as predicted: {device['as_predicted']}, refused "
                f"{mib(difference.get('refused_bytes'))} MiB with {mib(difference.get('driver_free_bytes'))} MiB free"
            )
        else:
            result = f"exit code {code}: {err.splitlines()[-1]}"
        note(f"another process leaves {mib(int(held))} MiB, --reserve 0", result)

    process = live.start(*RESERVE, "--touch", half)
    holder = subprocess.Popen([sys.executable, HERE / "driver.py", "hold", "0"], stdin=-1, stdout=-1, text=True)
    holder.stdout.readline()
    code, report, err = live.finish(process)
    holder.communicate("")
    difference = report["devices"][0]["first_difference"] if report else err
    note("another process takes all memory during the replay", f"exit code {code}: {difference}")
    return table(["what", "result", "free memory missing afterwards, MiB"], rows)


def half_bytes(path):
    with open(path, "rb") as file:
        return sum(segment["total_size"] for segment in pickle.load(file)["segments"])


def live_part(context):
    live = Live(context.oomscope)
    _, report, err = live.run(fixtures(None)[0])
    if report is None:
        return f"`oomscope live` does not run: {err}\n"
    gpu = report["gpu"]
    text = (
        f"{gpu['name']}, CUDA {gpu['cuda_version']}, {mib(gpu['total_bytes'])} MiB, {mib(gpu['free_bytes'])} free\n\n"
    )
    text += corpus(live, context.only)
    if context.is_stub:
        return text + "\nOver a stub: other processes and the driver's rounding were not tested.\n"
    driver = cuda.Driver()
    text += "\n" + driver_part(driver)
    text += "\n" + beside(live, driver, context.scratch)
    script = HERE.parent / "live" / "beside_pytorch.py"
    done = subprocess.run([context.python, script, context.oomscope], capture_output=True, text=True)
    return text + f"\nPyTorch and the replay of its recording:\n\n```\n{(done.stdout + done.stderr)[-2000:]}```\n"
