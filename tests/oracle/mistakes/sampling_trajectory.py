import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.time = nn.Embedding(1000, width)
        self.inc = nn.Conv2d(3, width, 3, padding=1)
        self.mid = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t):
        h = torch.relu(self.inc(x) + self.time(t)[:, :, None, None])
        return self.out(torch.relu(self.mid(h)))


class Sampler:
    def __init__(self, model, steps=1000):
        self.model = model
        self.betas = torch.linspace(1e-4, 0.02, steps, device="cuda")
        self.alphas = torch.cumprod(1 - self.betas, 0)
        self.trajectory = []

    @torch.no_grad()
    def sample(self, shape):
        x = torch.randn(shape, device="cuda")
        for step in reversed(range(len(self.betas))):
            t = torch.full((shape[0],), step, device="cuda")
            noise = self.model(x, t)
            beta, alpha = self.betas[step], self.alphas[step]
            x = (x - beta / (1 - alpha).sqrt() * noise) / (1 - beta).sqrt()
            if step:
                x = x + beta.sqrt() * torch.randn_like(x)
            self.trajectory.append(x)
        return x.clamp(-1, 1)


sampler = Sampler(Denoiser().cuda().eval())
images = sampler.sample((16, 3, 128, 128))
print(images.shape, len(sampler.trajectory))
