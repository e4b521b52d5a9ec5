//! Writes the model's state as a snapshot, with the keys and their order that `torch.cuda.memory._dump_snapshot()` of
//! the same release writes, so that the same rules read it.
//!
//! Frames, pools, settings and annotations come from the recording, since the model knows them by id or not at all.
//! Compile contexts and user metadata are written as absent, unless the caller has them.

use std::borrow::Cow;
use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::allocator::conf::Settings;
use crate::allocator::releases::{Rule, has_rule, key_since};
use crate::allocator::{AllocatorEntry, BlockView, SegmentView};
use crate::base::ids::{FrameId, PoolId, StackId, SymbolId};
use crate::replay::literal::settings_for_release;
use crate::snapshot::pickle::{MemoKey, PickleWriter};
use crate::snapshot::{Action, BlockState, Snapshot};

/// The trace and the final state of one device's allocator.
#[derive(Debug, Clone)]
pub struct EmittedDevice<'a> {
    pub device: u64,
    /// The trace, each entry with its time in microseconds.
    pub entries: Cow<'a, [(AllocatorEntry, u64)]>,
    /// The texts of each entry; empty for entries that the model wrote.
    pub texts: Vec<EmittedTexts>,
    /// See [`crate::allocator::CachingAllocator::view`].
    pub segments: Vec<SegmentView>,
    /// The blocks of all segments.
    pub blocks: Vec<BlockView>,
}

/// Texts of an entry that the model does not know.
#[derive(Debug, Clone, Copy, Default)]
pub struct EmittedTexts {
    pub compile_context: Option<SymbolId>,
    pub user_metadata: Option<SymbolId>,
}

/// Writes to `out` the snapshot that PyTorch 2.`minor`, or the oldest known release, would write for `devices`. Pools,
/// stacks and annotations are those of `snapshot`, and so are the settings, unless `new_settings` gives others with their
/// string.
///
/// Each frame and each stack is written once, however many entries share it, so the reader's memory does not grow with
/// the trace.
///
/// # Errors
/// Any error from `out`.
pub fn emit(
    snapshot: &Snapshot,
    minor: u32,
    new_settings: Option<(&str, &Settings)>,
    devices: &[EmittedDevice<'_>],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut emitter = Emitter {
        snapshot,
        minor,
        entry_keys: ENTRY_KEYS.map(|key| is_written(minor, key)),
        pickle: PickleWriter::new(out)?,
        frames: vec![None; snapshot.stacks.frame_ids().count()],
        stacks: vec![None; snapshot.stacks.len()],
    };
    emitter.pickle.begin_small_dict()?;
    emitter.write_segments(devices)?;
    emitter.write_traces(devices)?;
    if emitter.has_key("allocator_settings") {
        emitter.write_settings(new_settings)?;
    }
    if emitter.has_key("external_annotations") {
        emitter.write_annotations()?;
    }
    if emitter.has_key("host_traces") {
        for key in ["host_segments", "host_traces"] {
            emitter.write_item(key, &json!([]))?;
        }
    }
    emitter.pickle.end_small_dict();
    emitter.pickle.finish()?;
    Ok(())
}

struct Emitter<'a> {
    snapshot: &'a Snapshot,
    pickle: PickleWriter<'a>,
    /// Frames and stacks that are already written.
    frames: Vec<Option<MemoKey>>,
    stacks: Vec<Option<MemoKey>>,
    /// The minor release of PyTorch 2 whose format is written.
    minor: u32,
    /// Whether the release has each of [`ENTRY_KEYS`].
    entry_keys: [bool; 4],
}

fn is_written(minor: u32, key: &str) -> bool {
    key_since(key).is_some_and(|since| since <= minor)
}

/// Keys of entries that only some releases write.
const ENTRY_KEYS: [&str; 4] = ["time_us", "compile_context", "user_metadata", "pool_id"];

