//! A serving engine that holds memory while other code of the program fails, such as training.

use crate::analysis::failure::OomReport;
use crate::stacks::engines::Engine;

/// The engine that holds enough to serve `oom`'s request, if that is none of an engine's.
pub(super) fn engine_beside(oom: &OomReport) -> Option<&'static Engine> {
    if oom.is_in_engine() {
        return None;
    }
    let held = oom.held.as_ref()?.by_engine.iter().find(|row| row.engine.is_some())?;
    held.engine.filter(|_| held.share.bytes >= oom.shortfall_bytes)
}
