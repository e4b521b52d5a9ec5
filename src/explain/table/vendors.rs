//! Device vendors, and their terms for those of CUDA.

use std::sync::LazyLock;

use serde::Deserialize;

use super::rows;

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vendor {
    /// The word before "out of memory" in PyTorch's messages; empty for any other.
    pub backend: String,
    /// Pairs of CUDA's term and this vendor's, replaced in order.
    terms: Vec<(String, String)>,
    /// The allocator is that of `c10/cuda`, whose wording shows PyTorch's release.
    pub is_cuda_allocator: bool,
    /// A remark on `expandable_segments`.
    pub expandable: Option<String>,
    /// The largest request that the driver serves, in bytes, and the advice for larger ones.
    pub largest_request: Option<(u64, String)>,
    /// Advice for requests that something other than a full device refused.
    pub refusals: Vec<String>,
}

static VENDORS: LazyLock<Vec<Vendor>> = LazyLock::new(|| rows(include_str!("vendors.toml")));

/// The vendor of `backend`; an unknown one gets the last row, which any name matches.
#[expect(clippy::expect_used, reason = "the last row of the table matches every name, as its test shows")]
pub fn vendor(backend: &str) -> &'static Vendor {
    let is_row = |vendor: &&Vendor| vendor.backend == backend || vendor.backend.is_empty();
    VENDORS.iter().find(is_row).expect("a row for other vendors")
}

impl Vendor {
    /// Advice for a request of `bytes` that something other than a full device refused.
    pub fn refusals(&self, bytes: u64) -> impl Iterator<Item = String> {
        let largest = self.largest_request.iter().filter(move |(largest, _)| bytes > *largest);
        largest.map(|(_, advice)| advice).chain(&self.refusals).cloned()
    }

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
        let snapshot = crate::explain::table::conclusion_row("capacity").settled_by.clone().unwrap();
        assert!(vendor("XPU").translate(snapshot).contains("torch.xpu.memory_stats()"));
    }
}
