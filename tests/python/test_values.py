"""Values that a dry run computes on the host, where OOMSCOPE_TORCH_PYTHON is a Python with PyTorch built for CUDA."""

import gzip
import os
import pickle
import subprocess
import textwrap

import pytest

from conftest import program

PYTHON = os.environ.get("OOMSCOPE_TORCH_PYTHON")
pytestmark = pytest.mark.skipif(not PYTHON, reason="OOMSCOPE_TORCH_PYTHON is not set")


def dry_run(directory, source, arguments=(), options=(), **environment):
    """Runs a program. Returns what it printed, and its snapshot."""
    (directory / "job.py").write_text(textwrap.dedent(source))
    command = [program(), "dry-run", "-o", "out", *options, "--", PYTHON, "job.py", *arguments]
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, env={**os.environ, **environment, "PYTHONHASHSEED": "0"}
    )
    assert done.returncode == 0, done.stderr
    (snapshot,) = (directory / "out").glob("*.pickle.gz")
    return done.stdout, pickle.loads(gzip.decompress(snapshot.read_bytes()))


# It prints the same on the host, where every operator runs.
READS = """
import sys, threading, torch
from torch.nn import functional as F
device = sys.argv[1]
x = torch.arange(10, device=device)
def show(*values):
    print(*(value.tolist() if torch.is_tensor(value) else value for value in values))
show(x.sum(), x.float().mean(), (x > 4).nonzero(), x[x > 6], x.max(), bool((x == 3).any()), len(x[x < 0]))
grid = torch.zeros(3, 4, dtype=torch.long, device=device)
grid[1, 2] = 7
grid[:, 0] += 2
grid.T[3].fill_(5)
show(grid, torch.unique(grid, return_counts=True)[1], grid.t().contiguous(), grid.view(-1)[3:9])
show(torch.cat([x, torch.tensor([3], device=device)]), torch.where(x % 2 == 0, x, -x), torch.bincount(x % 3))
show(torch.repeat_interleave(torch.tensor([2, 3], device=device)), F.one_hot(x % 3), torch.eye(2, device=device))
show(x.to(torch.int32).clone()[2:5], x.cumsum(0), x.flip(0), torch.sort(-x).indices, x.cpu() + 1, x.half() * 0.5)
part = torch.empty(6, device=device)
part[:2] = 1.5
part[2:].copy_(torch.arange(4))
show(part, part[1:3], torch.linspace(0, 1, 3, device=device))
out = torch.empty(0, dtype=torch.long, device=device)
torch.add(x, x, out=out)
show(out, out.masked_select(out > 9), torch.equal(out, 2 * x), torch.isfinite(part).all())
show(2 ** x, torch.pow(2.0, part), torch.isin(x, x[:2]))
with torch.inference_mode():
    y = x * 2
y = y + 1
show(y)
w = torch.ones(3, device=device, requires_grad=True)
(w * torch.tensor([1.0, 2.0, 3.0], device=device)).sum().backward()
show(w.grad)
thread = threading.Thread(target=lambda: show(torch.arange(3, device=device)))
thread.start()
thread.join()
freed = [torch.full((1000,), i, device=device) for i in range(50)]
del freed
fresh = torch.full((1000,), 7, device=device)
show(fresh.sum())
"""


def test_small_tensors_have_the_values_of_the_host(tmp_path):
    (tmp_path / "gpu").mkdir()
    on_device, _ = dry_run(tmp_path / "gpu", READS, ["cuda"])
    on_host = subprocess.check_output([PYTHON, "-c", READS, "cpu"], text=True)
    assert on_device == on_host


# It reads nothing, and has views, in-place operators, `out`, streams, autocast, checkpoints and random numbers.
SILENT = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.LayerNorm(256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
data = torch.randn(32, 64, device="cuda")
for step in range(3):
    with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):  # its cache is freed in any order
        loss = checkpoint(model, data, use_reentrant=False).float().square().mean()
    loss.backward()
    optimizer.step()
    for parameter in model.parameters():
        parameter.grad = None
    mask = torch.rand(32, 64, device="cuda") > 0.5
    picked = torch.where(mask, data, 0).topk(4, dim=1).indices
    data = data + torch.zeros_like(data).scatter_(1, picked, 1.0)
    data.t()[3].mul_(2)
    torch.mul(data, 2, out=torch.empty_like(data))
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    data.record_stream(side)
    nn.functional.conv1d(data[None], torch.ones(8, 32, 3, device="cuda"))
