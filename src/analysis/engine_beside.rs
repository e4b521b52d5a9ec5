//! A serving engine that holds memory while other code of the program fails, such as training.

use crate::analysis::failure::OomReport;
use crate::stacks::phases::Engine;
use crate::study::attribution::Category;

/// An engine that holds enough to serve the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineBeside {
    /// `vLLM` or `SGLang`.
    pub engine: &'static str,
    /// All that it holds, in bytes.
    pub bytes: u64,
    /// The largest part of it.
    pub category: Category,
    /// Bytes of that part.
    pub category_bytes: u64,
}

impl EngineBeside {
    /// The engine that holds most at `oom`, if the request is none of an engine's.
    pub(super) fn from_failure(oom: &OomReport) -> Option<Self> {
        if oom.frames.iter().any(|frame| Engine::of_file(&frame.file).is_some()) {
            return None;
        }
        let held = oom.held.as_ref()?.by_engine.iter().find(|row| row.engine.is_some())?;
        let largest = held.by_category.first()?;
        (held.share.bytes >= oom.shortfall_bytes).then_some(Self {
            engine: held.engine?,
            bytes: held.share.bytes,
            category: largest.category,
            category_bytes: largest.share.bytes,
        })
    }
}
