//! Live blocks summed up, by this and by that.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::category::sort_out;
use super::kinds::{Category, Confidence};
use super::lives::{LiveBlock, LiveSet, Lives};
use super::rules::{Rule, Sorter};
use crate::base::ids::{StackId, SymbolId};
use crate::base::units::escape_name;
use crate::base::warning::words;
use crate::stacks::phases::{Phase, Phases};
use crate::study::DeviceStudy;
use crate::study::memory;
use crate::study::memory::{
    HeldByLine, HeldByStack, Share, Sum, Sums, TopRows, ranked, summed, table,
};

/// The memory that the program held at one moment. Each table adds up to `allocated_bytes`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldAt {
    /// The last entry before the moment; `None` for the start of the trace.
    pub event: Option<u64>,
    /// What the program was doing.
    pub phase: Phase,
    /// The training step, from 0 at the start of the recording; `None` where none was told.
    pub step: Option<u32>,
    /// Bytes in allocated blocks.
    pub allocated_bytes: u64,
    /// Allocated blocks.
    pub blocks: u64,
    /// By what it was for.
    pub by_category: Vec<ByCategory>,
    /// By categories of the reader's own, where there are any: most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_rule: Vec<ByRule>,
    /// By the phase that allocated it.
    pub by_phase: Vec<ByPhase>,
    /// By the age of the blocks, in training steps.
    pub by_age: Vec<ByAge>,
    /// By the innermost named range that allocated it; the rest is from outside any.
    pub by_range: TopRows<ByRange>,
    /// By the file of the user's line that allocated it.
    pub by_file: TopRows<ByFile>,
    /// By the user's line that allocated it.
    pub by_line: TopRows<HeldByLine>,
    /// By the whole stack that allocated it.
    pub by_stack: TopRows<HeldByStack>,
    /// What was allocated before the second step and never freed since, by line; empty in the first.
    pub kept_since_start: TopRows<HeldByLine>,
}

/// Live memory of one category.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ByCategory {
    /// What it is for.
    pub category: Category,
    /// How much.
    #[serde(flatten)]
    pub held: Share,
    /// What at least half of its bytes are told with.
    pub confidence: Confidence,
    /// Bytes that are told with high confidence.
    pub high_bytes: u64,
    /// Bytes that are told with medium confidence; the others are guesses.
    pub medium_bytes: u64,
}

/// Live memory of one category of the reader's own.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ByRule {
    /// Its name; `None` for memory that no rule fits.
    pub name: Option<String>,
    /// How much.
    #[serde(flatten)]
    pub held: Share,
}

/// Live memory that one phase allocated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ByPhase {
    /// The phase; `None` for blocks that are older than the recording.
    pub phase: Option<Phase>,
    /// How much.
    #[serde(flatten)]
    pub held: Share,
}

words! {
    /// How old a block is, in training steps.
    #[non_exhaustive]
    pub enum Age {
        /// Older than the recording
        BeforeRecording = "before-recording",
        /// From the recording, before its first step
        BeforeFirstStep = "before-first-step",
        /// From the first step, which is over
        FirstStep = "first-step",
        /// From a later step that is over
        EarlierStep = "earlier-step",
        /// From the step that was going on
        ThisStep = "this-step",
        /// From the recording, where no steps can be told apart
        Recorded = "recorded",
    }
}

impl Age {
    /// Of a block of step `born`, at a moment in step `now`.
    fn of(born: Option<u32>, now: Option<u32>) -> Self {
        match (born, now) {
            (_, None) => Self::Recorded,
            (None, Some(_)) => Self::BeforeFirstStep,
            (Some(born), Some(now)) if born == now => Self::ThisStep,
            (Some(0), Some(_)) => Self::FirstStep,
            (Some(_), Some(_)) => Self::EarlierStep,
        }
    }
}

/// Live memory of one age.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ByAge {
    /// How old.
    pub age: Age,
    /// How much.
    #[serde(flatten)]
    pub held: Share,
}

/// Live memory allocated inside one named range.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ByRange {
    /// The range, as `record_function` or PyTorch named it.
    pub name: String,
    /// How much.
    #[serde(flatten)]
    pub held: Share,
}

/// Live memory that lines of one file allocated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ByFile {
    /// The file; `None` gathers stacks without a line of the user's code.
    pub file: Option<String>,
    /// How much.
    #[serde(flatten)]
    pub held: Share,
}

/// The blocks of one moment, about to be summed up.
pub(super) struct Summary<'a, 'f> {
    device: DeviceStudy<'a, 'f>,
    phases: &'a Phases,
    lives: &'a Lives<'a>,
    moment: &'a LiveSet,
    /// The step and the phase of the moment.
    step: Option<u32>,
    phase: Phase,
    all: Sum,
}

impl<'a, 'f> Summary<'a, 'f> {
    pub(super) fn new(
        device: DeviceStudy<'a, 'f>,
        lives: &'a Lives<'a>,
        moment: &'a LiveSet,
    ) -> Self {
        let phases = device.phases();
        let all = moment
            .blocks
            .iter()
            .fold(Sum::default(), |all, block| all.and(Sum { bytes: block.bytes, blocks: 1 }));
        let step = moment.entry.and_then(|entry| phases.step_at(entry));
        let phase = lives.phase(moment.at);
        Self { device, phases, lives, moment, step, phase, all }
    }

