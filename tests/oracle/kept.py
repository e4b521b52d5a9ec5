"""Records programs that keep memory of their own: state of optimizers in the making, data sets, outputs, averages.

usage: run.sh kept.py SCENARIO OUT.pickle.gz        (torch 2.9 or later)
"""

import io
import math

import torch
import torch.nn.functional as F
from torch import nn

import sharded
from sharded import Model, Net, ids, loss_of, note, signal, train, truth
from truth import run

WORDS = 800


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


class Pictures:
    def __init__(self):
        self.data = torch.zeros(4000, 3, 32, 32, dtype=torch.uint8, device="cuda")
        self.labels = torch.zeros(4000, dtype=torch.int64, device="cuda")


def bytes_in_a_class():
    model = Classifier().cuda()
    kept = Pictures()
    train_on(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), kept.data, kept.labels)


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


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d)

    def forward(self, x, past=None):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(d // self.heads)
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        weights = weights / weights.sum(-1, keepdim=True)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, d)), (k, v)


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.attention, self.before, self.after = Attention(d, heads), nn.LayerNorm(d), nn.LayerNorm(d)
        self.gate, self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(d, 3 * d), nn.Linear(3 * d, d)

    def forward(self, x, past=None):
        attended, kept = self.attention(self.before(x), past)
        x = x + attended
        h = self.after(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), kept


class Language(nn.Module):
    def __init__(self, d=192, layers=3, heads=6):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, d), nn.Embedding(512, d)
        self.layers = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.last = nn.LayerNorm(d)

    def forward(self, ids, pasts=None):
        at = 0 if pasts is None else pasts[0][0].shape[2]
        x = self.words(ids) + self.places.weight[at : at + ids.shape[1]]
        kept = []
        for number, layer in enumerate(self.layers):
            x, past = layer(x, None if pasts is None else pasts[number])
            kept.append(past)
        return F.linear(self.last(x), self.words.weight), kept


class Images(nn.Module):
    """Convolutions with residuals."""

    def __init__(self, width=48, classes=20):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()) for _ in range(4)
        )
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        x = self.first(x)
        for part in self.body:
            x = x + part(x)
        return self.out(x.mean((2, 3)))


def tokens(n=6, length=96):
    return torch.zeros(n, length, dtype=torch.int64).cuda()


def language_loss(model, ids):
    logits, _ = model(ids)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def image_batch(n=12):
    return torch.zeros(n, 3, 32, 32).cuda(), torch.zeros(n, dtype=torch.int64).cuda()


def say(number, name):
    if number in (0, 2):
        truth.note(f"iteration {number}, {name}")


class Kronecker:
    """Shampoo without a base class: statistics of rows and columns, used through a matrix multiplication."""

    def __init__(self, model):
        self.weights = [p for p in model.parameters() if p.requires_grad]
        self.left, self.right = {}, {}

    def update(self):
        with torch.no_grad():
            for number, w in enumerate(self.weights):
                g = w.grad.reshape(w.shape[0], -1)
                if number not in self.left:
                    self.left[number] = g.new_zeros(g.shape[0], g.shape[0])
                    self.right[number] = g.new_zeros(g.shape[1], g.shape[1]) if g.shape[1] < 2000 else None
                self.left[number] += g @ g.t()
                if self.right[number] is not None:
                    self.right[number] += g.t() @ g
                    g = g @ self.right[number]
                w -= 1e-3 * (self.left[number] @ g).view_as(w)
                w.grad = None


def kronecker():
    model = Images().cuda()
    rule = Kronecker(model)
    truth.models, truth.states = [model], [rule.left, rule.right]
    for number in range(3):
        x, y = image_batch()
        truth.inputs = [x, y]
        loss = F.cross_entropy(model(x), y)
        say(number, "forward done")
        loss.backward()
        say(number, "backward done")
        rule.update()
        say(number, "updated")


class Ours(torch.optim.Optimizer):
    """Adam with all of its state made in one function, when it is first needed."""

    def __init__(self, params):
        super().__init__(params, {"lr": 1e-3, "beta": 0.9})
        self.made = 0

    def prepare(self, p):
        self.state[p]["mean"] = torch.zeros_like(p, memory_format=torch.preserve_format)
        self.state[p]["square"] = torch.zeros_like(p, memory_format=torch.preserve_format)
        self.state[p]["largest"] = torch.zeros_like(p, memory_format=torch.preserve_format)
        self.made += 1
        if self.made == 20:
            truth.note("the state is half made")

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            if p.grad is None:
                continue
            if not self.state[p]:
                self.prepare(p)
            s = self.state[p]
            s["mean"].lerp_(p.grad, 0.1)
            s["square"].mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
            torch.maximum(s["largest"], s["square"], out=s["largest"])
            p.addcdiv_(s["mean"], s["largest"].sqrt().add_(1e-8), value=-1e-3)


class Stop(Exception):
    pass


def ours_cut():
    """The same, and the recording ends when the state is half made."""
    model = Language(160, 4, 4).cuda()
    opt = Ours(model.parameters())
    truth.models, truth.optimizers = [model], [opt]
    ids = tokens(8, 64)
    truth.inputs = [ids]
    prepare = Ours.prepare

    def until(self, p):
        if self.made == 19:
            raise Stop
        prepare(self, p)

    Ours.prepare = until
    language_loss(model, ids).backward()
    try:
        opt.step()
    except Stop:
        truth.note("in the first step")


def write_words():
    """Generation with a cache in lists, by joining."""
    model = Language(256, 4, 8).cuda().eval()
    truth.models = [model]
    with torch.inference_mode():
        ids, pasts = tokens(8, 128), None
        for number in range(10):
            truth.inputs = [ids]
            logits, pasts = model(ids, pasts)
            truth.others = [pasts]
            ids = logits[:, -1:].argmax(-1)
            if number in (0, 4, 9):
                truth.note(f"word {number}")


if __name__ == "__main__":
    run(globals(), truth)
