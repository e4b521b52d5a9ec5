//! A cache of lists that contain only references, by their bytes.
//!
//! Most of a snapshot is stacks: lists of memo references to frames. A memo slot is written once, so equal stacks have
//! equal bytes, and the bytes of a run of references identify the list. They are hashed and compared with an earlier
//! occurrence in the file, which spares the memo lookups and the builder.

use std::hash::Hasher;

use hashbrown::HashTable;
use rustc_hash::FxHasher;

use super::opcode::{APPENDS, BINGET, LONG_BINGET};
use super::value::Value;
use crate::base::ids::to_u32;

/// After this many lookups the cache is disabled if it has too few hits.
const TRIAL_LOOKUPS: u32 = 100_000;

/// The end of the run of references at `start`, if APPENDS follows it.
#[inline]
pub(super) fn find_run_end(bytes: &[u8], start: usize) -> Option<usize> {
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

/// Slots for prefixes, as a power of two.
const PREFIX_SLOT_BITS: u32 = 13;
/// Bytes of a prefix: about 20 innermost frames. The end of shorter runs is cheap to find.
const PREFIX_LEN: usize = 96;

/// The slot of the prefix of `rest`, if it is long enough.
#[inline]
fn prefix_slot(rest: &[u8]) -> Option<usize> {
    let (words, _) = rest.first_chunk::<PREFIX_LEN>()?.as_chunks::<8>();
    // The products are independent, so the processor computes several at once.
    let mut factor = 0x9E37_79B9_7F4A_7C15_u64;
    let mut sum = 0u64;
    for word in words {
        sum = sum.wrapping_add(u64::from_le_bytes(*word).wrapping_mul(factor));
        factor = factor.wrapping_mul(0xD134_2543_DE82_EF95);
    }
    usize::try_from((sum ^ sum >> 29).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - PREFIX_SLOT_BITS)).ok()
}

/// Earlier runs, and the list of each.
#[derive(Default)]
pub(super) struct ReferenceRuns {
    /// The bytes of all runs; `None` if the file remains in memory.
    copies: Option<Vec<u8>>,
    runs: Vec<ReferenceRun>,
    /// Indexes into `runs`, by hash.
    table: HashTable<u32>,
    /// The last run with the same prefix: see [`prefix_slot`].
    by_prefix: Vec<u32>,
    /// The last run.
    last: u32,
    lookups: u32,
    hits: u32,
    is_disabled: bool,
}

struct ReferenceRun {
    hash: u64,
    /// Its place in the copies, if there are any, or in the file.
    start: u64,
    len: u32,
    /// The run that followed this one last time. Programs loop, so it may follow again.
    next: u32,
    value: Value,
}

impl ReferenceRun {
    /// The bytes of the run, and APPENDS.
    fn bytes<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        let start = usize::try_from(self.start).ok()?;
        file.get(start..start.checked_add(self.len as usize)?.checked_add(1)?)
    }
}

impl ReferenceRuns {
    pub(super) fn new(copies: Option<Vec<u8>>) -> Self {
        Self { copies, by_prefix: vec![0; 1 << PREFIX_SLOT_BITS], ..Self::default() }
    }

    /// The list at `start` and the end of its references, if one of two guesses is right: the run that followed the
    /// last run before, or the last run with the same prefix. A right guess spares the search for the end.
    #[inline]
    pub(super) fn predict(&mut self, file: &[u8], start: usize) -> Option<(usize, Value)> {
        let rest = file.get(start..)?;
        let next = self.runs.get(self.last as usize)?.next;
        let (guess, len) = self.run_at(file, rest, next).or_else(|| {
            let by_prefix = *self.by_prefix.get(prefix_slot(rest)?)?;
            self.run_at(file, rest, by_prefix)
        })?;
        self.hits += 1;
        self.set_last(guess).map(|value| (start + len - 1, value))
    }

    /// Run `guess` and its length, if `rest` starts with it.
    #[inline]
    fn run_at(&self, file: &[u8], rest: &[u8], guess: u32) -> Option<(u32, usize)> {
        let earlier = self.copies.as_deref().unwrap_or(file);
        let bytes = self.runs.get(guess as usize)?.bytes(earlier)?;
        rest.starts_with(bytes).then_some((guess, bytes.len()))
    }

    /// The hash of `run`; `None` if the cache is disabled.
    #[inline]
    pub(super) fn hash(&self, run: &[u8]) -> Option<u64> {
        if self.is_disabled {
            return None;
        }
        let mut hasher = FxHasher::default();
        hasher.write(run);
        Some(hasher.finish())
    }

    /// The list of an earlier run with the same bytes.
    #[inline]
    pub(super) fn find(&mut self, file: &[u8], start: usize, run: &[u8], hash: u64) -> Option<Value> {
        self.lookups += 1;
        let earlier = self.copies.as_deref().unwrap_or(file);
        let found = self.table.find(hash, |index| {
            self.runs.get(*index as usize).is_some_and(|r| {
                r.hash == hash && r.bytes(earlier).and_then(|b| b.split_last()).is_some_and(|(_, b)| b == run)
            })
        });
        if let Some(&found) = found {
            self.hits += 1;
            self.set_prefix(file, start, found);
            return self.set_last(found);
        }
        if self.lookups >= TRIAL_LOOKUPS {
            self.is_disabled = self.hits < TRIAL_LOOKUPS / 10;
            if self.is_disabled {
                self.clear();
            }
            (self.lookups, self.hits) = (0, 0);
        }
        None
    }

    /// Adds `run`, at `start` of the file, with its list `value`.
    pub(super) fn insert(&mut self, file: &[u8], start: usize, run: &[u8], hash: u64, value: Value) {
        if let (false, Ok(len)) = (self.is_disabled, u32::try_from(run.len())) {
            let index = to_u32(self.runs.len());
            let copied_to = self.copies.as_mut().map(|copies| {
                copies.extend(run.iter().chain(&[APPENDS]));
                copies.len() - run.len() - 1
            });
            let kept_at = copied_to.unwrap_or(start) as u64;
            self.runs.push(ReferenceRun { hash, start: kept_at, len, next: index, value });
            let met = &self.runs;
            self.table.insert_unique(hash, index, |i| met.get(*i as usize).map_or(0, |r| r.hash));
            self.set_prefix(file, start, index);
            self.set_last(index);
        }
    }

    /// Makes run `index` the guess for the prefix at `start`.
    fn set_prefix(&mut self, file: &[u8], start: usize, index: u32) {
        let slot = file.get(start..).and_then(prefix_slot).and_then(|slot| self.by_prefix.get_mut(slot));
        if let Some(slot) = slot {
            *slot = index;
        }
    }

    /// Makes `index` the last run, and the guess for what follows the one before. Returns its list.
    fn set_last(&mut self, index: u32) -> Option<Value> {
        if let Some(last) = self.runs.get_mut(self.last as usize) {
            last.next = index;
        }
        self.last = index;
        self.runs.get(index as usize).map(|run| run.value)
    }

    /// Empties the cache: after a memo slot is overwritten, equal bytes may mean different lists.
    pub(super) fn clear(&mut self) {
        self.copies.iter_mut().for_each(|copies| *copies = Vec::new());
        self.runs = Vec::new();
        self.table = HashTable::new();
    }
}
