"""Ordinary programs of many kinds, small. usage: peak_programs.py NAME

They are written as users write them; `peak_truth` notes what the memory is used for at the peak. Only memory that no
module, optimizer or graph has is marked.
"""

import contextlib
import copy
import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

from peak_truth import give, mark

D = "cuda"


class Attention(nn.Module):
    def __init__(self, width, heads=8):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, past=None):
        b, t, w = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        if past is not None:
            if past:
                k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
            past[:] = [k, v]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.out(y.transpose(1, 2).reshape(b, t, w))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, past=None):
        x = x + self.attention(self.norm1(x), past)
        return x + self.mlp(self.norm2(x))


class Words(nn.Module):
    def __init__(self, width=512, depth=6, words=8000, checkpointed=False):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.checkpointed = checkpointed

    def forward(self, ids, cache=None):
        x = self.embed(ids)
        for at, layer in enumerate(self.layers):
            if self.checkpointed:
                x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
            else:
                x = layer(x, None if cache is None else cache[at])
        return self.head(self.norm(x))


class Convs(nn.Module):
    def __init__(self, width=64, classes=100):
        super().__init__()

        def block(i, o, stride):
            return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

        self.body = nn.Sequential(
            block(3, width, 1),
            block(width, 2 * width, 2),
            block(2 * width, 4 * width, 2),
            block(4 * width, 8 * width, 2),
            block(8 * width, 8 * width, 1),
        )
        self.head = nn.Linear(8 * width, classes)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def words(batch=8, length=256, count=8000):
    return give(torch.randint(0, count, (batch, length)).to(D))


def pictures(batch=64, size=64):
    return give(torch.randn(batch, 3, size, size).to(D), torch.randint(0, 100, (batch,)).to(D))


def word_loss(model, ids):
    logits = model(ids)
    return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


held_out = held_again = program


@program
def plain_adamw():
    model = Words().to(D)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(4):
        ids = words()
        optimizer.zero_grad()
        loss = word_loss(model, ids)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@program
def accumulated():
    model = Words(depth=4).to(D)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(8):
        loss = word_loss(model, words(4)) / 4
        loss.backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


def save_checkpoint(model, optimizer, path):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 2}, path)


def train_words(model, optimizer, steps):
    for _ in range(steps):
        word_loss(model, words()).backward()
        optimizer.step()
        optimizer.zero_grad()


def first_run(make):
    """On the host, as if an earlier process had written it."""
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    model = Words()
    optimizer = make(model.parameters())
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    save_checkpoint(model, optimizer, path)
    return path


@program
def resumed_adam():
    path = first_run(torch.optim.AdamW)
    model = Words().to(D)
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoint = torch.load(path, map_location=D)
    mark("other", checkpoint["model"])
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    train_words(model, optimizer, 3)


@program
def resumed_momentum():
    def make(parameters):
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    path = first_run(make)
    model = Words().to(D)
    optimizer = make(model.parameters())
    checkpoint = torch.load(path, map_location="cuda:0")
    mark("other", checkpoint["model"])
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    train_words(model, optimizer, 3)


@program
def resumed_and_dropped():
    path = first_run(torch.optim.Adam)
    model = Words().to(D)
    optimizer = torch.optim.Adam(model.parameters())

    def resume():
        state = torch.load(path, map_location=D)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return state["step"]

    resume()
    train_words(model, optimizer, 3)


@program
def weights_loaded():
    model = Words()
    path = os.path.join(tempfile.mkdtemp(), "weights.pt")
    torch.save(model.state_dict(), path)
    model.to(D)
    weights = torch.load(path, map_location=D)
    mark("other", weights)
    model.load_state_dict(weights)
    optimizer = torch.optim.AdamW(model.parameters())
    train_words(model, optimizer, 3)


@program
def averaged():
    model = Convs().to(D)
    average = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for _ in range(4):
        x, y = pictures()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.lerp_(p, 0.01)
    with torch.no_grad():
        average(pictures()[0])


@program
def swa():
    model = Convs(48).to(D)
    averaged_model = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.01)
    for _ in range(4):
        x, y = pictures()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        averaged_model.update_parameters(model)
        schedule.step()


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self):
        norm = torch.norm(torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"]]))
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * (group["rho"] / (norm + 1e-12)))
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        self.zero_grad()


@program
def sharpness_aware():
    model = Convs().to(D)
    optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    for _ in range(3):
        x, y = pictures(48)
        F.cross_entropy(model(x), y).backward()
        optimizer.first_step()
        F.cross_entropy(model(x), y).backward()
        optimizer.second_step()


@program
def half_with_scaler():
    model = Words(width=384).to(D)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(4):
        ids = words(16)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = word_loss(model, ids)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


@program
def bfloat_convs_last():
    model = Convs().to(D, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        x, y = pictures(128)
        x = give(x.contiguous(memory_format=torch.channels_last))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def checkpointed():
    model = Words(width=768, depth=8, checkpointed=True).to(D)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    train_words(model, optimizer, 3)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10000, 256)
        self.lstm = nn.LSTM(256, 512, 2, batch_first=True, bidirectional=True, dropout=0.2)
        self.tags = nn.Linear(1024, 50)

    def forward(self, ids):
        h, _ = self.lstm(self.embed(ids))
        return self.tags(h)


@program
def recurrent():
    model = Tagger().to(D)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
    for _ in range(4):
        ids, tags = words(32, 200, 10000), give(torch.randint(0, 50, (32, 200)).to(D))
        optimizer.zero_grad()
        scores = model(ids)
        loss = F.cross_entropy(scores.flatten(0, 1), tags.flatten())
        loss.backward()
        optimizer.step()


