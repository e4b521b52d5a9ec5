//! Other frameworks and libraries for computing, which have allocators of their own.

use super::system::{ANY, System, before, behind};

const FRAMEWORK: System = System { kind: "framework", ..ANY };

const JAX: System = System {
    name: "JAX (XLA)",
    title: "JAX is out of device memory",
    means: "XLA's allocator could not serve a program: buffers that are alive, and what the program needs for itself, exceed its \
            share of the device",
    advice: &[
        "XLA_PYTHON_CLIENT_MEM_FRACTION is the share that JAX takes at its start (0.75 unless set): 0.95 gives it more.",
        "nvidia-smi shows whether another process holds memory; JAX itself takes its share at once, which leaves little to others \
         in the same job (XLA_PYTHON_CLIENT_PREALLOCATE=false).",
        "Need less: a smaller batch, jax.checkpoint (rematerialization), donated buffers (donate_argnums), sharding.",
    ],
    ..FRAMEWORK
};

const TPU: System = System {
    name: "XLA on a TPU",
    title: "A program does not fit into the TPU's memory",
    means: "the compiled program needs more of the TPU's memory (HBM) than there is; it was not run",
    advice: &[
        "Need less: a smaller batch on each chip, sharding over more chips, jax.checkpoint (rematerialization), bfloat16.",
        "The lines below it list the largest allocations of the program; padding to tiles of 8 x 128 may multiply small shapes.",
    ],
    ..FRAMEWORK
};

const TENSORFLOW: System = System {
    name: "TensorFlow",
    title: "TensorFlow is out of device memory",
    means: "TensorFlow's allocator (BFC) could not serve a tensor; it takes nearly the whole device at its start, so another program \
            on the device leaves it less",
    advice: &[
        "Need less: a smaller batch or image, mixed precision, gradient checkpointing.",
        "nvidia-smi shows whether another process holds memory. tf.config.experimental.set_memory_growth(gpu, True) takes only \
         what is needed; TF_GPU_ALLOCATOR=cuda_malloc_async leaves fewer pieces.",
    ],
    ..FRAMEWORK
};

const TRITON: System = System {
    kind: "kernel-shared-memory",
    name: "Triton",
    title: "A Triton kernel needs more shared memory than the GPU has",
    means: "a kernel needs more shared memory, the small fast memory inside each multiprocessor, than this GPU gives to one block. \
            This is not device memory: the device may be empty, and a batch of half the size changes nothing",
    advice: &[
        "Take smaller block sizes or a lower num_stages in the kernel's configuration; an autotuner should skip configurations that do not fit.",
        "Kernels tuned for larger GPUs (A100, H100: 163 to 227 KiB) fail on smaller ones (99 KiB, or 64 KiB): look for a newer release of the \
         library with the kernel, or a switch that avoids it.",
    ],
    amounts: &[
        behind("requested", "Required: ", "shared memory that one block of the kernel needs"),
        behind("capacity", "ardware limit: ", "shared memory that one block may have on this GPU"),
    ],
    ..ANY
};

const TENSORRT: System = System {
    name: "TensorRT",
    title: "TensorRT is out of device memory",
    means: "TensorRT found too little device memory: for an engine at run time, or, while it builds one, for a tactic that it tried. \
            A build goes on without that tactic",
    advice: &[
        "Give a build less workspace: config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, bytes), trtexec --memPoolSize=workspace:2048.",
        "nvidia-smi shows what other processes hold; a smaller batch or optimization profile needs less.",
    ],
    ..FRAMEWORK
};

const ONNX: System = System {
    name: "ONNX Runtime",
    title: "ONNX Runtime is out of memory",
    means: "ONNX Runtime's arena could not grow for an operator. Arenas keep what they once had, and each session has its own",
    advice: &[
        "Need less: a smaller batch or input; an input of unusual size makes the arena grow for good.",
        "gpu_mem_limit of the CUDA provider is the most an arena may take, and arena_extend_strategy=kSameAsRequested lets it grow by what is \
         asked instead of doubling.",
        "nvidia-smi shows what other sessions and processes hold. A size that no machine has is a wrong shape.",
    ],
    ..FRAMEWORK
};

const BITSANDBYTES: System = System {
    name: "bitsandbytes",
    title: "bitsandbytes is out of memory",
    means: "a call of bitsandbytes to CUDA found no memory, outside PyTorch's allocator: PyTorch's cache may hold the rest of the device, and \
            paged optimizers also need host memory",
    advice: &[
        "Leave room on the device: a smaller batch, or torch.cuda.set_per_process_memory_fraction(0.9).",
        "nvidia-smi shows how full the device is; free shows the RAM that paged optimizers (PagedAdamW) take.",
    ],
    is_recordable: true,
    ..FRAMEWORK
};

