"""Programs of the same kinds as in kept.py, written after the rules: no rule was made with them.

usage: run.sh kept_again.py SCENARIO OUT.pickle.gz        (torch 2.9 or later)
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

from truth import Truth, run

truth = Truth()
torch.backends.cudnn.enabled = False  # its kernels cannot be looked for without a GPU
WORDS = 800


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


# ---------------------------------------------------------------- optimizers of one's own


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


class Ascent(torch.optim.Optimizer):
    """SAM as an optimizer around another one: keeps the way uphill, not the place."""

    def __init__(self, params, inner):
        super().__init__(params, {})
        self.inner = inner

    @torch.no_grad()
    def up(self):
        norm = torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"]]).norm()
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["way"] = p.grad * (0.05 / (norm + 1e-12))
                p.add_(self.state[p]["way"])

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["way"])
        self.inner.step()


def ascent():
    model = Language().cuda()
    inner = torch.optim.AdamW(model.parameters())
    opt = Ascent(model.parameters(), inner)
    truth.models, truth.optimizers = [model], [inner, opt]
    for number in range(3):
        ids = tokens()
        truth.inputs = [ids]
        language_loss(model, ids).backward()
        say(number, "first backward done")
        opt.up()
        opt.zero_grad()
        say(number, "uphill")
        loss = language_loss(model, ids)
        say(number, "second forward done")
        loss.backward()
        opt.step()
        opt.zero_grad()
        say(number, "stepped")


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


def ours():
    model = Language(160, 4, 4).cuda()
    opt = Ours(model.parameters())
    truth.models, truth.optimizers = [model], [opt]
    for number in range(3):
        ids = tokens(8, 64)
        truth.inputs = [ids]
        loss = language_loss(model, ids)
        say(number, "forward done")
        loss.backward()
        say(number, "backward done")
        opt.step()
        opt.zero_grad()
        say(number, "stepped")


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


# ---------------------------------------------------------------- data on the device


def stored_bytes():
    """A data set of bytes, made on the device after the model, of which batches are views."""
    model = Images().cuda()
    opt = torch.optim.RMSprop(model.parameters(), momentum=0.9)
    stored = torch.empty(6000, 3, 32, 32, dtype=torch.uint8, device="cuda")
    answers = torch.zeros(6000, dtype=torch.int64, device="cuda")
    truth.models, truth.optimizers = [model], [opt]
    for number in range(3):
        x = stored[number * 24 : number * 24 + 24].to(torch.float32).div_(255)
        truth.inputs = [stored, answers, x]
        loss = F.cross_entropy(model(x), answers[number * 24 : number * 24 + 24])
        say(number, "forward done")
        loss.backward()
        opt.step()
        opt.zero_grad()
        say(number, "stepped")


class Corpus(torch.utils.data.Dataset):
    def __init__(self):
        self.ids = torch.zeros(4000, 97, dtype=torch.int64).to("cuda")

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, at):
        return self.ids[at]


def stored_ids():
    """A data set whose items are on the device, through a loader."""
    corpus = Corpus()
    model = Language().cuda()
    opt = torch.optim.Adam(model.parameters())
    truth.models, truth.optimizers = [model], [opt]
    for number, ids in enumerate(torch.utils.data.DataLoader(corpus, batch_size=6)):
        if number == 3:
            break
        truth.inputs = [corpus.ids, ids]
        loss = language_loss(model, ids)
        say(number, "forward done")
        loss.backward()
        opt.step()
        opt.zero_grad()
        say(number, "stepped")


# ---------------------------------------------------------------- attention, outputs, generation


def plain_attention():
    """Attention without fused kernels: its weights are most of the memory."""
    model = Language(96, 2, 8).cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    truth.models, truth.optimizers = [model], [opt]
    for number in range(3):
        ids = tokens(2, 384)
        truth.inputs = [ids]
        loss = language_loss(model, ids)
        say(number, "forward done")
        loss.backward()
        say(number, "backward done")
        opt.step()
        opt.zero_grad()


@torch.no_grad()
def score_all(model, batches):
    model.eval()
    said = []
    truth.others = said
    for number in range(batches):
        ids = tokens(4, 64)
        truth.inputs = [ids]
        logits, _ = model(ids)
        said.append(logits.log_softmax(-1))
        if number in (1, 3):
            truth.note(f"{number + 1} batches are scored")
    model.train()
    return said


def scores_between():
    """Training, evaluation that keeps its scores, training again."""
    model = Language().cuda()
    opt = torch.optim.AdamW(model.parameters())
    truth.models, truth.optimizers = [model], [opt]
    kept = None
    for number in range(4):
        if number == 2:
            kept = score_all(model, 4)
        ids = tokens()
        truth.inputs = [ids]
        loss = language_loss(model, ids)
        if number == 3:
            truth.note("training again, forward done")
        loss.backward()
        opt.step()
        opt.zero_grad()
        say(number, "stepped")
    del kept


def features():
    """Features of a data set, computed without gradients and joined at the end."""
    model = Images().cuda().eval()
    truth.models = [model]
    found = truth.others = []
    for number in range(5):
        x, _ = image_batch(32)
        truth.inputs = [x]
        with torch.no_grad():
            found.append(model.first(x).relu().mean(1))
            found.append(model(x))
        truth.note(f"{number + 1} batches")
    found.append(torch.cat(found[::2]))
    truth.note("joined")


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


def forgotten_no_grad():
    """Validation whose losses are added up with their graphs."""
    model = Images().cuda()
    opt = torch.optim.Adam(model.parameters())
    truth.models, truth.optimizers = [model], [opt]
    for number in range(2):
        x, y = image_batch()
        truth.inputs = [x, y]
        F.cross_entropy(model(x), y).backward()
        opt.step()
        opt.zero_grad()
        say(number, "stepped")
    total = 0
    for number in range(3):
        x, y = image_batch()
        truth.inputs = [x, y]
        total = total + F.cross_entropy(model(x), y)
        truth.note(f"validated {number + 1}")


# ---------------------------------------------------------------- frozen parameters and averages


class LowRank(nn.Module):
    def __init__(self, linear, rank=4):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.a = nn.Parameter(torch.zeros(rank, linear.in_features))
        self.b = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x):
        return self.linear(x) + (x @ self.a.t()) @ self.b.t()


def low_rank():
    """LoRA in half precision on a frozen model."""
    model = Language(224, 4, 7).requires_grad_(False)
    for layer in model.layers:
        layer.attention.qkv, layer.down = LowRank(layer.attention.qkv), LowRank(layer.down)
    model = model.cuda().bfloat16()
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    truth.models, truth.optimizers = [model], [opt]
    for number in range(3):
        ids = tokens()
        truth.inputs = [ids]
        loss = language_loss(model, ids)
        say(number, "forward done")
        loss.backward()
        say(number, "backward done")
        opt.step()
        opt.zero_grad()
        say(number, "stepped")


def frozen_tower():
    """A frozen tower that was moved by hand, and a head that learns."""
    tower = Images(64).eval()
    for module in tower.modules():
        for name, p in list(module._parameters.items()):
            if p is not None:
                module._parameters[name] = nn.Parameter(p.detach().to("cuda"), requires_grad=False)
        for name, b in list(module._buffers.items()):
            if b is not None:
                module._buffers[name] = b.to("cuda")
    head = nn.Sequential(nn.Linear(20, 600), nn.GELU(), nn.Linear(600, 600), nn.GELU(), nn.Linear(600, 20)).cuda()
    opt = torch.optim.NAdam(head.parameters())
    truth.models, truth.optimizers = [tower, head], [opt]
    for number in range(3):
        x, y = image_batch(16)
        truth.inputs = [x, y]
        with torch.no_grad():
            h = tower(x)
        loss = F.cross_entropy(head(h), y)
        say(number, "forward done")
        loss.backward()
        opt.step()
        opt.zero_grad()
        say(number, "stepped")


def moving_average():
    """An average of the weights that is made anew by each update."""
    model = Images().cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    average = {}
    truth.models, truth.optimizers, truth.weights = [model], [opt], [average]
    for number in range(3):
        x, y = image_batch()
        truth.inputs = [x, y]
        F.cross_entropy(model(x), y).backward()
        say(number, "backward done")
        opt.step()
        opt.zero_grad()
        with torch.no_grad():
            for name, value in model.state_dict().items():
                if value.is_floating_point():
                    average[name] = average[name] * 0.99 + value * 0.01 if name in average else value.clone()
        say(number, "averaged")


def copied_average():
    """An average as a copy of the model, in full precision, of a model in half precision."""
    model = Language().cuda().half()
    average = copy.deepcopy(model).float().requires_grad_(False)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    truth.models, truth.optimizers = [model, average], [opt]
    for number in range(3):
        ids = tokens()
        truth.inputs = [ids]
        loss = language_loss(model, ids)
        say(number, "forward done")
        loss.backward()
        say(number, "backward done")
        opt.step()
        opt.zero_grad()
        with torch.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.lerp_(p.float(), 0.01)
        say(number, "averaged")


AGAIN = [
    kronecker,
    ascent,
    ours,
    ours_cut,
    stored_bytes,
    stored_ids,
    plain_attention,
    scores_between,
    features,
    write_words,
    forgotten_no_grad,
    low_rank,
    frozen_tower,
    moving_average,
    copied_average,
]

if __name__ == "__main__":
    run(AGAIN, truth)
