//! Writes a snapshot of what the model did and holds, as `torch.cuda.memory._dump_snapshot()` of the release
//! that it follows would have: the same keys in the same order, so that it is read by the same rules.
//!
//! What the model knows only by number, or not at all (frames, pools, settings, annotations), is the
//! recording's. What its entries do not carry (compile contexts, user metadata) is written as where there is none.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::allocator::conf::Settings;
use crate::allocator::releases::{Rule, follows, key_since};
use crate::allocator::{BlockView, Entry, SegmentView};
use crate::base::ids::{FrameId, PoolId, StackId};
use crate::replay::facts::settings_under;
use crate::snapshot::pickle::{MemoKey, PickleWriter};
use crate::snapshot::{Action, BlockState, Snapshot};

/// What one device's allocator did and holds in the end.
#[derive(Debug, Clone, Copy)]
pub struct EmittedDevice<'a> {
    /// Device number.
    pub device: u64,
    /// What it did, in order, each with the time in us that it was done at.
    pub entries: &'a [(Entry, u64)],
    /// Its segments in the end: see [`crate::allocator::CachingAllocator::view`].
    pub segments: &'a [SegmentView],
    /// The blocks of the segments.
    pub blocks: &'a [BlockView],
}

/// Writes to `out` the snapshot that the model's `devices` would give in release `minor`. Their pools and stacks are those
/// of `snapshot`, which also tells the annotations, and the settings where they are not others (`under`,
/// with the string that says them).
///
/// Every frame and every stack is one object, however many entries share it, so that memory does not
/// grow with the trace.
///
/// # Errors
/// Those of `out`.
pub fn emit(
    snapshot: &Snapshot,
    minor: u32,
    under: Option<(&str, &Settings)>,
    devices: &[EmittedDevice<'_>],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut emitter = Emitter {
        snapshot,
        minor,
        entry_keys: ENTRY_KEYS.map(|key| is_written(minor, key)),
        pickle: PickleWriter::new(out)?,
        frames: vec![None; snapshot.stacks.frame_count()],
        stacks: vec![None; snapshot.stacks.len()],
    };
    emitter.pickle.begin_dict()?;
    emitter.segments(devices)?;
    emitter.traces(devices)?;
    if emitter.writes("allocator_settings") {
        emitter.settings(under)?;
    }
    if emitter.writes("external_annotations") {
        emitter.annotations()?;
    }
    if emitter.writes("host_traces") {
        emitter.empty_list("host_segments")?;
        emitter.empty_list("host_traces")?;
    }
    emitter.pickle.end_dict();
    emitter.pickle.finish()?;
    Ok(())
}

struct Emitter<'a> {
    snapshot: &'a Snapshot,
    pickle: PickleWriter<'a>,
    /// The frames and stacks that are already written.
    frames: Vec<Option<MemoKey>>,
    stacks: Vec<Option<MemoKey>>,
    /// The release that is written.
    minor: u32,
    /// Which of [`ENTRY_KEYS`] it writes.
    entry_keys: [bool; 4],
}

/// Whether release `minor` writes `key`.
fn is_written(minor: u32, key: &str) -> bool {
    key_since(key).is_some_and(|since| since <= minor)
}

/// Keys of entries that not all releases write.
const ENTRY_KEYS: [&str; 4] = ["time_us", "compile_context", "user_metadata", "pool_id"];

