"""The same as `goes_on.py`, written after the rules; three rules were then mended with these programs.

usage: run.sh goes_on_again.py PROGRAM OUT.pickle.gz
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F

from goes_on import LENGTHS, Attention, Block, Model, data, program, run, step_ends, train_step


class Language(nn.Module):
    """Tokens to logits, with tied or own output weights."""

    def __init__(self, vocabulary=6000, d=320, layers=3, tied=False):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d)
        self.positions = nn.Embedding(2048, d)
        self.layers = nn.Sequential(*(part for _ in range(layers) for part in (Attention(d), Block(d))))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocabulary, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.layers(x)))


def batch(rows, length):
    return torch.zeros(rows, length, dtype=torch.long).cuda()


def language_loss(model, tokens):
    logits = model(tokens)
    return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))


# First steps


@program(300, 350)
def language_model_first():
    """A language model whose first step does not fit: in the backward pass, or in the optimizer."""
    model = Language().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(4):
        language_loss(model, batch(4, 512)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step_ends()


@program(260)
def first_rmsprop():
    """RMSprop with momentum makes two tensors a parameter."""
    model = Model(640, 5).cuda()
    optimizer = torch.optim.RMSprop(model.parameters(), momentum=0.9, foreach=False)
    for _ in range(4):
        train_step(model, optimizer, data(700, 640))
        step_ends()


@program(340)
def first_adagrad():
    """State exists before the first step."""
    model = Model(640, 6).cuda()
    optimizer = torch.optim.Adagrad(model.parameters(), foreach=False)
    for _ in range(4):
        train_step(model, optimizer, data(1500, 640))
        step_ends()


@program(360)
def first_nadam_foreach():
    """Temporaries of all parameters at once."""
    model = Model(896, 3).cuda()
    optimizer = torch.optim.NAdam(model.parameters(), foreach=True)
    for _ in range(4):
        train_step(model, optimizer, data(256, 896))
        step_ends()


@program(330, 350)
def deep_first_backward():
    """Many narrow layers: the backward pass fails half way, or late."""
    model = Model(512, 10).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(4):
        train_step(model, optimizer, data(1024, 512))
        step_ends()


@program(300, 320)
def autocast_first_backward():
    """Mixed precision: activations and gradients of half the size, casts of the weights."""
    model = Model(640, 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(data(2500, 640)).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step_ends()


@program(220, 250)
def frozen_first_step():
    """Only the last blocks are trained."""
    model = Model(640, 8).cuda()
    for block in model.blocks[:5]:
        block.requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
    for _ in range(4):
        train_step(model, optimizer, data(1024, 640))
        step_ends()


@program(350)
def second_step():
    """The state of the first step leaves too little for the second."""
    model = Model(640, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(6):
        train_step(model, optimizer, data(2600, 640))
        step_ends()


@program(370)
def accumulated_first():
    """The second of four micro-batches, with the gradients of the first."""
    model = Model(640, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        for rows in (2000, 3300, 2000, 3300):
            model(data(rows, 640)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        step_ends()


# Loops without an optimizer


@program(300)
@torch.no_grad()
def chat():
    """One cache for all layers, longer with each token; each turn of the dialogue adds a prompt."""
    layers = [Attention(640, 8).cuda() for _ in range(4)]
    cache = [None] * len(layers)
    for _ in range(40):
        for token in range(30):
            x = data(8, 24 if token == 0 else 1, 640)
            for index, layer in enumerate(layers):
                q, k, v = layer.qkv(layer.norm(x)).chunk(3, -1)
                kv = torch.stack([k, v])
                cache[index] = kv if cache[index] is None else torch.cat([cache[index], kv], 2)
                keys, values = cache[index]
                x = x + layer.out(torch.softmax(q @ keys.transpose(-1, -2), -1) @ values)
        step_ends()


@program(260)
@torch.no_grad()
def long_generation():
    """Two caches, for a very long time."""
    layers = [Attention(256).cuda() for _ in range(2)]
    caches = [(data(32, 4, 64, 64), data(32, 4, 64, 64)) for _ in layers]
    for _ in range(2000):
        x = data(32, 1, 256)
        for index, layer in enumerate(layers):
            q, k, v = (part.view(32, 1, 4, 64).transpose(1, 2) for part in layer.qkv(layer.norm(x)).chunk(3, -1))
            caches[index] = tuple(torch.cat([old, new], 2) for old, new in zip(caches[index], (k, v)))
            keys, values = caches[index]
            x = x + layer.out((torch.softmax(q @ keys.mT, -1) @ values).transpose(1, 2).reshape(32, 1, 256))
        step_ends()


@program(170)
@torch.no_grad()
def embeddings_collected():
    """The mean of each batch's last layer is kept in a list."""
    model = Language(tied=True).cuda().eval()
    collected = []
    for length in LENGTHS[:150]:
        collected.append(model.layers(model.embedding(batch(24, 128))).mean(1).repeat(1 + length % 3 + 20, 1))
        step_ends()


@program(240)
@torch.inference_mode()
def one_large_document():
    """Evaluation, and one document ten times as long as the others."""
    model = Language().cuda().eval()
    for step in range(40):
        model(batch(4, 1280 if step == 17 else 128))
        step_ends()


# Inputs, and what stays


@program(420, 450)
def language_model_lengths():
    """Batches padded to their longest sequence."""
    model = Language(tied=True).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for length in LENGTHS[:60]:
        loss = language_loss(model, batch(4, 96 + 5 * length))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step_ends()


@program(420)
def running_loss():
    """The running loss keeps the graph of every step."""
    model = Model(320, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0
    for _ in range(50):
        loss = model(data(600, 320)).pow(2).mean()
        total = total + loss
        step_ends()
    total.backward()
    optimizer.step()


@program(480)
def replay_buffer():
    """Transitions are kept, and each step learns from a sample."""
    model = Model(384, 3).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    buffer = []
    for _ in range(150):
        with torch.no_grad():
            buffer.append((data(512, 384), model(data(512, 384))))
        x = torch.cat([state for state, _ in buffer[-4:]])
        train_step(model, optimizer, x)
        step_ends()


@program(470)
def warm_up_of_batch():
    """The batch doubles every eight steps."""
    model = Model(384, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(48):
        train_step(model, optimizer, data(256 << step // 8, 384))
        step_ends()


if __name__ == "__main__":
    run(*sys.argv[1:])
