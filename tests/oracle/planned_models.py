"""A training job with a batch size: `planned_models.py MODEL --batch N [--checkpoint]`, for planned.py.

--checkpoint: activation checkpointing of the repeated module.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

arguments = argparse.ArgumentParser()
arguments.add_argument("model")
arguments.add_argument("--batch", type=int, required=True)
arguments.add_argument("--checkpoint", action="store_true")
arguments.add_argument("--steps", type=int, default=3)
args = arguments.parse_args()


def run(module, *inputs):
    return checkpoint(module, *inputs, use_reentrant=False) if args.checkpoint else module(*inputs)


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        shape = (x.shape[0], x.shape[1], self.heads, -1)
        q, k, v = (part.reshape(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """As nanoGPT: 12 layers of 768."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(50304, 768), nn.Embedding(256, 768)
        self.blocks = nn.ModuleList(Block(768, 12, True) for _ in range(12))
        self.norm, self.head = nn.LayerNorm(768), nn.Linear(768, 50304, bias=False)

    def loss(self, batch):
        tokens = torch.zeros(batch, 256, dtype=torch.long, device="cuda")
        x = self.tokens(tokens) + self.positions(torch.arange(256, device="cuda"))
        for block in self.blocks:
            x = run(block, x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), tokens.flatten())


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.positions = nn.Conv2d(3, 768, 16, 16), nn.Parameter(torch.zeros(1, 196, 768))
        self.blocks = nn.ModuleList(Block(768, 12, False) for _ in range(12))
        self.norm, self.head = nn.LayerNorm(768), nn.Linear(768, 1000)

    def loss(self, batch):
        images = torch.zeros(batch, 3, 224, 224, device="cuda")
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = run(block, x)
        return functional.cross_entropy(
            self.head(self.norm(x).mean(1)), torch.zeros(batch, dtype=torch.long, device="cuda")
        )


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        after = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(before, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, after, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut = None
        if stride > 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        return functional.relu(self.body(x) + (x if self.shortcut is None else self.shortcut(x)), inplace=True)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        blocks, before = [], 64
        for width, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
            for index in range(count):
                blocks.append(Bottleneck(before, width, 2 if index == 0 and width > 64 else 1))
                before = 4 * width
        self.blocks, self.head = nn.ModuleList(blocks), nn.Linear(2048, 1000)

    def loss(self, batch):
        x = self.stem(torch.zeros(batch, 3, 224, 224, device="cuda"))
        for block in self.blocks:
            x = run(block, x)
        return functional.cross_entropy(self.head(x.mean((2, 3))), torch.zeros(batch, dtype=torch.long, device="cuda"))


class Residual(nn.Module):
    """A residual block of convolutions that adds the embedded time step."""

    def __init__(self, before, after, width=512):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, before), nn.Conv2d(before, after, 3, padding=1)
        self.time = nn.Linear(width, after)
        self.norm2, self.conv2 = nn.GroupNorm(32, after), nn.Conv2d(after, after, 3, padding=1)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x, time):
        h = self.conv1(functional.silu(self.norm1(x)))
        h = h + self.time(functional.silu(time))[:, :, None, None]
        return self.conv2(functional.silu(self.norm2(h))) + self.skip(x)


class ImageAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(32, width), Attention(width, 4, False)

    def forward(self, x):
        y = self.attention(self.norm(x).flatten(2).transpose(1, 2))
        return x + y.transpose(1, 2).reshape(x.shape)


class UNet(nn.Module):
    """As the model of a small diffusion: two residual blocks a level, attention at 16 x 16, skip connections."""

    def __init__(self):
        super().__init__()
        widths = (128, 256, 256)
        self.time = nn.Sequential(nn.Linear(128, 512), nn.SiLU(), nn.Linear(512, 512))
        self.first = nn.Conv2d(3, 128, 3, padding=1)
        self.downs, self.ups, self.attentions = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        skips, width = [], 128
        for level in widths:
            for _ in range(2):
                self.downs.append(Residual(width, level))
                width = level
                skips.append(width)
        self.middle = nn.ModuleList((Residual(width, width), ImageAttention(width), Residual(width, width)))
        for level in reversed(widths):
            for _ in range(2):
                self.ups.append(Residual(width + skips.pop(), level))
                width = level
        self.attentions.extend(ImageAttention(256) for _ in range(4))
        self.norm, self.last = nn.GroupNorm(32, 128), nn.Conv2d(128, 3, 3, padding=1)

    def embed(self, steps):
        frequencies = torch.exp(torch.arange(64, device="cuda") * -0.1464)
        angles = steps[:, None].float() * frequencies
        return self.time(torch.cat([angles.sin(), angles.cos()], 1))

    def loss(self, batch):
        images = torch.zeros(batch, 3, 64, 64, device="cuda")
        noise, steps = torch.randn_like(images), torch.zeros(batch, dtype=torch.long, device="cuda")
        time = self.embed(steps)
        x = self.first(images + noise)
        skips, attentions = [], iter(self.attentions)
        for index, down in enumerate(self.downs):
            x = run(down, x, time)
            if x.shape[-1] == 16:
                x = run(next(attentions), x)
            skips.append(x)
            if index % 2 and index < 5:
                x = functional.avg_pool2d(x, 2)
        first, attention, second = self.middle
        x = run(second, run(attention, run(first, x, time)), time)
        for index, up in enumerate(self.ups):
            x = run(up, torch.cat([x, skips.pop()], 1), time)
            if x.shape[-1] == 16:
                x = run(next(attentions), x)
            if index % 2 and index < 5:
                x = functional.interpolate(x, scale_factor=2)
        return functional.mse_loss(self.last(functional.silu(self.norm(x))), noise)


class Llama(nn.Module):
    """The Llama of transformers with random weights; `lora` trains only low-rank additions to its layers."""

    def __init__(self, lora=False):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            hidden_size=1024,
            intermediate_size=2816,
            num_hidden_layers=12,
            num_attention_heads=16,
            num_key_value_heads=8,
            vocab_size=32000,
        )
        self.model = LlamaForCausalLM(config)
        if args.checkpoint:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        if lora:
            self.model.requires_grad_(False)
            for layer in self.model.model.layers:
                for name in ("q_proj", "v_proj"):
                    setattr(layer.self_attn, name, Lora(getattr(layer.self_attn, name)))
            if args.checkpoint:
                self.model.enable_input_require_grads()

    def loss(self, batch):
        tokens = torch.zeros(batch, 512, dtype=torch.long, device="cuda")
        return self.model(input_ids=tokens, labels=tokens).loss


class Lora(nn.Module):
    def __init__(self, base, rank=16):
        super().__init__()
        self.base = base
        self.down, self.up = (
            nn.Linear(base.in_features, rank, bias=False),
            nn.Linear(rank, base.out_features, bias=False),
        )

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


MODELS = {"gpt": Gpt, "resnet50": ResNet50, "vit": Vit, "unet": UNet, "llama": Llama, "lora": lambda: Llama(lora=True)}
model = MODELS[args.model]().cuda().train()
parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(parameters, lr=1e-4)
for _ in range(args.steps):
    model.loss(args.batch).backward()
    optimizer.step()
    optimizer.zero_grad()
