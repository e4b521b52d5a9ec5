import torch
from torch import nn


class Segmenter(nn.Module):
    def __init__(self, width=24, depth=8):
        super().__init__()
        self.entry = nn.Conv3d(1, width, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv3d(width, width, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.InstanceNorm3d(width) for _ in range(depth))
        self.exit = nn.Conv3d(width, 2, 1)

    def forward(self, volume):
        x = self.entry(volume)
        for layer, norm in zip(self.layers, self.norms):
            x = torch.relu(norm(layer(x)))
        return self.exit(x)


class Predictor:
    def __init__(self, model):
        self.model = model.cuda().eval()

    def predict(self, volume):
        return self.model(volume)

    def __call__(self, volumes):
        return [self.predict(volume.cuda()[None]).argmax(1).cpu() for volume in volumes]


predictor = Predictor(Segmenter())
masks = predictor(torch.randn(1, 128, 128, 96) for _ in range(4))
print(len(masks))
