"""Ordinary jobs of 2026 in small: `python everyday.py NAME` trains or generates, and prints what PyTorch counted.

Models are made from configurations, data is made up. The last line is JSON: `peak`, the most allocated bytes by
PyTorch's own counters; `states`, the bytes of parameters, buffers and optimizer states by arithmetic; `held`, the
allocated bytes once the gradients are gone, at which the two can be compared.
"""

import gc
import io
import itertools
import json
import sys

import torch
from torch import nn
from torch.nn import functional as F

JOBS = {}


def job(function):
    JOBS[function.__name__.replace("_", "-")] = function
    return function


def tensors_of(model, optimizer):
    states = [value for state in optimizer.state.values() for value in state.values()] if optimizer else []
    return [*model.parameters(), *model.buffers(), *(value for value in states if torch.is_tensor(value))]


def blocks(tensors):
    """The bytes of tensors on the device, in the allocator's units of 512."""
    tensors = [part for t in tensors for part in ((t._indices(), t._values()) if t.is_sparse else (t,))]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t.is_cuda}
    return sum(-(-size // 512) * 512 for size in storages.values())


def train(model, optimizer, loss_of, steps=3, clip=True, scaler=None):
    for _ in range(steps):
        loss = loss_of()
        (scaler.scale(loss) if scaler else loss).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()
        print("loss", loss.item())
    return model, optimizer


def adamw(model, **options):
    return torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-4, **options)


def ids(batch, length, vocabulary=1000):
    return torch.randint(3, vocabulary, (batch, length), device="cuda")


# Language models ------------------------------------------------------------------------------------------------------


def llama(**options):
    from transformers import LlamaConfig, LlamaForCausalLM

    options = {
        "vocab_size": 32000,
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        **options,
    }
    return LlamaForCausalLM(LlamaConfig(**options))


def small(config_class, model_class, **options):
    import transformers

    config = getattr(transformers, config_class)
    sizes = {
        "vocab_size": 1000,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        **options,
    }
    return getattr(transformers, model_class)(config(**sizes)).cuda()


def language(model, batch=4, length=128, vocabulary=1000, autocast=True):
    data = ids(batch, length, vocabulary)

    def loss_of():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            return model(input_ids=data, labels=data, attention_mask=torch.ones_like(data)).loss

    return loss_of


@job
def llama_bf16_checkpointed():
    model = llama().cuda().bfloat16()
    model.gradient_checkpointing_enable()
    return train(model, adamw(model), language(model, 4, 512, 32000, autocast=False))


@job
def llama_lora():
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(llama(), LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    model = model.cuda()
    return train(model, adamw(model), language(model, 4, 256, 32000))


@job
def llama_compiled():
    model = llama(num_hidden_layers=2).cuda()
    compiled = torch.compile(model)
    return train(model, adamw(model), language(compiled, 2, 128, 32000))


@job
def qwen3_moe():
    model = small(
        "Qwen3MoeConfig", "Qwen3MoeForCausalLM", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=256
    )
    return train(model, adamw(model), language(model))


@job
def mixtral():
    model = small("MixtralConfig", "MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2)
    return train(model, adamw(model), language(model))


@job
def gemma():
    model = small("Gemma2Config", "Gemma2ForCausalLM", head_dim=64)
    return train(model, adamw(model), language(model))


@job
def gpt2_sgd_accumulated():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4)).cuda()
    loss_of = language(model, 4, 256, 50257)
    return train(
        model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), lambda: sum(loss_of() for _ in range(2)) / 2
    )


@job
def fp16_with_scaler():
    model = small("Qwen2Config", "Qwen2ForCausalLM")
    data = ids(4, 128)

    def loss_of():
        with torch.autocast("cuda", dtype=torch.float16):
            return model(input_ids=data, labels=data).loss

    return train(model, adamw(model), loss_of, clip=False, scaler=torch.amp.GradScaler())


@job
def bert_masked_on_the_device():
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(num_hidden_layers=2, hidden_size=256, num_attention_heads=4)).cuda()
    data = ids(8, 128, 30000)

    def loss_of():
        chosen = torch.bernoulli(torch.full(data.shape, 0.15, device="cuda")).bool()
        hidden = model.bert(data.masked_fill(chosen, 103)).last_hidden_state
        return F.cross_entropy(model.cls(hidden[chosen]), data[chosen])

    return train(model, adamw(model), loss_of)


