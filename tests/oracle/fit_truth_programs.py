"""Programs for `fit_truths.py`, and a server that runs them in processes of their own; torch is imported once.

usage: run.sh fit_truth_programs.py

Reads jobs from standard input, a line of JSON each: `program`, `size`, `gpu` (its properties), `mib`, `settings`,
`facts` (a path: peaks, and whether a request failed) and, if it is to be recorded, `snapshot` (a path).
"""

import json
import os
import sys
import traceback
from pathlib import Path

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def data(*shape, dtype="f32", grad=False):
    return torch.zeros(*shape, dtype=DTYPES[dtype], device="cuda", requires_grad=grad)


def labels(*shape):
    return torch.zeros(*shape, dtype=torch.long, device="cuda")


def squares(y):
    return y.square().mean()


def train(model, batch, loss=squares, dtype="f32", autocast=False):
    model = model.to(DTYPES[dtype]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        x = batch()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            value = loss(model(x))
        value.backward()
        optimizer.step()
        optimizer.zero_grad()


def mlp(*widths, act=nn.GELU):
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


class Net(nn.Module):
    """Parts, and what they compute: `compute(net, x)`."""

    def __init__(self, compute, **parts):
        super().__init__()
        self.compute = compute
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.compute(self, x)


# Reductions: sums, means, norms, gradients of biases and of norms' weights -----------------------------------------


def bias_f32(n):
    train(mlp(96, 384, 384, 96), lambda: data(48 * n, 96))


def bias_bf16(n):
    train(mlp(192, 768, 192), lambda: data(96 * n, 192, dtype="bf16"), lambda y: y.float().square().mean(), "bf16")


def bias_f16(n):
    train(
        mlp(64, 1024, 1024, 10), lambda: data(32 * n, 64, dtype="f16"), lambda y: y.float().logsumexp(-1).sum(), "f16"
    )


def bias_wide(n):
    train(mlp(128, 5000, act=nn.ReLU), lambda: data(40 * n, 128), lambda y: F.cross_entropy(y, labels(len(y))))


def bias_tokens(n):
    """Rows of a batch times a length."""
    train(mlp(128, 512, 128), lambda: data(n, 77, 128), lambda y: y.square().sum())


def column_sum(n):
    table, kept = data(64 * n, 5000), []
    for _ in range(3):
        kept.append(table.sum(0))


def column_mean_bf16(n):
    for _ in range(3):
        x = data(90 * n, 3000, dtype="bf16")
        (x - x.mean(0)).abs_()


def row_sums(n):
    for _ in range(3):
        data(12, 30000 * n).sum(1)


def whole_norm(n):
    """The norm of all gradients, and of one large vector."""
    model = mlp(256, 64 * n, 256).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(data(64, 256)).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        torch.linalg.vector_norm(data(100000 * n))
        optimizer.step()
        optimizer.zero_grad()


def standardized(n):
    """Normalizes each column by its own variance."""
    for _ in range(3):
        x = data(100 * n, 640)
        variance, mean = torch.var_mean(x, 0)
        ((x - mean) / (variance + 1e-5).sqrt()).mul_(2)


def best_columns(n):
    for _ in range(3):
        x = data(80 * n, 1500)
        x.argmax(0)
        x.max(0)


def partition(n):
    x = data(16 * n, 50257, dtype="bf16")
    for _ in range(2):
        (x.float().logsumexp(-1) ** 2).mean()


def layer_norms(n):
    def block():
        up, norm, down = nn.Linear(192, 192), nn.LayerNorm(192), nn.Linear(192, 192)
        return Net(lambda net, x: x + net.down(F.relu(net.norm(net.up(x)))), up=up, norm=norm, down=down)

    train(nn.Sequential(block(), block()), lambda: data(n, 1200, 192))


def rms_norms_bf16(n):
    def block():
        gate, down = nn.Linear(256, 688, bias=False), nn.Linear(688, 256, bias=False)
        return Net(
            lambda net, x: x + net.down(F.silu(net.gate(net.norm(x)))), norm=nn.RMSNorm(256), gate=gate, down=down
        )

    train(nn.Sequential(block(), block()), lambda: data(n, 300, 256, dtype="bf16"), lambda y: y.float().mean(), "bf16")


def batch_norm_rows(n):
    train(
        nn.Sequential(nn.Linear(64, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 64)),
        lambda: data(50 * n, 64),
        lambda y: y.abs().mean(),
    )


def group_norm_images(n):
    train(
        nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.SiLU(), nn.Conv2d(32, 3, 1)),
        lambda: data(4, 3, 8 * n, 8 * n),
    )


