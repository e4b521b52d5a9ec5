import torch

model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
for step in range(60):
    batch = torch.randn(7500 if step != 50 else 37500, 1024, device="cuda")
    model(batch).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    kept.append(batch[:512].clone())
