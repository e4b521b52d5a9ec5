//! Custom categories: a name with patterns for the frames of an allocation, and for what the program calls it.

use glob::{MatchOptions, Pattern};
use rustc_hash::FxHashMap;

use super::live_set::LiveBlock;
use crate::base::ids::{StackId, SymbolId};
use crate::base::intern::SeededMap;
use crate::stacks::frames::forward_slashes;
use crate::study::DeviceStudy;
use crate::study::annotations::{AnnotatedAllocations, annotated_allocations};

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
    /// Matches the innermost annotated range around the allocation, the text of `_set_memory_metadata` that was in effect,
    /// or one that `_annotate_tensor` attached to it.
    pub annotation: Option<Pattern>,
}

/// In a pattern with `/`, `*` does not cross directories.
const WITHIN_DIRECTORIES: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

impl CategoryRule {
    fn matches_frame(&self, file: &str, function: &str) -> bool {
        let file = forward_slashes(file);
        let matches_file = self.file.as_ref().is_none_or(|pattern| {
            let name = file.rsplit('/').next().unwrap_or(&file);
            let text = if pattern.as_str().contains('/') { &*file } else { name };
            pattern.matches_with(text, WITHIN_DIRECTORIES)
        });
        matches_file && self.function.as_ref().is_none_or(|pattern| pattern.matches(function))
    }

    fn matches(&self, device: DeviceStudy<'_, '_>, stack: StackId, texts: &[SymbolId]) -> bool {
        let snapshot = device.snapshot();
        let mut frames = snapshot.stacks.frames(stack).iter().map(|id| snapshot.frame_text(id));
        let has_frames = self.file.is_some() || self.function.is_some();
        self.annotation.as_ref().is_none_or(|pattern| texts.iter().any(|text| pattern.matches(snapshot.text(*text))))
            && (!has_frames || frames.any(|(file, function)| self.matches_frame(file, function)))
    }
}

/// Finds the rule of a block; evaluates each combination of stack and texts once.
pub(super) struct RuleMatcher<'a, 'f> {
    device: DeviceStudy<'a, 'f>,
    rules: &'a [CategoryRule],
    annotated: AnnotatedAllocations,
    cache: FxHashMap<(StackId, Vec<SymbolId>), Option<usize>>,
}

impl<'a, 'f> RuleMatcher<'a, 'f> {
    /// For blocks that are live after `entries` entries.
    pub(super) fn new(device: DeviceStudy<'a, 'f>, rules: &'a [CategoryRule], entries: usize) -> Self {
        let has_annotation = rules.iter().any(|rule| rule.annotation.is_some());
        let annotated = if has_annotation { annotated_allocations(device, entries) } else { SeededMap::default() };
        Self { device, rules, annotated, cache: FxHashMap::default() }
    }

    /// Index of the first rule that matches `block`.
    pub(super) fn rule_of(&mut self, block: &LiveBlock) -> Option<usize> {
        let (device, rules) = (self.device, self.rules);
        let allocated_at = block.allocated_at.map(|at| at.entry as usize);
        let range = allocated_at.and_then(|entry| device.phases().range_at(entry));
        let metadata = allocated_at.and_then(|entry| device.device().entry(entry).user_metadata);
        let attached = self.annotated.get(&block.address).into_iter().flat_map(|(_, texts)| texts.iter().copied());
        let texts: Vec<SymbolId> = range.into_iter().chain(metadata).chain(attached).collect();
        let known = self.cache.entry((block.stack, texts));
        *known.or_insert_with_key(|(stack, texts)| rules.iter().position(|rule| rule.matches(device, *stack, texts)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(file: &str, function: &str) -> CategoryRule {
        let [file, function] = [file, function].map(|pattern| Some(Pattern::new(pattern).unwrap()));
        CategoryRule { file, function, ..CategoryRule::default() }
    }

    #[test]
    fn file_and_function_match_the_same_frame() {
        assert!(rule("cache.py", "*").matches_frame("/app/cache.py", "grow"));
        assert!(rule("cache.py", "*").matches_frame(r"C:\app\cache.py", "grow"));
        assert!(rule("/app/*.py", "gr*").matches_frame("/app/cache.py", "grow"));
        assert!(rule("**/app/**", "grow").matches_frame("/home/me/app/kv/cache.py", "grow"));
        assert!(!rule("/app/*.py", "*").matches_frame("/app/kv/cache.py", "grow"), "one directory");
        assert!(!rule("cache.py", "shrink").matches_frame("/app/cache.py", "grow"));
        assert!(!rule("cache", "*").matches_frame("/app/cache.py", "grow"), "the whole name");
    }
}
