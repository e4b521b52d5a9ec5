//! The operations that the program performed, read back from its trace.
//!
//! In: one device's trace. One request may first complete frees, release segments and take new ones; it writes its own
//! entry last. Out: each operation with its entries (`TraceOp`); the whole trace as a [`Program`], which can be
//! performed on the allocator model any number of times; a `Script`, in which operations can be removed, added and
//! moved; and the memory that went back to the device (`device_frees`). Knows nothing of the allocator's decisions.

mod device_frees;
mod program;
mod program_reader;
mod script;
#[cfg(test)]
mod script_tests;
mod trace_ops;

pub use device_frees::{DeviceFree, device_frees};
pub use program::{ListRange, LiveRequest, Operation, OperationKind, Program, ReleaseScope};
pub use script::{Script, ScriptBlock, ScriptOp, ScriptOpKind, ScriptPeak};
pub use trace_ops::{Boundary, TraceOp, TraceOpKind, TraceOps};
