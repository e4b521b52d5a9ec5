//! What recordings say of each request of one of them.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::law::{Law, LawKind};
use super::partners::{Partners, all_partners};
use super::recording::{Recording, Request};
use super::size::Size;
use super::steps::most_of_any_step;
use super::sum::Point;
use crate::base::units::ratio;
use crate::replay::ops::Program;

/// Where more than this part of what grows does so in no exact proportion, the size is not the number that counts.
const LITTLE: f64 = 0.5;

/// A recording, with the law of each of its requests as it and others have them.
#[derive(Debug)]
pub(super) struct Learned<'r, 's, 'a> {
    pub(super) base: &'r Recording<'s, 'a>,
    /// The others, and where they have what the first asked for.
    pub(super) others: Vec<(&'r Recording<'s, 'a>, Partners)>,
    /// Of each request; `None` of those without a partner anywhere.
    pub(super) requests: Vec<Option<Law>>,
    /// Which of them ask for other bytes at every step, in no proportion to those of another recording: their law is of
    /// the most that any step asks for at that place.
    pub(super) varies: Vec<bool>,
    /// Of each block from before the recording.
    pub(super) held: Vec<Option<Law>>,
    /// The law of most requests of so many bytes.
    by_bytes: FxHashMap<u64, Law>,
}

