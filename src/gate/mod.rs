//! Whether snapshots keep to limits: thresholds, baselines, findings.
//!
//! A limit is a flag or a key of `oomscope.toml`; a finding holds one limit against one figure of
//! [`crate::analysis`]. Reserved memory is taken from a replay that starts with an empty pool, so that
//! what ran before cannot change a verdict. This room reads no file and prints nothing: it is given the
//! text of a configuration and answers with findings, which `report` lays out.
