#!/usr/bin/env python3
"""Programs of many kinds, for a dry run: a few training steps each, with random weights and made-up data.

usage: programs.py NAME        (`torchrun --nproc-per-node 2 programs.py ddp` for those of several ranks)

Needs torch; transformers, accelerate, peft, diffusers, torchvision and lightning where the name says so.
"""

import os
import sys
import tempfile
from functools import partial

import torch
from torch import nn


def steps(model, *batch, loss=lambda out: out.square().mean(), optimizer=torch.optim.AdamW):
    batch = batch or [torch.randn(8, 256, 512, device="cuda")]
    step = optimizer(model.parameters(), lr=1e-3)
    for _ in range(3):
        value = loss(model(*batch))
        value.backward()
        step.step()
        step.zero_grad()
    print("loss", value.item())


def device():
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    return torch.device("cuda", torch.cuda.current_device())


def trainer(kind, **options):
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    if kind == "gpt2":
        model = GPT2LMHeadModel(GPT2Config())
    else:
        small = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16)
        model = LlamaForCausalLM(LlamaConfig(num_key_value_heads=8, vocab_size=32000, **small))

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            ids = torch.randint(0, 1000, (512,))
            return dict(input_ids=ids, labels=ids)

    arguments = dict(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        max_steps=3,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
    )
    Trainer(model=model, args=TrainingArguments(**arguments, **options), train_dataset=Data()).train()


def lora():
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16, vocab_size=32000
    )
    model = get_peft_model(
        LlamaForCausalLM(config).bfloat16().cuda(), LoraConfig(r=16, target_modules=["q_proj", "v_proj"])
    )
    ids = torch.randint(0, 1000, (4, 512), device="cuda")
    steps(model, ids, loss=lambda out: out.logits.float().mean())


def unet():
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=32, block_out_channels=(128, 256, 512, 512), cross_attention_dim=256
    ).cuda()
    noise, text = torch.randn(4, 4, 32, 32, device="cuda"), torch.randn(4, 77, 256, device="cuda")
    steps(model, noise, 10, text, loss=lambda out: out.sample.square().mean())


def resnet50():
    from torchvision.models import resnet50

    images, labels = torch.randn(16, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (16,), device="cuda")
    loss = partial(nn.functional.cross_entropy, target=labels)
    steps(resnet50().cuda(), images, loss=loss, optimizer=torch.optim.SGD)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(10000, 256), nn.LSTM(256, 512, 2, batch_first=True)
        self.head = nn.Linear(512, 10000)

    def forward(self, ids):
        return self.head(self.lstm(self.embed(ids))[0])


def lstm():
    ids = torch.randint(0, 10000, (32, 100), device="cuda")
    steps(Recurrent().cuda(), ids)


class Experts(nn.Module):
    """Each token goes to the two experts that a router chooses: how many tokens an expert gets, values decide."""

    def __init__(self, width=512, experts=8):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(experts)
        )

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            token, which = torch.where(chosen == index)
            out = out.index_add(0, token, expert(x[token]) * weights[token, which, None])
        return out


def moe():
    x = torch.randn(4096, 512, device="cuda")
    steps(nn.Sequential(Experts(), Experts()).cuda(), x)


def transformer(layers=4):
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), layers)


def compiled():
    model = torch.compile(
        nn.Sequential(
            *[nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4)]
        ).cuda()
    )
    steps(model, torch.randn(64, 256, 512, device="cuda"))


def ddp(optimizer=torch.optim.AdamW):
    torch.distributed.init_process_group("nccl")
    here = device()
    model = nn.parallel.DistributedDataParallel(transformer().to(here), device_ids=[here.index])
    steps(model, optimizer=optimizer)
    torch.distributed.destroy_process_group()


def zero():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    ddp(partial(ZeroRedundancyOptimizer, optimizer_class=torch.optim.AdamW))


def fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    torch.distributed.init_process_group("nccl")
    here = device()
    policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.TransformerEncoderLayer})
    model = FullyShardedDataParallel(
        transformer(), auto_wrap_policy=policy, device_id=here, sync_module_states=True, use_orig_params=True
    )
    steps(model)
    torch.distributed.destroy_process_group()


class Feed(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    here = device()
    mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),))
    model = nn.Sequential(*[Feed() for _ in range(4)]).to(here)
    for layer in model:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    steps(model, optimizer=partial(torch.optim.AdamW, foreach=False))
    torch.distributed.destroy_process_group()


def objects():
    """Collectives of Python objects and on the CPU, and groups of groups."""
    from torch import distributed

    here = device()
    distributed.init_process_group("cpu:gloo,cuda:nccl", device_id=here)
    rank, size = distributed.get_rank(), distributed.get_world_size()
    for group in (None, distributed.new_group(backend="nccl"), distributed.new_group(backend="gloo")):
        heard = [None] * size
        distributed.all_gather_object(heard, {"rank": rank, "name": "x" * 1000}, group)
        assert all(len(one["name"]) == 1000 for one in heard), heard
        message = [f"of {rank}", "as it was"]
        distributed.broadcast_object_list(message, src=0, group=group)
        assert message[1] == "as it was", message
        gathered = [None] * size if rank == 0 else None
        distributed.gather_object(rank, gathered, dst=0, group=group)
        assert rank or None not in gathered, gathered
        scattered = [None]
        distributed.scatter_object_list(scattered, list(range(size)) if rank == 0 else None, src=0, group=group)
        assert rank or scattered == [0], scattered
        distributed.barrier(group=group)
    count = torch.ones(4)
    distributed.all_reduce(count)
    distributed.monitored_barrier(distributed.new_group(backend="gloo"))
    on_device = torch.ones(1000, 1000, device=here)
    distributed.all_reduce(on_device)
    distributed.all_gather([torch.empty_like(on_device) for _ in range(size)], on_device)
    pairs = distributed.new_subgroups(2)[0]
    distributed.all_reduce(on_device, group=pairs)
    distributed.destroy_process_group()


def fsdp2():
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group("nccl")
    model = transformer().to(device())
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    steps(model)
    torch.distributed.destroy_process_group()


def lightning():
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = transformer()

        def training_step(self, batch, index):
            return self.model(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    data = torch.utils.data.DataLoader(torch.randn(32, 256, 512), batch_size=8)
    L.Trainer(
        max_steps=3,
        accelerator="gpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Module(), data)


def generate():
    """Only the length ends it: the device's answer is always zero."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16, vocab_size=32000
    )
    model, ids = LlamaForCausalLM(config).half().cuda().eval(), torch.randint(0, 1000, (4, 512), device="cuda")
    with torch.inference_mode():
        print(model.generate(ids, max_new_tokens=64, do_sample=True, top_k=50, pad_token_id=0).shape)


def profiled():
    model, x = transformer().half().cuda(), torch.randn(8, 256, 512, device="cuda").half()
    with torch.profiler.profile() as profile:
        model(x).float().square().mean().backward()
    print(len(profile.key_averages()))


TRAINERS = {
    "gpt2": {},
    "gpt2-bf16": {"bf16": True},
    "gpt2-fp16": {"fp16": True},
    "llama": {},
    "llama-bf16-checkpointed": {"bf16": True, "gradient_checkpointing": True},
    "gpt2-compiled": {"torch_compile": True},
}

if __name__ == "__main__":
    name = sys.argv[1]
    if name in TRAINERS:
        trainer(name.split("-")[0], **TRAINERS[name])
    else:
        globals()[name.replace("-", "_")]()
