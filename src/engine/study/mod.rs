//! Derives the facts of one snapshot that several commands need; each is computed once, on first use.
//!
//! ```text
//! let study = Study::new(&snapshot, Scope { minor, capacity, ..Scope::default() });
//! for device in study.devices() {            // a handle, free to copy
//!     device.memory();                       // from the segments alone
//!     device.peak();                         // one literal replay
//!     device.replay(tracking, |step| ..);    // one literal replay, shared by all observers in the closure
//!     device.inferred();                     // one inference by the model, for all devices
//!     device.program();                      // the trace as calls to the allocator
//! }
//! ```
//!
//! In: a [`Snapshot`] and a [`Scope`]. Out: memory figures, history and peaks, phases, attribution of live memory
//! and the inferred settings. Knows no changed settings and no output formats.
//!
//! [`DeviceStudy::replay`] also fills in the history, so call it before [`DeviceStudy::peak`] to save a replay. A study
//! can be shared between threads. The inference uses all threads itself: request it before distributing work.

mod activity;
pub mod annotations;
pub mod attribution;
mod block_sizes;
mod category;
mod device;
pub mod figures;
mod history;
pub mod iterations;
#[doc(hidden)]
pub mod lifetimes;
mod lost_history;
pub mod memory;
mod position;
pub mod sleep;
pub mod variables;
mod warnings;

use std::sync::OnceLock;

pub use self::activity::{Activity, EntryRange};
use self::device::DeviceFacts;
pub use self::device::{DeviceStudy, MAX_CONTINUED_ENTRIES};
pub use self::history::{
    Bound, MemoryHistory, Peak, SERIES_ALLOCATED, SERIES_RESERVED, Window, entry_of_sample, sample_index,
};
pub use self::lost_history::LostHistory;
pub use self::position::{MemoryAt, PositionSelector, TracePosition};
pub use self::warnings::{warn_about_replay, warn_about_trace};
use crate::allocator::conf::Settings;
use crate::python::ProgramText;
use crate::replay::literal::{recorded_settings, settings_for_release};
use crate::replay::model::{Inference, infer};
use crate::snapshot::{Device, Snapshot};
use crate::stacks::frames::{Origin, StackReader};

/// Facts that the snapshot lacks, and the part of it to study.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope {
    /// Study only this device.
    pub device: Option<u64>,
    /// The part of each device's trace to study.
    pub window: Window,
    /// Total device memory in bytes; snapshots do not record it.
    pub capacity: Option<u64>,
    /// The minor release of PyTorch 2 that recorded the snapshot; derived from the file if `None`.
    pub minor: Option<u32>,
    /// Reports source files without their directories.
    pub strip_paths: bool,
}

/// A snapshot with the facts derived from it so far.
#[derive(Debug)]
pub struct Study<'a> {
    snapshot: &'a Snapshot,
    scope: Scope,
    devices: Vec<(Device<'a>, DeviceFacts<'a>)>,
    stacks: OnceLock<StackReader<'a>>,
    text: OnceLock<ProgramText<'a>>,
    settings: OnceLock<Settings>,
    inference: OnceLock<Inference<'a>>,
}

impl<'a> Study<'a> {
    /// Derives nothing yet.
    pub fn new(snapshot: &'a Snapshot, scope: Scope) -> Self {
        let devices = snapshot.devices().filter(|device| scope.device.is_none_or(|only| only == device.id()));
        let devices = devices.map(|device| (device, DeviceFacts::default())).collect();
        let (stacks, text) = (OnceLock::new(), OnceLock::new());
        Self { snapshot, scope, devices, stacks, text, settings: OnceLock::new(), inference: OnceLock::new() }
    }

    /// The snapshot that is studied, including devices out of scope.
    pub fn snapshot(&self) -> &'a Snapshot {
        self.snapshot
    }

    /// The scope as given to [`Study::new`].
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The devices in scope that have a segment or a trace entry, ascending.
    pub fn devices(&self) -> impl DoubleEndedIterator<Item = DeviceStudy<'_, 'a>> {
        (0..self.devices.len()).map(|index| DeviceStudy::new(self, index))
    }

    /// Device `id`, if it is in scope and has a segment or a trace entry.
    pub fn device(&self, id: u64) -> Option<DeviceStudy<'_, 'a>> {
        Some(DeviceStudy::new(self, self.devices.binary_search_by_key(&id, |(device, _)| device.id()).ok()?))
    }

    /// Reads stacks: user code, operators, phases. Shared by all devices.
    pub fn stacks(&self) -> &StackReader<'a> {
        self.stacks.get_or_init(|| StackReader::new(self.snapshot).with_stripped_paths(self.scope.strip_paths))
    }

    /// The text of the program's own files, as far as it is known.
    pub fn text(&self) -> &ProgramText<'a> {
        self.text.get_or_init(|| {
            let source = &self.snapshot.source;
            let own = source.iter().filter(|(path, _)| self.stacks().origin_of_file(path) == Origin::User);
            ProgramText::new(own, source.is_complete)
        })
    }

    /// The settings in effect: as recorded, or inferred if the release does not record them.
    pub fn settings(&self) -> &Settings {
        self.settings.get_or_init(|| {
            let is_traced = self.devices.iter().any(|(device, _)| !device.is_empty());
            match self.scope.minor {
                _ if self.snapshot.settings.is_none() && is_traced => self.inferred_settings(),
                Some(minor) => settings_for_release(self.snapshot, minor),
                None => recorded_settings(self.snapshot),
            }
        })
    }

    /// The inferred settings of the device with most matched entries.
    fn inferred_settings(&self) -> Settings {
        let furthest = self.inference().devices.iter().max_by_key(|device| device.verification.matched);
        furthest.map_or_else(|| recorded_settings(self.snapshot), |device| device.hypothesis.last_settings().clone())
    }

    /// [`DeviceStudy::inferred`] of all devices in scope.
    pub fn inference(&self) -> &Inference<'a> {
        self.inference.get_or_init(|| {
            let devices: Vec<Device<'a>> = self.devices.iter().map(|(device, _)| *device).collect();
            let inference = infer(self.snapshot, &devices, self.scope.minor);
            debug_assert_eq!(inference.devices.len(), devices.len(), "every device is inferred");
            inference
        })
    }
}
