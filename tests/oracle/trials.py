"""Programs as users write them, that run out of memory or nearly, for `statements.py`.

A comment `# KIND: CODE` behind a line is a remedy: a rerun with KIND in its edits has CODE in the place of the line.
`half` halves the batch, `free` frees what is kept, `detach` keeps a value instead of a graph, `no_grad` runs a loop
without graphs, `host` keeps something on the host, `less` requests less at once. A line `# kept` allocates memory that
a leak keeps; `# larger` makes the input that grows.
"""

# fmt: off
import collections
import copy
import io
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

TRIALS = {}
HELD = []  # allocated bytes at the start of each iteration


def trial(*mib, **facts):
    """Devices of so many MiB; `leaks`: a step keeps memory for good; `grows`: inputs become larger;
    `bounded`: it keeps memory up to a limit; `copies`: other tensors of the program are weights."""

    def register(function):
        TRIALS[function.__name__] = (function, mib, facts)
        return function

    return register


def main(name):
    TRIALS[name][0]()


def track(iterable):
    """A progress bar."""
    for item in iterable:
        HELD.append(torch.cuda.memory_allocated())
        yield item
    HELD.append(torch.cuda.memory_allocated())


# What users import


@dataclass
class Config:
    vocab: int = 32000
    hidden: int = 768
    layers: int = 6
    heads: int = 12
    ffn: int = 3072
    dropout: float = 0.1
    checkpointing: bool = False


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


class DynamicCache:
    def __init__(self):
        self.keys, self.values = [], []

    def update(self, k, v, layer):
        if layer == len(self.keys):
            self.keys.append(k)
            self.values.append(v)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], k], dim=-2)  # kept
            self.values[layer] = torch.cat([self.values[layer], v], dim=-2)  # kept
        return self.keys[layer], self.values[layer]

    def reorder(self, beams):
        for layer in range(len(self.keys)):
            self.keys[layer] = self.keys[layer].index_select(0, beams)  # kept
            self.values[layer] = self.values[layer].index_select(0, beams)  # kept


class SelfAttention(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        self.config, self.index = config, index
        self.q_proj = nn.Linear(config.hidden, config.hidden, bias=False)
        self.k_proj = nn.Linear(config.hidden, config.hidden, bias=False)
        self.v_proj = nn.Linear(config.hidden, config.hidden, bias=False)
        self.o_proj = nn.Linear(config.hidden, config.hidden, bias=False)

    def forward(self, x, past=None, eager=False):
        b, t, d = x.shape
        shape = (b, t, self.config.heads, d // self.config.heads)
        q = self.q_proj(x).view(shape).transpose(1, 2)
        k = self.k_proj(x).view(shape).transpose(1, 2)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        if past is not None:
            k, v = past.update(k, v, self.index)
        if eager:
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            out = F.dropout(scores.softmax(-1), self.config.dropout, self.training) @ v
        else:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.o_proj(out.transpose(1, 2).reshape(b, t, d))


class GatedMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.ffn, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.ffn, bias=False)
        self.down_proj = nn.Linear(config.ffn, config.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        self.self_attn = SelfAttention(config, index)
        self.mlp = GatedMLP(config)
        self.input_layernorm = RMSNorm(config.hidden)
        self.post_attention_layernorm = RMSNorm(config.hidden)

    def forward(self, x, past=None, eager=False):
        x = x + self.self_attn(self.input_layernorm(x), past, eager)
        return x + self.mlp(self.post_attention_layernorm(x))


@dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor = None
    hidden: torch.Tensor = None


class CausalLM(nn.Module):
    def __init__(self, config, eager=False):
        super().__init__()
        self.config, self.eager = config, eager
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList(DecoderLayer(config, index) for index in range(config.layers))
        self.norm = RMSNorm(config.hidden)
        self.lm_head = nn.Linear(config.hidden, config.vocab, bias=False)

    def forward(self, input_ids, labels=None, past=None):
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            if self.config.checkpointing and self.training:
                x = checkpoint(layer, x, past, self.eager, use_reentrant=False)
            else:
                x = layer(x, past, self.eager)
        x = self.norm(x)
        logits = self.lm_head(x)
        loss = None
        if labels is not None:
            upcast = logits[:, :-1].float()
            loss = F.cross_entropy(upcast.reshape(-1, upcast.shape[-1]), labels[:, 1:].reshape(-1))
        return Output(logits, loss, x)

    @torch.no_grad()
    def generate(self, input_ids, max_new_tokens, past=None):
        past = past or DynamicCache()
        tokens = input_ids
        for _ in track(range(max_new_tokens)):
            step = tokens if not past.keys else tokens[:, -1:]
            logits = self(step, past=past).logits[:, -1]
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=-1)
        return tokens


class TextDataset(Dataset):
    """Token ids on the host, of `lengths` in turn."""

    def __init__(self, count, lengths, vocab=32000):
        self.count, self.lengths, self.vocab = count, lengths, vocab

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.zeros(self.lengths[index % len(self.lengths)], dtype=torch.long)


def pad_batch(rows):
    longest = max(len(row) for row in rows)
    return torch.stack([F.pad(row, (0, longest - len(row))) for row in rows])


class Images(Dataset):
    def __init__(self, count, size=64, channels=3):
        self.count, self.shape = count, (channels, size, size)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.zeros(self.shape), index % 10


class ConvBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride) if cin != cout or stride > 1 else nn.Identity()

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.skip(x))


