//! What recordings say of each request of one of them.

use super::law::{Law, Point};
use super::partners::{Partners, partners};
use super::recording::Recording;
use super::steps::most_of_any_step;
use crate::calls::Program;

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
}

impl<'r, 's, 'a> Learned<'r, 's, 'a> {
    /// Learns from `base` and all `others`, of other sizes.
    pub(super) fn of(base: &'r Recording<'s, 'a>, others: &[&'r Recording<'s, 'a>]) -> Self {
        let others: Vec<_> = others.iter().map(|other| (*other, partners(base, other))).collect();
        let law = |own: u64, row: usize, bytes_of: &dyn Fn(usize, usize) -> Option<u64>| {
            let mut points: Vec<Point> = vec![(base.size, own)];
            for (index, (other, _)) in others.iter().enumerate() {
                points.extend(bytes_of(index, row).map(|bytes| (other.size, bytes)));
            }
            points.sort_unstable();
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
            let residents = &other.program().residents;
            residents.get(partner as usize).map(|resident| resident.requested)
        };
        let requests = base.requests.iter().enumerate();
        let learned = requests.map(|(row, request)| {
            let own = law(request.bytes, row, &of_request);
            // The same data at every size grows alike, whatever its steps are.
            if matches!(own, None | Some(Law::Power { .. })) || !is_varied(row) {
                return (own, false);
            }
            (law(most[row].unwrap_or(request.bytes), row, &most_of_request), true)
        });
        let (requests, varies) = learned.unzip();
        let held = base.program().residents.iter().enumerate();
        let held = held.map(|(row, resident)| law(resident.requested, row, &of_held));
        let held = held.collect();
        Self { base, others, requests, varies, held }
    }

    /// The calls of the recording with the bytes of size `n`. What it held before is laid out anew where that grows.
    pub(super) fn program_at(&self, n: u64) -> Program<'a> {
        let at = |law: &Option<Law>, own: u64| law.map_or(own, |law| law.at(n));
        let requests = self.requests.iter().zip(&self.base.requests);
        let requests: Vec<u64> = requests.map(|(law, request)| at(law, request.bytes)).collect();
        let held = self.held.iter().zip(&self.base.program().residents);
        let held: Vec<u64> = held.map(|(law, resident)| at(law, resident.requested)).collect();
        self.base.program().resized(&requests, &held)
    }
}
