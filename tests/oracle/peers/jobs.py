"""Distributed jobs with one fault each: `jobs.py NAME`. `truths.toml` has the odd rank, the cause and the cure."""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANK, LOCAL, WORLD = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
WIDTH, WORDS = 1024, 32000


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, mlp=None):
        super().__init__()
        self.norm, self.qkv, self.mlp = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), mlp or MLP()

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (16, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self, blocks, words=WORDS):
        super().__init__()
        self.embedding, self.blocks = nn.Embedding(words, WIDTH), nn.ModuleList(blocks)
        self.head = nn.Linear(WIDTH, words)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch(rows, length):
    return torch.randint(0, WORDS, (rows, length), device="cuda")


def loss_of(model, tokens):
    return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def build(count=8, **options):
    with torch.device("cuda"):
        return Model([Block() for _ in range(count)], **options)


def train(model, optimizer, rows=lambda step: 4, length=lambda step: 1024, after=None, steps=6):
    for step in range(steps):
        loss_of(model, batch(rows(step), length(step))).backward()
        optimizer.step()
        optimizer.zero_grad()
        if after:
            after(step)


def ddp(model=None, **options):
    model = DistributedDataParallel(model or build(), device_ids=[LOCAL], **options)
    return model, torch.optim.AdamW(model.parameters())


def fsdp(**options):
    from torch.distributed.fsdp import fully_shard

    model = build(12)
    for part in [*model.blocks, model]:
        fully_shard(part, **options)
    return model, torch.optim.AdamW(model.parameters())


def longer_document():
    train(*ddp(), length=lambda step: 4096 if (RANK, step) == (2, 3) else 1024)


def larger_batch_fsdp2():
    train(*fsdp(), rows=lambda step: 12 if RANK == 1 and step > 2 else 4)


def input_from_host():
    model, optimizer = ddp()
    for step in range(6):
        tokens = torch.randint(0, WORDS, (12 if RANK == 1 and step > 2 else 4, 1024))
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.cuda().flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


def split_by_documents():
    cuts = [0, 512, 1024, 1536, 8192]
    model, optimizer = ddp()
    for step in range(5):
        whole = batch(2, 8192)
        part = whole[:, cuts[RANK] : cuts[RANK + 1]] if step > 2 else whole[:, RANK * 2048 : RANK * 2048 + 2048]
        part = part.contiguous()
        loss_of(model, part).backward()
        optimizer.step()
        optimizer.zero_grad()


def too_large_fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    policy = ModuleWrapPolicy({Block})
    model = FullyShardedDataParallel(build(12), auto_wrap_policy=policy, use_orig_params=True, device_id=LOCAL)
    train(model, torch.optim.AdamW(model.parameters()), rows=lambda step: 16)


def too_large_hsdp():
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cuda", (WORLD // 2, 2), mesh_dim_names=("replicate", "shard"))
    train(*fsdp(mesh=mesh), rows=lambda step: 16)


def too_large_zero(stage):
    import deepspeed

    deepspeed.init_distributed("nccl")
    model = build(12).bfloat16()
    config = {
        "train_micro_batch_size_per_gpu": 16,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    for _ in range(4):
        engine.backward(loss_of(engine, batch(16, 1024)))
        engine.step()


def too_large_zero1():
    too_large_zero(1)


def too_large_zero3():
    too_large_zero(3)


def too_large_tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model, mesh = build(), init_device_mesh("cuda", (WORLD,))
    for block in model.blocks:
        parallelize_module(block, mesh, {"mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel()})
    train(model, torch.optim.AdamW(model.parameters(), foreach=False), rows=lambda step: 24)


def uneven_shards():
    model, _ = ddp(build(8, words=128000))
    parameters = list(model.parameters())
    own = [one for index, one in enumerate(parameters) if index * WORLD // len(parameters) == RANK]
    train(model, torch.optim.AdamW(own), rows=lambda step: 2 if step < 2 else 3)


def pipeline(schedule):
    from torch.distributed import pipelining

    is_first, is_last = RANK == 0, RANK == WORLD - 1
    with torch.device("cuda"):
        parts = [nn.Embedding(WORDS, WIDTH)] * is_first + [Block() for _ in range(4)]
        model = nn.Sequential(*parts, *[nn.Linear(WIDTH, WORDS)] * is_last)
        hidden = torch.empty(2, 1024, WIDTH)
    tokens = batch(32, 1024)
    logits = torch.empty(2, 1024, WORDS, device="meta")
    stage = pipelining.PipelineStage(
        model,
        RANK,
        WORLD,
        torch.device("cuda", LOCAL),
        input_args=(tokens[:2] if is_first else hidden,),
        output_args=(logits if is_last else hidden.to("meta"),),
    )
    loss = lambda output, target: F.cross_entropy(output.flatten(0, 1), target.flatten())  # noqa: E731
    steps = getattr(pipelining, schedule)(stage, n_microbatches=16, loss_fn=loss)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        steps.step(*[tokens] * is_first, **({"target": tokens} if is_last else {}))
        optimizer.step()
        optimizer.zero_grad()


def outputs_of_gpipe():
    pipeline("ScheduleGPipe")


def outputs_of_1f1b():
    pipeline("Schedule1F1B")


def gathered_predictions():
    model, optimizer = ddp()
    predictions = []

    def evaluate(step):
        for _ in range(16 if step == 3 else 0):
            with torch.no_grad():
                logits = model.module(batch(2, 1024))
            parts = [torch.empty_like(logits) for _ in range(WORLD)] if RANK == 0 else None
            dist.gather(logits, parts, dst=0)
            if parts:
                predictions.append(torch.cat(parts))

    train(model, optimizer, after=evaluate)


def leak_on_one_rank():
    model, optimizer = ddp()
    history = []

    def note(step):
        if RANK == 1:
            history.append(model.module(batch(2, 1024)).detach())

    train(model, optimizer, after=note, steps=16)


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, received, sent):
        ctx.counts = sent, received
        output = x.new_empty(sum(received), x.shape[1])
        dist.all_to_all_single(output, x.contiguous(), received, sent)
        return output

    @staticmethod
    def backward(ctx, gradient):
        return AllToAll.forward(ctx, gradient, *ctx.counts), None, None


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp, self.step = MLP(), 0

    def forward(self, x):
        rows = x.flatten(0, 1)
        even, few = len(rows) // WORLD, len(rows) // (4 * WORLD)
        is_hot = self.step > 2
        sent = [few] * (WORLD - 1) + [len(rows) - few * (WORLD - 1)] if is_hot else [even] * WORLD
        received = [sent[RANK]] * WORLD
        self.step += 1
        return AllToAll.apply(self.mlp(AllToAll.apply(rows, received, sent)), sent, received).view_as(x)


def hot_expert():
    with torch.device("cuda"):
        model = Model([Block(Experts()) for _ in range(8)])
    train(model, torch.optim.AdamW(model.parameters()), length=lambda step: 2048)


def checkpoint_on_gpu_0():
    model = build()
    checkpoint = {name: torch.zeros_like(one, device="cuda:0") for name, one in model.state_dict().items()}
    model.load_state_dict(checkpoint)
    train(*ddp(model), rows=lambda step: 4 if RANK or step < 2 else 6)


def all_on_gpu_0():
    torch.cuda.set_device(0)
    model = DistributedDataParallel(build())
    train(model, torch.optim.AdamW(model.parameters()))


def main():
    torch.cuda.set_device(LOCAL)
    if not sys.argv[1].startswith("too_large_zero"):
        dist.init_process_group("nccl")
    globals()[sys.argv[1]]()
    dist.destroy_process_group()


main()
