//! Information that `oomscope run` adds to a snapshot, under the key `oomscope`.

use serde::Serialize;

use super::dry_run::DryRun;
use super::sleep::RecordedSleep;
use crate::base::ids::StackId;

/// Information from the recorder. Keys that the recorder did not write are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RecorderInfo {
    /// Why the snapshot was taken: `oom` (a failed request), `exit` (end of the process), or `asked` (on demand).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rank of the process in its job, as the environment gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<String>,
    /// The number of processes in the job, as the environment gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_size: Option<String>,
    /// Host name of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// How often the launcher had restarted the job (`TORCHELASTIC_RESTART_COUNT`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u64>,
    /// The launcher's name for the run, as the environment gave it.
    #[serde(skip)]
    pub run_id: Option<String>,
    /// The command line of the program. It may have secrets.
    #[serde(skip)]
    pub argv: Vec<String>,
    /// The value of `CUDA_VISIBLE_DEVICES`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visible_devices: Option<String>,
    /// Process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u64>,
    /// `torch.__version__`, such as `2.6.0+cu124`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch: Option<String>,
    /// The value of `PYTORCH_CUDA_ALLOC_CONF`, or of `PYTORCH_ALLOC_CONF` as newer releases call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alloc_conf: Option<String>,
    /// The devices that were visible to the process, in order of their numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<RecorderDevice>,
    /// Capacity of each device's trace, in entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_entries: Option<u64>,
    /// When the snapshot was taken, in microseconds since the epoch: about the end of a process that ends.
    #[serde(skip)]
    pub time_us: Option<u64>,
    /// The request that had just failed.
    #[serde(skip)]
    pub oom: Option<ObservedFailure>,
    /// The stack of each Python thread; the requesting thread comes first.
    #[serde(skip)]
    pub threads: Vec<StackId>,
    /// Set if vLLM's sleep mode was used.
    #[serde(skip)]
    pub sleep: Option<RecordedSleep>,
    /// Set if the snapshot comes from `oomscope dry-run`.
    #[serde(skip)]
    pub dry_run: Option<DryRun>,
}

/// A failed request, as the allocator reports it to an observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedFailure {
    /// Device number.
    pub device: u64,
    /// Rounded size of the request.
    pub requested_bytes: u64,
    /// Free memory of the device at that time.
    pub free_bytes: u64,
}

/// A device as the driver describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecorderDevice {
    /// The driver's name for it, such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Its memory in bytes.
    pub total_bytes: u64,
}

impl RecorderInfo {
    /// The release without the build suffix: `2.6.0`.
    pub fn release(&self) -> Option<&str> {
        self.torch.as_deref().and_then(|torch| torch.split('+').next())
    }

    /// The minor release of PyTorch 2: 6 for 2.6.0.
    pub fn minor(&self) -> Option<u32> {
        self.release()?.strip_prefix("2.")?.split('.').next()?.parse().ok()
    }

    /// The request that failed on device `id`.
    pub fn failure_on(&self, id: u64) -> Option<ObservedFailure> {
        self.oom.filter(|oom| oom.device == id)
    }

    /// The number of device `id` on its host, if it is known: with one visible device and no list of them, it may be any.
    pub fn host_device(&self, id: u64) -> Option<u64> {
        let index = usize::try_from(id).ok()?;
        match self.visible_devices.as_deref().filter(|list| !list.trim().is_empty()) {
            Some(list) => list.split(',').nth(index)?.trim().parse().ok(),
            None => (self.devices.len() > 1).then_some(id),
        }
    }

    /// Memory of device `id`, if known.
    pub fn total_bytes(&self, id: u64) -> Option<u64> {
        let device = self.devices.get(usize::try_from(id).ok()?)?;
        Some(device.total_bytes).filter(|bytes| *bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_the_numbers_of_their_host() {
        for (list, devices, id, host_device) in [
            (Some("6, 3"), 2, 1, Some(3)),
            (Some("GPU-3a2f"), 1, 0, None),
            (None, 8, 5, Some(5)),
            (None, 1, 0, None),
            (Some("6"), 1, 2, None),
        ] {
            let info = RecorderInfo {
                visible_devices: list.map(str::to_owned),
                devices: vec![RecorderDevice { name: "A100".to_owned(), total_bytes: 0 }; devices],
                ..RecorderInfo::default()
            };
            assert_eq!(info.host_device(id), host_device);
        }
    }

    #[test]
    fn release_has_no_build_suffix() {
        for (torch, release, minor) in [
            ("2.6.0+cu124", "2.6.0", Some(6)),
            ("2.15.0", "2.15.0", Some(15)),
            ("2.16.0.dev20261101+cu130", "2.16.0.dev20261101", Some(16)),
            ("1.13.1", "1.13.1", None),
            ("", "", None),
        ] {
            let recorded = RecorderInfo { torch: Some(torch.to_owned()), ..RecorderInfo::default() };
            assert_eq!((recorded.release(), recorded.minor()), (Some(release), minor));
        }
        assert_eq!(RecorderInfo::default().minor(), None);
    }
}
