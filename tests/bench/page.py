#!/usr/bin/env python3
"""Measures the page of `oomscope report` in headless Chromium, and PyTorch's memory_viz for comparison.

    tests/bench/page.py [--oomscope target/release/oomscope] [--memory-viz DIR] [--runs 3] SNAPSHOT...

Prints for each snapshot the median over the runs of:
- the size of the page;
- the time from the start of loading to the first picture;
- the time from a turn of the wheel to the second frame after it;
- the size of the JavaScript heap with its typed arrays.

Times are wall time (p95) and processor time of all browser processes (mean), which other load hardly changes.

DIR contains `MemoryViz.js` with its imports, and `node_modules` with d3 (`npm install d3@7`). This script serves them
with a page like the one that `torch.cuda._memory_viz` writes. It needs only Python's standard library.
"""

import argparse
import base64
import functools
import http.server
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time

PROGRAMS = ["/usr/lib/chromium/chromium", "chromium", "chromium-browser", "google-chrome"]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run "
    "--remote-debugging-pipe --window-size=1600,1000"
)


class Browser:
    """DevTools over two pipes: JSON messages, each ended by a zero byte."""

    def __init__(self):
        program = next(path for path in map(shutil.which, PROGRAMS) if path)
        self.profile = tempfile.mkdtemp()
        command = f'exec "$0" {FLAGS} "--user-data-dir=$1" about:blank 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null'
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(["sh", "-c", command, program, self.profile], **pipes)
        self.last_id, self.rest, self.session = 0, b"", None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Runtime", "Page", "HeapProfiler"]:
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        while True:
            while b"\0" in self.rest:
                message, self.rest = self.rest.split(b"\0", 1)
                answer = json.loads(message)
                if answer.get("id") == self.last_id:
                    assert "error" not in answer, (method, answer)
                    return answer["result"]
            chunk = self.process.stdout.read1(1 << 20)
            assert chunk, "the browser ended"
            self.rest += chunk

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, url, is_there):
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        end = time.monotonic() + 300
        while not self.value(f"location.href !== 'about:blank' && !!({is_there})"):
            assert time.monotonic() < end, f"{url} was not drawn"
            time.sleep(0.02)

    def cpu_ms(self):
        """Processor time of the browser's processes so far."""
        descendants, ticks = {self.process.pid}, 0
        # Most processes have a higher number than their parent. Further passes find the others.
        for _ in range(3):
            ticks = 0
            for number in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
                try:
                    with open(f"/proc/{number}/stat") as file:
                        fields = file.read().rsplit(") ", 1)[1].split()
                except OSError:
                    continue
                if number in descendants or int(fields[1]) in descendants:
                    descendants.add(number)
                    ticks += int(fields[11]) + int(fields[12])
        return 1000 * ticks / os.sysconf("SC_CLK_TCK")

    def measure(self, turns, turn):
        """Times of `turns` evaluations of the scripts that `turn` returns."""
        before = self.cpu_ms()
        times = [self.value(turn(index)) for index in range(turns)]
        return {"p95 ms": p95(times), "mean cpu ms": (self.cpu_ms() - before) / turns}

    def heap_mb(self):
        self.call("HeapProfiler.collectGarbage")
        used = self.call("Runtime.getHeapUsage")
        return (used["usedSize"] + used.get("backingStorageSize", 0)) / 1e6

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


def p95(values):
    return sorted(values)[int(len(values) * 0.95)] if values else 0.0


FRAMES = "const frame = () => new Promise(requestAnimationFrame); const start = performance.now();"


def wheel(element, turns):
    """Scripts that zoom in and out again at different places, and return the milliseconds to the second frame."""
    return lambda at: (
        f"""(async () => {{ const element = {element}; element.scrollIntoView({{ block: 'center' }});
      const box = element.getBoundingClientRect(); {FRAMES}
      const clientX = box.left + box.width * {0.2 + 0.6 * (at % 7) / 7}, clientY = box.top + box.height * 0.4;
      const deltaY = {-240 if at < turns / 2 else 240};
      const turn = new WheelEvent('wheel', {{ deltaY, clientX, clientY, bubbles: true, cancelable: true }});
      document.elementFromPoint(clientX, clientY).dispatchEvent(turn);
      await frame(); await frame(); return performance.now() - start; }})()"""
    )


