"""Jobs that evaluate, search, generate and select, in small: `python evaluating.py NAME` runs one of these, or one of
`libraries.py` and `everyday.py`."""

import os

import libraries  # noqa: F401  (its jobs)
import torch

from everyday import job, main


@job
def trainer_with_evaluation():
    import numpy as np
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    class D(torch.utils.data.Dataset):
        def __len__(self):
            return 32

        def __getitem__(self, i):
            return {
                "input_ids": torch.randint(0, 999, (64,)),
                "attention_mask": torch.ones(64, dtype=torch.long),
                "labels": torch.tensor(i % 2),
            }

    def metrics(p):
        preds = np.argmax(p.predictions, axis=1)
        return {"accuracy": float((preds == p.label_ids).mean())}

    m = BertForSequenceClassification(
        BertConfig(vocab_size=1000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512)
    )
    a = TrainingArguments(
        "out",
        per_device_train_batch_size=8,
        num_train_epochs=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        logging_steps=1,
        report_to=[],
    )
    t = Trainer(m, a, train_dataset=D(), eval_dataset=D(), compute_metrics=metrics)
    t.train()
    print(t.evaluate())


@job
def diffusers_pipeline():
    from diffusers import DDIMScheduler, DDPMPipeline, UNet2DModel

    u = UNet2DModel(
        sample_size=32,
        in_channels=3,
        out_channels=3,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
    )
    p = DDPMPipeline(u, DDIMScheduler(num_train_timesteps=100)).to("cuda")
    images = p(batch_size=2, num_inference_steps=4).images
    images[0].save("a.png")


@job
def timm_with_evaluation():
    from dataclasses import dataclass

    import timm
    from timm.optim import create_optimizer_v2
    from timm.utils import AverageMeter, accuracy

    @dataclass
    class EvalResult:
        loss: float
        top1: float

    m = timm.create_model("vit_tiny_patch16_224", num_classes=10).cuda()
    o = create_optimizer_v2(m, "adamw", lr=1e-3)

    def evaluate():
        losses, top = AverageMeter(), AverageMeter()
        with torch.no_grad():
            for _ in range(2):
                x, y = torch.randn(8, 3, 224, 224).cuda(), torch.randint(0, 10, (8,)).cuda()
                out = m(x)
                loss = torch.nn.functional.cross_entropy(out, y)
                a1, _ = accuracy(out, y, topk=(1, 5))
                losses.update(loss.item(), 8)
                top.update(a1.item(), 8)
        return EvalResult(loss=losses.avg, top1=top.avg)

    best = None
    for e in range(2):
        for _ in range(2):
            x, y = torch.randn(8, 3, 224, 224).cuda(), torch.randint(0, 10, (8,)).cuda()
            loss = torch.nn.functional.cross_entropy(m(x), y)
            loss.backward()
            o.step()
            o.zero_grad()
        r = evaluate()
        if best is None or r.top1 > best.top1:
            best = r
            torch.save(m.state_dict(), "best.pt")
        print(e, r, best)


