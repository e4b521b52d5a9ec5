//! GPU models: device properties, and how much of the memory a process can use.
//!
//! Capability, multiprocessors, threads, shared memory and L2 come from NVIDIA's "CUDA C++ Programming Guide",
//! chapter "Compute Capabilities", and from the white paper of each architecture. Total memory is that of
//! `torch.cuda.get_device_properties`, which messages of failed requests repeat ("GPU 0 has a total capacity of
//! 79.10 GiB"). ECC and the driver keep the rest. Driver releases differ by up to 0.2 GiB; the table has a low
//! value. The memory of the CUDA context is the difference, in such messages, between the memory in use by the
//! process and the memory that PyTorch reserved: 0.1 to 0.6 GiB, more with more multiprocessors and newer drivers. That of
//! the H200 was measured (tests/gpu): 524 MiB for the context alone, 742 to 812 MiB in programs that use cuBLAS.

use crate::allocator::SMALL_SEGMENT;
use crate::base::units::{parse_size, size};

/// A GPU that a dry run can assume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuModel {
    /// The name on the command line.
    pub name: &'static str,
    /// The driver's name for it.
    pub product: &'static str,
    /// Compute capability: 90 is 9.0.
    pub capability: u32,
    /// Enabled ones; the full chip may have more.
    pub multiprocessors: u32,
    /// Resident threads.
    pub threads_per_multiprocessor: u32,
    /// Shared memory per thread block.
    pub shared_bytes: u64,
    /// L2 cache.
    pub l2_bytes: u64,
    /// The memory that the maker names, in GiB.
    pub nominal_gib: u64,
    /// Total memory as `torch.cuda.get_device_properties` reports it.
    pub total_mib: u64,
    /// Memory of the CUDA context.
    pub context_mib: u64,
}

const fn gpu(
    (name, product): (&'static str, &'static str),
    capability: u32,
    (multiprocessors, threads): (u32, u32),
    (shared_kib, l2_kib): (u64, u64),
    (nominal_gib, total_mib, context_mib): (u64, u64, u64),
) -> GpuModel {
    GpuModel {
        name,
        product,
        capability,
        multiprocessors,
        threads_per_multiprocessor: threads,
        shared_bytes: shared_kib << 10,
        l2_bytes: l2_kib << 10,
        nominal_gib,
        total_mib,
        context_mib,
    }
}