def drag(turns):
    """Scripts that move the slider over the whole trace."""
    return lambda at: (
        f"""(async () => {{ const slider = document.getElementById('slider'); {FRAMES}
      slider.value = {round(4000 * ((at * 7) % turns + 0.5) / turns)}; slider.dispatchEvent(new Event('input'));
      await frame(); await frame(); return performance.now() - start; }})()"""
    )


def measure_report(oomscope, snapshot, folder):
    page = os.path.join(folder, "page.html")
    subprocess.run([oomscope, "report", snapshot, "-o", page], check=True, stdout=subprocess.DEVNULL)
    browser = Browser()
    before = browser.cpu_ms()
    browser.open("file://" + page, "window.oomscope")
    browser.value("oomscope.ready.then(() => 1)")
    row = {
        "page MB": os.path.getsize(page) / 1e6,
        "first ms": browser.value("oomscope.timings.first[0]"),
        "first cpu ms": browser.cpu_ms() - before,
    }
    for mode in ["category", "line", "each"]:
        browser.value(f"oomscope.show({{ mode: '{mode}', start: 0, end: 1e12 }})")
        time.sleep(0.6)
        times = browser.measure(20, wheel("document.getElementById('timeline')", 20))
        row |= {f"zoom, {mode}: {key}": value for key, value in times.items()}
    browser.value("oomscope.show({ mode: 'category', start: 0, end: 1e12 })")
    time.sleep(0.6)
    row |= {f"moment: {key}": value for key, value in browser.measure(30, drag(30)).items()}
    row["heap MB"] = browser.heap_mb()
    browser.close()
    return row


def measure_memory_viz(folder, snapshot, kind):
    with open(snapshot, "rb") as file:
        data = file.read()
    data += b"\0" * (3 - len(data) % 3)
    local = json.dumps([{"name": "snapshot.pickle", "base64": base64.b64encode(data).decode()}])
    modules = os.path.join(folder, "node_modules")
    names = [name for name in os.listdir(modules) if name.startswith("d3") or name == "internmap"]
    imports = {}
    for name in [*names, "delaunator", "robust-predicates"]:
        with open(os.path.join(modules, name, "package.json")) as file:
            imports[name] = f"/node_modules/{name}/{json.load(file)['module']}"
    imports |= {
        f"https://cdn.jsdelivr.net/npm/{name}/+esm": imports[name.split("@")[0]]
        for name in ["d3@7", "d3-axis@3", "d3-scale@4", "d3-zoom@3", "d3-brush@3"]
    }
    page = os.path.join(folder, "bench.html")
    with open(page, "w") as out:
        out.write(
            f"<!doctype html><body><script type=importmap>{json.dumps({'imports': imports})}</script>"
            "<script type=module>"
            f"import {{add_local_files}} from '/MemoryViz.js'; add_local_files({local}, {kind!r});"
            "const look = () => { if (document.querySelectorAll('svg path, svg polygon, svg rect').length > 20) "
            "requestAnimationFrame(() => requestAnimationFrame(() => { window.drawn = performance.now(); })); "
            "else setTimeout(look, 5); }; look();</script></body>"
        )
    handler = functools.partial(
        type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None}), directory=folder
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = Browser()
    before = browser.cpu_ms()
    browser.open(f"http://127.0.0.1:{server.server_port}/bench.html", "window.drawn")
    row = {
        "page MB": os.path.getsize(page) / 1e6,
        "first ms": browser.value("window.drawn"),
        "first cpu ms": browser.cpu_ms() - before,
    }
    element = "[...document.querySelectorAll('svg')].find((one) => one.getBoundingClientRect().height > 200)"
    row |= {f"zoom: {key}": value for key, value in browser.measure(12, wheel(element, 12)).items()}
    row["heap MB"] = browser.heap_mb()
    browser.close()
    server.shutdown()
    os.remove(page)
    return row


def medians(rows):
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("snapshots", nargs="+")
    parser.add_argument("--oomscope", default="target/release/oomscope")
    parser.add_argument("--memory-viz")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    for snapshot in args.snapshots:
        with tempfile.TemporaryDirectory() as folder:
            tools = {"oomscope report": functools.partial(measure_report, args.oomscope, snapshot, folder)}
            if args.memory_viz:
                tools["memory_viz"] = functools.partial(
                    measure_memory_viz, args.memory_viz, snapshot, "Active Memory Timeline"
                )
            for name, tool in tools.items():
                print(f"{os.path.basename(snapshot)}: {name}", flush=True)
                for key, value in medians([tool() for _ in range(args.runs)]).items():
                    print(f"  {value:10.2f}  {key}", flush=True)


if __name__ == "__main__":
    main()
