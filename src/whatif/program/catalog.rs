//! The changes to one recorded program, to replay one of them again and again.

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::change_replay::{ChangeReplayer, ObservedRow};
use super::find_changes::finders;
use super::recorded_program::RecordedProgram;
use super::report::{ChangedProgram, ProgramChange, ProgramRow};
use crate::replay::model::{EntrySink, Simulation, StateObserver};
use crate::stacks::frames::CodeLocation;
use crate::study::DeviceStudy;

pub(crate) struct ChangeCatalog<'s, 'a> {
    recording: RecordedProgram<'s, 'a>,
    /// The change that was replayed last, with its key: finding it takes longer than replaying it.
    last: Mutex<Option<(String, ChangedProgram)>>,
}

impl ProgramRow {
    /// Identifies the change among those of its recording.
    pub fn key(&self) -> String {
        key(self.change, self.bytes_at_peak, &self.description, &self.location)
    }
}

fn key(change: ProgramChange, bytes_at_peak: u64, description: &str, location: &CodeLocation) -> String {
    format!("{} {bytes_at_peak} {description} {}", change.word(), location.label())
}

impl<'s, 'a> ChangeCatalog<'s, 'a> {
    /// `device` has a trace.
    pub(crate) fn new(device: DeviceStudy<'s, 'a>) -> Self {
        Self { recording: RecordedProgram::from_device(device), last: Mutex::new(None) }
    }

    /// The row of the change with this key, and the entry index and bytes of each request that fails. `observe`
    /// receives the state on the device after every operation.
    pub(crate) fn replay(
        &self,
        key: &str,
        capacity: Option<u64>,
        observe: &mut StateObserver<'_>,
    ) -> Option<ObservedRow> {
        let change = self.find(key)?;
        Some(ChangeReplayer::new(&self.recording, capacity).observe_row(change, observe))
    }

    /// The replay of the change with this key. `sink` receives every entry that the model writes.
    pub(crate) fn simulate(&self, key: &str, capacity: Option<u64>, sink: &mut EntrySink<'_>) -> Option<Simulation> {
        let change = self.find(key)?;
        Some(ChangeReplayer::new(&self.recording, capacity).simulate(&change, sink))
    }

    fn find(&self, wanted: &str) -> Option<ChangedProgram> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(key, _)| key != wanted) {
            let found = self.search(wanted)?;
            *last = Some((wanted.to_owned(), found));
        }
        last.as_ref().map(|(_, change)| change.clone())
    }

    fn search(&self, wanted: &str) -> Option<ChangedProgram> {
        let recording = &self.recording;
        let is_wanted = |change: &ChangedProgram| {
            let location = recording.code_location(change.line);
            key(change.change, change.bytes_at_peak, &change.description, &location) == wanted
        };
        finders(recording).find_map_any(|finder| (finder.find)(recording).into_iter().find(is_wanted))
    }
}
