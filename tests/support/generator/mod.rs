//! Generates large CUDA memory snapshots: pickles such as `torch.cuda.memory._dump_snapshot()` of
//! PyTorch 2.15 writes. Benchmarks and memory tests need files of hundreds of megabytes, which
//! nobody should have to download; the same options give the same bytes everywhere.
//!
//! A training loop runs through a model of the caching allocator, so the trace is one that
//! PyTorch could have recorded. The segments stand before the trace in the file but are its
//! outcome, and so the loop runs twice: a rehearsal finds out how many operations fill the file
//! and what they leave behind, the second run writes.
// Shared by an example, a benchmark and a test.
#![allow(missing_docs, unreachable_pub, clippy::pedantic)]

mod allocator;
mod frame_lists;
mod frame_names;
mod frame_pool;
mod journal;
mod plan;
mod random;
mod snapshot_writer;
mod stacks;
mod workload;

use std::io::{self, Write};

use frame_pool::FramePool;
use oomscope::snapshot::pickle::PickleWriter;
use random::Random;
use snapshot_writer::SnapshotWriter;
use stacks::StackSpeller;
use workload::Workload;

#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    /// The trace ends where the file reaches about this size.
    pub target_bytes: u64,
    /// Frames of a stack in the mean; stacks of mallocs are deeper, those of frees flatter.
    pub depth: usize,
    /// How many different stacks there are to choose from; with `None` no two mallocs or frees
    /// have the same stack, provided that `depth` is 16 or more.
    pub distinct_stacks: Option<usize>,
    /// Sequences in a batch: activations grow with it.
    pub batch: u64,
    /// Devices, which all do the same. They share the stacks, so the file is a little smaller.
    pub devices: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { seed: 1, target_bytes: 20_000_000, depth: 40, distinct_stacks: Some(2_000), batch: 8, devices: 1 }
    }
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub events: u64,
    /// Unique frames.
    pub frames: u64,
    /// Different stacks; the file has a list of frames for each malloc and each free.
    pub stacks: u64,
    pub bytes: u64,
}

pub fn write_snapshot(out: &mut dyn Write, options: &Options) -> io::Result<Summary> {
    let pool = FramePool::new(&mut Random::new(options.seed, 0));
    let stacks = StackSpeller::new(options.depth, pool);
    let rehearsal = Rehearsal::run(options, &stacks)?;

    let mut writer = SnapshotWriter::new(PickleWriter::new(out)?, &stacks)?;
    let Workload { allocator, stacks, journal, .. } = &rehearsal.workload;
    writer.segments(allocator, stacks, options.devices)?;
    let mut events = 0;
    for device in 0..options.devices {
        let mut workload = Workload::new(options);
        writer.begin_trace(device, options.devices)?;
        let mut written = 0;
        for _ in 0..rehearsal.operations {
            workload.advance();
            for event in workload.journal.events.drain(..) {
                writer.event(&event, written, rehearsal.events)?;
                written += 1;
            }
        }
        writer.end_trace(device, options.devices);
        events += written;
    }
    Ok(Summary {
        events: events as u64,
        frames: writer.frames(),
        stacks: stacks.distinct(),
        bytes: writer.finish(&journal.annotations)?,
    })
}

/// The workload at its end, and what it took to get there.
struct Rehearsal {
    workload: Workload,
    operations: u64,
    events: usize,
}

/// Operations whose segments stand in for the final ones in the rehearsal. They take up the memo
/// numbers that fit into one byte, as the final ones do: otherwise the keys of the events would
/// get those, and the real events would be a tenth longer.
const STAND_IN: u64 = 128;

impl Rehearsal {
    /// Writes the trace to nowhere until it is long enough: no estimate would be simpler.
    fn run(options: &Options, stacks: &StackSpeller) -> io::Result<Self> {
        let mut nowhere = io::sink();
        let mut writer = SnapshotWriter::new(PickleWriter::new(&mut nowhere)?, stacks)?;
        let mut workload = Workload::new(options);
        let (mut operations, mut events) = (STAND_IN, 0);
        for _ in 0..STAND_IN {
            workload.advance();
        }
        writer.segments(&workload.allocator, &workload.stacks, 1)?;
        writer.begin_trace(0, 1)?;
        loop {
            for event in workload.journal.events.drain(..) {
                writer.event(&event, events, usize::MAX)?;
                events += 1;
            }
            if writer.bytes() >= options.target_bytes / options.devices as u64 {
                break;
            }
            workload.advance();
            operations += 1;
        }
        Ok(Rehearsal { workload, operations, events })
    }
}