@program
def recurrent_by_hand():
    cell, head = nn.GRUCell(128, 1024).to(D), nn.Linear(1024, 64).to(D)
    optimizer = torch.optim.Adagrad([*cell.parameters(), *head.parameters()])
    for _ in range(3):
        series = give(torch.randn(64, 100, 128).to(D))
        hidden, loss = torch.zeros(64, 1024, device=D), 0.0
        for at in range(series.shape[1]):
            hidden = cell(series[:, at], hidden)
            loss = loss + head(hidden).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def deconv(i, o):
    return nn.Sequential(nn.ConvTranspose2d(i, o, 4, 2, 1), nn.BatchNorm2d(o), nn.ReLU())


@program
def adversarial():
    maker = nn.Sequential(
        nn.Linear(128, 512 * 16), nn.Unflatten(1, (512, 4, 4)), deconv(512, 256), deconv(256, 128), deconv(128, 64),
        nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh(),
    ).to(D)  # fmt: skip
    critic = Convs(classes=1).to(D)
    opt_g = torch.optim.Adam(maker.parameters(), lr=2e-4, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for _ in range(3):
        real, _ = pictures(64)
        noise = give(torch.randn(64, 128, device=D))
        fake = maker(noise)
        opt_d.zero_grad()
        loss_d = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
        loss_d.backward()
        opt_d.step()
        opt_g.zero_grad()
        loss_g = F.softplus(-critic(fake)).mean()
        loss_g.backward()
        opt_g.step()


@program
def wasserstein_penalty():
    critic = Convs(48, 1).to(D)
    optimizer = torch.optim.Adam(critic.parameters(), betas=(0.0, 0.9))
    for _ in range(3):
        real, _ = pictures(32)
        mixed = give(torch.randn(32, 3, 64, 64, device=D, requires_grad=True))
        score = critic(mixed)
        (slope,) = torch.autograd.grad(score.sum(), mixed, create_graph=True)
        penalty = ((slope.flatten(1).norm(dim=1) - 1) ** 2).mean()
        loss = score.mean() - critic(real).mean() + 10 * penalty
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def answers_with_cache():
    model = Words(width=768, depth=8).to(D).eval()
    cache = mark("other", [[] for _ in model.layers])
    ids = words(16, 128)
    with torch.no_grad():
        nxt = model(ids, cache)[:, -1:].argmax(-1)
        for _ in range(60):
            nxt = model(nxt, cache)[:, -1:].argmax(-1)


@program
def features_extracted():
    model = Convs().to(D).eval()
    features = mark("other", [])
    with torch.inference_mode():
        for _ in range(30):
            x, _ = pictures(128)
            features.append(model.body(x).flatten(1))
    torch.cat(features)


class BlockwiseAdam(torch.optim.Optimizer):
    """Moments in bytes with a scale for every 256 values."""

    def __init__(self, params, lr=1e-3):
        super().__init__(params, {"lr": lr})

    @staticmethod
    def pack(x):
        x = F.pad(x.flatten(), (0, -x.numel() % 256)).view(-1, 256)
        scale = x.abs().amax(1, keepdim=True) + 1e-12
        return (x / scale * 127).to(torch.int8), scale

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = self.pack(torch.zeros_like(p))
                    state["v"] = self.pack(torch.zeros_like(p))
                m, v = ((q.float() * s / 127).flatten()[: p.numel()].view_as(p) for q, s in (state["m"], state["v"]))
                m = m.mul(0.9).add(p.grad, alpha=0.1)
                v = v.mul(0.999).addcmul(p.grad, p.grad, value=0.001)
                p.addcdiv_(m, v.abs().sqrt() + 1e-8, value=-group["lr"])
                state["m"], state["v"] = self.pack(m), self.pack(v)


@program
def eight_bit_state():
    model = Words(width=640).to(D)
    train_words(model, BlockwiseAdam(model.parameters()), 3)


@program
def adafactor():
    model = Words(width=640).to(D)
    optimizer = torch.optim.Adafactor(model.parameters())
    train_words(model, optimizer, 3)


class LowRank(nn.Module):
    def __init__(self, base, rank=16):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.01)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.a.t() @ self.b.t()


@program
def low_rank():
    model = Words(width=768).requires_grad_(False)
    for layer in model.layers:
        layer.attention.qkv, layer.attention.out = LowRank(layer.attention.qkv), LowRank(layer.attention.out)
    model.to(D)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    train_words(model, optimizer, 4)


@program
def distilled():
    teacher, student = Words(768, 8).to(D).eval(), Words(256, 4).to(D)
    optimizer = torch.optim.AdamW(student.parameters())
    for _ in range(3):
        ids = words()
        with torch.no_grad():
            targets = give(teacher(ids).softmax(-1), kind="other")
        loss = F.kl_div(student(ids).log_softmax(-1), targets, reduction="batchmean")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def master_weights():
    """Half-precision weights, gradients copied into float32 masters."""
    model = Words(width=640).to(D).bfloat16()
    masters = mark("parameters", [p.detach().float().requires_grad_() for p in model.parameters()])
    optimizer = torch.optim.Adam(masters)
    for _ in range(3):
        word_loss(model, words()).backward()
        for master, p in zip(masters, model.parameters()):
            master.grad = p.grad.float()
            p.grad = None
        give([m.grad for m in masters], kind="gradients")
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for master, p in zip(masters, model.parameters()):
                p.copy_(master)


