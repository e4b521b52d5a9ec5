//! The repeated ranges of the base recording.

use super::insertions::Insertion;
use super::op_sequence::Token;

/// A range of operations that repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) start: usize,
    /// Operations of a repetition.
    pub(super) unit: usize,
    /// In the base recording.
    pub(super) repetitions: usize,
}

/// The place of an operation: outside of all regions by its index in the base recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Fixed(usize),
    Repeated { region: usize, repetition: i64, offset: usize },
}

impl Region {
    pub(super) fn end(&self) -> usize {
        self.start + self.unit * self.repetitions
    }

    pub(super) fn repetitions_with(&self, extra: i64) -> i64 {
        signed(self.repetitions) + extra
    }
}

/// The regions of a base recording, and for each other recording how many repetitions it has more (a negative number).
#[derive(Debug)]
pub(super) struct Regions {
    pub(super) all: Vec<Region>,
    pub(super) extras: Vec<i64>,
}

impl Regions {
    /// All ways to see the base recording and the others as the same operations with different repetitions, the
    /// likeliest first. `insertions` has what each other recording lacks, and `more` how much smaller its size is.
    pub(super) fn find(base: &[Token], insertions: &[Vec<Insertion>], more: &[u64]) -> Vec<Self> {
        let Some(first) = insertions.first() else { return Vec::new() };
        let repetitions = first.iter().map(|insertion| insertion.len() / insertion.period);
        let common = repetitions.fold(0, greatest_common_divisor);
        let mut counts: Vec<usize> = (1..=common).filter(|count| common.is_multiple_of(*count)).collect();
        // One repetition for each unit of the size is the most frequent case.
        counts.sort_by_key(|count| (u64::try_from(*count).ok() != more.first().copied(), usize::MAX - *count));
        counts.truncate(MAX_COUNTS);
        counts.iter().filter_map(|count| Self::with_count(base, insertions, *count)).collect()
    }

    /// `count` is the number of additional repetitions in the base recording, compared with the first other one.
    fn with_count(base: &[Token], insertions: &[Vec<Insertion>], count: usize) -> Option<Self> {
        let first = insertions.first()?;
        let units: Vec<usize> = first.iter().map(|insertion| insertion.len() / count).collect();
        let mut extras = Vec::new();
        for other in insertions {
            if other.len() != first.len() {
                return None;
            }
            let more = other.first()?.len() / units.first()?;
            let is_same = |((insertion, known), unit): ((&Insertion, &Insertion), &usize)| {
                insertion.end == known.end && insertion.len() == unit * more
            };
            if more == 0 || !other.iter().zip(first).zip(&units).all(is_same) {
                return None;
            }
            extras.push(-signed(more));
        }
        let mut all: Vec<Region> = Vec::new();
        for (index, unit) in units.iter().enumerate() {
            let longest = insertions.iter().filter_map(|other| other.get(index)).min_by_key(|other| other.start)?;
            let previous_end = all.last().map_or(0, Region::end);
            let mut start = longest.start;
            while start > previous_end && base[start - 1] == base[start - 1 + unit] {
                start -= 1;
            }
            let repetitions = (longest.end - start) / unit;
            all.push(Region { start: longest.end - repetitions * unit, unit: *unit, repetitions });
        }
        let has_all = |region: &Region| extras.iter().all(|extra| region.repetitions_with(*extra) > 0);
        (!all.is_empty() && all.iter().all(has_all)).then_some(Self { all, extras })
    }

    /// The places of the operations in a recording with `extra` more repetitions than the base recording.
    pub(super) fn places(&self, extra: i64) -> Places<'_> {
        let mut shift = 0;
        let starts = self.all.iter().map(|region| {
            let start = signed(region.start) + shift;
            shift += extra * signed(region.unit);
            start
        });
        Places { regions: &self.all, extra, starts: starts.collect() }
    }
}

/// The places of the operations in a recording.
#[derive(Debug)]
pub(super) struct Places<'r> {
    regions: &'r [Region],
    /// Repetitions more than in the base recording.
    pub(super) extra: i64,
    /// Where each region starts.
    starts: Vec<i64>,
}

impl Places<'_> {
    /// The place of the operation at `index`.
    pub(super) fn at(&self, index: usize) -> Place {
        let index = signed(index);
        let next = self.starts.partition_point(|start| *start <= index);
        let Some(last) = next.checked_sub(1) else { return Place::Fixed(unsigned(index)) };
        let (region, within) = (&self.regions[last], index - self.starts[last]);
        let unit = signed(region.unit);
        if within < unit * region.repetitions_with(self.extra) {
            return Place::Repeated { region: last, repetition: within / unit, offset: unsigned(within % unit) };
        }
        Place::Fixed(unsigned(signed(region.start) + within - unit * self.extra))
    }

    pub(super) fn repetitions(&self, region: usize) -> i64 {
        self.regions[region].repetitions_with(self.extra)
    }

    /// The index of the operation at `place`.
    pub(super) fn index(&self, place: Place) -> usize {
        match place {
            Place::Fixed(index) => {
                let next = self.regions.partition_point(|region| region.start <= index);
                let shift = next.checked_sub(1).map_or(0, |last| {
                    let region = &self.regions[last];
                    self.starts[last] - signed(region.start) + signed(region.unit) * self.extra
                });
                unsigned(signed(index) + shift)
            }
            Place::Repeated { region, repetition, offset } => {
                unsigned(self.starts[region] + repetition * signed(self.regions[region].unit) + signed(offset))
            }
        }
    }

    /// The number of operations, given that of the base recording.
    pub(super) fn total(&self, base: usize) -> usize {
        let units: usize = self.regions.iter().map(|region| region.unit).sum();
        unsigned(signed(base) + signed(units) * self.extra)
    }
}

pub(super) fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Negative numbers are 0.
pub(super) fn unsigned(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// Numbers of repetitions that are tried.
const MAX_COUNTS: usize = 8;

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