@job
def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=256, d_ff=512, num_layers=2, num_heads=4, decoder_start_token_id=0, pad_token_id=0)
    model = T5ForConditionalGeneration(config).cuda()
    data = ids(4, 64, 30000)
    return train(model, adamw(model), lambda: model(input_ids=data, labels=data).loss)


@job
def mamba():
    from transformers import MambaConfig, MambaForCausalLM

    model = MambaForCausalLM(MambaConfig(hidden_size=128, num_hidden_layers=2, vocab_size=1000)).cuda()
    data = ids(2, 32)
    return train(model, adamw(model), lambda: model(input_ids=data, labels=data).loss, steps=2)


@job
def generate_sampled():
    model = llama(eos_token_id=2, pad_token_id=0).cuda().half().eval()
    out = model.generate(ids(4, 16), max_new_tokens=48, do_sample=True, top_k=50)
    assert out.shape == (4, 64), out.shape
    return model, None


@job
def generate_greedy_static_cache():
    model = llama(eos_token_id=2, pad_token_id=0).cuda().bfloat16().eval()
    model.generate(ids(2, 16), max_new_tokens=16, do_sample=False, cache_implementation="static", disable_compile=True)
    return model, None


@job
def padded_to_the_longest():
    model = small("Qwen2Config", "Qwen2ForCausalLM")
    lengths = torch.tensor([40, 100, 70, 128]).cuda()

    def loss_of():
        longest = int(lengths.max())
        data = ids(4, longest)
        mask = torch.arange(longest, device="cuda") < lengths[:, None]
        return model(input_ids=data, attention_mask=mask.long(), labels=data.masked_fill(~mask, -100)).loss

    return train(model, adamw(model), loss_of)


@job
def loss_on_the_answer_only():
    model = small("Qwen2Config", "Qwen2ForCausalLM")
    data = ids(4, 128)
    is_answer = (torch.arange(128, device="cuda") >= 64).expand(4, -1)

    def loss_of():
        hidden = model.model(input_ids=data).last_hidden_state
        return F.cross_entropy(model.lm_head(hidden[is_answer]), data[is_answer])

    return train(model, adamw(model), loss_of)


@job
def resumed_on_the_device():
    def start():
        model = small("Qwen2Config", "Qwen2ForCausalLM")
        return model, adamw(model), language(model)

    model, optimizer, loss_of = start()
    train(model, optimizer, loss_of, 1)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    del model, optimizer, loss_of
    model, optimizer, loss_of = start()
    saved = torch.load(file, map_location="cuda")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    del saved
    return train(model, optimizer, loss_of, 2)


@job
def distillation():
    teacher, student = llama(num_hidden_layers=6).cuda().eval(), llama(num_hidden_layers=2).cuda()
    data = ids(2, 128, 32000)

    def loss_of():
        with torch.no_grad():
            target = teacher(data).logits.softmax(-1)
        return F.kl_div(student(data).logits.log_softmax(-1), target, reduction="batchmean")

    _, optimizer = train(student, adamw(student), loss_of)
    return nn.ModuleList([teacher, student]), optimizer


# Trainers -------------------------------------------------------------------------------------------------------------


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<eos>", "<unk>", *(f"w{number}" for number in range(997))]
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def chat_model():
    return small("Qwen2Config", "Qwen2ForCausalLM", eos_token_id=1, pad_token_id=0, bos_token_id=None)


COMMON = dict(output_dir="out", max_steps=3, report_to=[], logging_steps=1, bf16=True, save_strategy="no")


def finish(trainer):
    trainer.train()
    return trainer.model, trainer.optimizer


@job
def hf_trainer():
    from transformers import Trainer, TrainingArguments

    data = [{"input_ids": torch.arange(64), "labels": torch.arange(64)} for _ in range(64)]
    return finish(Trainer(chat_model(), TrainingArguments(per_device_train_batch_size=8, **COMMON), train_dataset=data))


@job
def trl_sft():
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    data = Dataset.from_dict({"text": [f"w1 w2 w{number} w4" for number in range(64)]})
    options = SFTConfig(per_device_train_batch_size=4, max_length=64, **COMMON)
    return finish(SFTTrainer(chat_model(), options, train_dataset=data, processing_class=tokenizer()))


