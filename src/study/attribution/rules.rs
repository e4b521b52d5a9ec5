//! Custom categories: a name with patterns for the frames and the annotated range of an allocation.

use glob::{MatchOptions, Pattern};
use rustc_hash::FxHashMap;

use super::live_set::LiveBlock;
use crate::base::ids::{FrameId, StackId, SymbolId};
use crate::stacks::frames::forward_slashes;
use crate::study::DeviceStudy;

/// A custom category. A block belongs to the first rule whose patterns all match; `file` and `function` must match the
/// same frame of its stack.
#[derive(Debug, Clone, Default)]
pub struct CategoryRule {
    /// The category of matching blocks, on pages and in JSON.
    pub name: String,
    /// Matches the file of a frame; a pattern without `/` matches the file name only.
    pub file: Option<Pattern>,
    /// Matches the function of the same frame.
    pub function: Option<Pattern>,
    /// Matches the innermost annotated range around the allocation.
    pub annotation: Option<Pattern>,
}

/// In a pattern with `/`, `*` does not cross directories.
const WITHIN_DIRECTORIES: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

impl CategoryRule {
    fn matches_frame(&self, file: &str, function: &str) -> bool {
        let file = forward_slashes(file);
        let matches_file = |pattern: &Pattern| {
            let name = file.rsplit('/').next().unwrap_or(&file);
            let text = if pattern.as_str().contains('/') { &*file } else { name };
            pattern.matches_with(text, WITHIN_DIRECTORIES)
        };
        self.file.as_ref().is_none_or(matches_file)
            && self.function.as_ref().is_none_or(|pattern| pattern.matches(function))
    }

    fn matches(&self, device: DeviceStudy<'_, '_>, stack: StackId, range: Option<SymbolId>) -> bool {
        let snapshot = device.snapshot();
        let matches_range = |pattern: &Pattern| range.is_some_and(|range| pattern.matches(snapshot.text(range)));
        let matches_frame = |id: FrameId| {
            let frame = snapshot.stacks.frame(id);
            self.matches_frame(snapshot.text(frame.file), snapshot.text(frame.name))
        };
        let has_frames = self.file.is_some() || self.function.is_some();
        self.annotation.as_ref().is_none_or(matches_range)
            && (!has_frames || snapshot.stacks.frames(stack).iter().any(matches_frame))
    }
}

/// Finds the rule of a block; evaluates each combination of stack and range once.
pub(super) struct RuleMatcher<'a, 'f> {
    device: DeviceStudy<'a, 'f>,
    rules: &'a [CategoryRule],
    cache: FxHashMap<(StackId, Option<SymbolId>), Option<usize>>,
}

impl<'a, 'f> RuleMatcher<'a, 'f> {
    pub(super) fn new(device: DeviceStudy<'a, 'f>, rules: &'a [CategoryRule]) -> Self {
        Self { device, rules, cache: FxHashMap::default() }
    }

    /// Index of the first rule that matches `block`.
    pub(super) fn rule_of(&mut self, block: &LiveBlock) -> Option<usize> {
        let range = block.allocated_at.and_then(|at| self.device.phases().range_at(at.entry as usize));
        let (device, rules) = (self.device, self.rules);
        *self
            .cache
            .entry((block.stack, range))
            .or_insert_with(|| rules.iter().position(|rule| rule.matches(device, block.stack, range)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_and_function_match_the_same_frame() {
        let rule = |file: &str, function: &str| CategoryRule {
            file: Some(Pattern::new(file).unwrap()),
            function: Some(Pattern::new(function).unwrap()),
            ..CategoryRule::default()
        };
        assert!(rule("cache.py", "*").matches_frame("/app/cache.py", "grow"));
        assert!(rule("cache.py", "*").matches_frame(r"C:\app\cache.py", "grow"));
        assert!(rule("/app/*.py", "gr*").matches_frame("/app/cache.py", "grow"));
        assert!(rule("**/app/**", "grow").matches_frame("/home/me/app/kv/cache.py", "grow"));
        assert!(!rule("/app/*.py", "*").matches_frame("/app/kv/cache.py", "grow"), "one directory");
        assert!(!rule("cache.py", "shrink").matches_frame("/app/cache.py", "grow"));
        assert!(!rule("cache", "*").matches_frame("/app/cache.py", "grow"), "the whole name");
    }
}
