//! The runtime, the driver, and libraries beneath PyTorch, which allocate device memory for themselves.

use super::system::{ANY, System, behind};

const LEAVE_ROOM: &str = "Leave room on the device: a smaller batch, or torch.cuda.set_per_process_memory_fraction(0.9), so that PyTorch's cache does not take all of it.";
const NVIDIA: &str = "nvidia-smi, while the job runs, shows how full the device is and whether \
                      other processes use it.";
const AMD: &str = "rocm-smi, while the job runs, shows how full the device is; rocm-smi --showpids lists its processes.";
const BLOCKING: &str = "Run once with CUDA_LAUNCH_BLOCKING=1: another error may come first.";

const RUNTIME: System = System {
    kind: "cuda-runtime",
    name: "CUDA",
    title: "The CUDA runtime is out of memory",
    means: "the CUDA runtime itself ran out of memory, outside PyTorch's allocator: for a context, a kernel, pinned \
            host memory or a library. The device was full before PyTorch requested memory for a tensor",
    advice: &[NVIDIA, LEAVE_ROOM],
    settled_by: Some("nvidia-smi, while the job runs, and a snapshot"),
    is_recordable: true,
    ..ANY
};

const LIBRARY: System = System {
    kind: "library",
    title: "A library is out of device memory",
    means: "the library found no device memory for its handle or workspace, which it allocates outside PyTorch's \
            allocator; PyTorch's cache may still hold free memory. The message also appears after a failed kernel, \
            for example an index out of range",
    advice: &[LEAVE_ROOM, NVIDIA, BLOCKING],
    settled_by: Some("the same run with CUDA_LAUNCH_BLOCKING=1, and nvidia-smi beside it"),
    is_recordable: true,
    ..ANY
};

const NCCL: System = System {
    kind: "nccl",
    name: "NCCL",
    title: "NCCL is out of device memory",
    means: "NCCL found no device memory for its buffers, which it allocates outside PyTorch's allocator; PyTorch's \
            cache may still hold free memory",
    advice: &[
        LEAVE_ROOM,
        "Fewer communicators and channels need less: each process group has buffers of its own (NCCL_MAX_NCHANNELS, NCCL_BUFFSIZE).",
        NVIDIA,
    ],
    settled_by: Some("nvidia-smi, while the job runs, and a snapshot"),
    is_recordable: true,
    ..ANY
};

const OPENCL: System = System {
    kind: "framework",
    name: "OpenCL",
    title: "OpenCL is out of device memory",
    means: "the OpenCL driver could not make a buffer: the device is full, or the buffer is larger than one may be \
            (CL_DEVICE_MAX_MEM_ALLOC_SIZE, often a quarter of the device)",
    advice: &[
        "clinfo shows the device's memory and the largest buffer (Max memory allocation).",
        "Need less: a smaller batch or data set, fewer bins or features in one buffer.",
    ],
    ..ANY
};

const XPU: System = System {
    kind: "xpu-runtime",
    name: "Level Zero",
    title: "The runtime of an Intel GPU is out of memory",
    means: "the runtime of the Intel GPU (SYCL on Level Zero) ran out of memory, outside PyTorch's allocator: for a \
            kernel, its scratch memory, an event or a library",
    advice: &[
        "xpu-smi, while the job runs, shows how full the device is and whether other processes use it.",
        "Hold less on the device: a smaller batch, torch.xpu.empty_cache() between phases.",
    ],
    settled_by: Some("xpu-smi, while the job runs"),
    ..ANY
};

