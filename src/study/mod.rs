//! One snapshot under study: what questions have in common, each worked out at most once, when first asked.
//!
//! ```text
//! let study = Study::new(&snapshot, Scope { minor, capacity, ..Scope::default() });
//! for device in study.devices() {            // a handle, free to copy
//!     device.memory();                       // from the segments alone
//!     device.peak();                         // the first question about time: one literal replay
//!     device.follow(Keep::Sums, |step| ..);  // one literal replay, for as many observers as are called in there
//!     device.inferred();                     // the first question to the model: one inference for all devices
//!     device.program();                      // the trace read back as calls
//! }
//! ```
//!
//! Nothing is worked out that nobody asks for. [`DeviceStudy::follow`] works out along the way what is not known yet
//! of the memory over time: whoever has something to observe does that first and asks for the peak afterwards. A study can be shared between threads; the inference, which itself uses all of them, is to be
//! asked for before work is shared out.

mod activity;
mod device;
pub mod figures;
mod from_empty;
mod continuation;
pub mod attribution;
mod lost_history;
pub mod memory;
mod position;
mod history;
pub mod timeline;
mod warnings;
mod window;

use std::sync::OnceLock;

pub use self::activity::{Activity, EntryRange};
pub use self::device::DeviceStudy;
use self::device::DeviceCache;
pub use self::from_empty::PeaksFromEmpty;
pub(crate) use self::continuation::MAX_CONTINUED_ENTRIES;
pub use self::lost_history::LostHistory;
pub use self::position::{PositionSelector, MemoryAt, TracePosition};
pub use self::history::{MemoryHistory, Peak, SERIES_ALLOCATED, SERIES_GAP, SERIES_RESERVED};
pub use self::warnings::warn_about_trace;
pub(crate) use self::warnings::warn_about_replay;
pub use self::window::Window;
pub(crate) use self::window::{entry_of_sample, sample_index};
use crate::allocator::conf::Settings;
use crate::replay::literal::{recorded_settings, settings_for_release};
use crate::replay::model::{Inference, KnownSetup, infer};
use crate::snapshot::{Device, Snapshot};
use crate::stacks::frames::StackReader;

/// What whoever asks knows of a recording, and which part of it to look at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope {
    /// Only this device.
    pub device: Option<u64>,
    /// Which part of each device's trace.
    pub window: Window,
    /// Bytes of device memory, which no snapshot records.
    pub capacity: Option<u64>,
    /// The minor release of PyTorch 2 that recorded it; found out as far as the file tells if not given.
    pub minor: Option<u32>,
    /// Whether files of source are told without their directories.
    pub strip_paths: bool,
}

/// A snapshot and all that is known of it so far.
#[derive(Debug)]
pub struct Study<'a> {
    snapshot: &'a Snapshot,
    scope: Scope,
    devices: Vec<DeviceCache<'a>>,
    stacks: OnceLock<StackReader<'a>>,
    settings: OnceLock<Settings>,
    inference: OnceLock<Inference<'a>>,
}

impl<'a> Study<'a> {
    /// Nothing is known yet.
    pub fn new(snapshot: &'a Snapshot, scope: Scope) -> Self {
        let is_wanted = |device: &Device<'_>| scope.device.is_none_or(|only| only == device.id());
        let devices = snapshot.devices().filter(is_wanted).map(DeviceCache::new).collect();
        let (stacks, settings, inference) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Self { snapshot, scope, devices, stacks, settings, inference }
    }

    /// What the file says.
    pub fn snapshot(&self) -> &'a Snapshot {
        self.snapshot
    }

    /// What is known beside it.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Every device looked at that has a segment or a trace entry, by number.
    pub fn devices(&self) -> impl DoubleEndedIterator<Item = DeviceStudy<'_, 'a>> {
        (0..self.devices.len()).map(|index| DeviceStudy::new(self, index))
    }

    /// Device `id`, if it is one of those.
    pub fn device(&self, id: u64) -> Option<DeviceStudy<'_, 'a>> {
        let index = self.devices.binary_search_by_key(&id, |kept| kept.device.id()).ok()?;
        Some(DeviceStudy::new(self, index))
    }

    /// Reads its stacks.
    pub fn stacks(&self) -> &StackReader<'a> {
        self.stacks
            .get_or_init(|| StackReader::new(self.snapshot).with_stripped_paths(self.scope.strip_paths))
    }

    /// The settings in effect: as recorded, or found out by trying where the release does not record them.
    pub fn settings(&self) -> &Settings {
        self.settings.get_or_init(|| {
            let is_traced = self.devices.iter().any(|kept| !kept.device.is_empty());
            match self.scope.minor {
                _ if self.snapshot.settings.is_none() && is_traced => self.inferred_settings(),
                Some(minor) => settings_for_release(self.snapshot, minor),
                None => recorded_settings(self.snapshot),
            }
        })
    }

    /// Those of the device whose trace the model reproduces furthest.
    fn inferred_settings(&self) -> Settings {
        let devices = self.inference().devices.iter();
        let furthest = devices.max_by_key(|one| one.verification.matched);
        furthest.map_or_else(
            || recorded_settings(self.snapshot),
            |one| one.hypothesis.last_settings().clone(),
        )
    }

    /// How the recording came about, as far as can be found out, of all devices looked at.
    pub fn inference(&self) -> &Inference<'a> {
        self.inference.get_or_init(|| {
            let devices: Vec<Device<'a>> = self.devices.iter().map(|kept| kept.device).collect();
            let inference =
                infer(self.snapshot, &devices, KnownSetup { minor: self.scope.minor, capacity: None });
            debug_assert_eq!(inference.devices.len(), devices.len(), "every device is inferred");
            inference
        })
    }
}
