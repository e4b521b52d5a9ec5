"""Jobs of further libraries, in small: `python further.py NAME` runs one of these, or one of the other files here."""

import evaluating  # noqa: F401  (its jobs)
import torch
from torch import nn
from torch.nn import functional as F

from everyday import adamw, job, main, train


@job
def monai_segmentation():
    """Patches of volumes, sliding windows in the validation, and its Dice score."""
    from monai.inferers import sliding_window_inference
    from monai.losses import DiceCELoss
    from monai.metrics import DiceMetric
    from monai.networks.nets import UNet

    model = UNet(3, 1, 2, channels=(16, 32, 64), strides=(2, 2), num_res_units=1).cuda()
    optimizer, loss_of = adamw(model), DiceCELoss(to_onehot_y=True, softmax=True)
    image, label = torch.randn(2, 1, 32, 32, 32), torch.randint(0, 2, (2, 1, 32, 32, 32))
    best, score = -1.0, DiceMetric(include_background=False)
    for epoch in range(2):
        model.train()
        loss = loss_of(model(image.cuda()), label.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"{epoch}: {loss.item():.4f}")
        model.eval()
        with torch.no_grad():
            out = sliding_window_inference(torch.randn(1, 1, 48, 48, 48).cuda(), (32, 32, 32), 2, model)
            score(out.argmax(1, keepdim=True), torch.randint(0, 2, (1, 1, 48, 48, 48)).cuda())
        metric = score.aggregate().item()
        score.reset()
        if metric > best:
            best = metric
            torch.save(model.state_dict(), "best.pth")


@job
def kornia_augmentation():
    """Augmentations on the device, drawn for each image, before a network of torchvision."""
    import kornia.augmentation as augmentation
    from torchvision.models import resnet18

    augment = nn.Sequential(
        augmentation.RandomHorizontalFlip(p=0.5),
        augmentation.RandomAffine(10.0, translate=(0.1, 0.1), p=0.7),
        augmentation.ColorJitter(0.1, 0.1, 0.1, 0.1, p=0.8),
        augmentation.RandomErasing(p=0.3),
    ).cuda()
    model = resnet18(num_classes=10).cuda()
    images, labels = torch.rand(16, 3, 96, 96), torch.randint(0, 10, (16,))

    def loss_of():
        return F.cross_entropy(model(augment(images.cuda())), labels.cuda())

    return train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), loss_of)


@job
def x_transformers_generation():
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(dim=256, depth=4, heads=4, rotary_pos_emb=True, attn_flash=True)
    model = AutoregressiveWrapper(TransformerWrapper(num_tokens=256, max_seq_len=256, attn_layers=layers)).cuda()
    trained = train(model, adamw(model), lambda: model(torch.randint(0, 256, (4, 257), device="cuda")))
    model.eval()
    out = model.generate(torch.randint(0, 256, (2, 16), device="cuda"), 24, temperature=0.8)
    print("".join(chr(max(32, token)) for token in out[0].tolist()))
    return trained


@job
def gaussian_process():
    import gpytorch

    class Regression(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x = torch.linspace(0, 1, 300).cuda()
    y = torch.sin(6 * x) + 0.1 * torch.randn_like(x)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
    model = Regression(x, y, likelihood).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for step in range(3):
        optimizer.zero_grad()
        loss = -marginal(model(x), y)
        loss.backward()
        print(step, loss.item(), model.covar_module.base_kernel.lengthscale.item())
        optimizer.step()
    model.eval(), likelihood.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        print(likelihood(model(torch.linspace(0, 1, 51).cuda())).mean.cpu().numpy()[:3])


@job
def variational_autoencoder_of_pyro():
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO
    from pyro.optim import Adam

    class Autoencoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(784, 256), nn.Softplus(), nn.Linear(256, 40))
            self.decoder = nn.Sequential(nn.Linear(20, 256), nn.Softplus(), nn.Linear(256, 784), nn.Sigmoid())

        def model(self, x):
            pyro.module("decoder", self.decoder)
            with pyro.plate("data", x.shape[0]):
                z = pyro.sample("z", dist.Normal(x.new_zeros(len(x), 20), x.new_ones(len(x), 20)).to_event(1))
                pyro.sample("obs", dist.Bernoulli(self.decoder(z)).to_event(1), obs=x)

        def guide(self, x):
            pyro.module("encoder", self.encoder)
            with pyro.plate("data", x.shape[0]):
                mean, scale = self.encoder(x).chunk(2, -1)
                pyro.sample("z", dist.Normal(mean, scale.exp()).to_event(1))

    network = Autoencoder().cuda()
    svi = SVI(network.model, network.guide, Adam({"lr": 1e-3}), loss=Trace_ELBO())
    for epoch in range(2):
        total = sum(svi.step(torch.rand(128, 784).round().cuda()) for _ in range(2))
        print(f"epoch {epoch}: {total / 256:.3f}")