@job
def trl_dpo():
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    rows = {"prompt": [f"w1 w{n}" for n in range(32)], "chosen": [" w5 w6"] * 32, "rejected": [" w8"] * 32}
    options = DPOConfig(per_device_train_batch_size=4, **COMMON)
    trainer = DPOTrainer(
        chat_model(), chat_model(), options, train_dataset=Dataset.from_dict(rows), processing_class=tokenizer()
    )
    trainer.train()
    return nn.ModuleList([trainer.model, trainer.ref_model]), trainer.optimizer


@job
def trl_grpo():
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    data = Dataset.from_dict({"prompt": [f"w1 w2 w3 w{number}" for number in range(32)]})
    options = GRPOConfig(per_device_train_batch_size=8, num_generations=4, max_completion_length=16, **COMMON)

    def reward(completions, **_):
        return [float(len(completion)) for completion in completions]

    return finish(GRPOTrainer(chat_model(), reward, args=options, train_dataset=data, processing_class=tokenizer()))


@job
def lightning():
    import lightning

    class Task(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 10))

        def training_step(self, batch, _):
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss, prog_bar=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    data = torch.utils.data.TensorDataset(torch.randn(64, 256), torch.randint(10, (64,)))
    task = Task()
    trainer = lightning.Trainer(max_steps=4, logger=False, enable_checkpointing=False, accelerator="gpu", devices=1)
    trainer.fit(task, torch.utils.data.DataLoader(data, batch_size=16))
    return None


# Reinforcement learning -----------------------------------------------------------------------------------------------


@job
def rollouts_in_a_plain_loop():
    model = llama(eos_token_id=2, pad_token_id=0).cuda()
    optimizer = adamw(model)
    for _ in range(2):
        prompts = ids(4, 8)
        texts = model.generate(prompts, max_new_tokens=24, do_sample=True)
        lengths = (texts[:, 8:] != 0).sum(-1)
        rewards = (lengths.float() - lengths.float().mean()) / (lengths.float().std() + 1e-4)
        logs = model(texts).logits[:, 7:-1].log_softmax(-1)
        picked = logs.gather(-1, texts[:, 8:, None])[..., 0]
        loss = -(picked * rewards[:, None]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        completions = [text[: int(length)] for text, length in zip(texts.tolist(), lengths)]
        print(len(completions), loss.item())
    return model, optimizer


@job
def ppo_on_the_device():
    policy = nn.Sequential(nn.Linear(8, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 5)).cuda()
    optimizer = adamw(policy)
    for _ in range(3):
        state, states, actions, dones = torch.randn(512, 8, device="cuda"), [], [], []
        for step in range(16):
            with torch.no_grad():
                action = torch.distributions.Categorical(logits=policy(state)[:, :4]).sample()
            states.append(state)
            actions.append(action)
            dones.append((action == step % 4).float())
            state = state + F.one_hot(action, 8) * 0.1
        states, actions, dones = torch.cat(states), torch.cat(actions), torch.cat(dones)
        for part in torch.randperm(len(states), device="cuda").chunk(4):
            out = policy(states[part])
            logs = torch.distributions.Categorical(logits=out[:, :4]).log_prob(actions[part])
            loss = (-(logs * dones[part]) + out[:, 4].square()).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
    print(dones.mean().item(), loss.item())
    optimizer.zero_grad()
    return policy, optimizer


@job
def dqn_with_replay():
    net, target = (nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 4)).cuda() for _ in range(2))
    optimizer = adamw(net)
    memory = torch.zeros(10000, 8, device="cuda")
    for step in range(8):
        state = torch.randn(1, 8, device="cuda")
        action = net(state).argmax(-1).item() if torch.rand(()).item() > 0.5 else 1
        memory[step] = state + action
        picked = memory[torch.randint(0, 10000, (64,), device="cuda")]
        loss = F.smooth_l1_loss(net(picked).max(-1).values, 0.9 * target(picked).max(-1).values.detach())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return nn.ModuleList([net, target]), optimizer


# Vision and audio -----------------------------------------------------------------------------------------------------


@job
def vit():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512)
    model = ViTForImageClassification(config).cuda()
    images, labels = torch.randn(8, 3, 224, 224, device="cuda"), torch.randint(0, 2, (8,), device="cuda")

    def loss_of():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(pixel_values=images, labels=labels).loss

    return train(model, adamw(model), loss_of)


