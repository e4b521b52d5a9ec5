//! A caching allocator as small as it can be and still be PyTorch's, with default settings: it keeps
//! its own totals after every trace entry, so that a replay of the entries can be held against them.
//!
//! Rules: c10/cuda/CUDACachingAllocator.cpp, `round_size`, `get_pool`, `get_allocation_size`,
//! `get_free_block`, `should_split`, `try_merge_blocks`, `release_cached_blocks`.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use std::collections::BTreeMap;

use oomscope::replay::literal::Totals;
use proptest::prelude::*;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x5000_0000_0000;
/// A stream of the program's own, as a raw handle.
pub const SIDE_STREAM: u64 = 0x7f55_0000_1230;

/// What a program does.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    Alloc {
        bytes: u64,
        side_stream: bool,
    },
    /// Frees one of the live blocks.
    Free {
        which: usize,
    },
    /// The same, but another stream still uses it.
    FreeWhileUsed {
        which: usize,
    },
    /// The other stream is done with one of those blocks.
    Complete {
        which: usize,
    },
    EmptyCache,
    /// A request fails.
    Fail {
        bytes: u64,
    },
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 1..4096u64,
        2 => 4096..MIB,
        1 => (MIB - 1024)..(MIB + 1024),
        3 => MIB..(10 * MIB),
        1 => (10 * MIB - 1024)..(10 * MIB + 1024),
        2 => (10 * MIB)..(40 * MIB),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (bytes(), prop::bool::weighted(0.2))
            .prop_map(|(bytes, side_stream)| Step::Alloc { bytes, side_stream }),
        6 => any::<usize>().prop_map(|which| Step::Free { which }),
        2 => any::<usize>().prop_map(|which| Step::FreeWhileUsed { which }),
        1 => any::<usize>().prop_map(|which| Step::Complete { which }),
        1 => Just(Step::EmptyCache),
        1 => bytes().prop_map(|bytes| Step::Fail { bytes }),
    ]
}

/// Programs of fewer than `most` steps.
pub fn program(most: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..most)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Live,
    Pending,
    Free,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    size: u64,
    requested: u64,
    state: State,
    segment: u64,
    stream: u64,
    is_small: bool,
}

/// A block in use at some moment.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    pub address: u64,
    pub is_small: bool,
}

/// The allocator of one device.
#[derive(Debug, Default)]
pub struct Reference {
    /// By address.
    segments: BTreeMap<u64, u64>,
    /// By address; together they fill the segments.
    blocks: BTreeMap<u64, Block>,
    totals: Totals,
    /// The trace.
    pub events: Vec<Value>,
    /// The totals after each entry.
    pub after: Vec<Totals>,
    /// The blocks in use after each entry.
    pub held: Vec<Vec<Held>>,
}

fn round(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(512)
}

fn segment_size(rounded: u64) -> u64 {
    match rounded {
        0..=MIB => 2 * MIB,
        _ if rounded < 10 * MIB => 20 * MIB,
        _ => rounded.next_multiple_of(2 * MIB),
    }
}

