"""Programs that run out of memory and whose next requests are known, because they can really be run on.

usage: run.sh goes_on.py PROGRAM OUT.pickle.gz

The device has STUBCUDA_TOTAL_MIB; devices with the MiB in `@program` do not serve all requests. PROGRAM runs until a
request fails or its loop ends; then the snapshot is written, and OUT.json has `fails` and `held_at_steps`, what PyTorch
says is allocated at the end of each step. `LENGTHS` are the same in every run.
"""

import sys

import torch
from torch import nn

import recording
from failing import PROGRAMS, Block, Model, data, fails, program

HELD_AT_STEPS = []
LENGTHS = [(37 * i * i + 11 * i) % 97 for i in range(400)]


class Attention(nn.Module):
    def __init__(self, d, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        weights = torch.softmax(q @ k.transpose(-1, -2), -1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(b, t, d))


def attentive(d, layers):
    return Model(d, layers, kinds=(Attention, Block))


def step_ends():
    HELD_AT_STEPS.append(torch.cuda.memory_allocated())


def train_step(model, optimizer, x):
    loss = model(x).float().pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def train(model, optimizer, steps, batch):
    for step in range(steps):
        train_step(model, optimizer, batch(step))
        step_ends()


# Growth that is kept: real leaks


@program(420)
def kept_losses():
    """The loss of each step is kept, with its graph."""
    model = Model(256, 3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(60):
        x = data(1024, 256)
        loss = model(x).pow(2).mean()
        loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
        step_ends()


@program(700)
def kept_features():
    """An evaluation of features beside training: 6.5 MiB a step stay."""
    model = Model(512, 3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    features = []
    for _ in range(80):
        x = data(3328, 512)
        train_step(model, optimizer, x)
        features.append(model.blocks[0](x).detach())
        step_ends()


@program(560)
def gradient_history():
    """A hook keeps a copy of every gradient of one layer."""
    model = Model(512, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    model.blocks[1].up.weight.register_hook(lambda grad: seen.append(grad.clone()))
    train(model, optimizer, 150, lambda _: data(2048, 512))


@program(640)
def checkpoints_every_five():
    """Every fifth step a copy of the weights is kept."""
    model = Model(512, 3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    best = []
    for step in range(120):
        train_step(model, optimizer, data(1024, 512))
        if step % 5 == 4:
            best.append({name: value.clone() for name, value in model.state_dict().items()})
        step_ends()


@program(600)
def accumulated_and_kept():
    """Four micro-batches a step; the outputs of each stay."""
    model = Model(512, 3).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    outputs = []
    for _ in range(40):
        for _ in range(4):
            out = model(data(1500, 512))
            outputs.append(out.detach())
            out.pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        step_ends()


@program(900)
def ema_history():
    """A moving average that is made anew in every step, and the old ones stay in a list."""
    model = Model(512, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    history = [[p.detach().clone() for p in model.parameters()]]
    for _ in range(40):
        train_step(model, optimizer, data(1024, 512))
        history.append([0.9 * e + 0.1 * p.detach() for e, p in zip(history[-1], model.parameters())])
        step_ends()


@program(1000)
def images_loaded():
    """A data set is put on the device, file by file, before anything else."""
    images = []
    for _ in range(100):
        images.append(torch.empty(3, 1024, 1100, dtype=torch.uint8).cuda().float())
        step_ends()
    return images


# Loops without an optimizer or a backward pass


@program(330)
@torch.no_grad()
def predictions():
    """The predictions of every batch stay on the device."""
    model = Model(512, 4).cuda()
    predictions = []
    for _ in range(100):
        predictions.append(model(data(2000, 512)))
        step_ends()


@program(800)
def predictions_with_graph():
    """The same without no_grad: the activations of every batch stay."""
    model = Model(512, 4).cuda()
    predictions = []
    for _ in range(30):
        predictions.append(model(data(700, 512)))
        step_ends()


@program(420)
@torch.no_grad()
def memory_bank():
    """A bank of features that is made anew, larger, for every batch."""
    model = Model(512, 2).cuda()
    bank = data(0, 512)
    for _ in range(100):
        bank = torch.cat([bank, model(data(2000, 512))])
        step_ends()


@program(360, 480)
@torch.no_grad()
def generation():
    """A cache of keys and values for each layer, one token longer with each step."""
    layers = [Attention(512).cuda() for _ in range(6)]
    head = nn.Linear(512, 32000).cuda()
    caches = [(data(16, 4, 256, 128), data(16, 4, 256, 128)) for _ in layers]
    for _ in range(600):
        x = data(16, 1, 512)
        for index, layer in enumerate(layers):
            q, k, v = (part.view(16, 1, 4, 128).transpose(1, 2) for part in layer.qkv(layer.norm(x)).chunk(3, -1))
            keys, values = caches[index]
            keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
            caches[index] = keys, values
            weights = torch.softmax(q @ keys.transpose(-1, -2), -1)
            x = x + layer.out((weights @ values).transpose(1, 2).reshape(16, 1, 512))
        head(x).argmax(-1)
        step_ends()


@program(200, 290)
@torch.no_grad()
def serving():
    """Requests of any length; some results are kept for a while."""
    model = attentive(512, 4).cuda().eval()
    recent = []
    for length in LENGTHS[:200]:
        out = model(data(2, 256 + 13 * length, 512))
        recent.append(out)
        if len(recent) > 5:
            recent.pop((length * 7) % len(recent))
        step_ends()


@program(380)
@torch.no_grad()
def serving_sessions():
    """Each request leaves the session's state, which nobody removes."""
    model = Model(512, 4).cuda().eval()
    sessions = {}
    for number, length in enumerate(LENGTHS[:300]):
        x = data(1500, 512)
        sessions[number] = model(x)[: 700 + length].clone()
        step_ends()


# First steps


@program(330)
def first_adam_step():
    """State is made parameter by parameter."""
    model = Model(768, 4).cuda()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    train(model, optimizer, 5, lambda _: data(512, 768))


@program(330)
def first_foreach_step():
    """State is made for all, then temporaries of the size of all."""
    model = Model(768, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, 5, lambda _: data(512, 768))


@program(290)
def first_momentum():
    """SGD makes its momentum in the first step."""
    model = Model(768, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    train(model, optimizer, 5, lambda _: data(2048, 768))


@program(300)
def first_backward():
    """The first backward pass does not fit."""
    model = Model(768, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, 5, lambda _: data(2048, 768))


@program(420)
def first_gradients():
    """The gradients of many layers: the first backward pass fails half way."""
    model = Model(512, 24).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, 3, lambda _: data(128, 512))


@program(300)
def first_forward():
    """Not even the first forward pass fits."""
    model = Model(768, 6).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, 5, lambda _: data(4096, 768))


@program(200)
def building():
    """The model itself does not fit."""
    model = Model(1024, 12).cuda()
    model(data(8, 1024))


# Inputs that differ


@program(620, 1150)
def curriculum():
    """Sequences become longer with each step."""
    model = attentive(384, 3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, 40, lambda step: data(4, 128 + 32 * step, 384))


@program(560)
def one_long_input():
    """Step 21 has 15 times the rows of those before."""
    model = Model(512, 3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, 30, lambda step: data(15 * 512 if step == 20 else 512, 512))


@program(430, 440)
def varying_lengths():
    """Lengths at random."""
    model = attentive(384, 3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, 60, lambda step: data(4, 128 + 6 * LENGTHS[step], 384))


@program(400, 430)
def buckets():
    """Three sizes in turn."""
    model = Model(384, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, 40, lambda step: data((1500, 4200, 2900)[step % 3], 384))


@program(480)
def varying_lengths_and_kept():
    """Lengths at random, and a result of fixed size stays."""
    model = attentive(384, 3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    kept = []
    for length in LENGTHS[:100]:
        train_step(model, optimizer, data(4, 128 + 4 * length, 384))
        kept.append(data(1024, 1024))
        step_ends()


# Steps of several parts


@program(450, 600)
def two_stages():
    """A discriminator and a generator; the generator's samples stay."""
    generator, critic = Model(512, 2).cuda(), Model(512, 2).cuda()
    first, second = (torch.optim.Adam(net.parameters()) for net in (critic, generator))
    samples = []
    for _ in range(60):
        fake = generator(data(1600, 512))
        (critic(data(1600, 512)).mean() - critic(fake.detach()).mean()).backward()
        first.step()
        first.zero_grad()
        critic(generator(data(1600, 512))).mean().backward()
        second.step()
        second.zero_grad()
        samples.append(fake.detach())
        step_ends()


@program(340, 390)
def train_then_validate():
    """Epochs of training, and after each an evaluation whose results stay until the next."""
    model = Model(512, 3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(6):
        for _ in range(8):
            train_step(model, optimizer, data(1024, 512))
        with torch.no_grad():
            results = [model(data(1700, 512)) for _ in range(40)]
        step_ends()
    return results


@program(560, 1320)
def rollouts():
    """States are collected step by step, then learned from all at once."""
    model = Model(384, 3).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(10):
        states = []
        with torch.no_grad():
            for _ in range(24):
                states.append(model(data(900, 384)))
        train_step(model, optimizer, torch.cat(states))
        step_ends()


@program(360, 410)
def kept_previous_output():
    """Each step still has the output of the one before, and no more."""
    model = Model(512, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    previous = None
    for _ in range(20):
        out = model(data(2600, 512))
        loss = out.pow(2).mean() if previous is None else (out - previous.detach()).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        previous = out
        step_ends()


@program(420)
def checkpointed_and_kept():
    """Activation checkpointing, and a result of each step stays."""
    from torch.utils.checkpoint import checkpoint

    model = Model(512, 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    kept = []
    for _ in range(60):
        x = data(2048, 512)
        x.requires_grad_()
        for block in model.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        loss = model.head(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(x.detach())
        step_ends()


@program(400)
def mixed_precision():
    """Autocast with a scaler; the casted weights come and go, a log of logits stays."""
    model = Model(512, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    logits = []
    for _ in range(60):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(data(3000, 512))
        out.float().pow(2).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        logits.append(out.detach())
        step_ends()


def main(name, out):
    failed = fails(PROGRAMS[name][0])
    recording.write(out, {"program": name, "fails": failed, "held_at_steps": HELD_AT_STEPS})


if __name__ == "__main__":
    main(*sys.argv[1:])
