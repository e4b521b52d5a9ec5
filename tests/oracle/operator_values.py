#!/usr/bin/env python3
"""Values that a dry run computes, for every operator of PyTorch's own list of tests (`op_db`), against the CPU.

usage: operator_values.py OOMSCOPE PYTHON

PYTHON needs torch, expecttest and hypothesis. Each operator runs on up to three of its sample inputs. A value may be
computed, drawn, or unknown and then zero; the values of other tensors must stay known. The exit code is 1 if an
operator made another tensor unknown.
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings


def moved(value, device):
    if hasattr(value, "detach"):
        # A copy on either device: a view of a larger storage would keep it on the CPU alone.
        return value.detach().to(device, copy=True)
    if isinstance(value, (list, tuple)):
        return type(value)(moved(one, device) for one in value)
    if isinstance(value, dict):
        return {key: moved(one, device) for key, one in value.items()}
    return value


def tensors(value):
    if hasattr(value, "detach"):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for part in parts for tensor in tensors(part)]


def compare(got, expected, torch):
    """`right`, `zero` (unknown) or `differs`, as random numbers do: another generator draws them on a GPU."""
    for one, other in zip(got, expected):
        if one.layout != torch.strided or other.layout != torch.strided:
            continue
        one, other = one.detach().cpu(), other.detach()
        if one.shape != other.shape:
            return "differs"
        exact = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
        if not torch.allclose(one.to(exact), other.to(exact), rtol=1e-3, atol=1e-4, equal_nan=True):
            return "differs" if one.any() else "zero"
    return "right"


def outcome(op, torch):
    try:
        dtype = torch.float32 if torch.float32 in op.dtypes else min(op.dtypes, key=str)
        samples = [sample for _, sample in zip(range(3), op.sample_inputs("cpu", dtype))]
    except Exception:
        return "no sample"
    found = "no sample"
    for sample in samples:
        arguments = (sample.input, *sample.args)
        try:
            expected = tensors(op.op(*moved(arguments, "cpu"), **moved(sample.kwargs, "cpu")))
        except Exception:
            continue
        other = torch.tensor([3, 1, 2]).cuda()
        keywords = moved(sample.kwargs, "cuda")
        if "device" in keywords:
            keywords["device"] = "cuda"
        try:
            got = tensors(op.op(*moved(arguments, "cuda"), **keywords))
        except Exception:
            return "raises"
        if other.tolist() != [3, 1, 2]:
            return "makes others unknown"
        found = compare(got, expected, torch)
        if found != "right":
            return found
    return found


def program():
    warnings.filterwarnings("ignore")
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    found = {}
    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        found.setdefault(outcome(op, torch), []).append(name)
    print(json.dumps(found))


def main(oomscope, python):
    with tempfile.TemporaryDirectory() as directory:
        command = [oomscope, "dry-run", "-o", f"{directory}/out", "--", python, os.path.abspath(__file__), "--program"]
        done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    found = json.loads(lines[-1])
    for name, operators in sorted(found.items(), key=lambda row: -len(row[1])):
        listed = "" if name in ("right", "zero") else f": {', '.join(sorted(set(operators)))}"
        print(f"{len(set(operators)):5} {name}{listed}")
    return 1 if "makes others unknown" in found or "Exception ignored" in done.stderr else 0


if __name__ == "__main__":
    if sys.argv[1] == "--program":
        program()
    else:
        sys.exit(main(os.path.abspath(sys.argv[1]), sys.argv[2]))
