"""More jobs like those of `everyday.py`, by other libraries: `python libraries.py NAME` runs one of either file."""

import torch
from torch import nn
from torch.nn import functional as F

from everyday import adamw, ids, job, llama, main, small, train

# Images ---------------------------------------------------------------------------------------------------------------


def denoise(model, images, predict):
    from diffusers import DDPMScheduler

    scheduler = DDPMScheduler(num_train_timesteps=1000)

    def loss_of():
        noise, times = torch.randn_like(images), torch.randint(0, 1000, (len(images),), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            predicted = predict(model, scheduler.add_noise(images, noise, times), times)
        signal = scheduler.alphas_cumprod.cuda()[times]
        weights = torch.stack([signal / (1 - signal), torch.full_like(signal, 5.0)]).amin(0)
        return (F.mse_loss(predicted.float(), noise, reduction="none").mean([1, 2, 3]) * weights).mean()

    return loss_of


@job
def diffusers_dit():
    from diffusers import DiTTransformer2DModel
    from diffusers.training_utils import EMAModel

    model = DiTTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=32,
        in_channels=4,
        out_channels=4,
        num_layers=4,
        sample_size=16,
        patch_size=2,
        num_embeds_ada_norm=1000,
    ).cuda()
    model.enable_gradient_checkpointing()
    average, optimizer = EMAModel(model.parameters()), adamw(model)
    average.to("cuda")
    labels = torch.randint(0, 1000, (8,), device="cuda")
    loss_of = denoise(
        model,
        torch.randn(8, 4, 16, 16, device="cuda"),
        lambda model, noisy, times: model(noisy, timestep=times, class_labels=labels).sample,
    )
    for _ in range(3):
        train(model, optimizer, loss_of, 1)
        average.step(model.parameters())
    kept = nn.Module()
    for number, tensor in enumerate(average.shadow_params):
        kept.register_buffer(f"average{number}", tensor)
    return nn.ModuleList([model, kept]), optimizer


@job
def diffusers_unet():
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(64, 128),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=64,
        attention_head_dim=8,
        norm_num_groups=16,
    ).cuda()
    texts = torch.randn(4, 20, 64, device="cuda")
    loss_of = denoise(
        model, torch.randn(4, 4, 16, 16, device="cuda"), lambda model, noisy, times: model(noisy, times, texts).sample
    )
    return train(model, adamw(model), loss_of)


@job
def timm_vit():
    import timm
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.utils import AverageMeter, NativeScaler, accuracy

    model = timm.create_model("vit_small_patch16_224", num_classes=100, drop_path_rate=0.1).cuda()
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    mix, scaler, meter = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=100), NativeScaler(), AverageMeter()
    images, labels = torch.randn(8, 3, 224, 224, device="cuda"), torch.randint(0, 100, (8,), device="cuda")
    for _ in range(3):
        inputs, targets = mix(images.clone(), labels)
        with torch.autocast("cuda"):
            logits = model(inputs)
            loss = SoftTargetCrossEntropy()(logits, targets)
        scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
        optimizer.zero_grad()
        meter.update(loss.item(), len(images))
    model.eval()
    with torch.no_grad():
        first, fifth = accuracy(model(images), labels, topk=(1, 5))
    print(meter.avg, first.item(), fifth.item())
    del loss, logits, inputs, targets
    return model, optimizer


@job
def timm_convnext():
    import timm

    model = timm.create_model("convnext_atto", num_classes=10).cuda().to(memory_format=torch.channels_last)
    images, labels = torch.randn(8, 3, 96, 96, device="cuda"), torch.randint(0, 10, (8,), device="cuda")
    return train(model, adamw(model), lambda: F.cross_entropy(model(images), labels))


@job
def open_clip_vit():
    import open_clip

    model = open_clip.create_model("ViT-B-32", pretrained=None).cuda()
    loss, images, texts = open_clip.ClipLoss(), torch.randn(8, 3, 224, 224, device="cuda"), ids(8, 77, 49408)

    def loss_of():
        with torch.no_grad():
            model.logit_scale.clamp_(0, 4.6)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return loss(*model(images, texts))

    return train(model, adamw(model), loss_of)


@job
def detr():
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=ResNetConfig(out_features=["stage4"]),
        encoder_layers=2,
        decoder_layers=2,
        num_queries=20,
        num_labels=5,
    )
    model = DetrForObjectDetection(config).cuda()
    images = torch.randn(2, 3, 224, 224, device="cuda")
    boxes = torch.tensor([[0.5, 0.5, 0.2, 0.3], [0.3, 0.4, 0.1, 0.1]])
    labels = [{"class_labels": torch.tensor([1, 2], device="cuda"), "boxes": boxes.cuda()} for _ in images]
    return train(model, adamw(model), lambda: model(pixel_values=images, labels=labels).loss)


# Graphs ---------------------------------------------------------------------------------------------------------------


@job
def graph_sage():
    from torch_geometric.data import Data
    from torch_geometric.nn import GraphSAGE

    edges = torch.randint(0, 2000, (2, 10000))
    graph = Data(x=torch.randn(2000, 64), edge_index=edges, y=torch.randint(0, 7, (2000,)))
    graph.train_mask = torch.arange(2000) % 3 == 0
    graph = graph.cuda()
    model = GraphSAGE(64, 128, num_layers=3, out_channels=7, dropout=0.5).cuda()

    def loss_of():
        out = model(graph.x, graph.edge_index)
        is_right = out.argmax(-1)[~graph.train_mask] == graph.y[~graph.train_mask]
        print("accuracy", int(is_right.sum()) / int((~graph.train_mask).sum()))
        return F.cross_entropy(out[graph.train_mask], graph.y[graph.train_mask])

    return train(model, adamw(model), loss_of)


