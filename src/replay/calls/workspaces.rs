//! Memory that a library takes for the time of one call, added to the calls of a program.

use super::program::{Operation, OperationKind, Program};
use crate::snapshot::Workspace;

impl Program<'_> {
    /// The same program with the `workspaces` of its device, in the order of time, each after all that was called by then.
    #[must_use]
    pub fn with_workspaces(&self, workspaces: &[Workspace]) -> Self {
        let mut operations = Vec::with_capacity(self.operations.len() + workspaces.len());
        let id = self.device.id();
        let mut next = workspaces.iter().filter(|workspace| workspace.device == id).peekable();
        let mut at = 0;
        let mut add = |until: u64, at: u32, operations: &mut Vec<Operation>| {
            while let Some(&Workspace { stream, bytes, is_needed, .. }) =
                next.next_if(|workspace| workspace.time_us < until)
            {
                let kind = OperationKind::Workspace { size: bytes, stream, is_needed };
                operations.push(Operation { at, kind });
            }
        };
        for operation in &self.operations {
            add(self.time_of(operation), at, &mut operations);
            operations.push(*operation);
            at = operation.at;
        }
        add(u64::MAX, at, &mut operations);
        Self { operations, ..self.clone() }
    }
}
