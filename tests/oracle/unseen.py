"""Programs that no rule was made for: oomscope is tried on them, and not mended by them.

usage: run.sh unseen.py SCENARIO OUT.pickle.gz        (torch 2.9 or later)

They mix what sharded.py shows one by one, with other models, other optimizers and other names.
"""

import copy

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import sharded
from sharded import Block, Model, Net, ddp, fsdp2, group, note, signal, train, truth, zero1
from truth import run


class Translator(nn.Module):
    """PyTorch's own transformer, embeddings tied with the head."""

    def __init__(self, d=192):
        super().__init__()
        self.embed = nn.Embedding(3000, d)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(d, 4, 3 * d, batch_first=True, dropout=0.1) for _ in range(3)
        )
        self.head = nn.Linear(d, 3000, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        if x.requires_grad:
            x.register_hook(lambda gradient: note("in backward"))
        return self.head(x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(200, 500), nn.Linear(500, 500)
        self.gate, self.head = nn.Linear(1000, 500), nn.Linear(500, 1000)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 500, device=x.device)
        for t in range(0, 24):
            z = torch.tanh(self.first(x[:, t]) + self.second(h))
            h = torch.sigmoid(self.gate(torch.cat([z, h], -1))) * z
        return self.head(h)


def plain_translator():
    model = Translator().cuda()
    train(model, torch.optim.NAdam(model.parameters()), clip=0.5)


def plain_recurrent():
    model = Recurrent().cuda()
    train(
        model,
        torch.optim.RMSprop(model.parameters(), momentum=0.9, centered=True),
        batch=signal,
        micro=2,
        set_to_none=False,
    )


def plain_two_groups():
    model = Model(3).cuda()
    flat = [p for p in model.parameters() if p.dim() < 2]
    train(
        model,
        torch.optim.AdamW([p for p in model.parameters() if p.dim() > 1]),
        torch.optim.SGD(flat, lr=0.1, momentum=0.9),
    )


def plain_frozen():
    """Adapters on a model that stays as it is."""
    model = Model(3).cuda().bfloat16().requires_grad_(False)
    for block in model.blocks:
        block.up = nn.Sequential(
            block.up,
            nn.Linear(1024, 16, device="cuda", dtype=torch.bfloat16),
            nn.Linear(16, 1024, device="cuda", dtype=torch.bfloat16),
        )
    train(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]))


def plain_adafactor():
    model = Translator().cuda()
    train(model, torch.optim.Adafactor(model.parameters()))


def fsdp1_translator():
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    group()
    model = FullyShardedDataParallel(
        Translator(),
        auto_wrap_policy=ModuleWrapPolicy({nn.TransformerEncoderLayer}),
        device_id=0,
        use_orig_params=True,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    )
    train(model, torch.optim.Adam(model.parameters()), micro=2)


