"""Dry runs of programs that save: no file that existed before may change, and what is saved can be read back.

usage: kept_files.py OOMSCOPE PYTHON DIRECTORY [NAME..]

PYTHON has PyTorch built for CUDA. DIRECTORY is new and not within a temporary directory, where new files are created in
place. Each program starts in a project with real checkpoints and logs. It runs as a dry run of one H100; afterwards the
project is compared with its state before. A program whose package is missing is skipped.
"""

import os
import subprocess
import sys

COMMON = """
import os, sys, torch
from torch import nn
def model():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
def train(net, steps=2):
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(steps):
        net(torch.randn(8, 64, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer
"""

PROGRAMS = {
    "best": """
net = model().cuda()
optimizer = train(net)
torch.save(net.state_dict(), "best.pt")
assert list(torch.load("best.pt", weights_only=True)) == list(net.state_dict())
torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoints/last.pt")
net.load_state_dict(torch.load("checkpoints/last.pt", map_location="cpu", mmap=True)["model"])
with open("log.txt", "a") as log:
    log.write("step 2\\n")
""",
    "rotation": """
import glob, shutil
from pathlib import Path
net = model().cuda()
for step in (100, 200, 300):
    train(net, 1)
    target = Path("checkpoints") / f"step-{step}"
    target.mkdir(exist_ok=True)
    torch.save(net.state_dict(), target / "model.pt")
    for old in sorted(Path("checkpoints").glob("step-*"), key=lambda path: int(path.name.split("-")[1]))[:-2]:
        shutil.rmtree(old)
assert sorted(glob.glob("checkpoints/step-*")) == ["checkpoints/step-200", "checkpoints/step-300"]
""",
    "atomic": """
import tempfile
net = model().cuda()
train(net)
torch.save(net.state_dict(), "best.pt.tmp")
os.replace("best.pt.tmp", "best.pt")
with tempfile.NamedTemporaryFile(dir=".", delete=False) as file:
    torch.save(net.state_dict(), file)
os.rename(file.name, "checkpoints/last.pt")
if os.path.lexists("latest"):
    os.unlink("latest")
os.symlink("checkpoints", "latest")
torch.save(net.state_dict(), "latest/last.pt")
assert torch.load("latest/last.pt", weights_only=True)["0.weight"].shape == (128, 64)
""",
    "safetensors": """
from safetensors import safe_open
from safetensors.torch import load_file, save_file, save_model
net = model().cuda()
train(net)
save_file(net.state_dict(), "model.safetensors")
save_model(net, "checkpoints/model.safetensors")
assert load_file("model.safetensors", device="cuda")["0.weight"].shape == (128, 64)
with safe_open("checkpoints/model.safetensors", framework="pt") as file:
    assert "0.weight" in file.keys()
""",
    "distributed": """
import torch.distributed.checkpoint as dcp
net = model().cuda()
train(net)
dcp.save({"model": net.state_dict()}, checkpoint_id="checkpoints/dcp")
state = {"model": net.state_dict()}
dcp.load(state, checkpoint_id="checkpoints/dcp")
assert os.path.exists("checkpoints/dcp/.metadata")
""",
    "jit": """
net = torch.jit.trace(model().cuda(), torch.randn(2, 64, device="cuda"))
torch.jit.save(net, "best.pt")
torch.jit.load("best.pt")
""",
    "export": """
net = model().cuda()
torch.export.save(torch.export.export(net, (torch.randn(2, 64, device="cuda"),)), "best.pt")
torch.export.load("best.pt")
from torch.package import PackageExporter, PackageImporter
with PackageExporter("checkpoints/last.pt") as package:
    package.save_pickle("results", "sizes.pkl", [64, 128])
assert PackageImporter("checkpoints/last.pt").load_pickle("results", "sizes.pkl") == [64, 128]
""",
    "numpy": """
import json, pickle, csv
import numpy as np
net = model().cuda()
train(net)
np.save("predictions.npy", net(torch.randn(4, 64, device="cuda")).detach().cpu().numpy())
np.savez("best.npz", weight=net[0].weight.detach().cpu())
json.dump({"loss": 0}, open("metrics.json", "w"))
pickle.dump([1], open("checkpoints/last.pt", "wb"))
with open("metrics.csv", "a", newline="") as file:
    csv.writer(file).writerow([2, 0.0])
assert np.load("predictions.npy").shape == (4, 64)
assert open("metrics.csv").read().startswith("step,loss")
""",
    "workers": """
from torch.utils.data import DataLoader, Dataset
class Files(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, at):
        return torch.load(f"data/{at}.pt", weights_only=True)
os.makedirs("data", exist_ok=True)
for at in range(8):
    torch.save(torch.randn(64), f"data/{at}.pt")
net = model().cuda()
for batch in DataLoader(Files(), batch_size=4, num_workers=2):
    net(batch.cuda()).sum().backward()
os.remove("log.txt")
""",
    "processes": """
import subprocess
net = model().cuda()
train(net)
torch.save(net.state_dict(), "best.pt")
code = "import torch; torch.save(len(torch.load('best.pt')), 'checkpoints/last.pt'); import os; os.remove('log.txt')"
subprocess.run([sys.executable, "-c", code], check=True)
assert torch.load("checkpoints/last.pt") == 4 and not os.path.exists("log.txt")
""",
    "hydra": """
import logging
os.makedirs("outputs/1")
os.chdir("outputs/1")
logging.basicConfig(filename="train.log", level=logging.INFO)
logging.info("start")
net = model().cuda()
train(net)
torch.save(net.state_dict(), "model.pt")
torch.save(net.state_dict(), "../../best.pt")
assert os.listdir(".") == ["train.log", "model.pt"] or os.listdir(".") == ["model.pt", "train.log"]
""",
    "tensorboard": """
from torch.utils.tensorboard import SummaryWriter
net = model().cuda()
train(net)
writer = SummaryWriter("runs/1")
writer.add_scalar("loss", 0.0, 1)
writer.close()
assert os.listdir("runs/1")
""",
    "trainer": """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
net = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=1000))
data = [{"input_ids": torch.arange(32), "labels": torch.arange(32)} for _ in range(24)]
args = TrainingArguments("checkpoints", max_steps=6, save_steps=2, save_total_limit=1, logging_steps=1,
    per_device_train_batch_size=4, report_to=[])
trainer = Trainer(net, args, train_dataset=data)
trainer.train()
assert [name for name in os.listdir("checkpoints") if name.startswith("checkpoint-")] == ["checkpoint-6"]
trainer.save_model("final")
GPT2LMHeadModel.from_pretrained("final").cuda()
args.max_steps = 8
Trainer(net, args, train_dataset=data).train(resume_from_checkpoint=True)
assert os.path.exists("checkpoints/checkpoint-8/model.safetensors")
""",
    "accelerate": """
from accelerate import Accelerator
accelerator = Accelerator()
net = model()
net, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters()))
accelerator.backward(net(torch.randn(4, 64, device="cuda")).sum())
optimizer.step()
accelerator.save_state("checkpoints/state")
accelerator.load_state("checkpoints/state")
accelerator.save_model(net, "best")
""",
    "lightning": """
import lightning as L
from torch.utils.data import DataLoader
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = model()
    def training_step(self, batch, index):
        loss = self.net(batch).sum()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
callback = L.pytorch.callbacks.ModelCheckpoint("checkpoints", filename="last", enable_version_counter=False)
trainer = L.Trainer(max_epochs=2, callbacks=[callback], enable_progress_bar=False)
trainer.fit(Model(), DataLoader(torch.randn(16, 64), batch_size=4))
assert os.path.exists("checkpoints/last.ckpt"), os.listdir("checkpoints")
""",
    "sqlite": """
import sqlite3
net = model().cuda()
train(net)
with sqlite3.connect("trials.db") as trials:
    trials.execute("insert into trials values (2)")
assert len(sqlite3.connect("trials.db").execute("select * from trials").fetchall()) == 2
""",
}


