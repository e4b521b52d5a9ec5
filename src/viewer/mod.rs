//! The analyzer behind the page of `oomscope viewer`, as a module of WebAssembly.
//!
//! In: the names and contents of the files that were dropped on the page, one at a time. Out: the page of `oomscope
//! report` for the snapshots among them. [`DroppedFiles`] is the job; `exports` is what the page's worker calls. Knows no
//! browser and reads no file.

#[cfg(target_family = "wasm")]
pub mod exports;

use std::io::{self, Read, Seek};

use crate::analysis::{AnalyzeReport, Options, SnapshotReport, Unreadable, analyze_study};
use crate::base::input::{InputError, Source};
use crate::output::page::{self, PageData, PageOrder};
use crate::snapshot::Snapshot;
use crate::study::Study;

/// Number of rows of each table, as `oomscope report` has by default.
const TABLE_ROWS: usize = 10;

/// A file that was dropped on the page.
#[derive(Debug)]
pub struct DroppedFile<'f, R> {
    /// Without its directory.
    pub name: &'f str,
    /// Bytes before decompression.
    pub stored_bytes: u64,
    /// Its content.
    pub reader: R,
}

/// The files of one page.
#[derive(Debug, Default)]
pub struct DroppedFiles {
    snapshots: Vec<(SnapshotReport, Vec<PageData>)>,
    unreadable: Vec<Unreadable>,
}

impl DroppedFiles {
    /// Reads `file`, one of `files`. `progress` is called with the decompressed bytes analyzed so far and their total.
    ///
    /// # Errors
    /// If its content needs more memory than there is. A file that cannot be read is listed on the page.
    pub fn add<R: Read + Seek>(
        &mut self,
        file: DroppedFile<'_, R>,
        files: usize,
        progress: &dyn Fn(u64, u64),
    ) -> io::Result<()> {
        let DroppedFile { name, stored_bytes, reader } = file;
        let options = Options { top: TABLE_ROWS, keeps_lifetimes: true, ..Options::default() };
        // The source ends here: the analysis needs the memory.
        let read = match Source::from_reader(reader, stored_bytes) {
            Err(InputError::OutOfMemory) => return Err(io::ErrorKind::OutOfMemory.into()),
            Err(error) => Err(error.to_string()),
            Ok(source) => Snapshot::read(&source, &|read| progress(read, source.len() as u64))
                .map(|snapshot| (snapshot, source.stored_bytes()))
                .map_err(|error| error.to_string()),
        };
        let (snapshot, stored_bytes) = match read {
            Ok(read) => read,
            Err(message) => {
                self.unreadable.push(Unreadable { path: name.to_owned(), message });
                return Ok(());
            }
        };
        let study = Study::new(&snapshot, options.scope);
        let mut report = analyze_study(&study, name, stored_bytes, options);
        let data = PageData::from_study(&study, &mut report, files)?;
        self.snapshots.push((report, data));
        Ok(())
    }

    /// The HTML page of all files, from `oomscope` of `version`.
    ///
    /// # Errors
    /// If no file could be read: a line for each.
    pub fn into_page(self, version: &str) -> Result<Vec<u8>, String> {
        if self.snapshots.is_empty() {
            let lines = self.unreadable.iter().map(|file| format!("{}: {}", file.path, file.message));
            return Err(lines.collect::<Vec<_>>().join("\n"));
        }
        let (snapshots, data): (Vec<_>, Vec<_>) = self.snapshots.into_iter().unzip();
        let report = AnalyzeReport::new(snapshots, self.unreadable, TABLE_ROWS);
        let mut page = Vec::new();
        page::write(&report, &data, PageOrder::WorstFirst, version, &mut page)
            .map(|()| page)
            .map_err(|error| error.to_string())
    }
}
