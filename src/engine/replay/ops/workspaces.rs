//! Workspaces that libraries allocate for one call, added to a program.

use std::collections::VecDeque;

use super::program::{Operation, OperationKind, Program};
use crate::snapshot::Workspace;

/// Sizes of coming requests that may be larger: at least, and at most.
type Growing = VecDeque<(u64, u64)>;

impl Program<'_> {
    /// The same program with the `workspaces` of its device. They must be in order of time; each comes after the
    /// operations recorded before it. Memory that outlives its call is a larger request of the program.
    #[must_use]
    pub fn with_workspaces(&self, workspaces: &[Workspace]) -> Self {
        let mut operations = Vec::with_capacity(self.operations.len() + workspaces.len());
        let id = self.device.id();
        let mut remaining = workspaces.iter().filter(|workspace| workspace.device == id).peekable();
        let mut entry_index = 0;
        let mut growing = Growing::new();
        let mut push_until = |end_us: u64, entry_index: u32, growing: &mut Growing, out: &mut Vec<Operation>| {
            while let Some(&Workspace { stream, bytes, is_required: is_needed, minimum_bytes, .. }) =
                remaining.next_if(|workspace| workspace.time_us < end_us)
            {
                if minimum_bytes > 0 {
                    growing.push_back((minimum_bytes, bytes));
                } else {
                    let kind = OperationKind::Workspace { size: bytes, stream, is_needed };
                    out.push(Operation { entry_index, kind });
                }
            }
        };
        for operation in &self.operations {
            push_until(self.time_us(operation), entry_index, &mut growing, &mut operations);
            let mut operation = *operation;
            if let (OperationKind::Alloc { size, .. }, Some(&(minimum, maximum))) =
                (&mut operation.kind, growing.front())
                && *size == minimum
            {
                *size = maximum.max(minimum);
                growing.pop_front();
            }
            entry_index = operation.entry_index;
            operations.push(operation);
        }
        push_until(u64::MAX, entry_index, &mut growing, &mut operations);
        Self { operations, ..self.clone() }
    }
}
