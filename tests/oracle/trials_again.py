"""More programs for `statements.py`, written after the analysis was mended with those of trials.py.

The comments mean the same as there.
"""

# fmt: off
import collections
import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from trials import MLP, TRIALS, CausalLM, Config, ConvBlock, Images, TextDataset, main, pad_batch, track, trial  # noqa: F401

LENGTHS = [40 + (i * 7919 + i * i * 31) % 216 for i in range(4096)]


class Encoder(nn.Module):
    """PyTorch's own transformer with a head for each token."""

    def __init__(self, d=384, layers=6, labels=12):
        super().__init__()
        self.embed = nn.Embedding(20000, d)
        layer = nn.TransformerEncoderLayer(d, 8, 4 * d, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.classifier = nn.Linear(d, labels)

    def forward(self, ids):
        return self.classifier(self.encoder(self.embed(ids)))


@trial(1450, 1700)
def token_classification():
    """Lengths at random, four batches for each step."""
    model = Encoder().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    loader = DataLoader(TextDataset(4096, LENGTHS), batch_size=24, collate_fn=pad_batch)  # half: loader = DataLoader(TextDataset(4096, LENGTHS), batch_size=12, collate_fn=pad_batch)
    model.train()
    for index, batch in enumerate(track(loader)):
        ids = batch.to("cuda")  # larger
        logits = model(ids)
        loss = F.cross_entropy(logits.view(-1, 12), torch.zeros_like(ids).view(-1))
        (loss / 4).backward()
        if index % 4 == 3:
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()


class UNet(nn.Module):
    def __init__(self, widths=(32, 64, 128, 256)):
        super().__init__()
        self.down = nn.ModuleList(ConvBlock(a, b) for a, b in zip((3, *widths), widths))
        self.up = nn.ModuleList(ConvBlock(a + b, b) for a, b in zip(widths[:0:-1], widths[-2::-1]))
        self.head = nn.Conv2d(widths[0], 5, 1)

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = skips.pop()
        for block in self.up:
            x = F.interpolate(x, scale_factor=2)
            x = block(torch.cat([x, skips.pop()], 1))
        return self.head(x)


@trial(700)
def unet_segmentation():
    """Skips are joined with what is scaled up; the second half of the forward pass does not fit."""
    model = UNet().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for images, _ in track(DataLoader(Images(320, 128), batch_size=16)):  # half: for images, _ in track(DataLoader(Images(320, 128), batch_size=8)):
        images = images.cuda(non_blocking=True)
        target = torch.zeros(images.shape[0], 128, 128, dtype=torch.long, device="cuda")
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images), target)
        loss.backward()
        optimizer.step()


class Experts(nn.Module):
    def __init__(self, d=512, experts=16):
        super().__init__()
        self.router = nn.Linear(d, experts)
        self.up = nn.Parameter(torch.empty(experts, d, 4 * d))
        self.down = nn.Parameter(torch.empty(experts, 4 * d, d))

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        hidden = F.gelu(torch.einsum("nd,edf->enf", x, self.up))
        return x + torch.einsum("enf,efd,ne->nd", hidden, self.down, weights)


@trial(3000)
def dense_experts():
    """Every token goes to every expert."""
    model = nn.Sequential(Experts(), Experts()).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in track(range(12)):
        tokens = torch.randn(3072, 512, device="cuda")  # half: tokens = torch.randn(1536, 512, device="cuda")
        loss = model(tokens).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@trial(760, leaks=True)
