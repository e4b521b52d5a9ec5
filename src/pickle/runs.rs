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
use crate::ids::row;

/// Look-ups after which a cache that finds too little is given up.
const TRIAL: u32 = 100_000;

/// Where the run of references that starts at `start` ends, if APPENDS follows it.
#[inline]
pub(super) fn end_of_run(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
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
    runs: Vec<Run>,
    /// Indices into `runs`, by hash.
    table: HashTable<u32>,
    /// The run met last.
    last: u32,
    looked_up: u32,
    found: u32,
    given_up: bool,
}

struct Run {
    hash: u64,
    start: u64,
    len: u32,
    /// The run that followed this one the last time: programs loop.
    next: u32,
    value: Value,
}

impl Run {
    /// The bytes of the run, and the APPENDS behind it.
    fn bytes<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        let start = usize::try_from(self.start).ok()?;
        file.get(start..start.checked_add(self.len as usize)?.checked_add(1)?)
    }
}

impl Runs {
    pub(super) fn new() -> Self {
        Self {
            runs: Vec::new(),
            table: HashTable::new(),
            last: 0,
            looked_up: 0,
            found: 0,
            given_up: false,
        }
    }

    /// The list that begins at `start` of `file`, and where its references end, if it is the one that
    /// followed the last one before: found without looking for its end.
    #[inline]
    pub(super) fn predict(&mut self, file: &[u8], start: usize) -> Option<(usize, Value)> {
        let next = self.runs.get(self.last as usize)?.next;
        let run = self.runs.get(next as usize)?;
        let bytes = run.bytes(file)?;
        if file.get(start..)?.starts_with(bytes) {
            self.last = next;
            Some((start + bytes.len() - 1, run.value))
        } else {
            None
        }
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
    pub(super) fn find(&mut self, file: &[u8], run: &[u8], hash: u64) -> Option<Value> {
        self.looked_up += 1;
        let found = self.table.find(hash, |index| {
            self.runs.get(*index as usize).is_some_and(|r| {
                r.hash == hash
                    && r.bytes(file).and_then(|b| b.split_last()).is_some_and(|(_, b)| b == run)
            })
        });
        if let Some(&found) = found {
            self.found += 1;
            return self.follow(found);
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
            let index = row(self.runs.len());
            self.runs.push(Run { hash, start: start as u64, len, next: index, value });
            let runs = &self.runs;
            self.table.insert_unique(hash, index, |i| runs.get(*i as usize).map_or(0, |r| r.hash));
            self.follow(index);
        }
    }

    /// Run `index` followed the last one.
    fn follow(&mut self, index: u32) -> Option<Value> {
        if let Some(last) = self.runs.get_mut(self.last as usize) {
            last.next = index;
        }
        self.last = index;
        self.runs.get(index as usize).map(|run| run.value)
    }

    /// Forgets everything: a memo slot was written a second time, so equal bytes may differ.
    pub(super) fn clear(&mut self) {
        self.runs = Vec::new();
        self.table = HashTable::new();
    }
}