def fsdp1_alone():
    """One unit for all of the model; gradients are added up without sending them."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    group()
    model = FullyShardedDataParallel(Net().cuda())
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), batch=signal)


def fsdp1_backward_clip():
    from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

    group()
    model = FullyShardedDataParallel(
        Model(4).cuda(),
        auto_wrap_policy=lambda module, recurse, nonwrapped_numel: size_based_auto_wrap_policy(
            module, recurse, nonwrapped_numel, min_num_params=300000
        ),
        backward_prefetch=BackwardPrefetch.BACKWARD_POST,
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
    )
    train(model, torch.optim.AdamW(model.parameters()))


def fsdp2_translator():
    fsdp2(model=Translator(), kinds=(nn.TransformerEncoderLayer,), opt=torch.optim.Adagrad, train_more={"micro": 2})


def fsdp2_net():
    from torch.distributed.fsdp import MixedPrecisionPolicy

    fsdp2(
        model=Net(),
        kinds=(nn.Sequential,),
        opt=torch.optim.RMSprop,
        mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16),
        train_more={"batch": lambda: signal().bfloat16()},
    )


def fsdp2_hybrid():
    """Shards within a node, replicas across."""
    from torch.distributed.fsdp import fully_shard

    group()
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
    model = Model(3).cuda()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, torch.optim.AdamW(model.parameters()), clip=1.0)


def fsdp2_recompute():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = Model(3)
    for at, block in enumerate(model.blocks):
        model.blocks[at] = checkpoint_wrapper(block)
    fsdp2(model=model, kinds=(Block,))


def fsdp2_average():
    """A second copy of the shards, averaged by hand."""
    from torch.distributed.fsdp import fully_shard

    group()
    model = Model(2).cuda()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    shadow = [p.detach().clone() for p in model.parameters()]
    truth.weights = shadow

    @torch.no_grad()
    def after():
        for s, p in zip(shadow, model.parameters()):
            s.mul_(0.99).add_(p, alpha=0.01)

    train(model, torch.optim.AdamW(model.parameters(), foreach=False), after=after)


def tp_sequence():
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    group()
    model = Model(2).cuda()
    mesh = init_device_mesh("cuda", (8,))
    for block in model.blocks:
        parallelize_module(
            block,
            mesh,
            {
                "up": ColwiseParallel(),
                "down": RowwiseParallel(),
                "q": ColwiseParallel(),
                "k": ColwiseParallel(),
                "v": ColwiseParallel(),
                "out": RowwiseParallel(),
            },
        )
    parallelize_module(
        model,
        mesh,
        {"head": ColwiseParallel(output_layouts=Replicate()), "embed": RowwiseParallel(input_layouts=Replicate())},
    )
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False))


def tp_translator():
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    group()
    model = Translator().cuda()
    model.train()
    for layer in model.layers:
        parallelize_module(
            layer, init_device_mesh("cuda", (8,)), {"linear1": ColwiseParallel(), "linear2": RowwiseParallel()}
        )
    train(model, torch.optim.Adam(model.parameters(), foreach=False))


def ddp_net():
    ddp(
        Net(),
        batch=signal,
        opt=lambda p: torch.optim.Adamax(p),
        ddp_options={"broadcast_buffers": True, "bucket_cap_mb": 1},
    )


def ddp_no_sync():
    from torch.nn.parallel import DistributedDataParallel

    def on_micro(is_last):
        model.require_backward_grad_sync = is_last

    group()
    model = DistributedDataParallel(Translator().cuda(), gradient_as_bucket_view=True)
    model.register_comm_hook(None, sharded_hook)
    model.reducer = sharded.KeepsBuckets(model.reducer)
    train(model, torch.optim.AdamW(model.parameters()), micro=3, on_micro=on_micro)


def sharded_hook(state, bucket):
    truth.used_by_a_collective(bucket.buffer())
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def ddp_half_hook():
    def hook(state, bucket):
        small = bucket.buffer().half()
        truth.used_by_a_collective(bucket.buffer(), small)
        future = torch.futures.Future()
        future.set_result(small.float())
        return future

    ddp(Model(3), hook=hook, clip=1.0)


def zero1_translator():
    zero1(torch.optim.Adam, model=Translator(), micro=2)


def zero1_bucket_views():
    zero1(torch.optim.AdamW, ddp_options={"gradient_as_bucket_view": True})


class Tiger(torch.optim.Optimizer):
    """State made in its first step."""

    def __init__(self, params, lr=1e-3):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                state = self.state[p]
                if not state:
                    state["slow"], state["fast"] = torch.zeros_like(p), torch.zeros_like(p)
                state["slow"].lerp_(p.grad, 0.01)
                state["fast"].lerp_(p.grad, 0.2)
                p.sub_((state["fast"] + state["slow"]).sign() * g["lr"])


def own_tiger():
    model = Translator().cuda()
    train(model, Tiger(model.parameters()))


class Prepared(torch.optim.Optimizer):
    """Everything made beforehand, by foreach, with a master copy."""

    def __init__(self, params):
        super().__init__(params, {})
        params = self.param_groups[0]["params"]
        masters = [p.detach().float() for p in params]
        moments = torch._foreach_mul(masters, 0)
        for p, m, v in zip(params, masters, moments):
            self.state[p] = {"master": m, "moment": v}

    @torch.no_grad()
    def step(self):
        params = [p for p in self.param_groups[0]["params"] if p.grad is not None]
        grads = [p.grad.float() for p in params]
        moments = [self.state[p]["moment"] for p in params]
        masters = [self.state[p]["master"] for p in params]
        torch._foreach_lerp_(moments, grads, 0.1)
        torch._foreach_add_(masters, moments, alpha=-1e-3)
        for p, m in zip(params, masters):
            p.copy_(m)


def own_prepared():
    model = Translator().cuda().bfloat16()
    train(model, Prepared(model.parameters()))


def own_functions():
    """Neither a class nor a name: state in two lists beside the loop."""
    model = Recurrent().cuda()
    first = [torch.zeros_like(p) for p in model.parameters()]
    second = [torch.zeros_like(p) for p in model.parameters()]
    truth.states = [first, second]
    truth.models = [model]
    for sharded.step in range(3):
        x = signal()
        truth.inputs = [x]
        loss = sharded.loss_of(model, x)
        note("after forward")
        loss.backward()
        note("after backward")
        with torch.no_grad():
            for p, m, v in zip(model.parameters(), first, second):
                m.mul_(0.9).add_(p.grad, alpha=0.1)
                v.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                p.sub_(m / (v.sqrt() + 1e-8) * 1e-3)
                p.grad = None
        note("after step")


class Average:
    def __init__(self, model):
        self.kept = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self, model):
        for k, p in zip(self.kept, model.parameters()):
            k.lerp_(p, 0.01)


def own_average_class():
    model = Translator().cuda()
    average = Average(model)
    truth.weights = average.kept
    train(model, torch.optim.AdamW(model.parameters()), after=lambda: average.update(model))


def own_teacher():
    """A second model, copied, that follows the first."""
    model = Net().cuda()
    teacher = copy.deepcopy(model).requires_grad_(False)
    truth.models = [model, teacher]

    @torch.no_grad()
    def after():
        for t, p in zip(teacher.parameters(), model.parameters()):
            t.lerp_(p, 0.01)

    train(model, torch.optim.Adam(model.parameters()), batch=signal, after=after)


UNSEEN = [
    plain_translator,
    plain_recurrent,
    plain_two_groups,
    plain_frozen,
    plain_adafactor,
    fsdp1_translator,
    fsdp1_alone,
    fsdp1_backward_clip,
    fsdp2_translator,
    fsdp2_net,
    fsdp2_hybrid,
    fsdp2_recompute,
    fsdp2_average,
    tp_sequence,
    tp_translator,
    ddp_net,
    ddp_no_sync,
    ddp_half_hook,
    zero1_translator,
    zero1_bucket_views,
    own_tiger,
    own_prepared,
    own_functions,
    own_average_class,
    own_teacher,
]

if __name__ == "__main__":
    run(UNSEEN, truth)
