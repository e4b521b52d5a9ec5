//! Writes the dict that `torch.cuda.memory._snapshot()` of PyTorch 2.15 returns, value by value.
//!
//! Which values are one object in Python and which are equal copies was read off recorded files:
//! an event has its own `N/A` and its own pool id, but shares the empty metadata string; a frame
//! has its own name and file strings; the stacks of the blocks are those of the events.

use std::io;

use oomscope::allocator::{BlockView, SegmentView};
use oomscope::snapshot::BlockState;
use oomscope::snapshot::pickle::PickleWriter;

use super::allocator::Allocator;
use super::frame_lists::FrameLists;
use super::journal::{Annotation, Event};
use super::stacks::{StackSource, StackSpeller, Traceback};

pub struct SnapshotWriter<'a> {
    pickle: PickleWriter<'a>,
    frame_lists: FrameLists<'a>,
}

impl<'a> SnapshotWriter<'a> {
    pub fn new(mut pickle: PickleWriter<'a>, stacks: &'a StackSpeller) -> io::Result<Self> {
        pickle.begin_small_dict()?;
        Ok(SnapshotWriter { pickle, frame_lists: FrameLists::new(stacks) })
    }

    pub fn bytes(&self) -> u64 {
        self.pickle.written_bytes()
    }

    /// Unique frames so far.
    pub fn frames(&self) -> u64 {
        self.frame_lists.frames_written()
    }

    /// The same segments for each of `devices`.
    pub fn segments(&mut self, allocator: &Allocator, stacks: &StackSource, devices: usize) -> io::Result<()> {
        let (segments, blocks) = allocator.view();
        let total = devices * segments.len();
        self.pickle.write_interned("segments")?;
        self.pickle.begin_list()?;
        for index in 0..total {
            let (device, segment) = (index / segments.len(), &segments[index % segments.len()]);
            self.pickle.begin_item(index, total);
            self.segment(device, segment, &blocks[segment.blocks.clone()], stacks)?;
            self.pickle.end_list_item(index, total);
        }
        Ok(())
    }

    /// Begins the trace of `device`, the first of `devices` or one after [`Self::end_trace`].
    pub fn begin_trace(&mut self, device: usize, devices: usize) -> io::Result<()> {
        if device == 0 {
            self.pickle.write_interned("device_traces")?;
            self.pickle.begin_list()?;
        }
        self.pickle.begin_item(device, devices);
        self.pickle.begin_list()?;
        Ok(())
    }

    pub fn end_trace(&mut self, device: usize, devices: usize) {
        self.pickle.end_list_item(device, devices);
    }

    pub fn event(&mut self, event: &Event, index: usize, total: usize) -> io::Result<()> {
        self.pickle.begin_item(index, total);
        self.pickle.begin_small_dict()?;
        self.pickle.write_interned("action")?;
        self.pickle.write_interned(event.action.word())?;
        self.integer("addr", event.address)?;
        self.integer("size", event.size)?;
        self.integer("stream", 0)?;
        self.integer("time_us", event.time_us)?;
        self.pickle.write_interned("compile_context")?;
        self.pickle.write_text("N/A")?;
        self.pickle.write_interned("user_metadata")?;
        self.pickle.write_interned("")?;
        self.pickle.write_interned("pool_id")?;
        self.pickle.write_pair(0, 0)?;
        self.pickle.write_interned("frames")?;
        self.frame_lists.write(&mut self.pickle, event.traceback)?;
        self.pickle.end_small_dict();
        self.pickle.end_list_item(index, total);
        Ok(())
    }

    /// Writes what follows the traces and returns the length of the pickle.
    pub fn finish(mut self, annotations: &[Annotation]) -> io::Result<u64> {
        self.settings()?;
        self.pickle.write_interned("external_annotations")?;
        self.pickle.begin_list()?;
        for (index, annotation) in annotations.iter().enumerate() {
            self.pickle.begin_item(index, annotations.len());
            self.annotation(annotation)?;
            self.pickle.end_list_item(index, annotations.len());
        }
        for key in ["host_segments", "host_traces"] {
            self.pickle.write_interned(key)?;
            self.pickle.begin_list()?;
        }
        self.pickle.end_small_dict();
        self.pickle.finish()
    }

