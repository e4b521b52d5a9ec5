//! Reading `oomscope.source`, which the recorder writes. As untrusted as the rest of the file.

use super::super::SourceLines;
use super::Decoder;
use super::recorder_info::MAX_TEXT;
use crate::snapshot::pickle::Value;

/// The recorder writes no more.
const MAX_LINES: usize = 200;

impl Decoder {
    /// For each file, line numbers and texts by turns; `python/oomscope/_source.py` describes them. Other values are
    /// ignored.
    pub(super) fn read_source_lines(&self, value: Value) -> SourceLines {
        let mut lines = SourceLines::default();
        // Files may share one long list, so the bound is for all of them.
        let mut left = 2 * MAX_LINES;
        for (file, value) in self.pairs(value) {
            let items = self.items(value);
            let read = items.get(..left).unwrap_or(&items);
            left = left.saturating_sub(items.len().max(1));
            let file = self.snapshot.symbols.get(file);
            if file.len() > MAX_TEXT {
                continue;
            }
            for pair in read.chunks_exact(2) {
                let [line, text] = *pair else { continue };
                let line = self.integer(line).and_then(|line| u32::try_from(line).ok());
                let text = self.as_text(text).filter(|text| text.len() <= MAX_TEXT);
                if let (Some(line), Some(text)) = (line, text) {
                    lines.add(file, line, text);
                }
            }
            if left == 0 {
                break;
            }
        }
        lines
    }
}
