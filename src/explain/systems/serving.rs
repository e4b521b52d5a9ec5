//! Servers of language models. Each takes a share of the device at its start and refuses what does not fit into it.

use super::system::{ANY, System, before, behind};

const SERVING: System = System { kind: "serving", ..ANY };

const VLLM: System = System { name: "vLLM", title: "vLLM has no room for its KV cache", ..SERVING };

const VLLM_SHARE: &str =
    "Raise --gpu-memory-utilization (about 0.9 unless set) where the device has room.";
const VLLM_LESS: &str = "Let weights and activations take less of that share: --tensor-parallel-size over more GPUs, a quantized \
                         model, a smaller --max-num-batched-tokens and --max-num-seqs, --enforce-eager (no CUDA graphs).";
const VLLM_LENGTH: &str = "Lower --max-model-len to the longest request that you need; the message may estimate what fits.";
const VLLM_CACHE: &str = "Make the cache smaller or the room larger: --kv-cache-dtype fp8, --tensor-parallel-size over more GPUs.";

const SGLANG: System =
    System { name: "SGLang", title: "SGLang's memory pool is too small", ..SERVING };

const TGI: System = System {
    name: "Text Generation Inference",
    title: "Text Generation Inference is out of device memory",
    ..SERVING
};

const TENSORRT_LLM: System =
    System { name: "TensorRT-LLM", title: "TensorRT-LLM is out of device memory", ..SERVING };
const TENSORRT_LLM_ADVICE: &[&str] = &[
    "Lower free_gpu_memory_fraction of kv_cache_config (0.9 unless set): the KV cache takes that share of what is free.",
    "Lower max_batch_size, max_num_tokens and max_seq_len, or shard over more GPUs (tensor parallelism).",
    "nvidia-smi, before the start, shows what other processes hold.",
];

const LLAMA: System = System {
    name: "llama.cpp",
    title: "llama.cpp is out of device memory",
    means: "a buffer of llama.cpp does not fit on the device: weights, KV cache, or computation",
    advice: &[
        "Lower --n-gpu-layers (-ngl; num_gpu in Ollama): the rest of the layers stay in RAM.",
        "Lower the context (--ctx-size, -c; num_ctx in Ollama) and --ubatch-size (-ub).",
        "nvidia-smi shows what other processes hold.",
    ],
    ..SERVING
};
const LLAMA_VULKAN: &[&str] = &[
    "Lower --n-gpu-layers (-ngl): the rest of the layers stay in RAM.",
    "Lower the context (--ctx-size, -c) and --ubatch-size (-ub).",
    "A driver refuses one buffer above its own limit however much is free: vulkaninfo shows maxMemoryAllocationSize, \
     GGML_VK_FORCE_MAX_ALLOCATION_SIZE makes buffers smaller.",
];