/// Known models, oldest architecture first.
pub const GPUS: &[GpuModel] = &[
    gpu(("v100", "Tesla V100-SXM2-16GB"), 70, (80, 2048), (96, 6144), (16, 16_144, 310)), // 15.77 GiB
    gpu(("v100-32gb", "Tesla V100-SXM2-32GB"), 70, (80, 2048), (96, 6144), (32, 32_494, 310)), // 31.73 GiB
    gpu(("t4", "Tesla T4"), 75, (40, 1024), (64, 4096), (16, 14_913, 110)), // 14.56 GiB; 14.75 with older drivers
    gpu(("a100-40gb", "NVIDIA A100-SXM4-40GB"), 80, (108, 2048), (163, 40_960), (40, 40_326, 420)), // 39.38 GiB; 39.50 with older drivers
    gpu(("a100", "NVIDIA A100-SXM4-80GB"), 80, (108, 2048), (163, 40_960), (80, 81_037, 490)),      // 79.14 GiB
    gpu(("a10", "NVIDIA A10"), 86, (72, 1536), (99, 6144), (24, 22_589, 260)),                      // 22.06 GiB
    gpu(("a10g", "NVIDIA A10G"), 86, (80, 1536), (99, 6144), (24, 22_589, 300)),                    // 22.06 GiB
    gpu(("a40", "NVIDIA A40"), 86, (84, 1536), (99, 6144), (48, 45_404, 310)),                      // 44.34 GiB
    gpu(("a6000", "NVIDIA RTX A6000"), 86, (84, 1536), (99, 6144), (48, 48_670, 330)), // 47.53 GiB; 47.54 with other drivers
    gpu(("rtx3080", "NVIDIA GeForce RTX 3080"), 86, (68, 1536), (99, 5120), (10, 10_010, 280)), // 9.78 GiB
    gpu(("rtx3090", "NVIDIA GeForce RTX 3090"), 86, (82, 1536), (99, 6144), (24, 24_135, 310)), // 23.57 GiB
    gpu(("l4", "NVIDIA L4"), 89, (58, 1536), (99, 49_152), (24, 22_563, 240)),         // 22.03 GiB
    gpu(("rtx4080", "NVIDIA GeForce RTX 4080"), 89, (76, 1536), (99, 65_536), (16, 16_049, 400)), // 16,049 MB in a posted report
    gpu(("rtx4090", "NVIDIA GeForce RTX 4090"), 89, (128, 1536), (99, 73_728), (24, 24_084, 470)), // 23.52 GiB
    gpu(("l40s", "NVIDIA L40S"), 89, (142, 1536), (99, 98_304), (48, 45_466, 490)),               // 44.40 GiB
    gpu(("h100", "NVIDIA H100 80GB HBM3"), 90, (132, 2048), (227, 51_200), (80, 80_995, 540)),    // 79.10 GiB
    gpu(("h100-nvl", "NVIDIA H100 NVL"), 90, (132, 2048), (227, 51_200), (94, 95_232, 670)),      // 93.00 GiB
    gpu(("h200", "NVIDIA H200"), 90, (132, 2048), (227, 61_440), (141, 143_155, 760)),            // 139.80 GiB
    gpu(("b200", "NVIDIA B200"), 100, (148, 2048), (227, 129_536), (180, 182_630, 650)),          // 178.35 GiB
    gpu(("rtx5090", "NVIDIA GeForce RTX 5090"), 120, (170, 1536), (99, 98_304), (32, 32_113, 590)), // 31.36 GiB
    gpu(
        ("rtxpro6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        120,
        (188, 1536),
        (99, 131_072),
        (96, 97_249, 590), // 94.97 GiB
    ),
];

impl GpuModel {
    /// Bytes of the workspace that cuBLAS keeps for a handle and a stream by default before Hopper
    /// (`at::cuda::getChosenWorkspaceSize`). No tensor is likely to have this size.
    pub const CUBLAS_WORKSPACE_BYTES: u64 = 2 * (4096 << 10) + 8 * (16 << 10);
    /// Default sizes of the workspace that cuBLASLt gets for one call (`at::cuda::getCUDABlasLtWorkspace`): 1 MiB, and 32 MiB
    /// from Hopper on.
    pub const CUBLASLT_WORKSPACE_SIZES: [u64; 2] = [1 << 20, 32 << 20];

    /// Bytes of the workspace that cuBLAS gets for a handle and a stream if `CUBLAS_WORKSPACE_CONFIG` is not set
    /// (`at::cuda::getChosenWorkspaceSize`), as PyTorch 2.15 requests them.
    pub fn cublas_workspace_bytes(&self) -> u64 {
        if self.capability >= 90 { 32 << 20 } else { Self::CUBLAS_WORKSPACE_BYTES }
    }

    /// The model that `text` names: `H100`, `rtx-4090`, `4090`, `A100 80GB`.
    pub fn find(text: &str) -> Option<&'static Self> {
        let query = plain_name(text);
        let query = query.trim_start_matches("nvidia").trim_start_matches("geforce");
        GPUS.iter().find(|gpu| {
            let name = plain_name(gpu.name);
            query == name
                || name.strip_prefix("rtx").is_some_and(|number| number == query)
                || query.strip_prefix("rtx").is_some_and(|number| number == name)
                || query == format!("{name}{}gb", gpu.nominal_gib)
                || name.strip_suffix("gb").is_some_and(|short| short == query)
        })
    }

    /// The model whose CUDA context leaves `bytes`.
    pub fn with_usable_bytes(bytes: u64) -> Option<&'static Self> {
        GPUS.iter().find(|gpu| gpu.usable_bytes() == bytes)
    }

    /// The model that is assumed if none is named: most large jobs run on it.
    pub fn current() -> &'static Self {
        GPUS.iter().find(|gpu| gpu.name == "h100").unwrap_or(&GPUS[0])
    }

    /// Memory of the device in bytes, as PyTorch reports it.
    pub fn total_bytes(&self) -> u64 {
        self.total_mib << 20
    }

    /// The part of it that the CUDA context leaves to PyTorch, in bytes.
    pub fn usable_bytes(&self) -> u64 {
        (self.total_mib - self.context_mib) << 20
    }

    /// The least memory in bytes that a known model with a nominal memory of `nominal` bytes reports: 22.03 GiB for
    /// 24 GiB. `None` if no known model has that nominal memory.
    pub fn smallest_total_bytes(nominal: u64) -> Option<u64> {
        GPUS.iter().filter(|gpu| gpu.nominal_gib << 30 == nominal).map(Self::total_bytes).min()
    }

    /// The usual notation: `9.0`.
    pub fn format_capability(&self) -> String {
        format!("{}.{}", self.capability / 10, self.capability % 10)
    }
}

