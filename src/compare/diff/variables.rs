//! Changes of live memory by the variable that keeps it, where both snapshots name variables.

use serde::Serialize;

use super::holders::{LiveChange, OtherRows, Status, split_listed};
use crate::base::intern::SeededMap;
use crate::snapshot::{RootKind, TensorKind};
use crate::study::DeviceStudy;
use crate::study::variables::Container;

/// The variables whose memory changed between the two snapshots.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VariablesDiff {
    /// The variables, largest change first, `--top` of them.
    pub rows: Vec<VariableChange>,
    /// The sum of all other variables.
    pub other: OtherRows,
}

/// A variable or module whose memory changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VariableChange {
    /// The kind of change.
    pub status: Status,
    /// Live memory at the snapshot before and after.
    #[serde(flatten)]
    pub held: LiveChange,
    /// The module for parameters, buffers and gradients, the optimizer for its state, else the variable;
    /// with `*` for each index. Null if no variable leads to the memory.
    pub name: Option<String>,
    /// Use of the memory, as in `kept_by` of `analyze`; null if no tensor of Python uses it.
    pub kind: Option<TensorKind>,
    /// Where the name starts, as in `kept_by` of `analyze`.
    pub root: Option<RootKind>,
    /// The container whose items these are, after, or else before; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
}

type Key = (Option<String>, Option<TensorKind>, Option<RootKind>);

impl VariablesDiff {
    /// `None` unless the recorder named variables in both, or in the one that has the device.
    pub(super) fn new(devices: [Option<DeviceStudy<'_, '_>>; 2], top: usize) -> Option<Self> {
        let mut indexes: SeededMap<Key, usize> = SeededMap::default();
        let mut rows: Vec<(LiveChange, (Key, Option<Container>))> = Vec::new();
        for (side, device) in devices.into_iter().enumerate() {
            let Some(device) = device else { continue };
            let variables = device.variables()?;
            for index in 0..variables.count() {
                let kept = variables.row(index, device.stacks());
                let (owner, container) = kept.owner();
                let key = (owner, kept.kind, kept.root);
                let index = *indexes.entry(key).or_insert_with_key(|key| {
                    rows.push((LiveChange::default(), (key.clone(), None)));
                    rows.len() - 1
                });
                let (held, (_, known)) = &mut rows[index];
                held.add(side, kept.bytes, kept.blocks);
                *known = container.or(known.take());
            }
        }
        let (rows, other) = split_listed(rows, top);
        let row = |(status, held, ((name, kind, root), container))| VariableChange {
            status,
            held,
            name,
            kind,
            root,
            container,
        };
        Some(Self { rows: rows.into_iter().map(row).collect(), other })
    }
}