pub(super) const ROWS: &[System] = &[
    System {
        words: &["No available memory for the cache blocks"],
        means: "nothing is left for vLLM's KV cache: weights, activations and CUDA graphs already take the whole share of the device \
                that --gpu-memory-utilization allows",
        advice: &[
            VLLM_SHARE,
            VLLM_LESS,
            "nvidia-smi, before the start: what other processes hold counts against the share.",
        ],
        ..VLLM
    },
    System {
        title: "vLLM finds too little of the device free",
        words: &["Free memory on device", "less than desired GPU memory utilization"],
        amounts: &[
            behind("free", "(", "free on the device when vLLM started"),
            before("capacity", ") on startup", "memory of the whole device"),
            before(
                "requested",
                "). Decrease",
                "what vLLM is told to take: --gpu-memory-utilization of the device",
            ),
        ],
        means: "less of the device is free at the start than vLLM is told to take: other processes hold the rest, or an engine \
                that has not ended yet",
        advice: &[
            "nvidia-smi, before the start, lists the processes on the device: stop those that are not needed.",
            "Lower --gpu-memory-utilization to less than what is free, divided by the device's memory.",
        ],
        ..VLLM
    },
    System {
        words: &["To serve at least one request", "KV cache is needed"],
        amounts: &[
            before(
                "requested",
                " KV cache is needed",
                "KV cache that one request of the longest length needs",
            ),
            behind("free", "available KV cache memory (", "what vLLM has left for the KV cache"),
        ],
        means: "one request of the longest length needs more KV cache than vLLM has",
        advice: &[VLLM_LENGTH, VLLM_SHARE, VLLM_CACHE],
        ..VLLM
    },
    System {
        words: &[
            "The model's max seq len",
            "larger than the maximum number of tokens that can be stored in KV cache",
        ],
        means: "one request of the longest length has more tokens than vLLM's KV cache has room for",
        advice: &[VLLM_LENGTH, VLLM_SHARE, VLLM_CACHE],
        ..VLLM
    },
    System {
        title: "vLLM is out of device memory as it warms up",
        words: &["CUDA out of memory occurred when warming up sampler"],
        means: "vLLM had given its share of the device to weights and KV cache, and the first batch of full size found too little \
                outside it",
        advice: &[
            "Lower --max-num-seqs.",
            "Lower --gpu-memory-utilization: the warm-up needs memory outside that share.",
        ],
        is_recordable: true,
        ..VLLM
    },
    System {
        title: "vLLM could not measure the device's memory",
        words: &["Error in memory profiling"],
        means: "memory of the device changed while vLLM measured it: another process gave memory back at that moment",
        advice: &[
            "Start engines that share a device one after the other, each with its own --gpu-memory-utilization.",
        ],
        ..VLLM
    },
    System {
        words: &["Not enough memory. Please try to increase --mem-fraction-static"],
        means: "nothing is left for SGLang's KV cache: the weights already take the share of the device that --mem-fraction-static \
                gives to weights and cache together",
        advice: &[
            "Raise --mem-fraction-static, as long as the rest of the device holds activations and CUDA graphs.",
            "Let the weights take less: --tp over more GPUs, --quantization. For activations: a smaller --chunked-prefill-size and --cuda-graph-max-bs.",
        ],
        ..SGLANG
    },
    System {
        title: "SGLang has no slot for another request",
        words: &["alloc_req_slots runs out of memory"],
        means: "more requests run at once than SGLang's table has slots: a count that it set itself, not memory of the device",
        advice: &["Lower --max-running-requests."],
        ..SGLANG
    },
    System {
        words: &["Prefill out of memory. Try to lower your batch size"],
        means: "SGLang's KV cache has no room for the tokens of a new request",
        advice: &[
            "Raise --mem-fraction-static: the KV cache is the share of it that weights leave.",
            "Lower --max-running-requests or --chunked-prefill-size.",
        ],
        ..SGLANG
    },
    System {
        words: &["Decode out of memory. Try to lower your batch size"],
        means: "SGLang's KV cache has no room for the next tokens of the requests that run",
        advice: &[
            "Raise --mem-fraction-static: the KV cache is the share of it that weights leave.",
            "Lower --max-running-requests, or raise --schedule-conservativeness.",
        ],
        ..SGLANG
    },
    System {
        title: "SGLang finds unlike devices",
        words: &["The memory capacity is unbalanced"],
        means: "one GPU of those that SGLang is to use has much less free than another: other processes hold it",
        advice: &[
            "nvidia-smi, before the start, lists the processes on each device: stop those that are not needed.",
        ],
        ..SGLANG
    },
    System {
        words: &["Not enough memory to handle", "total tokens"],
        means: "as it warmed up, the server had no device memory for a batch of as many tokens as it may hold",
        advice: &[
            "Lower --max-batch-total-tokens, or leave it unset: the server then works it out.",
            "Lower --max-batch-prefill-tokens and --max-input-tokens; shard (--num-shard) or quantize (--quantize).",
        ],
        ..TGI
    },
    System {
        words: &["Not enough memory to handle", "prefill tokens"],
        means: "as it warmed up, the server had no device memory for a prefill of as many tokens as it allows",
        advice: &[
            "Lower --max-batch-prefill-tokens and --max-input-tokens.",
            "Shard over more GPUs (--num-shard) or quantize (--quantize); --cuda-memory-fraction bounds what it takes.",
        ],
        ..TGI
    },
    System {
        words: &["Executor creation failed due to insufficient GPU memory"],
        means: "a part of TensorRT-LLM's executor found too little device memory; the next lines of the log name the part and what \
                each took",
        advice: TENSORRT_LLM_ADVICE,
        ..TENSORRT_LLM
    },
    System {
        words: &["[TensorRT-LLM][ERROR]", "out of memory"],
        means: "a call of TensorRT-LLM to CUDA found no device memory",
        advice: TENSORRT_LLM_ADVICE,
        ..TENSORRT_LLM
    },
    System {
        name: "llama.cpp",
        title: "llama.cpp is out of device memory",
        words: &["ggml_backend_", "allocating", "out of memory"],
        amounts: &[behind(
            "requested",
            "allocating ",
            "one buffer: weights, KV cache, or computation",
        )],
        means: "one buffer of llama.cpp does not fit on the device",
        advice: &[
            "Lower --n-gpu-layers (-ngl): the rest of the layers stay in RAM.",
            "Lower --ctx-size (-c) and --ubatch-size (-ub); --cache-type-k q8_0 and --cache-type-v q8_0 halve the KV cache.",
            "With several GPUs, --tensor-split says how much goes to each.",
        ],
        ..SERVING
    },
    System { words: &["CUDA error 2 at ", "ggml-cuda", "out of memory"], ..LLAMA },
    System {
        words: &["current device: ", ", in function "],
        goes_on_from: "CUDA error: out of memory",
        ..LLAMA
    },
    System {
        words: &["ggml_vulkan: ", "emory allocation of size"],
        amounts: &[behind("requested", "allocation of size ", "the buffer that Vulkan refused")],
        advice: LLAMA_VULKAN,
        ..LLAMA
    },
    System {
        title: "A buffer of llama.cpp is larger than the device allows",
        words: &["ggml_vulkan: ", "exceeds device buffer size limit: ErrorOutOfDeviceMemory"],
        means: "one buffer of llama.cpp is larger than the Vulkan driver allows, however much is free",
        advice: LLAMA_VULKAN,
        ..LLAMA
    },
    System {
        words: &["ggml_vulkan: ", "ErrorOutOfDeviceMemory"],
        advice: LLAMA_VULKAN,
        is_sign: true,
        ..LLAMA
    },
    System {
        title: "A buffer of llama.cpp is too small",
        words: &["not enough space in the buffer"],
        means: "llama.cpp had measured a buffer smaller than the computation then needed: a defect of that version, not a full device",
        advice: &["Take a newer llama.cpp (or llama-cpp-python), and a smaller batch until then."],
        ..LLAMA
    },
    System {
        name: "ExLlama",
        title: "A model does not fit into what ExLlama may use",
        words: &["Insufficient VRAM"],
        means: "model and cache together do not fit on the GPUs that ExLlama may use; what it reserves for activations counts too",
        advice: &[
            "Shorten the cache: max_seq_len (cache_size), or quantize it (Q4, Q6, Q8 instead of FP16).",
            "Take a model of fewer bits, or more GPUs (gpu_split, and a smaller autosplit_reserve).",
            "nvidia-smi shows what other processes hold.",
        ],
        ..SERVING
    },
    System {
        name: "CTranslate2",
        title: "CTranslate2 is out of device memory",
        words: &["CUDA failed with error out of memory"],
        means: "CTranslate2 (faster-whisper, ..), which has an allocator of its own, found no device memory",
        advice: &[
            "Take a smaller compute_type (int8_float16, int8) or model, a smaller batch_size and beam_size.",
            "nvidia-smi shows what other processes hold; PyTorch in the same process keeps its cache (torch.cuda.empty_cache()).",
        ],
        ..SERVING
    },
    System {
        name: "Triton Inference Server",
        title: "Triton Inference Server's pool of device memory is full",
        words: &["Failed to allocate CUDA memory with byte size", "OUT_OF_MEMORY"],
        amounts: &[behind("requested", "byte size ", "one buffer of a request")],
        means: "the pool that the server keeps for inputs and outputs has no room, and the server takes pinned host memory instead, which is \
                slower. The device itself may have room",
        advice: &[
            "Raise the pool: --cuda-memory-pool-byte-size 0:536870912 (the GPU's index, and bytes).",
        ],
        ..SERVING
    },
    System {
        kind: "host",
        name: "Triton Inference Server",
        title: "Triton Inference Server's pool of pinned host memory is full",
        words: &["failed to allocate pinned system memory"],
        means: "the pool of pinned host memory has no room or could not be made, and the server takes ordinary host memory instead, which is slower",
        advice: &[
            "Raise the pool: --pinned-memory-pool-byte-size; the container may also lack shared memory (--shm-size).",
        ],
        ..ANY
    },
    System { words: &["cudaMalloc failed: out of memory"], ..LLAMA },
    System {
        name: "LMDeploy",
        title: "LMDeploy is out of device memory",
        words: &["[TM][ERROR]", "out of memory"],
        means: "LMDeploy's engine (TurboMind) found no device memory; its KV cache takes a share of what the weights leave free",
        advice: &[
            "Lower --cache-max-entry-count (0.8 unless set): the share of the free memory that the KV cache takes.",
            "Lower --session-len and --max-batch-size, quantize the KV cache (--quant-policy 8), or shard (--tp).",
        ],
        ..SERVING
    },
    System {
        kind: "host",
        name: "Ollama",
        title: "Out of host memory (RAM)",
        words: &["model requires more system memory"],
        amounts: &[
            behind("requested", "more system memory (", "RAM that the model needs"),
            behind("free", "than is available (", "RAM that is free"),
        ],
        means: "the part of the model that does not go to the GPU needs more host memory (RAM) than is free",
        advice: &["Use a smaller model or quantization, a smaller context (num_ctx), or free RAM."],
        ..ANY
    },
];
