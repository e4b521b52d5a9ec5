"""Records sharded and replicated training, and custom optimizers, with the real use of their memory.

usage: run.sh sharded.py SCENARIO OUT.pickle.gz        (torch 2.9 or later)

Eight processes are played by one: the backend `fake` of torch.testing takes part in every collective and moves nothing.
"""

import contextlib
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from truth import Truth, run, watch_collectives

D, VOCABULARY, DEVICE = 256, 1000, "cuda"
truth = Truth()
torch.backends.cudnn.enabled = False  # its kernels cannot be looked for without a GPU


class Block(nn.Module):
    def __init__(self, d=D):
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.out = (nn.Linear(d, d) for _ in range(4))
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        h = self.norm(x)
        q, k, v = self.q(h), self.k(h), self.v(h)
        weights = F.softmax(q @ k.transpose(-1, -2) / 16, -1)
        x = x + self.out(weights @ v)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, layers=2, d=D):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for at, block in enumerate(self.blocks):
            x = block(x)
            if at == 1 and x.requires_grad:
                x.register_hook(lambda gradient: note("in backward"))
        return self.head(self.norm(x))


class Net(nn.Module):
    """Nothing like the other: convolutions, buffers, a pair of towers."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(nn.Conv1d(64, 96, 5, padding=2), nn.BatchNorm1d(96), nn.ReLU()),
                nn.Sequential(nn.Conv1d(96, 64, 3, padding=1), nn.GroupNorm(4, 64), nn.SiLU()),
            ]
        )
        self.tower = nn.Sequential(
            nn.Linear(64, 700), nn.Tanh(), nn.Linear(700, 300), nn.Tanh(), nn.Linear(300, VOCABULARY)
        )

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        if x.requires_grad:
            x.register_hook(lambda gradient: note("in backward"))
        return self.tower(x.transpose(1, 2))


step, noted = 0, {0, 2}


def note(name):
    if step in noted:
        truth.note(f"step {step} {name}")


def ids(n=8, length=64):
    """Copied from the host, as from a loader."""
    return torch.zeros(n, length, dtype=torch.int64).to(DEVICE)


def signal(n=16):
    return torch.zeros(n, 64, 200).to(DEVICE)


def loss_of(model, x):
    out = model(x).float()
    return F.cross_entropy(
        out.reshape(-1, out.shape[-1]), torch.zeros(out.numel() // out.shape[-1], dtype=torch.int64, device=DEVICE)
    )


def train(
    model, *opts, steps=3, batch=ids, micro=1, before=None, clip=None, after=None, set_to_none=True, on_micro=None
):
    global step
    truth.models = truth.models or [model]
    truth.optimizers = list(opts)
    note("built")
    for step in range(steps):
        for at in range(micro):
            if on_micro:
                on_micro(at == micro - 1)
            x = batch()
            truth.inputs = [x]
            loss = loss_of(model, x)
            note("after forward")
            loss.backward()
        note("after backward")
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        if before:
            before()
        for opt in opts:
            opt.step()
        note("after step")
        for opt in opts:
            opt.zero_grad(set_to_none=set_to_none)
        if after:
            after()
        note("after zero_grad")


def group(world=8):
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    torch.cuda.set_device(0)
    dist._verify_params_across_processes = lambda *_: None  # the others would say nothing
    watch_collectives(truth)


def fsdp1(precision=None, orig=False, strategy=None, opt=torch.optim.AdamW, model=None, batch=ids, **more):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    group()
    kinds = {Block, nn.Sequential}
    model = FullyShardedDataParallel(
        model or Model(),
        auto_wrap_policy=ModuleWrapPolicy(kinds),
        device_id=0,
        use_orig_params=orig,
        mixed_precision=precision,
        sharding_strategy=strategy or ShardingStrategy.FULL_SHARD,
    )
    train(model, opt(model.parameters(), lr=1e-3), batch=batch, **more)


def fsdp1_mixed():
    from torch.distributed.fsdp import MixedPrecision

    fsdp1(MixedPrecision(torch.bfloat16, torch.bfloat16), orig=True)


def fsdp1_grad_op():
    from torch.distributed.fsdp import ShardingStrategy

    fsdp1(strategy=ShardingStrategy.SHARD_GRAD_OP, opt=torch.optim.SGD)


def fsdp2(opt=torch.optim.AdamW, model=None, meta=False, kinds=(Block,), train_more=None, world=8, **more):
    from torch.distributed.fsdp import fully_shard

    group(world)
    if meta:
        with torch.device("meta"):
            model = Model()
    else:
        model = (model or Model()).cuda()
    for module in model.modules():
        if isinstance(module, kinds):
            fully_shard(module, **more)
    fully_shard(model, **more)
    if meta:
        model.to_empty(device=DEVICE)
        for p in model.parameters():
            nn.init.zeros_(p)
    train(model, opt(model.parameters(), lr=1e-3), **(train_more or {}))


def fsdp2_mixed():
    from torch.distributed.fsdp import MixedPrecisionPolicy

    fsdp2(meta=True, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32), train_more={"clip": 1.0})


def fsdp2_mixed_wide():
    from torch.distributed.fsdp import MixedPrecisionPolicy

    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    fsdp2(torch.optim.NAdam, Model(3, 512), world=16, train_more={"batch": lambda: ids(4, 96)}, mp_policy=policy)


def fsdp2_keep():
    fsdp2(opt=torch.optim.Adam, reshard_after_forward=False)


def fsdp2_accumulate():
    from torch.distributed.fsdp import fully_shard

    group()
    model = Model().cuda()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    train(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False),
        micro=3,
        on_micro=model.set_requires_gradient_sync,
    )


def parallel(model, mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    for block in model.blocks:
        plan = dict.fromkeys("qkv", ColwiseParallel()) | {
            "out": RowwiseParallel(),
            "up": ColwiseParallel(),
            "down": RowwiseParallel(),
        }
        parallelize_module(block, mesh, plan)
    return model


def tp(opt=torch.optim.AdamW, **more):
    group()
    model = parallel(Model().cuda(), init_device_mesh(DEVICE, (8,)))
    train(model, opt(model.parameters(), lr=1e-3, foreach=False), **more)


def tp_fsdp2():
    from torch.distributed.fsdp import fully_shard

    group()
    mesh = init_device_mesh(DEVICE, (2, 4), mesh_dim_names=("dp", "tp"))
    model = parallel(Model().cuda(), mesh["tp"])
    for block in model.blocks:
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False))


class KeepsBuckets:
    """A reducer that does not make its buckets anew after the first step: it would read their order back from the
    device, which holds nothing. (The fixtures were recorded where such a copy left the host's memory as it was.)"""

    def __init__(self, reducer):
        self.reducer = reducer

    def __getattr__(self, name):
        return getattr(self.reducer, name)

    def _rebuild_buckets(self):
        return False


def ddp(model=None, opt=None, batch=ids, world=8, ddp_options=None, **more):
    from torch.nn.parallel import DistributedDataParallel

    group(world)
    model = DistributedDataParallel((model or Model()).cuda(), **(ddp_options or {}))

    def hook(state, bucket):
        truth.used_by_a_collective(bucket.buffer())
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    def on_micro(is_last):
        model.require_backward_grad_sync = is_last

    model.register_comm_hook(None, hook)
    model.reducer = KeepsBuckets(model.reducer)
    train(
        model,
        (opt or (lambda p: torch.optim.AdamW(p, lr=1e-3)))(model.parameters()),
        batch=batch,
        on_micro=on_micro,
        **more,
    )


def ddp_view():
    ddp(ddp_options={"gradient_as_bucket_view": True})


def ddp_view_small_buckets():
    ddp(
        ddp_options={"gradient_as_bucket_view": True, "bucket_cap_mb": 1},
        opt=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        set_to_none=False,
    )


def ddp_view_static():
    options = {"gradient_as_bucket_view": True, "static_graph": True}
    ddp(Model(4, 384), lambda p: torch.optim.NAdam(p), world=4, ddp_options=options, steps=4)


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


def ddp_view_micro():
    ddp(
        Reader(256, 3),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        batch=lambda: torch.zeros(6, 3, 64, 64).to(DEVICE),
        world=2,
        ddp_options={"gradient_as_bucket_view": True, "bucket_cap_mb": 2},
        micro=4,
    )


def ddp_small_buckets():
    ddp(ddp_options={"bucket_cap_mb": 1}, clip=1.0)


def zero1(opt=torch.optim.AdamW, view=False, **more):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    ddp(opt=lambda p: ZeroRedundancyOptimizer(p, opt, lr=1e-3, parameters_as_bucket_view=view), **more)


def zero1_view():
    zero1(view=True)


class Lion(torch.optim.Optimizer):
    """State made when it is, not when it steps."""

    def __init__(self, params, lr=1e-3, master=False):
        super().__init__(params, {"lr": lr})
        for p in self.param_groups[0]["params"]:
            self.state[p]["m"] = torch.zeros_like(p, dtype=torch.float32)
            if master:
                self.state[p]["master"] = p.detach().clone().float()

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            if p.grad is None:
                continue
            state = self.state[p]
            update = state["m"].mul(0.9).add_(p.grad.float(), alpha=0.1).sign_()
            state["m"].lerp_(p.grad.float(), 0.01)
            at = state.get("master", p)
            at.add_(update, alpha=-1e-3)
            if at is not p:
                p.copy_(at)


def lion():
    model = Model().cuda()
    train(model, Lion(model.parameters()))


def lion_master():
    model = Model().cuda().bfloat16()
    train(model, Lion(model.parameters(), master=True))


class Sophia:
    """Not a subclass of anything; state made lazily, with the name of no optimizer in its file."""

    def __init__(self, params):
        self.params, self.m, self.h, self.state = list(params), {}, {}, {}

    @torch.no_grad()
    def step(self):
        for p in self.params:
            if p not in self.m:
                self.m[p], self.h[p] = torch.zeros_like(p), torch.zeros_like(p)
            self.m[p].mul_(0.9).add_(p.grad, alpha=0.1)
            self.h[p].mul_(0.9).addcmul_(p.grad, p.grad, value=0.1)
            p.sub_(self.m[p] / self.h[p].clamp(min=1e-8), alpha=1e-3)

    def zero_grad(self, set_to_none=True):
        for p in self.params:
            p.grad = None


def sophia():
    model = Model().cuda()
    opt = Sophia(model.parameters())
    truth.states = [opt.m, opt.h]
    train(model, opt)


def masters():
    """Master weights outside the optimizer, which steps on them."""
    model = Model().cuda().half()
    master = [p.detach().clone().float().requires_grad_() for p in model.parameters()]
    truth.weights = [master]
    opt = torch.optim.Adam(master, lr=1e-3)

    def before():
        for p, m in zip(model.parameters(), master):
            m.grad = p.grad.float()
            p.grad = None
        truth.gradients = [m.grad for m in master]
        note("after the gradients' copies")

    def after():
        with torch.no_grad():
            for p, m in zip(model.parameters(), master):
                p.copy_(m)
        truth.gradients = []

    train(model, opt, before=before, after=after)


def averages():
    """An average of the model, kept in a dictionary by hand."""
    model = Model().cuda()
    average = {name: p.detach().clone() for name, p in model.named_parameters()}
    truth.weights = [average]

    @torch.no_grad()
    def after():
        for name, p in model.named_parameters():
            average[name].lerp_(p, 0.01)

    train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), after=after)