pub(super) const ROWS: &[System] = &[
    System { words: &["CUDA error: out of memory"], ..RUNTIME },
    System { words: &["cuda runtime error (2) : out of memory"], ..RUNTIME },
    System { words: &["cudaErrorMemoryAllocation"], ..RUNTIME },
    System {
        kind: "hip-runtime",
        name: "HIP",
        title: "The HIP runtime is out of memory",
        words: &["HIP error: out of memory"],
        means: "the HIP runtime itself ran out of memory, outside PyTorch's allocator: for a kernel, pinned host memory \
                or a library. The device was full before PyTorch requested memory for a tensor",
        advice: &[AMD, LEAVE_ROOM],
        settled_by: Some("rocm-smi, while the job runs, and a snapshot"),
        ..RUNTIME
    },
    System {
        kind: "cuda-driver",
        title: "The CUDA driver is out of memory",
        words: &["CUDA driver error: out of memory"],
        means: "the CUDA driver had no memory to map, or none for itself; expandable segments map memory through the driver",
        advice: &[
            NVIDIA,
            "Try without expandable_segments: under WSL2 and on some boards its mappings fail although memory is free.",
            LEAVE_ROOM,
        ],
        ..RUNTIME
    },
    System { words: &["UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"], ..XPU },
    System { words: &["UR_RESULT_ERROR_OUT_OF_RESOURCES"], ..XPU },
    System { words: &["PI_ERROR_OUT_OF_RESOURCES"], ..XPU },
    System {
        kind: "npu-runtime",
        name: "CANN",
        title: "The runtime of an NPU is out of memory",
        words: &["(EL0004)"],
        means: "the NPU's runtime (CANN) could not allocate memory on the device, outside PyTorch's allocator",
        advice: &[
            "npu-smi info, while the job runs, shows how full the device is and which processes use it.",
            "Hold less on the device: a smaller batch, a smaller HCCL_BUFFSIZE.",
        ],
        settled_by: Some("npu-smi info, while the job runs"),
        ..ANY
    },
    System {
        name: "hipBLAS",
        words: &["HIPBLAS_STATUS_ALLOC_FAILED"],
        advice: &[LEAVE_ROOM, AMD],
        settled_by: Some("rocm-smi, while the job runs"),
        ..LIBRARY
    },
    System { name: "cuBLAS", words: &["CUBLAS_STATUS_ALLOC_FAILED"], ..LIBRARY },
    System {
        name: "cuBLAS",
        words: &["CUBLAS_STATUS_NOT_INITIALIZED", "cublasCreate"],
        means: "cuBLAS could not make its handle: mostly there was no device memory left for it, which it allocates \
                outside PyTorch's allocator. It also happens after a failed kernel, for example an index out of range",
        ..LIBRARY
    },
    System { name: "cuDNN", words: &["CUDNN_STATUS_ALLOC_FAILED"], ..LIBRARY },
    System {
        name: "cuDNN",
        words: &["CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"],
        ..LIBRARY
    },
    System {
        kind: "host",
        name: "cuDNN",
        title: "Out of host memory (RAM)",
        words: &["CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"],
        means: "cuDNN could not allocate host memory (RAM), not memory of the GPU",
        advice: &["Use less RAM, or ask the scheduler for more."],
        settled_by: None,
        is_recordable: false,
        ..LIBRARY
    },
    System {
        name: "cuDNN",
        words: &["Unable to find a valid cuDNN algorithm to run convolution"],
        means: "no algorithm of cuDNN found device memory for its workspace, which is mostly a full device",
        ..LIBRARY
    },
    System { name: "cuSOLVER", words: &["CUSOLVER_STATUS_ALLOC_FAILED"], ..LIBRARY },
    System { name: "cuSPARSE", words: &["CUSPARSE_STATUS_ALLOC_FAILED"], ..LIBRARY },
    System { name: "cuFFT", words: &["CUFFT_ALLOC_FAILED"], ..LIBRARY },
    System { name: "cuFFT", words: &["cuFFT failed to allocate GPU or CPU memory"], ..LIBRARY },
    System {
        kind: "framework",
        name: "Vulkan",
        title: "Vulkan is out of device memory",
        words: &["VK_ERROR_OUT_OF_DEVICE_MEMORY"],
        means: "a program asked the Vulkan driver for memory and the device had none; a driver also refuses one allocation above its own limit \
                (maxMemoryAllocationSize), however much is free",
        advice: &[
            "Hold less on the device, in more and smaller buffers; vulkaninfo shows the heaps and the limit.",
            "Close other programs that use the device.",
        ],
        ..ANY
    },
    System { words: &["MEM_OBJECT_ALLOCATION_FAILURE"], ..OPENCL },
    System { words: &["Memory Object Allocation Failure"], ..OPENCL },
    System {
        words: &["NCCL WARN Failed to CUDA calloc"],
        amounts: &[behind("requested", "CUDA calloc ", "what NCCL asked of the device")],
        ..NCCL
    },
    System { words: &["Cuda failure", "out of memory"], ..NCCL },
    System {
        name: "RCCL",
        title: "RCCL is out of device memory",
        words: &["Hip failure", "out of memory"],
        means: "RCCL found no device memory for its buffers, which it allocates outside PyTorch's allocator",
        advice: &[LEAVE_ROOM, AMD],
        settled_by: Some("rocm-smi, while the job runs"),
        ..NCCL
    },
    System {
        kind: "address-space",
        name: "PyTorch",
        title: "Out of addresses",
        words: &["virtual-address-space (VSZ) exhaustion from expandable segments"],
        means: "the process ran out of addresses, not memory: each expandable segment, one per stream, reserves more \
                addresses than the device has memory, and the process may have too few (ulimit -v)",
        advice: &[
            "Raise the limit on virtual memory (ulimit -v), use fewer streams, or lower expandable_segments_reserve in PYTORCH_CUDA_ALLOC_CONF.",
        ],
        is_recordable: true,
        ..ANY
    },
];
