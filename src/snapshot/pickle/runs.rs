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
use crate::base::ids::to_u32;

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

/// Slots for beginnings, as a power of two.
const ALIKE_BITS: u32 = 13;
/// Bytes of a beginning: some 20 innermost frames. Shorter runs are cheap to search through.
const BEGINNING: usize = 96;

/// The slot of what `rest` begins with, when that is long enough.
#[inline]
fn beginning(rest: &[u8]) -> Option<usize> {
    let (words, _) = rest.first_chunk::<BEGINNING>()?.as_chunks::<8>();
    // Independent products, so that the processor works on several at once.
    let mut factor = 0x9E37_79B9_7F4A_7C15_u64;
    let mut sum = 0u64;
    for word in words {
        sum = sum.wrapping_add(u64::from_le_bytes(*word).wrapping_mul(factor));
        factor = factor.wrapping_mul(0xD134_2543_DE82_EF95);
    }
    usize::try_from((sum ^ sum >> 29).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - ALIKE_BITS)).ok()
}

/// Runs seen before and the list each one made.
pub(super) struct Runs {
    met: Vec<PickleRun>,
    /// Indices into `met`, by hash.
    table: HashTable<u32>,
    /// The last run that began with the same bytes: see [`beginning`].
    alike: Vec<u32>,
    /// The run met last.
    last: u32,
    looked_up: u32,
    found: u32,
    given_up: bool,
}

struct PickleRun {
    hash: u64,
    start: u64,
    len: u32,
    /// The run that followed this one the last time: programs loop.
    next: u32,
    value: Value,
}

impl PickleRun {
    /// The bytes of the run, and the APPENDS behind it.
    fn bytes<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        let start = usize::try_from(self.start).ok()?;
        file.get(start..start.checked_add(self.len as usize)?.checked_add(1)?)
    }
}

impl Runs {
    pub(super) fn new() -> Self {
        Self {
            met: Vec::new(),
            table: HashTable::new(),
            alike: vec![0; 1 << ALIKE_BITS],
            last: 0,
            looked_up: 0,
            found: 0,
            given_up: false,
        }
    }

    /// The list that begins at `start` of `file`, and where its references end, if it is one of two
    /// good guesses: the one that followed the last one before, and the last one that began with the
    /// same bytes. A guess that proves right spares the search for the end.
    #[inline]
    pub(super) fn predict(&mut self, file: &[u8], start: usize) -> Option<(usize, Value)> {
        let rest = file.get(start..)?;
        let next = self.met.get(self.last as usize)?.next;
        let alike = beginning(rest).and_then(|slot| self.alike.get(slot)).copied();
        for guess in [Some(next), alike].into_iter().flatten() {
            if let Some(run) = self.met.get(guess as usize)
                && let Some(bytes) = run.bytes(file)
                && rest.starts_with(bytes)
            {
                self.found += 1;
                let end = start + bytes.len() - 1;
                return self.follow(guess).map(|value| (end, value));
            }
        }
        None
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
    pub(super) fn find(
        &mut self,
        file: &[u8],
        start: usize,
        run: &[u8],
        hash: u64,
    ) -> Option<Value> {
        self.looked_up += 1;
        let found = self.table.find(hash, |index| {
            self.met.get(*index as usize).is_some_and(|r| {
                r.hash == hash
                    && r.bytes(file).and_then(|b| b.split_last()).is_some_and(|(_, b)| b == run)
            })
        });
        if let Some(&found) = found {
            self.found += 1;
            self.note(file, start, found);
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
    pub(super) fn insert(
        &mut self,
        file: &[u8],
        start: usize,
        run: &[u8],
        hash: u64,
        value: Value,
    ) {
        if let (false, Ok(len)) = (self.given_up, u32::try_from(run.len())) {
            let index = to_u32(self.met.len());
            self.met.push(PickleRun { hash, start: start as u64, len, next: index, value });
            let met = &self.met;
            self.table.insert_unique(hash, index, |i| met.get(*i as usize).map_or(0, |r| r.hash));
            self.note(file, start, index);
            self.follow(index);
        }
    }

    /// Run `index` begins at `start`, and no guess said so.
    fn note(&mut self, file: &[u8], start: usize, index: u32) {
        let slot = file.get(start..).and_then(beginning).and_then(|slot| self.alike.get_mut(slot));
        if let Some(slot) = slot {
            *slot = index;
        }
    }

    /// Run `index` followed the last one.
    fn follow(&mut self, index: u32) -> Option<Value> {
        if let Some(last) = self.met.get_mut(self.last as usize) {
            last.next = index;
        }
        self.last = index;
        self.met.get(index as usize).map(|run| run.value)
    }

    /// Forgets everything: a memo slot was written a second time, so equal bytes may differ.
    pub(super) fn clear(&mut self) {
        self.met = Vec::new();
        self.table = HashTable::new();
    }
}
