//! Scripts of recordings with random changes.

use std::path::Path;

use proptest::prelude::*;

use super::program::{OperationKind, Program};
use super::script::{Script, ScriptOp, ScriptOpKind};
use crate::allocator::conf::Settings;
use crate::allocator::round_size;
use crate::base::input::Source;
use crate::replay::literal::recorded_settings;
use crate::snapshot::{BlockState, Snapshot};

/// Streams, failures in mid-trace, a recording that starts late, expandable segments, private pools.
const RECORDINGS: [&str; 6] = [
    "2.15.0-fuzz_streams-oom-lag",
    "2.15.0-streams-expandable-lag",
    "2.15.0-gpt_varlen-late",
    "2.15.0-holes-at-oom",
    "2.15.0-graphs",
    "2.1.2-fuzz_streams-oom-lag",
];

fn read(name: &str) -> Snapshot {
    let path = format!("../../fixtures/{name}.pickle.gz");
    Snapshot::read(&Source::open(Path::new(&path)).unwrap(), &|_| ()).unwrap()
}

/// Whether each free names a live block.
fn is_valid(program: &Program<'_>) -> bool {
    let mut is_live = vec![false; program.slot_count];
    for (is_live, block) in is_live.iter_mut().zip(&program.initial_blocks) {
        *is_live = block.state != BlockState::ActivePendingFree;
    }
    program.operations.iter().all(|operation| match operation.kind {
        OperationKind::Alloc { slot: Some(slot), .. } => !std::mem::replace(&mut is_live[slot as usize], true),
        OperationKind::Free { slot, .. } => std::mem::take(&mut is_live[slot as usize]),
        _ => true,
    })
}

/// Each operation without its slot: (entry index, size or a number for the kind, flag, completions).
fn without_slots(program: &Program<'_>) -> Vec<(u32, u64, bool, usize)> {
    let described = program.operations.iter().map(|operation| match operation.kind {
        OperationKind::Alloc { size, slot, completions, .. } => {
            (operation.entry_index, size, slot.is_some(), completions.slice(&program.completed).len())
        }
        OperationKind::Free { is_pending, .. } => (operation.entry_index, 0, is_pending, 0),
        OperationKind::Release { completions, .. } => {
            (operation.entry_index, 1, false, completions.slice(&program.completed).len())
        }
        _ => (operation.entry_index, 2, false, 0),
    });
    described.collect()
}

#[test]
fn an_unchanged_script_converts_back_to_its_program() {
    for name in RECORDINGS {
        let snapshot = read(name);
        for device in snapshot.devices() {
            let program = Program::from_trace(device, &recorded_settings(&snapshot));
            let script = Script::from_program(&program);
            let converted = script.to_program(&program);
            assert_eq!(without_slots(&converted), without_slots(&program), "{name}");
            assert!(is_valid(&converted), "{name}");
            let settings = Settings::default();
            assert_eq!(converted.peak_bytes(&settings), program.peak_bytes(&settings), "{name}");
            let mut sizes: Vec<u64> = script.blocks.iter().map(|block| round_size(block.bytes, &settings)).collect();
            for (size, initial) in sizes.iter_mut().zip(&program.initial_blocks) {
                *size = if initial.state == BlockState::ActivePendingFree { 0 } else { initial.size };
            }
            let peak = script.peak(|block| sizes[block as usize]);
            assert_eq!(peak.bytes, program.peak_bytes(&settings), "{name}");
            assert_eq!(peak.blocks.iter().map(|block| sizes[*block as usize]).sum::<u64>(), peak.bytes, "{name}");
        }
    }
}

fn pending(program: &Program<'_>) -> usize {
    let kinds = program.operations.iter().map(|operation| operation.kind);
    kinds.filter(|kind| matches!(kind, OperationKind::Free { is_pending: true, .. })).count()
}

/// The wait of a free that was moved belongs to another time: its memory is free at once.
#[test]
fn a_free_that_moved_is_not_pending() {
    let snapshot = read("2.15.0-fuzz_streams-oom-lag");
    let device = snapshot.devices().next().unwrap();
    let program = Program::from_trace(device, &recorded_settings(&snapshot));
    let mut script = Script::from_program(&program);
    assert!(pending(&program) > 10 && pending(&script.to_program(&program)) == pending(&program));
    for op in &mut script.ops {
        if let ScriptOpKind::Free { is_moved, .. } = &mut op.kind {
            *is_moved = true;
        }
    }
    assert_eq!(pending(&script.to_program(&program)), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A script with blocks removed, moved and duplicated converts to a valid program. If blocks were only removed, its
    /// peak is not higher.
    #[test]
    fn any_changes_make_a_program(
        which in 0..RECORDINGS.len(),
        removed in prop::collection::vec(any::<u16>(), 0..40),
        moves in prop::collection::vec(any::<(u16, u16)>(), 0..40),
    ) {
        let snapshot = read(RECORDINGS[which]);
        for device in snapshot.devices() {
            let program = Program::from_trace(device, &recorded_settings(&snapshot));
            let mut script = Script::from_program(&program);
            if script.blocks.is_empty() {
                continue;
            }
            for block in &removed {
                let block = *block as usize % script.blocks.len();
                script.blocks[block].bytes = 0;
            }
            let reduced = script.to_program(&program);
            prop_assert!(is_valid(&reduced));
            let settings = Settings::default();
            let changes_initial_blocks = script.changes_initial_blocks(&program);
            prop_assert!(changes_initial_blocks || reduced.peak_bytes(&settings) <= program.peak_bytes(&settings));
            for (from, to) in &moves {
                let (from, to) = (*from as usize % script.ops.len(), *to as usize % script.ops.len());
                let op = script.ops[from];
                let kind = match op.kind {
                    ScriptOpKind::Free { block, .. } => ScriptOpKind::Free { block, is_moved: true },
                    ScriptOpKind::Alloc(block) => ScriptOpKind::Alloc(script.duplicate_block(block)),
                    ScriptOpKind::Other => continue,
                };
                script.ops.insert(to, ScriptOp { kind, ..op });
            }
            prop_assert!(is_valid(&script.to_program(&program)));
        }
    }
}
