//! Scripts of recordings, changed at random.

use std::path::Path;

use proptest::prelude::*;

use super::program::{OperationKind, Program};
use super::script::{Op, Script, What};
use crate::allocator::conf::Settings;
use crate::base::input::Source;
use crate::replay::facts::settings_of;
use crate::snapshot::{BlockState, Snapshot};

/// Streams, failures in the middle, a late beginning, expandable segments, private pools.
const RECORDINGS: [&str; 6] = [
    "2.15.0-fuzz_streams-oom-lag",
    "2.15.0-streams-expandable-lag",
    "2.15.0-gpt_varlen-late",
    "2.15.0-holes-at-oom",
    "2.15.0-graphs",
    "2.1.2-fuzz_streams-oom-lag",
];

fn read(name: &str) -> Snapshot {
    let path = format!("fixtures/{name}.pickle.gz");
    Snapshot::read(&Source::open(Path::new(&path)).unwrap(), &|_| ()).unwrap()
}

/// Whether each free is of a block that the program has.
fn is_valid(program: &Program<'_>) -> bool {
    let mut is_held = vec![false; program.slots];
    for (slot, resident) in is_held.iter_mut().zip(&program.residents) {
        *slot = resident.state != BlockState::ActivePendingFree;
    }
    program.operations.iter().all(|operation| match operation.kind {
        OperationKind::Malloc { slot: Some(slot), .. } => {
            !std::mem::replace(&mut is_held[slot as usize], true)
        }
        OperationKind::Free { slot, .. } => std::mem::take(&mut is_held[slot as usize]),
        _ => true,
    })
}

/// What of a program there is to compare: everything but the numbers of its slots.
fn told(program: &Program<'_>) -> Vec<(u32, u64, bool, usize)> {
    let tell = |operation: &super::program::Operation| match operation.kind {
        OperationKind::Malloc { size, slot, completions, .. } => {
            (operation.at, size, slot.is_some(), completions.of(&program.completed).len())
        }
        OperationKind::Free { waits, .. } => (operation.at, 0, waits, 0),
        OperationKind::Release { completions, .. } => {
            (operation.at, 1, false, completions.of(&program.completed).len())
        }
        _ => (operation.at, 2, false, 0),
    };
    program.operations.iter().map(tell).collect()
}

#[test]
fn a_script_that_is_not_changed_is_the_program() {
    for name in RECORDINGS {
        let snapshot = read(name);
        for device in snapshot.devices() {
            let program = Program::of(device, &settings_of(&snapshot));
            let again = Script::of(&program).program(&program);
            assert_eq!(told(&again), told(&program), "{name}");
            assert!(is_valid(&again), "{name}");
            let settings = Settings::default();
            assert_eq!(again.most_held(&settings), program.most_held(&settings), "{name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is left out, moved or made twice, what is left is a program; and one of which calls were only left
    /// out never holds more.
    #[test]
    fn any_changes_make_a_program(
        which in 0..RECORDINGS.len(),
        gone in prop::collection::vec(any::<u16>(), 0..40),
        moves in prop::collection::vec(any::<(u16, u16)>(), 0..40),
    ) {
        let snapshot = read(RECORDINGS[which]);
        for device in snapshot.devices() {
            let program = Program::of(device, &settings_of(&snapshot));
            let mut script = Script::of(&program);
            if script.blocks.is_empty() {
                continue;
            }
            for block in &gone {
                let block = *block as usize % script.blocks.len();
                script.blocks[block].bytes = 0;
            }
            let fewer = script.program(&program);
            prop_assert!(is_valid(&fewer));
            let settings = Settings::default();
            let held_before = script.begins_otherwise(&program);
            prop_assert!(held_before || fewer.most_held(&settings) <= program.most_held(&settings));
            for (from, to) in &moves {
                let (from, to) = (*from as usize % script.acts.len(), *to as usize % script.acts.len());
                let act = script.acts[from];
                let what = match act.what {
                    What::Free { block, .. } => What::Free { block, is_moved: true },
                    What::Ask(block) => What::Ask(script.add_like(block)),
                    What::Other => continue,
                };
                script.acts.insert(to, Op { what, ..act });
            }
            prop_assert!(is_valid(&script.program(&program)));
        }
    }
}
