//! The stacks of a page's allocations: a tree of frames, and the source lines that label them.

use rustc_hash::FxHashMap;

use super::columns::Column;
use crate::base::ids::{FrameId, StackId, to_u32};
use crate::base::intern::Symbols;
use crate::stacks::frames::{CodeLocation, LineId, Origin, StackReader};

pub(super) struct StackTable<'a, 's> {
    reader: &'a StackReader<'s>,
    /// Parent and frame; the root has neither.
    nodes: Vec<(u32, Option<u32>)>,
    node_rows: FxHashMap<(u32, u32), u32>,
    frames: Vec<FrameId>,
    frame_rows: FxHashMap<FrameId, u32>,
    lines: Vec<LineId>,
    line_rows: FxHashMap<LineId, u32>,
    /// Node and line of each interned stack, and whether its block is older than the recording.
    known: FxHashMap<(StackId, bool), (u32, u32)>,
    /// Node of each stack without a line.
    known_nodes: FxHashMap<StackId, u32>,
}

impl<'a, 's> StackTable<'a, 's> {
    pub(super) fn new(reader: &'a StackReader<'s>) -> Self {
        Self {
            reader,
            nodes: vec![(0, None)],
            node_rows: FxHashMap::default(),
            frames: Vec::new(),
            frame_rows: FxHashMap::default(),
            lines: Vec::new(),
            line_rows: FxHashMap::default(),
            known: FxHashMap::default(),
            known_nodes: FxHashMap::default(),
        }
    }

    /// Adds the `stack` of a block, which `is_older` than the recording or not; returns the node of its innermost frame and
    /// its line.
    pub(super) fn intern(&mut self, stack: StackId, is_older: bool) -> (u32, u32) {
        if let Some(known) = self.known.get(&(stack, is_older)) {
            return *known;
        }
        let node = self.node(stack);
        let line = self.reader.line_id(stack).for_block(is_older);
        let line = *self.line_rows.entry(line).or_insert_with(|| {
            self.lines.push(line);
            to_u32(self.lines.len() - 1)
        });
        // Lines refer to frames of their own, which must be in the table too.
        if let Some(LineId { frame: code, caller, .. }) = self.lines.get(line as usize).copied() {
            for frame in [code, caller].into_iter().flatten() {
                self.frame(frame);
            }
        }
        self.known.insert((stack, is_older), (node, line));
        (node, line)
    }

    /// Adds a stack that has no row in tables of lines; returns the node of its innermost frame.
    pub(super) fn intern_node(&mut self, stack: StackId) -> u32 {
        if let Some(known) = self.known_nodes.get(&stack) {
            return *known;
        }
        let node = self.node(stack);
        self.known_nodes.insert(stack, node);
        node
    }

    fn node(&mut self, stack: StackId) -> u32 {
        let mut node = 0;
        for frame in self.reader.frames_with_callers(stack).into_iter().rev() {
            let frame = self.frame(frame);
            node = *self.node_rows.entry((node, frame)).or_insert_with(|| {
                self.nodes.push((node, Some(frame)));
                to_u32(self.nodes.len() - 1)
            });
        }
        node
    }

    fn frame(&mut self, frame: FrameId) -> u32 {
        *self.frame_rows.entry(frame).or_insert_with(|| {
            self.frames.push(frame);
            to_u32(self.frames.len() - 1)
        })
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn frames(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// The rows of the lines at `location`.
    pub(super) fn lines_at(&self, location: &CodeLocation) -> Vec<usize> {
        let is_at = |line: &LineId| self.reader.code_location(*line) == *location;
        self.lines.iter().enumerate().filter(|(_, line)| is_at(line)).map(|(row, _)| row).collect()
    }

    /// The columns of the table; the strings are a JSON array.
    pub(super) fn columns(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut strings = Strings::default();
        let (mut parents, mut of_node) = (Column::default(), Column::default());
        for (own, (parent, frame)) in (0_u64..).zip(&self.nodes) {
            parents.push(own - u64::from(*parent));
            of_node.push(frame.map_or(0, |frame| u64::from(frame) + 1));
        }
        let [mut file, mut line, mut name, mut origin] = [(); 4].map(|()| Column::default());
        for id in &self.frames {
            let frame = self.reader.frame_report(*id);
            file.push(strings.add(&frame.file));
            line.push(u64::from(frame.line));
            name.push(strings.add(&frame.name));
            origin.push(match self.reader.origin(*id) {
                Origin::User => 0,
                Origin::Package => 1,
                Origin::Torch => 2,
                Origin::Plumbing => 3,
                Origin::Native => 4,
            });
        }
        let place = |frame: Option<FrameId>| {
            let row = frame.and_then(|frame| self.frame_rows.get(&frame));
            row.map_or(0, |row| u64::from(*row) + 1)
        };
        let [mut code, mut caller, mut text] = [(); 3].map(|()| Column::default());
        for id in &self.lines {
            code.push(place(id.frame));
            caller.push(place(id.caller));
            text.push(strings.add(&self.reader.code_location(*id).label()));
        }
        vec![
            ("nparent", parents.bytes),
            ("nframe", of_node.bytes),
            ("ffile", file.bytes),
            ("fline", line.bytes),
            ("fname", name.bytes),
            ("forigin", origin.bytes),
            ("lline", code.bytes),
            ("laround", caller.bytes),
            ("ltext", text.bytes),
            ("strings", strings.json()),
        ]
    }
}

#[derive(Default)]
struct Strings(Symbols);

impl Strings {
    fn add(&mut self, text: &str) -> u64 {
        self.0.intern(text).index() as u64
    }

    fn json(&self) -> Vec<u8> {
        let all = (0..self.0.len()).map(|at| self.0.get(crate::base::ids::SymbolId::from_index(at)));
        // A list of strings has nothing that cannot be written.
        serde_json::to_vec(&all.collect::<Vec<&str>>()).unwrap_or_default()
    }
}
