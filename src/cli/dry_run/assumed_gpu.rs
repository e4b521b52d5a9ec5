//! The GPU that a dry run simulates.

use std::collections::BTreeMap;

use anyhow::bail;

use crate::allocator::SMALL_SEGMENT;
use crate::allocator::device::{GPUS, GpuModel};
use crate::base::units::{MIB, size};

#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct AssumedGpu {
    pub(super) gpu: &'static GpuModel,
    /// Bytes of `--memory`, instead of the GPU's own.
    pub(super) memory: Option<u64>,
    pub(super) devices: u64,
}

impl AssumedGpu {
    /// The memory of a device, in whole MiB as the stub takes it.
    pub(super) fn total_bytes(&self) -> u64 {
        self.memory.unwrap_or(self.gpu.total_bytes()) / MIB * MIB
    }

    /// The memory of a device without the CUDA context.
    pub(in crate::cli) fn usable_bytes(&self) -> u64 {
        self.total_bytes().saturating_sub(self.gpu.context_mib * MIB)
    }

    /// Fails if the CUDA context leaves no memory to PyTorch.
    pub(in crate::cli) fn check_memory(&self) -> anyhow::Result<()> {
        if self.usable_bytes() < SMALL_SEGMENT {
            let (total, context) = (size(self.total_bytes()), size(self.gpu.context_mib * MIB));
            bail!("--memory {total}: the CUDA context of {} takes {context}, which leaves nothing", self.gpu.product);
        }
        Ok(())
    }

    pub(in crate::cli) fn name(&self) -> String {
        match self.memory {
            None => self.gpu.product.to_owned(),
            Some(_) => format!("{} with {}", self.gpu.product, size(self.total_bytes())),
        }
    }

    /// The variables by which the stub knows the GPU.
    pub(super) fn environment(&self) -> BTreeMap<&'static str, String> {
        let gpu = self.gpu;
        BTreeMap::from([
            ("STUBCUDA_NAME", gpu.product.to_owned()),
            ("STUBCUDA_CC", gpu.capability.to_string()),
            ("STUBCUDA_SMS", gpu.multiprocessors.to_string()),
            ("STUBCUDA_THREADS", gpu.threads_per_multiprocessor.to_string()),
            ("STUBCUDA_SHARED", gpu.shared_bytes.to_string()),
            ("STUBCUDA_L2", gpu.l2_bytes.to_string()),
            ("STUBCUDA_TOTAL_MIB", (self.total_bytes() / MIB).to_string()),
            ("STUBCUDA_OTHER_MIB", gpu.context_mib.to_string()),
            ("STUBCUDA_DEVICES", self.devices.to_string()),
        ])
    }
}

/// Parses the name of a known GPU.
pub(in crate::cli) fn parse_known_gpu(text: &str) -> Result<&'static GpuModel, String> {
    GpuModel::find(text).ok_or_else(|| {
        let names: Vec<&str> = GPUS.iter().map(|gpu| gpu.name).collect();
        format!("known GPUs: {}", names.join(", "))
    })
}

/// The same where the memory can be given.
pub(super) fn parse_gpu(text: &str) -> Result<&'static GpuModel, String> {
    parse_known_gpu(text).map_err(|known| format!("{known}; for another, name one like it and give --memory"))
}
