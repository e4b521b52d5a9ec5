"""Programs that run out of memory, each as it is and with the change that helps, both really run.

usage: run.sh advised.py PROGRAM VERSION OUT.pickle.gz

VERSION is `before`, `after` (the change that should be advised) or the name of another change. `@program` has the MiB
of the device on which `before` fails, and what the first lines of the advice should begin with; `advised.py` without
arguments lists them. OUT.json has `fails`.
"""

import sys

import torch
from torch import nn

import recording
from failing import PROGRAMS, Model, data, fails, program


def train_step(model, optimizer, *shape):
    """A step with data of this shape."""
    model(data(*shape)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


# Temporaries of an optimizer that works on all parameters at once


@program(400, "foreach")
def foreach_adamw(version):
    """State fits, and then the square roots of all of it."""
    model = Model(768, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=None if version == "before" else False)
    for _ in range(6):
        train_step(model, optimizer, 256, 768)


@program(326, "foreach")
def foreach_sgd(version):
    """Weight decay makes a copy of every gradient, in a later step than the first: gradients of a second loss stay."""
    model = Model(768, 5).cuda()
    foreach = None if version == "before" else False
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1, foreach=foreach)
    held = []
    for step in range(6):
        model(data(128, 768)).pow(2).mean().backward()
        if step == 3:
            held.append(data(42, 1024, 256))
        optimizer.step()
        optimizer.zero_grad()


@program(480, "foreach")
def foreach_rmsprop(version):
    """Gradient accumulation, so that most requests of a step are of the passes."""
    model = Model(1024, 3).cuda()
    optimizer = torch.optim.RMSprop(model.parameters(), momentum=0.9, foreach=None if version == "before" else False)
    for _ in range(4):
        for _ in range(3):
            model(data(64, 1024)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@program(370, "not foreach")
def foreach_one_parameter(version):
    """Nearly all is one embedding, whose temporaries are as large without foreach."""
    table = nn.Embedding(40000, 512).cuda()
    foreach = None if version == "before" else False
    optimizer = torch.optim.AdamW(table.parameters(), foreach=foreach)
    for _ in range(4):
        table(torch.zeros(64, dtype=torch.long, device="cuda")).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


# Graphs that are kept


@program(420, "detach")
def retained_losses(version):
    model = Model(256, 3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(60):
        loss = model(data(1024, 256)).pow(2).mean()
        loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss if version == "before" else loss.item())


@program(420, "detach")
def summed_losses(version):
    """A running sum, which is part of the next step's graph."""
    model = Model(256, 3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0
    for _ in range(60):
        loss = model(data(1024, 256)).pow(2).mean()
        total = total + (loss if version == "before" else loss.detach())
        loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()


@program(900, "detach")
def hidden_state(version):
    """The hidden state of a recurrent model carries the graphs of all steps before."""
    cell, head = nn.GRUCell(512, 512).cuda(), nn.Linear(512, 512).cuda()
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
    hidden = data(2048, 512)
    for step in range(80):
        hidden = cell(data(2048, 512), hidden)
        head(hidden).pow(2).mean().backward(retain_graph=True)
        if step == 79:  # in-place changes of the weights would invalidate the graphs
            optimizer.step()
        if version == "after":
            hidden = hidden.detach()


@program(700, "detach")
def penalty_graphs(version):
    """A penalty on gradients: their graph is kept with a loss that is only logged."""
    model = Model(256, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    logged = []
    for _ in range(60):
        x = data(1024, 256).requires_grad_()
        out = model(x).pow(2).mean()
        (grad,) = torch.autograd.grad(out, x, create_graph=True)
        penalty = grad.pow(2).mean()
        (out + penalty).backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()
        logged.append(penalty if version == "before" else penalty.item())


@program(420, "detach")
def logged_beside_training(version):
    """Each step also logs the loss of a smaller batch, with its graph."""
    model = Model(256, 3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    logged = []
    for _ in range(80):
        train_step(model, optimizer, 1024, 256)
        loss = model(data(200, 256)).pow(2).mean()
        logged.append(loss if version == "before" else loss.detach())
        del loss


@program(420, "no grad")
def validation_losses(version):
    """Training, then a validation that sums its losses with their graphs."""
    model = Model(256, 3).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        train_step(model, optimizer, 1024, 256)
    total = 0
    with torch.set_grad_enabled(version == "before"):
        for _ in range(40):
            total = total + model(data(1024, 256)).pow(2).mean()


@program(200, "not no grad")
@torch.no_grad()
def cache_of_generation(version):
    """Without graphs: a cache that each token replaces by a longer one."""
    query, out = nn.Linear(256, 768).cuda(), nn.Linear(256, 256).cuda()
    caches = [data(16, 1000, 512) for _ in range(2)]
    x = data(16, 1, 256)
    for _ in range(40 if version == "before" else 4):
        for index in range(2):
            q, kv = query(x).split([256, 512], -1)
            caches[index] = torch.cat([caches[index], kv.repeat(1, 60, 1)], 1)
            keys, values = caches[index].chunk(2, -1)
            x = x + out(torch.softmax(q @ keys.transpose(-1, -2), -1) @ values)


@program(420, "no grad")
def validation_detached(version):
    """The same, with the graphs of one batch at a time: nothing grows, and nothing is advised but a smaller batch."""
    model = Model(256, 3).cuda()
    total = 0
    with torch.set_grad_enabled(version == "before"):
        for step in range(40):
            total = total + model(data(1024 * (1 + step // 3), 256)).pow(2).mean().item()
            if step > 20:
                return


@program(300, "kept")
def kept_outputs(version):
    """Outputs stay, their graphs are gone: only `.cpu()` or less of them helps, not `.detach()`."""
    model = Model(512, 3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outputs = []
    for _ in range(120):
        out = model(data(1024, 512))
        out.pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        outputs.append(out if version == "before" else out.detach().cpu() if version == "after" else out.detach())


@program(460, "kept")
def kept_logits(version):
    """The output is larger than all that the model saves."""
    model = Model(128, 2, out=8000).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outputs = []
    for _ in range(60):
        out = model(data(600, 128))
        out.pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        outputs.append(out if version == "before" else out.cpu())


# Half the batch


@program(330, "half the batch")
def forward_activations(version):
    model = Model(512, 6).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        rows = 1024 if step < 2 else 2400
        for _ in range(1 if version == "before" else 2):
            model(data(rows if version == "before" else rows // 2, 512)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@program(400, "not half the batch")
def evaluation_table(version):
    """A table of fixed size, made in the forward pass of some step."""
    model = Model(512, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = 2048 if version == "before" else 1024
    for step in range(8):
        for _ in range(1 if version == "before" else 2):
            x = data(rows, 512)
            table = data(300, 1024, 256) if step == 5 else None
            model(x).pow(2).mean().backward()
            del table
        optimizer.step()
        optimizer.zero_grad()


@program(240, "not half the batch")
def state_too_large(version):
    """The optimizer's state does not fit, with whatever batch."""
    model = Model(768, 4).cuda()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    rows = 256 if version == "before" else 128
    for _ in range(4):
        for _ in range(1 if version == "before" else 2):
            model(data(rows, 768)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def main(name, version, out):
    failed = fails(PROGRAMS[name][0], version)
    recording.write(out, {"program": name, "version": version, "fails": failed})


if len(sys.argv) > 1:
    main(*sys.argv[1:])
else:
    for name, (_, mib, advice) in PROGRAMS.items():
        print(name, mib, advice, sep="\t")
