"""Programs for a GPU and for dry runs: `programs.py NAME [--size N]`.

All models are made from configurations and all data is made up. Nothing is downloaded. The last line of the output is
JSON with PyTorch's own counters and the driver's: see `counted`.

GPU_TEST_LIMIT (bytes) limits the memory that PyTorch's allocator may reserve.
"""

import argparse
import contextlib
import json
import math
import os
import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

PROGRAMS = {}


def program(size):
    """Registers a program with the size it has by default, mostly of its batch."""

    def register(function):
        PROGRAMS[function.__name__] = (function, size)
        return function

    return register


def train(model, loss_of, steps=3, optimizer=None, autocast=None, scaler=None):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-4)
    context = torch.autocast("cuda", dtype=autocast) if autocast else contextlib.nullcontext()
    for step in range(steps):
        with context:
            loss = loss_of(step)
        (scaler.scale(loss) if scaler else loss).backward()
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()


class Block(nn.Module):
    def __init__(self, width, heads, fused=True):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            y = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(~mask, -1e9).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.feed(self.second(x))


class GPT(nn.Module):
    def __init__(self, width=768, layers=8, heads=12, words=32000, length=1024, fused=True, checkpointed=False):
        super().__init__()
        self.checkpointed = checkpointed
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, fused) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x))


def tokens(batch, length, words=32000):
    return torch.randint(3, words, (batch, length), device="cuda")


def gpt(**options):
    with torch.device("cuda"):
        return GPT(**options)


def language_loss(model, batch, length=1024):
    def loss_of(_):
        ids = tokens(batch, length)
        return F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())

    return loss_of


def pixels(batch, side=224, channels=3, **options):
    return torch.randn(batch, channels, side, side, device="cuda", **options)


# Plain loops ----------------------------------------------------------------------------------------------------------


@program(4096)
def mlp_adamw(size):
    with torch.device("cuda"):
        model = nn.Sequential(*[nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(6)])
    train(model, lambda _: model(torch.randn(size, 4096, device="cuda")).square().mean())


@program(6)
def gpt_float32(size):
    model = gpt()
    train(model, language_loss(model, size))


@program(12)
def gpt_bf16_autocast(size):
    model = gpt()
    train(model, language_loss(model, size), autocast=torch.bfloat16)


@program(16)
def gpt_checkpointed(size):
    model = gpt(checkpointed=True)
    train(model, language_loss(model, size), autocast=torch.bfloat16)


@program(4)
def gpt_own_attention(size):
    model = gpt(layers=4, fused=False)
    train(model, language_loss(model, size), autocast=torch.bfloat16)


@program(8)
def gpt_lengths_vary(size):
    model = gpt()
    lengths = [640, 1024, 416, 896, 608, 992, 256, 800]

    def loss_of(step):
        ids = tokens(size, lengths[step % len(lengths)])
        return F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())

    train(model, loss_of, steps=12, autocast=torch.bfloat16)