@job
def skorch_classifier():
    import numpy as np
    from skorch import NeuralNetClassifier
    from skorch.callbacks import EarlyStopping

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Dropout(0.3), nn.Linear(512, 2))

        def forward(self, x):
            return self.layers(x)

    stopping = EarlyStopping(patience=2)
    net = NeuralNetClassifier(
        Network, criterion=nn.CrossEntropyLoss, max_epochs=3, lr=0.1, device="cuda", callbacks=[stopping]
    )
    x, y = np.random.rand(400, 64).astype("float32"), np.random.randint(0, 2, 400)
    net.fit(x, y)
    print(net.predict_proba(x)[:2], (net.predict(x) == y).mean())


@job
def tabnet_on_a_table():
    import numpy as np
    from pytorch_tabnet.tab_model import TabNetClassifier

    x, y = np.random.rand(600, 20).astype("float32"), np.random.randint(0, 3, 600)
    model = TabNetClassifier(device_name="cuda", verbose=1)
    model.fit(x[:500], y[:500], eval_set=[(x[500:], y[500:])], max_epochs=2, patience=2, batch_size=128)
    print(model.predict(x[500:])[:5])


@job
def metric_learning_with_a_miner():
    """A miner picks triplets by their distances: how many is decided on the device."""
    from pytorch_metric_learning import losses, miners

    model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 64)).cuda()
    miner, criterion = miners.MultiSimilarityMiner(), losses.TripletMarginLoss()
    x, labels = torch.randn(64, 128).cuda(), torch.randint(0, 8, (64,)).cuda()

    def loss_of():
        embeddings = model(x)
        return criterion(embeddings, labels, miner(embeddings, labels))

    return train(model, adamw(model), loss_of)


@job
def neural_ordinary_differential_equation():
    """An adaptive solver: the number of its steps depends on the error of each."""
    from torchdiffeq import odeint_adjoint

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))

        def forward(self, t, y):
            return self.net(y**3)

    field = Field().cuda()
    start, times = torch.randn(256, 2).cuda(), torch.linspace(0, 1, 10).cuda()
    return train(field, adamw(field), lambda: odeint_adjoint(field, start, times).square().mean())


@job
def private_training():
    from opacus import PrivacyEngine

    model = nn.Sequential(nn.Conv2d(1, 16, 8, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 11 * 11, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,)))
    engine = PrivacyEngine(accountant="rdp")
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=torch.utils.data.DataLoader(data, batch_size=16),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.3f}, epsilon {engine.get_epsilon(1e-5):.2f}")


@job
def denoising_diffusion():
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet

    model = Unet(dim=32, dim_mults=(1, 2), flash_attn=False).cuda()
    diffusion = GaussianDiffusion(model, image_size=32, timesteps=20, sampling_timesteps=5).cuda()
    trained = train(diffusion, adamw(diffusion), lambda: diffusion(torch.rand(8, 3, 32, 32).cuda()))
    print(diffusion.sample(batch_size=2).shape)
    return trained


@job
def simple_vit():
    """The accuracy of the best five is kept, and the best model."""
    from vit_pytorch import SimpleViT

    model = SimpleViT(image_size=64, patch_size=8, num_classes=10, dim=192, depth=3, heads=3, mlp_dim=384).cuda()
    optimizer, best = adamw(model), 0.0
    for _ in range(3):
        images, labels = torch.rand(8, 3, 64, 64).cuda(), torch.randint(0, 10, (8,)).cuda()
        logits = model(images)
        F.cross_entropy(logits, labels, label_smoothing=0.1).backward()
        optimizer.step()
        optimizer.zero_grad()
        correct = (logits.topk(5).indices == labels[:, None]).any(1).float().mean().item()
        if correct >= best:
            best = correct
            torch.save(model.state_dict(), "best.pth")