@program
def diffusion():
    model = nn.Sequential(
        nn.Conv2d(3, 128, 3, 1, 1), nn.GroupNorm(32, 128), nn.SiLU(),
        nn.Conv2d(128, 256, 3, 1, 1), nn.GroupNorm(32, 256), nn.SiLU(),
        nn.Conv2d(256, 128, 3, 1, 1), nn.GroupNorm(32, 128), nn.SiLU(), nn.Conv2d(128, 3, 3, 1, 1),
    ).to(D)  # fmt: skip
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    signal = mark("parameters", torch.linspace(0.99, 0.01, 1000, device=D))
    for _ in range(3):
        x, _ = pictures(64, 64)
        at = torch.randint(0, 1000, (64,), device=D)
        noise = give(torch.randn_like(x))
        a = signal[at].view(-1, 1, 1, 1)
        noisy = give(a.sqrt() * x + (1 - a).sqrt() * noise)
        loss = F.mse_loss(model(noisy), noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for e, p in zip(average.parameters(), model.parameters()):
                e.mul_(0.999).add_(p, alpha=0.001)


@program
def data_on_device():
    images = give(torch.randint(0, 255, (20000, 3, 64, 64), dtype=torch.uint8).to(D))
    labels = give(torch.randint(0, 100, (20000,)).to(D))
    model = Convs().to(D)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for batch in torch.randperm(20000).to(D).split(128)[:4]:
        x, y = give(images[batch].float().div_(255)), give(labels[batch])
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program
def validated():
    model = Convs().to(D)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model.train()
        for _ in range(2):
            x, y = pictures(32)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        outputs = []
        with torch.no_grad():
            for _ in range(3):
                x, y = pictures(192)
                outputs.append(model(x))


@program
def hf_trainer():
    os.environ["WANDB_DISABLED"] = "true"
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    model = GPT2LMHeadModel(GPT2Config(n_embd=384, n_layer=6, n_head=6, vocab_size=8000, n_positions=256))
    data = [{"input_ids": (i := torch.randint(0, 8000, (256,))), "labels": i} for _ in range(32)]
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), max_steps=3, per_device_train_batch_size=8, report_to=[], save_strategy="no",
        gradient_accumulation_steps=2, bf16=True, logging_steps=1,
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=data).train()


@program
def lightning():
    import lightning as L

    class Task(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Convs()

        def training_step(self, batch, _):
            x, y = batch
            give(x, y)
            return F.cross_entropy(self.model(x), y)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    data = torch.utils.data.TensorDataset(torch.randn(512, 3, 64, 64), torch.randint(0, 100, (512,)))
    loader = torch.utils.data.DataLoader(data, batch_size=64)
    L.Trainer(
        max_steps=4, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False
    ).fit(Task(), loader)


@program
def replicated():
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29611")
    torch.distributed.init_process_group("nccl", rank=int(os.environ.get("RANK", 0)),
                                         world_size=int(os.environ.get("WORLD_SIZE", 1)))  # fmt: skip
    model = nn.parallel.DistributedDataParallel(Words().to(D), device_ids=[0])
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        word_loss(model, words()).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.distributed.destroy_process_group()


@program
def adapted_by_peft():
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=512, intermediate_size=1400, num_hidden_layers=6, num_attention_heads=8,
                         vocab_size=8000)  # fmt: skip
    model = LlamaForCausalLM(config).to(D, torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    for _ in range(4):
        ids = words(8)
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def rollouts():
    """Actor and critic: steps of many environments are kept on the device, then learned from in parts."""
    actor = nn.Sequential(nn.Linear(512, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 33)).to(D)
    optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4, eps=1e-5)
    steps, envs = 64, 512
    seen = give(torch.zeros(steps, envs, 512, device=D))
    values = give(torch.zeros(steps, envs, device=D))
    for _ in range(2):
        for step in range(steps):
            now = torch.randn(envs, 512).to(D)
            seen[step] = now
            with torch.no_grad():
                values[step] = actor(now)[:, 0]
        returns = give(values.flip(0).cumsum(0).flip(0))
        flat, targets = seen.view(-1, 512), returns.view(-1)
        for part in torch.randperm(steps * envs, device=D).split(16384):
            out = actor(give(flat[part]))
            loss = F.mse_loss(out[:, 0], give(targets[part])) - 0.01 * out[:, 1:].log_softmax(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
            optimizer.step()


class Replay:
    def __init__(self, size, shape):
        self.frames = torch.zeros(size, *shape, dtype=torch.uint8, device=D)
        self.actions = torch.zeros(size, dtype=torch.long, device=D)
        self.rewards = torch.zeros(size, device=D)

    def sample(self, count):
        at = torch.randint(0, len(self.frames) - 1, (count,), device=D)
        return self.frames[at], self.actions[at], self.rewards[at], self.frames[at + 1]


@program
def replayed():
    policy, target = Convs(48, 18).to(D), Convs(48, 18).to(D)
    target.load_state_dict(policy.state_dict())
    memory = Replay(10000, (3, 64, 64))
    give(memory.frames, memory.actions, memory.rewards)
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=2.5e-4)
    for _ in range(4):
        frames, actions, rewards, after = give(*memory.sample(64))
        now = policy(give(frames.float() / 255)).gather(1, actions[:, None]).squeeze(1)
        with torch.no_grad():
            best = rewards + 0.99 * target(give(after.float() / 255)).max(1).values
        loss = F.smooth_l1_loss(now, best)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 4, 2, 1), nn.ReLU(),
                                     nn.Flatten(), nn.Linear(128 * 256, 512))  # fmt: skip
        self.decoder = nn.Sequential(nn.Linear(256, 128 * 256), nn.Unflatten(1, (128, 16, 16)), deconv(128, 64),
                                     nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Sigmoid())  # fmt: skip

    def forward(self, x):
        mean, spread = self.encoder(x).chunk(2, 1)
        z = mean + (spread / 2).exp() * torch.randn_like(mean)
        return self.decoder(z), mean, spread


@program
def variational():
    model = Autoencoder().to(D)
    optimizer = torch.optim.Adamax(model.parameters(), lr=1e-3)
    for _ in range(3):
        x, _ = pictures(256)
        again, mean, spread = model(x)
        loss = F.mse_loss(again, x, reduction="sum") - 0.5 * (1 + spread - mean**2 - spread.exp()).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        model.decoder(torch.randn(400, 256, device=D))


