//! The source text around the line of a failed request.

use serde::Serialize;

use crate::snapshot::SourceFiles;
use crate::stacks::frames::FrameReport;

/// A source line with its neighbours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceExcerpt {
    /// File name, as in the stack.
    pub file: String,
    /// Number of the first of `lines`.
    pub first_line: u32,
    /// Texts of consecutive lines, each cut after 160 characters: `line` with the one before and the one after, as far
    /// as they are known.
    pub lines: Vec<String>,
    /// Number of the line that made the request.
    pub line: u32,
}

impl SourceExcerpt {
    /// `None` if the text of the line is unknown.
    pub(in crate::analysis) fn quote(frame: &FrameReport, source: &SourceFiles) -> Option<Self> {
        let text = |line: u32| source.line(&frame.file, line);
        let failing = text(frame.line)?;
        let before = frame.line.checked_sub(1).and_then(text);
        let first_line = frame.line - u32::from(before.is_some());
        let after = frame.line.checked_add(1).and_then(text);
        let lines = before.into_iter().chain([failing]).chain(after).collect();
        Some(Self { file: frame.file.clone(), first_line, lines, line: frame.line })
    }
}