/// Settings by which releases are told apart, as they are unless set.
fn marks() -> [(&'static str, Value); 2] {
    [("graph_capture_record_stream_reuse", json!(false)), ("max_round_threshold", json!(-1))]
}

impl Emitter<'_> {
    fn writes(&self, key: &str) -> bool {
        is_written(self.minor, key)
    }

    fn segments(&mut self, devices: &[EmittedDevice<'_>]) -> io::Result<()> {
        let total = devices.iter().map(|device| device.segments.len()).sum();
        let segments = devices
            .iter()
            .flat_map(|device| device.segments.iter().map(move |segment| (device, segment)));
        self.pickle.interned("segments")?;
        self.list(total, segments, |this, (device, segment)| {
            this.segment(device.device, segment, &device.blocks[segment.blocks.clone()])
        })
        .map(drop)
    }

    fn segment(
        &mut self,
        device: u64,
        segment: &SegmentView,
        blocks: &[BlockView],
    ) -> io::Result<()> {
        let (mut allocated, mut active, mut requested) = (0u64, 0u64, 0u64);
        for block in blocks.iter().filter(|block| block.state != BlockState::Inactive) {
            active = active.saturating_add(block.size);
            requested = requested.saturating_add(block.requested);
            if block.state == BlockState::ActiveAllocated {
                allocated = allocated.saturating_add(block.size);
            }
        }
        self.pickle.begin_dict()?;
        self.unsigned("device", device)?;
        self.unsigned("address", segment.addr)?;
        self.unsigned("total_size", segment.size)?;
        self.unsigned("allocated_size", allocated)?;
        self.unsigned("active_size", active)?;
        self.unsigned("requested_size", requested)?;
        self.unsigned("stream", segment.stream)?;
        self.word("segment_type", if segment.is_small { "small" } else { "large" })?;
        if self.writes("is_expandable") {
            self.pool("segment_pool_id", segment.pool)?;
            self.pickle.interned("is_expandable")?;
            self.pickle.boolean(segment.is_expandable)?;
            self.frames(segment.context)?;
        }
        self.pickle.interned("blocks")?;
        self.list(blocks.len(), blocks, Self::block)?;
        self.pickle.end_dict();
        Ok(())
    }

    fn block(&mut self, block: &BlockView) -> io::Result<()> {
        let names_addresses = self.writes("is_expandable");
        self.pickle.begin_dict()?;
        if names_addresses {
            self.unsigned("address", block.addr)?;
        }
        self.unsigned("size", block.size)?;
        self.unsigned("requested_size", block.requested)?;
        let state = match block.state {
            BlockState::ActiveAllocated => "active_allocated",
            BlockState::ActivePendingFree => "active_pending_free",
            BlockState::Inactive => "inactive",
        };
        self.word("state", state)?;
        if names_addresses {
            self.frames(block.context)?;
        } else if block.state != BlockState::Inactive {
            self.history(block)?;
        }
        self.pickle.end_dict();
        Ok(())
    }

    /// Where 2.0 has the stack of a block, among those that it was made of.
    fn history(&mut self, block: &BlockView) -> io::Result<()> {
        self.pickle.interned("history")?;
        self.list(1, [block], |this, block| {
            this.pickle.begin_dict()?;
            this.unsigned("addr", block.addr)?;
            this.unsigned("real_size", block.requested)?;
            this.frames(block.context)?;
            this.pickle.end_dict();
            Ok(())
        })
        .map(drop)
    }

    /// A list for each device, in the place of its number.
    fn traces(&mut self, devices: &[EmittedDevice<'_>]) -> io::Result<()> {
        let highest = devices.iter().filter(|d| !d.entries.is_empty()).map(|d| d.device).max();
        let highest = highest.and_then(|highest| usize::try_from(highest).ok());
        let total = self.snapshot.traces.len().max(highest.map_or(0, |h| h.saturating_add(1)));
        self.pickle.interned("device_traces")?;
        self.list(total, 0..total, |this, number| {
            let device = devices.binary_search_by_key(&(number as u64), |device| device.device);
            let device = device.ok().and_then(|index| devices.get(index));
            let entries = device.map(|device| device.entries).unwrap_or_default();
            let named = || entries.iter().filter(|(entry, _)| entry.action != Action::Other);
            this.list(named().count(), named(), Self::entry).map(drop)
        })
        .map(drop)
    }

    fn entry(&mut self, (entry, time_us): &(Entry, u64)) -> io::Result<()> {
        self.pickle.begin_dict()?;
        self.word("action", entry.action.word())?;
        let addr = if entry.action == Action::Oom { "device_free" } else { "addr" };
        self.unsigned(addr, entry.addr)?;
        self.unsigned("size", entry.size)?;
        self.unsigned("stream", entry.stream)?;
        let [times, contexts, metadata, pools] = self.entry_keys;
        if times {
            self.unsigned("time_us", *time_us)?;
        }
        if contexts {
            self.word("compile_context", "N/A")?;
        }
        if metadata {
            self.word("user_metadata", "")?;
        }
        if pools {
            self.pool("pool_id", entry.pool)?;
        }
        let has_stack = !entry.action.is_shrinking() || follows(self.minor, Rule::StacksOfReleases);
        self.frames(if has_stack { entry.context } else { StackId::default() })?;
        self.pickle.end_dict();
        Ok(())
    }

    fn settings(&mut self, under: Option<(&str, &Settings)>) -> io::Result<()> {
        let recorded = self.snapshot.settings.as_ref();
        let mut effective = recorded.map_or_else(Map::new, |raw| raw.effective.clone());
        let mut string = recorded.map_or("", |raw| raw.string.as_str());
        if let Some((text, settings)) = under {
            string = text;
            effective.extend(effective_of(settings));
        } else if recorded.is_none() {
            effective.extend(effective_of(&settings_under(self.snapshot, self.minor)));
        }
        for (key, unset) in marks() {
            if !self.writes(key) {
                effective.remove(key);
            } else if !effective.contains_key(key) {
                effective.insert(key.to_owned(), unset);
            }
        }
        let total = effective.len() + 1;
        self.pickle.interned("allocator_settings")?;
        self.pickle.dict()?;
        self.pickle.before_item(0, total);
        self.word("PYTORCH_CUDA_ALLOC_CONF", string)?;
        self.pickle.after_pair(0, total);
        self.pairs(&effective, 1, total)
    }

    /// The pairs of an open dict of `total`, from `first` on.
    fn pairs(&mut self, pairs: &Map<String, Value>, first: usize, total: usize) -> io::Result<()> {
        for (index, (key, value)) in (first..).zip(pairs) {
            self.pickle.before_item(index, total);
            self.pickle.interned(key)?;
            self.value(value)?;
            self.pickle.after_pair(index, total);
        }
        Ok(())
    }

    fn value(&mut self, value: &Value) -> io::Result<()> {
        match value {
            Value::Null => self.pickle.none(),
            Value::Bool(value) => self.pickle.boolean(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(value), _) => self.pickle.unsigned(value),
                (None, Some(value)) => self.pickle.integer(value),
                (None, None) => self.pickle.float(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => self.pickle.interned(text),
            Value::Array(items) => self.list(items.len(), items, Self::value).map(drop),
            Value::Object(pairs) => {
                self.pickle.dict()?;
                self.pairs(pairs, 0, pairs.len())
            }
        }
    }

    fn annotations(&mut self) -> io::Result<()> {
        let snapshot = self.snapshot;
        let annotations = &snapshot.annotations;
        self.pickle.interned("external_annotations")?;
        self.list(annotations.len(), annotations, |this, annotation| {
            this.pickle.begin_dict()?;
            this.word("stage", if annotation.is_start { "START" } else { "END" })?;
            this.word("name", snapshot.text(annotation.name))?;
            this.unsigned("device", annotation.device)?;
            this.unsigned("time_us", annotation.time_us)?;
            this.pickle.end_dict();
            Ok(())
        })
        .map(drop)
    }

    /// The pair `frames`: PyTorch shares the list between the entries of a call and the block; here all
    /// that have equal frames share it.
    fn frames(&mut self, stack: StackId) -> io::Result<()> {
        self.pickle.interned("frames")?;
        // A caller may name a stack that the snapshot lacks: it has no frames.
        if let Some(memo) = self.stacks.get(stack.index()).copied().flatten() {
            return self.pickle.reference(memo);
        }
        let frames = self.snapshot.stacks.frames(stack);
        let memo = self.list(frames.len(), frames, |this, id| this.frame(*id))?;
        if let Some(known) = self.stacks.get_mut(stack.index()) {
            *known = Some(memo);
        }
        Ok(())
    }

    fn frame(&mut self, id: FrameId) -> io::Result<()> {
        if let Some(memo) = self.frames[id.index()] {
            return self.pickle.reference(memo);
        }
        let snapshot = self.snapshot;
        let frame = snapshot.stacks.frame(id);
        let memo = self.pickle.begin_dict()?;
        self.word("name", snapshot.text(frame.name))?;
        self.word("filename", snapshot.text(frame.file))?;
        self.unsigned("line", frame.line.into())?;
        self.pickle.end_dict();
        self.frames[id.index()] = Some(memo);
        Ok(())
    }

    fn empty_list(&mut self, key: &str) -> io::Result<()> {
        self.pickle.interned(key)?;
        self.list::<()>(0, [], |_, ()| Ok(())).map(drop)
    }

    fn list<T>(
        &mut self,
        total: usize,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<MemoKey> {
        let memo = self.pickle.list()?;
        for (index, item) in items.into_iter().enumerate() {
            self.pickle.before_item(index, total);
            write(self, item)?;
            self.pickle.after_item(index, total);
        }
        Ok(memo)
    }

    fn unsigned(&mut self, key: &str, value: u64) -> io::Result<()> {
        self.pickle.interned(key)?;
        self.pickle.unsigned(value)
    }

    fn word(&mut self, key: &str, value: &str) -> io::Result<()> {
        self.pickle.interned(key)?;
        self.pickle.interned(value)
    }

    fn pool(&mut self, key: &str, pool: PoolId) -> io::Result<()> {
        let [first, second] = self.snapshot.pools.get(pool);
        self.pickle.interned(key)?;
        self.pickle.pair(first, second)
    }
}

/// Settings as `allocator_settings` has them.
fn effective_of(settings: &Settings) -> Map<String, Value> {
    let divisions = settings.roundup_power2_divisions.iter().enumerate();
    let divisions: Map<String, Value> =
        divisions.map(|(bucket, d)| ((1u64 << bucket).to_string(), json!(d))).collect();
    let pairs = [
        ("expandable_segments", json!(settings.expandable_segments)),
        ("garbage_collection_threshold", json!(settings.garbage_collection_threshold)),
        // -1 stands for no limit.
        ("max_split_size", json!(i64::try_from(settings.max_split_size).unwrap_or(-1))),
        ("roundup_power2_divisions", Value::Object(divisions)),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