class ConvNet(nn.Module):
    def __init__(self, widths=(64, 128, 256, 512), classes=10, cin=3):
        super().__init__()
        self.stem = nn.Conv2d(cin, widths[0], 3, 1, 1)
        pairs = zip((widths[0], *widths), widths)
        self.stages = nn.ModuleList(
            nn.Sequential(ConvBlock(a, b, 1 if i == 0 else 2), ConvBlock(b, b)) for i, (a, b) in enumerate(pairs)
        )
        self.fc = nn.Linear(widths[-1], classes)

    def features(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return x.mean((2, 3))

    def forward(self, x):
        return self.fc(self.features(x))


class MLP(nn.Sequential):
    def __init__(self, *widths):
        layers = []
        for a, b in zip(widths, widths[1:]):
            layers += [nn.Linear(a, b), nn.ReLU()]
        super().__init__(*layers[:-1])


class Trainer:
    """One that is called by most of the programs below as users call theirs."""

    def __init__(self, model, optimizer, accumulate=1, clip=1.0):
        self.model, self.optimizer, self.accumulate, self.clip = model, optimizer, accumulate, clip
        self.history = []

    def compute_loss(self, batch):
        return self.model(batch, labels=batch)

    def training_step(self, batch):
        output = self.compute_loss(batch)
        (output.loss / self.accumulate).backward()
        return output

    def optimizer_step(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def log(self, output):
        self.history.append(output.loss.detach())

    def train(self, loader, steps):
        self.model.train()
        for index, batch in track(zip(range(steps), loader)):
            output = self.training_step(batch.to("cuda"))
            self.log(output)
            if (index + 1) % self.accumulate == 0:
                self.optimizer_step()


# Training that does not fit


@trial(6000)
def finetune_gpt():
    """The logits of a large vocabulary, in the first steps."""
    config = Config(vocab=50304, layers=8)
    model = CausalLM(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    batch_size = 8  # half: batch_size = 4
    loader = DataLoader(TextDataset(4000, [768]), batch_size)
    Trainer(model, optimizer, accumulate=4).train(loader, 40)


@trial(2300)
def resnet_sgd():
    """The first backward pass of a convolutional net."""
    model = ConvNet().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()
    loader = DataLoader(Images(2000, 96), batch_size=64)  # half: loader = DataLoader(Images(2000, 96), batch_size=32)
    for images, labels in track(loader):
        images, labels = images.cuda(), labels.cuda()
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()


@trial(1800)
def vit_amp():
    """Autocast to float16 with a scaler."""
    config = Config(vocab=256, hidden=512, layers=8, heads=8, ffn=2048)
    model = CausalLM(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    batch_size = 32  # half: batch_size = 16
    for batch in track(DataLoader(TextDataset(1600, [257], 256), batch_size)):
        batch = batch.cuda()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch, labels=batch).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)


class LoraLinear(nn.Module):
    def __init__(self, base, rank=16):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False, device="cuda")
        self.up = nn.Linear(rank, base.out_features, bias=False, device="cuda")

    def forward(self, x):
        return self.base(x) + self.up(self.down(x.float())).to(x.dtype)


def add_adapters(model):
    for layer in model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, LoraLinear(getattr(layer.self_attn, name)))


