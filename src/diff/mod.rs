//! What changed from one snapshot to another: totals, settings, pools and the stacks that hold memory.
//!
//! Stacks are matched by content; those left over by function and file where only lines moved; then by
//! functions alone where a file was renamed. The deltas of a table add up to the total exactly. Reads no
//! file, prints nothing.