@program
def momentum_contrast():
    query = Convs(64, 128).to(D)
    key = copy.deepcopy(query)
    for p in key.parameters():
        p.requires_grad = False
    queue = mark("other", F.normalize(torch.randn(65536, 128, device=D), dim=1))
    optimizer = torch.optim.SGD(query.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    for step in range(3):
        x, _ = pictures(96)
        q = F.normalize(query(x), dim=1)
        with torch.no_grad():
            for k, p in zip(key.parameters(), query.parameters()):
                k.mul_(0.999).add_(p, alpha=0.001)
            other = give(x.flip(3))
            k = F.normalize(key(other), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.t()], 1) / 0.07
        loss = F.cross_entropy(logits, torch.zeros(96, dtype=torch.long, device=D))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue[step * 96 : (step + 1) * 96] = k


@program
def generated_by_transformers():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=512, intermediate_size=1400, num_hidden_layers=8, num_attention_heads=8,
                         vocab_size=8000)  # fmt: skip
    model = LlamaForCausalLM(config).half().to(D).eval()
    caches = watched_caches()
    ids = give(torch.randint(0, 8000, (32, 384)).to(D))
    mark("other", caches)
    model.generate(ids, max_new_tokens=24, do_sample=False)


def watched_caches():
    """The keys and values of every cache that is made."""
    import weakref

    from transformers.cache_utils import DynamicLayer

    layers = weakref.WeakSet()
    original = DynamicLayer.__init__

    def init(self, *args, **kwargs):
        layers.add(self)
        original(self, *args, **kwargs)

    DynamicLayer.__init__ = init

    class Views(dict):
        def values(self):
            return [t for layer in list(layers) for t in (layer.keys, layer.values) if t is not None]

    return Views()


@program
def lbfgs():
    model = nn.Sequential(nn.Linear(512, 2048), nn.Tanh(), nn.Linear(2048, 2048), nn.Tanh(), nn.Linear(2048, 1)).to(D)
    optimizer = torch.optim.LBFGS(model.parameters(), history_size=10, max_iter=5)
    x, y = give(torch.randn(4096, 512, device=D), torch.randn(4096, 1, device=D))

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)


@program
def meta_learned():
    model = Convs(32, 5).to(D)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        for _ in range(2):
            weights = dict(model.named_parameters())
            x, y = pictures(25)
            y = give(y % 5)
            for _ in range(2):
                loss = F.cross_entropy(torch.func.functional_call(model, weights, (x,)), y)
                slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
                give(list(slopes), kind="gradients")
                weights = {name: w - 0.01 * g for (name, w), g in zip(weights.items(), slopes)}
            x, y = pictures(75)
            F.cross_entropy(torch.func.functional_call(model, weights, (x,)), give(y % 5)).backward()
        optimizer.step()
        optimizer.zero_grad()


class UNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        w = [width, 2 * width, 4 * width]

        def two(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU(),
                                 nn.Conv2d(o, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU())  # fmt: skip

        self.down = nn.ModuleList([two(3, w[0]), two(w[0], w[1]), two(w[1], w[2])])
        self.up = nn.ModuleList([nn.ConvTranspose2d(w[2], w[1], 2, 2), nn.ConvTranspose2d(w[1], w[0], 2, 2)])
        self.merge = nn.ModuleList([two(w[2], w[1]), two(w[1], w[0])])
        self.head = nn.Conv2d(w[0], 21, 1)

    def forward(self, x):
        kept = []
        for at, down in enumerate(self.down):
            x = down(x)
            if at < 2:
                kept.append(x)
                x = F.max_pool2d(x, 2)
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([kept.pop(), up(x)], 1))
        return self.head(x)


@program
def segmented():
    model = UNet().to(D)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    history = mark("other", [])
    for _ in range(2):
        for _ in range(2):
            x, y = give(torch.randn(8, 3, 128, 128).to(D), torch.randint(0, 21, (8, 128, 128)).to(D))
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for _ in range(8):
                x = give(torch.randn(8, 3, 128, 128).to(D))
                history.append(model(x).softmax(1))
        model.train()


@program
def graph_convolutions():
    """A whole graph at once."""
    nodes, edges = 40000, 200000
    features = give(torch.randn(nodes, 256).to(D))
    source, target = give(torch.randint(0, nodes, (edges,)).to(D), torch.randint(0, nodes, (edges,)).to(D))
    labels = give(torch.randint(0, 40, (nodes,)).to(D))
    layers = nn.ModuleList([nn.Linear(256, 256), nn.Linear(256, 40)]).to(D)
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.01, weight_decay=5e-4)

    def forward(x):
        for at, layer in enumerate(layers):
            x = layer(x)
            x = torch.zeros_like(x).index_add(0, target, x[source])
            if at == 0:
                x = F.dropout(F.relu(x), 0.5)
        return x

    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(forward(features), labels).backward()
        optimizer.step()


@program
def by_hand():
    """No module, no optimizer."""
    g = torch.Generator().manual_seed(0)
    sizes = [784, 4096, 2048, 10]
    weights = [torch.randn(a, b, generator=g).mul_(a**-0.5).to(D).requires_grad_() for a, b in zip(sizes, sizes[1:])]
    biases = [torch.zeros(b, device=D, requires_grad=True) for b in sizes[1:]]
    mark("parameters", weights, biases)
    parameters = weights + biases
    velocities = mark("optimizer-state", [torch.zeros_like(p) for p in parameters])
    for _ in range(5):
        x = give(torch.randn(8192, 784, device=D))
        y = give(torch.randint(0, 10, (8192,), device=D))
        h = x
        for at, (w, b) in enumerate(zip(weights, biases)):
            h = h @ w + b
            if at < 2:
                h = torch.relu(h)
        loss = F.cross_entropy(h, y)
        loss.backward()
        give([p.grad for p in parameters], kind="gradients")
        with torch.no_grad():
            for p, v in zip(parameters, velocities):
                v.mul_(0.9).add_(p.grad)
                p -= 0.1 * v
                p.grad = None