@job
def graph_attention_in_batches():
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GAT, global_mean_pool

    graphs = [Data(x=torch.randn(20 + n, 16), edge_index=torch.randint(0, 20, (2, 60)), y=n % 3) for n in range(32)]
    model = nn.ModuleList([GAT(16, 64, num_layers=2, heads=4), nn.Linear(64, 3)]).cuda()
    optimizer = adamw(model)
    for batch in DataLoader(graphs, batch_size=8, shuffle=True):
        batch = batch.cuda()

        def loss_of(batch=batch):
            hidden = global_mean_pool(model[0](batch.x, batch.edge_index), batch.batch)
            return F.cross_entropy(model[1](hidden), batch.y)

        train(model, optimizer, loss_of, 1)
    return model, optimizer


@job
def sparse_embeddings():
    tables = nn.ModuleList(nn.Embedding(20000, 32, sparse=True) for _ in range(3)).cuda()
    head = nn.Linear(96, 1).cuda()
    sparse, dense = torch.optim.SparseAdam(tables.parameters()), adamw(head)
    for _ in range(3):
        features = torch.randint(0, 20000, (3, 512)).cuda()
        loss = head(torch.cat([table(row) for table, row in zip(tables, features)], 1)).sigmoid().log().neg().mean()
        loss.backward()
        sparse.step()
        dense.step()
        sparse.zero_grad()
        dense.zero_grad()
        print(loss.item())
    dense.state.update(sparse.state)
    del loss
    return nn.ModuleList([tables, head]), dense


@job
def adjacency_as_a_sparse_matrix():
    edges = torch.randint(0, 1000, (2, 5000))
    matrix = torch.sparse_coo_tensor(edges, torch.ones(5000), (1000, 1000)).coalesce().cuda()
    model, features = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 7)]).cuda(), torch.randn(1000, 64, device="cuda")
    labels = torch.randint(0, 7, (1000,), device="cuda")

    def loss_of():
        return F.cross_entropy(model[1](torch.sparse.mm(matrix, model[0](features).relu())), labels)

    return train(model, adamw(model), loss_of)


# Number formats -------------------------------------------------------------------------------------------------------


@job
def torchao_float8():
    from torchao.float8 import convert_to_float8_training

    model = llama(num_hidden_layers=2).cuda().bfloat16()
    convert_to_float8_training(model, module_filter_fn=lambda module, name: "lm_head" not in name)
    data = ids(2, 128, 32000)
    return train(model, adamw(model), lambda: model(input_ids=data, labels=data).loss)


@job
def torchao_8bit_optimizer():
    from torchao.optim import AdamW8bit

    model = llama(num_hidden_layers=2).cuda().bfloat16()
    data = ids(2, 128, 32000)
    train(model, AdamW8bit(model.parameters(), lr=1e-4), lambda: model(input_ids=data, labels=data).loss)


@job
def torchao_quantization_aware():
    from torchao.quantization import Int4WeightOnlyConfig, quantize_
    from torchao.quantization.qat import QATConfig

    model = llama(num_hidden_layers=2).cuda()
    quantize_(model, QATConfig(Int4WeightOnlyConfig(group_size=32), step="prepare"))
    data = ids(2, 128, 32000)
    train(model, adamw(model), lambda: model(input_ids=data, labels=data).loss)


# Sound and text -------------------------------------------------------------------------------------------------------


@job
def openai_whisper():
    import whisper

    dims = whisper.model.ModelDimensions(
        n_mels=80,
        n_audio_ctx=1500,
        n_audio_state=256,
        n_audio_head=4,
        n_audio_layer=2,
        n_vocab=1000,
        n_text_ctx=64,
        n_text_state=256,
        n_text_head=4,
        n_text_layer=2,
    )
    model = whisper.model.Whisper(dims).cuda()
    sound, tokens = torch.randn(2, 480000, device="cuda"), ids(2, 33)

    def loss_of():
        mel = whisper.log_mel_spectrogram(sound)
        logits = model(mel, tokens[:, :-1])
        return F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])

    return train(model, adamw(model), loss_of)


@job
def exported():
    model = small("Qwen2Config", "Qwen2ForCausalLM", use_cache=False)
    data = ids(2, 64)

    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, tokens):
            return self.model(input_ids=tokens).logits

    program = torch.export.export(Logits(), (data,)).module()
    return train(model, adamw(model), lambda: F.cross_entropy(program(data).flatten(0, 1), data.flatten()))


@job
def fused_cross_entropy():
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    model, data, loss = small("Qwen2Config", "Qwen2ForCausalLM"), ids(4, 128), LigerFusedLinearCrossEntropyLoss()

    def loss_of():
        hidden = model.model(input_ids=data).last_hidden_state
        return loss(model.lm_head.weight, hidden.flatten(0, 1), data.flatten())

    return train(model, adamw(model), loss_of)


@job
def flex_attention_compiled():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    attend = torch.compile(flex_attention)
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device="cuda")
    model = nn.Linear(128, 384).cuda()
    data = torch.randn(2, 256, 128, device="cuda")

    def loss_of():
        q, k, v = model(data).view(2, 256, 3, 2, 64).permute(2, 0, 3, 1, 4)
        return attend(q, k, v, block_mask=mask).square().mean()

    return train(model, adamw(model), loss_of)


if __name__ == "__main__":
    main()
