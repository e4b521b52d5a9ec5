//! Frames and stacks that packets refer to by number.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::super::protobuf::Message;
use super::super::recording::Recording;
use crate::base::ids::{FrameId, StackId};

/// Fields of `InternedData` and its parts.
mod field {
    pub(super) const FUNCTION_NAMES: u32 = 5;
    pub(super) const FRAMES: u32 = 6;
    pub(super) const CALLSTACKS: u32 = 7;
    pub(super) const MAPPING_PATHS: u32 = 17;
    pub(super) const SOURCE_PATHS: u32 = 18;
    pub(super) const MAPPINGS: u32 = 19;
    pub(super) const ID: u32 = 1;
    pub(super) const TEXT: u32 = 2;
    pub(super) const FRAME_FUNCTION: u32 = 2;
    pub(super) const FRAME_MAPPING: u32 = 3;
    pub(super) const FRAME_SOURCE: u32 = 5;
    pub(super) const FRAME_LINE: u32 = 6;
    pub(super) const MAPPING_PATH: u32 = 7;
    pub(super) const STACK_FRAME: u32 = 2;
}

/// Every frame belongs to a mapping; the interpreter is the only one.
const MAPPING: u64 = 1;
const NO_STACK: &str = "(no stack recorded)";

/// Numbers of what has been interned. Texts and numbers last for the whole trace, stacks and frames for a snapshot.
#[derive(Debug, Default)]
pub(super) struct InternedStacks {
    texts: BTreeMap<(u32, String), u64>,
    last: u64,
    /// Path of the snapshot whose frames and stacks are known.
    snapshot: Option<String>,
    frames: FxHashMap<FrameId, u64>,
    stacks: FxHashMap<StackId, u64>,
    /// By their frames: stacks of a snapshot may differ in context only.
    callstacks: FxHashMap<Vec<u64>, u64>,
}

impl InternedStacks {
    /// The number of a stack that was interned.
    pub(super) fn id(&self, stack: StackId) -> u64 {
        self.stacks.get(&stack).copied().unwrap_or_default()
    }

    /// Interns `stacks`; the data to write for those that are new.
    pub(super) fn intern(&mut self, recording: &Recording<'_, '_>, stacks: impl Iterator<Item = StackId>) -> Message {
        let mut data = Message::new();
        if self.snapshot.as_deref() != Some(recording.path) {
            self.snapshot = Some(recording.path.to_owned());
            self.frames.clear();
            self.stacks.clear();
            self.callstacks.clear();
        }
        if self.last == 0 {
            self.last = MAPPING;
            let path = self.text(field::MAPPING_PATHS, "python", &mut data);
            let mut mapping = Message::new();
            mapping.unsigned(field::ID, MAPPING).unsigned(field::MAPPING_PATH, path);
            data.message(field::MAPPINGS, &mapping);
        }
        let reader = recording.study.stacks();
        for stack in stacks {
            if self.stacks.contains_key(&stack) {
                continue;
            }
            let ids = reader.frames_with_callers(stack);
            // Outermost first.
            let mut frames: Vec<u64> = Vec::new();
            for id in ids.into_iter().rev() {
                let known = self.frames.get(&id).copied();
                frames.push(known.unwrap_or_else(|| {
                    let frame = reader.frame_report(id);
                    let file = frame.file.rsplit(['/', '\\']).next().unwrap_or(&frame.file);
                    let name = format!("{} ({file}:{})", frame.name, frame.line);
                    let number = self.frame(&name, &frame.file, frame.line.into(), &mut data);
                    self.frames.insert(id, number);
                    number
                }));
            }
            if frames.is_empty() {
                frames.push(self.frame(NO_STACK, "", 0, &mut data));
            }
            let number = self.callstack(frames, &mut data);
            self.stacks.insert(stack, number);
        }
        data
    }

    fn callstack(&mut self, frames: Vec<u64>, data: &mut Message) -> u64 {
        if let Some(known) = self.callstacks.get(&frames) {
            return *known;
        }
        let number = self.next();
        let mut callstack = Message::new();
        callstack.unsigned(field::ID, number);
        for frame in &frames {
            callstack.unsigned(field::STACK_FRAME, *frame);
        }
        data.message(field::CALLSTACKS, &callstack);
        self.callstacks.insert(frames, number);
        number
    }

    fn frame(&mut self, name: &str, file: &str, line: u64, data: &mut Message) -> u64 {
        let function = self.text(field::FUNCTION_NAMES, name, data);
        let source = self.text(field::SOURCE_PATHS, file, data);
        let number = self.next();
        let mut frame = Message::new();
        frame.unsigned(field::ID, number).unsigned(field::FRAME_FUNCTION, function);
        frame.unsigned(field::FRAME_MAPPING, MAPPING).unsigned(4, 0); // rel_pc
        frame.unsigned(field::FRAME_SOURCE, source).unsigned(field::FRAME_LINE, line);
        data.message(field::FRAMES, &frame);
        number
    }

    fn text(&mut self, list: u32, text: &str, data: &mut Message) -> u64 {
        if let Some(known) = self.texts.get(&(list, text.to_owned())) {
            return *known;
        }
        let number = self.next();
        let mut interned = Message::new();
        interned.unsigned(field::ID, number).string(field::TEXT, text);
        data.message(list, &interned);
        self.texts.insert((list, text.to_owned()), number);
        number
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}