/// Parses the memory of a device: a size, or the name of a GPU.
///
/// # Errors
/// One sentence, also for a number without its unit: one that is smaller than a segment.
pub fn parse_capacity(text: &str) -> Result<u64, String> {
    GpuModel::find(text).map_or_else(|| parse_bytes(text), |gpu| Ok(gpu.total_bytes()))
}

/// The same for a replay, which has the memory that the CUDA context leaves.
///
/// # Errors
/// Any error from [`parse_capacity`].
pub fn parse_replay_capacity(text: &str) -> Result<u64, String> {
    GpuModel::find(text).map_or_else(|| parse_bytes(text), |gpu| Ok(gpu.usable_bytes()))
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    match parse_size(text).map_err(|error| format!("{error}, or the name of a GPU, such as h100"))? {
        bytes @ 0..SMALL_SEGMENT => Err(format!("{} is less than a segment: give a unit, such as 80GiB", size(bytes))),
        bytes => Ok(bytes),
    }
}

/// Letters and digits of `text` in lower case.
fn plain_name(text: &str) -> String {
    text.to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_as_people_write_them() {
        for (text, name) in [
            ("H100", "h100"),
            ("h100-80gb", "h100"),
            ("rtx-4090", "rtx4090"),
            ("4090", "rtx4090"),
            ("4080", "rtx4080"),
            ("RTX 3080 10GB", "rtx3080"),
            ("H200 141GB", "h200"),
            ("NVIDIA GeForce RTX 3090", "rtx3090"),
            ("A100 80GB", "a100"),
            ("a100-40", "a100-40gb"),
            ("V100_32GB", "v100-32gb"),
            ("v100-16gb", "v100"),
            ("RTX A6000", "a6000"),
            ("H100 NVL", "h100-nvl"),
            ("rtx-pro-6000", "rtxpro6000"),
        ] {
            assert_eq!(GpuModel::find(text).map(|gpu| gpu.name), Some(name), "{text}");
        }
        assert_eq!(GpuModel::find("gtx1080"), None);
        assert_eq!(GpuModel::find(""), None);
    }

    #[test]
    fn models_report_less_than_their_nominal_memory() {
        let nominal: [u64; 6] = [24, 80, 16, 10, 141, 23];
        let reported = nominal.map(|gib| GpuModel::smallest_total_bytes(gib << 30).map_or(0, |bytes| bytes >> 20));
        assert_eq!(reported, [22_563, 80_995, 14_913, 10_010, 143_155, 0]);
        for gpu in GPUS {
            assert!(gpu.usable_bytes() < gpu.total_bytes(), "{}", gpu.name);
        }
    }

    #[test]
    fn every_name_is_unique() {
        for gpu in GPUS {
            assert_eq!(GpuModel::find(gpu.name), Some(gpu));
            assert_eq!(GpuModel::find(gpu.product).map_or(gpu.name, |found| found.name), gpu.name);
        }
    }
}
