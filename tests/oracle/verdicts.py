#!/usr/bin/env python3
"""Dry runs of jobs of many kinds, each with the verdict that is right, which no code of oomscope gave.

usage: verdicts.py OOMSCOPE PYTHON [--quick] [--markdown FILE] [NAME..]

Each job runs with `--exit-code verdict`. Its verdict, the exit code and a part of the first line must be those below.
PYTHON needs torch; jobs whose packages it lacks are skipped. `--markdown` writes VERDICT_RESULTS.md, the table of
frameworks by version that docs/dry-run.md links to. `--quick` runs one job of each verdict.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "dry" / "programs.py"
CODES = {"would-fit": 0, "would-not-fit": 1, "did-not-finish": 2, "no-verdict": 2, "may-fit": 3}
MODEL = """
import os, sys, torch
from torch import nn
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
def step(batch=8):
    loss = model(torch.randn(batch, 256, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""
HUGE = "torch.empty(200 << 30, dtype=torch.uint8, device='cuda')\n"
MESH = """
import os, torch
from torch import nn
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
"""
LAYERS = "model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).cuda()\n"
TRAIN = """
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.randn(8, 512, device="cuda")).square().mean().backward()
    optimizer.step(); optimizer.zero_grad()
dist.destroy_process_group()
"""

JOBS = {}


def job(name, verdict, phrase="", options=(), needs=(), launch=(), kind="", end=None, quick=False, before=""):
    """Returns a function that sets the job's source, behind `before`. Without one it is a program of PROGRAMS.

    `launch` comes before the program (torchrun); `kind` is the framework in the table; `end` is a signal to send.
    """
    row = JOBS[name] = {**locals(), "source": None}
    return lambda source: row.update(source=before + source)


def torchrun(count):
    options = f"--nproc-per-node {count} --master-port 0 --rdzv-backend c10d"
    return ["-m", "torch.distributed.run", *options.split()]


# Plain programs ------------------------------------------------------------------------------------------------------
job("plain", "would-fit", quick=True, kind="PyTorch")(MODEL + "for _ in range(3):\n    print(step().item())")
job("no-reads", "would-fit", kind="PyTorch")(MODEL + "for _ in range(3):\n    step()")
job("oom", "would-not-fit", quick=True, kind="PyTorch")(MODEL + "step()\n" + HUGE)
job("oom-later-caught-and-left", "would-not-fit")(MODEL + f"try:\n    {HUGE}except RuntimeError:\n    pass\nstep()")
job("history-off", "would-not-fit", before=MODEL)(
    f"torch.cuda.memory._record_memory_history(None)\nstep()\ntry:\n    {HUGE}except RuntimeError:\n    sys.exit(0)"
)
job("value-error", "did-not-finish", "job.py:13 in <module>: bad shape", quick=True, before=MODEL)("""\
step()
raise ValueError('bad shape')""")
job("exit-3", "did-not-finish", "exit code 3")(MODEL + "step()\nsys.exit(3)")
job("raise-system-exit", "did-not-finish", "exit code 3")(MODEL + "step()\nraise SystemExit(3)")
job("exit-0", "would-fit")(MODEL + "step()\nsys.exit(0)")
job("os-exit", "would-fit")(MODEL + "step()\nos._exit(0)")
job("os-exit-4", "did-not-finish", "exit code 4")(MODEL + "step()\nos._exit(4)")
job("sigterm", "no-verdict", "signal 15", quick=True)(
    MODEL + "step()\nimport signal\nos.kill(os.getpid(), signal.SIGTERM)"
)
job("sigkill", "no-verdict", "ended without a snapshot")(
    MODEL + "step()\nimport signal\nos.kill(os.getpid(), signal.SIGKILL)"
)
job("sigterm-from-outside", "no-verdict", end=signal.SIGTERM)(
    MODEL + "step()\nprint('go', flush=True)\nimport time\ntime.sleep(60)"
)
job("cpu-only", "no-verdict", "nothing used CUDA")("import torch\nprint(torch.nn.Linear(4, 4)(torch.ones(4)))")
job("no-torch", "no-verdict", "no Python process imported torch")("print(1)")
job("keyboard-interrupt", "did-not-finish", "KeyboardInterrupt")(MODEL + "step()\nraise KeyboardInterrupt")
job("error-in-finally", "did-not-finish", "AssertionError")(
    MODEL + "try:\n    step()\nfinally:\n    assert 1 == 2, 'late'"
)
job("eight-devices", "did-not-finish", "--devices 8")(
    "import torch\nmodels = [torch.nn.Linear(4, 4).to(f'cuda:{i}') for i in range(8)]"
)
job("eight-devices-given", "would-fit", options=["--devices", "8"])(JOBS["eight-devices"]["source"])
job("data-parallel-8", "did-not-finish", "--devices 8")("""\
import torch
m = torch.nn.DataParallel(torch.nn.Linear(4, 4).cuda(), device_ids=list(range(8)))
m(torch.ones(8, 4).cuda())""")
job("visible-devices-none", "no-verdict")(
    "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\nimport torch\nprint(torch.cuda.is_available())"
)
# Retries -------------------------------------------------------------------------------------------------------------
RETRY = """
import torch
def work(batch):
    kept = torch.ones(batch << 30, dtype=torch.uint8, device="cuda")
    return kept.shape
batch = 256
while True:
    try:
        work(batch)
        break
    except torch.OutOfMemoryError:
        batch //= 2
"""
job("retries-smaller", "would-fit", "after its own retry with less", quick=True)(RETRY)
job("retries-then-error", "would-not-fit")(RETRY + "raise RuntimeError('later')")
job("accelerate-batch-size", "would-fit", "after its own retry with less", needs=["accelerate"], kind="accelerate")(
    MODEL
    + """\
from accelerate.utils import find_executable_batch_size
@find_executable_batch_size(starting_batch_size=1 << 27)
def train(batch_size):
    return step(batch_size)
train()"""
)
# Values --------------------------------------------------------------------------------------------------------------
job("while-loss", "may-fit", "decides how the program goes on", quick=True)("""\
import torch
xs = []
loss = (torch.ones(9, 9, device='cuda') @ torch.ones(9, 9, device='cuda')).sum()
while loss > 0.5:
    xs.append(torch.empty(1 << 30, device='cuda'))""")
job("while-known", "would-not-fit")("""\
import torch
xs = []
loss = torch.ones((), device='cuda')
while loss > 0.5:
    xs.append(torch.empty(1 << 30, device='cuda'))""")
job("lengths-max", "may-fit", "decides a size")("""\
import torch
lengths = torch.ones(8, 8, device='cuda') @ torch.ones(8, 8, device='cuda')
n = int(lengths.max())
x = torch.zeros(8, n, 1024, device='cuda')""")
job("lengths-random", "would-fit")(
    "import torch\nn = int(torch.randint(1, 9, (8,), device='cuda').max())\nx = torch.zeros(8, n, 1024, device='cuda')"
)
job("lengths-random-and-little-memory", "may-fit", "memory is scarce")(
    "import torch\nn = int(torch.randint(8, 9, (8,), device='cuda').max())\n"
    "x = torch.zeros(8, n, 1 << 28, device='cuda')"
)
job("lengths-max-set", "would-not-fit", options=["--value", "job.py:3=100000000"])(JOBS["lengths-max"]["source"])
job("lengths-max-set-small", "would-fit", options=["--value", "job.py:3=512"])(JOBS["lengths-max"]["source"])
EARLY = (
    MODEL
    + """\
best, bad = 1e9, 0
for _ in range(20):
    value = step().item()
    if value < best:
        best, bad = value, 0
    else:
        bad += 1
    if bad > 2:
        break
"""
)
job("early-stopping", "would-fit")(EARLY)
BRANCH = """
import torch
loss = (torch.ones(9, 9, device='cuda') @ torch.ones(9, 9, device='cuda')).sum()
if loss > 0.5:
    x = torch.zeros(1 << %d, device='cuda')
"""
job("branch-that-needs-little", "would-fit")(BRANCH % 20)
job("branch-that-needs-much", "may-fit", "decides how the program goes on")(BRANCH % 38)
job("kept-where-a-value-is-high", "may-fit", "decides how the program goes on")("""\
import torch
kept = []
for step in range(100):
    score = (torch.ones(9, 9, device='cuda') @ torch.ones(9, 9, device='cuda')).sum().item()
    if score > 0.9:
        kept.append(torch.empty(1 << 28, device='cuda'))""")
job("best-checkpoint", "would-fit", before=MODEL)("""\
best = 1e9
for _ in range(3):
    value = step().item()
    if value < best:
        best = value
        torch.save(model.state_dict(), 'best.pt')
    print(f'{value:.3f}')""")
job("nan-guard", "would-fit", before=MODEL)("""\
for _ in range(3):
    loss = step()
    if not torch.isfinite(loss):
        raise ValueError('nan')
    print(loss.item())""")
job("nan-skip", "would-fit")(
    MODEL + "for _ in range(3):\n    loss = step()\n    if torch.isnan(loss):\n        continue\n    step()"
)
job("assert-of-values", "would-fit")(
    "import torch\nx = torch.ones(64, 64, device='cuda') @ torch.ones(64, 64, device='cuda')\nassert (x > 0).all()"
)
job("zero-in-a-library", "did-not-finish", "after item read 0 at")(
    "import statistics, torch\nx = torch.ones(64, 64, device='cuda') @ torch.ones(64, 64, device='cuda')\n"
    "n = x.max().item()\nprint(statistics.fmean([1.0] * int(n)))"
)
INDEX = """
import torch
x = torch.randn(64, 4, device="cuda") @ torch.randn(4, 4, device="cuda")
i = x.sum().long()
def work(y):
    return torch.zeros(1 << 20, device="cuda") + y.sum()
"""
job("index-of-a-tensor", "would-fit")(INDEX + "work(x[i, :2])")
job("index-of-a-list", "may-fit")(INDEX + "sizes = [1, 1 << 30] * 32\ntorch.zeros(sizes[i], device='cuda')")
job("compiled-copy-to-another-type", "would-fit")("""\
import torch
@torch.compile
def update(p, g):
    p.copy_(p.float() + g.float())
p = torch.zeros(64, 64, device="cuda", dtype=torch.bfloat16)
update(p, p.clone())""")
job("assert-of-values-set", "did-not-finish", options=["--value", "job.py:3=False"])(JOBS["assert-of-values"]["source"])
job("itself", "would-fit")("""\
import torch
x = torch.randn(4, 4, device='cuda') @ torch.randn(4, 4, device='cuda')
assert torch.allclose(x, x) and torch.equal(x, x)
assert torch.isfinite(x).all() and not torch.isnan(x).any()
assert (x[:, 2:] >= x[:, :2]).all()""")
job("distributions", "would-fit")("""\
import torch
from torch.distributions import Categorical, Normal
z = torch.zeros(4, device='cuda')
print(Normal(z, z + 1).sample().shape, Categorical(probs=torch.rand(4, 5, device='cuda')).sample().shape)""")
job("sparse-squared", "may-fit", "known only to a GPU")(
    "import torch\na = torch.eye(4, device='cuda').to_sparse_csr()\nprint((a @ a).shape)"
)
job("accuracy", "would-fit", before=MODEL)("""\
right = 0
for _ in range(3):
    step()
    out = model(torch.randn(8, 256, device='cuda')).argmax(-1)
    right += (out == 0).sum().item()
print(right / 24)""")
MASK = "import torch\nx = torch.ones(64, 64, device='cuda') @ torch.ones(64, 64, device='cuda')\ny = x[x > 0] * 2"
job("masks", "would-fit", ": up to ")(MASK)
job("masks-too-large", "may-fit", "selects every element")(MASK + "\nz = y.repeat(1 << 23)")
job("masks-and-too-large-without", "would-not-fit")("import torch\n" + HUGE + MASK)
job("masks-random", "would-fit")("import torch\nx = torch.randn(64, 64, device='cuda')\ny = x[x > 0] * 2")
job("masks-set", "would-fit", options=["--value", "job.py:3=2000"])(MASK)
job("moe", "would-fit", kind="mixture of experts")
job("plateau", "would-fit")(
    MODEL + "s = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)\nfor _ in range(3):\n    s.step(step().item())"
)
job("clip-and-scale", "would-fit", kind="PyTorch, autocast", before=MODEL)("""\
scaler = torch.amp.GradScaler('cuda')
for _ in range(3):
    with torch.autocast('cuda', torch.float16):
        loss = model(torch.randn(8, 256, device='cuda')).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    n = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(n.item())""")
# Libraries whose workspaces have estimates ----------------------------------------------------------------------------
LSTM = """
import torch
from torch import nn
net = nn.LSTM(512, 1024, num_layers=2, batch_first=True).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    out, _ = net(torch.randn(32, 200, 512, device="cuda"))
    loss = out.square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
job("lstm", "would-fit", "with workspaces of cuDNN up to", kind="PyTorch, LSTM")(LSTM)
job("lstm-tight", "may-fit", "a request fails", options=["--memory", "1600MiB"])(LSTM)
job("lstm-too-large", "would-not-fit", options=["--memory", "900MiB"])(LSTM)
job("linear-algebra", "would-fit", "with workspaces of cuSOLVER up to", kind="PyTorch, linalg")("""\
import torch
a = torch.randn(500, 500, device='cuda')
print([it.shape for it in (*torch.linalg.eigh(a @ a.T), *torch.linalg.qr(a), *torch.linalg.svd(a))])""")
job("fft", "would-fit", "with workspaces of cuFFT up to", kind="PyTorch, fft")(
    "import torch\nprint(torch.fft.irfft2(torch.fft.rfft2(torch.randn(64, 256, 256, device='cuda'))).shape)"
)
job("convolutions-of-the-older-interface", "would-fit", "with workspaces of cuDNN up to")("""\
import os
os.environ['TORCH_CUDNN_V8_API_DISABLED'] = '1'
import torch
net = torch.nn.Conv2d(3, 64, 3).cuda()
net(torch.randn(8, 3, 128, 128, device='cuda')).square().mean().backward()""")
job("waits-for-a-value", "may-fit", options=["--patience", "3s"])(
    "import torch\nx = torch.zeros((), device='cuda')\nwhile not x.item():\n    pass"
)
job("unknown-callee", "may-fit", before=MODEL)("""\
class Hooks:
    def __call__(self, v):
        if v > 1:
            torch.empty(1 << 30, device='cuda')
Hooks()(step().item())""")
# Several ranks -------------------------------------------------------------------------------------------------------
job("hsdp", "would-fit", launch=torchrun(4), kind="FSDP2, hybrid")(
    MESH
    + """\
from torch.distributed.fsdp import fully_shard
mesh = init_device_mesh('cuda', (2, 2), mesh_dim_names=('r', 's'))
"""
    + LAYERS
    + "for l in model: fully_shard(l, mesh=mesh)\nfully_shard(model, mesh=mesh)\n"
    + TRAIN
)
job("tp-fsdp", "would-fit", launch=torchrun(4), kind="tensor parallelism + FSDP2")(
    MESH
    + """\
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh('cuda', (2, 2), mesh_dim_names=('dp', 'tp'))
"""
    + LAYERS
    + """\
parallelize_module(model, mesh['tp'], {'0': ColwiseParallel(), '1': RowwiseParallel()})
for l in model: fully_shard(l, mesh=mesh['dp'])
fully_shard(model, mesh=mesh['dp'])
"""
    + TRAIN.replace("model.parameters()", "model.parameters(), foreach=False")
)
job("dcp-save", "would-fit", launch=torchrun(2), kind="distributed checkpoint")(
    MESH
    + """\
from torch.distributed.fsdp import fully_shard
import torch.distributed.checkpoint as dcp
dist.init_process_group('nccl')
"""
    + LAYERS
    + "fully_shard(model)\n"
    + TRAIN.replace("dist.destroy", "dcp.save({'model': model.state_dict()}, checkpoint_id='ckpt')\ndist.destroy")
)
job("pipeline", "would-fit", launch=torchrun(2), kind="pipeline", before=MESH)("""\
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
dist.init_process_group('nccl')
rank, size = dist.get_rank(), dist.get_world_size()
layer = nn.Linear(512, 512).cuda()
stage = PipelineStage(layer, rank, size, torch.device('cuda', rank))
schedule = ScheduleGPipe(stage, 4, loss_fn=nn.functional.mse_loss)
x, y = torch.randn(16, 512, device='cuda'), torch.randn(16, 512, device='cuda')
for _ in range(2):
    if rank == 0:
        schedule.step(x)
    elif rank == size - 1:
        schedule.step(target=y)
    else:
        schedule.step()
dist.destroy_process_group()""")
job("ddp", "would-fit", launch=torchrun(2), kind="DDP")
job("fsdp2", "would-fit", launch=torchrun(2), kind="FSDP2")
job("fsdp1", "would-fit", launch=torchrun(2), kind="FSDP1")
job("zero", "would-fit", launch=torchrun(2), kind="ZeroRedundancyOptimizer")
job("tensor-parallel", "would-fit", launch=torchrun(2), kind="tensor parallelism")
job("one-rank-fails", "would-not-fit", launch=torchrun(2))(
    MESH + "dist.init_process_group('nccl')\nif dist.get_rank() == 1:\n    " + HUGE + "dist.destroy_process_group()"
)
job("one-rank-errs", "did-not-finish", launch=torchrun(2), before=MESH)("""\
dist.init_process_group('nccl')
x = torch.ones(1024, device='cuda')
if dist.get_rank() == 1:
    raise ValueError('rank 1')
dist.destroy_process_group()""")
# Frameworks ----------------------------------------------------------------------------------------------------------
for name in ("gpt2", "gpt2-bf16", "gpt2-fp16", "llama-bf16-checkpointed", "generate"):
    job(name, "would-fit", needs=["transformers", "accelerate"], kind="transformers")
job("lightning", "would-fit", needs=["lightning"], kind="lightning")
job("compiled", "would-fit", kind="torch.compile")
job("lora", "would-fit", needs=["peft"], kind="peft")
job("unet", "would-fit", needs=["diffusers"], kind="diffusers")
job("resnet50", "would-fit", needs=["torchvision"], kind="torchvision")
job("pynvml", "would-fit", needs=["pynvml"], kind="pynvml")("""\
import pynvml, torch
x = torch.empty(1 << 30, device='cuda')
pynvml.nvmlInit()
h = pynvml.nvmlDeviceGetHandleByIndex(0)
m = pynvml.nvmlDeviceGetMemoryInfo(h)
assert m.total > m.used > 1 << 30
print(pynvml.nvmlDeviceGetName(h), pynvml.nvmlDeviceGetCudaComputeCapability(h), pynvml.nvmlDeviceGetUUID(h))""")
job("fork-after-device-count", "would-fit")("""\
import multiprocessing, torch
def work():
    torch.zeros(8, device='cuda')
if __name__ == '__main__':
    assert torch.cuda.device_count() == 1
    process = multiprocessing.get_context('fork').Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0""")
job("pinned-memory-has-a-device-address", "would-fit")("""\
import ctypes, torch
x = torch.ones(1 << 20).pin_memory()
cuda, address = ctypes.CDLL('libcuda.so.1'), ctypes.c_uint64()
assert cuda.cuPointerGetAttribute(ctypes.byref(address), 3, ctypes.c_uint64(x.data_ptr())) == 0
assert address.value == x.data_ptr() and x.is_pinned() and not torch.ones(9).is_pinned()
y = torch.ones(1 << 20)
assert int(torch.cuda.cudart().cudaHostRegister(y.data_ptr(), 4 << 20, 0)) == 0 and y.is_pinned()
x.cuda(non_blocking=True)""")
job("attribute-decides-in-another-file", "may-fit", "decides how the program goes on")("""\
import pathlib, sys, torch
lines = ['class Watch:', '  last = 9', '  def is_done(self):', '    if self.last > 3: return True', '    return False']
pathlib.Path('watch.py').write_text('\\n'.join(lines))
sys.path.insert(0, '.')
from watch import Watch
watch = Watch()
for _ in range(3):
    watch.last = (torch.ones(4, 4, device='cuda') @ torch.ones(4, 4, device='cuda')).sum().item()
    if watch.is_done():
        break""")
job("dataloader-workers", "would-fit", kind="PyTorch", before=MODEL)("""\
data = torch.utils.data.DataLoader(torch.randn(64, 256), batch_size=8, num_workers=2)
for x in data:
    model(x.cuda()).sum().backward()""")

GRAPHS = """\
import torch
from torch import nn
model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda().half().eval()
pool, graphs = torch.cuda.graph_pool_handle(), []
torch.set_grad_enabled(False)
for batch in (8192, 4096, 2048, 1024):
    x = torch.zeros(batch, 1024, device="cuda", dtype=torch.half)
    model(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        y = model(x)
    graphs.append((graph, x, y))
for graph, x, y in graphs:
    x.copy_(torch.randn(x.shape))
    graph.replay()
    print(y.float().mean().item())
"""
job("graphs-of-one-pool", "would-fit", kind="CUDA graphs")(GRAPHS)
job("graphs-of-four-pools", "would-not-fit", options=["--memory", "830MiB"], kind="CUDA graphs")(
    GRAPHS.replace(", pool=pool", "")
)
job("graphs-of-one-pool-tight", "would-fit", options=["--memory", "830MiB"], kind="CUDA graphs")(GRAPHS)
job("graph-of-a-step", "would-fit", kind="CUDA graphs")(
    MODEL.replace("AdamW(model.parameters())", "AdamW(model.parameters(), capturable=True)")
    + """\
batch = torch.randn(8, 256, device="cuda")
def step():
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    return loss
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    for _ in range(3):
        step()
        optimizer.zero_grad()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()
for _ in range(3):
    batch.copy_(torch.randn(8, 256))
    graph.replay()
print(loss.item())"""
)
job("graphed-callables", "would-fit", kind="CUDA graphs", before=MODEL)("""\
graphed = torch.cuda.make_graphed_callables(model, (torch.randn(8, 256, device="cuda"),))
for _ in range(3):
    optimizer.zero_grad()
    graphed(torch.randn(8, 256, device="cuda")).square().mean().backward()
    optimizer.step()""")
# Without a cache, the kernel that adds in place is tuned with a copy of its argument on the host.
job("reduce-overhead", "would-fit", kind="torch.compile")("""\
import torch, torch._inductor.config
from torch import nn
torch._inductor.config.force_disable_caches = True
class Block(nn.Module):
    def __init__(self, dim=512):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.norm2, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 8, d // 8).permute(2, 0, 3, 1, 4)
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
model = nn.Sequential(Block(), Block()).cuda().half().eval()
model = torch.compile(model, mode="reduce-overhead")
with torch.no_grad():
    for step in range(4):
        for length in (256, 512):
            model(torch.randn(8, length, 512, device="cuda", dtype=torch.half)).clone()""")


def run(oomscope, python, name, directory):
    """Runs a job. Returns its verdict, the first line and the seconds."""
    this = JOBS[name]
    program = [PROGRAMS, name]
    if this["source"] is not None:
        program = ["job.py"]
        (directory / "job.py").write_text(this["source"])
    command = [oomscope, "dry-run", "-o", "out", "--exit-code", "verdict", *this["options"]]
    command += ["--", python, *this["launch"], *program]
    environment = dict(os.environ, NO_COLOR="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    environment.pop("PYTHONPATH", None)
    start = time.monotonic()
    process = subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if this["end"]:
        process.stdout.readline()
        process.send_signal(this["end"])
    _, errors = process.communicate(timeout=900)
    seconds = time.monotonic() - start
    # The lines that continue the first have a margin.
    found = re.search(r"^(?:oomscope: )?((?:would|may|did not|no verdict)\b.*(?:\n  .*)*)", errors, re.M)
    line = " ".join(found.group(1).split()) if found else "no first line"
    snapshots = sorted(str(path) for path in (directory / "out").glob("*.pickle.gz"))
    if not snapshots:
        return ("no-verdict" if line.startswith("no verdict") else "none"), line, process.returncode, seconds, errors
    report = subprocess.run([oomscope, "analyze", "--format", "json", *snapshots], capture_output=True, text=True)
    word = next((word for word in CODES if line.startswith(word.replace("-", " ") + " on")), "none")
    again = json.loads(report.stdout)["dry_run"]["verdict"]
    if again != word:
        line = f"analyze says {again}: {line}"
        word = "none"
    return word, line, process.returncode, seconds, errors


def version(python, package):
    names = {"PyTorch": "torch", "DDP": "torch"}
    code = f"import importlib.metadata as m; print(m.version({names.get(package, package)!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return done.stdout.strip()


def has(python, packages):
    code = "import importlib.util as u, sys; sys.exit(any(u.find_spec(p) is None for p in sys.argv[1:]))"
    return subprocess.run([python, "-c", code, *packages]).returncode == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("oomscope")
    parser.add_argument("python")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--markdown")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    oomscope = os.path.abspath(options.oomscope)
    wrong, rows = [], []
    for name in options.names or JOBS:
        this = JOBS[name]
        if options.quick and not this["quick"]:
            continue
        if this["needs"] and not has(options.python, this["needs"]):
            print(f"{name}: skipped, needs {', '.join(this['needs'])}", flush=True)
            continue
        with tempfile.TemporaryDirectory() as directory:
            word, line, code, seconds, errors = run(oomscope, options.python, name, Path(directory))
        is_right = word == this["verdict"] and code == CODES[this["verdict"]] and this["phrase"] in line
        rows.append((name, this["kind"], this["verdict"], word, is_right))
        print(f"{'ok   ' if is_right else 'WRONG'} {name}: {word} ({seconds:.1f} s)", flush=True)
        if not is_right:
            wrong.append(name)
            print(f"      expected {this['verdict']}, {this['phrase']!r}; exit code {code}\n      {line}")
            print("\n".join("      | " + text for text in errors.splitlines()[-12:]))
    print(f"{len(rows) - len(wrong)} of {len(rows)} are right")
    if options.markdown:
        write_table(options.markdown, options.python, rows)
    sys.exit(bool(wrong))


def write_table(path, python, rows):
    """VERDICT_RESULTS.md."""
    torch, matching = version(python, "torch"), sum(row[-1] for row in rows)
    lines = [
        "# Verdicts of dry runs",
        "",
        f"`verdicts.py --markdown` writes this file. {time.strftime('%Y-%m-%d')}, PyTorch {torch}, H100.",
        f"{len(rows)} of {len(JOBS)} jobs ran, each with the verdict that is right and a part of its reason;",
        f"{matching} gave both.",
        "",
        "| framework | version | job | right | given |",
        "|---|---|---|---|---|",
    ]
    for name, kind, right, word, is_right in rows:
        number = version(python, kind) if kind else ""
        given = "same" if is_right else f"{word.replace('-', ' ')} (wrong)"
        lines.append(f"| {kind or 'PyTorch'} | {number or torch} | {name} | {right.replace('-', ' ')} | {given} |")
    Path(path).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