@program
def style_transferred():
    vgg = nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(64, 128, 3, 1, 1), nn.ReLU(), nn.Conv2d(128, 256, 3, 1, 1), nn.ReLU(),
    ).to(D).eval().requires_grad_(False)  # fmt: skip
    content = give(torch.rand(1, 3, 512, 512).to(D))
    with torch.no_grad():
        targets = mark("other", [m for m in [vgg(content)]])[0]
    image = mark("parameters", content.clone().requires_grad_())
    optimizer = torch.optim.Adam([image], lr=0.02)
    for _ in range(4):
        features = vgg(image)
        flat = features.flatten(2)[0]
        gram = flat @ flat.t() / flat.shape[1]
        loss = F.mse_loss(features, targets) + gram.square().mean()
        optimizer.zero_grad()
        loss.backward()
        give(image.grad, kind="gradients")
        optimizer.step()


class Lion:
    def __init__(self, params, lr=1e-4):
        self.params, self.lr = list(params), lr
        self.momentum = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self):
        for p, m in zip(self.params, self.momentum):
            p.add_((m * 0.9 + p.grad * 0.1).sign_(), alpha=-self.lr)
            m.mul_(0.99).add_(p.grad, alpha=0.01)

    def zero_grad(self):
        for p in self.params:
            p.grad = None


@program
def lion():
    model = Words(width=640).to(D)
    optimizer = Lion(model.parameters())
    mark("optimizer-state", optimizer.momentum)
    train_words(model, optimizer, 3)


@program
def surgical_gradients():
    """Gradients of several tasks are projected on each other."""
    body, heads = Convs(64, 512).to(D), nn.ModuleList(nn.Linear(512, 100) for _ in range(3)).to(D)
    optimizer = torch.optim.Adam([*body.parameters(), *heads.parameters()])
    shared = list(body.parameters())
    for _ in range(3):
        x, y = pictures(64)
        h = body(x)
        losses = [F.cross_entropy(head(h), y) for head in heads]
        each = [give(list(torch.autograd.grad(loss, shared, retain_graph=True)), kind="gradients") for loss in losses]
        optimizer.zero_grad()
        sum(losses).backward()
        for at, p in enumerate(shared):
            gs = [g[at] for g in each]
            dot = (gs[0] * gs[1]).sum().clamp(max=0)
            p.grad = gs[0] + gs[1] + gs[2] - dot * gs[1] / (gs[1].norm() ** 2 + 1e-8)
        optimizer.step()


@program
def radiance():
    model = nn.Sequential(nn.Linear(63, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)).to(D)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)

    def render(rays, samples=64):
        depth = torch.linspace(2, 6, samples, device=D)
        points = rays[:, None, :3] + rays[:, None, 3:] * depth[:, None]
        encoded = torch.cat([f(points * 2**i) for i in range(10) for f in (torch.sin, torch.cos)] + [points], -1)
        out = model(encoded.flatten(0, 1)).view(len(rays), samples, 4)
        alpha = 1 - torch.exp(-F.relu(out[..., 3]))
        weights = alpha * torch.cumprod(1 - alpha + 1e-10, -1)
        return (weights[..., None] * out[..., :3].sigmoid()).sum(1)

    for _ in range(3):
        rays, colours = give(torch.randn(2048, 6).to(D), torch.rand(2048, 3).to(D))
        loss = F.mse_loss(render(rays), colours)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        image = [render(give(part)) for part in torch.randn(20000, 6).to(D).split(5000)]
    torch.cat(image)


@program
def lookahead():
    """Slow weights beside fast ones, and fused steps."""
    model = Words(width=512).to(D)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    slow = mark("parameters", {name: p.detach().clone() for name, p in model.named_parameters()})
    for step in range(4):
        word_loss(model, words()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 2:
            with torch.no_grad():
                for name, p in model.named_parameters():
                    slow[name].lerp_(p, 0.5)
                    p.copy_(slow[name])


@program
def preference_tuned():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=384, n_layer=6, n_head=6, vocab_size=8000, n_positions=256)
    policy, reference = GPT2LMHeadModel(config).to(D), GPT2LMHeadModel(config).to(D).eval()
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=5e-7)

    def likelihood(model, ids):
        scores = model(ids).logits[:, :-1].log_softmax(-1)
        return scores.gather(2, ids[:, 1:, None]).squeeze(2).sum(1)

    for _ in range(3):
        chosen, rejected = words(4), words(4)
        with torch.no_grad():
            base = likelihood(reference, chosen) - likelihood(reference, rejected)
        margin = likelihood(policy, chosen) - likelihood(policy, rejected) - base
        (-F.logsigmoid(0.1 * margin).mean()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@program
def graphs_retained():
    model = Words().to(D)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        loss = word_loss(model, words())
        losses.append(loss)
        loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()


# ---------------------------------------------------------------- held out: no rule was made with these


@held_out
def resumed_by_trainer():
    os.environ["WANDB_DISABLED"] = "true"
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    config = GPT2Config(n_embd=320, n_layer=5, n_head=5, vocab_size=9000, n_positions=200)
    data = [{"input_ids": (i := torch.randint(0, 9000, (200,))), "labels": i} for _ in range(48)]
    out = tempfile.mkdtemp()

    def run(steps, **how):
        arguments = TrainingArguments(
            output_dir=out, max_steps=steps, per_device_train_batch_size=6, report_to=[], save_steps=2,
            gradient_checkpointing=steps > 2, learning_rate=1e-4,
        )  # fmt: skip
        Trainer(GPT2LMHeadModel(config), arguments, train_dataset=data).train(**how)

    run(2)
    run(4, resume_from_checkpoint=True)


@held_out
def lightning_with_average():
    import lightning as L

    class Net(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.scores = UNet(24), mark("other", [])
            self.average = torch.optim.swa_utils.AveragedModel(self.net)

        def training_step(self, batch, _):
            x, y = give(*batch)
            return F.cross_entropy(self.net(x), y)

        def on_before_zero_grad(self, _):
            self.average.update_parameters(self.net)

        def validation_step(self, batch, _):
            x, _ = give(*batch)
            self.scores.append(self.average(x).argmax(1))

        def configure_optimizers(self):
            return torch.optim.NAdam(self.parameters(), lr=1e-3)

    def loader():
        data = torch.utils.data.TensorDataset(torch.randn(36, 3, 120, 120), torch.randint(0, 21, (36, 120, 120)))
        return torch.utils.data.DataLoader(data, batch_size=6)

    L.Trainer(
        max_epochs=2, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, accumulate_grad_batches=3, precision="bf16-mixed",
    ).fit(Net(), loader(), loader())  # fmt: skip


class Vision(nn.Module):
    def __init__(self, width=320, depth=7):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 145, width) * 0.02)
        encoder = nn.TransformerEncoderLayer(width, 5, 3 * width, batch_first=True, norm_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(encoder, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 365)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.layers(x)[:, 0])