def layer_scale(n):
    def block():
        mix, scale = nn.Linear(320, 320, bias=False), nn.Parameter(torch.ones(320))
        return Net(lambda net, x: x + net.scale * net.mix(x), mix=mix, scale=scale)

    train(nn.Sequential(block(), block()), lambda: data(n, 64, 320))


def positions(n):
    """The gradient of learned positions is a sum over the batch; SIZE is the batch."""
    where, head = nn.Parameter(torch.zeros(256, 64)), nn.Linear(64, 64)
    train(Net(lambda net, x: net.head(x + net.where), where=where, head=head), lambda: data(20 * n, 256, 64))


def temperature(n):
    """A scalar that multiplies all scores: its gradient is a sum over everything."""

    def scores(net, x):
        return (net.heat * (net.q(x) @ net.k(x).transpose(-1, -2))).softmax(-1)

    net = Net(scores, q=nn.Linear(64, 64), k=nn.Linear(64, 64), heat=nn.Parameter(torch.ones(())))
    train(net, lambda: data(4, 24 * n, 64))


def pooled_time(n):
    """The mean over time; SIZE is the length."""
    net = Net(lambda net, x: net.two(F.gelu(net.one(x)).mean(1)), one=nn.Linear(80, 256), two=nn.Linear(256, 35))
    train(net, lambda: data(6, 50 * n, 80), lambda y: F.cross_entropy(y, labels(6)))


def pooled_image(n):
    train(
        nn.Sequential(
            nn.Conv2d(3, 48, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10)
        ),
        lambda: data(3, 3, 12 * n, 12 * n),
        lambda y: F.cross_entropy(y, labels(3)),
    )


def clusters(n):
    points, centers = data(150 * n, 32), data(300, 32)
    for _ in range(3):
        nearest = torch.cdist(points, centers).argmin(1)
        counts = torch.zeros(300, device="cuda").index_add_(0, nearest, torch.ones(len(points), device="cuda"))
        centers = torch.zeros_like(centers).index_add_(0, nearest, points) / counts[:, None].clamp(min=1)


def covariance(n):
    for _ in range(3):
        x = data(120 * n, 700)
        x = x - x.mean(0)
        torch.linalg.vector_norm(x.T @ x / len(x))


def contrastive(n):
    train(
        mlp(256, 512, 128),
        lambda: data(40 * n, 256),
        lambda y: (lambda s: s.logsumexp(0).mean() + s.logsumexp(1).mean() - s.diagonal().mean())(y @ y.T),
    )


def vicreg(n):
    def loss(y):
        y = y - y.mean(0)
        c = (y.T @ y) / len(y)
        return F.relu(1 - y.var(0).sqrt()).mean() + c.square().sum() / 512

    train(mlp(128, 512, 512), lambda: data(64 * n, 128), loss)


def sinkhorn(n):
    for _ in range(2):
        log = data(70 * n, 900)
        for _ in range(3):
            log = log - log.logsumexp(0, keepdim=True)
            log = log - log.logsumexp(1, keepdim=True)


