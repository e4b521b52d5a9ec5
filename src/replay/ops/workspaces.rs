//! Workspaces that libraries allocate for one call, added to a program.

use super::program::{Operation, OperationKind, Program};
use crate::snapshot::Workspace;

impl Program<'_> {
    /// The same program with the `workspaces` of its device. They must be in order of time; each comes after the
    /// operations recorded before it.
    #[must_use]
    pub fn with_workspaces(&self, workspaces: &[Workspace]) -> Self {
        let mut operations = Vec::with_capacity(self.operations.len() + workspaces.len());
        let id = self.device.id();
        let mut remaining = workspaces.iter().filter(|workspace| workspace.device == id).peekable();
        let mut entry_index = 0;
        let mut push_until = |end_us: u64, entry_index: u32, operations: &mut Vec<Operation>| {
            while let Some(&Workspace { stream, bytes, is_required: is_needed, .. }) =
                remaining.next_if(|workspace| workspace.time_us < end_us)
            {
                let kind = OperationKind::Workspace { size: bytes, stream, is_needed };
                operations.push(Operation { entry_index, kind });
            }
        };
        for operation in &self.operations {
            push_until(self.time_us(operation), entry_index, &mut operations);
            operations.push(*operation);
            entry_index = operation.entry_index;
        }
        push_until(u64::MAX, entry_index, &mut operations);
        Self { operations, ..self.clone() }
    }
}