@held_out
def mixed_up_vision():
    model = Vision().cuda()
    best = None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(2):
        for _ in range(3):
            x = give(torch.randn(40, 3, 96, 96).cuda(non_blocking=True))
            y = give(torch.randint(0, 365, (40,)).cuda(non_blocking=True))
            mixed = give(0.7 * x + 0.3 * x.roll(1, 0))
            with torch.autocast("cuda", torch.bfloat16):
                out = model(mixed)
                loss = 0.7 * criterion(out, y) + 0.3 * criterion(out, y.roll(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch == 0:
            best = mark("parameters", {name: t.clone() for name, t in model.state_dict().items()})
    model.load_state_dict(best)


@held_out
def translated():
    class Translator(nn.Module):
        def __init__(self, width=360):
            super().__init__()
            self.source, self.target = nn.Embedding(7000, width), nn.Embedding(6000, width)
            self.core = nn.Transformer(width, 6, 3, 3, 1100, batch_first=True, dropout=0.1)
            self.out = nn.Linear(width, 6000)

        def forward(self, source, target):
            mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
            return self.out(self.core(self.source(source), self.target(target), tgt_mask=mask))

    model = Translator().to(D)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) ** -0.5, (step + 1) / 4))
    for _ in range(4):
        source, target = words(24, 90, 7000), words(24, 75, 6000)
        optimizer.zero_grad()
        out = model(source, target[:, :-1])
        loss = F.cross_entropy(out.transpose(1, 2), target[:, 1:], label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        source, said = words(200, 60, 7000), torch.zeros(200, 1, dtype=torch.long, device=D)
        for _ in range(20):
            said = torch.cat([said, model(source, said)[:, -1:].argmax(-1)], 1)


class Kronecker:
    """Not a subclass of PyTorch's optimizers; factors for the two sides of each matrix, and momentum."""

    def __init__(self, named, lr=0.01):
        self.named, self.lr, self.factors, self.momentum = dict(named), lr, {}, {}

    def precondition(self, name, g):
        if g.dim() != 2 or max(g.shape) > 2000:
            return g
        left, right = self.factors.setdefault(
            name, (torch.eye(g.shape[0], device=g.device), torch.eye(g.shape[1], device=g.device))
        )
        left.mul_(0.95).add_(g @ g.t())
        right.mul_(0.95).add_(g.t() @ g)
        return left @ g @ right

    @torch.no_grad()
    def update(self):
        for name, p in self.named.items():
            g = self.precondition(name, p.grad)
            self.momentum[name] = 0.9 * self.momentum[name] + g if name in self.momentum else g.clone()
            p -= self.lr * self.momentum[name]
            p.grad = None


@held_out
def preconditioned():
    model = nn.Sequential(
        nn.Linear(900, 1500), nn.ReLU(), nn.Linear(1500, 1500), nn.ReLU(), nn.Linear(1500, 1200), nn.ReLU(),
        nn.Linear(1200, 700),
    ).to(D)  # fmt: skip
    optimizer = Kronecker(model.named_parameters())
    mark("optimizer-state", optimizer.factors, optimizer.momentum)
    for _ in range(4):
        x = give(torch.randn(3000, 900, device=D))
        y = give(torch.randn(3000, 700, device=D))
        F.huber_loss(model(x), y).backward()
        optimizer.update()


@held_out
def triplets_with_a_bank():
    model = Convs(40, 192).to(D)
    bank = mark("other", {"features": torch.zeros(30000, 192, device=D), "at": 0})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True)
    for _ in range(4):
        x, _ = pictures(100, 56)
        z = F.normalize(model(x), dim=1)
        near = torch.cdist(z, z)
        far = torch.cdist(z, bank["features"])
        hard = far.topk(5, largest=False).values.mean(1)
        loss = F.relu(near.max(1).values - hard + 0.2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        start = bank["at"]
        bank["features"][start : start + len(z)] = z.detach()
        bank["at"] = start + len(z)


@held_out
def two_optimizers():
    model = Words(width=480, depth=5, words=7000).to(D)
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "layers" in name]
    others = [p for name, p in model.named_parameters() if p.dim() != 2 or "layers" not in name]
    optimizers = [torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(others, lr=3e-4)]
    for step in range(6):
        word_loss(model, words(6, 220, 7000)).div(2).backward()
        if step % 2:
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)