@job
def ignite_with_handlers():
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.handlers import EarlyStopping, ModelCheckpoint
    from ignite.metrics import Accuracy, Loss

    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 4)).cuda()
    optimizer, criterion = adamw(model), nn.CrossEntropyLoss()
    data = torch.utils.data.TensorDataset(torch.randn(128, 64), torch.randint(0, 4, (128,)))
    loader = torch.utils.data.DataLoader(data, batch_size=32)
    trainer = create_supervised_trainer(model, optimizer, criterion, device="cuda")
    metrics = {"accuracy": Accuracy(), "loss": Loss(criterion)}
    evaluator = create_supervised_evaluator(model, metrics=metrics, device="cuda")

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate(engine):
        evaluator.run(loader)
        print(engine.state.epoch, evaluator.state.metrics)

    stopping = EarlyStopping(patience=2, score_function=lambda e: -e.state.metrics["loss"], trainer=trainer)
    evaluator.add_event_handler(Events.COMPLETED, stopping)
    saver = ModelCheckpoint("models", "best", n_saved=1, score_function=lambda e: e.state.metrics["accuracy"])
    evaluator.add_event_handler(Events.COMPLETED, saver, {"model": model})
    trainer.run(loader, max_epochs=2)


@job
def own_suppression_of_boxes():
    """A loop over boxes, best first, that drops those which overlap: how many are left is decided on the device."""
    backbone = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 5, 3, 2, 1)).cuda()

    def suppress(boxes, scores, limit=0.5):
        order, kept = scores.argsort(descending=True), []
        while order.numel() > 0:
            first = order[0]
            kept.append(first)
            if order.numel() == 1:
                break
            left = torch.maximum(boxes[first, :2], boxes[order[1:], :2])
            right = torch.minimum(boxes[first, 2:], boxes[order[1:], 2:])
            inside = (right - left).clamp(min=0).prod(-1)
            area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
            overlap = inside / (area[first] + area[order[1:]] - inside)
            order = order[1:][overlap <= limit]
        return torch.stack(kept)

    with torch.no_grad():
        for _ in range(2):
            out = backbone(torch.rand(1, 3, 64, 64).cuda()).flatten(2)[0].T
            boxes, scores = out[:, :4], out[:, 4].sigmoid()
            keep = suppress(boxes[scores > 0.05], scores[scores > 0.05])
            print(len(keep), boxes[keep].shape)


@job
def mixture_of_experts_with_capacity():
    """Tokens go to experts by a router, up to a capacity; the rest is dropped."""
    width, experts, capacity = 256, 4, 96

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(width, experts)
            self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

        def forward(self, x):
            gate, choice = self.router(x).softmax(-1).max(-1)
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                rows = (choice == number).nonzero()[:capacity, 0]
                out.index_add_(0, rows, expert(x[rows]) * gate[rows, None])
            return out

    model = Layer().cuda()
    return train(model, adamw(model), lambda: model(torch.randn(256, width, device="cuda")).square().mean())


@job
def ultralytics_detection():
    from ultralytics.nn.tasks import DetectionModel
    from ultralytics.utils import DEFAULT_CFG

    model = DetectionModel("yolov8n.yaml", nc=4, verbose=False).cuda()
    model.args = DEFAULT_CFG
    batch = {
        "img": torch.rand(2, 3, 160, 160).cuda(),
        "batch_idx": torch.tensor([0.0, 0, 1]).cuda(),
        "cls": torch.tensor([[1.0], [2], [0]]).cuda(),
        "bboxes": torch.rand(3, 4).cuda() * 0.4 + 0.2,
    }
    return train(model, torch.optim.SGD(model.parameters(), lr=0.01), lambda: model(batch)[0].sum())


if __name__ == "__main__":
    main()