@trial(4200)
def lora_bf16():
    """Adapters on a frozen model in bfloat16; the forward pass of the second step does not fit."""
    with torch.device("cuda"):
        model = CausalLM(Config(hidden=1536, layers=16, heads=16, ffn=4096)).bfloat16()
    model.requires_grad_(False)
    add_adapters(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    loader = DataLoader(TextDataset(400, [512]), batch_size=4)  # half: loader = DataLoader(TextDataset(400, [512]), batch_size=2)
    for batch in track(loader):
        batch = batch.cuda()
        output = model(batch, labels=batch)
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class Upsampler(nn.Module):
    def __init__(self, z=128, width=256):
        super().__init__()
        self.first = nn.ConvTranspose2d(z, width, 8)
        self.layers = nn.ModuleList(nn.ConvTranspose2d(width >> i, width >> (i + 1), 4, 2, 1) for i in range(3))
        self.last = nn.Conv2d(width >> 3, 3, 3, 1, 1)

    def forward(self, z):
        x = F.relu(self.first(z))
        for layer in self.layers:
            x = F.relu(layer(x))
        return torch.tanh(self.last(x))


@trial(1500)
def dcgan():
    """The generator's step goes through both nets."""
    generator, discriminator = Upsampler().cuda(), ConvNet((32, 64, 128, 256), 1).cuda()
    opt_g = torch.optim.Adam(generator.parameters(), betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(discriminator.parameters(), betas=(0.5, 0.999))
    batch_size = 96  # half: batch_size = 48
    for real, _ in track(DataLoader(Images(2880, 64), batch_size)):
        real = real.cuda()
        noise = torch.randn(real.shape[0], 128, 1, 1, device="cuda")
        fake = generator(noise)
        d_loss = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake.detach())).mean()
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
        g_loss = F.softplus(-discriminator(fake)).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()