impl Emitter<'_> {
    fn has_key(&self, key: &str) -> bool {
        is_written(self.minor, key)
    }

    fn write_segments(&mut self, devices: &[EmittedDevice<'_>]) -> io::Result<()> {
        let total = devices.iter().map(|device| device.segments.len()).sum();
        let segments = devices.iter().flat_map(|device| device.segments.iter().map(move |segment| (device, segment)));
        self.pickle.write_interned("segments")?;
        self.write_list(total, segments, |this, (device, segment)| {
            this.write_segment(device.device, segment, &device.blocks[segment.blocks.clone()])
        })
        .map(drop)
    }

    fn write_segment(&mut self, device: u64, segment: &SegmentView, blocks: &[BlockView]) -> io::Result<()> {
        let (mut allocated, mut active, mut requested) = (0u64, 0u64, 0u64);
        for block in blocks.iter().filter(|block| block.state != BlockState::Inactive) {
            active = active.saturating_add(block.size);
            requested = requested.saturating_add(block.requested);
            if block.state == BlockState::ActiveAllocated {
                allocated = allocated.saturating_add(block.size);
            }
        }
        let range = &segment.range;
        self.pickle.begin_small_dict()?;
        self.write_unsigned("device", device)?;
        self.write_unsigned("address", range.addr)?;
        self.write_unsigned("total_size", range.size)?;
        self.write_unsigned("allocated_size", allocated)?;
        self.write_unsigned("active_size", active)?;
        self.write_unsigned("requested_size", requested)?;
        self.write_unsigned("stream", range.stream)?;
        self.write_string("segment_type", if range.is_small { "small" } else { "large" })?;
        self.write_pool("segment_pool_id", range.pool)?;
        self.pickle.write_interned("is_expandable")?;
        self.pickle.write_bool(range.is_expandable)?;
        self.write_frames(segment.context)?;
        self.pickle.write_interned("blocks")?;
        self.write_list(blocks.len(), blocks, Self::write_block)?;
        self.pickle.end_small_dict();
        Ok(())
    }

    fn write_block(&mut self, block: &BlockView) -> io::Result<()> {
        self.pickle.begin_small_dict()?;
        self.write_unsigned("address", block.addr)?;
        self.write_unsigned("size", block.size)?;
        self.write_unsigned("requested_size", block.requested)?;
        let state = match block.state {
            BlockState::ActiveAllocated => "active_allocated",
            BlockState::ActivePendingFree => "active_pending_free",
            BlockState::Inactive => "inactive",
        };
        self.write_string("state", state)?;
        self.write_frames(block.context)?;
        self.pickle.end_small_dict();
        Ok(())
    }

    /// One list per device, at the index of its number.
    fn write_traces(&mut self, devices: &[EmittedDevice<'_>]) -> io::Result<()> {
        let max_device = devices.iter().filter(|d| !d.entries.is_empty()).map(|d| d.device).max();
        let max_device = max_device.and_then(|max_device| usize::try_from(max_device).ok());
        let total = self.snapshot.traces.len().max(max_device.map_or(0, |h| h.saturating_add(1)));
        self.pickle.write_interned("device_traces")?;
        self.write_list(total, 0..total, |this, number| {
            let device = devices.binary_search_by_key(&(number as u64), |device| device.device);
            let device = device.ok().and_then(|index| devices.get(index));
            // PyTorch also writes an empty list for a device without entries.
            let entries = device.map(|device| &*device.entries).unwrap_or_default();
            let texts = device.map(|device| &*device.texts).unwrap_or_default();
            let texts = texts.iter().copied().chain(std::iter::repeat(EmittedTexts::default()));
            let named_entries = entries.iter().zip(texts).filter(|((entry, _), _)| entry.action != Action::Other);
            this.write_list(named_entries.clone().count(), named_entries, Self::write_entry).map(drop)
        })
        .map(drop)
    }

    fn write_entry(&mut self, ((entry, time_us), texts): (&(AllocatorEntry, u64), EmittedTexts)) -> io::Result<()> {
        let snapshot = self.snapshot;

        self.pickle.begin_small_dict()?;
        self.write_string("action", entry.action.word())?;
        let addr = if entry.action == Action::Oom { "device_free" } else { "addr" };
        self.write_unsigned(addr, entry.addr)?;
        self.write_unsigned("size", entry.size)?;
        self.write_unsigned("stream", entry.stream)?;
        let [times, contexts, metadata, pools] = self.entry_keys;
        if times {
            self.write_unsigned("time_us", *time_us)?;
        }
        if contexts {
            self.write_string("compile_context", texts.compile_context.map_or("N/A", |id| snapshot.text(id)))?;
        }
        if metadata {
            self.write_string("user_metadata", texts.user_metadata.map_or("", |id| snapshot.text(id)))?;
        }
        if pools {
            self.write_pool("pool_id", entry.pool)?;
        }
        let has_stack = !entry.action.is_shrink() || has_rule(self.minor, Rule::StacksOfSegmentFrees);
        self.write_frames(if has_stack { entry.context } else { StackId::default() })?;
        self.pickle.end_small_dict();
        Ok(())
    }

    fn write_settings(&mut self, new_settings: Option<(&str, &Settings)>) -> io::Result<()> {
        let recorded = self.snapshot.settings.as_ref();
        let mut effective = recorded.map_or_else(Map::new, |raw| raw.effective.clone());
        let mut string = recorded.map_or("", |raw| raw.string.as_str());
        if let Some((text, settings)) = new_settings {
            string = text;
            effective.extend(effective_settings(settings));
        } else if recorded.is_none() {
            effective.extend(effective_settings(&settings_for_release(self.snapshot, self.minor)));
        }
        // Settings whose presence identifies releases, with their defaults.
        for (key, default) in [("graph_capture_record_stream_reuse", json!(false)), ("max_round_threshold", json!(-1))]
        {
            if !self.has_key(key) {
                effective.remove(key);
            } else if !effective.contains_key(key) {
                effective.insert(key.to_owned(), default);
            }
        }
        // The first of the sorted keys: all others are in lower case.
        effective.insert("PYTORCH_CUDA_ALLOC_CONF".to_owned(), json!(string));
        self.write_item("allocator_settings", &Value::Object(effective))
    }

    fn write_item(&mut self, key: &str, value: &Value) -> io::Result<()> {
        self.pickle.write_interned(key)?;
        self.write_value(value)
    }

    fn write_value(&mut self, value: &Value) -> io::Result<()> {
        match value {
            Value::Null => self.pickle.write_none(),
            Value::Bool(value) => self.pickle.write_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(value), _) => self.pickle.write_unsigned(value),
                (None, Some(value)) => self.pickle.write_int(value),
                // `as_f64` has a value for every number that serde_json parses.
                (None, None) => self.pickle.write_float(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => self.pickle.write_interned(text),
            Value::Array(items) => self.write_list(items.len(), items, Self::write_value).map(drop),
            Value::Object(pairs) => {
                self.pickle.begin_dict()?;
                for (index, (key, value)) in pairs.iter().enumerate() {
                    self.pickle.begin_item(index, pairs.len());
                    self.write_item(key, value)?;
                    self.pickle.end_dict_item(index, pairs.len());
                }
                Ok(())
            }
        }
    }

    fn write_annotations(&mut self) -> io::Result<()> {
        let snapshot = self.snapshot;
        let annotations = &snapshot.annotations;
        self.pickle.write_interned("external_annotations")?;
        self.write_list(annotations.len(), annotations, |this, annotation| {
            this.pickle.begin_small_dict()?;
            this.write_string("stage", if annotation.is_start { "START" } else { "END" })?;
            this.write_string("name", snapshot.text(annotation.name))?;
            this.write_unsigned("device", annotation.device)?;
            this.write_unsigned("time_us", annotation.time_us)?;
            this.pickle.end_small_dict();
            Ok(())
        })
        .map(drop)
    }

    /// PyTorch shares the list of frames between the entries of an operation and its block. Here, all equal lists are
    /// shared.
    fn write_frames(&mut self, stack: StackId) -> io::Result<()> {
        self.pickle.write_interned("frames")?;
        // A caller may pass a stack that the snapshot lacks: it has no frames.
        if let Some(memo) = self.stacks.get(stack.index()).copied().flatten() {
            return self.pickle.write_reference(memo);
        }
        let frames = self.snapshot.stacks.frames(stack);
        let memo = self.write_list(frames.len(), frames.iter(), Self::write_frame)?;
        if let Some(known) = self.stacks.get_mut(stack.index()) {
            *known = Some(memo);
        }
        Ok(())
    }

    fn write_frame(&mut self, id: FrameId) -> io::Result<()> {
        if let Some(memo) = self.frames[id.index()] {
            return self.pickle.write_reference(memo);
        }
        let snapshot = self.snapshot;
        let frame = snapshot.stacks.frame(id);
        let memo = self.pickle.begin_small_dict()?;
        self.write_string("name", snapshot.text(frame.name))?;
        self.write_string("filename", snapshot.text(frame.file))?;
        self.write_unsigned("line", frame.line.into())?;
        self.pickle.end_small_dict();
        self.frames[id.index()] = Some(memo);
        Ok(())
    }

    fn write_list<T>(
        &mut self,
        total: usize,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<MemoKey> {
        let memo = self.pickle.begin_list()?;
        for (index, item) in items.into_iter().enumerate() {
            self.pickle.begin_item(index, total);
            write(self, item)?;
            self.pickle.end_list_item(index, total);
        }
        Ok(memo)
    }

    fn write_unsigned(&mut self, key: &str, value: u64) -> io::Result<()> {
        self.pickle.write_interned(key)?;
        self.pickle.write_unsigned(value)
    }

    fn write_string(&mut self, key: &str, value: &str) -> io::Result<()> {
        self.pickle.write_interned(key)?;
        self.pickle.write_interned(value)
    }

    fn write_pool(&mut self, key: &str, pool: PoolId) -> io::Result<()> {
        let [first, second] = self.snapshot.pools.get(pool);
        self.pickle.write_interned(key)?;
        self.pickle.write_pair(first, second)
    }
}

/// Settings in the form of `allocator_settings`.
fn effective_settings(settings: &Settings) -> Map<String, Value> {
    let divisions = settings.roundup_power2_divisions.iter().enumerate();
    let divisions: Map<String, Value> = divisions.map(|(bucket, d)| ((1u64 << bucket).to_string(), json!(d))).collect();
    let pairs = [
        ("expandable_segments", json!(settings.expandable_segments)),
        ("garbage_collection_threshold", json!(settings.garbage_collection_threshold)),
        // PyTorch writes -1 for no limit.
        ("max_split_size", json!(i64::try_from(settings.max_split_size).unwrap_or(-1))),
        ("roundup_power2_divisions", Value::Object(divisions)),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
