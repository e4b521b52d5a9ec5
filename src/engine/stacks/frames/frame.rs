//! A frame as reports show it.

use std::ops::Deref;
use std::sync::Arc;

use serde::Serialize;

use super::origin::Origin;

/// A stack frame.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct FrameReport {
    /// File name as recorded; characters that a terminal could interpret are escaped.
    pub file: String,
    /// Line number; 0 if there is none. An offset for frames in a shared library.
    pub line: u32,
    /// Function name, escaped like `file`.
    pub name: String,
    /// Whose code it is, by all frames of the recording.
    #[serde(skip)]
    pub origin: Origin,
}

/// Frames of one stack. Reference-counted because many blocks and failures share a stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FrameList {
    /// Frames of the stack, innermost first; empty if none was recorded.
    pub frames: Arc<[FrameReport]>,
    /// Number of frames of the stack that are not in `frames`; absent if there are none. A report of one snapshot has
    /// room for about 100,000 frames, which its stacks share.
    #[serde(rename = "frames_left_out", skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Deref for FrameList {
    type Target = [FrameReport];

    fn deref(&self) -> &[FrameReport] {
        &self.frames
    }
}

impl FrameReport {
    /// A frame without a recording: whose code it is shows its path alone.
    pub fn new(file: String, line: u32, name: String) -> Self {
        let origin = Origin::classify(&file, line, &name);
        Self { file, line, name, origin }
    }

    /// `file:line`, or the function name if there is no file.
    pub fn file_line(&self) -> String {
        match (self.file.as_str(), self.line) {
            ("" | "??", _) => self.name.clone(),
            (file, 0) => file.to_owned(),
            (file, line) => format!("{file}:{line}"),
        }
    }

    /// `file:line`, with the last component of the path.
    pub fn brief_label(&self) -> String {
        let start = self.file.rfind(['/', '\\']).map_or(0, |at| at + 1);
        format!("{}:{}", self.file.get(start..).unwrap_or(&self.file), self.line)
    }

    /// `file:line in function`, with the last two components of the path.
    pub fn short_label(&self) -> String {
        let start = self.file.rmatch_indices(['/', '\\']).nth(1).map_or(0, |(at, _)| at + 1);
        let file = self.file.get(start..).unwrap_or(&self.file);
        format!("{file}:{} in {}", self.line, self.name)
    }
}