const RMM: System = System {
    name: "RAPIDS (RMM)",
    title: "RMM is out of device memory",
    means: "RMM's pool (cuDF, cuML), which is not PyTorch's, could not serve a request; each pool keeps what the other cannot use",
    advice: &[
        "Let both use one pool: torch.cuda.memory.change_current_allocator(rmm.allocators.torch.rmm_torch_allocator).",
        "Give RMM a pool of bounded size (rmm.reinitialize(pool_allocator=True, maximum_pool_size=..)).",
    ],
    ..FRAMEWORK
};

const XGBOOST_ADVICE: &[&str] = &[
    "nvidia-smi shows what other processes hold; PyTorch in the same process keeps its cache (torch.cuda.empty_cache()).",
    "Need less: fewer rows or columns at once, smaller max_bin and max_depth, QuantileDMatrix instead of DMatrix.",
];

const FAISS: System = System {
    title: "Faiss is out of device memory",
    means: "Faiss found no device memory for an index, a search, or its scratch memory, 1.5 GiB on larger GPUs, which it takes at once, outside \
            PyTorch's allocator",
    advice: &[
        "Take less scratch memory: StandardGpuResources.setTempMemory(bytes), noTempMemory().",
        "Leave room on the device: PyTorch in the same process keeps its cache (torch.cuda.empty_cache()).",
        "A smaller or compressed index (IVFPQ, float16), or one sharded over GPUs.",
    ],
    ..FRAMEWORK
};