# Of a project, with results of an earlier, real run.
FILES = """
best.pt best.npz model.safetensors log.txt metrics.json predictions.npy checkpoints/last.pt checkpoints/last.ckpt
checkpoints/step-100/model.pt checkpoints/checkpoint-2/model.safetensors runs/1/events
"""


def make_project(directory):
    """A project with results of an earlier, real run."""
    import sqlite3

    for path in ("checkpoints/step-100/model.pt", "checkpoints/checkpoint-2/model.safetensors", "runs/1/events"):
        os.makedirs(os.path.join(directory, os.path.dirname(path)))
    for path in FILES.split():
        with open(os.path.join(directory, path), "w") as file:
            file.write("real\n")
    with open(os.path.join(directory, "metrics.csv"), "w") as file:
        file.write("step,loss\n1,0.5\n")
    with sqlite3.connect(os.path.join(directory, "trials.db")) as trials:
        trials.execute("create table trials (value)")
        trials.execute("insert into trials values (1)")


def state_of(directory):
    state = {}
    for folder, folders, files in os.walk(directory):
        for name in folders + files:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    state[path] = (file.read(), os.stat(path).st_mtime_ns)
            else:
                state[path] = None
    return state


def main(oomscope, python, directory, *names):
    os.makedirs(directory)
    failed = 0
    for name in names or PROGRAMS:
        project, out = os.path.join(directory, name), os.path.join(directory, name + "-out")
        make_project(project)
        script = os.path.join(project, "job.py")
        with open(script, "w") as file:
            file.write(COMMON + PROGRAMS[name])
        before = state_of(project)
        command = [
            os.path.abspath(oomscope),
            "dry-run",
            "-o",
            os.path.abspath(out),
            "--",
            python,
            os.path.abspath(script),
        ]
        result = subprocess.run(command, cwd=project, capture_output=True, text=True)
        after = state_of(project)
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        is_missing = "ModuleNotFoundError" in result.stderr
        is_good = result.returncode == 0 and not changed
        failed += not is_good and not is_missing
        print("%-12s %s" % (name, "skipped" if is_missing else "ok" if is_good else "exit code %d" % result.returncode))
        for path in changed:
            print("    changed: " + path)
        lines = result.stderr.splitlines()
        for line in lines if not is_good and not is_missing else lines[-1:]:
            print("    " + line)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(*sys.argv[1:])