def advantages(n):
    """Rewards of so many games, normalized over all of them."""
    actor = mlp(24, 64, 6, act=nn.Tanh).cuda()
    optimizer = torch.optim.Adam(actor.parameters())
    for _ in range(2):
        states, rewards = data(32, 40 * n, 24), data(32, 40 * n)
        gain = rewards.flip(1).cumsum(1).flip(1)
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        loss = -(actor(states).log_softmax(-1)[..., 0] * gain).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def mixture(n):
    """Expectation-maximization: responsibilities of 40 components for each point."""
    means, x = data(40, 48), data(60 * n, 48)
    for _ in range(3):
        distance = (x[:, None] - means).square().sum(-1)
        weight = (-distance).softmax(1)
        means = (weight[:, :, None] * x[:, None]).sum(0) / weight.sum(0)[:, None]


def autoencoder(n):
    def compute(net, x):
        mean, log = net.encode(x).chunk(2, -1)
        net.kl = (mean.square() + log.exp() - log - 1).sum(-1).mean()
        return net.decode(mean + torch.randn_like(mean) * (log / 2).exp())

    net = Net(compute, encode=mlp(784, 400, 40), decode=mlp(20, 400, 784))
    train(net, lambda: data(45 * n, 784), lambda y: F.mse_loss(y, torch.zeros_like(y)) + net.kl)


def masked_words(n):
    """A tied head with a bias of its own, under autocast."""

    def compute(net, x):
        return F.linear(net.norm(F.gelu(net.mix(net.embed(x)))), net.embed.weight, net.bias)

    embed, norm, mix = nn.Embedding(8000, 192), nn.LayerNorm(192), nn.Linear(192, 192)
    net = Net(compute, embed=embed, norm=norm, mix=mix, bias=nn.Parameter(torch.zeros(8000)))
    train(net, lambda: labels(n, 96), lambda y: F.cross_entropy(y.flatten(0, 1), labels(96 * n)), autocast=True)


def window_bias(n):
    """A bias for each pair of positions in a window, summed over all windows."""

    def attend(net, x):
        q, k, v = net.qkv(x).unflatten(-1, (3, 3, 32)).permute(2, 0, 3, 1, 4)
        return ((q @ k.transpose(-1, -2) + net.bias).softmax(-1) @ v).transpose(1, 2).flatten(2)

    net = Net(attend, qkv=nn.Linear(96, 288), bias=nn.Parameter(torch.zeros(3, 49, 49)))
    train(net, lambda: data(16 * n, 49, 96))


def transformer_f16(n):
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0.0)
    net = nn.Sequential(nn.Embedding(600, 128), nn.TransformerEncoder(layer, 2), nn.Linear(128, 600))
    train(net, lambda: labels(n, 80), lambda y: F.cross_entropy(y.flatten(0, 1), labels(80 * n)), "f16")


def convolutions(n):
    train(
        nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3),
            nn.ReLU(),
        ),
        lambda: data(2, 3, 16 * n, 16 * n),
    )


def audio(n):
    train(
        nn.Sequential(nn.Conv1d(1, 64, 9, padding=4), nn.ReLU(), nn.Conv1d(64, 64, 9, padding=4)),
        lambda: data(4, 1, 2000 * n),
        lambda y: y.abs().mean(),
    )


# Other kernels with thresholds: top-k, sort, scans, embeddings ------------------------------------------------------


def retrieval(n):
    queries, table = data(30, 64), data(2000 * n, 64)
    for _ in range(3):
        (queries @ table.T).topk(10, -1)


def sampler(n):
    """Top-p sampling over a batch of so many."""
    logits = data(2 * n, 32000)
    for _ in range(3):
        values, order = logits.sort(-1, descending=True)
        kept = values.softmax(-1).cumsum(-1) < 0.9
        torch.zeros_like(logits).scatter_(1, order, kept.float())


def ranking(n):
    for _ in range(3):
        scores = data(5000 * n)
        order = scores.argsort()
        scores[order].cumsum(0)


