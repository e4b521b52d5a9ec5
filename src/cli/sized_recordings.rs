//! Recordings of one program at several sizes, for `fit`.

use std::path::Path;

use super::inputs;
use crate::snapshot::Snapshot;
use crate::study::{Scope, Study};
use crate::whatif::fit::FitInput;

#[derive(Default)]
pub(super) struct SizedRecordings {
    read: Vec<(u64, String, Snapshot)>,
}

impl SizedRecordings {
    pub(super) fn add(&mut self, size: u64, path: &Path) -> anyhow::Result<()> {
        self.read.push((size, path.display().to_string(), inputs::read_one(path)?));
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.read.len()
    }

    /// Passes the recordings to `predict`. All need a trace.
    pub(super) fn study<T>(&self, predict: impl FnOnce(&[FitInput<'_, '_>]) -> T) -> anyhow::Result<T> {
        let studies: Vec<Study<'_>> =
            self.read.iter().map(|(.., snapshot)| Study::new(snapshot, Scope::default())).collect();
        let inputs = self.read.iter().zip(&studies).map(|((size, path, _), study)| {
            inputs::first_device_with_trace(study, path)?;
            Ok(FitInput { size: *size, path, study })
        });
        Ok(predict(&inputs.collect::<anyhow::Result<Vec<_>>>()?))
    }
}
