//! The stacks of a page's allocations: a tree of frames, and the source lines that label them.

use rustc_hash::FxHashMap;

use super::columns::Column;
use crate::base::ids::{FrameId, StackId, SymbolId};
use crate::base::intern::{Distinct, Symbols};
use crate::stacks::frames::{CodeLocation, LineId, StackReader};

pub(super) struct StackTable<'a, 's> {
    reader: &'a StackReader<'s>,
    /// Parent and frame; the root has neither.
    pub(super) nodes: Distinct<(u32, Option<u32>)>,
    pub(super) frames: Distinct<FrameId>,
    pub(super) lines: Distinct<LineId>,
    /// Node and line of each interned stack, and whether its block is older than the recording.
    known: FxHashMap<(StackId, bool), (u32, u32)>,
    /// Node of each interned stack.
    known_nodes: FxHashMap<StackId, u32>,
}

impl<'a, 's> StackTable<'a, 's> {
    pub(super) fn new(reader: &'a StackReader<'s>) -> Self {
        let (mut nodes, frames, lines) = (Distinct::default(), Distinct::default(), Distinct::default());
        nodes.add((0, None));
        Self { reader, nodes, frames, lines, known: FxHashMap::default(), known_nodes: FxHashMap::default() }
    }

    /// Adds the `stack` of a block, which `is_older` than the recording or not; returns the node of its innermost frame and
    /// its line.
    pub(super) fn intern(&mut self, stack: StackId, is_older: bool) -> (u32, u32) {
        if let Some(known) = self.known.get(&(stack, is_older)) {
            return *known;
        }
        let node = self.intern_node(stack);
        let id = self.reader.line_id(stack).for_block(is_older);
        let line = self.lines.add(id);
        // Lines refer to frames of their own, which must be in the table too.
        for frame in [id.frame, id.caller].into_iter().flatten() {
            self.frames.add(frame);
        }
        self.known.insert((stack, is_older), (node, line));
        (node, line)
    }

    /// Adds a stack without a row in the table of lines; returns the node of its innermost frame.
    pub(super) fn intern_node(&mut self, stack: StackId) -> u32 {
        *self.known_nodes.entry(stack).or_insert_with(|| {
            let frames = self.reader.frames_with_callers(stack).into_iter().rev();
            frames.fold(0, |node, frame| self.nodes.add((node, Some(self.frames.add(frame)))))
        })
    }

    /// The rows of the lines at `location`.
    pub(super) fn lines_at(&self, location: &CodeLocation) -> Vec<usize> {
        let lines = self.lines.all.iter().enumerate();
        lines.filter(|(_, line)| self.reader.code_location(**line) == *location).map(|(row, _)| row).collect()
    }

    /// The columns of the table; the strings are a JSON array.
    pub(super) fn columns(&self) -> Vec<Column> {
        let mut strings = Symbols::default();
        let parents = (0_u64..).zip(&self.nodes.all).map(|(own, (parent, _))| own - u64::from(*parent));
        let of_node = self.nodes.all.iter().map(|(_, frame)| frame.map_or(0, |frame| u64::from(frame) + 1));
        let mut columns = vec![Column::from_values("nparent", parents), Column::from_values("nframe", of_node)];
        let [mut file, mut line, mut name, mut origin] = ["ffile", "fline", "fname", "forigin"].map(Column::new);
        for id in &self.frames.all {
            let frame = self.reader.frame_report(*id);
            file.push(strings.intern(&frame.file).index() as u64);
            line.push(u64::from(frame.line));
            name.push(strings.intern(&frame.name).index() as u64);
            // docs/report-data.md has the order of the kinds.
            origin.push(self.reader.origin(*id) as u64);
        }
        let [mut code, mut caller, mut text] = ["lline", "laround", "ltext"].map(Column::new);
        for id in &self.lines.all {
            let [code_row, caller_row] = [id.frame, id.caller].map(|frame| self.frames.find(frame?));
            code.push(code_row.map_or(0, |row| u64::from(row) + 1));
            caller.push(caller_row.map_or(0, |row| u64::from(row) + 1));
            text.push(strings.intern(&self.reader.code_location(*id).label()).index() as u64);
        }
        let strings: Vec<&str> = (0..strings.len()).map(|at| strings.get(SymbolId::from_index(at))).collect();
        let mut texts = Column::new("strings");
        // A list of strings has nothing that cannot be written.
        texts.bytes = serde_json::to_vec(&strings).unwrap_or_default();
        columns.extend([file, line, name, origin, code, caller, text, texts]);
        columns
    }
}
