"""Training beside vLLM in one process, as verl and TRL do it, on a tiny model. Records fixtures/engines:

    oomscope dry-run --gpu h100 -o sleeping -- python colocated.py DIR
    oomscope dry-run --gpu h100 -o awake -- python colocated.py DIR --awake --rows 24
    python colocated.py --clean sleeping/*.pickle.gz 2.14.0-colocated-sleep.pickle.gz
    python colocated.py --clean --no-trace awake/*.pickle.gz 2.14.0-colocated-no-history.pickle.gz

DIR has the configuration of a Llama. `--awake` is the mistake: vLLM keeps its memory while the program trains.
`--clean` writes a snapshot anew with neutral paths and host.
"""

import argparse
import gzip
import os
import pickle
import re
import sys

STEPS = 2


def train(directory, is_awake, rows):
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from vllm import LLM, SamplingParams

    llm = LLM(
        directory,
        enable_sleep_mode=True,
        gpu_memory_utilization=0.6,
        max_model_len=2048,
        enforce_eager=True,
        skip_tokenizer_init=True,
        load_format="dummy",
    )
    if not is_awake:
        llm.sleep(level=1)
    config = AutoConfig.from_pretrained(directory)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        if not is_awake:
            llm.wake_up()
        prompts = [{"prompt_token_ids": [1] * 64} for _ in range(4)]
        llm.generate(prompts, SamplingParams(max_tokens=8, detokenize=False))
        if not is_awake:
            llm.sleep(level=1)
        tokens = torch.randint(0, 100, (rows, 4096), device="cuda")
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def clean(source, target, has_trace):
    packages = os.path.join(sys.prefix, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
    here = os.path.dirname(os.path.abspath(__file__))
    paths = {packages: "/venv/lib/python3.11/site-packages", here: "/job", os.path.dirname(os.__file__): "/usr/lib"}

    def neutral(value):
        if isinstance(value, str):
            for path, other in paths.items():
                value = value.replace(path, other)
            return re.sub(r"^/.*/.recorder/", "/job/.recorder/", value)
        if isinstance(value, dict):
            return {neutral(key): neutral(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(neutral(part) for part in value)
        return value

    with gzip.open(source) as file:
        snapshot = pickle.load(file)
    snapshot = neutral(snapshot)
    snapshot["oomscope"].update(host="host", argv=["/job/colocated.py"], threads=[])
    if not has_trace:
        snapshot["device_traces"] = [[] for _ in snapshot["device_traces"]]
        del snapshot["oomscope"]
    frames = {}

    def share(frame):
        return frames.setdefault(tuple(frame.items()), frame)

    records = [entry for trace in snapshot["device_traces"] for entry in trace]
    records += [block for segment in snapshot["segments"] for block in segment["blocks"]] + snapshot["segments"]
    for record in records:
        if "frames" in record:
            record["frames"] = [share(frame) for frame in record["frames"]]
    with gzip.GzipFile(target, "wb", 9, mtime=0) as file:
        pickle.dump(snapshot, file, protocol=4)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--awake", action="store_true")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--no-trace", action="store_true")
    arguments = parser.parse_args()
    if arguments.clean:
        clean(*arguments.paths, has_trace=not arguments.no_trace)
    else:
        train(arguments.paths[0], arguments.awake, arguments.rows)