torch.randperm(100, device="cuda").sort()
torch.func.vmap(lambda row: row.softmax(0))(data)
"""


def trace(snapshot):
    return [
        [{key: value for key, value in entry.items() if key != "time_us"} for entry in entries]
        for entries in snapshot["device_traces"]
    ]


def test_the_recording_of_a_program_that_reads_nothing_is_the_same_without_values(tmp_path):
    snapshots = []
    for name, environment in (("with", {}), ("without", {"OOMSCOPE_NO_VALUES": "1"})):
        (tmp_path / name).mkdir()
        snapshots.append(dry_run(tmp_path / name, SILENT, **environment)[1])
    first, second = snapshots
    paths = [str(tmp_path / name) for name in ("with", "without")]
    assert repr(trace(first)).replace(paths[0], "") == repr(trace(second)).replace(paths[1], "")
    assert first["segments"] == second["segments"] or repr(first["segments"]).replace(paths[0], "") == repr(
        second["segments"]
    ).replace(paths[1], "")


def test_what_was_drawn_or_not_known_is_marked(tmp_path):
    source = """
    import torch
    w = torch.randn(2000, 2000, device="cuda")
    print((w @ w)[0].argmax().item())
    print(torch.rand((), device="cuda").item())
    print((w @ w).sum().item())
    print((w[0] > 9e9).any().item())
    print(torch.arange(3, device="cuda").sum().item())
    """
    _, snapshot = dry_run(tmp_path, source)
    ledger = snapshot["oomscope"]["dry_run"]
    assert [read["value"] for read in ledger["reads"]] == ["assumed", "random", "zero", "zero"]
    assert ledger["reads_known"] == 1


def test_a_set_value_leaves_the_other_reads_as_they_are(tmp_path):
    source = """
    import torch
    w = torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")
    print((w > 3).to(torch.int32)[0, :2].tolist(), w.half()[0, :2].tolist())
    print(w.bfloat16()[0, 0].item(), (w.sum() > 3).item())
    log = {"loss": w.mean().item()}
    print(log)
    """
    printed, snapshot = dry_run(tmp_path, source, options=["--value", "job.py:4=3", "--value", "job.py:5=2.5"])
    assert printed == "[3, 3] [3.0, 3.0]\n2.5 True\n{'loss': 0.0}\n"
    assert [read["usage"] for read in snapshot["oomscope"]["dry_run"]["reads"]] == ["set", "set", "report"]


# The backward pass looks through the same mask, in a thread of its own.
MASK = """
import torch
layer = torch.nn.Linear(4, 4).cuda()
x = torch.randn(1000, 4, device="cuda")
mask = layer(x)[:, 0] > 0
out = torch.zeros(1000, 4, device="cuda")
out[mask] = layer(x[mask])
out.sum().backward()
print(*x[mask].shape, *out[mask].shape, out.masked_select(mask[:, None]).numel(), out.unique().numel())
"""


def test_a_mask_has_as_many_elements_as_are_set(tmp_path):
    printed, _ = dry_run(tmp_path, MASK, options=["--value", "job.py:7=300"])
    assert printed == "300 4 300 4 1200 4000\n"


def test_a_mask_that_is_not_known_selects_all(tmp_path):
    printed, snapshot = dry_run(tmp_path, MASK)
    assert printed == "1000 4 1000 4 4000 4000\n"
    assert {read["value"] for read in snapshot["oomscope"]["dry_run"]["reads"]} == {"maximum"}


def test_an_optimizer_resumes_on_the_device(tmp_path):
    source = """
    import io, torch
    def start():
        model = torch.nn.Linear(512, 512).cuda()
        return model, torch.optim.AdamW(model.parameters())
    def step(model, optimizer):
        model(torch.randn(8, 512, device="cuda")).sum().backward()
        optimizer.step()
    model, optimizer = start()
    step(model, optimizer)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    model, optimizer = start()
    optimizer.load_state_dict(torch.load(file, map_location="cuda"))
    step(model, optimizer)
    print(optimizer.state_dict()["state"][0]["step"].item())
    """
    assert dry_run(tmp_path, source)[0] == "2.0\n"


def test_writes_that_no_operator_makes_are_forgotten(tmp_path):
    source = """
    import torch
    count = torch.ones((), device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        count.add_(1)
    count.fill_(5)
    print(count.item())
    graph.replay()
    print(count.item())
    """
    printed, snapshot = dry_run(tmp_path, source)
    assert printed == "5.0\n0.0\n"
    assert [read["value"] for read in snapshot["oomscope"]["dry_run"]["reads"]] == ["zero"]


# One value of a sparse or nested tensor in each line.
SPARSE = """
import sys, torch
device = sys.argv[1]
dense = torch.arange(1.0, 7.0, device=device).view(3, 2)
places, values = torch.tensor([[0, 1, 1], [2, 0, 2]], device=device), torch.tensor([3.0, 4.0, 5.0], device=device)
sparse = torch.sparse_coo_tensor(places, values, (2, 3), check_invariants=False)
rows = torch.sparse_csr_tensor(torch.tensor([0, 1, 3]), places[1].cpu(), values.cpu(), (2, 3)).to(device)
repeated = torch.sparse_coo_tensor(places[:, [0, 0, 1]], values, (2, 3), check_invariants=False)
nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], device=device)
ragged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], device=device, layout=torch.jagged)
added = torch.ones(2, 3, device=device)
added.add_(sparse)
print(sparse.to_dense().sum().item())
print(torch.sparse.mm(sparse, dense).sum().item())
print((torch.ones(2, 3, device=device) + sparse).sum().item())
print(added.sum().item())
print(torch.sparse.sum(sparse).item())
print((sparse * 2).to_dense().sum().item())
print((rows @ dense).sum().item())
print(rows.to_dense().sum().item())
print(torch.sparse.addmm(torch.ones(2, 2, device=device), sparse, dense).sum().item())
print(torch.cat([sparse, sparse]).to_dense().sum().item())
print(repeated.coalesce().values().sum().item())
print(torch.eye(3, device=device).to_sparse().values().sum().item())
print(torch.eye(3, device=device).to_sparse_csr().values().sum().item())
print(nested.to_padded_tensor(0.0).sum().item())
print((nested + nested).values().sum().item())
print(ragged.to_padded_tensor(0.0).sum().item())
print(dense.sum().item())
print(repeated.coalesce()._nnz())
"""


def test_no_value_of_a_sparse_or_nested_tensor_is_known_and_wrong(tmp_path):
    printed, snapshot = dry_run(tmp_path, SPARSE, ["cuda"])
    on_host = subprocess.check_output([PYTHON, "-W", "ignore", "-c", SPARSE, "cpu"], text=True)
    reads = snapshot["oomscope"]["dry_run"]["reads"]
    unknown = {read["frames"][0]["line"] for read in reads}
    lines = [number for number, line in enumerate(SPARSE.splitlines(), 1) if line.startswith("print(")]
    is_known = [line not in unknown for line in lines]
    known = list(zip(is_known, printed.split(), on_host.split()))
    assert len(known) == 18
    assert [value for is_here, value, _ in known if is_here] == [value for is_here, _, value in known if is_here]
    assert 0 < sum(is_known) < 18


def test_the_answer_precedes_threads_that_go_on(tmp_path):
    source = """
    import threading, time, torch
    x = torch.zeros(10, device="cuda")
    free = torch.cuda.mem_get_info()[0]
    y = torch.zeros(free // 1000, device="cuda")
    threading.Thread(target=time.sleep, args=(8,)).start()
    raise ValueError("lost")
    """
    (tmp_path / "job.py").write_text(textwrap.dedent(source))
    command = [program(), "dry-run", "-o", "out", "--", PYTHON, "job.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    _, found, answer = done.stderr.partition("the process waits for other threads")
    assert found
    assert answer.count("did not finish on") == 2, answer
    assert "asks how much memory the device has" in " ".join(answer.split())


@pytest.mark.parametrize(
    "source, line",
    [
        ("n = int(torch.cuda.mem_get_info()[0] * 0.5)\ntorch.zeros(n, dtype=torch.uint8, device='cuda')", 2),
        ("n = torch.cuda.get_device_properties(0).total_memory // 2\ntorch.zeros(n // 4, device='cuda')", 2),
        ("free, _ = torch.cuda.mem_get_info()\nbatch = 8 if free > 2**30 else 4\ntorch.zeros(batch, device='cuda')", 2),
        ("print(f'{torch.cuda.get_device_properties(0).total_memory / 2**30}')\ntorch.zeros(9, device='cuda')", None),
        ("torch.zeros(9, device='cuda')\nprint(torch.cuda.mem_get_info()[0] / 2**30)", None),
    ],
)
def test_a_program_that_adapts_to_the_memory_is_noted(tmp_path, source, line):
    _, snapshot = dry_run(tmp_path, "import torch\n" + source)
    query = snapshot["oomscope"]["dry_run"]["free_memory_query"]
    assert (query and query[0]["line"]) == line


@pytest.mark.parametrize("deviation, usage", [(0.02, "report"), (1.0, "branch")])
def test_random_numbers_within_their_limits_decide_nothing(tmp_path, deviation, usage):
    source = """
    import torch
    with torch.device("cuda"):
        torch.nn.init.trunc_normal_(torch.empty(2000, 2000), std=%r)
    """
    _, snapshot = dry_run(tmp_path, source % deviation)
    reads = snapshot["oomscope"]["dry_run"]["reads"]
    if reads:  # older releases compute them without a loop
        assert {read["usage"] for read in reads} == {usage}


def test_a_model_is_built_on_the_meta_device(tmp_path):
    source = """
    import torch
    with torch.device("meta"):
        model = torch.nn.Embedding(1000, 64)
    model = model.to_empty(device="cuda")
    print(torch.ones(4, device="cuda").mul(2).sum().item(), model.weight.device)
    """
    said, _ = dry_run(tmp_path, source)
    assert said.split() == ["8.0", "cuda:0"]
