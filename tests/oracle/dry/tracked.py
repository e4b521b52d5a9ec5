"""Three models in training, for a comparison: `python tracked.py NAME` on CUDA, `tracked.py NAME fake` by PyTorch's
own tracker, `torch.distributed._tools`, under fake tensors of CUDA (`fake cpu`: of the CPU). The last line is JSON: the
peak in bytes, and seconds without the import of torch."""

import contextlib
import json
import sys
import time

import torch
from torch.nn import functional as F


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32000, **sizes))
    data = torch.randint(0, 32000, (4, 512))

    def loss_of():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(input_ids=data, labels=data).loss

    return model, loss_of


def resnet50():
    from torchvision.models import resnet50

    model, images, labels = resnet50(), torch.randn(16, 3, 224, 224), torch.randint(0, 1000, (16,))
    return model, lambda: F.cross_entropy(model(images), labels)


def vit():
    from torchvision.models import vit_b_16

    model, images, labels = vit_b_16(), torch.randn(16, 3, 224, 224), torch.randint(0, 1000, (16,))
    return model, lambda: F.cross_entropy(model(images), labels)


def steps(model, loss_of, between=lambda: None):
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for _ in range(2):
        loss_of().backward()
        optimizer.step()
        optimizer.zero_grad()
        between()


def main():
    name, is_fake = sys.argv[1], "fake" in sys.argv
    started = time.time()
    tracker, mode = None, contextlib.nullcontext()
    if is_fake:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.distributed._tools.mem_tracker import MemTracker

        tracker, mode = MemTracker(), FakeTensorMode()
        torch.nn.init.trunc_normal_ = lambda tensor, *_, **__: tensor  # it reads values, which fake tensors lack
    with mode, torch.device("cpu" if "cpu" in sys.argv else "cuda"):
        model, loss_of = globals()[name]()
        if tracker is None:
            steps(model, loss_of)
            peak = torch.cuda.max_memory_allocated()
        else:
            tracker.track_external(model)
            with tracker:
                steps(model, loss_of, tracker.reset_mod_stats)
            peak = sum(total["Total"] for total in tracker.get_tracker_snapshot("peak").values())
    print(json.dumps({"peak": peak, "seconds": time.time() - started}))


if __name__ == "__main__":
    main()