@held_out
def denoised_and_sampled():
    model = UNet(40)
    model.head = nn.Conv2d(40, 3, 1)
    model.to(D, memory_format=torch.channels_last)
    average = {name: p.detach().clone() for name, p in model.named_parameters()}
    mark("parameters", average)
    optimizer = torch.optim.RAdam(model.parameters(), lr=2e-4)
    for _ in range(3):
        x = give(torch.rand(10, 3, 104, 104).to(D, memory_format=torch.channels_last))
        level = torch.rand(10, 1, 1, 1, device=D)
        noise = give(torch.randn_like(x))
        loss = ((model(give(x + level * noise)) - noise) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for name, p in model.named_parameters():
            average[name].lerp_(p.detach(), 0.01)
    frames = mark("other", [])
    with torch.no_grad():
        x = torch.randn(40, 3, 104, 104, device=D)
        for _ in range(25):
            x = x - 0.04 * model(x)
            frames.append(x)


@held_out
def adapters_on_assigned_weights():
    path = os.path.join(tempfile.mkdtemp(), "base.pt")
    torch.save(Words(width=640, depth=5, words=6000).bfloat16().state_dict(), path)
    model = Words(width=640, depth=5, words=6000).bfloat16()
    model.load_state_dict(torch.load(path, map_location=D), assign=True)
    model.requires_grad_(False)
    for layer in model.layers:
        layer.attention.qkv, layer.mlp[0] = LowRank(layer.attention.qkv, 12), LowRank(layer.mlp[0], 12)
        for part in (layer.attention.qkv, layer.mlp[0]):
            part.a, part.b = (nn.Parameter(p.to(D, torch.bfloat16)) for p in (part.a, part.b))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for _ in range(3):
        word_loss(model, words(7, 230, 6000)).backward()
        optimizer.step()
        optimizer.zero_grad()


@held_out
def resumed_with_average():
    path = os.path.join(tempfile.mkdtemp(), "state.pth")
    old = Convs(56)
    optimizer = torch.optim.AdamW(old.parameters())
    for p in old.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    parts = {"optimizer": optimizer.state_dict(), "ema": copy.deepcopy(old).state_dict(), "model": old.state_dict()}
    torch.save(parts, path)
    model = Convs(56).to(D)
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters())
    state = torch.load(path, map_location=torch.device("cuda"))
    mark("other", state["ema"], state["model"])
    model.load_state_dict(state["model"])
    average.load_state_dict(state["ema"])
    optimizer.load_state_dict(state["optimizer"])
    for _ in range(3):
        x, y = pictures(30, 60)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        for a, p in zip(average.parameters(), model.parameters()):
            a.data.mul_(0.99).add_(p.data, alpha=0.01)


# ---------------------------------------------------------------- held out again: after causes found with those above


@held_again
def sessions_served():
    model = Words(width=560, depth=7, words=9000).to(D, torch.bfloat16).eval()
    sessions = mark("other", {})
    for request in range(12):
        name = request % 5
        if name not in sessions:
            sessions[name] = [[] for _ in model.layers]
        with torch.inference_mode():
            said = words(6, 150, 9000)
            for _ in range(5):
                said = model(said, sessions[name])[:, -1:].argmax(-1)


@held_again
def accelerated():
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    model = Convs(44)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(torch.randn(320, 3, 60, 60), torch.randint(0, 100, (320,)))
    loader = torch.utils.data.DataLoader(data, batch_size=40)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    path = tempfile.mkdtemp()
    for epoch in range(2):
        for x, y in loader:
            give(x, y)
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        if epoch == 0:
            accelerator.save_state(path)
            accelerator.load_state(path)


@held_again
def hinge_with_average():
    norm = nn.utils.parametrizations.spectral_norm
    maker = nn.Sequential(
        nn.Linear(96, 360 * 25), nn.Unflatten(1, (360, 5, 5)), deconv(360, 180), deconv(180, 90),
        nn.ConvTranspose2d(90, 3, 4, 2, 1), nn.Tanh(),
    ).to(D)  # fmt: skip
    critic = nn.Sequential(
        norm(nn.Conv2d(3, 96, 4, 2, 1)), nn.LeakyReLU(0.2), norm(nn.Conv2d(96, 192, 4, 2, 1)), nn.LeakyReLU(0.2),
        nn.Flatten(), norm(nn.Linear(192 * 100, 1)),
    ).to(D)  # fmt: skip
    average = copy.deepcopy(maker).requires_grad_(False)
    opt_g, opt_d = torch.optim.Adam(maker.parameters(), 1e-4), torch.optim.Adam(critic.parameters(), 4e-4)
    for step in range(4):
        real = give(torch.randn(70, 3, 40, 40).to(D)).requires_grad_()
        with torch.no_grad():
            fake = give(maker(torch.randn(70, 96, device=D)))
        scores = critic(real)
        loss = F.relu(1 - scores).mean() + F.relu(1 + critic(fake)).mean()
        if step % 2 == 0:
            (slope,) = torch.autograd.grad(scores.sum(), real, create_graph=True)
            loss = loss + 5 * slope.square().sum((1, 2, 3)).mean()
        opt_d.zero_grad()
        loss.backward()
        opt_d.step()
        opt_g.zero_grad()
        (-critic(maker(torch.randn(70, 96, device=D))).mean()).backward()
        opt_g.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), maker.parameters()):
                a.lerp_(p, 0.001)


