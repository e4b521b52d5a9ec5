"""Records programs that keep memory of their own: state of optimizers in the making, data sets, outputs, averages.

usage: run.sh kept.py SCENARIO OUT.pickle.gz        (torch 2.9 or later)
"""

import io

import torch
import torch.nn.functional as F
from torch import nn

import sharded
from sharded import Block, Model, Net, ids, loss_of, note, signal, train, truth
from truth import run

# ---------------------------------------------------------------- optimizers of one's own


class Shampoo(torch.optim.Optimizer):
    """Its state is not of the parameters' sizes: a square for each dimension, and the roots of these."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["momentum"] = torch.zeros_like(p)
                for at, size in enumerate(p.shape):
                    state[f"precondition_{at}"] = torch.eye(size, device=p.device)
                    state[f"root_{at}"] = torch.zeros(size, size, device=p.device)
            g = p.grad
            for at, size in enumerate(p.shape):
                flat = p.grad.transpose(0, at).reshape(size, -1)
                state[f"precondition_{at}"].add_(flat @ flat.t())
                state[f"root_{at}"] = state[f"precondition_{at}"] + 1e-4
                g = (state[f"root_{at}"] @ g.transpose(0, at).reshape(size, -1)).reshape(p.shape)
            state["momentum"].mul_(0.9).add_(g)
            p.sub_(state["momentum"])


def shampoo():
    model = Model().cuda()
    train(model, Shampoo(model.parameters()))


class Sharpness:
    """SAM: goes uphill, computes the gradients there, and steps from where it was."""

    def __init__(self, params, base):
        self.params, self.base, self.old, self.state = list(params), base, {}, {}

    @torch.no_grad()
    def climb(self):
        for p in self.params:
            self.old[p] = p.data.clone()
            p.add_(p.grad, alpha=0.05)
            p.grad = None

    @torch.no_grad()
    def come_back(self):
        for p in self.params:
            p.copy_(self.old[p])
        self.base.step()
        self.base.zero_grad()


def sam():
    model = Model().cuda()
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    opt = Sharpness(model.parameters(), base)
    truth.models, truth.optimizers, truth.states = [model], [base], [opt.old]
    for sharded.step in range(3):
        x = ids()
        truth.inputs = [x]
        loss_of(model, x).backward()
        note("after backward")
        opt.climb()
        note("uphill")
        loss = loss_of(model, x)
        note("after the second forward")
        loss.backward()
        note("after the second backward")
        opt.come_back()
        note("after step")


class Updater:
    """Adam, called so by nothing; its state is made when it is first used."""

    def __init__(self, model):
        self.model, self.memory = model, {}

    def moments(self, name, like):
        if name not in self.memory:
            self.memory[name] = (torch.zeros_like(like), torch.zeros_like(like))
            if len(self.memory) == 12:
                note("half of the state is made")
        return self.memory[name]

    @torch.no_grad()
    def apply(self):
        for name, p in self.model.named_parameters():
            m, v = self.moments(name, p)
            m.lerp_(p.grad, 0.1)
            v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            p.add_(m / (v.sqrt() + 1e-8), alpha=-1e-3)


def own_adam():
    model = Model().cuda()
    updater = Updater(model)
    truth.models, truth.states = [model], [updater.memory]
    for sharded.step in range(3):
        x = ids()
        truth.inputs = [x]
        loss = loss_of(model, x)
        note("after forward")
        loss.backward()
        note("after backward")
        updater.apply()
        note("after step")
        model.zero_grad()


def fisher():
    """Squares of the gradients are added up in a dictionary, as for elastic weight consolidation."""
    model, importance = Net().cuda(), {}
    truth.models, truth.states = [model], [importance]
    opt = torch.optim.Adam(model.parameters())

    @torch.no_grad()
    def before():
        for name, p in model.named_parameters():
            if name not in importance:
                importance[name] = torch.zeros_like(p.grad)
            importance[name] += p.grad**2

    train(model, opt, batch=signal, before=before)


# ---------------------------------------------------------------- data kept on the device


def pictures():
    return torch.zeros(3000, 3, 32, 32, dtype=torch.uint8).to("cuda")


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.mid = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 64, 3, 2, 1)
        self.head = nn.Linear(64 * 16 * 16, 10)

    def forward(self, x):
        x = F.relu(self.mid(F.relu(self.stem(x))))
        return self.head(x.flatten(1))


def train_on(model, opt, data, labels, steps=3):
    truth.models, truth.optimizers, truth.inputs = [model], [opt], [data, labels]
    note("built")
    for sharded.step in range(steps):
        at = torch.randperm(len(data), device="cuda")[:32]
        x = data[at].float() / 255
        y = labels[at]
        truth.inputs = [data, labels, x, y]
        loss = F.cross_entropy(model(x), y)
        note("after forward")
        loss.backward()
        note("after backward")
        opt.step()
        opt.zero_grad()
        note("after step")


def bytes_on_device():
    data = pictures()
    labels = torch.zeros(3000, dtype=torch.int64).to("cuda")
    model = Classifier().cuda()
    train_on(model, torch.optim.AdamW(model.parameters()), data, labels)


class Pictures:
    def __init__(self):
        self.data = torch.zeros(4000, 3, 32, 32, dtype=torch.uint8, device="cuda")
        self.labels = torch.zeros(4000, dtype=torch.int64, device="cuda")


def bytes_in_a_class():
    model = Classifier().cuda()
    kept = Pictures()
    train_on(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), kept.data, kept.labels)


class Memories:
    """What an agent has seen: rings that are written to in place."""

    def __init__(self, size=6000):
        self.states = torch.zeros(size, 64, device="cuda")
        self.rewards = torch.zeros(size, device="cuda")

    def sample(self, n=256):
        at = torch.randint(0, len(self.states), (n,), device="cuda")
        return self.states[at], self.rewards[at]


def memories():
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)).cuda()
    opt, kept = torch.optim.Adam(model.parameters()), Memories()
    truth.models, truth.optimizers, truth.inputs = [model], [opt], [kept.states, kept.rewards]
    for sharded.step in range(3):
        x, y = kept.sample()
        truth.inputs = [kept.states, kept.rewards, x, y]
        loss = F.mse_loss(model(x)[:, 0], y)
        note("after forward")
        loss.backward()
        note("after backward")
        opt.step()
        opt.zero_grad()
        note("after step")


# ---------------------------------------------------------------- outputs, caches, passes without backward


def attention():
    """Weights of attention, saved by softmax, are most of the memory."""
    model = nn.Sequential(*(Block(64) for _ in range(3))).cuda()
    opt = torch.optim.Adam(model.parameters())
    truth.models, truth.optimizers = [model], [opt]
    for sharded.step in range(3):
        x = torch.zeros(4, 512, 64).to("cuda")
        truth.inputs = [x]
        out = model(x)
        note("after forward")
        out.square().mean().backward()
        note("after backward")
        opt.step()
        opt.zero_grad()
        note("after step")


def kept_outputs():
    """Trains, then evaluates and keeps what the model says."""
    model = Net().cuda()
    train(model, torch.optim.AdamW(model.parameters()), batch=signal, steps=2)
    truth.others = said = []
    model.eval()
    with torch.no_grad():
        for at in range(5):
            x = signal()
            truth.inputs = [x]
            said.append(model(x))
            if at in (1, 4):
                truth.note(f"after evaluating {at}")
    whole = torch.cat(said)
    said.append(whole)
    truth.note("after joining")


def kept_predictions():
    """Evaluates only. The outputs are kept, the inputs are on the device beforehand."""
    model = Net().cuda().eval()
    batches = [signal() for _ in range(4)]
    truth.models, truth.inputs, truth.others = [model], batches, []
    with torch.inference_mode():
        for at, x in enumerate(batches):
            truth.others.append(model(x).softmax(-1))
            truth.note(f"after batch {at}")


def kept_graphs():
    """Evaluates without `no_grad`: each output holds its activations."""
    model = Model().cuda()
    train(model, torch.optim.Adam(model.parameters()), steps=2)
    kept = []
    for at in range(3):
        x = ids()
        truth.inputs = [x]
        kept.append(loss_of(model, x))
        truth.note(f"after evaluating {at}")


def only_forward():
    """A model that is only run, without `no_grad`, twice."""
    model = Model(3).cuda()
    truth.models = [model]
    for at in range(2):
        x = ids()
        truth.inputs = [x]
        out = model(x)
        truth.note(f"after forward {at}")
    del out


def generate():
    """A cache of keys and values that grows by joining."""
    d, layers = 256, 4
    model = nn.ModuleList(nn.ModuleDict({n: nn.Linear(d, d) for n in "qkvo"}) for _ in range(layers)).cuda()
    cache = [[torch.zeros(8, 0, d, device="cuda")] * 2 for _ in range(layers)]
    truth.models = [model]
    with torch.inference_mode():
        x = torch.zeros(8, 200, d).to("cuda")
        for at in range(12):
            truth.inputs = [x]
            for layer, kept in zip(model, cache):
                kept[0] = torch.cat([kept[0], layer["k"](x)], 1)
                kept[1] = torch.cat([kept[1], layer["v"](x)], 1)
                weights = (layer["q"](x) @ kept[0].transpose(1, 2)).softmax(-1)
                x = x + layer["o"](weights @ kept[1])
            truth.others = cache
            if at in (0, 5, 11):
                truth.note(f"after token {at}")
            x = x[:, -1:].clone()


# ---------------------------------------------------------------- frozen parameters


class Adapter(nn.Module):
    def __init__(self, inner, rank=8):
        super().__init__()
        self.inner = inner
        self.down, self.up = nn.Linear(inner.in_features, rank, bias=False), nn.Linear(rank, inner.out_features)

    def forward(self, x):
        return self.inner(x) + self.up(self.down(x))


def lora():
    model = Model(4).cuda().requires_grad_(False)
    for block in model.blocks:
        for name in ("q", "k", "v", "out", "up", "down"):
            setattr(block, name, Adapter(getattr(block, name)).cuda())
            getattr(block, name).inner.requires_grad_(False)
    train(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]))


def frozen_half():
    """A backbone in half precision that is frozen, loaded tensor by tensor, and a head that is trained."""
    backbone = Model(3).half()
    for p in backbone.parameters():
        p.data = p.data.to("cuda")
    backbone.requires_grad_(False)
    head = nn.Sequential(nn.Linear(1000, 512), nn.ReLU(), nn.Linear(512, 1000)).cuda()

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone, self.head = backbone, head

        def forward(self, x):
            with torch.no_grad():
                h = self.backbone(x)
            return self.head(h.float())

    train(Both(), torch.optim.Adam(head.parameters()))


def resumed():
    """Weights, their average and Adam's state come from a checkpoint on the device, which is kept."""
    old = Model()
    opt = torch.optim.AdamW(old.parameters())
    for p in old.parameters():
        p.grad = torch.zeros_like(p)
    opt.step()
    file = io.BytesIO()
    torch.save({"optimizer": opt.state_dict(), "model": old.state_dict(), "ema": Model().state_dict()}, file)
    file.seek(0)
    model = Model().cuda()
    opt = torch.optim.AdamW(model.parameters())
    checkpoint = torch.load(file, map_location="cuda")
    model.load_state_dict(checkpoint["model"])
    opt.load_state_dict(checkpoint["optimizer"])
    for state in opt.state.values():
        state["step"] = state["step"].cpu()  # the stub does not count
    truth.others = [checkpoint["model"], checkpoint["ema"]]
    train(model, opt)


KEPT = [
    resumed,
    shampoo,
    sam,
    own_adam,
    fisher,
    bytes_on_device,
    bytes_in_a_class,
    memories,
    attention,
    kept_outputs,
    kept_predictions,
    kept_graphs,
    only_forward,
    generate,
    lora,
    frozen_half,
]

if __name__ == "__main__":
    run(KEPT, truth)
