//! Memory that a library takes for the time of one call, added to the calls of a program.

use super::program::{Operation, OperationKind, Program};

/// A workspace that was not asked for when the program was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scratch {
    /// When, in microseconds since the epoch.
    pub time_us: u64,
    /// On which stream.
    pub stream: u64,
    /// How much.
    pub bytes: u64,
    /// Whether the program fails without.
    pub is_needed: bool,
}

impl Program<'_> {
    /// The same program with a `scratch`, in the order of time, after all that was called by then.
    #[must_use]
    pub fn with_scratch(&self, scratch: &[Scratch]) -> Self {
        let mut operations = Vec::with_capacity(self.operations.len() + scratch.len());
        let mut next = scratch.iter().peekable();
        let mut at = 0;
        let mut add = |until: u64, at: u32, operations: &mut Vec<Operation>| {
            while let Some(&Scratch { stream, bytes, is_needed, .. }) =
                next.next_if(|scratch| scratch.time_us < until)
            {
                let kind = OperationKind::Scratch { size: bytes, stream, is_needed };
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