    pub(super) fn report(&self, rules: &[Rule], top: usize) -> HeldAt {
        let stacks = self.device.stacks();
        let by_stack = self.sums(|block| Some(block.made_by));
        let from_the_start =
            |block: &LiveBlock| self.is_from_the_start(block).then_some(block.made_by);
        let kept = self.sums(from_the_start);
        let all_kept = kept.values().fold(Sum::default(), |all, sum| all.and(*sum));
        HeldAt {
            event: self.moment.entry.map(|entry| entry as u64),
            phase: self.phase,
            step: self.step,
            allocated_bytes: self.all.bytes,
            blocks: self.all.blocks,
            by_category: self.by_category(),
            by_rule: self.by_rule(rules),
            by_phase: self.by_phase(),
            by_age: self.by_age(),
            by_range: self.by_range(top),
            by_file: self.by_file(top),
            by_line: memory::by_line(stacks, by_stack.clone(), self.all, top),
            by_stack: memory::by_stack(stacks, by_stack, self.all, top),
            kept_since_start: memory::by_line(stacks, kept, all_kept, top),
        }
    }

    /// The blocks summed up by `key`; those without one are left out.
    fn sums<K: Eq + std::hash::Hash>(
        &self,
        mut key: impl FnMut(&LiveBlock) -> Option<K>,
    ) -> Sums<K> {
        summed(self.moment.blocks.iter().filter_map(|block| Some((key(block)?, block.bytes))))
    }

    fn by_category(&self) -> Vec<ByCategory> {
        let judged = sort_out(self.moment, self.lives, self.phases);
        let bytes = self.moment.blocks.iter().map(|block| block.bytes);
        let told = summed(judged.iter().copied().zip(bytes.clone()));
        let sums = summed(judged.iter().map(|(category, _)| *category).zip(bytes));
        let with = |key| told.get(&key).map_or(0, |sum| sum.bytes);
        let row = |(category, sum): (Category, Sum)| {
            let high_bytes = with((category, Confidence::High));
            let medium_bytes = with((category, Confidence::Medium));
            let is_half = |bytes: u64| bytes >= sum.bytes - bytes;
            let confidence = match () {
                () if is_half(high_bytes) => Confidence::High,
                () if is_half(high_bytes + medium_bytes) => Confidence::Medium,
                () => Confidence::Low,
            };
            ByCategory { category, held: sum.of(self.all), confidence, high_bytes, medium_bytes }
        };
        ranked(sums).into_iter().map(row).collect()
    }

    fn by_rule(&self, rules: &[Rule]) -> Vec<ByRule> {
        if rules.is_empty() {
            return Vec::new();
        }
        let mut sorter = Sorter::new(self.device, rules);
        // Rules of one name are one category.
        let mut name = |block: &LiveBlock| sorter.rule_of(block).map(|at| &*rules[at].name);
        let row = |(name, sum): (Option<&str>, Sum)| ByRule {
            name: name.map(escape_name),
            held: sum.of(self.all),
        };
        ranked(self.sums(|block| Some(name(block)))).into_iter().map(row).collect()
    }

    fn by_phase(&self) -> Vec<ByPhase> {
        let sums = self.sums(|block| Some(block.born.map(|born| self.lives.phase(born))));
        let row = |(phase, sum): (_, Sum)| ByPhase { phase, held: sum.of(self.all) };
        ranked(sums).into_iter().map(row).collect()
    }

    fn age(&self, block: &LiveBlock) -> Age {
        match block.born {
            None => Age::BeforeRecording,
            Some(born) => Age::of(self.phases.step_at(born.entry as usize), self.step),
        }
    }

    /// Whether a block of the first step, or of the time before it, was there in a later one.
    fn is_from_the_start(&self, block: &LiveBlock) -> bool {
        use Age::{BeforeFirstStep, BeforeRecording, FirstStep};
        self.step.is_some_and(|step| step > 0)
            && matches!(self.age(block), BeforeRecording | BeforeFirstStep | FirstStep)
    }

    fn by_age(&self) -> Vec<ByAge> {
        let mut rows: Vec<(Age, Sum)> =
            self.sums(|block| Some(self.age(block))).into_iter().collect();
        rows.sort_unstable_by_key(|(age, _)| *age);
        rows.into_iter().map(|(age, sum)| ByAge { age, held: sum.of(self.all) }).collect()
    }

    fn by_range(&self, top: usize) -> TopRows<ByRange> {
        let sums = self.sums(|block| self.phases.range_at(block.born?.entry as usize));
        table(sums, self.all, top, |name, sum| ByRange {
            name: escape_name(self.device.snapshot().text(name)),
            held: sum.of(self.all),
        })
    }

    fn by_file(&self, top: usize) -> TopRows<ByFile> {
        let stacks = self.device.stacks();
        let mut names: FxHashMap<SymbolId, String> = FxHashMap::default();
        let mut file_of = |stack: StackId| {
            let line = stacks.user_frame(stack)?;
            let file = self.device.snapshot().stacks.frame(line).file;
            names.entry(file).or_insert_with(|| stacks.frame_report(line).file);
            Some(file)
        };
        let mut files: FxHashMap<StackId, Option<SymbolId>> = FxHashMap::default();
        let sums = self.sums(|block| {
            Some(*files.entry(block.made_by).or_insert_with(|| file_of(block.made_by)))
        });
        table(sums, self.all, top, |file, sum| ByFile {
            file: file.and_then(|file| names.get(&file).cloned()),
            held: sum.of(self.all),
        })
    }
}
