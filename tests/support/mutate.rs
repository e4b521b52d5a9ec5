//! Damage to bytes, the same for the same seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A small seeded random number generator (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}

/// The opcodes that pickles of data are made of: any in place of any other is likely damage that
/// keeps the reader going for a while.
const OPCODES: &[u8] =
    b"(.012}]NKMJae)tusqhjrbl\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8f\x90\x91\x93\x94\x95cRXUGdIFgpB";

/// `bytes` with a few things wrong; parts of `other` may turn up in it.
pub fn mutant(random: &mut Random, bytes: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    // Mostly one or two wounds: more kill near the beginning.
    let more = random.below(4);
    let wounds = 1 + more * random.below(2);
    for _ in 0..wounds {
        let at = random.below(bytes.len());
        let reach = 1 << random.below(10);
        let len = 1 + random.below(reach);
        let end = (at + len).min(bytes.len());
        match random.below(10) {
            0 | 1 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            2 => {
                let byte = random.byte();
                bytes.get_mut(at).into_iter().for_each(|b| *b = byte);
            }
            3 | 4 => {
                // An opcode in place of the next opcode, or of what looks like one.
                let is_opcode = |b: &u8| OPCODES.contains(b);
                if let Some(byte) = bytes.iter_mut().skip(at).find(|b| is_opcode(b)) {
                    *byte = OPCODES[random.below(OPCODES.len())];
                }
            }
            5 => bytes.truncate(at),
            6 => drop(bytes.drain(at..end)),
            7 => {
                let chunk = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, chunk);
            }
            8 => {
                let from = random.below(other.len());
                let chunk = other[from..(from + len).min(other.len())].to_vec();
                bytes.splice(at..end, chunk);
            }
            _ => {
                // A length or a number at its limits.
                let extreme = [0u8, 0xff, 0x7f, 0x80][random.below(4)];
                bytes[at..(at + 1 + random.below(8)).min(end)].fill(extreme);
            }
        }
    }
    bytes
}

/// Calls `exercise` with every seed, on several threads; how often it said that something was read. A panic names
/// the seed.
pub fn with_seeds(name: &str, seeds: u64, exercise: impl Fn(&mut Random) -> bool + Sync) -> usize {
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get() as u64);
    let (exercise, from) = (&exercise, |first: u64| (first..seeds).step_by(threads as usize));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|first| {
                let one = move |seed: &u64| {
                    let run = AssertUnwindSafe(|| exercise(&mut Random::new(*seed)));
                    catch_unwind(run).unwrap_or_else(|_| panic!("mutant {seed} of {name}"))
                };
                scope.spawn(move || from(first).filter(one).count())
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    })
}
