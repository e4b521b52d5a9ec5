import torch
import torch.nn.functional as F
from torch import nn


class Graph:
    def __init__(self, nodes, edges):
        self.nodes = nodes
        self.adjacency = torch.zeros(nodes, nodes, device="cuda")
        self.adjacency[edges[0], edges[1]] = 1.0
        self.degree = torch.bincount(edges[0], minlength=nodes).clamp(min=1).float().cuda()

    def propagate(self, x):
        return self.adjacency @ x / self.degree[:, None]


class GCN(nn.Module):
    def __init__(self, features=128, hidden=256, classes=40):
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, classes)

    def forward(self, graph, x):
        x = F.relu(self.first(graph.propagate(x)))
        return self.second(graph.propagate(x))


def main(nodes=30_000):
    edges = torch.randint(0, nodes, (2, 10 * nodes))
    graph = Graph(nodes, edges)
    model = GCN().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(nodes, 128, device="cuda")
    y = torch.randint(0, 40, (nodes,), device="cuda")
    for epoch in range(5):
        loss = F.cross_entropy(model(graph, x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


main()
