//! Pairs stacks that are left new and gone although only their callers or lines changed.
//!
//! A frame more in a launcher or a notebook's kernel makes every stack below it another one. Two stacks of one function
//! and operation that hold exactly as many bytes in as many blocks are then the same.

use super::holders::DeviceHolders;
use crate::base::ids::FrameId;
use crate::base::intern::{SeededMap, SeededSet};
use crate::stacks::frames::Origin;
use crate::stacks::matching::{FrameKey, MatchedBy, Pair};

/// Frames, which give an order, and row of stacks.
type Rows = Vec<(Vec<FrameKey>, usize)>;

/// The properties that a moved stack keeps.
#[derive(PartialEq, Eq, Hash)]
struct MovedKey {
    /// The classes of the functions of the line, the caller of a package's line, and the autograd node.
    functions: [Option<u32>; 3],
    is_backward: bool,
    operation: Option<String>,
    bytes: u64,
    blocks: u64,
}

impl DeviceHolders<'_> {
    /// The pairs of these holders, with those of moved stacks in place of a new and a gone one.
    pub(super) fn with_moved_pairs(&self) -> Vec<Pair> {
        let mut candidates: SeededMap<MovedKey, [Rows; 2]> = SeededMap::default();
        for pair in self.pairs {
            let (side, row) = match pair.rows {
                [Some(row), None] => (0, row),
                [None, Some(row)] => (1, row),
                _ => continue,
            };
            let stack = &self.sides[side].stacks[row];
            let line = self.readers[side].line_id(stack.id);
            if line.frame.is_none() {
                continue;
            }
            let is_package = |id: FrameId| self.readers[side].origin(id) != Origin::User;
            let caller = line.caller.filter(|_| line.frame.is_some_and(is_package));
            let class = |id| self.words.function_class(self.words.frame_key(side, id).function);
            let key = MovedKey {
                functions: [line.frame, caller, line.node].map(|id| id.map(class)),
                is_backward: line.is_backward,
                operation: self.readers[side].operation(stack.id),
                bytes: stack.bytes,
                blocks: stack.blocks,
            };
            candidates.entry(key).or_default()[side].push((stack.frame_keys.clone(), row));
        }
        let mut moved = Vec::new();
        for [mut before, mut after] in candidates.into_values() {
            before.sort_unstable();
            after.sort_unstable();
            moved.extend(before.into_iter().zip(after).map(|((_, before), (_, after))| [Some(before), Some(after)]));
        }
        let moved_rows = [0, 1].map(|side| moved.iter().map(|rows| rows[side]).collect::<SeededSet<_>>());
        let is_left = |pair: &&Pair| match pair.rows {
            [row @ Some(_), None] => !moved_rows[0].contains(&row),
            [None, row @ Some(_)] => !moved_rows[1].contains(&row),
            _ => true,
        };
        let mut pairs: Vec<Pair> = self.pairs.iter().filter(is_left).copied().collect();
        pairs.extend(moved.into_iter().map(|rows| Pair { rows, matched_by: Some(MatchedBy::SameBytes) }));
        pairs.sort_unstable_by_key(|pair| pair.rows);
        pairs
    }
}
