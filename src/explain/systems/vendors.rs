//! Vendors of devices, and their own words for what PyTorch and NVIDIA call by CUDA's.

/// A vendor as PyTorch's messages name it.
#[derive(Debug, PartialEq, Eq)]
pub struct Vendor {
    /// The word before "out of memory".
    pub backend: &'static str,
    /// Words for CUDA, and this vendor's instead.
    words: &'static [(&'static str, &'static str)],
    /// The allocator is the one of `c10/cuda`, whose wording tells PyTorch's release.
    pub is_cuda_allocator: bool,
    /// What else there is to know of `expandable_segments`.
    pub expandable: Option<&'static str>,
    /// What besides a full device refuses a request.
    pub refusals: &'static [&'static str],
}

const LIMITS: &str =
    "Look for a limit outside PyTorch: of a container, a MIG slice, a virtual GPU, the driver.";
const WINDOWS: &str = "Under Windows and WSL2, memory of the GPU also needs room in Windows' own: free RAM, enlarge the paging file.";

const VENDORS: [Vendor; 6] = [
    Vendor {
        backend: "CUDA",
        words: &[],
        is_cuda_allocator: true,
        expandable: None,
        refusals: &[LIMITS, WINDOWS],
    },
    Vendor {
        backend: "HIP",
        words: &[
            ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"),
            ("nvidia-smi", "rocm-smi"),
            ("CUDA", "HIP"),
            ("cuBLAS", "hipBLAS"),
            ("NCCL", "RCCL"),
            ("MIG", "partition or"),
        ],
        is_cuda_allocator: true,
        expandable: Some("On ROCm only recent releases have it; others warn and go on without."),
        refusals: &[
            LIMITS,
            "On an APU the kernel limits what the GPU may use (ttm.pages_limit); GPU_SINGLE_ALLOC_PERCENT limits one allocation.",
            WINDOWS,
        ],
    },
    Vendor {
        backend: "XPU",
        words: &[
            (SNAPSHOT, "torch.xpu.memory_stats(), printed at the failure"),
            ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
            ("nvidia-smi", "xpu-smi"),
            ("torch.cuda", "torch.xpu"),
            ("CUDA context", "Level Zero context"),
            ("CUDA", "XPU"),
            ("cuBLAS", "oneMKL"),
            ("NCCL", "oneCCL"),
        ],
        is_cuda_allocator: false,
        expandable: Some("On XPU only recent releases have it."),
        refusals: &[
            "Look at the size of the request: drivers of Intel GPUs refuse one allocation above 4 GiB (less under WSL2) however much is free. Split the tensor.",
            LIMITS,
        ],
    },
    Vendor {
        backend: "NPU",
        words: &[
            ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NPU_ALLOC_CONF"),
            ("nvidia-smi", "npu-smi info"),
            ("torch.cuda", "torch.npu"),
            ("CUDA", "CANN"),
            ("cuBLAS", "operators'"),
            ("NCCL", "HCCL"),
            ("the GPU", "the NPU"),
            ("another GPU", "another NPU"),
        ],
        is_cuda_allocator: false,
        expandable: None,
        refusals: &[LIMITS],
    },
    Vendor {
        backend: "MUSA",
        words: &[
            ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_MUSA_ALLOC_CONF"),
            ("nvidia-smi", "mthreads-gmi"),
            ("torch.cuda", "torch.musa"),
            ("CUDA", "MUSA"),
            ("cuBLAS", "muBLAS"),
            ("NCCL", "MCCL"),
        ],
        is_cuda_allocator: false,
        expandable: None,
        refusals: &[LIMITS],
    },
    // Of a device that is none of the above.
    Vendor {
        backend: "",
        words: &[
            ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
            ("nvidia-smi", "the vendor's monitor"),
            ("torch.cuda", "torch"),
            ("CUDA context", "device's runtime"),
            ("CUDA graphs", "graphs"),
        ],
        is_cuda_allocator: false,
        expandable: None,
        refusals: &[LIMITS],
    },
];

/// What settles a doubt where the allocator records what it does.
pub const SNAPSHOT: &str =
    "a snapshot recorded at the failure, with the size, stream and pool of every block";

/// The vendor of what PyTorch calls `backend`; without a name, the last.
pub fn vendor(backend: &str) -> &'static Vendor {
    let [.., other] = &VENDORS;
    VENDORS.iter().find(|vendor| vendor.backend == backend).unwrap_or(other)
}

impl Vendor {
    /// `text`, written for CUDA, in this vendor's words.
    pub fn own_words(&self, text: String) -> String {
        self.words.iter().fold(text, |text, (cuda, own)| text.replace(cuda, own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_for_cuda_is_turned_into_each_vendors() {
        let of = |backend| {
            vendor(backend).own_words("nvidia-smi; PYTORCH_CUDA_ALLOC_CONF; torch.cuda".to_owned())
        };
        assert_eq!(of("CUDA"), "nvidia-smi; PYTORCH_CUDA_ALLOC_CONF; torch.cuda");
        assert_eq!(of("HIP"), "rocm-smi; PYTORCH_HIP_ALLOC_CONF; torch.cuda");
        assert_eq!(of("XPU"), "xpu-smi; PYTORCH_ALLOC_CONF; torch.xpu");
        assert_eq!(of("NPU"), "npu-smi info; PYTORCH_NPU_ALLOC_CONF; torch.npu");
        assert_eq!(of("GCU"), "the vendor's monitor; PYTORCH_ALLOC_CONF; torch");
    }
}