@held_again
def classified_by_hand_attention():
    class Encoder(nn.Module):
        def __init__(self, width=330, depth=4):
            super().__init__()
            self.words, self.places = nn.Embedding(11000, width), nn.Embedding(300, width)
            self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(depth))
            self.mlp = nn.ModuleList(
                nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 900), nn.GELU(), nn.Linear(900, width))
                for _ in range(depth)
            )
            self.head = nn.Linear(width, 12)

        def forward(self, ids):
            h = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
            for qkv, mlp in zip(self.qkv, self.mlp):
                q, k, v = (t.unflatten(-1, (6, -1)).transpose(1, 2) for t in qkv(h).chunk(3, -1))
                weights = F.dropout((q @ k.transpose(-1, -2) / 7.4).softmax(-1), 0.1, self.training)
                h = h + (weights @ v).transpose(1, 2).flatten(2)
                h = h + mlp(h)
            return self.head(h.mean(1))

    model = Encoder().to(D)
    groups = [{"params": model.head.parameters(), "lr": 1e-3}, {"params": [*model.qkv.parameters()]}]
    groups += [{"params": [*model.mlp.parameters(), *model.words.parameters(), *model.places.parameters()]}]
    optimizer = torch.optim.AdamW(groups, lr=1e-5)
    logits, truths = mark("other", []), mark("other", [])
    for _ in range(2):
        for _ in range(3):
            ids, y = words(12, 210, 11000), give(torch.randint(0, 12, (12,)).to(D))
            loss = F.cross_entropy(model(ids), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        for _ in range(4):
            ids, y = words(12, 210, 11000), torch.randint(0, 12, (12,)).to(D)
            with torch.no_grad():
                logits.append(model(ids))
            truths.append(y)
        model.train()


@held_again
def reinforced():
    agent, head = nn.LSTMCell(300, 700).to(D), nn.Linear(700, 20).to(D)
    optimizer = torch.optim.Adam([*agent.parameters(), *head.parameters()], lr=1e-3)
    for _ in range(3):
        state, chances, rewards = None, [], []
        for _ in range(60):
            seen = give(torch.randn(120, 300).to(D))
            state = agent(seen, state)
            policy = torch.distributions.Categorical(logits=head(state[0]))
            action = policy.sample()
            chances.append(policy.log_prob(action))
            rewards.append(torch.randn(120).to(D))
        returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
        loss = -(torch.stack(chances) * (returns - returns.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@held_again
def enlarged_by_perception():
    class Enlarger(nn.Module):
        def __init__(self, width=72):
            super().__init__()
            self.first = nn.Conv2d(3, width, 3, 1, 1)
            self.body = nn.ModuleList(
                nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.PReLU(), nn.Conv2d(width, width, 3, 1, 1))
                for _ in range(6)
            )
            self.last = nn.Sequential(nn.Conv2d(width, 12, 3, 1, 1), nn.PixelShuffle(2))

        def forward(self, x):
            x = self.first(x)
            for block in self.body:
                x = x + 0.1 * block(x)
            return self.last(x)

    model = Enlarger().to(D)
    eye = nn.Sequential(nn.Conv2d(3, 60, 3, 1, 1), nn.ReLU(), nn.Conv2d(60, 90, 3, 2, 1), nn.ReLU())
    eye = eye.half().to(D).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.9, 0.99))
    for _ in range(3):
        large = give(torch.rand(9, 3, 112, 112).to(D))
        small = give(F.avg_pool2d(large, 2))
        made = model(small)
        loss = F.l1_loss(made, large) + 0.1 * F.mse_loss(eye(made.half()), eye(large.half()))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        model(give(torch.rand(1, 3, 300, 400).to(D)))


@held_again
def recommended():
    users, items = nn.Embedding(60000, 90, sparse=True).to(D), nn.Embedding(25000, 90, sparse=True).to(D)
    tower = nn.Sequential(nn.Linear(180, 500), nn.ReLU(), nn.Dropout(0.2), nn.Linear(500, 1)).to(D)
    sparse = torch.optim.SparseAdam([*users.parameters(), *items.parameters()])
    dense = torch.optim.Adagrad(tower.parameters())
    for _ in range(4):
        u, i = (give(torch.randint(0, n, (9000,)).to(D)) for n in (60000, 25000))
        y = give(torch.rand(9000).to(D))
        score = tower(torch.cat([users(u), items(i)], 1)).squeeze(1)
        F.binary_cross_entropy_with_logits(score, y).backward()
        for optimizer in (sparse, dense):
            optimizer.step()
            optimizer.zero_grad()


@held_again
def volumes_in_windows():
    def block(i, o):
        return nn.Sequential(nn.Conv3d(i, o, 3, 1, 1), nn.InstanceNorm3d(o), nn.LeakyReLU(0.01, inplace=True))

    model = nn.Sequential(block(1, 20), block(20, 40), nn.MaxPool3d(2), block(40, 40),
                          nn.Upsample(scale_factor=2), block(40, 20), nn.Conv3d(20, 4, 1)).to(D)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.99, nesterov=True, weight_decay=3e-5)
    for _ in range(3):
        x = give(torch.randn(2, 1, 44, 44, 44).to(D))
        y = give(torch.randint(0, 4, (2, 44, 44, 44)).to(D))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 12)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        volume = give(torch.randn(1, 1, 120, 130, 140).to(D))
        sums = mark("other", torch.zeros(1, 4, 120, 130, 140, device=D))
        counts = mark("other", torch.zeros(1, 1, 120, 130, 140, device=D))
        for a in range(0, 77, 38):
            for b in range(0, 87, 43):
                part = model(volume[:, :, a : a + 44, b : b + 44, :44])
                sums[:, :, a : a + 44, b : b + 44, :44] += part
                counts[:, :, a : a + 44, b : b + 44, :44] += 1
        sums / counts.clamp(min=1)


@held_again
def functional_adam():
    """Parameters, moments and gradients in dictionaries."""
    generator = torch.Generator().manual_seed(1)
    widths = [600, 1700, 1700, 1300, 50]
    weights = {}
    for at, (i, o) in enumerate(zip(widths, widths[1:])):
        weights[f"w{at}"] = (torch.randn(i, o, generator=generator) * i**-0.5).to(D).requires_grad_()
        weights[f"b{at}"] = torch.zeros(o, device=D).requires_grad_()
    mark("parameters", weights)
    first = mark("optimizer-state", {name: torch.zeros_like(w) for name, w in weights.items()})
    second = mark("optimizer-state", {name: torch.zeros_like(w) for name, w in weights.items()})

    def loss_of(x, y):
        for at in range(4):
            x = x @ weights[f"w{at}"] + weights[f"b{at}"]
            x = F.silu(x) if at < 3 else x
        return F.mse_loss(x, y)

    for _ in range(4):
        x, y = torch.randn(5000, 600, device=D), torch.randn(5000, 50, device=D)
        give(x, y)
        gradients = torch.autograd.grad(loss_of(x, y), list(weights.values()))
        give(list(gradients), kind="gradients")
        with torch.no_grad():
            for (name, w), g in zip(weights.items(), gradients):
                first[name].lerp_(g, 0.1)
                second[name].lerp_(g * g, 0.001)
                w -= 1e-3 * first[name] / (second[name].sqrt() + 1e-8)


if __name__ == "__main__":
    with contextlib.suppress(SystemExit):
        PROGRAMS[sys.argv[1]]()
