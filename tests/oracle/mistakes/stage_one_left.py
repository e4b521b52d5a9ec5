import torch
import torch.nn.functional as F
from torch import nn

# %% pretrain an encoder
encoder = nn.Sequential(nn.Linear(1024, 6144), nn.GELU(), nn.Linear(6144, 6144), nn.GELU(), nn.Linear(6144, 1024)).cuda()
encoder_optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-4)
data = torch.randn(16384, 1024)

for x in data.split(1024):
    x = x.cuda()
    loss = F.mse_loss(encoder(x + 0.1 * torch.randn_like(x)), x)
    encoder_optimizer.zero_grad()
    loss.backward()
    encoder_optimizer.step()

# %% features
with torch.no_grad():
    features = torch.cat([encoder(x.cuda()) for x in data.split(1024)])

# %% classifier on the features
labels = torch.randint(0, 1000, (16384,), device="cuda")
classifier = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(),
                           nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 1000)).cuda()
optimizer = torch.optim.Adam(classifier.parameters(), lr=1e-3)

for epoch in range(2):
    for x, y in zip(features.split(2048), labels.split(2048)):
        loss = F.cross_entropy(classifier(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
