//! Reading `oomscope.program`, which the recorder writes. As untrusted as the rest of the file.

use std::io::Read as _;

use flate2::read::ZlibDecoder;

use super::super::SourceFiles;
use super::Decoder;
use super::recorder_info::MAX_TEXT;
use crate::snapshot::pickle::Value;

/// The recorder stores at most 2 MiB of compressed text.
const MAX_TEXT_BYTES: u64 = 64 << 20;

impl Decoder {
    /// `python/oomscope/_source.py` describes the layout. Other values are ignored.
    pub(super) fn read_source_files(&self, value: Value) -> SourceFiles {
        let mut files = SourceFiles::default();
        files.is_complete = self.is_true(value, "complete");
        let mut left = MAX_TEXT_BYTES;
        for (path, value) in self.find(value, "files").map(|it| self.pairs(it)).unwrap_or_default() {
            let path = self.snapshot.symbols.get(path);
            let Some(text) = self.as_text(value).filter(|_| path.len() <= MAX_TEXT) else { continue };
            // A character for each byte: not every pickle and no JSON has bytes.
            let bytes: Option<Vec<u8>> = text.chars().map(|one| u8::try_from(one).ok()).collect();
            let Some(bytes) = bytes else { continue };
            let mut text = Vec::new();
            let read = ZlibDecoder::new(&*bytes).take(left).read_to_end(&mut text);
            left = left.saturating_sub(text.len().max(bytes.len()) as u64);
            if left == 0 {
                break;
            }
            if read.is_ok() {
                files.add(path, String::from_utf8_lossy(&text).into_owned());
            }
        }
        files
    }
}
