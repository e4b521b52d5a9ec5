//! What `oomscope run` wrote down beside the snapshot, under the key `oomscope`: what no snapshot of PyTorch tells.

use serde::Serialize;

use super::dry_run::DryRun;
use crate::base::ids::StackId;

/// The recorder's own words. Whatever it left out, or an older recorder did not know, is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// Why the snapshot was taken: `oom`, `exit`, or `asked` by another process or a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of the process in its job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<String>,
    /// Processes of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_size: Option<String>,
    /// Name of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Number of the process on its machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u64>,
    /// `torch.__version__`, such as `2.6.0+cu124`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch: Option<String>,
    /// `PYTORCH_CUDA_ALLOC_CONF`, or as it is called now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alloc_conf: Option<String>,
    /// Every device that the process saw, by number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<RecordedDevice>,
    /// Entries that each device's trace could hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_entries: Option<u64>,
    /// The device whose request had just failed.
    #[serde(skip)]
    pub failed_on: Option<u64>,
    /// Where each Python thread was, innermost frame first; the one that asked for memory first.
    #[serde(skip)]
    pub threads: Vec<StackId>,
    /// What `oomscope dry-run` assumed, where no GPU was used.
    #[serde(skip)]
    pub dry_run: Option<DryRun>,
}

/// A device as the driver describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordedDevice {
    /// Such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// All of its memory.
    pub total_bytes: u64,
}

impl Recorded {
    /// The release without what tells builds apart: `2.6.0`.
    pub fn release(&self) -> Option<&str> {
        self.torch.as_deref().and_then(|torch| torch.split('+').next())
    }

    /// Its minor release of PyTorch 2.
    pub fn minor(&self) -> Option<u32> {
        self.release()?.strip_prefix("2.")?.split('.').next()?.parse().ok()
    }

    /// All memory of device `id`.
    pub fn total_bytes(&self, id: u64) -> Option<u64> {
        let device = self.devices.get(usize::try_from(id).ok()?)?;
        Some(device.total_bytes).filter(|bytes| *bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_told_without_its_build() {
        let recorded =
            |torch: &str| Recorded { torch: Some(torch.to_owned()), ..Recorded::default() };
        for (torch, release, minor) in [
            ("2.6.0+cu124", "2.6.0", Some(6)),
            ("2.15.0", "2.15.0", Some(15)),
            ("2.16.0.dev20261101+cu130", "2.16.0.dev20261101", Some(16)),
            ("1.13.1", "1.13.1", None),
            ("", "", None),
        ] {
            assert_eq!(recorded(torch).release(), Some(release));
            assert_eq!(recorded(torch).minor(), minor);
        }
        assert_eq!(Recorded::default().minor(), None);
    }
}
