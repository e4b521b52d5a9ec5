//! Limits: which figures, and how much at most.

use std::collections::BTreeMap;

use crate::study::figures::{Amount, Figure, FigureLimit, Unit};

/// What can be limited: a flag of `oomscope check`, and a key of `oomscope.toml`. Made of the rows of the
/// catalogue that have its key, the first of which stands for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit {
    first: Figure,
    key: &'static str,
}

impl Limit {
    /// All of them, in the order of their findings.
    pub fn all() -> impl Iterator<Item = Self> {
        let limits =
            Figure::ALL.iter().filter_map(|f| Some(Self { first: *f, key: f.limit()?.key }));
        limits.filter(|limit| limit.figures().next() == Some(limit.first))
    }

    /// The one with this key.
    pub fn with_key(key: &str) -> Option<Self> {
        Self::all().find(|limit| limit.key == key)
    }

    /// The figures that are held against it.
    pub fn figures(self) -> impl Iterator<Item = Figure> {
        self.rows().map(|(figure, _)| figure)
    }

    /// The same with the row of each.
    fn rows(self) -> impl Iterator<Item = (Figure, FigureLimit)> {
        let rows = Figure::ALL.iter().filter_map(|figure| Some((*figure, figure.limit()?)));
        rows.filter(move |(_, row)| row.key == self.key)
    }

    /// The key of `oomscope.toml`; the flag has `--` before it.
    pub fn key(self) -> &'static str {
        self.key
    }

    /// What is held against it, a phrase a figure.
    pub fn meanings(self) -> impl Iterator<Item = &'static str> {
        self.rows().map(|(_, row)| row.meaning)
    }

    /// The lines that explain and set it in an example of `oomscope.toml`.
    pub fn example(self) -> String {
        let mut lines: Vec<String> = self.meanings().map(|it| format!("# {it}\n")).collect();
        lines.extend(self.first.limit().map(|row| format!("{} = {}\n", row.key, row.example)));
        lines.concat()
    }

    /// Whether it takes a baseline to compare with.
    pub fn needs_baseline(self) -> bool {
        self.first.needs_baseline()
    }

    /// What it is measured in.
    pub fn unit(self) -> Unit {
        self.first.unit()
    }
}

/// The most that is allowed, by limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits(BTreeMap<Limit, Amount>);

impl Limits {
    /// Sets one.
    pub fn set(&mut self, limit: Limit, most: Amount) {
        self.0.insert(limit, most);
    }

    /// The one that is set.
    pub fn get(&self, limit: Limit) -> Option<Amount> {
        self.0.get(&limit).copied()
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that are set.
    pub fn iter(&self) -> impl Iterator<Item = (Limit, Amount)> + '_ {
        self.0.iter().map(|(limit, most)| (*limit, *most))
    }

    /// Takes over what `other` sets.
    pub(super) fn overlay(&mut self, other: &Self) {
        self.0.extend(other.iter());
    }
}