@job
def sentence_transformers_search():
    from sentence_transformers import SentenceTransformer, models, util
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers import models as tm
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, **{f"w{i}": i + 4 for i in range(200)}}
    t = Tokenizer(tm.WordLevel(vocab, unk_token="[UNK]"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    os.makedirs("m", exist_ok=True)
    PreTrainedTokenizerFast(
        tokenizer_object=t, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained("m")
    BertModel(
        BertConfig(vocab_size=256, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256)
    ).save_pretrained("m")
    w = models.Transformer("m")
    p = models.Pooling(128)
    s = SentenceTransformer(modules=[w, p], device="cuda")
    e = s.encode([" ".join(f"w{i + j}" for j in range(10)) for i in range(40)], batch_size=8, convert_to_tensor=True)
    hits = util.semantic_search(e[:3], e, top_k=3)
    print(hits[0][0])
    f = s.encode(["w1 w2", "w3"])
    print(f.shape, (f @ f.T)[0, 1])


@job
def graph_with_masks():
    import torch.nn.functional as F
    from torch_geometric.data import Data
    from torch_geometric.nn import GCNConv

    g = Data(x=torch.randn(2000, 64), edge_index=torch.randint(0, 2000, (2, 8000)), y=torch.randint(0, 7, (2000,)))
    g.train_mask = torch.rand(2000) < 0.3
    g.val_mask = ~g.train_mask
    g = g.to("cuda")

    class N(torch.nn.Module):
        def __init__(s):
            super().__init__()
            s.a, s.b = GCNConv(64, 64), GCNConv(64, 7)

        def forward(s, d):
            return s.b(F.dropout(F.relu(s.a(d.x, d.edge_index)), training=s.training), d.edge_index)

    m = N().cuda()
    o = torch.optim.Adam(m.parameters())
    for _ in range(3):
        m.train()
        o.zero_grad()
        loss = F.cross_entropy(m(g)[g.train_mask], g.y[g.train_mask])
        loss.backward()
        o.step()
        m.eval()
        pred = m(g).argmax(1)
        acc = (pred[g.val_mask] == g.y[g.val_mask]).sum() / g.val_mask.sum()
        print(float(loss), f"{acc:.3f}")


@job
def faster_rcnn():
    import torchvision

    m = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=5
    ).cuda()
    o = torch.optim.SGD(m.parameters(), 0.01)
    x = [torch.randn(3, 320, 320).cuda() for _ in range(2)]
    t = [
        {
            "boxes": torch.tensor([[10.0, 10, 100, 100], [50, 60, 200, 220]]).cuda(),
            "labels": torch.tensor([1, 2]).cuda(),
        }
        for _ in range(2)
    ]
    for _ in range(2):
        d = m(x, t)
        loss = sum(d.values())
        o.zero_grad()
        loss.backward()
        o.step()
        print({k: v.item() for k, v in d.items()})
    m.eval()
    with torch.no_grad():
        out = m(x)
        print([len(r["boxes"]) for r in out])


@job
def beam_search():
    from transformers import GPT2Config, GPT2LMHeadModel

    m = (
        GPT2LMHeadModel(
            GPT2Config(vocab_size=1000, n_embd=128, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2, pad_token_id=2)
        )
        .cuda()
        .eval()
    )
    out = m.generate(torch.randint(3, 999, (2, 16)).cuda(), num_beams=4, max_new_tokens=32, early_stopping=True)
    print(out.shape, out[0].tolist()[-3:])


@job
def deepspeed_overflow():

    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29611")
    import deepspeed

    m = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])
    e, _, _, _ = deepspeed.initialize(
        model=m,
        model_parameters=m.parameters(),
        config={
            "train_batch_size": 8,
            "train_micro_batch_size_per_gpu": 8,
            "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
            "fp16": {"enabled": True},
            "zero_optimization": {"stage": 2},
        },
    )
    for _ in range(3):
        loss = e(torch.randn(8, 512, device="cuda", dtype=torch.half)).float().square().mean()
        e.backward(loss)
        e.step()
        print(loss.item())


@job
def hard_examples():

    m = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)).cuda()
    o = torch.optim.AdamW(m.parameters())
    for _ in range(3):
        x, y = torch.randn(512, 256, device="cuda"), torch.randint(0, 10, (512,), device="cuda")
        loss = torch.nn.functional.cross_entropy(m(x), y, reduction="none")
        hard = loss > loss.median()
        loss = loss[hard].mean()
        loss.backward()
        o.step()
        o.zero_grad()
        print(loss.item())


