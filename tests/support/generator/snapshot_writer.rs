//! Writes the dict that `torch.cuda.memory._snapshot()` of PyTorch 2.15 returns, value by value.
//!
//! Which values are one object in Python and which are equal copies was read off recorded files:
//! an event has its own `N/A` and its own pool id, but shares the empty metadata string; a frame
//! has its own name and file strings; the stacks of the blocks are those of the events.

use std::io;

use oomscope::snapshot::pickle::PickleWriter;

use super::allocator::{Allocator, Block};
use super::frame_lists::FrameLists;
use super::journal::{Annotation, Event};
use super::stacks::{StackSpeller, Traceback};

pub struct SnapshotWriter<'a> {
    pickle: PickleWriter<'a>,
    frame_lists: FrameLists<'a>,
}

impl<'a> SnapshotWriter<'a> {
    pub fn new(mut pickle: PickleWriter<'a>, stacks: &'a StackSpeller) -> io::Result<Self> {
        pickle.begin_dict()?;
        Ok(SnapshotWriter { pickle, frame_lists: FrameLists::new(stacks) })
    }

    pub fn bytes(&self) -> u64 {
        self.pickle.bytes()
    }

    /// Unique frames so far.
    pub fn frames(&self) -> u64 {
        self.frame_lists.frames_written()
    }

    pub fn segments(&mut self, allocator: &Allocator) -> io::Result<()> {
        let total = allocator.segment_count();
        self.pickle.interned("segments")?;
        self.pickle.list()?;
        for (index, blocks) in allocator.segments().enumerate() {
            self.pickle.before_item(index, total);
            self.segment(&blocks)?;
            self.pickle.after_item(index, total);
        }
        Ok(())
    }

    pub fn begin_trace(&mut self) -> io::Result<()> {
        self.pickle.interned("device_traces")?;
        self.pickle.list()?;
        self.pickle.before_item(0, 1);
        self.pickle.list()?;
        Ok(())
    }

    pub fn event(&mut self, event: &Event, index: usize, total: usize) -> io::Result<()> {
        self.pickle.before_item(index, total);
        self.pickle.begin_dict()?;
        self.pickle.interned("action")?;
        self.pickle.interned(event.action.name())?;
        self.integer("addr", event.address)?;
        self.integer("size", event.size)?;
        self.integer("stream", 0)?;
        self.integer("time_us", event.time_us)?;
        self.pickle.interned("compile_context")?;
        self.pickle.text("N/A")?;
        self.pickle.interned("user_metadata")?;
        self.pickle.interned("")?;
        self.pickle.interned("pool_id")?;
        self.pickle.pair(0, 0)?;
        self.pickle.interned("frames")?;
        self.frame_lists.write(&mut self.pickle, event.traceback)?;
        self.pickle.end_dict();
        self.pickle.after_item(index, total);
        Ok(())
    }

    /// Writes what follows the trace and returns the length of the pickle.
    pub fn finish(mut self, annotations: &[Annotation]) -> io::Result<u64> {
        self.pickle.after_item(0, 1);
        self.settings()?;
        self.pickle.interned("external_annotations")?;
        self.pickle.list()?;
        for (index, annotation) in annotations.iter().enumerate() {
            self.pickle.before_item(index, annotations.len());
            self.annotation(annotation)?;
            self.pickle.after_item(index, annotations.len());
        }
        for key in ["host_segments", "host_traces"] {
            self.pickle.interned(key)?;
            self.pickle.list()?;
        }
        self.pickle.end_dict();
        self.pickle.finish()
    }

