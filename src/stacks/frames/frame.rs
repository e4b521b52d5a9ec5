//! One frame, for people and JSON.

use std::sync::Arc;

use serde::Serialize;

use super::origin::Origin;

/// One frame, for people and JSON.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct FrameReport {
    /// File name as recorded; characters that a terminal could act on are escaped, here and in `name`.
    pub file: String,
    /// Line number; 0 when there is none. In a shared library, an offset.
    pub line: u32,
    /// Function name.
    pub name: String,
}

/// Frames of one stack, innermost first. Shared: many blocks and failures have the same stack.
pub type FrameList = Arc<[FrameReport]>;

impl FrameReport {
    /// Whose code it is.
    pub fn origin(&self) -> Origin {
        Origin::of(&self.file, self.line, &self.name)
    }

    /// `file:line`, or the bare name where there is no file.
    pub fn place(&self) -> String {
        match (self.file.as_str(), self.line) {
            ("" | "??", _) => self.name.clone(),
            (file, 0) => file.to_owned(),
            (file, line) => format!("{file}:{line}"),
        }
    }

    /// The line with the end of its path, which tells most: the last two components.
    pub fn in_short(&self) -> String {
        let from = self.file.rmatch_indices(['/', '\\']).nth(1).map_or(0, |(at, _)| at + 1);
        let file = self.file.get(from..).unwrap_or(&self.file);
        format!("{file}:{} in {}", self.line, self.name)
    }
}
