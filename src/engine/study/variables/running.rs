//! The running functions of the user and their text.

use std::collections::BTreeSet;

use super::LiveVariables;
use crate::base::ids::{StackId, SymbolId};
use crate::python::{Line, ProgramText};

impl LiveVariables<'_> {
    fn line_of(&self, call: StackId) -> Option<Line<'_>> {
        let id = self.snapshot.stacks.frames(call).first()?;
        let (file, function) = self.snapshot.frame_text(id);
        Some(Line { file, line: self.snapshot.stacks.frame(id).line, function, calls_package: false })
    }

    /// Whether a running function may call `backward` below its line.
    pub(super) fn may_train(&self, text: &ProgramText<'_>) -> bool {
        let trains = |call: &StackId| self.line_of(*call).and_then(|line| text.has_backward_from(&line));
        self.names.calls.is_empty() || self.names.calls.iter().any(|call| trains(call).unwrap_or(true))
    }

    /// Variables of running functions whose memory no other object has, and that no text reads any more.
    pub(super) fn unread(&self, text: &ProgramText<'_>) -> Vec<SymbolId> {
        let of_call = |call: &StackId| self.line_of(*call).and_then(|line| text.unread_from(&line)).unwrap_or_default();
        let by_call: Vec<BTreeSet<String>> = self.names.calls.iter().map(of_call).collect();
        let is_unread = |(call, name): &(usize, SymbolId)| {
            by_call.get(*call).is_some_and(|names| names.contains(self.snapshot.text(*name)))
        };
        let values = self.names.alone.iter().filter(|value| value.iter().all(is_unread));
        values.filter_map(|value| value.first().map(|(_, name)| *name)).collect()
    }
}