pub(super) const ROWS: &[System] = &[
    System {
        words: &["RESOURCE_EXHAUSTED", "Ran out of memory in memory space"],
        amounts: &[
            behind("requested", "Used ", "what the program needs"),
            before("capacity", " hbm. Exceeded", "the TPU's memory"),
        ],
        ..TPU
    },
    System {
        words: &["RESOURCE_EXHAUSTED", "Attempting to reserve"],
        amounts: &[
            behind("requested", "reserve ", "what the program needs for itself"),
            behind("free", "There are ", "free in the TPU's memory"),
        ],
        ..TPU
    },
    System {
        words: &["RESOURCE_EXHAUSTED", "Attempting to allocate"],
        amounts: &[
            behind("requested", "allocate ", "the buffer that could not be allocated"),
            behind("free", "There are ", "free in the TPU's memory"),
        ],
        ..TPU
    },
    System {
        words: &["RESOURCE_EXHAUSTED", "Out of memory while trying to allocate"],
        amounts: &[behind(
            "requested",
            "trying to allocate ",
            "the buffer that could not be allocated",
        )],
        ..JAX
    },
    System {
        words: &["Resource exhausted: Out of memory while trying to allocate"],
        amounts: &[behind(
            "requested",
            "trying to allocate ",
            "the buffer that could not be allocated",
        )],
        ..JAX
    },
    System {
        words: &["RESOURCE_EXHAUSTED", "Failed to allocate request for"],
        amounts: &[behind("requested", "request for ", "the buffer that could not be allocated")],
        ..JAX
    },
    System {
        words: &["RESOURCE_EXHAUSTED", "Out of memory allocating"],
        amounts: &[behind(
            "requested",
            "memory allocating ",
            "the buffer that could not be allocated",
        )],
        ..JAX
    },
    System {
        kind: "host",
        title: "Out of host memory (RAM)",
        words: &["OOM when allocating tensor with shape", "device:CPU:"],
        means: "TensorFlow could not allocate a tensor in host memory (RAM), not on the GPU",
        advice: &[
            "Need less RAM: a smaller batch or tensor, data read from disk in parts (tf.data) instead of one array.",
        ],
        ..TENSORFLOW
    },
    System { words: &["OOM when allocating tensor with shape"], ..TENSORFLOW },
    System {
        words: &["failed to allocate", "from device: ", "_OUT_OF_MEMORY"],
        amounts: &[before(
            "requested",
            ") from device",
            "what TensorFlow or XLA asked of the device at once",
        )],
        ..TENSORFLOW
    },
    System {
        words: &["failed to allocate", "from device: ", "OutOfMemory"],
        amounts: &[before(
            "requested",
            ") from device",
            "what TensorFlow or XLA asked of the device at once",
        )],
        advice: &[
            "rocm-smi --showpids shows whether another process holds memory; TensorFlow and JAX each take nearly the whole device.",
            "tf.config.experimental.set_memory_growth(gpu, True) takes only what is needed.",
        ],
        ..TENSORFLOW
    },
    System {
        words: &["_bfc) ran out of memory trying to allocate"],
        amounts: &[behind(
            "requested",
            "trying to allocate ",
            "what was asked of TensorFlow's allocator",
        )],
        ..TENSORFLOW
    },
    System { words: &["out of resource: shared memory"], ..TRITON },
    System {
        title: "A Triton kernel needs more tensor memory than the GPU has",
        words: &["out of resource: tensor memory"],
        means: "a kernel needs more tensor memory, which lies inside each multiprocessor, than this GPU has. This is not device memory",
        ..TRITON
    },
    System {
        words: &["BFCArena::AllocateRawInternal", "memory for requested buffer of size"],
        amounts: &[behind("requested", "buffer of size ", "the buffer that an operator asked for")],
        ..ONNX
    },
    System {
        title: "ONNX Runtime reached its own limit",
        words: &[
            "BFCArena::AllocateRawInternal",
            "Available memory of ",
            "is smaller than requested bytes of",
        ],
        amounts: &[
            behind("requested", "requested bytes of ", "the buffer that an operator asked for"),
            behind("free", "Available memory of ", "what the arena may still take"),
        ],
        means: "the arena may not grow as far as an operator needs: gpu_mem_limit is lower than that, while the device may have room",
        advice: &[
            "Raise gpu_mem_limit of the CUDA provider.",
            "Need less: a smaller batch or input.",
        ],
        ..ONNX
    },
    System { words: &["Error Code 2: OutOfMemory"], ..TENSORRT },
    System {
        words: &["Requested amount of memory ("],
        amounts: &[behind("requested", "memory (", "what TensorRT asked of the device")],
        ..TENSORRT
    },
    System { words: &["OutOfMemory Error in allocate"], is_sign: true, ..TENSORRT },
    System {
        words: &["Requested amount of GPU memory ("],
        amounts: &[behind("requested", "GPU memory (", "what TensorRT asked of the device")],
        ..TENSORRT
    },
    System { words: &["Cuda Error in ", "allocate: 2 (out of memory)"], ..TENSORRT },
    System { words: &["Error out of memory at line", "csrc"], ..BITSANDBYTES },
    System {
        name: "transformers",
        title: "A quantized model does not fit on the GPU",
        words: &[
            "Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM",
        ],
        means: "device_map placed part of a quantized model outside the GPU, as it does not fit into what the GPU has free, and bitsandbytes does \
                not run there",
        advice: &[
            "nvidia-smi shows what else is on the GPU: free it before the model is loaded.",
            "Take a smaller model or 4 instead of 8 bits, or give max_memory to from_pretrained. llm_int8_enable_fp32_cpu_offload=True with a \
             device_map of your own keeps the rest on the CPU, slowly.",
        ],
        ..BITSANDBYTES
    },
    System {
        name: "CuPy",
        title: "CuPy is out of device memory",
        words: &["cupy.cuda.memory.OutOfMemoryError"],
        amounts: &[behind(
            "requested",
            "Out of memory allocating ",
            "what CuPy asked of the device",
        )],
        means: "CuPy's pool, which is not PyTorch's, could not serve an array; each pool keeps what the other cannot use",
        advice: &[
            "Let both use one pool: cupy.cuda.set_allocator with PyTorch's (torch.cuda.caching_allocator_alloc), or give cached memory back \
             (torch.cuda.empty_cache(), cupy.get_default_memory_pool().free_all_blocks()).",
        ],
        ..FRAMEWORK
    },
    System {
        words: &["std::bad_alloc: RMM failure at", "Maximum pool size exceeded"],
        means: "RMM's pool (cuDF, cuML) may not grow as far as a request needs: its own limit, or the device is full",
        ..RMM
    },
    System { words: &["/rmm/mr/device/", "cudaErrorMemoryAllocation"], ..RMM },
    System { words: &["RMM_ERROR_OUT_OF_MEMORY"], ..RMM },
    System { words: &["std::bad_alloc: out_of_memory"], ..RMM },
    System {
        name: "Thrust",
        title: "A program of CUDA C++ is out of device memory",
        words: &["parallel_for failed: out of memory"],
        means: "a program or library written with Thrust (cuDF, XGBoost, MinkowskiEngine, ..) found no device memory, which it allocates outside \
                PyTorch's allocator",
        advice: XGBOOST_ADVICE,
        ..FRAMEWORK
    },
    System {
        name: "XGBoost",
        title: "XGBoost is out of device memory",
        words: &["Memory allocation error on worker", "out of memory"],
        means: "XGBoost found no device memory, which it allocates by itself; the lines below the message say how much was free",
        advice: XGBOOST_ADVICE,
        ..FRAMEWORK
    },
    System {
        name: "MXNet",
        title: "MXNet is out of device memory",
        words: &["pooled_storage_manager", "cudaMalloc failed: out of memory"],
        means: "MXNet's pool could not serve an array",
        advice: &[
            "nvidia-smi shows whether another process holds memory; a smaller batch needs less.",
            "MXNET_GPU_MEM_POOL_RESERVE is the share that the pool leaves free; MXNET_GPU_MEM_POOL_TYPE=Round keeps fewer odd sizes.",
        ],
        ..FRAMEWORK
    },
    System {
        name: "Faiss",
        words: &["to cudaMalloc ", "out of memory"],
        amounts: &[behind("requested", "to cudaMalloc ", "what Faiss asked of the device")],
        ..FAISS
    },
    System {
        name: "Faiss",
        words: &["StandardGpuResources: alloc fail", "out of memory"],
        amounts: &[behind("requested", " size ", "what Faiss asked of the device")],
        ..FAISS
    },
    System {
        name: "CUDA.jl",
        title: "Julia is out of device memory",
        words: &["Out of GPU memory"],
        amounts: &[behind(
            "requested",
            "trying to allocate ",
            "the array that could not be allocated",
        )],
        means: "CUDA.jl's pool could not serve an array; the next line of the message says how full the device is",
        advice: &[
            "GC.gc() and CUDA.reclaim() give back what is no longer used; CUDA.unsafe_free!(a) does so at once.",
            "nvidia-smi shows whether another process holds memory; JULIA_CUDA_HARD_MEMORY_LIMIT bounds this one.",
        ],
        ..FRAMEWORK
    },
    System {
        name: "MLX",
        title: "A buffer of MLX is larger than Metal allows",
        words: &["[metal::malloc] Attempting to allocate", "maximum allowed buffer size"],
        amounts: &[
            behind("requested", "to allocate ", "one array"),
            behind("limit", "buffer size of ", "the largest buffer that Metal allows"),
        ],
        means: "one array is larger than the largest buffer of this Mac, however much is free",
        advice: &[
            "Make the array smaller: a shorter prompt or context, a smaller batch or step of prefill.",
        ],
        ..FRAMEWORK
    },
    System {
        name: "PyTorch (MPS)",
        title: "A tensor is larger than Metal allows",
        words: &["Invalid buffer size: "],
        amounts: &[behind("requested", "buffer size: ", "one tensor")],
        means: "one tensor is larger than the largest buffer of this Mac, however much is free: mostly the scores of attention, which grow with \
                the square of the image or sequence",
        advice: &[
            "Make it smaller: attention in slices (enable_attention_slicing()), a smaller image, batch or sequence, float16.",
        ],
        ..FRAMEWORK
    },
    System {
        name: "DirectML",
        title: "DirectML is out of device memory",
        words: &["Could not allocate tensor with ", "not enough GPU video memory"],
        amounts: &[behind("requested", "tensor with ", "the tensor that could not be allocated")],
        means: "torch-directml could not place a tensor in the GPU's memory",
        advice: &[
            "Hold less: a smaller model, batch or image, float16.",
            "The task manager of Windows shows what else uses the GPU's dedicated and shared memory.",
        ],
        ..FRAMEWORK
    },
    System {
        name: "PaddlePaddle",
        title: "PaddlePaddle is out of device memory",
        words: &["Out of memory error on GPU"],
        amounts: &[behind("requested", "Cannot allocate ", "what Paddle asked of the device")],
        means: "Paddle's allocator could not serve a tensor",
        advice: &[
            "nvidia-smi shows whether another process holds memory; a smaller batch needs less.",
            "FLAGS_fraction_of_gpu_memory_to_use is the share that Paddle takes.",
        ],
        ..FRAMEWORK
    },
    System {
        name: "Metal",
        title: "A program on a Mac's GPU ran out of memory",
        words: &["kIOGPUCommandBufferCallbackErrorOutOfMemory"],
        means: "Metal, which the Mac's GPU runs under, had no memory for a command: CPU and GPU share it (MLX, PyTorch's MPS, ..)",
        advice: &[
            "Hold less: a smaller batch or model, a quantized one, a shorter context; close other programs.",
            "sysctl iogpu.wired_limit_mb is the most that the GPU may hold.",
        ],
        ..FRAMEWORK
    },
    System {
        name: "the driver",
        title: "The CUDA driver is out of memory",
        words: &["CUDA_ERROR_OUT_OF_MEMORY"],
        means: "a program asked the CUDA driver for memory beside PyTorch's allocator (Numba, JAX, a library) and the device had none",
        advice: &[
            "nvidia-smi, while the job runs, shows how full the device is and whether other processes use it.",
            "PyTorch's cache may hold the rest of the device: torch.cuda.empty_cache(), or torch.cuda.set_per_process_memory_fraction(0.8).",
        ],
        is_recordable: true,
        ..FRAMEWORK
    },
];