@trial(1150, 1300)
def diffusion_ema():
    """A copy for the average, and the state of the first step."""
    model = MLP(1024, 4096, 4096, 4096, 4096, 1024).cuda()
    ema = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in track(range(20)):
        x0 = torch.randn(512, 1024, device="cuda")  # half: x0 = torch.randn(256, 1024, device="cuda")
        noise = torch.randn_like(x0)
        t = torch.rand(x0.shape[0], 1, device="cuda")
        loss = F.mse_loss(model(x0 * t + noise * (1 - t)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for average, p in zip(ema.parameters(), model.parameters()):
                average.lerp_(p, 0.001)


@trial(3300, 4200, grows=True)
def translation_buckets():
    """Batches of sorted lengths: each bucket is longer than the one before."""
    model = CausalLM(Config(vocab=16000, hidden=512, layers=6, heads=8, ffn=2048), eager=True).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    lengths = [64 + 8 * (i // 16) for i in range(1600)]
    loader = DataLoader(TextDataset(1600, lengths), batch_size=16, collate_fn=pad_batch)  # half: loader = DataLoader(TextDataset(1600, lengths), batch_size=8, collate_fn=pad_batch)
    for batch in track(loader):
        batch = batch.cuda()  # larger
        loss = model(batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@trial(2300)
def clip_contrastive():
    """Two towers; the table of similarities does not fit."""
    image_tower, text_tower = MLP(2048, 1024, 512).cuda(), MLP(768, 1024, 512).cuda()
    params = [*image_tower.parameters(), *text_tower.parameters()]
    optimizer = torch.optim.AdamW(params)
    for _ in track(range(10)):
        n = 12288  # half: n = 6144
        image = F.normalize(image_tower(torch.randn(n, 2048, device="cuda")), dim=-1)
        text = F.normalize(text_tower(torch.randn(n, 768, device="cuda")), dim=-1)
        logits = image @ text.t() / 0.07
        labels = torch.arange(n, device="cuda")
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@trial(1700)
def distillation():
    """A teacher that is run with its graph."""
    teacher = CausalLM(Config(vocab=8000, hidden=768, layers=8, heads=12, ffn=2048)).cuda().eval()
    student = CausalLM(Config(vocab=8000, hidden=384, layers=4, heads=6, ffn=1024)).cuda()
    optimizer = torch.optim.AdamW(student.parameters())

    def distill(batch):
        soft = teacher(batch).logits  # no_grad: soft = torch.no_grad()(teacher)(batch).logits
        output = student(batch, labels=batch)
        kl = F.kl_div(output.logits.log_softmax(-1), soft.detach().softmax(-1), reduction="batchmean")
        return output.loss + kl

    for batch in track(DataLoader(TextDataset(640, [256]), batch_size=16)):  # half: for batch in track(DataLoader(TextDataset(640, [256]), batch_size=8)):
        loss = distill(batch.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@trial(1500)
def wgan_gp():
    """A gradient penalty: the gradient of a gradient."""
    critic = ConvNet((32, 64, 128), 1).cuda()
    optimizer = torch.optim.Adam(critic.parameters(), 1e-4)
    batch_size = 64  # half: batch_size = 32

    def gradient_penalty(x):
        x.requires_grad_()
        scores = critic(x)
        (grad,) = torch.autograd.grad(scores.sum(), x, create_graph=True)
        return ((grad.flatten(1).norm(dim=1) - 1) ** 2).mean()

    for real, _ in track(DataLoader(Images(640, 64), batch_size)):
        loss = critic(real.cuda()).mean() + 10 * gradient_penalty(torch.rand(batch_size, 3, 64, 64, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@trial(2600)
def llama_checkpointed():
    """Layers are checkpointed already; the logits are what is large."""
    model = CausalLM(Config(vocab=64000, hidden=768, layers=6, checkpointing=True)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TextDataset(64, [1024]), batch_size=4)  # half: loader = DataLoader(TextDataset(64, [1024]), batch_size=2)
    Trainer(model, optimizer).train(loader, 12)


# Optimizers


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, beta=0.9):
        super().__init__(params, dict(lr=lr, beta=beta))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "exp_avg" not in state:
                    state["exp_avg"] = torch.zeros_like(p)
                update = state["exp_avg"].mul(group["beta"]).add(p.grad, alpha=1 - group["beta"]).sign_()
                p.add_(update, alpha=-group["lr"])
                state["exp_avg"].lerp_(p.grad, 0.01)


@trial(1600)
def lion_first_step():
    """State is made lazily, parameter by parameter."""
    with torch.device("cuda"):
        model = MLP(2048, 8192, 8192, 2048)
    optimizer = Lion(model.parameters())
    for _ in track(range(8)):
        loss = (model(torch.randn(2048, 2048, device="cuda")).square().mean())  # half: loss = model(torch.randn(1024, 2048, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def newton_schulz(g, steps=5):
    x = g.bfloat16()
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(p.grad)
                buffer = state["momentum_buffer"]
                buffer.mul_(group["momentum"]).add_(p.grad)
                p.add_(newton_schulz(p.grad.add(buffer, alpha=group["momentum"])), alpha=-group["lr"])


@trial(1000)
def muon_step():
    """The iteration of its step needs temporaries of the largest matrix."""
    with torch.device("cuda"):
        model = MLP(1024, 6144, 6144, 1024)
    optimizer = Muon([p for p in model.parameters() if p.dim() == 2])
    for _ in track(range(8)):
        model.zero_grad()
        model(torch.randn(1024, 1024, device="cuda")).square().mean().backward()  # half: model(torch.randn(512, 1024, device="cuda")).square().mean().backward()
        optimizer.step()


@trial(2250)
def adam_foreach():
    """The temporaries of all parameters at once."""
    with torch.device("cuda"):
        model = CausalLM(Config(vocab=32000, hidden=1024, layers=8, heads=16, ffn=2816))
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-4)
    loader = DataLoader(TextDataset(64, [128]), batch_size=2)  # half: loader = DataLoader(TextDataset(64, [128]), batch_size=1)
    Trainer(model, optimizer).train(loader, 12)


@trial(900, leaks=True)
def anderson_history():
    """A fixed-point solver keeps its last 60 iterates and residuals."""
    layer = MLP(2048, 2048, 2048).cuda().requires_grad_(False)
    x = torch.randn(1024, 2048, device="cuda")
    iterates, residuals = (collections.deque(maxlen=60), collections.deque(maxlen=60))  # free: iterates, residuals = collections.deque(maxlen=4), collections.deque(maxlen=4)
    for _ in track(range(200)):
        fx = layer(x)  # kept
        iterates.append(fx)
        residuals.append(fx - x)  # kept
        if len(residuals) > 2:
            basis = torch.stack([(residuals[-1] - r).flatten() for r in list(residuals)[-3:-1]])
            gamma = torch.linalg.lstsq(
                basis @ basis.t() + torch.eye(2, device="cuda"), basis @ residuals[-1].flatten()
            ).solution
            x = fx - gamma[0] * (iterates[-1] - iterates[-2])
        else:
            x = fx


# Real leaks


@trial(2400, leaks=True)
def kept_outputs():
    """A log that keeps the output of each step, with its graph."""
    model = CausalLM(Config(vocab=4096, hidden=384, layers=4, heads=6, ffn=1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    class LoggingTrainer(Trainer):
        def log(self, output):
            self.history.append(output)  # free: pass

    LoggingTrainer(model, optimizer).train(DataLoader(TextDataset(4000, [128]), batch_size=16), 200)


@trial(1400, leaks=True)
def truncated_bptt():
    """A hidden state that is never detached."""
    cell, head = nn.GRUCell(256, 1024).cuda(), nn.Linear(1024, 256).cuda()
    optimizer = torch.optim.RMSprop([*cell.parameters(), *head.parameters()])
    h = torch.zeros(256, 1024, device="cuda")
    for _ in track(range(300)):
        x = torch.randn(256, 256, device="cuda")
        h = cell(x, h)
        loss = F.mse_loss(head(h), x)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)  # free: loss.backward(); h = h.detach()
        optimizer.step()


@trial(1200, leaks=True)
def epoch_loss_of_evaluation():
    """Losses are added up without no_grad."""
    model = ConvNet((32, 64, 128, 256)).cuda().eval()
    criterion = nn.CrossEntropyLoss()

    def evaluate(loader):
        total = 0.0
        for images, labels in track(loader):
            total += criterion(model(images.cuda()), labels.cuda())  # free: total += criterion(model(images.cuda()), labels.cuda()).item() # no_grad: total += torch.no_grad()(model)(images.cuda()).mean()
        return total / len(loader)

    print(evaluate(DataLoader(Images(1600, 48), batch_size=16)))


@trial(1600, leaks=True)
def hooked_activations():
    """Forward hooks that keep what they see."""
    model = ConvNet((32, 64, 128, 256)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    activations = collections.defaultdict(list)

    def save(name):
        def hook(module, inputs, output):
            activations[name].append(output.detach())  # free: pass

        return hook

    for name, module in model.named_children():
        module.register_forward_hook(save(name))
    for stage in model.stages:
        stage.register_forward_hook(save("stage"))
    for images, labels in track(DataLoader(Images(2000, 48), batch_size=32)):
        loss = F.cross_entropy(model(images.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@trial(180, leaks=True)
def replay_memory():
    """An agent's memory of small tensors."""
    policy, target = MLP(4096, 512, 18).cuda(), MLP(4096, 512, 18).cuda()
    optimizer = torch.optim.Adam(policy.parameters())
    memory = []
    state = torch.rand(1, 4096, device="cuda")
    for step in track(range(9000)):
        with torch.no_grad():
            action = policy(state).max(1).indices
        following = torch.rand(1, 4096, device="cuda")  # kept
        reward = torch.zeros(1, device="cuda")  # kept
        memory.append((state, following, reward))  # free: memory = (memory + [(state, following, reward)])[-256:]
        state = following
        if step % 16 == 15:
            batch = memory[-64:]
            states = torch.cat([s for s, _, _ in batch])
            nexts = torch.cat([n for _, n, _ in batch])
            rewards = torch.cat([r for _, _, r in batch])
            with torch.no_grad():
                goal = rewards + 0.99 * target(nexts).max(1).values
            loss = F.smooth_l1_loss(policy(states).max(1).values, goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@trial(2000, leaks=True)
def snapshot_ensemble():
    """A copy of the model each epoch, of four batches."""
    model = ConvNet((64, 128, 256, 512)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(Images(128, 32), batch_size=32)
    ensemble = []
    for epoch in track(range(60)):
        for images, labels in loader:
            loss = F.cross_entropy(model(images.cuda()), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ensemble.append(copy.deepcopy(model))  # free: ensemble = [copy.deepcopy(model)]


@trial(700, leaks=True)
def meta_learning():
    """The adapted weights of each task are kept for the outer loop, which never ends."""
    model = MLP(512, 1024, 1024, 64).cuda()
    names = [name for name, _ in model.named_parameters()]
    outer = []

    def adapt(params):
        for _ in range(2):
            loss = torch.func.functional_call(model, dict(zip(names, params)), torch.randn(64, 512, device="cuda"))
            grads = torch.autograd.grad(loss.square().mean(), params, create_graph=True)
            params = [p - 0.01 * g for p, g in zip(params, grads)]
        return params

    for _ in track(range(80)):
        adapted = adapt(list(model.parameters()))
        query = torch.func.functional_call(model, dict(zip(names, adapted)), torch.randn(64, 512, device="cuda"))
        outer.append(query.square().mean())  # free: query.square().mean().backward(); model.zero_grad()
    torch.stack(outer).mean().backward()


@trial(300, leaks=True)
def confusion_pairs():
    """Metrics of an evaluation: small tensors of each batch, below 1 MiB."""
    model = MLP(1024, 2048, 1000).cuda().eval()

    class Metrics:
        def __init__(self):
            self.scores, self.targets = [], []

        def update(self, scores, target):
            self.scores.append(scores.softmax(-1))  # free: scores.softmax(-1)  # kept
            self.targets.append(target)

    metrics = Metrics()
    with torch.inference_mode():
        for _ in track(range(900)):
            x = torch.randn(96, 1024, device="cuda")
            metrics.update(model(x), torch.zeros(96, dtype=torch.long, device="cuda"))


# Requests that are absurd, or larger than they look


@trial(16000)
def knn_all_pairs():
    """Distances of everything to everything."""
    encoder = ConvNet((32, 64, 128)).cuda().eval()
    features = []
    with torch.no_grad():
        for images, _ in track(DataLoader(Images(6000, 32), batch_size=200)):
            features.append(encoder.features(images.cuda()))
        bank = torch.cat(features).repeat(12, 1)
        distances = torch.cdist(bank, bank)  # less: distances = torch.cdist(bank[:1000], bank)
        return distances.topk(5, largest=False)


@trial(9000)
def one_hot_targets():
    """One-hot targets of a language model, as 64-bit integers."""
    model = CausalLM(Config(vocab=50000, hidden=256, layers=2, heads=4, ffn=512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in track(DataLoader(TextDataset(64, [1024]), batch_size=8)):  # half: for batch in track(DataLoader(TextDataset(64, [1024]), batch_size=4)):
        batch = batch.cuda()
        logits = model(batch).logits
        target = F.one_hot(batch, 50000)
        loss = (-(target * logits.log_softmax(-1)).sum() / batch.numel())  # less: loss = F.cross_entropy(logits.transpose(1, 2), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@trial(8000)
def causal_mask():
    """A mask of every position to every other one."""
    model = CausalLM(Config(vocab=8000, hidden=512, layers=4, heads=8, ffn=1024)).cuda().eval()
    book = torch.zeros(1, 60000, dtype=torch.long, device="cuda")
    with torch.no_grad():
        hidden = model.embed_tokens(book)
        mask = torch.ones(book.shape[1], book.shape[1], device="cuda").tril()  # less: mask = torch.ones(512, 512, device="cuda").tril()
        print(mask.shape, hidden.shape)


@trial(2000)
def static_cache_too_large():
    """A cache for the longest context, when the model is built."""
    with torch.device("cuda"):
        model = CausalLM(Config(vocab=32000, hidden=1024, layers=12, heads=16, ffn=2816)).half()
    max_positions = 8192  # less: max_positions = 1024
    caches = []
    for _ in model.layers:
        caches.append(torch.zeros(2, 8, 16, max_positions, 64, dtype=torch.float16, device="cuda"))
    return caches


# Checkpoints


@trial(2300, copies=True)
def resume_from_checkpoint():
    """torch.load puts the checkpoint where it was saved from."""
    with torch.device("cuda"):
        model = CausalLM(Config(vocab=32000, hidden=1024, layers=10, heads=16, ffn=2816))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    file = io.BytesIO()
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "ema": copy.deepcopy(model.state_dict())},
        file,
    )
    file.seek(0)
    state = torch.load(file)  # host: state = torch.load(file, map_location="cpu")
    model.load_state_dict(state["model"])
    Trainer(model, optimizer).train(DataLoader(TextDataset(64, [128]), batch_size=2), 4)


@trial(2600, copies=True)
def state_dict_kept():
    """Pretrained weights stay beside the model while it trains."""
    with torch.device("cuda"):
        model = CausalLM(Config(vocab=32000, hidden=1024, layers=8, heads=16, ffn=2816))
    pretrained = {name: torch.empty_like(value) for name, value in model.state_dict().items()}  # host: pretrained = {name: torch.empty(value.shape) for name, value in model.state_dict().items()}
    model.load_state_dict(pretrained)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    loader = DataLoader(TextDataset(64, [256]), batch_size=2)  # half: loader = DataLoader(TextDataset(64, [256]), batch_size=1)
    Trainer(model, optimizer).train(loader, 8)


# Generation and serving


@trial(600, 900, leaks=True)
def generate_long():
    """A cache of keys and values that grows with each token."""
    model = CausalLM(Config(vocab=32000, hidden=768, layers=8, heads=12, ffn=2048)).cuda().half().eval()
    prompts = torch.zeros(16, 384, dtype=torch.long, device="cuda")
    model.generate(prompts, 700)


@trial(450, leaks=True)
def beam_search():
    """Beams are reordered after each token."""
    model = CausalLM(Config(vocab=8000, hidden=512, layers=6, heads=8, ffn=1024)).cuda().eval()
    past, tokens = DynamicCache(), torch.zeros(40, 64, dtype=torch.long, device="cuda")
    with torch.inference_mode():
        for _ in track(range(400)):
            logits = model(tokens if not past.keys else tokens[:, -1:], past=past).logits[:, -1]
            _scores, words = logits.log_softmax(-1).topk(10, -1)
            order = torch.arange(40, device="cuda")
            past.reorder(order)
            tokens = torch.cat([tokens[order], words[:, :1]], -1)


@trial(520, bounded=True)
@torch.inference_mode()
def embedding_service():
    """Requests of any length; an LRU cache of 64 answers."""
    model = CausalLM(Config(vocab=16000, hidden=512, layers=4, heads=8, ffn=2048)).cuda().eval()
    answers = collections.OrderedDict()
    for number in track(range(300)):
        length = 64 + (number * 7919) % 700
        ids = torch.zeros(4, length, dtype=torch.long, device="cuda")
        answers[number] = model(ids).hidden.clone()  # kept
        if len(answers) > 64:
            answers.popitem(last=False)


@trial(1500)
def predict_with_graph():
    """A large batch in evaluation, without no_grad; nothing is kept from batch to batch."""
    model = CausalLM(Config(vocab=1000, hidden=512, layers=12, heads=8, ffn=2048)).cuda().eval()
    predictions = []
    for batch in track(DataLoader(TextDataset(640, [512]), batch_size=16)):  # half: for batch in track(DataLoader(TextDataset(640, [512]), batch_size=8)):
        output = model(batch.cuda())  # no_grad: output = torch.no_grad()(model)(batch.cuda())
        predictions.append(output.logits.argmax(-1).cpu())


@trial(1400)
@torch.no_grad()
def embed_corpus():
    """Documents sorted by length: the last batch is the largest."""
    model = CausalLM(Config(vocab=16000, hidden=768, layers=6, heads=12, ffn=3072), eager=True).cuda().eval()
    lengths = sorted(60 + (i * 7919) % 220 for i in range(640))[:-8] + [1400] * 8
    vectors = []
    loader = DataLoader(TextDataset(640, lengths), batch_size=8, collate_fn=pad_batch)  # half: loader = DataLoader(TextDataset(640, lengths), batch_size=4, collate_fn=pad_batch)
    for batch in track(loader):
        hidden = model(batch.cuda()).hidden  # larger
        vectors.append(hidden.mean(1).cpu())


@trial(600, leaks=True)
@torch.no_grad()
def chat_history():
    """The embeddings of a conversation, one turn longer each time."""
    encoder = MLP(2048, 2048, 2048).cuda()
    history = torch.zeros(1, 2048, device="cuda")
    for turn in track(range(200)):
        embedded = encoder(torch.randn(300, 2048, device="cuda"))
        history = torch.cat([history, embedded])  # kept # free: history = torch.cat([history, embedded])[-3000:]
        (history @ history.t().mean(1, keepdim=True)).sum()


# Inputs that grow, streams, devices


@trial(2000, grows=True)
def progressive_resizing():
    """Images become larger every other epoch."""
    model = ConvNet((48, 96, 192)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for size in (48, 64, 96, 128, 160):
        for images, labels in track(DataLoader(Images(160, size), batch_size=32)):  # half: for images, labels in track(DataLoader(Images(160, size), batch_size=16)):
            images = images.cuda()  # larger
            loss = F.cross_entropy(model(images), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@trial(1000)
def prefetcher():
    """Batches are copied ahead on a stream of their own."""
    model = ConvNet((64, 128, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    side = torch.cuda.Stream()
    loader = DataLoader(Images(1280, 64), batch_size=64)  # half: loader = DataLoader(Images(1280, 64), batch_size=32)
    ready = collections.deque()
    for images, labels in track(loader):
        with torch.cuda.stream(side):
            ready.append((images.cuda(non_blocking=True), labels.cuda(non_blocking=True)))
        if len(ready) < 4:
            continue
        torch.cuda.current_stream().wait_stream(side)
        images, labels = ready.popleft()
        images.record_stream(torch.cuda.current_stream())
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@trial(2350)
def gnn_full_batch():
    """A graph at once: messages along every edge."""
    nodes, edges, width = 40000, 400000, 256
    source = torch.zeros(edges, dtype=torch.long, device="cuda")
    target = torch.zeros(edges, dtype=torch.long, device="cuda")
    x = torch.randn(nodes, width, device="cuda")
    layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3)).cuda()
    optimizer = torch.optim.Adam(layers.parameters())

    def propagate(h, layer):
        messages = layer(h).index_select(0, source)
        weights = torch.sigmoid(messages.mean(-1, keepdim=True))
        return F.relu(torch.zeros_like(h).index_add(0, target, weights * messages))

    for _ in track(range(20)):
        h = x
        for layer in layers:
            h = propagate(h, layer)
        loss = h.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# No failure


@trial(24000)
def trains_well():
    """An ordinary training run."""
    model = CausalLM(Config(vocab=8000, hidden=512, layers=4, heads=8, ffn=1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    Trainer(model, optimizer, accumulate=2).train(DataLoader(TextDataset(320, [256]), batch_size=8), 20)


@trial(24000)
def evaluates_with_graph():
    """An evaluation without no_grad whose outputs are only used for a number."""
    model = ConvNet((32, 64, 128)).cuda().eval()
    correct = 0
    for images, labels in track(DataLoader(Images(640, 64), batch_size=64)):
        output = model(images.cuda())  # no_grad: output = torch.no_grad()(model)(images.cuda())
        correct += (output.argmax(-1) == labels.cuda()).sum().item()


@trial(24000, leaks=True)
def slow_leak():
    """A leak that does not fail yet."""
    model = MLP(1024, 2048, 1024).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    gradients = []
    for _ in track(range(40)):
        model(torch.randn(256, 1024, device="cuda")).square().mean().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])  # free: pass  # kept
        optimizer.step()
        optimizer.zero_grad()
