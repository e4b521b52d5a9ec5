//! Performs the operations of several processes on one simulated device, in the order of their clocks.
//!
//! Each process has an allocator of its own. The device has free what all of them together leave: a request that finds
//! it full releases the cached blocks of its own process, and fails if that is not enough. A process holds its initial
//! memory before its first entry, and its last state after its last one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::hypothesis::Hypothesis;
use super::simulate::{Simulator, simulated_device};
use crate::allocator::device::DeviceMemory as _;
use crate::replay::ops::Program;

/// One of the processes.
#[derive(Debug, Clone, Copy)]
pub struct SharedProcess<'a> {
    pub program: &'a Program<'a>,
    /// With the total memory of the device as its capacity.
    pub hypothesis: &'a Hypothesis,
}

/// The memory that the processes have reserved at an entry of one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharedMoment {
    /// Index of the process of the entry.
    pub process: usize,
    pub entry_index: usize,
    /// Bytes of the device that each process has reserved.
    pub reserved_bytes: Vec<u64>,
}

impl SharedMoment {
    pub fn total_bytes(&self) -> u64 {
        self.reserved_bytes.iter().sum()
    }
}

/// The outcome of [`simulate_shared`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharedRun {
    /// The moment with the most reserved bytes in all.
    pub peak: SharedMoment,
    /// The first request that fails, with its rounded bytes; 0 bytes if the initial memory alone exceeds the device.
    pub failed: Option<(SharedMoment, u64)>,
}

/// Performs `processes` on a device that has `capacity` bytes for all of them, until a request fails. Entries without
/// times are performed process after process.
pub fn simulate_shared(processes: &[SharedProcess<'_>], capacity: u64) -> SharedRun {
    let simulators = processes.iter().map(|SharedProcess { program, hypothesis }| {
        Simulator::new(program, hypothesis, simulated_device(program, hypothesis))
    });
    let mut simulators: Vec<_> = simulators.collect();
    let mut reserved: Vec<u64> = simulators.iter().map(|simulator| simulator.device.used_bytes()).collect();
    let mut total: u64 = reserved.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes));
    let mut run = SharedRun::default();
    run.peak.reserved_bytes.clone_from(&reserved);
    if total > capacity {
        run.failed = Some((run.peak.clone(), 0));
        return run;
    }
    let mut peak_bytes = total;
    let time_of = |process: usize, at: usize| {
        let program = processes[process].program;
        program.operations.get(at).map(|operation| Reverse((program.time_us(operation), process, at)))
    };
    let mut next: BinaryHeap<_> = (0..processes.len()).filter_map(|process| time_of(process, 0)).collect();
    while let Some(Reverse((_, process, at))) = next.pop() {
        let simulator = &mut simulators[process];
        let operation = &processes[process].program.operations[at];
        let contexts = simulator.device.total_bytes().saturating_sub(capacity);
        simulator.device.set_used_elsewhere((total - reserved[process]).saturating_add(contexts));
        simulator.perform(operation);
        simulator.allocator.clear_entries();
        let used = simulator.device.used_bytes();
        total = total - reserved[process] + used;
        reserved[process] = used;
        let moment =
            || SharedMoment { process, entry_index: operation.entry_index as usize, reserved_bytes: reserved.clone() };
        if total > peak_bytes {
            peak_bytes = total;
            run.peak = moment();
        }
        if let Some((_, bytes)) = simulator.ooms.first() {
            run.failed = Some((moment(), *bytes));
            break;
        }
        next.extend(time_of(process, at + 1));
    }
    run
}
