//! The library's model of the caching allocator of PyTorch 2.15 with its default settings, on a device without end. So the
//! trace of a generated snapshot is one that PyTorch could have recorded, and its segments are the end of that trace.
#![allow(clippy::expect_used)]

use oomscope::allocator::conf::Settings;
use oomscope::allocator::device::SimulatedDevice;
use oomscope::allocator::releases::NEWEST;
use oomscope::allocator::{Behaviour, BlockId, BlockView, CachingAllocator, Request, SegmentView};
use oomscope::base::ids::StackId;

use super::journal::Journal;
use super::stacks::Traceback;

pub struct Allocator {
    model: CachingAllocator,
    device: SimulatedDevice,
}

impl Default for Allocator {
    fn default() -> Self {
        let model = CachingAllocator::new(Behaviour::for_release(NEWEST), Settings::default(), None);
        Allocator { model, device: SimulatedDevice::new(0, 1 << 46) }
    }
}

impl Allocator {
    pub fn allocate(&mut self, size: u64, traceback: Traceback, journal: &mut Journal) -> BlockId {
        let request = Request { context: context_of(traceback), ..Request::in_default_pool(size, 0) };
        let block = self.model.malloc(&request, &mut self.device).expect("room on the device");
        self.record(traceback, journal);
        block
    }

    pub fn free(&mut self, block: BlockId, traceback: Traceback, journal: &mut Journal) {
        self.model.free(block, false, context_of(traceback));
        self.record(traceback, journal);
    }

    /// Gives back every segment that has no block in use.
    pub fn empty_cache(&mut self, traceback: Traceback, journal: &mut Journal) {
        self.model.release_cached_blocks(None, &[], &[], context_of(traceback), &mut self.device);
        self.record(traceback, journal);
    }

    /// The segments and their blocks, whose contexts are the numbers of tracebacks, counted from 1.
    pub fn view(&self) -> (Vec<SegmentView>, Vec<BlockView>) {
        self.model.view()
    }

    fn record(&mut self, traceback: Traceback, journal: &mut Journal) {
        for entry in &self.model.entries {
            journal.record(entry.action, entry.addr, entry.size, traceback);
        }
        self.model.entries.clear();
    }
}

fn context_of(traceback: Traceback) -> StackId {
    StackId(traceback.number as u32 + 1)
}