def words(n):
    train(nn.Sequential(nn.Embedding(3000, 128), nn.Linear(128, 128)), lambda: labels(n, 150))


def graph(n):
    """Messages along so many edges."""
    net, nodes = mlp(64, 64, 64).cuda(), 500
    for _ in range(2):
        source, target = labels(400 * n), labels(400 * n)
        x = data(nodes, 64, grad=True)
        messages = net(x[source])
        out = torch.zeros(nodes, 64, device="cuda").index_add(0, target, messages)
        out.square().mean().backward()


# Other laws ---------------------------------------------------------------------------------------------------------


class Attend(nn.Module):
    def __init__(self, d=64, heads=4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return x + self.out(((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).flatten(2))


def pixels(n):
    """Attention over the pixels of an image: the fourth power of its side."""
    train(nn.Sequential(nn.Linear(3, 64), Attend()), lambda: data(2, n * n, 3))


def patches(n):
    def compute(net, x):
        x = net.embed(x).flatten(2).transpose(1, 2)
        return net.block(torch.cat([net.token.expand(len(x), -1, -1), x], 1))[:, 0]

    token = nn.Parameter(torch.zeros(1, 1, 64))
    net = Net(compute, embed=nn.Conv2d(3, 64, 4, stride=4), token=token, block=Attend())
    train(net, lambda: data(2, 3, 4 * n, 4 * n))


def volume(n):
    train(nn.Sequential(nn.Linear(4, 32), nn.GELU(), nn.Linear(32, 4)), lambda: data(n, n, n, 4))


def triangles(n):
    def compute(net, z):
        return net.norm(torch.einsum("ikc,jkc->ijc", net.a(z), net.b(z)))

    net = Net(compute, a=nn.Linear(16, 32), b=nn.Linear(16, 32), norm=nn.LayerNorm(32))
    train(net, lambda: data(6 * n, 6 * n, 16))


def product(n):
    """A batch that grows with the length."""
    train(nn.Sequential(nn.Linear(32, 64), Attend()), lambda: data(2 * n, 3 * n + 1, 32))


def wide(n):
    train(mlp(16 * n, 64 * n, 16 * n), lambda: data(32, 16 * n))


def layers(n):
    """SIZE is the number of layers."""
    train(mlp(*[256] * (n + 1)), lambda: data(512, 256))


def blocks(n):
    train(nn.Sequential(*(Attend() for _ in range(n))), lambda: data(2, 128, 64))


def chunks_kept(n):
    """So many chunks of 64 rows, whose results are kept."""
    net = mlp(64, 256, 64).cuda()
    x = data(16 * n, 64, grad=True)
    for _ in range(2):
        out = torch.cat([net(part) for part in x.split(64)])
        out.square().mean().backward()


def chunks_freed(n):
    net = mlp(64, 512, 64).cuda()
    with torch.inference_mode():
        x, out = data(32 * n, 64), data(32 * n, 64)
        for part, to in zip(x.split(128), out.split(128)):
            to.copy_(net(part))


def unrolled(n):
    """A recurrent cell, called so many times."""
    net = mlp(128, 256, 128, act=nn.Tanh).cuda()
    for _ in range(2):
        h = data(64, 128)
        for _ in range(n):
            h = net(h)
        h.square().mean().backward()


def generated(n):
    """So many tokens, each of which copies the cache."""
    q, cache = nn.Linear(128, 128).cuda(), data(8, 1, 128)
    with torch.inference_mode():
        for _ in range(n):
            h = q(cache[:, -1:])
            cache = torch.cat([cache, ((h @ cache.transpose(-1, -2)).softmax(-1) @ cache)], 1)


def samples(n):
    """The gradient of each sample, one after another, which are all kept."""
    net = mlp(64, 256, 64).cuda()
    kept = []
    for _ in range(n):
        net(data(1, 64)).sum().backward()
        kept.append([p.grad.clone() for p in net.parameters()])
        net.zero_grad()


def accumulated(n):
    """So many small batches before each step, which keep nothing."""
    net = mlp(128, 512, 128).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(2):
        for _ in range(n):
            net(data(256, 128)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def padded_rows(n):
    train(mlp(64, 256, 64), lambda: data(-(-37 * n // 64) * 64, 64))


def outer_scores(n):
    """Scores of each of 12n against each of 7n + 3."""
    for _ in range(2):
        x, y = data(12 * n, 64, grad=True), data(7 * n + 3, 64, grad=True)
        (x @ y.T).softmax(-1).square().sum().backward()


def spectrum(n):
    x = data(8, 30 * n // 2 + 1, 128, grad=True)
    for _ in range(2):
        (x.square() * 2).mean().backward()


# More requests at larger sizes --------------------------------------------------------------------------------------


def checkpointed(n):
    """So many layers, each of which is computed again in its backward pass."""

    def compute(net, x):
        for layer in net.layers:
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
        return x

    net = Net(compute, layers=nn.ModuleList([mlp(128, 512, 128) for _ in range(n)]))
    train(net, lambda: data(256, 128, grad=True))


def clipped_layers(n):
    """The norms of all gradients are stacked, and each parameter has a momentum."""
    model = mlp(*[192] * (n + 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        model(data(300, 192)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def single_steps(n):
    """An optimizer that updates one parameter after another."""
    model = mlp(*[160] * (2 * n + 1)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    for _ in range(2):
        model(data(128, 160)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def encoder_layers(n):
    """So many layers of a transformer, under autocast."""
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
    net = nn.Sequential(nn.Embedding(500, 128), nn.TransformerEncoder(layer, n), nn.Linear(128, 500))
    train(net, lambda: labels(8, 64), lambda y: F.cross_entropy(y.flatten(0, 1), labels(512)), autocast=True)


def lstm_steps(n):
    """A cell that is called 3n times, and all its outputs."""
    cell, head = nn.LSTMCell(64, 128).cuda(), nn.Linear(128, 30).cuda()
    for _ in range(2):
        x, h, c, out = data(3 * n, 40, 64), data(40, 128), data(40, 128), []
        for step in x:
            h, c = cell(step, (h, c))
            out.append(h)
        head(torch.stack(out)).square().mean().backward()


def key_value_caches(n):
    """So many tokens after a prompt; two layers, each with a cache that grows by a token."""
    layers = [nn.Linear(96, 288).cuda() for _ in range(2)]
    head = nn.Linear(96, 1000).cuda()
    with torch.inference_mode():
        x, caches, kept = data(16, 70, 96), [None, None], []
        for _ in range(n):
            for index, layer in enumerate(layers):
                q, k, v = layer(x).chunk(3, -1)
                if caches[index]:
                    k, v = (torch.cat([old, new], 1) for old, new in zip(caches[index], (k, v)))
                caches[index] = k, v
                x = x + (q @ k.transpose(-1, -2)).softmax(-1) @ v
            kept.append(head(x[:, -1:]))
            x = x[:, -1:]


def micro_batches(n):
    """6n samples in batches of 32, of which the last is smaller."""
    net = mlp(256, 512, 256).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(2):
        for part in data(6 * n, 256).split(32):
            net(part).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def chunked_scores(n):
    """The scores of 11n rows, in chunks of 50 rows whose results are kept."""
    table, rows, kept = data(3000, 64), data(11 * n, 64), []
    for part in rows.split(50):
        kept.append((part @ table.T).log_softmax(-1))
    torch.cat(kept)


def denoised(n):
    """So many steps of a sampler, whose images are all kept."""
    net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.SiLU(), nn.Conv2d(32, 3, 3, padding=1)).cuda()
    with torch.inference_mode():
        x, kept = data(4, 3, 64, 64), []
        for _ in range(n):
            x = x - 0.1 * net(x)
            kept.append(x)
        torch.stack(kept).mean(0)


def experts(n):
    """So many experts; each takes the same number of tokens."""
    nets = nn.ModuleList([mlp(64, 256, 64) for _ in range(n)]).cuda()
    gate = nn.Linear(64, n).cuda()
    optimizer = torch.optim.AdamW([*nets.parameters(), *gate.parameters()])
    for _ in range(2):
        x = data(2000, 64)
        weight = gate(x).softmax(-1)
        y = torch.zeros_like(x)
        for index, net in enumerate(nets):
            chosen = torch.arange(100, device="cuda")
            y = y.index_add(0, chosen, net(x[chosen]) * weight[chosen, index, None])
        y.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def rollouts(n):
    """So many steps in an environment; then an epoch in batches of 256 samples."""
    actor = mlp(48, 128, 4, act=nn.Tanh).cuda()
    optimizer = torch.optim.Adam(actor.parameters())
    states, actions = [], []
    with torch.no_grad():
        for _ in range(n):
            states.append(data(32, 48))
            actions.append(actor(states[-1]).argmax(-1))
    states, actions = torch.cat(states), torch.cat(actions)
    for part, chosen in zip(states.split(256), actions.split(256)):
        F.cross_entropy(actor(part), chosen).backward()
        optimizer.step()
        optimizer.zero_grad()


def nested(n):
    """So many layers, and as many chunks in each."""
    nets = [nn.Linear(64, 64).cuda() for _ in range(n)]
    with torch.no_grad():
        x = data(16 * n, 64)
        for net in nets:
            x = torch.cat([net(part) for part in x.split(16)])


def pyramid(n):
    """Layers that are wider and wider."""
    train(mlp(*[32 * (i + 1) for i in range(n + 1)]), lambda: data(100, 32))


def whole_chunks(n):
    """25n rows in chunks of 50, of which the last is smaller at odd sizes; all results are kept."""
    net = nn.Linear(1000, 2000).cuda()
    with torch.no_grad():
        kept = [net(part) for part in data(25 * n, 1000).split(50)]
        torch.cat(kept)


PROGRAMS = {
    name: it
    for name, it in list(globals().items())
    if callable(it)
    and getattr(it, "__module__", "") == __name__
    and not isinstance(it, type)
    and name not in ("data", "labels", "squares", "train", "mlp")
}


def run(job):
    gpu = job["gpu"]
    os.environ.update(
        STUBCUDA_TOTAL_MIB=str(job["mib"]),
        PYTORCH_CUDA_ALLOC_CONF=job["settings"],
        STUBCUDA_NAME=gpu["name"],
        STUBCUDA_CC=str(gpu["capability"]),
        STUBCUDA_SMS=str(gpu["multiprocessors"]),
        STUBCUDA_THREADS=str(gpu["threads"]),
    )
    torch.cuda.init()
    torch.backends.cudnn.enabled = False  # its kernels cannot be looked for without a GPU
    facts, program = {"fails": False}, PROGRAMS[job["program"]]
    try:
        if job.get("snapshot"):
            import oomscope

            with oomscope.record(job["snapshot"]):
                program(job["size"])
        else:
            program(job["size"])
    except torch.cuda.OutOfMemoryError:
        facts["fails"] = True
    stats = torch.cuda.memory_stats()
    facts["allocated"], facts["reserved"] = (stats[f"{kind}_bytes.all.peak"] for kind in ("allocated", "reserved"))
    Path(job["facts"]).write_text(json.dumps(facts))


def main():
    for name in dir(nn.init):  # no value matters, and those on the host take most of the time
        if name.endswith("_") and not name.startswith("_"):
            setattr(nn.init, name, lambda tensor, *a, **k: tensor)
    torch.set_num_threads(1)
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if not child:
            try:
                run(job)
            except BaseException:
                traceback.print_exc()
            os._exit(0)
        os.waitpid(child, 0)
        print(flush=True)


if __name__ == "__main__":
    main()