@program(4)
def gpt_accumulated_fp16(size):
    model = gpt()
    loss_of = language_loss(model, size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    train(model, lambda _: (loss_of(0) + loss_of(1)) / 2, 3, optimizer, torch.float16, torch.amp.GradScaler())


@program(64)
def lstm(size):
    with torch.device("cuda"):
        model = nn.LSTM(512, 1024, num_layers=2, batch_first=True)
    train(model, lambda _: model(torch.randn(size, 256, 512, device="cuda"))[0].square().mean())


@program(4)
def volume_convolutions(size):
    with torch.device("cuda"):
        model = nn.Sequential(
            nn.Conv3d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv3d(32, 32, 3, padding=1), nn.ReLU(),
            nn.ConvTranspose3d(32, 1, 2, stride=2),
        )  # fmt: skip
    train(model, lambda _: model(torch.randn(size, 1, 64, 64, 64, device="cuda")).square().mean())


@program(2048)
def linear_algebra(size):
    matrix = torch.randn(size, size, device="cuda")
    symmetric = matrix @ matrix.T + size * torch.eye(size, device="cuda")
    for _ in range(2):
        torch.linalg.cholesky(symmetric)
        torch.linalg.svd(matrix[:1024, :1024])
        torch.fft.rfft2(matrix)
        torch.linalg.solve(symmetric, matrix)


# torchvision ----------------------------------------------------------------------------------------------------------


def classify(name, size, **options):
    import torchvision

    with torch.device("cuda"):
        model = getattr(torchvision.models, name)()
    if options.pop("channels_last", False):
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def loss_of(_):
        return F.cross_entropy(model(pixels(size)), torch.randint(1000, (size,), device="cuda"))

    train(model, loss_of, optimizer=optimizer, **options)


@program(48)
def resnet50(size):
    classify("resnet50", size)


@program(96)
def resnet50_bf16_channels_last(size):
    classify("resnet50", size, channels_last=True, autocast=torch.bfloat16)


@program(32)
def convnext_tiny(size):
    classify("convnext_tiny", size, autocast=torch.bfloat16)


@program(48)
def vit_b_16(size):
    classify("vit_b_16", size, autocast=torch.bfloat16)


# transformers ---------------------------------------------------------------------------------------------------------


def llama(**options):
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = dict(
        vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
        num_key_value_heads=8, eos_token_id=2, pad_token_id=0, max_position_embeddings=4096,
    )  # fmt: skip
    with torch.device("cuda"):
        return LlamaForCausalLM(LlamaConfig(**{**sizes, **options})).bfloat16()


@program(4)
def llama_checkpointed(size):
    model = llama()
    model.train()
    model.gradient_checkpointing_enable()

    def loss_of(_):
        ids = tokens(size, 2048)
        return model(input_ids=ids, labels=ids).loss

    train(model, loss_of)


@program(16)
def llama_generate(size):
    model = llama().eval()
    model.generate(tokens(size, 512), max_new_tokens=128, min_new_tokens=128, do_sample=False)


@program(8)
def llama_static_cache(size):
    model = llama().eval()
    model.generate(
        tokens(size, 256), max_new_tokens=64, min_new_tokens=64, do_sample=False, cache_implementation="static",
        disable_compile=True,
    )  # fmt: skip


@program(16)
def bert_masked(size):
    from transformers import BertConfig, BertForMaskedLM

    with torch.device("cuda"):
        model = BertForMaskedLM(BertConfig(num_hidden_layers=6))

    def loss_of(_):
        ids = tokens(size, 512, 30000)
        return model(input_ids=ids, labels=ids).loss

    train(model, loss_of, autocast=torch.float16, scaler=torch.amp.GradScaler())


@program(8)
def gpt2_trainer(size):
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    data = [{"input_ids": torch.arange(512), "labels": torch.arange(512)} for _ in range(64)]
    with tempfile.TemporaryDirectory() as directory:
        options = TrainingArguments(
            output_dir=directory, max_steps=3, report_to=[], bf16=True, save_strategy="no", logging_steps=1,
            per_device_train_batch_size=size, disable_tqdm=True,
        )  # fmt: skip
        Trainer(GPT2LMHeadModel(GPT2Config(n_layer=6)), options, train_dataset=data).train()


# Other frameworks, compiled programs and graphs -----------------------------------------------------------------------


@program(16)
def lightning_module(size):
    import lightning

    class Task(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = GPT(layers=4, length=512)

        def training_step(self, batch, _):
            (ids,) = batch
            return F.cross_entropy(self.model(ids).flatten(0, 1), ids.flatten())

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    data = torch.utils.data.TensorDataset(torch.randint(32000, (4 * size, 512)))
    trainer = lightning.Trainer(
        max_steps=3, logger=False, enable_checkpointing=False, accelerator="gpu", devices=1, precision="bf16-mixed",
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Task(), torch.utils.data.DataLoader(data, batch_size=size))


@program(8)
def gpt_compiled(size):
    model = gpt(layers=4)
    train(model, language_loss(torch.compile(model), size), autocast=torch.bfloat16)


@program(2048)
def compiled_with_graphs(size):
    with torch.device("cuda"):
        model = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(4)])
    compiled = torch.compile(model, mode="reduce-overhead")
    data = torch.randn(size, 2048, device="cuda")
    train(model, lambda _: compiled(data).square().mean(), steps=5)


@program(2048)
def graph_of_a_step(size):
    with torch.device("cuda"):
        model = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(6)])
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    data = torch.randn(size, 2048, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(data).square().mean().backward()
        optimizer.step()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        model(data).square().mean().backward()
        optimizer.step()
    for _ in range(3):
        graph.replay()


@contextlib.contextmanager
def one_rank():
    import torch.distributed as dist

    with tempfile.NamedTemporaryFile() as file:
        dist.init_process_group("nccl", init_method=f"file://{file.name}", rank=0, world_size=1)
        yield
        dist.destroy_process_group()


@program(8)
def fsdp2_one_rank(size):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    with one_rank():
        model = gpt()
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        train(model, language_loss(model, size))
        counted()


@program(8)
def ddp_one_rank(size):
    with one_rank():
        model = nn.parallel.DistributedDataParallel(gpt(), device_ids=[0])
        train(model, language_loss(model, size), autocast=torch.bfloat16)
        counted()


# What the GPU counts --------------------------------------------------------------------------------------------------

COUNTED = {}


def counted():
    """Notes PyTorch's and the driver's counters once, while everything that the program uses still exists."""
    if COUNTED:
        return COUNTED
    torch.cuda.synchronize()
    statistics = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    COUNTED.update(
        peak_allocated=torch.cuda.max_memory_allocated(),
        peak_reserved=torch.cuda.max_memory_reserved(),
        reserved=torch.cuda.memory_reserved(),
        retries=statistics["num_alloc_retries"],
        device_allocs=statistics["num_device_alloc"],
        free=free,
        total=total,
        process=memory_of_process(),
    )
    return COUNTED


def memory_of_process():
    """Bytes of the GPU that the driver counts for this process; None if it does not say."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            if process.pid == os.getpid():
                return process.usedGpuMemory
    except Exception as error:  # another release of NVML, or a system that hides processes
        print(f"NVML: {error}")
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--size", type=int)
    options = parser.parse_args()
    function, size = PROGRAMS[options.name]
    limit = int(os.environ.get("GPU_TEST_LIMIT", "0"))
    if limit:
        # The allocator multiplies again and drops the fraction of a byte.
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, (limit + 0.5) / total))
    torch.manual_seed(1)
    failed = None
    try:
        function(options.size or size)
    except torch.OutOfMemoryError as error:
        failed = str(error)
    print(json.dumps({**counted(), "failed": failed}), flush=True)
    if failed:
        os._exit(1)  # NCCL waits for ever at the end of a program whose step failed


if __name__ == "__main__":
    main()
