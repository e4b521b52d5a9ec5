"""A second set of programs that no rule was made for: other widths, depths, optimizers and sizes of the group.

usage: run.sh unseen_again.py SCENARIO OUT.pickle.gz        (torch 2.9 or later)
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import sharded
from sharded import Block, KeepsBuckets, Model, Net, note, signal, train, truth
from truth import run
from unseen import Recurrent


class Reader(nn.Module):
    """A vision tower, a projection and blocks of another width."""

    def __init__(self, d=320, layers=4):
        super().__init__()
        self.patches = nn.Conv2d(3, d, 8, 8)
        self.places = nn.Parameter(torch.zeros(1, 64, d))
        self.blocks = nn.ModuleList(Block(d) for _ in range(layers))
        self.pool, self.head = nn.Linear(d, 2 * d), nn.Linear(2 * d, 100)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for at, block in enumerate(self.blocks):
            x = block(x)
            if at == 2 and x.requires_grad:
                x.register_hook(lambda gradient: note("in backward"))
        return self.head(F.relu(self.pool(x)))


def pictures(n=6):
    return torch.zeros(n, 3, 64, 64).to("cuda")


def words(n=4, length=96):
    return torch.zeros(n, length, dtype=torch.int64).to("cuda")


def group(world):
    sharded.group(world)


def replicated(model, world, opt, **more):
    """DDP, whose hook is called for every bucket as a collective would be."""
    from torch.nn.parallel import DistributedDataParallel

    def hook(state, bucket):
        truth.used_by_a_collective(bucket.buffer())
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    options = {
        key: more.pop(key) for key in ("gradient_as_bucket_view", "bucket_cap_mb", "static_graph") if key in more
    }
    group(world)
    model = DistributedDataParallel(model.cuda(), **options)
    model.register_comm_hook(None, hook)
    model.reducer = KeepsBuckets(model.reducer)
    on_micro = (lambda is_last: setattr(model, "require_backward_grad_sync", is_last)) if "micro" in more else None
    train(model, opt(model.parameters()), on_micro=on_micro, **more)


def ddp_view_static():
    replicated(
        Model(4, 384), 4, lambda p: torch.optim.NAdam(p), gradient_as_bucket_view=True, static_graph=True, steps=4
    )


def ddp_view_micro():
    replicated(
        Reader(256, 3),
        2,
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        gradient_as_bucket_view=True,
        bucket_cap_mb=2,
        micro=4,
        batch=pictures,
    )


def ddp_view_clip():
    replicated(
        Reader(),
        16,
        lambda p: torch.optim.AdamW(p, amsgrad=True),
        gradient_as_bucket_view=True,
        bucket_cap_mb=4,
        clip=1.0,
        batch=pictures,
    )


def ddp_view_kept():
    """Gradients are set to zero, not dropped."""
    replicated(
        Model(3, 192), 3, lambda p: torch.optim.Adagrad(p), gradient_as_bucket_view=True, set_to_none=False, batch=words
    )


def ddp_copies():
    replicated(Recurrent(), 6, lambda p: torch.optim.RMSprop(p, momentum=0.5), bucket_cap_mb=3, batch=signal)


def zero_both_views():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    replicated(
        Model(3, 320),
        16,
        lambda p: ZeroRedundancyOptimizer(p, torch.optim.RAdam, lr=1e-3, parameters_as_bucket_view=True),
        gradient_as_bucket_view=True,
        batch=words,
    )


def zero_momentum():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    replicated(
        Net(),
        3,
        lambda p: ZeroRedundancyOptimizer(p, torch.optim.SGD, lr=0.1, momentum=0.9, parameters_as_bucket_view=True),
        bucket_cap_mb=1,
        batch=signal,
    )


def one_sharded(world, model, opt, orig, batch, precision=None, strategy="FULL_SHARD", clip=None, **more):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    group(world)
    model = FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=0,
        use_orig_params=orig,
        mixed_precision=precision,
        sharding_strategy=ShardingStrategy[strategy],
    )
    train(
        model,
        opt(model.parameters()),
        batch=batch,
        before=(lambda: model.clip_grad_norm_(clip)) if clip else None,
        **more,
    )


def fsdp1_flat_mixed():
    from torch.distributed.fsdp import MixedPrecision

    one_sharded(
        4,
        Reader(),
        lambda p: torch.optim.Adagrad(p),
        False,
        pictures,
        MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16),
    )


def fsdp1_orig_clip():
    one_sharded(16, Model(3, 384), lambda p: torch.optim.NAdam(p), True, words, clip=1.0)


def fsdp1_orig_half():
    from torch.distributed.fsdp import MixedPrecision

    one_sharded(
        2,
        Reader(192, 5),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        True,
        pictures,
        MixedPrecision(torch.float16, torch.float32),
        "SHARD_GRAD_OP",
        micro=2,
    )


def two_sharded(world, model, opt, batch, micro=1, **more):
    from torch.distributed.fsdp import fully_shard

    group(world)
    model = model.cuda()
    for block in model.blocks:
        fully_shard(block, **more)
    fully_shard(model, **more)
    on_micro = model.set_requires_gradient_sync if micro > 1 else None
    train(model, opt(model.parameters()), batch=batch, micro=micro, on_micro=on_micro)


def fsdp2_mixed_wide():
    from torch.distributed.fsdp import MixedPrecisionPolicy

    two_sharded(
        16,
        Model(3, 512),
        lambda p: torch.optim.NAdam(p),
        words,
        mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32),
    )


def fsdp2_mixed_micro():
    from torch.distributed.fsdp import MixedPrecisionPolicy

    two_sharded(
        4,
        Model(5, 192),
        lambda p: torch.optim.Adamax(p),
        words,
        3,
        mp_policy=MixedPrecisionPolicy(torch.bfloat16),
        reshard_after_forward=False,
    )


def tp_deep():
    group(4)
    model = sharded.parallel(Model(4, 384).cuda(), init_device_mesh("cuda", (4,)))
    train(model, torch.optim.RMSprop(model.parameters(), foreach=False), batch=words)


def tp_fsdp2_mixed():
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    group(16)
    mesh = init_device_mesh("cuda", (4, 4), mesh_dim_names=("dp", "tp"))
    model = sharded.parallel(Model(3, 320).cuda(), mesh["tp"])
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh["dp"], mp_policy=MixedPrecisionPolicy(torch.bfloat16))
    train(model, torch.optim.AdamW(model.parameters(), foreach=False), batch=words)


def plain_autocast():
    model = Reader().cuda()
    forward = model.forward

    def under_autocast(x):
        with torch.autocast("cuda", torch.bfloat16):
            return forward(x)

    model.forward = under_autocast
    train(model, torch.optim.Adamax(model.parameters()), batch=pictures, micro=2, clip=1.0)


AGAIN = [
    ddp_view_static,
    ddp_view_micro,
    ddp_view_clip,
    ddp_view_kept,
    ddp_copies,
    zero_both_views,
    zero_momentum,
    fsdp1_flat_mixed,
    fsdp1_orig_clip,
    fsdp1_orig_half,
    fsdp2_mixed_wide,
    fsdp2_mixed_micro,
    tp_deep,
    tp_fsdp2_mixed,
    plain_autocast,
]

if __name__ == "__main__":
    run(AGAIN, truth)
