"""The figures of `serving_starts.json` agree: people posted them when their serving engine had started.

A mistyped figure, option or shape of a model breaks one of the sums here. `kv_cache_gib` and `weights_gib` are those of
one GPU. `kv_layers` counts the layers that the cache is sized for, with the padding that equal groups of layers need.
"""

import json
import re

import pytest

from conftest import ROOT

FACTS = json.loads((ROOT / "tests/oracle/serving_starts.json").read_text())
MODELS, STARTS = FACTS["models"], FACTS["starts"]
GIB = 2**30
# No engine here allocates the cache in larger steps.
LARGEST_BLOCK_TOKENS = 64


def option(start, name):
    values = [text.split("=", 1)[1] for text in start["options"] if text.startswith("--%s=" % name)]
    return values[0] if values else None


def posted(*figures, where=lambda start: True):
    """The starts that have all of these figures."""
    found = [start for start in STARTS if all(figure in start for figure in figures) and where(start)]
    return pytest.mark.parametrize("start", found, ids=lambda start: start["model"])


def rounding(figures):
    """The most that a sum of so many figures with two decimals is off."""
    return 0.005 * figures + 1e-6


def element_size(start):
    return 4 if option(start, "dtype") == "float32" else 2


def head_dim(model):
    return model.get("head_dim") or model["hidden_size"] // model["num_attention_heads"]


def bytes_per_token(start):
    model = MODELS[start["model"]]
    element = 1 if option(start, "kv-cache-dtype") == "fp8" else element_size(start)
    layers = model.get("kv_layers") or model["num_hidden_layers"]
    layers /= start.get("pipeline_parallel", 1)
    if "kv_latent_size" in model:
        return layers * model["kv_latent_size"] * element
    heads = max(1, model["num_key_value_heads"] // start["tensor_parallel"])
    return layers * 2 * heads * head_dim(model) * element


def parameters(model):
    hidden, layers = model["hidden_size"], model["num_hidden_layers"]
    attention_heads = model["num_attention_heads"] + model["num_key_value_heads"]
    attention = 2 * hidden * head_dim(model) * attention_heads
    matrices = 2 if model["model_type"] == "phi" else 3
    experts = model.get("num_experts") or model.get("num_local_experts") or 1
    width = experts * model.get("moe_intermediate_size", model["intermediate_size"])
    width += model.get("shared_expert_intermediate_size", 0)
    embeddings = model["vocab_size"] * hidden * (1 if model["tie_word_embeddings"] else 2)
    return layers * (attention + matrices * hidden * width), embeddings


@posted("kv_cache_gib", "kv_cache_tokens")
def test_tokens_times_bytes_per_token_is_the_cache(start):
    token = bytes_per_token(start) / GIB
    unused = start["kv_cache_gib"] - start["kv_cache_tokens"] * token
    # SGLang posts keys and values apart.
    slack = rounding(2 if start["engine"] == "sglang" else 1)
    # Of pipeline stages with unequal memory the smallest cache decides, and the first one was posted.
    if "pipeline_parallel" in start:
        assert 0 <= unused < 0.02 * start["kv_cache_gib"]
    else:
        assert -slack <= unused <= slack + LARGEST_BLOCK_TOKENS * token


def is_whole_model(start):
    is_changed = option(start, "quantization") or option(start, "cpu-offload-gb") or "pipeline_parallel" in start
    return "hidden_size" in MODELS[start["model"]] and not is_changed


@posted("weights_gib", where=is_whole_model)
def test_parameters_times_bytes_are_the_weights(start):
    model = MODELS[start["model"]]
    element = element_size(start)
    in_layers, in_embeddings = parameters(model)
    expected = in_layers * model.get("quantized_bits", 8 * element) / 8 + in_embeddings * element
    expected /= GIB * start["tensor_parallel"]
    # Biases, norms and the tables of the rotary embedding, which are not split. SGLang's figure is the change of the
    # device's free memory, with the libraries that were loaded meanwhile.
    most = 0.3 if start["engine"] == "sglang" else 0.16
    assert -rounding(1) <= start["weights_gib"] - expected <= most


@posted("concurrency", "kv_cache_tokens")
def test_concurrency_is_tokens_by_length(start):
    length = option(start, "max-model-len") or MODELS[start["model"]]["max_position_embeddings"]
    expected = start["kv_cache_tokens"] / int(length)
    # With layers that have a window, a request is counted in whole blocks of each group of layers.
    assert start["concurrency"] == pytest.approx(expected, abs=0.0051, rel=0.002)


PARTS = ["weights_gib", "profile_peak_gib", "non_torch_gib", "kv_cache_gib"]


@posted("requested_gib", *PARTS)
def test_the_parts_add_up_to_what_was_requested(start):
    # Figures of a pipeline are of different stages.
    slack = 0.06 if "pipeline_parallel" in start else rounding(len(PARTS) + 1)
    assert sum(start[part] for part in PARTS) == pytest.approx(start["requested_gib"], abs=slack)


def test_every_start_names_its_source():
    for start in STARTS:
        assert re.match(r"https://\S+$", start["source"]), start
        assert start["engine"] in ("vllm", "sglang") and start["outcome"] in ("started", "failed")
    assert len({json.dumps(start, sort_keys=True) for start in STARTS}) == len(STARTS)