@job
def clip():
    from transformers import CLIPConfig, CLIPModel

    sizes = dict(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4)
    model = CLIPModel(CLIPConfig(text_config=dict(sizes), vision_config=dict(sizes), projection_dim=64)).cuda()
    images, texts = torch.randn(8, 3, 224, 224, device="cuda"), ids(8, 77, 49000)
    texts[:, -1] = 49407
    return train(model, adamw(model), lambda: model(input_ids=texts, pixel_values=images, return_loss=True).loss)


@job
def whisper():
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        d_model=128,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=256,
        decoder_ffn_dim=256,
    )
    model = WhisperForConditionalGeneration(config).cuda()
    sound, text = torch.randn(4, 80, 3000, device="cuda"), ids(4, 32, 50000)
    return train(model, adamw(model), lambda: model(input_features=sound, labels=text).loss)


@job
def wav2vec2():
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256)
    model = Wav2Vec2ForCTC(config).cuda()
    sound, text = torch.randn(2, 16000, device="cuda"), torch.randint(1, 30, (2, 10), device="cuda")
    return train(model, adamw(model), lambda: model(input_values=sound, labels=text).loss)


@job
def resnet50_channels_last():
    from torchvision.models import resnet50

    model = resnet50().cuda().to(memory_format=torch.channels_last)
    images = torch.randn(8, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (8,), device="cuda")

    def loss_of():
        with torch.autocast("cuda", dtype=torch.float16):
            return F.cross_entropy(model(images), labels)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return train(model, optimizer, loss_of, clip=False, scaler=torch.amp.GradScaler())


@job
def mask_rcnn():
    from torchvision.models.detection import maskrcnn_resnet50_fpn

    model = maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=5).cuda()
    images = [torch.rand(3, 320, 320, device="cuda") for _ in range(2)]
    boxes = torch.tensor([[20.0, 30.0, 120.0, 200.0], [50.0, 60.0, 300.0, 250.0]], device="cuda")
    masks = torch.zeros(2, 320, 320, dtype=torch.uint8, device="cuda")
    targets = [{"boxes": boxes, "labels": torch.tensor([1, 2], device="cuda"), "masks": masks} for _ in images]
    return train(model, torch.optim.SGD(model.parameters(), lr=0.01), lambda: sum(model(images, targets).values()), 2)


@job
def dcgan():
    generator = nn.Sequential(
        nn.ConvTranspose2d(64, 128, 4), nn.BatchNorm2d(128), nn.ReLU(), nn.ConvTranspose2d(128, 3, 4, 2, 1), nn.Tanh()
    ).cuda()
    critic = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 1, 4), nn.Flatten()).cuda()
    both = nn.ModuleList([generator, critic])
    first, second = adamw(generator), adamw(critic)
    real = torch.randn(32, 3, 8, 8, device="cuda")
    for _ in range(3):
        fake = generator(torch.randn(32, 64, 1, 1, device="cuda"))
        loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
        loss.backward()
        second.step()
        both.zero_grad()
        F.softplus(-critic(fake)).mean().backward()
        first.step()
        both.zero_grad()
        print(loss.item())
    first.state.update(second.state)
    del fake, loss
    return both, first


@job
def diffusion():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.time, self.down = nn.Embedding(1000, 64), nn.Conv2d(3, 64, 3, padding=1)
            self.norm, self.up = nn.GroupNorm(8, 64), nn.Conv2d(64, 3, 3, padding=1)

        def forward(self, images, times):
            return self.up(F.silu(self.norm(self.down(images) + self.time(times)[:, :, None, None])))

    model = Net().cuda()
    scale = torch.linspace(1, 0, 1000, device="cuda")
    images = torch.randn(16, 3, 32, 32, device="cuda")

    def loss_of():
        times, noise = torch.randint(0, 1000, (16,), device="cuda"), torch.randn_like(images)
        kept = scale[times][:, None, None, None]
        return F.mse_loss(model(kept * images + (1 - kept) * noise, times), noise)

    return train(model, adamw(model), loss_of)


# Others ---------------------------------------------------------------------------------------------------------------