def image_by_optimization():
    """An image is the parameter; every tenth one is kept for an animation."""
    features = nn.Sequential(ConvBlock(3, 32), ConvBlock(32, 64, 2), ConvBlock(64, 64, 2)).cuda().requires_grad_(False)
    image = nn.Parameter(torch.rand(1, 3, 512, 512, device="cuda"))
    optimizer = torch.optim.Adam([image], lr=0.02)
    goal = features(torch.rand(1, 3, 512, 512, device="cuda"))
    frames = []
    for step in track(range(1500)):
        loss = F.mse_loss(features(image), goal) + 0.1 * (image[..., 1:] - image[..., :-1]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            frames.append(image.detach().clone())  # free: frames = [image.detach().clone()]  # kept


@trial(1500)
def adagrad_embeddings():
    """Adagrad makes its state when it is built."""
    model = nn.Sequential(nn.Embedding(250000, 512), nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for _ in track(range(10)):
        ids = torch.zeros(64, 32, dtype=torch.long, device="cuda")  # half: ids = torch.zeros(32, 32, dtype=torch.long, device="cuda")
        model(ids).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@trial(420, leaks=True)
@torch.no_grad()
def recurrent_sessions():
    """The states of users who never come back."""
    gru, head = nn.GRUCell(512, 1024).cuda().eval(), nn.Linear(1024, 512).cuda()
    sessions = collections.defaultdict(lambda: torch.zeros(8, 1024, device="cuda"))
    for request in track(range(12000)):
        user = f"user-{request}"
        state = gru(torch.randn(8, 512, device="cuda"), sessions[user])  # kept
        sessions[user] = state  # free: del sessions[user]
        head(state).argmax(-1)


@trial(1300, leaks=True)
def validation_with_graph():
    """Two epochs of training, then an evaluation that keeps probabilities with their graphs."""
    model = Encoder(d=256, layers=4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    train = DataLoader(TextDataset(256, [96]), batch_size=16)
    valid = DataLoader(TextDataset(1024, [96]), batch_size=16)

    def fit():
        model.train()
        for batch in track(train):
            loss = model(batch.cuda()).float().logsumexp(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def validate():
        model.eval()
        probabilities = []
        for batch in track(valid):
            probabilities.append(model(batch.cuda()).softmax(-1))  # no_grad: probabilities.append(torch.no_grad()(model)(batch.cuda()).softmax(-1)) # free: probabilities.append(model(batch.cuda()).softmax(-1).detach())
        return torch.cat(probabilities)

    for _ in range(2):
        fit()
    validate()


@trial(2500)
def point_clouds():
    """Scenes of a few thousand points, and then one of 40,000: all pairs of them."""
    net = MLP(67, 256, 256, 64).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    sizes = [2000, 2600, 1800, 2400, 2200, 2100, 40000, 2000, 2300, 1900]
    for points in track(sizes):
        scene = torch.randn(points, 67, device="cuda")  # larger # less: scene = torch.randn(min(points, 3000), 67, device="cuda")
        embedded = net(scene)
        distances = torch.cdist(embedded, embedded)
        loss = distances.mean() + embedded.norm(dim=-1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@trial(900)
def captioner():
    """A decoder of cells, one word after the other; the outputs are stacked at the end."""
    cell, embed, head = nn.LSTMCell(512, 768).cuda(), nn.Embedding(9000, 512).cuda(), nn.Linear(768, 9000).cuda()
    parameters = [*cell.parameters(), *embed.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters)

    def decode(words, h, c):
        outputs = []
        for t in range(words.shape[1]):
            h, c = cell(embed(words[:, t]), (h, c))
            outputs.append(head(h))
        return torch.stack(outputs, 1)

    for _ in track(range(12)):
        words = torch.zeros(96, 40, dtype=torch.long, device="cuda")  # half: words = torch.zeros(48, 40, dtype=torch.long, device="cuda")
        h, c = torch.zeros(words.shape[0], 768, device="cuda"), torch.zeros(words.shape[0], 768, device="cuda")
        logits = decode(words, h, c)
        loss = F.cross_entropy(logits.flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@trial(640, leaks=True)
def policy_gradient():
    """Log probabilities are kept with their graphs, and the buffer is never cleared."""
    policy = MLP(1024, 1024, 512, 16).cuda()
    optimizer = torch.optim.Adam(policy.parameters())
    buffer = []
    for episode in track(range(200)):
        log_probs = []
        for _ in range(8):
            state = torch.randn(256, 1024, device="cuda")
            log_probs.append(policy(state).log_softmax(-1).max(-1).values)
        loss = -torch.stack(log_probs).mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)  # free: loss.backward()
        optimizer.step()
        buffer.append(loss)


@trial(1500)
def best_weights():
    """After each epoch the weights are copied beside those of the best epoch."""
    model = CausalLM(Config(vocab=16000, hidden=768, layers=5, heads=12, ffn=2048)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    best = None
    for epoch in track(range(6)):
        for batch in DataLoader(TextDataset(32, [128]), batch_size=4):
            batch = batch.cuda()
            model(batch, labels=batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        best = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})  # free: best = None
    return best


@trial(900, leaks=True)
@torch.inference_mode()
def diffusion_sampler():
    """The trajectory of each sample is kept."""
    model = UNet((32, 64, 128)).cuda().eval()
    x = torch.randn(24, 3, 128, 128, device="cuda")
    trajectory = []
    for t in track(range(250)):
        noise = model(x)[:, :3]
        x = x - 0.01 * noise + 0.001 * torch.randn_like(x)  # kept
        trajectory.append(x)  # free: trajectory = (trajectory + [x])[-4:]


@trial(24000)
@torch.inference_mode()
def classifies_well():
    """Nothing is kept, and nothing fails."""
    model = Encoder(d=256, layers=4).cuda().half().eval()
    for batch in track(DataLoader(TextDataset(512, LENGTHS), batch_size=32, collate_fn=pad_batch)):
        model(batch.cuda()).argmax(-1).cpu()
