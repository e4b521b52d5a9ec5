//! Device vendors, and their terms for those of CUDA.

#[derive(Debug, PartialEq, Eq)]
pub struct Vendor {
    /// The word before "out of memory" in PyTorch's messages.
    pub backend: &'static str,
    /// Pairs of CUDA's term and this vendor's, replaced in order.
    terms: &'static [(&'static str, &'static str)],
    /// The allocator is that of `c10/cuda`, whose wording shows PyTorch's release.
    pub is_cuda_allocator: bool,
    /// A remark on `expandable_segments`.
    pub expandable: Option<&'static str>,
    /// Advice for requests that something other than a full device refused.
    pub refusals: &'static [&'static str],
}

const LIMITS: &str = "Look for a limit outside PyTorch: of a container, a MIG slice, a virtual GPU, the driver.";
const WINDOWS: &str =
    "Under Windows and WSL2, memory of the GPU also needs room in Windows' own: free RAM, enlarge the paging file.";

const VENDORS: [Vendor; 6] = [
    Vendor { backend: "CUDA", terms: &[], is_cuda_allocator: true, expandable: None, refusals: &[LIMITS, WINDOWS] },
    Vendor {
        backend: "HIP",
        terms: &[
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
        terms: &[
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
        terms: &[
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
        terms: &[
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
    // Any other device.
    Vendor {
        backend: "",
        terms: &[
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

/// Evidence that settles a doubt, for allocators that record a history.
pub const SNAPSHOT: &str = "a snapshot recorded at the failure, with the size, stream and pool of every block";

/// The vendor of `backend`; an unknown one gets the last row.
pub fn vendor(backend: &str) -> &'static Vendor {
    let [.., other] = &VENDORS;
    VENDORS.iter().find(|vendor| vendor.backend == backend).unwrap_or(other)
}

impl Vendor {
    /// Replaces CUDA's terms in `text` by this vendor's.
    pub fn translate(&self, text: String) -> String {
        self.terms.iter().fold(text, |text, (cuda, term)| text.replace(cuda, term))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_of_cuda_are_replaced_for_each_vendor() {
        let translated =
            |backend| vendor(backend).translate("nvidia-smi; PYTORCH_CUDA_ALLOC_CONF; torch.cuda".to_owned());
        assert_eq!(translated("CUDA"), "nvidia-smi; PYTORCH_CUDA_ALLOC_CONF; torch.cuda");
        assert_eq!(translated("HIP"), "rocm-smi; PYTORCH_HIP_ALLOC_CONF; torch.cuda");
        assert_eq!(translated("XPU"), "xpu-smi; PYTORCH_ALLOC_CONF; torch.xpu");
        assert_eq!(translated("NPU"), "npu-smi info; PYTORCH_NPU_ALLOC_CONF; torch.npu");
        assert_eq!(translated("GCU"), "the vendor's monitor; PYTORCH_ALLOC_CONF; torch");
    }
}
