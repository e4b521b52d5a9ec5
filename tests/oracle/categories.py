"""Records training runs, with the real use of their memory.

usage: run.sh categories.py SCENARIO OUT.pickle.gz

Beside OUT stands OUT's name with .truth.json: a list of moments, each with the index of the last entry
of device 0's trace before it and the memory of parameters (with buffers), gradients, optimizer state,
inputs and tensors saved for the backward pass, as [address, bytes] of their storages. The program knows
all of these; nothing is read from the recording. The batch, the loss and other tensors that only a
variable holds are in no list.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import recording
from truth import Truth, run

D = 192
DEVICE = "cuda"


truth = Truth()


class Block(nn.Module):
    """A transformer block, written so that each tensor has its own line."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        weights = F.softmax(q @ k.transpose(-1, -2) / D**0.5, -1)
        x = x + self.out(weights @ v)
        return x + self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self, layers=3, recompute=None):
        super().__init__()
        self.embed = nn.Linear(64, D)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(D, 512)
        self.recompute = recompute

    def forward(self, x):
        x = self.embed(x)
        for at, block in enumerate(self.blocks):
            x = block(x) if self.recompute is None else checkpoint(block, x, use_reentrant=self.recompute)
            if at == 1 and x.requires_grad:
                x.register_hook(self.middle)
        return self.head(x)

    def middle(self, gradient):
        note("in backward")


step = 0
noted = range(0, 0)


def note(name):
    if step in noted:
        truth.note(name)


def batch(n=16):
    x = torch.empty(n, 48, 64, device=DEVICE)
    truth.inputs = [x]
    return x


def loss_of(model, x):
    out = model(x)
    loss = out.float().square().mean()
    note("after forward")
    return loss


def train(model, opt, steps, *, at, micro=1, set_to_none=True, cast=None, each=None):
    """Steps of training; the truth is noted in those of `at`."""
    global step, noted
    noted = at
    truth.models, truth.optimizers = [model], [opt]
    for step in range(step, step + steps):
        for _ in range(micro):
            with torch.autocast(DEVICE, cast, enabled=cast is not None):
                loss = loss_of(model, batch())
            loss.backward()
        note("after backward")
        opt.step()
        note("after the optimizer's step")
        opt.zero_grad(set_to_none=set_to_none)
        if each:
            each(loss)
    step += 1


def adam():
    model = Model().cuda()
    truth.models = [model]
    truth.note("model built")
    train(model, torch.optim.Adam(model.parameters()), 4, at={0, 2})


def momentum():
    """SGD with momentum whose gradients stay; PyTorch's own transformer layer."""
    model = nn.Sequential(
        nn.Linear(64, D), nn.TransformerEncoderLayer(D, 4, 2 * D, batch_first=True), nn.Linear(D, 64)
    ).cuda()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), 4, at={0, 2}, set_to_none=False)


def sgd():
    """An optimizer that allocates nothing after its first step, and gradients that go at once."""
    model = Model(layers=2).cuda()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), 3, at={0, 2})


def sgd_by_hand():
    """Neither an optimizer nor an allocation of its own."""
    global step, noted
    noted = {1, 2}
    model = Model(layers=2).cuda()
    truth.models = [model]
    for step in range(4):
        loss_of(model, batch()).backward()
        note("after backward")
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad, alpha=0.1)
                p.grad = None


def in_backward():
    """An optimizer for each parameter, stepped as soon as its gradient is there."""
    global step, noted
    noted = {1, 2}
    model = Model(layers=2).cuda()
    opts = {p: torch.optim.Adam([p]) for p in model.parameters()}
    truth.models, truth.optimizers = [model], list(opts.values())

    def update(p):
        opts[p].step()
        opts[p].zero_grad()

    for p in opts:
        p.register_post_accumulate_grad_hook(update)
    for step in range(4):
        loss_of(model, batch()).backward()
        note("after backward")


def penalty():
    """A backward pass through a backward pass."""
    global step, noted
    noted = {1, 2}
    model = nn.Sequential(nn.Linear(64, D), nn.Softplus(), nn.Linear(D, D), nn.Softplus(), nn.Linear(D, 1)).cuda()
    opt = torch.optim.Adam(model.parameters())
    truth.models, truth.optimizers = [model], [opt]
    for step in range(4):
        x = batch().requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        loss = (slope.norm(2, -1) - 1).square().mean()
        note("after forward")
        loss.backward()
        opt.step()
        opt.zero_grad()


def decode():
    """Inference with a cache that grows, and one made beforehand."""
    model = Model().cuda()
    truth.models = [model]
    made = torch.empty(64, 48, 512, device=DEVICE)
    with torch.inference_mode():
        for request in range(3):
            cache = torch.empty(16, 0, 512, device=DEVICE)
            for _ in range(6):
                out = model(batch())
                cache = torch.cat([cache, out], 1)
                made[request] = out[0]
            truth.note("in a request")


def accumulate():
    model = Model().cuda()
    train(model, torch.optim.AdamW(model.parameters()), 3, at={0, 1}, micro=3)


def recompute():
    model = Model(recompute=False).cuda()
    train(model, torch.optim.AdamW(model.parameters()), 3, at={0, 2})


def recompute_reentrant():
    model = Model(recompute=True).cuda()
    train(model, torch.optim.AdamW(model.parameters()), 3, at={0, 2})


def half():
    model = Model().cuda()
    train(model, torch.optim.AdamW(model.parameters()), 3, at={0, 2}, cast=torch.bfloat16)


def evaluate():
    """Training, then evaluation without gradients."""
    model = Model().cuda()
    train(model, torch.optim.Adam(model.parameters()), 2, at=set())
    with torch.no_grad():
        for at in range(3):
            out = model(batch())
            truth.note("in evaluation")
            del out