impl<'r, 's, 'a> Learned<'r, 's, 'a> {
    /// Learns from `base` and all `others`, of other sizes.
    pub(super) fn of(base: &'r Recording<'s, 'a>, others: &[&'r Recording<'s, 'a>]) -> Self {
        let others: Vec<_> = others.iter().copied().zip(all_partners(base, others)).collect();
        let variables = base.size.variables();
        let law = |own: u64, row: usize, bytes_of: &dyn Fn(usize, usize) -> Option<u64>| {
            let mut points: Vec<Point> = vec![(base.size.numbers(), own)];
            for (index, (other, _)) in others.iter().enumerate() {
                points.extend(bytes_of(index, row).map(|bytes| (other.size.numbers(), bytes)));
            }
            points.sort_unstable();
            let is_told = |variable: usize| {
                points.iter().any(|(size, _)| size[variable] != points[0].0[variable])
            };
            // How it grows with every number has to be told.
            if points.len() <= variables || !(0..variables).all(is_told) {
                return None;
            }
            Law::through(&points)
        };
        let of_request = |index: usize, row: usize| {
            let (other, partners) = &others[index];
            let partner = partners.requests[row]?;
            other.requests.get(partner as usize).map(|request| request.bytes)
        };
        let most = most_of_any_step(base);
        let most_elsewhere: Vec<_> =
            others.iter().map(|(other, _)| most_of_any_step(other)).collect();
        let is_varied = |row: usize| {
            let elsewhere = others.iter().zip(&most_elsewhere).any(|((_, partners), most)| {
                let partner = partners.requests[row].and_then(|partner| most.get(partner as usize));
                partner.is_some_and(Option::is_some)
            });
            elsewhere || most[row].is_some()
        };
        let most_of_request = |index: usize, row: usize| {
            let partner = others[index].1.requests[row]? as usize;
            most_elsewhere[index].get(partner)?.or_else(|| of_request(index, row))
        };
        let of_held = |index: usize, row: usize| {
            let (other, partners) = &others[index];
            let partner = partners.held[row]?;
            let residents = &other.program().initial_blocks;
            residents.get(partner as usize).map(|resident| resident.requested)
        };
        let stacks = &base.device.snapshot().stacks;
        let requests = base.requests.iter().enumerate();
        let learned = requests.map(|(row, request)| {
            let own = law(request.bytes, row, &of_request);
            // Without a stack bytes alone make a pair: where they bend, not of the same request. Of two recordings, in
            // order, all that grows may.
            let may_bend = others.len() == 1 || !stacks.frames(request.stack).is_empty();
            let own = own.filter(|law| may_bend || !law.is_guess());
            // The same data at every size grows alike, whatever its steps are.
            if matches!(own, None | Some(Law::Power { .. })) || !is_varied(row) {
                return (own, false);
            }
            (law(most[row].unwrap_or(request.bytes), row, &most_of_request), true)
        });
        let (requests, varies): (Vec<Option<Law>>, Vec<bool>) = learned.unzip();
        let held = base.program().initial_blocks.iter().enumerate();
        let held = held.map(|(row, resident)| law(resident.requested, row, &of_held));
        let held = held.collect();
        let by_bytes = by_bytes(base, &requests);
        Self { base, others, requests, varies, held, by_bytes }
    }

    /// How a request without a partner may grow: as most others of as many bytes; else in proportion, as what works
    /// on the data does as a rule, and what is never freed does not.
    fn supposed(&self, request: &Request) -> Option<Law> {
        let in_proportion =
            Law::Power { degrees: [1, 1], point: (self.base.size.numbers(), request.bytes) };
        let like = self.by_bytes.get(&request.bytes).copied();
        like.or(request.freed.map(|_| in_proportion))
    }

    /// Of all bytes asked for in the recording, the share whose growth is known.
    pub(super) fn asked_paired_ratio(&self) -> f64 {
        1.0 - self.asked_ratio(|row| self.requests[row].is_none())
    }

    /// Of all bytes asked for in the recording, the share whose growth no recording checks: what grows along a bend; and
    /// where little of what grows is in exact proportion to a power of the size, all that is not. The program works
    /// with another number then, as one that is padded, or that has a token more.
    pub(super) fn guessed_ratio(&self) -> f64 {
        // Of what varies it is told that it does.
        let share = |is_such: fn(&Law) -> bool| {
            self.asked_ratio(|row| {
                !self.varies[row] && self.requests[row].is_some_and(|law| is_such(&law))
            })
        };
        let open = share(Law::is_open);
        if open > share(Law::grows) * LITTLE { open } else { share(Law::is_guess) }
    }

    /// The share of such requests, by row.
    fn asked_ratio(&self, is_such: impl Fn(usize) -> bool) -> f64 {
        let (mut all, mut such) = (0u64, 0u64);
        for (row, request) in self.base.requests.iter().enumerate() {
            all = all.saturating_add(request.bytes);
            such = such.saturating_add(if is_such(row) { request.bytes } else { 0 });
        }
        ratio(such, all)
    }

    /// The calls of the recording with the bytes of size `n`. What it held before is laid out anew where that grows.
    pub(super) fn program_at(&self, n: Size) -> Program<'a> {
        let at = |law: &Option<Law>, own: u64| law.map_or(own, |law| law.at(n.numbers()));
        let requests = self.requests.iter().zip(&self.base.requests);
        let requests: Vec<u64> = requests
            .map(|(law, request)| at(&law.or_else(|| self.supposed(request)), request.bytes))
            .collect();
        let held = self.held.iter().zip(&self.base.program().initial_blocks);
        let held: Vec<u64> = held.map(|(law, resident)| at(law, resident.requested)).collect();
        self.base.program().resized(&requests, &held)
    }
}

/// Of every number of bytes that requests of `base` ask for, the law that most of them have; the simplest of equals.
fn by_bytes(base: &Recording<'_, '_>, laws: &[Option<Law>]) -> FxHashMap<u64, Law> {
    let place = |kind: LawKind| LawKind::ALL.iter().position(|known| *known == kind);
    let mut known: FxHashMap<_, (usize, Law)> = FxHashMap::default();
    for (request, law) in base.requests.iter().zip(laws) {
        let Some(law) = law else { continue };
        let kinds = [1, 0].map(|variable| place(law.kind(variable)));
        known.entry((request.bytes, kinds)).or_insert((0, *law)).0 += 1;
    }
    let mut known: Vec<_> = known.into_iter().collect();
    known.sort_by_key(|((bytes, kinds), (times, _))| (*bytes, *times, Reverse(*kinds)));
    known.into_iter().map(|((bytes, _), (_, law))| (bytes, law)).collect()
}