@job
def branch_on_a_copy():
    import numpy as np

    m = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
    o = torch.optim.AdamW(m.parameters())

    class Logger:
        def __init__(self, scores, mode="max"):
            self.scores = scores
            self.mode = mode

        def show(self):
            print(self.mode, np.mean(self.scores))

    history = []
    for _ in range(3):
        p = m(torch.randn(64, 256, device="cuda"))
        loss = p.square().mean()
        loss.backward()
        o.step()
        o.zero_grad()
        probs = p.detach().softmax(-1).cpu().numpy()
        history.append(probs.max(1))
        top = probs.argmax(1)
        hits = np.where(top == 3)[0]
        if len(hits):
            print("hits", hits[:3])
        Logger(scores=np.concatenate(history)).show()
        if np.isnan(probs).any():
            raise RuntimeError("nan")


@job
def stable_baselines_ppo():
    import gymnasium as gym
    import numpy as np
    from stable_baselines3 import PPO

    class Env(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (8,), np.float32)
        action_space = gym.spaces.Discrete(3)

        def reset(self, seed=None, options=None):
            self.n = 0
            return np.zeros(8, np.float32), {}

        def step(self, a):
            self.n += 1
            return np.random.rand(8).astype(np.float32), float(a == 1), self.n > 20, False, {}

    p = PPO("MlpPolicy", Env(), n_steps=64, batch_size=32, n_epochs=2, device="cuda", verbose=1)
    p.learn(128)


@job
def segmentation_metrics():
    import segmentation_models_pytorch as smp

    m = smp.Unet("resnet18", encoder_weights=None, classes=1).cuda()
    o = torch.optim.Adam(m.parameters())
    L = smp.losses.DiceLoss("binary")
    stats = []
    for _ in range(2):
        x, y = torch.randn(2, 3, 128, 128).cuda(), torch.randint(0, 2, (2, 1, 128, 128)).cuda()
        p = m(x)
        loss = L(p, y.float())
        loss.backward()
        o.step()
        o.zero_grad()
        tp, fp, fn, tn = smp.metrics.get_stats((p.sigmoid() > 0.5).long(), y, mode="binary")
        stats.append(smp.metrics.iou_score(tp, fp, fn, tn, reduction="micro").item())
    print(sum(stats) / len(stats))


@job
def lightning_checkpoints():
    import lightning as L
    import torchmetrics
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

    class M(L.LightningModule):
        def __init__(s):
            super().__init__()
            s.n = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4))
            s.acc = torchmetrics.classification.MulticlassAccuracy(4)

        def training_step(s, b, i):
            loss = torch.nn.functional.cross_entropy(s.n(b[0]), b[1])
            s.log("l", loss)
            return loss

        def validation_step(s, b, i):
            o = s.n(b[0])
            s.acc(o, b[1])
            s.log("acc", s.acc, prog_bar=True)
            s.log("v", torch.nn.functional.cross_entropy(o, b[1]))

        def configure_optimizers(s):
            return torch.optim.AdamW(s.parameters())

    d = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(64, 64), torch.randint(0, 4, (64,))), batch_size=16
    )
    L.Trainer(
        accelerator="gpu",
        devices=1,
        max_epochs=3,
        callbacks=[EarlyStopping("v", patience=5), ModelCheckpoint(monitor="acc", mode="max")],
        logger=False,
    ).fit(M(), d, d)


@job
def trl_sft_with_evaluation():
    from datasets import Dataset
    from peft import LoraConfig
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers import models as tm
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    vocab = {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, **{f"w{i}": i + 4 for i in range(200)}}
    t = Tokenizer(tm.WordLevel(vocab, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    tok = PreTrainedTokenizerFast(
        tokenizer_object=t, pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    m = LlamaForCausalLM(
        LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4)
    )
    d = Dataset.from_dict({"text": [" ".join(f"w{(i + j) % 200}" for j in range(30)) for i in range(16)]})
    a = SFTConfig(
        "out",
        per_device_train_batch_size=4,
        max_steps=3,
        logging_steps=1,
        report_to=[],
        eval_strategy="steps",
        eval_steps=2,
        bf16=True,
        max_length=64,
    )
    SFTTrainer(
        m,
        args=a,
        train_dataset=d,
        eval_dataset=d,
        processing_class=tok,
        peft_config=LoraConfig(target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    ).train()


if __name__ == "__main__":
    main()