impl Reference {
    /// Runs `program` from an empty allocator.
    pub fn run(program: &[Step]) -> Self {
        let mut reference = Self::default();
        for step in program {
            reference.step(*step);
        }
        reference
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Alloc { bytes, side_stream } => {
                self.allocate(bytes, if side_stream { SIDE_STREAM } else { 0 });
            }
            Step::Free { which } => {
                if let Some(address) = self.request_free(which) {
                    self.complete_free(address);
                }
            }
            Step::FreeWhileUsed { which } => {
                self.request_free(which);
            }
            Step::Complete { which } => {
                if let Some(address) = self.pick(State::Pending, which) {
                    self.complete_free(address);
                }
            }
            Step::EmptyCache => self.empty_cache(),
            Step::Fail { bytes } => {
                let size = round(bytes);
                self.record(json!({"action": "oom", "device_free": 12345, "size": size, "stream": 0}));
            }
        }
    }

    fn record(&mut self, event: Value) {
        self.events.push(event);
        self.after.push(self.totals);
        let held = self.blocks.iter().filter(|(_, b)| b.state != State::Free);
        self.held.push(held.map(|(a, b)| Held { address: *a, is_small: b.is_small }).collect());
    }

    fn say(&mut self, action: &str, address: u64, size: u64, stream: u64) {
        let time = 1_795_000_000_000_000 + self.events.len() as u64;
        self.record(json!({
            "action": action, "addr": address, "size": size, "stream": stream, "time_us": time,
        }));
    }

    fn pick(&self, state: State, which: usize) -> Option<u64> {
        let of_state: Vec<u64> = self.blocks.iter().filter(|(_, b)| b.state == state).map(|(a, _)| *a).collect();
        of_state.get(which.checked_rem(of_state.len())?).copied()
    }

    fn allocate(&mut self, bytes: u64, stream: u64) {
        let rounded = round(bytes);
        let is_small = rounded <= MIB;
        let fits =
            |b: &Block| b.state == State::Free && b.stream == stream && b.is_small == is_small && b.size >= rounded;
        let best = self.blocks.iter().filter(|(_, b)| fits(b)).min_by_key(|(a, b)| (b.size, **a));
        let address = match best {
            Some((address, _)) => *address,
            None => self.new_segment(segment_size(rounded), stream, is_small),
        };
        let mut block = self.blocks[&address];
        let rest = block.size - rounded;
        if (is_small && rest >= 512) || (!is_small && rest > MIB) {
            self.blocks.insert(address + rounded, Block { size: rest, ..block });
            block.size = rounded;
        }
        block.state = State::Live;
        block.requested = bytes;
        self.blocks.insert(address, block);
        self.totals.allocated += block.size;
        self.totals.active += block.size;
        self.totals.requested += bytes;
        self.say("alloc", address, bytes, stream);
    }

    /// At the lowest address with room, so that segments adjoin and addresses come again.
    fn new_segment(&mut self, size: u64, stream: u64, is_small: bool) -> u64 {
        let mut address = BASE;
        for (taken, length) in &self.segments {
            if address + size <= *taken {
                break;
            }
            address = taken + length;
        }
        self.segments.insert(address, size);
        let state = State::Free;
        let block = Block { size, requested: 0, state, segment: address, stream, is_small };
        self.blocks.insert(address, block);
        self.totals.reserved += size;
        self.say("segment_alloc", address, size, stream);
        address
    }

    fn request_free(&mut self, which: usize) -> Option<u64> {
        let address = self.pick(State::Live, which)?;
        let block = self.blocks.get_mut(&address)?;
        block.state = State::Pending;
        let Block { size, requested, stream, .. } = *block;
        self.totals.allocated -= size;
        self.say("free_requested", address, requested, stream);
        Some(address)
    }

    fn complete_free(&mut self, address: u64) {
        let mut block = self.blocks[&address];
        block.state = State::Free;
        self.totals.active -= block.size;
        self.totals.requested -= block.requested;
        self.blocks.insert(address, block);
        let joins = |other: &Block| other.state == State::Free && other.segment == block.segment;
        let mut start = address;
        if let Some((next, other)) = self.blocks.range(address + 1..).next()
            && joins(other)
        {
            let (next, size) = (*next, other.size);
            self.blocks.remove(&next);
            block.size += size;
        }
        if let Some((previous, other)) = self.blocks.range(..address).next_back()
            && joins(other)
        {
            start = *previous;
            block.size += other.size;
            self.blocks.remove(&address);
        }
        let requested = block.requested;
        self.blocks.insert(start, block);
        self.say("free_completed", address, requested, block.stream);
    }

    /// Waits for all streams, then gives back every segment that is one free block.
    fn empty_cache(&mut self) {
        while let Some(address) = self.pick(State::Pending, 0) {
            self.complete_free(address);
        }
        for is_small in [false, true] {
            let whole = |(address, size): (&u64, &u64)| {
                let block = &self.blocks[address];
                let is_whole = block.state == State::Free && block.size == *size;
                (is_whole && block.is_small == is_small).then_some((*address, *size, block.stream))
            };
            let given_back: Vec<_> = self.segments.iter().filter_map(whole).collect();
            for (address, size, stream) in given_back {
                self.segments.remove(&address);
                self.blocks.remove(&address);
                self.totals.reserved -= size;
                self.say("segment_free", address, size, stream);
            }
        }
    }

    /// The segments at the end, as a snapshot of `device` has them.
    pub fn segments(&self, device: usize) -> Vec<Value> {
        let segment = |(address, size): (&u64, &u64)| {
            let blocks: Vec<(&u64, &Block)> = self.blocks.range(*address..address + size).collect();
            let first = blocks[0].1;
            json!({
                "device": device,
                "address": address,
                "total_size": size,
                "stream": first.stream,
                "segment_type": if first.is_small { "small" } else { "large" },
                "segment_pool_id": [0, 0],
                "is_expandable": false,
                "blocks": blocks.iter().map(|(a, b)| b.to_json(**a)).collect::<Vec<_>>(),
            })
        };
        self.segments.iter().map(segment).collect()
    }
}

impl Block {
    fn to_json(self, address: u64) -> Value {
        json!({
            "address": address,
            "size": self.size,
            "requested_size": self.requested, // stale in free blocks, as in PyTorch
            "state": match self.state {
                State::Live => "active_allocated",
                State::Pending => "active_pending_free",
                State::Free => "inactive",
            },
        })
    }
}

/// The snapshot of all `devices`, the first `cut` entries of each trace lost.
pub fn snapshot_bytes(devices: &[(&Reference, usize)]) -> Vec<u8> {
    let segments: Vec<Value> = devices.iter().enumerate().flat_map(|(i, (d, _))| d.segments(i)).collect();
    let traces: Vec<&[Value]> = devices.iter().map(|(d, cut)| &d.events[*cut..]).collect();
    let settings = json!({"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": false});
    serde_json::to_vec(&json!({
        "segments": segments, "device_traces": traces, "allocator_settings": settings,
    }))
    .unwrap()
}
