//! Distinguishes packages that help the user's code from packages that run a program of their own.
//!
//! The innermost line outside PyTorch often belongs to a package. If the package is a helper (`einops`, `opt_einsum`, a
//! layer of `torch_geometric`), its line is the same for many lines of the user's model, and it is those that can be
//! changed. If the user's line only starts a program of the package (`trainer.train()`, `model.generate(..)`), it is the
//! same for all memory, and the lines of the package say more.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::ids::FrameId;

/// Which lines of packages are reached from which lines of the user's code.
#[derive(Debug, Default)]
pub(super) struct HelperLines {
    /// By line of a package: the number of lines of the user's code that reach it.
    callers: FxHashMap<FrameId, u32>,
    /// By line of the user's code: the number of lines of packages that it reaches.
    reached: FxHashMap<FrameId, u32>,
}

impl HelperLines {
    /// `calls` are pairs of the line of a package that allocates and the innermost line of the user's code around it.
    pub(super) fn from_calls(calls: impl Iterator<Item = (FrameId, FrameId)>) -> Self {
        let distinct: FxHashSet<(FrameId, FrameId)> = calls.collect();
        let mut lines = Self::default();
        for (package, caller) in distinct {
            *lines.callers.entry(package).or_default() += 1;
            *lines.reached.entry(caller).or_default() += 1;
        }
        lines
    }

    /// Whether the line of the user's code, `caller`, represents memory that the line `package` allocates for it.
    pub(super) fn is_helper(&self, package: FrameId, caller: FrameId, is_caller_in_module: bool) -> bool {
        // 0: no stack connects a line of a package with one of the user's.
        let callers = self.callers.get(&package).copied().unwrap_or(0);
        let reached = self.reached.get(&caller).copied().unwrap_or(0);
        // A line of the user's own model may use a layer of a package, which has several lines.
        callers >= reached || is_caller_in_module && callers > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(calls: &[(u32, u32)]) -> HelperLines {
        HelperLines::from_calls(calls.iter().map(|(package, caller)| (frame(*package), frame(*caller))))
    }

    fn frame(id: u32) -> FrameId {
        FrameId::from_index(id as usize)
    }

    #[test]
    fn a_line_with_several_callers_is_a_helper() {
        let einops = lines(&[(1, 10), (1, 11), (1, 12), (2, 12)]);
        assert!(einops.is_helper(frame(1), frame(12), false));
        assert!(!einops.is_helper(frame(2), frame(12), false), "only one caller, which reaches other lines too");
        assert!(lines(&[(1, 10), (1, 10)]).is_helper(frame(1), frame(10), false), "the user's line says as much");
    }

    #[test]
    fn a_package_that_one_line_starts_is_none() {
        let trainer = lines(&[(1, 10), (2, 10), (3, 10), (1, 11), (2, 11), (3, 11)]);
        assert!(!trainer.is_helper(frame(1), frame(10), false), "training and evaluation of one model");
        assert!(trainer.is_helper(frame(1), frame(10), true), "two lines of a model use the same layer");
    }
}
