"""What the parts of the GPU test share."""

import ast
import gzip
import json
import pickle
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs.py"
FIXTURES = HERE.parent.parent / "fixtures"
MIB = 1 << 20

# Programs whose largest size `fit` names, each on a device of so many bytes.
FITTED = {"gpt_bf16_autocast": 12288 * MIB, "vit_b_16": 8192 * MIB, "gpt_lengths_vary": 8192 * MIB}


def program_names():
    """The programs of `programs.py`, without importing torch."""
    tree = ast.parse(PROGRAMS.read_text())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(d).startswith("program(") for d in node.decorator_list)
    ]


def read_json(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode not in (0, 1, 3):
        raise RuntimeError(f"{command}: {done.stderr[-500:]}")
    return json.loads(done.stdout)


def mib(size):
    return "-" if size is None else f"{size / MIB:,.0f}"


def requests(recording):
    """The sizes that a recording of ours requested, in order. Read with CPython's pickle, not with oomscope."""
    with gzip.open(recording) as file:
        snapshot = pickle.load(file)
    traces = [trace for trace in snapshot["device_traces"] if trace]
    return [entry["size"] for trace in traces for entry in trace if entry["action"] == "alloc"]


def table(header, rows):
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join(lines + [f"| {' | '.join(map(str, row))} |" for row in rows]) + "\n"