def late():
    """The recording begins between two steps of a training that has long been running."""
    torch.cuda.memory._record_memory_history(None)
    model = Model().cuda()
    opt = torch.optim.Adam(model.parameters())
    train(model, opt, 2, at=set())
    torch.cuda.memory._record_memory_history(stacks="python")
    train(model, opt, 3, at={3, 4})


def leak_graph():
    """Losses kept in a list, whose graphs are never gone through: each holds its activations."""
    model = Model().cuda()
    kept = []

    def each(loss):
        kept.append(loss_of(model, batch()))

    train(model, torch.optim.Adam(model.parameters()), 6, at={5}, each=each)


def leak_cache():
    """A list that grows by two tensors a step, and one tensor that grows by a row a step."""
    model = Model().cuda()
    kept, table = [], [torch.empty(0, 4096, device=DEVICE)]

    def each(loss):
        for _ in range(2):
            kept.append(torch.empty(300, 1024, device=DEVICE))
        table[0] = torch.cat([table[0], torch.empty(256, 4096, device=DEVICE)])

    train(model, torch.optim.Adam(model.parameters()), 9, at={7, 8}, each=each)


def leak_third():
    """A list that grows by a tensor after every third step."""
    model = Model(layers=1).cuda()
    kept = []

    def each(loss):
        if step % 3 == 2:
            kept.append(torch.empty(300, 1024, device=DEVICE))

    train(model, torch.optim.Adam(model.parameters()), 17, at={16}, each=each)


def queue():
    """As many tensors are let go as are taken in, of which the oldest are older than the recording."""
    torch.cuda.memory._record_memory_history(None)
    model = Model(layers=1).cuda()
    opt = torch.optim.Adam(model.parameters())
    held = [torch.empty(300, 1024, device=DEVICE) for _ in range(12)]

    def each(loss):
        held.pop(0)
        held.append(torch.empty(300, 1024, device=DEVICE))

    train(model, opt, 1, at=set(), each=each)
    torch.cuda.memory._record_memory_history(stacks="python")
    train(model, opt, 8, at={7}, each=each)


def cut_forward():
    """The recording ends in the forward pass of the third step, as after an OOM."""
    model = Model().cuda()
    opt = torch.optim.Adam(model.parameters())
    train(model, opt, 2, at=set())
    loss_of(model, batch())
    truth.note("in forward, the last entry")


def cut_backward():
    """The recording ends in the backward pass of the third step, as after an OOM."""
    model = Model().cuda()
    opt = torch.optim.Adam(model.parameters())
    train(model, opt, 2, at=set())
    global noted

    class Stop(Exception):
        pass

    def middle(gradient):
        truth.note("in backward, the last entry")
        recording.write(Path(sys.argv[2]), {"scenario": "cut_backward"})
        raise Stop

    model.middle = middle
    try:
        loss_of(model, batch()).backward()
    except Stop:
        return True


def clip():
    """Clipped gradients, a frozen first layer, a running average of the model, Adagrad."""
    model = Model().cuda()
    model.embed.requires_grad_(False)
    average = torch.optim.swa_utils.AveragedModel(model)
    opt = torch.optim.Adagrad([p for p in model.parameters() if p.requires_grad])
    global step, noted
    noted = {0, 2}
    truth.models, truth.optimizers = [model, average], [opt]
    for step in range(4):
        loss_of(model, batch()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        note("after clipping")
        opt.step()
        average.update_parameters(model)
        note("after the average")
        opt.zero_grad()


def rivals():
    """Two models with an optimizer each, stepped in turn, one a convolutional network."""
    torch.backends.cudnn.enabled = False
    global step, noted
    noted = {0, 2}
    maker, judge = (
        Model(layers=2).cuda(),
        nn.Sequential(
            nn.Conv1d(48, 64, 5), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 64, 5), nn.Flatten(), nn.LazyLinear(1)
        ),
    )
    judge = judge.cuda()
    judge(torch.empty(2, 48, 512, device=DEVICE))
    opts = [torch.optim.RMSprop(maker.parameters(), momentum=0.5), torch.optim.Adam(judge.parameters())]
    truth.models, truth.optimizers = [maker, judge], opts
    for step in range(4):
        for opt in opts:
            opt.zero_grad()
            made = maker(batch())
            loss = judge(made if opt is opts[0] else made.detach()).mean()
            note("after forward")
            loss.backward()
            note("after backward")
            opt.step()
        note("after both steps")


def closure():
    """An optimizer that runs the model itself."""
    global step, noted
    noted = {1}
    model = Model(layers=2).cuda()
    opt = torch.optim.LBFGS(model.parameters(), max_iter=3, history_size=3)
    truth.models, truth.optimizers = [model], [opt]

    def run():
        opt.zero_grad()
        loss = loss_of(model, batch())
        loss.backward()
        note("after backward")
        return loss

    for step in range(3):
        opt.step(run)
        note("after the optimizer's step")


def engine():
    """A training framework that passes the step to the optimizer as a closure, with its own loss."""
    global step, noted
    noted = {1, 2}
    model = Model(layers=2).cuda()
    opt = torch.optim.AdamW(model.parameters(), fused=True)
    truth.models, truth.optimizers = [model], [opt]
    for step in range(4):

        def run():
            out = model(batch())
            loss = ((out - 1) ** 2).mean()
            opt.zero_grad()
            note("after forward")
            loss.backward()
            return loss

        opt.step(run)
        note("after the optimizer's step")


if __name__ == "__main__":
    run(globals(), truth)
