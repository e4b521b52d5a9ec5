//! Categories of the reader's own: a name, and patterns over the frames that allocated a block and over the named
//! range that it was allocated in.

use glob::{MatchOptions, Pattern};
use rustc_hash::FxHashMap;

use super::lives::LiveBlock;
use crate::base::ids::{FrameId, StackId, SymbolId};
use crate::stacks::frames::forward_slashes;
use crate::study::DeviceStudy;

/// A category of the reader's own. A block is of the first whose patterns all match: those for file and function
/// one and the same frame of its stack.
#[derive(Debug, Clone, Default)]
pub struct Rule {
    /// What it is called.
    pub name: String,
    /// Of a frame: its file; without a `/`, the last part of its path.
    pub file: Option<Pattern>,
    /// Of the same frame: its function.
    pub function: Option<Pattern>,
    /// The innermost named range around the allocation.
    pub annotation: Option<Pattern>,
}

/// `*` stays within a directory of a path, where a pattern has one.
const WITHIN_DIRECTORIES: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

impl Rule {
    fn fits_frame(&self, file: &str, function: &str) -> bool {
        let file = forward_slashes(file);
        let of_file = |pattern: &Pattern| {
            let name = file.rsplit('/').next().unwrap_or(&file);
            let text = if pattern.as_str().contains('/') { &*file } else { name };
            pattern.matches_with(text, WITHIN_DIRECTORIES)
        };
        self.file.as_ref().is_none_or(of_file)
            && self.function.as_ref().is_none_or(|pattern| pattern.matches(function))
    }

    fn fits(&self, device: DeviceStudy<'_, '_>, stack: StackId, range: Option<SymbolId>) -> bool {
        let snapshot = device.snapshot();
        let of_range =
            |pattern: &Pattern| range.is_some_and(|range| pattern.matches(snapshot.text(range)));
        let of_frame = |id: &FrameId| {
            let frame = snapshot.stacks.frame(*id);
            self.fits_frame(snapshot.text(frame.file), snapshot.text(frame.name))
        };
        let has_frames = self.file.is_some() || self.function.is_some();
        self.annotation.as_ref().is_none_or(of_range)
            && (!has_frames || snapshot.stacks.frames(stack).iter().any(of_frame))
    }
}

/// Sorts blocks by rules, each stack and range once.
pub(super) struct Sorter<'a, 'f> {
    device: DeviceStudy<'a, 'f>,
    rules: &'a [Rule],
    known: FxHashMap<(StackId, Option<SymbolId>), Option<usize>>,
}

impl<'a, 'f> Sorter<'a, 'f> {
    pub(super) fn new(device: DeviceStudy<'a, 'f>, rules: &'a [Rule]) -> Self {
        Self { device, rules, known: FxHashMap::default() }
    }

    /// Which rule `block` is the first to fit, by its place.
    pub(super) fn rule_of(&mut self, block: &LiveBlock) -> Option<usize> {
        let range = block.born.and_then(|at| self.device.phases().range_at(at.entry as usize));
        let (device, rules) = (self.device, self.rules);
        *self
            .known
            .entry((block.stack, range))
            .or_insert_with(|| rules.iter().position(|rule| rule.fits(device, block.stack, range)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_and_function_are_of_one_frame() {
        let rule = |file: &str, function: &str| Rule {
            file: Some(Pattern::new(file).unwrap()),
            function: Some(Pattern::new(function).unwrap()),
            ..Rule::default()
        };
        assert!(rule("cache.py", "*").fits_frame("/app/cache.py", "grow"));
        assert!(rule("cache.py", "*").fits_frame(r"C:\app\cache.py", "grow"));
        assert!(rule("/app/*.py", "gr*").fits_frame("/app/cache.py", "grow"));
        assert!(rule("**/app/**", "grow").fits_frame("/home/me/app/kv/cache.py", "grow"));
        assert!(!rule("/app/*.py", "*").fits_frame("/app/kv/cache.py", "grow"), "one directory");
        assert!(!rule("cache.py", "shrink").fits_frame("/app/cache.py", "grow"));
        assert!(!rule("cache", "*").fits_frame("/app/cache.py", "grow"), "all of the name");
    }
}
