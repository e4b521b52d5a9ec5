//! Lists that consist of nothing but references, answered by their bytes.
//!
//! Most of a snapshot is stack traces: lists whose every item is a memo reference to a frame. The
//! same stack is written with the same bytes each time (a memo slot is written once), so the bytes
//! of the run identify the list: hash them, compare them with the first occurrence in the file, and
//! neither the memo nor the builder is asked again.

use std::hash::Hasher;

use hashbrown::HashTable;
use rustc_hash::FxHasher;

use super::opcode::{APPENDS, BINGET, LONG_BINGET};
use super::value::Value;

/// Look-ups after which a cache that finds too little is given up.
const TRIAL: u32 = 100_000;

/// Where the run of references that starts at `start` ends, if APPENDS follows it.
#[inline]
pub(super) fn end_of_run(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        // Four at a time: half of all opcodes of a snapshot are these.
        while let Some(
            [
                LONG_BINGET,
                _,
                _,
                _,
                _,
                LONG_BINGET,
                _,
                _,
                _,
                _,
                LONG_BINGET,
                _,
                _,
                _,
                _,
                LONG_BINGET,
                ..,
            ],
        ) = bytes.get(at..).and_then(<[u8]>::first_chunk::<20>)
        {
            at += 20;
        }
        match bytes.get(at) {
            Some(&LONG_BINGET) => at += 5,
            Some(&BINGET) => at += 2,
            Some(&APPENDS) if at > start => return Some(at),
            _ => return None,
        }
    }
}

/// Runs seen before and the list each one made.
pub(super) struct Runs {
    table: HashTable<Run>,
    looked_up: u32,
    found: u32,
    given_up: bool,
}

struct Run {
    hash: u64,
    start: u64,
    len: u32,
    value: Value,
}

impl Runs {
    pub(super) fn new() -> Self {
        Self { table: HashTable::new(), looked_up: 0, found: 0, given_up: false }
    }

    /// The hash to look `run` up and insert it with; `None` when runs do not repeat in this file.
    #[inline]
    pub(super) fn hash(&self, run: &[u8]) -> Option<u64> {
        if self.given_up {
            return None;
        }
        let mut hasher = FxHasher::default();
        hasher.write(run);
        Some(hasher.finish())
    }

    /// The list that the same bytes made before.
    #[inline]
    pub(super) fn find(&mut self, bytes: &[u8], run: &[u8], hash: u64) -> Option<Value> {
        self.looked_up += 1;
        let found = self.table.find(hash, |r| {
            r.hash == hash
                && usize::try_from(r.start).is_ok_and(|start| {
                    bytes.get(start..start.saturating_add(r.len as usize)) == Some(run)
                })
        });
        if let Some(found) = found {
            self.found += 1;
            return Some(found.value);
        }
        if self.looked_up >= TRIAL {
            self.given_up = self.found < TRIAL / 10;
            if self.given_up {
                self.clear();
            }
            (self.looked_up, self.found) = (0, 0);
        }
        None
    }

    /// Remembers that the bytes `run`, at `start`, made `value`.
    pub(super) fn insert(&mut self, start: usize, run: &[u8], hash: u64, value: Value) {
        if let (false, Ok(len)) = (self.given_up, u32::try_from(run.len())) {
            let run = Run { hash, start: start as u64, len, value };
            self.table.insert_unique(hash, run, |r| r.hash);
        }
    }

    /// Forgets everything: a memo slot was written a second time, so equal bytes may differ.
    pub(super) fn clear(&mut self) {
        self.table = HashTable::new();
    }
}