    fn segment(
        &mut self,
        device: usize,
        segment: &SegmentView,
        blocks: &[BlockView],
        stacks: &StackSource,
    ) -> io::Result<()> {
        let in_use = || blocks.iter().filter(|block| block.state != BlockState::Inactive);
        let allocated: u64 = in_use().map(|block| block.size).sum();
        let requested: u64 = in_use().map(|block| block.requested).sum();
        self.pickle.begin_small_dict()?;
        self.integer("device", device as u64)?;
        self.integer("address", segment.range.addr)?;
        self.integer("total_size", segment.range.size)?;
        self.integer("allocated_size", allocated)?;
        self.integer("active_size", allocated)?;
        self.integer("requested_size", requested)?;
        self.integer("stream", 0)?;
        self.pickle.write_interned("segment_type")?;
        self.pickle.write_interned(if segment.range.is_small { "small" } else { "large" })?;
        self.pickle.write_interned("segment_pool_id")?;
        self.pickle.write_pair(0, 0)?;
        self.pickle.write_interned("is_expandable")?;
        self.pickle.write_bool(false)?;
        self.pickle.write_interned("blocks")?;
        self.pickle.begin_list()?;
        for (index, block) in blocks.iter().enumerate() {
            self.pickle.begin_item(index, blocks.len());
            self.block(block, stacks)?;
            self.pickle.end_list_item(index, blocks.len());
        }
        self.kept_frames(stacks.traceback(segment.context))?;
        self.pickle.end_small_dict();
        Ok(())
    }

    fn block(&mut self, block: &BlockView, stacks: &StackSource) -> io::Result<()> {
        self.pickle.begin_small_dict()?;
        self.integer("address", block.addr)?;
        self.integer("size", block.size)?;
        self.integer("requested_size", block.requested)?;
        self.pickle.write_interned("state")?;
        let is_free = block.state == BlockState::Inactive;
        self.pickle.write_interned(if is_free { "inactive" } else { "active_allocated" })?;
        self.kept_frames(stacks.traceback(block.context))?;
        self.pickle.end_small_dict();
        Ok(())
    }

    fn settings(&mut self) -> io::Result<()> {
        self.pickle.write_interned("allocator_settings")?;
        self.pickle.begin_small_dict()?;
        self.pickle.write_interned("PYTORCH_CUDA_ALLOC_CONF")?;
        self.pickle.write_interned("")?;
        self.unlimited("max_split_size")?;
        self.pickle.write_interned("garbage_collection_threshold")?;
        self.pickle.write_float(0.0)?;
        self.switched_off("expandable_segments")?;
        self.integer("pinned_num_register_threads", 1)?;
        self.switched_off("release_lock_on_cudamalloc")?;
        self.switched_off("pinned_use_cuda_host_register")?;
        self.switched_off("graph_capture_record_stream_reuse")?;
        self.unlimited("max_round_threshold")?;
        self.unlimited("max_cached_size")?;
        self.pickle.write_interned("roundup_power2_divisions")?;
        self.pickle.begin_small_dict()?;
        for power in 0..16 {
            self.pickle.write_text(&(1 << power).to_string())?;
            self.pickle.write_int(0)?;
        }
        self.pickle.end_small_dict();
        self.pickle.end_small_dict();
        Ok(())
    }

    fn annotation(&mut self, annotation: &Annotation) -> io::Result<()> {
        self.pickle.begin_small_dict()?;
        self.pickle.write_text("stage")?;
        self.pickle.write_text(annotation.stage)?;
        self.pickle.write_text("name")?;
        self.pickle.write_text(annotation.name)?;
        self.integer("device", 0)?;
        self.integer("time_us", annotation.time_us)?;
        self.pickle.end_small_dict();
        Ok(())
    }

    /// The stack of a block or segment, which an event refers to later.
    fn kept_frames(&mut self, traceback: Option<Traceback>) -> io::Result<()> {
        self.pickle.write_interned("frames")?;
        match traceback {
            Some(traceback) => self.frame_lists.write_and_keep(&mut self.pickle, traceback),
            None => self.frame_lists.write_empty(&mut self.pickle),
        }
    }

    fn integer(&mut self, key: &'static str, value: u64) -> io::Result<()> {
        self.pickle.write_interned(key)?;
        self.pickle.write_unsigned(value)
    }

    fn unlimited(&mut self, key: &'static str) -> io::Result<()> {
        self.pickle.write_interned(key)?;
        self.pickle.write_int(-1)
    }

    fn switched_off(&mut self, key: &'static str) -> io::Result<()> {
        self.pickle.write_interned(key)?;
        self.pickle.write_bool(false)
    }
}