    fn segment(&mut self, blocks: &[&Block]) -> io::Result<()> {
        let total: u64 = blocks.iter().map(|block| block.size).sum();
        let in_use = || blocks.iter().filter(|block| block.allocated_by.is_some());
        let allocated: u64 = in_use().map(|block| block.size).sum();
        let requested: u64 = in_use().map(|block| block.requested).sum();
        let head = blocks[0];
        self.pickle.begin_dict()?;
        self.integer("device", 0)?;
        self.integer("address", head.address)?;
        self.integer("total_size", total)?;
        self.integer("allocated_size", allocated)?;
        self.integer("active_size", allocated)?;
        self.integer("requested_size", requested)?;
        self.integer("stream", 0)?;
        self.pickle.interned("segment_type")?;
        self.pickle.interned(if head.is_small { "small" } else { "large" })?;
        self.pickle.interned("segment_pool_id")?;
        self.pickle.pair(0, 0)?;
        self.pickle.interned("is_expandable")?;
        self.pickle.boolean(false)?;
        self.pickle.interned("blocks")?;
        self.pickle.list()?;
        for (index, block) in blocks.iter().enumerate() {
            self.pickle.before_item(index, blocks.len());
            self.block(block)?;
            self.pickle.after_item(index, blocks.len());
        }
        self.kept_frames(head.segment_made_by)?;
        self.pickle.end_dict();
        Ok(())
    }

    fn block(&mut self, block: &Block) -> io::Result<()> {
        self.pickle.begin_dict()?;
        self.integer("address", block.address)?;
        self.integer("size", block.size)?;
        self.integer("requested_size", block.requested)?;
        self.pickle.interned("state")?;
        self.pickle.interned(match block.allocated_by {
            Some(_) => "active_allocated",
            None => "inactive",
        })?;
        self.kept_frames(block.allocated_by)?;
        self.pickle.end_dict();
        Ok(())
    }

    fn settings(&mut self) -> io::Result<()> {
        self.pickle.interned("allocator_settings")?;
        self.pickle.begin_dict()?;
        self.pickle.interned("PYTORCH_CUDA_ALLOC_CONF")?;
        self.pickle.interned("")?;
        self.unlimited("max_split_size")?;
        self.pickle.interned("garbage_collection_threshold")?;
        self.pickle.float(0.0)?;
        self.switched_off("expandable_segments")?;
        self.integer("pinned_num_register_threads", 1)?;
        self.switched_off("release_lock_on_cudamalloc")?;
        self.switched_off("pinned_use_cuda_host_register")?;
        self.switched_off("graph_capture_record_stream_reuse")?;
        self.unlimited("max_round_threshold")?;
        self.unlimited("max_cached_size")?;
        self.pickle.interned("roundup_power2_divisions")?;
        self.pickle.begin_dict()?;
        for power in 0..16 {
            self.pickle.text(&(1 << power).to_string())?;
            self.pickle.integer(0)?;
        }
        self.pickle.end_dict();
        self.pickle.end_dict();
        Ok(())
    }

    fn annotation(&mut self, annotation: &Annotation) -> io::Result<()> {
        self.pickle.begin_dict()?;
        self.pickle.text("stage")?;
        self.pickle.text(annotation.stage)?;
        self.pickle.text("name")?;
        self.pickle.text(annotation.name)?;
        self.integer("device", 0)?;
        self.integer("time_us", annotation.time_us)?;
        self.pickle.end_dict();
        Ok(())
    }

    /// The stack of a block or segment, which an event refers to later.
    fn kept_frames(&mut self, traceback: Option<Traceback>) -> io::Result<()> {
        self.pickle.interned("frames")?;
        match traceback {
            Some(traceback) => self.frame_lists.write_and_keep(&mut self.pickle, traceback),
            None => self.frame_lists.write_empty(&mut self.pickle),
        }
    }

    fn integer(&mut self, key: &'static str, value: u64) -> io::Result<()> {
        self.pickle.interned(key)?;
        self.pickle.unsigned(value)
    }

    fn unlimited(&mut self, key: &'static str) -> io::Result<()> {
        self.pickle.interned(key)?;
        self.pickle.integer(-1)
    }

    fn switched_off(&mut self, key: &'static str) -> io::Result<()> {
        self.pickle.interned(key)?;
        self.pickle.boolean(false)
    }
}