def average_model():
    """An average of the model as a model of its own, begun after the first step."""
    model = Model().cuda()
    averaged = []

    @torch.no_grad()
    def after():
        if not averaged:
            averaged.append(copy.deepcopy(model))
            truth.models.append(averaged[0])
        for a, p in zip(averaged[0].parameters(), model.parameters()):
            a.lerp_(p, 0.01)

    train(model, torch.optim.AdamW(model.parameters(), lr=1e-3), after=after)


def ahead():
    """Batches are copied two steps before they are used."""
    model = Net().cuda()
    waiting = [signal(16 + 4 * at) for at in range(2)]
    sizes = iter(range(24, 100, 4))

    def batch():
        waiting.append(signal(next(sizes)))
        x = waiting.pop(0)
        truth.inputs = [x, *waiting]
        return x

    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    global step
    truth.models, truth.optimizers = [model], [opt]
    for step in range(5):
        x = batch()
        truth.inputs = [x, *waiting]
        loss = loss_of(model, x)
        note("after forward")
        loss.backward()
        note("after backward")
        opt.step()
        opt.zero_grad()
        note("after step")


def cut_step():
    """The recording ends in the midst of an optimizer's first step."""
    model = Model().cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    truth.models, truth.optimizers = [model], [opt]
    loss_of(model, ids()).backward()

    class Stop(Exception):
        pass

    def stop(*_, **__):
        truth.note("in the optimizer's step")
        raise Stop

    torch._foreach_addcdiv_ = stop
    with contextlib.suppress(Stop):
        opt.step()


def late_inference():
    """A model that was there before the recording began."""
    torch.cuda.memory._record_memory_history(None)
    model = Model().cuda()
    truth.models = [model]
    torch.cuda.memory._record_memory_history(stacks="python")
    with torch.inference_mode():
        for _ in range(3):
            model(ids())
            truth.note("after a request")


if __name__ == "__main__":
    run(globals(), truth)