@job
def lstm_packed():
    embedding, lstm, head = nn.Embedding(1000, 128), nn.LSTM(128, 256, batch_first=True), nn.Linear(256, 1000)
    model = nn.ModuleList([embedding, lstm, head]).cuda()
    lengths, data = torch.tensor([64, 50, 30, 20]), ids(4, 64)

    def loss_of():
        packed = nn.utils.rnn.pack_padded_sequence(embedding(data), lengths, batch_first=True)
        out, _ = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
        return F.cross_entropy(head(out).flatten(0, 1), data.flatten())

    return train(model, adamw(model), loss_of)


@job
def graph_network():
    model = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 7)]).cuda()
    features, edges = torch.randn(1000, 64, device="cuda"), torch.randint(0, 1000, (2, 5000), device="cuda")
    is_train, labels = torch.rand(1000, device="cuda") < 0.3, torch.randint(0, 7, (1000,), device="cuda")

    def loss_of():
        hidden = features
        for layer in model:
            count = int(edges.max()) + 1
            out = torch.zeros(count, hidden.shape[1], device="cuda").index_add_(0, edges[1], hidden[edges[0]])
            hidden = layer(out.relu())
        return F.cross_entropy(hidden[is_train[: len(hidden)]], labels[: len(hidden)][is_train[: len(hidden)]])

    return train(model, adamw(model), loss_of)


@job
def recommender():
    tables = nn.ModuleList(nn.EmbeddingBag(10000, 32, mode="sum") for _ in range(4))
    model = nn.ModuleList([tables, nn.Linear(128, 1)]).cuda()
    bags = torch.arange(0, 2048, 4, device="cuda")

    def loss_of():
        parts = [table(torch.randint(0, 10000, (2048,), device="cuda"), bags) for table in tables]
        return model[1](torch.cat(parts, 1)).sigmoid().log().neg().mean()

    return train(model, adamw(model), loss_of)


@job
def unique_categories():
    model = nn.Embedding(5000, 64).cuda()
    data = torch.randint(0, 5000, (4096,), generator=torch.Generator().manual_seed(1)).cuda()

    def loss_of():
        values, places = torch.unique(data, return_inverse=True)
        return model(values)[places].square().mean() + values.numel() * 0

    return train(model, adamw(model), loss_of)


@job
def early_stopping():
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1)).cuda()
    optimizer, best, bad = adamw(model), float("inf"), 0
    for _ in range(5):
        train(model, optimizer, lambda: model(torch.randn(64, 256, device="cuda")).square().mean(), 1)
        with torch.no_grad():
            value = model(torch.randn(64, 256, device="cuda")).square().mean().item()
        best, bad = (value, 0) if value < best else (best, bad + 1)
        if bad == 2:
            break
    return model, optimizer


@job
def skips_steps_that_are_not_finite():
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1)).cuda()
    optimizer = adamw(model)
    for _ in range(3):
        loss = model(torch.randn(64, 256, device="cuda")).square().mean()
        if not torch.isfinite(loss):
            continue
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):
            optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


@job
def contrastive_hard_negatives():
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()
    labels = torch.arange(64, device="cuda") % 8

    def loss_of():
        out = F.normalize(model(torch.randn(64, 128, device="cuda")), dim=1)
        similar = out @ out.T
        same = labels[:, None] == labels[None]
        positive = similar[same & ~torch.eye(64, dtype=torch.bool, device="cuda")]
        negative = similar[~same].topk(128).values
        return F.softplus(negative).mean() - positive.mean()

    return train(model, adamw(model), loss_of)


@job
def packed_sequences():
    model = small("Qwen2Config", "Qwen2ForCausalLM")
    starts = torch.tensor([0, 40, 100, 128], device="cuda")
    positions = torch.cat([torch.arange(int(b - a), device="cuda") for a, b in itertools.pairwise(starts)])[None]
    data = ids(1, 128)
    return train(model, adamw(model), lambda: model(input_ids=data, position_ids=positions, labels=data).loss)


def main():
    torch.manual_seed(0)
    made = JOBS[sys.argv[1]]()
    result = {"peak": torch.cuda.max_memory_allocated()}
    if made is not None:
        gc.collect()
        model, optimizer = made
        result.update(states=blocks(tensors_of(model, getattr(optimizer, "optimizer", optimizer))))
        result.update(held=torch.cuda.memory_allocated())
    print(json.dumps(result))


if __name__ == "__main__":
    main()
